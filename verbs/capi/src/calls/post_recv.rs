//! Posting receives. Hot: nothing is allocated, and a program's scatter list is used where it lies.

use std::ffi::c_int;
use std::mem::{align_of, offset_of, size_of};
use std::slice;

use pumice_transport::types::{RecvRequest, Sge};

use crate::calls::queue_pair::Qp;
use crate::calls::shared_receive_queue::Srq;
use crate::ground::abi::{ibv_qp, ibv_recv_wr, ibv_sge, ibv_srq};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::handles::held;
use crate::ground::outcome::data_path::status;

/// A program's elements are ours: the same fields at the same places.
const _: () = {
    assert!(size_of::<Sge>() == size_of::<ibv_sge>() && align_of::<Sge>() == align_of::<ibv_sge>());
    assert!(offset_of!(Sge, address) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(Sge, length) == offset_of!(ibv_sge, length));
    assert!(offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey));
};

/// More elements than any device has: a number that was never the length of a list.
const MOST_ELEMENTS: usize = 1024;

/// The elements of a request.
///
/// # Safety
/// `list` is null or has `count` elements that live long enough.
///
/// # Errors
/// EINVAL: a negative number or one beyond all sense, or a null list of some.
#[inline]
pub(crate) unsafe fn elements<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [Sge], Errno> {
    let count = usize::try_from(count).map_err(|_| INVALID)?;
    if count == 0 {
        return Ok(&[]);
    }
    if count > MOST_ELEMENTS {
        return Err(
            INVALID.because(|| format!("{count} scatter/gather elements are more than any queue takes"))
        );
    }
    if list.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller's promise; the layouts are the same, as asserted above.
    Ok(unsafe { slice::from_raw_parts(list.cast(), count) })
}

/// Posts a list of requests; `bad_wr` gets the first that was refused.
///
/// # Safety
/// `wr` begins a list of live requests; `bad_wr` is null or the caller's variable.
#[inline]
unsafe fn post_list(
    mut wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
    post: impl Fn(&RecvRequest<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    while let Some(request) = unsafe { wr.as_ref() } {
        // SAFETY: as above.
        let posted = unsafe { elements(request.sg_list, request.num_sge) }
            .and_then(|sges| post(&RecvRequest { wr_id: request.wr_id, sges }));
        if let Err(errno) = posted {
            if !bad_wr.is_null() {
                // SAFETY: the caller's variable.
                unsafe { bad_wr.write(wr) };
            }
            return Err(errno);
        }
        wr = request.next;
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let qp = unsafe { held::<Qp>(qp) }?;
        // SAFETY: the caller's promise.
        unsafe { post_list(wr, bad_wr, |request| Ok(qp.hca().post_recv(qp.number(), request)?)) }
    })
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let srq = unsafe { held::<Srq>(srq) }?;
        // SAFETY: the caller's promise.
        unsafe { post_list(wr, bad_wr, |request| Ok(srq.hca().post_srq_recv(srq.handle(), request)?)) }
    })
}
