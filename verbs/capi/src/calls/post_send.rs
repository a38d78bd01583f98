//! Posting sends. Hot: nothing is allocated; a list is handed to the device a batch at a time, so
//! that its packets leave together.

use std::cell::Cell;
use std::ffi::c_int;
use std::slice;

use pumice_calls::Call;
use pumice_transport::types::{
    AtomicOperation, Operand, QpType, RemoteTarget, SendFlags, SendOpcode, SendRequest, UdDestination,
};
use pumice_transport::wire::Qpn;

use super::window_bind::{TYPE_2, window_bind};
use crate::ground::abi::{ibv_ah, ibv_qp, ibv_send_wr};
use crate::ground::arguments::{In, Out, Trusted};
use crate::ground::check;
use crate::ground::errno::{Errno, INVALID};
use crate::ground::handles::find;
use crate::ground::outcome::data_path::status_or;
use crate::ground::requests::{Posted, Requests};
use crate::objects::address_handle::Ah;
use crate::objects::memory_window::{Mw, show_not_posted, show_posted};
use crate::objects::queue_pair::Qp;

/// Requests that are handed to the device at a time.
pub(crate) const BATCH: usize = 8;
/// Requests of a list after which those before leave, though there are more: their receiver has work then.
const MOST_OWED: usize = 32;
/// Most inline data that is gathered from several elements; the device's own limit is not larger.
const GATHERED_BYTES: usize = 1024;

fn opcode(number: u32) -> Result<SendOpcode, Errno> {
    // TSO is hardware's. FLUSH and what vendors have (DRIVER1) have no fields here: calls of `ibv_qp_ex` do.
    let elsewhere = [Operand::FlushRange, Operand::KeyConfiguration, Operand::CopyTarget];
    SendOpcode::from_number(number)
        .filter(|opcode| !elsewhere.contains(&opcode.info().operand))
        .ok_or_else(|| INVALID.because(|| format!("send requests have no opcode {number}")))
}

/// The destination of a datagram; none: the address handle is of another protection domain than the queue
/// pair.
///
/// # Errors
/// EINVAL: no address handle.
#[inline]
pub(crate) fn destination(
    qp: &Qp,
    ah: Trusted<'_, ibv_ah>,
    qpn: u32,
    qkey: u32,
) -> Result<Option<UdDestination>, Errno> {
    let ah = ah.held::<Ah>().map_err(|errno| match ah.as_ptr().is_null() {
        true => errno.because(|| "a datagram needs an address handle, and wr.ud.ah is NULL".to_owned()),
        false => errno,
    })?;
    let usable = Some(ah.domain()) == qp.domain();
    Ok(usable.then(|| UdDestination { path: ah.path().clone(), qpn: Qpn::new(qpn), qkey }))
}

/// What a request asks for with these members of `wr.atomic`; `None` if it is no atomic.
#[inline]
const fn atomic_operation(opcode: SendOpcode, compare_add: u64, swap: u64) -> Option<AtomicOperation> {
    Some(match opcode {
        SendOpcode::CompareSwap => AtomicOperation::CompareSwap { compare: compare_add, swap },
        SendOpcode::FetchAdd => AtomicOperation::FetchAdd { add: compare_add },
        _ => return None,
    })
}

/// Makes a request of the device of a program's; inline data is not looked at. In its place, because a
/// request is long: each move copies it. It is as [`UNDESCRIBED`].
#[inline]
fn describe<'a>(
    qp: &Qp,
    posted: &Posted<'a, ibv_send_wr>,
    request: &mut SendRequest<'a>,
) -> Result<(), Errno> {
    let wr = posted.get();
    (request.wr_id, request.opcode) = (wr.wr_id, opcode(wr.opcode)?);
    request.flags = SendFlags::from_bits_truncate(wr.send_flags);
    request.sges = posted.elements()?;
    //= man:ibv_post_send
    //| Immediate data is given in network byte order.
    request.imm_data = wr.imm_data.to_ne_bytes();
    request.invalidate_rkey = wr.imm_data;
    request.xrc_srqn = wr.qp_type;
    request.faults_complete = true;
    if qp.is_datagram() {
        if !request.opcode.info().qp_types.contains(QpType::Ud) {
            // On SRD it is one of those that ibv_wr_* posts.
            if qp.is_of_vendor() {
                return Err(INVALID);
            }
            // It names no address handle; the device fails it when its turn comes.
            return Ok(());
        }
        // SAFETY: requests of datagram queue pairs fill in this member; numbers and pointers have no invalid
        // values.
        let ud = unsafe { wr.wr.ud };
        // SAFETY: the program has put a live address handle or NULL there.
        let ah = unsafe { Trusted::new(ud.ah) };
        request.ud = destination(qp, ah, ud.remote_qpn, ud.remote_qkey)?;
        return Ok(());
    }
    match request.opcode.info().operand {
        Operand::Atomic => {
            // SAFETY: atomics fill in this member; numbers have no invalid values.
            let atomic = unsafe { wr.wr.atomic };
            request.remote = RemoteTarget { address: atomic.remote_addr, rkey: atomic.rkey };
            request.atomic = atomic_operation(request.opcode, atomic.compare_add, atomic.swap);
        }
        Operand::Window => {
            if wr.num_sge != 0 {
                return Err(
                    INVALID.because(|| "binding a window takes no scatter/gather elements".to_owned())
                );
            }
            let bind = &wr.bind_mw;
            // SAFETY: the program has put a window there, whose structure is there until the call returns.
            let mw = unsafe { In::new(bind.mw.cast_const()) };
            let (window, wanted) = window_bind(mw, bind.rkey, &bind.bind_info, TYPE_2)?;
            if let Some(window) = window {
                show_posted(qp.number(), qp.hca(), &window, wanted.new_rkey);
            }
            request.bind = Some(wanted);
        }
        _ => {
            // SAFETY: plain numbers, whether the opcode uses them or not.
            let rdma = unsafe { wr.wr.rdma };
            request.remote = RemoteTarget { address: rdma.remote_addr, rkey: rdma.rkey };
        }
    }
    Ok(())
}

/// A post was refused: if the queue was full, the checker looks whether it can ever be free again.
#[cold]
pub(crate) fn tell_if_full(qp: &Qp, errno: Errno) {
    if errno == Errno(libc::ENOMEM) {
        check::tell(|checker| checker.send_queue_is_full(qp.number().value()));
    }
}

/// What `describe` adds to.
const UNDESCRIBED: SendRequest<'static> = SendRequest::new(0, SendOpcode::Send);

/// A program's list of requests.
type List<'a> = Requests<'a, ibv_send_wr>;

/// Hands requests to the device. On a refusal `bad_wr` gets the request that it was about.
struct Poster<'a> {
    qp: &'a Qp,
    bad_wr: Out<'a, List<'a>>,
    /// Requests that were posted and leave with later ones of the list.
    owed: Cell<usize>,
}

impl<'a> Poster<'a> {
    /// The first request of `list` was refused.
    #[cold]
    fn refuse(&self, list: List<'a>, errno: Errno) -> Errno {
        tell_if_full(self.qp, errno);
        let mut unposted = list;
        while let Some((request, rest)) = unposted.split_first() {
            if request.get().opcode == SendOpcode::BindWindow as u32
                && let Some(window) = find::<Mw>(request.get().bind_mw.mw)
            {
                show_not_posted(&window);
            }
            unposted = rest;
        }
        if let Some(bad_wr) = self.bad_wr.optional() {
            //= man:ibv_post_send
            //| The call returns the first request that it has refused.
            bad_wr.set(list);
        }
        errno
    }

    /// Posts `batch`, whose first request is the first of `list`. With `more` to come it may leave with that:
    /// so a list is one batch of packets.
    #[inline]
    fn post(&self, batch: &[SendRequest<'_>], list: List<'a>, more: bool) -> Result<(), Errno> {
        let owed = self.owed.get() + batch.len();
        if batch.is_empty() && (more || owed == 0) {
            return Ok(());
        }
        let begun = more && owed < MOST_OWED;
        self.owed.set(if begun { owed } else { 0 });
        let (hca, number) = (self.qp.hca(), self.qp.number());
        match if begun { hca.post_begun(number, batch) } else { hca.post_sends(number, batch) } {
            Ok(()) => Ok(()),
            //= statement:38
            //| A list stops at the first request that is refused, and those before it run.
            Err((position, error)) => Err(self.refuse(list.skip(position), error.into())),
        }
    }

    /// Posts the first request of `list`, which has inline data.
    #[inline]
    fn post_inline(
        &self,
        request: &mut SendRequest<'a>,
        posted: &Posted<'a, ibv_send_wr>,
        list: List<'a>,
        more: bool,
    ) -> Result<(), Errno> {
        request.inline_data = match request.sges {
            [] => &[],
            //= man:ibv_post_send
            //| Inline data is copied at the post, so its buffer may change afterwards.
            [one] => posted.memory(one),
            _ => return self.post_gathered(request, posted, list, more),
        };
        self.post(slice::from_ref(request), list, more)
    }

    #[inline(never)]
    fn post_gathered(
        &self,
        request: &SendRequest<'a>,
        posted: &Posted<'a, ibv_send_wr>,
        list: List<'a>,
        more: bool,
    ) -> Result<(), Errno> {
        let mut gathered = [0; GATHERED_BYTES];
        let mut filled = 0_usize;
        for sge in request.sges {
            let part = posted.memory(sge);
            let Some(target) = gathered.get_mut(filled..filled + part.len()) else {
                self.post(&[], list, false)?;
                return Err(self.refuse(list, INVALID));
            };
            target.copy_from_slice(part);
            filled += part.len();
        }
        let inline_data = gathered.get(..filled).unwrap_or_default();
        self.post(&[SendRequest { inline_data, ..request.clone() }], list, more)
    }

    #[inline]
    fn post_list(&self, list: List<'a>) -> Result<(), Errno> {
        let Some((only, rest)) = list.split_first() else { return Ok(()) };
        if !rest.is_empty() {
            return self.post_several(list);
        }
        let mut request = UNDESCRIBED;
        if let Err(errno) = describe(self.qp, &only, &mut request) {
            return Err(self.refuse(list, errno));
        }
        if request.flags.contains(SendFlags::INLINE) {
            self.post_inline(&mut request, &only, list, false)
        } else {
            self.post(slice::from_ref(&request), list, false)
        }
    }

    fn post_several(&self, list: List<'a>) -> Result<(), Errno> {
        let mut batch = [const { UNDESCRIBED }; BATCH];
        let (mut filled, mut first, mut next) = (0, list, list);
        while let Some((current, rest)) = next.split_first() {
            let inline = current.get().send_flags & SendFlags::INLINE.bits() != 0;
            if inline || filled == BATCH {
                self.post(batch.get(..filled).unwrap_or_default(), first, true)?;
                (filled, first) = (0, next);
            }
            let described = match batch.get_mut(filled) {
                Some(request) => {
                    *request = UNDESCRIBED;
                    describe(self.qp, &current, request).map(|()| request)
                }
                None => Err(INVALID),
            };
            match described {
                Ok(request) if inline => {
                    self.post_inline(request, &current, next, !rest.is_empty())?;
                    first = rest;
                }
                Ok(_) => filled += 1,
                Err(errno) => {
                    self.post(batch.get(..filled).unwrap_or_default(), first, false)?;
                    return Err(self.refuse(next, errno));
                }
            }
            next = rest;
        }
        self.post(batch.get(..filled).unwrap_or_default(), first, false)
    }
}

pub(crate) extern "C" fn post_send<'a>(
    qp: Trusted<'a, ibv_qp>,
    list: Requests<'a, ibv_send_wr>,
    bad_wr: Out<'a, Requests<'a, ibv_send_wr>>,
) -> c_int {
    let refused = || {
        if let Some(bad_wr) = bad_wr.optional() {
            bad_wr.set(list);
        }
    };
    status_or(Call::ibv_post_send, Qp::about(qp.as_ptr()), refused, || {
        let qp = qp.held::<Qp>().inspect_err(|_| refused())?;
        Poster { qp, bad_wr, owed: Cell::new(0) }.post_list(list)
    })
}

#[cfg(test)]
mod tests {
    use pumice_transport::types::WR_OPCODES;

    use super::*;

    #[test]
    fn exactly_the_atomics_have_operands_in_a_programs_request() {
        for info in &WR_OPCODES {
            let has_operands = atomic_operation(info.opcode, 1, 2).is_some();
            assert_eq!(has_operands, info.operand == Operand::Atomic, "{}", info.name);
        }
    }
}
