//! Posting sends. Hot: nothing is allocated; a list is handed to the device a batch at a time, so
//! that its packets leave together.

use std::ffi::c_int;
use std::{ptr, slice};

use pumice_transport::types::{
    AtomicOperation, RemoteTarget, SendFlags, SendOpcode, SendRequest, UdDestination,
};
use pumice_transport::wire::Qpn;

use crate::calls::address_handle::Ah;
use crate::calls::post_recv::elements;
use crate::calls::queue_pair::Qp;
use crate::calls::window_bind::{TYPE_2, show_not_posted, show_posted, window_bind};
use crate::ground::abi::{ibv_ah, ibv_qp, ibv_send_wr};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::handles::held;
use crate::ground::outcome::data_path::status;

/// Requests that are handed to the device at a time.
pub(crate) const BATCH: usize = 8;
/// Most inline data that is gathered from several elements; the device's own limit is not larger.
const GATHERED_BYTES: usize = 1024;

fn opcode(number: u32) -> Result<SendOpcode, Errno> {
    Ok(match number {
        0 => SendOpcode::RdmaWrite,
        1 => SendOpcode::RdmaWriteWithImm,
        2 => SendOpcode::Send,
        3 => SendOpcode::SendWithImm,
        4 => SendOpcode::RdmaRead,
        5 => SendOpcode::CompareSwap,
        6 => SendOpcode::FetchAdd,
        7 => SendOpcode::LocalInvalidate,
        8 => SendOpcode::BindWindow,
        9 => SendOpcode::SendWithInvalidate,
        15 => SendOpcode::AtomicWrite,
        // TSO and DRIVER1 are hardware's; FLUSH has no fields here: ibv_wr_flush has.
        _ => return Err(INVALID.because(|| format!("send requests have no opcode {number}"))),
    })
}

/// The destination of a datagram; none: the address handle is of another protection domain than the queue
/// pair.
///
/// # Safety
/// `ah` is null or live.
///
/// # Errors
/// EINVAL: no address handle.
#[inline]
pub(crate) unsafe fn destination(
    qp: &Qp,
    ah: *mut ibv_ah,
    qpn: u32,
    qkey: u32,
) -> Result<Option<UdDestination>, Errno> {
    // SAFETY: the caller's promise.
    let ah = unsafe { held::<Ah>(ah) }?;
    let usable = Some(ah.domain()) == qp.domain();
    Ok(usable.then(|| UdDestination { path: ah.path().clone(), qpn: Qpn::new(qpn), qkey }))
}

/// A request of the device from a program's; inline data is not looked at.
///
/// # Safety
/// `wr` and what it points to are live.
#[inline]
unsafe fn request<'a>(qp: &Qp, wr: &'a ibv_send_wr) -> Result<SendRequest<'a>, Errno> {
    let mut request = SendRequest::new(wr.wr_id, opcode(wr.opcode)?);
    request.flags = SendFlags::from_bits_truncate(wr.send_flags);
    // SAFETY: the caller's promise.
    request.sges = unsafe { elements(wr.sg_list, wr.num_sge) }?;
    request.imm_data = wr.imm_data.to_ne_bytes();
    request.invalidate_rkey = wr.imm_data;
    request.xrc_srqn = wr.qp_type;
    request.faults_complete = true;
    if qp.is_datagram() {
        if !matches!(request.opcode, SendOpcode::Send | SendOpcode::SendWithImm) {
            // It names no address handle; the device fails it when its turn comes.
            return Ok(request);
        }
        // SAFETY: requests of datagram queue pairs fill in this member.
        let ud = unsafe { wr.wr.ud };
        // SAFETY: the caller's promise.
        request.ud = unsafe { destination(qp, ud.ah, ud.remote_qpn, ud.remote_qkey) }?;
        return Ok(request);
    }
    match request.opcode {
        SendOpcode::CompareSwap | SendOpcode::FetchAdd => {
            // SAFETY: atomics fill in this member.
            let atomic = unsafe { wr.wr.atomic };
            request.remote = RemoteTarget { address: atomic.remote_addr, rkey: atomic.rkey };
            request.atomic = Some(if request.opcode == SendOpcode::FetchAdd {
                AtomicOperation::FetchAdd { add: atomic.compare_add }
            } else {
                AtomicOperation::CompareSwap { compare: atomic.compare_add, swap: atomic.swap }
            });
        }
        SendOpcode::BindWindow => {
            if wr.num_sge != 0 {
                return Err(
                    INVALID.because(|| "binding a window takes no scatter/gather elements".to_owned())
                );
            }
            let bind = &wr.bind_mw;
            // SAFETY: the caller's promise.
            let wanted = unsafe { window_bind(bind.mw, bind.rkey, &bind.bind_info, TYPE_2) }?;
            // SAFETY: as above.
            unsafe { show_posted(qp, bind.mw, &wanted) };
            request.bind = Some(wanted);
        }
        _ => {
            // SAFETY: plain numbers, whether the opcode uses them or not.
            let rdma = unsafe { wr.wr.rdma };
            request.remote = RemoteTarget { address: rdma.remote_addr, rkey: rdma.rkey };
        }
    }
    Ok(request)
}

/// Hands requests to the device. On a refusal `bad_wr` gets the request that it was about.
struct Poster<'a> {
    qp: &'a Qp,
    bad_wr: *mut *mut ibv_send_wr,
}

impl Poster<'_> {
    #[cold]
    fn refuse(&self, wr: *mut ibv_send_wr, errno: Errno) -> Errno {
        let mut unposted = wr;
        // SAFETY: the caller's list.
        while let Some(request) = unsafe { unposted.as_ref() } {
            if request.opcode == SendOpcode::BindWindow as u32 {
                show_not_posted(request.bind_mw.mw);
            }
            unposted = request.next;
        }
        if !self.bad_wr.is_null() {
            // SAFETY: the caller's variable.
            unsafe { self.bad_wr.write(wr) };
        }
        errno
    }

    /// Posts `batch`, whose first request came from `first`.
    fn post(&self, batch: &[SendRequest<'_>], first: *mut ibv_send_wr) -> Result<(), Errno> {
        if batch.is_empty() {
            return Ok(());
        }
        let Err((position, error)) = self.qp.hca().post_sends(self.qp.number(), batch) else { return Ok(()) };
        let mut culprit = first;
        for _ in 0..position {
            // SAFETY: the list has more requests than were posted of it.
            culprit = unsafe { (*culprit).next };
        }
        Err(self.refuse(culprit, error.into()))
    }

    /// Posts one request with inline data.
    ///
    /// # Safety
    /// What the request names is live.
    #[inline]
    unsafe fn post_inline(&self, mut request: SendRequest<'_>, wr: *mut ibv_send_wr) -> Result<(), Errno> {
        request.inline_data = match request.sges {
            [] => &[],
            // SAFETY: the caller's promise.
            [one] => unsafe { bytes(one.address, one.length) },
            // SAFETY: the caller's promise.
            _ => return unsafe { self.post_gathered(request, wr) },
        };
        self.post(slice::from_ref(&request), wr)
    }

    /// # Safety
    /// As [`Poster::post_inline`].
    #[inline(never)]
    unsafe fn post_gathered(&self, request: SendRequest<'_>, wr: *mut ibv_send_wr) -> Result<(), Errno> {
        let mut gathered = [0; GATHERED_BYTES];
        let mut filled = 0_usize;
        for sge in request.sges {
            // SAFETY: the caller's promise.
            let part = unsafe { bytes(sge.address, sge.length) };
            let Some(place) = gathered.get_mut(filled..filled + part.len()) else {
                return Err(self.refuse(wr, INVALID));
            };
            place.copy_from_slice(part);
            filled += part.len();
        }
        let inline_data = gathered.get(..filled).unwrap_or_default();
        self.post(&[SendRequest { inline_data, ..request }], wr)
    }

    /// # Safety
    /// `wr` begins a list of live requests.
    #[inline]
    unsafe fn post_list(&self, wr: *mut ibv_send_wr) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        let Some(only) = (unsafe { wr.as_ref() }) else { return Ok(()) };
        if !only.next.is_null() {
            // SAFETY: the caller's promise.
            return unsafe { self.post_several(wr) };
        }
        // SAFETY: the caller's promise.
        let request = unsafe { request(self.qp, only) }.map_err(|errno| self.refuse(wr, errno))?;
        if request.flags.contains(SendFlags::INLINE) {
            // SAFETY: the caller's promise.
            unsafe { self.post_inline(request, wr) }?;
        } else {
            self.post(slice::from_ref(&request), wr)?;
        }
        Ok(())
    }

    /// # Safety
    /// As [`Poster::post_list`].
    unsafe fn post_several(&self, wr: *mut ibv_send_wr) -> Result<(), Errno> {
        let mut batch = [const { SendRequest::new(0, SendOpcode::Send) }; BATCH];
        let (mut filled, mut first, mut next) = (0, wr, wr);
        // SAFETY: the caller's promise.
        while let Some(current) = unsafe { next.as_ref() } {
            // SAFETY: the caller's promise.
            let made = unsafe { request(self.qp, current) };
            let inline = current.send_flags & SendFlags::INLINE.bits() != 0;
            if made.is_err() || inline || filled == BATCH {
                self.post(batch.get(..filled).unwrap_or_default(), first)?;
                (filled, first) = (0, next);
            }
            let made = made.map_err(|errno| self.refuse(next, errno))?;
            if inline {
                // SAFETY: the caller's promise.
                unsafe { self.post_inline(made, next) }?;
                first = current.next;
            } else if let Some(place) = batch.get_mut(filled) {
                *place = made;
                filled += 1;
            }
            next = current.next;
        }
        self.post(batch.get(..filled).unwrap_or_default(), first)
    }
}

/// Memory of the program.
///
/// # Safety
/// `length` bytes at `address` are live.
#[inline]
unsafe fn bytes<'a>(address: u64, length: u32) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise; the program's address was never ours to derive.
    unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(address as usize), length as usize) }
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let qp = unsafe { held::<Qp>(qp) }?;
        // SAFETY: the caller's promise.
        unsafe { Poster { qp, bad_wr }.post_list(wr) }
    })
}
