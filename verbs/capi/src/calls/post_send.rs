//! Posting of send requests. This is a hot path: it allocates no memory, and hands a list to the device a
//! batch at a time, so that its packets leave together.

use std::cell::Cell;
use std::ffi::c_int;
use std::slice;

use pumice_calls::Call;
use pumice_device::hca::HcaError;
use pumice_device::profile::PostCall;
use pumice_transport::qp::{LaneData, LaneSend, may_leave_by_lane};
use pumice_transport::types::{
    AtomicOperation, Operand, PostError, QpType, RemoteTarget, SendFlags, SendOpcode, SendRequest,
    UdDestination,
};
use pumice_transport::wire::Qpn;

use super::by_mrc;
use super::post_recv::{TYPE_2, window_bind};
use crate::abi::{Operation, ibv_ah, ibv_qp, ibv_send_wr, operation};
use crate::check;
use crate::entry::arguments::{In, Out, Trusted};
use crate::entry::data_path::status_or;
use crate::entry::handles::find;
use crate::entry::requests::{ListedRequest, RequestList};
use crate::objects::domains::Ah;
use crate::objects::memory_region::{Mw, show_not_posted, show_posted};
use crate::objects::queue_pair::Qp;
use crate::platform::{Errno, INVALID, reserve};

/// Number of requests that are handed to the device at a time.
pub(crate) const BATCH: usize = 8;
/// Number of requests of a list after which those before leave, though there are more: the receiver can begin
/// to work.
const MAX_DEFERRED: usize = 32;
/// Payload of the longest packet, in bytes: longer messages take no lane.
pub(super) const MAX_MTU_BYTES: u32 = 4096;
/// Largest inline data that is gathered from several elements, in bytes; the device's own limit is not
/// larger.
const GATHERED_BYTES: usize = 1024;

/// Returns the operation of a number of `wr.opcode`. The caller logs the reason of a refusal.
fn opcode(number: u32) -> Result<SendOpcode, Errno> {
    // TSO needs hardware. FLUSH and vendor operations (DRIVER1) have no fields here: calls of `ibv_qp_ex`
    // have them.
    let elsewhere = [Operand::FlushRange, Operand::KeyConfiguration, Operand::CopyTarget];
    SendOpcode::from_number(number)
        .filter(|opcode| !elsewhere.contains(&opcode.info().operand))
        .ok_or(INVALID)
}

/// Returns the destination of a datagram; `None` if the address handle is of another protection domain than
/// the queue pair.
///
/// # Errors
/// Fails with EINVAL if there is no address handle.
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

/// Returns the operation with these members of `wr.atomic`; `None` if it is no atomic.
#[inline]
const fn atomic_operation(opcode: SendOpcode, compare_add: u64, swap: u64) -> Option<AtomicOperation> {
    Some(match opcode {
        SendOpcode::CompareSwap => AtomicOperation::CompareSwap { compare: compare_add, swap },
        SendOpcode::FetchAdd => AtomicOperation::FetchAdd { add: compare_add },
        _ => return None,
    })
}

/// Converts a program's request to one of the device, in place because a request is long and each move copies
/// it; inline data is not read. `request` must be equal to [`UNDESCRIBED`].
#[inline]
fn describe<'a>(
    qp: &Qp,
    posted: &ListedRequest<'a, ibv_send_wr>,
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
            // On SRD such a request is one of those that `ibv_wr_*` posts.
            if qp.is_of_vendor() {
                return Err(INVALID);
            }
            // The request has no address handle; the device fails it when its turn comes.
            return Ok(());
        }
        // SAFETY: requests of datagram queue pairs fill in this member; numbers and pointers have no invalid
        // values.
        let ud = unsafe { wr.wr.ud };
        // SAFETY: the program has put a live address handle or NULL into this member.
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
            // SAFETY: the program has put a window into this member, whose structure is valid until the call
            // returns.
            let mw = unsafe { In::new(bind.mw.cast_const()) };
            let (window, wanted) = window_bind(mw, bind.rkey, &bind.bind_info, TYPE_2)?;
            if let Some(window) = window {
                show_posted(qp.number(), qp.hca(), &window, wanted.new_rkey);
            }
            request.bind = Some(wanted);
        }
        _ => {
            // SAFETY: the member has plain numbers, whether the opcode uses them or not.
            let rdma = unsafe { wr.wr.rdma };
            request.remote = RemoteTarget { address: rdma.remote_addr, rkey: rdma.rkey };
        }
    }
    Ok(())
}

/// Returns a request of a connected queue pair as a lane takes it; `None` for other operations, and for
/// messages of several elements.
#[inline]
fn lane_send<'a>(qp: &Qp, posted: &ListedRequest<'a, ibv_send_wr>) -> Option<LaneSend<'a>> {
    let wr = posted.get();
    if qp.is_datagram() || wr.num_sge > 1 {
        return None;
    }
    let opcode = SendOpcode::from_number(wr.opcode).filter(|opcode| may_leave_by_lane(*opcode))?;
    let flags = SendFlags::from_bits_truncate(wr.send_flags);
    let data = match posted.elements().ok()? {
        [one] if flags.contains(SendFlags::INLINE) => LaneData::Inline(posted.memory(one)),
        _ if flags.contains(SendFlags::INLINE) => LaneData::Inline(&[]),
        [one] if one.length <= MAX_MTU_BYTES => LaneData::Buffer(*one),
        [] => LaneData::Nothing,
        _ => return None,
    };
    // SAFETY: the member has plain numbers, whether the operation uses them or not.
    let rdma = unsafe { wr.wr.rdma };
    let remote = RemoteTarget { address: rdma.remote_addr, rkey: rdma.rkey };
    Some(LaneSend { wr_id: wr.wr_id, opcode, flags, imm_data: wr.imm_data.to_ne_bytes(), remote, data })
}

/// Reports whether a request was refused because the queue had no room.
fn is_full(error: &HcaError) -> bool {
    matches!(error, HcaError::Post { error, .. } if error.is_queue_full())
}

/// Handles a refused post: if the queue was full, the checker checks whether it can ever have room again.
#[cold]
pub(crate) fn report_if_full(qp: &Qp, error: &HcaError) {
    if is_full(error) {
        check::with_checker(|checker| checker.send_queue_is_full(qp.number().value()));
    }
}

/// Request that `describe` fills in.
const UNDESCRIBED: SendRequest<'static> = SendRequest::new(0, SendOpcode::Send);

/// A program's list of requests.
type List<'a> = RequestList<'a, ibv_send_wr>;

/// State of posting a list: hands requests to the device. After a refusal `bad_wr` gets the request that was
/// refused.
struct ListPoster<'a, const BY_MRC: bool> {
    qp: &'a Qp,
    bad_wr: Out<'a, List<'a>>,
    /// All requests that the program posts.
    full_list: List<'a>,
    /// Number of its requests that were posted.
    posted: Cell<usize>,
    /// Number of requests that were posted and leave with later ones of the list.
    deferred: Cell<usize>,
}

impl<'a, const BY_MRC: bool> ListPoster<'a, BY_MRC> {
    /// Converts a program's request as the function [`describe`] does.
    #[inline]
    fn describe(
        &self,
        posted: &ListedRequest<'a, ibv_send_wr>,
        request: &mut SendRequest<'a>,
    ) -> Result<(), Errno> {
        describe(self.qp, posted, request)?;
        if BY_MRC && self.qp.signals_all() {
            request.flags |= SendFlags::SIGNALED;
        }
        Ok(())
    }

    /// Handles the refusal of the first request of `list`, after `described - 1` more had been described.
    /// Requests after them are not read.
    #[cold]
    fn refuse(&self, list: List<'a>, described: usize, errno: Errno) -> Errno {
        let mut unposted = list;
        for _ in 0..described {
            let Some((request, rest)) = unposted.split_first() else { break };
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

    /// Handles the refusal of a request that could not be converted, as [`ListPoster::refuse`] does.
    #[cold]
    fn refuse_unclear(&self, list: List<'a>, errno: Errno) -> Errno {
        if let Some((request, _)) = list.split_first() {
            let number = request.get().opcode;
            let unknown = opcode(number).is_err().then(|| format!("send requests have no opcode {number}"));
            if let Some(reason) = unknown.or_else(|| request.malformed_reason()) {
                self.full_list.position_of(list, self.posted.get()).log_malformed(&reason);
            }
        }
        self.refuse(list, 0, errno)
    }

    /// Posts `batch`, whose first request is the first of `list`. If `more` requests follow, it may leave
    /// with them, so that a list is one batch of packets.
    #[inline]
    fn post(&self, batch: &[SendRequest<'_>], list: List<'a>, more: bool) -> Result<(), Errno> {
        let deferred = self.deferred.get() + batch.len();
        if batch.is_empty() && (more || deferred == 0) {
            return Ok(());
        }
        if !reserve::has_room_to_post() {
            let refusal =
                self.qp.hca().refused_send(self.qp.number(), PostError::NoMemory, PostCall::PostSend);
            return Err(self.refuse(list, batch.len(), refusal.into()));
        }
        let begun = more && deferred < MAX_DEFERRED;
        self.deferred.set(if begun { deferred } else { 0 });
        let (hca, number) = (self.qp.hca(), self.qp.number());
        let outcome = match (BY_MRC, begun) {
            (true, _) => hca.post_by_mrc(number, batch),
            (false, true) => hca.post_begun(number, batch),
            (false, false) => hca.post_sends(number, batch),
        };
        match outcome {
            Ok(()) => {
                self.posted.set(self.posted.get() + batch.len());
                Ok(())
            }
            //= statement:38
            //| A list stops at the first request that is refused, and those before it run.
            Err((position, error)) => {
                report_if_full(self.qp, &error);
                let (is_full, refused) = (is_full(&error), list.skip(position));
                if is_full {
                    self.full_list.position_of(refused, self.posted.get() + position).log_if_ring();
                }
                Err(self.refuse(refused, batch.len() - position, error.into()))
            }
        }
    }

    /// Posts the first request of `list`, which has inline data.
    #[inline]
    fn post_inline(
        &self,
        request: &mut SendRequest<'a>,
        posted: &ListedRequest<'a, ibv_send_wr>,
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
        posted: &ListedRequest<'a, ibv_send_wr>,
        list: List<'a>,
        more: bool,
    ) -> Result<(), Errno> {
        let most = self.qp.hca().limits().max_sge as usize;
        if request.sges.len() > most {
            // The list may be as invalid as its length: it is not read.
            self.post(&[], list, false)?;
            let error = PostError::TooManySges { given: request.sges.len(), allowed: most as u32 };
            let refusal = self.qp.hca().refused_send(self.qp.number(), error, PostCall::PostSend);
            return Err(self.refuse(list, 1, refusal.into()));
        }
        let mut gathered = [0; GATHERED_BYTES];
        let mut filled = 0_usize;
        for sge in request.sges {
            let part = posted.memory(sge);
            let Some(target) = gathered.get_mut(filled..filled + part.len()) else {
                self.post(&[], list, false)?;
                let given = request.sges.iter().map(|sge| u64::from(sge.length)).sum();
                let (hca, number) = (self.qp.hca(), self.qp.number());
                let refusal = hca.refused_inline(number, given, PostCall::PostSend);
                return Err(self.refuse(list, 1, refusal.into()));
            };
            target.copy_from_slice(part);
            filled += part.len();
        }
        let inline_data = gathered.get(..filled).unwrap_or_default();
        self.post(&[SendRequest { inline_data, ..request.clone() }], list, more)
    }

    /// Posts the only request of a list if it can leave at once. Returns false if it is not posted.
    #[inline]
    fn post_by_lane(&self, posted: &ListedRequest<'a, ibv_send_wr>) -> bool {
        let lane = lane_send(self.qp, posted);
        lane.is_some_and(|send| {
            reserve::has_room_to_post() && self.qp.hca().post_by_lane(self.qp.number(), &send)
        })
    }

    #[inline]
    fn post_list(&self, list: List<'a>) -> Result<(), Errno> {
        let Some((only, rest)) = list.split_first() else { return Ok(()) };
        if !rest.is_empty() {
            return self.post_several(list);
        }
        if !BY_MRC && self.post_by_lane(&only) {
            return Ok(());
        }
        let mut request = UNDESCRIBED;
        if let Err(errno) = self.describe(&only, &mut request) {
            return Err(self.refuse_unclear(list, errno));
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
                if let Err(errno) = self.full_list.check_end(next, self.posted.get()) {
                    self.post(&[], next, false)?;
                    self.full_list.position_of(next, self.posted.get()).log_if_ring();
                    return Err(self.refuse(next, 0, errno));
                }
                (filled, first) = (0, next);
            }
            let described = match batch.get_mut(filled) {
                Some(request) => {
                    *request = UNDESCRIBED;
                    self.describe(&current, request).map(|()| request)
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
                    return Err(self.refuse_unclear(next, errno));
                }
            }
            next = rest;
        }
        self.post(batch.get(..filled).unwrap_or_default(), first, false)
    }
}

pub(crate) extern "C" fn post_send<'a>(
    qp: Trusted<'a, ibv_qp>,
    list: RequestList<'a, ibv_send_wr>,
    bad_wr: Out<'a, RequestList<'a, ibv_send_wr>>,
) -> c_int {
    post_for(Call::ibv_post_send, qp, list, bad_wr)
}

/// Posts a list for a call, as [`post_send`] does.
#[inline(always)]
pub(super) fn post_for<'a>(
    call: Call,
    qp: Trusted<'a, ibv_qp>,
    list: RequestList<'a, ibv_send_wr>,
    bad_wr: Out<'a, RequestList<'a, ibv_send_wr>>,
) -> c_int {
    let refused = || {
        if let Some(bad_wr) = bad_wr.optional() {
            bad_wr.set(list);
        }
    };
    status_or(call, Qp::about(qp.as_ptr()), refused, || {
        let qp = qp.held::<Qp>().inspect_err(|_| refused())?;
        ListPoster::<false> { qp, bad_wr, full_list: list, posted: Cell::new(0), deferred: Cell::new(0) }
            .post_list(list)
    })
}

/// Returns the operation of the table that posts requests: by MRC where that carries WRITEs of RC queue
/// pairs.
pub(crate) fn operation_of(carries_by_mrc: bool) -> Operation {
    if carries_by_mrc { operation!(post_send_by_mrc) } else { operation!(post_send) }
}

/// Posts as [`post_send`] does, by MRC where that carries the WRITEs of RC queue pairs.
extern "C" fn post_send_by_mrc<'a>(
    qp: Trusted<'a, ibv_qp>,
    list: RequestList<'a, ibv_send_wr>,
    bad_wr: Out<'a, RequestList<'a, ibv_send_wr>>,
) -> c_int {
    let is_by_mrc = qp.optional::<Qp>().filter(|held| held.way().is_some()).map(|held| {
        let mut next = list;
        let opcodes = std::iter::from_fn(|| {
            let (first, rest) = next.split_first()?;
            next = rest;
            Some(first.get().opcode)
        });
        by_mrc::goes_by_mrc(held, opcodes.take(MAX_DEFERRED))
    });
    match is_by_mrc {
        None | Some(Ok(false)) => post_for(Call::ibv_post_send, qp, list, bad_wr),
        Some(decided) => {
            let refused = || {
                if let Some(bad_wr) = bad_wr.optional() {
                    bad_wr.set(list);
                }
            };
            status_or(Call::ibv_post_send, Qp::about(qp.as_ptr()), refused, || {
                let qp = qp.held::<Qp>().inspect_err(|_| refused())?;
                decided.inspect_err(|_| refused())?;
                ListPoster::<true> {
                    qp,
                    bad_wr,
                    full_list: list,
                    posted: Cell::new(0),
                    deferred: Cell::new(0),
                }
                .post_list(list)
            })
        }
    }
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
