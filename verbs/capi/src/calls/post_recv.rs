//! Posting of receive requests and binding of memory windows.
//!
//! Posting of receive requests. This is a hot path: it allocates no memory, and uses a program's scatter list
//! in place.
//!
//! Binding of memory windows. This is the data path: the structures of the window and of the region are
//! trusted, and only the members are read that adapters' libraries read: keys, type and protection domain.

use std::ffi::c_int;
use std::sync::Arc;

use pumice_calls::Call;
use pumice_transport::types::{Access, RecvRequest, SendFlags, SendOpcode, SendRequest, WindowBind};

use crate::abi::{ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_qp, ibv_recv_wr, ibv_srq, ibv_wq};
use crate::entry::arguments::{In, Out, Trusted};
use crate::entry::data_path::status_or;
use crate::entry::handles::{check_trusted, find};
use crate::entry::requests::RequestList;
use crate::entry::status_of;
use crate::gate::CallSubject;
use crate::objects::memory_region::{Mw, show_key_of, show_not_posted, show_posted};
use crate::objects::queue_pair::Qp;
use crate::objects::receive_queues::{Srq, Wq};
use crate::platform::{Errno, INVALID};

/// The error of a full queue.
const FULL: Errno = Errno(libc::ENOMEM);

/// Reports that the first request of a list was refused.
#[inline]
pub(super) fn refuse<'a, W>(list: RequestList<'a, W>, bad_wr: Out<'_, RequestList<'a, W>>) {
    if let Some(bad_wr) = bad_wr.optional() {
        bad_wr.set(list);
    }
}

/// Posts a list of requests; `bad_wr` gets the first one that was refused.
#[inline]
fn post_list<'a>(
    mut list: RequestList<'a, ibv_recv_wr>,
    bad_wr: Out<'_, RequestList<'a, ibv_recv_wr>>,
    post: impl Fn(&RecvRequest<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let (full_list, mut count) = (list, 0);
    while let Some((request, rest)) = list.split_first() {
        let wr_id = request.get().wr_id;
        let posted = full_list
            .check_end(list, count)
            .and_then(|()| request.elements())
            .and_then(|sges| post(&RecvRequest { wr_id, sges }));
        //= man:ibv_post_recv
        //| The call stops at the first request that is refused, and returns it.
        if let Err(errno) = posted {
            let position = full_list.position_of(list, count);
            match request.malformed_reason() {
                Some(reason) => position.log_malformed(&reason),
                None if errno == FULL => position.log_if_ring(),
                None => {}
            }
            refuse(list, bad_wr);
            return Err(errno);
        }
        (list, count) = (rest, count + 1);
    }
    Ok(())
}

pub(crate) extern "C" fn post_recv<'a>(
    qp: Trusted<'_, ibv_qp>,
    list: RequestList<'a, ibv_recv_wr>,
    bad_wr: Out<'_, RequestList<'a, ibv_recv_wr>>,
) -> c_int {
    post_for(Call::ibv_post_recv, qp, list, bad_wr)
}

/// Posts a list for a call, as [`post_recv`] does.
#[inline(always)]
pub(super) fn post_for<'a>(
    call: Call,
    qp: Trusted<'_, ibv_qp>,
    list: RequestList<'a, ibv_recv_wr>,
    bad_wr: Out<'_, RequestList<'a, ibv_recv_wr>>,
) -> c_int {
    status_or(
        call,
        Qp::about(qp.as_ptr()),
        || refuse(list, bad_wr),
        || {
            let qp = qp.held::<Qp>().inspect_err(|_| refuse(list, bad_wr))?;
            post_list(list, bad_wr, |request| Ok(qp.hca().post_recv(qp.number(), request)?))
        },
    )
}

pub(crate) extern "C" fn post_srq_recv<'a>(
    srq: Trusted<'_, ibv_srq>,
    list: RequestList<'a, ibv_recv_wr>,
    bad_wr: Out<'_, RequestList<'a, ibv_recv_wr>>,
) -> c_int {
    status_or(
        Call::ibv_post_srq_recv,
        CallSubject::of(srq.as_ptr()),
        || refuse(list, bad_wr),
        || {
            let srq = srq.held::<Srq>().inspect_err(|_| refuse(list, bad_wr))?;
            post_list(list, bad_wr, |request| Ok(srq.hca().post_srq_recv(srq.handle(), request)?))
        },
    )
}

pub(crate) extern "C" fn post_wq_recv<'a>(
    wq: Trusted<'_, ibv_wq>,
    list: RequestList<'a, ibv_recv_wr>,
    bad_wr: Out<'_, RequestList<'a, ibv_recv_wr>>,
) -> c_int {
    status_or(
        Call::ibv_post_wq_recv,
        CallSubject::of(wq.as_ptr()),
        || refuse(list, bad_wr),
        || {
            let wq = wq.held::<Wq>()?;
            post_list(list, bad_wr, |request| Ok(wq.hca().post_recv(wq.number(), request)?))
        },
    )
}

const TYPE_1: u32 = 1;
pub(crate) const TYPE_2: u32 = 2;

/// Mask of the low byte of a key, which the program chooses in windows of type 2; the device chooses the
/// rest.
const KEY_PART: u32 = 0xff;

/// Returns the structure of a bind's region; `None` if the bind has no region.
///
/// # Errors
/// Fails with ENOENT if the program is checked, and has destroyed the region.
fn region_of(info: &ibv_mw_bind_info) -> Result<Option<ibv_mr>, Errno> {
    if info.mr.is_null() {
        return Ok(None);
    }
    check_trusted(info.mr)?;
    // SAFETY: the program gives a region or NULL, which is valid until the call returns.
    unsafe { In::new(info.mr.cast_const()) }.copied().map(Some)
}

/// Returns the bind for the device, and the window, if the structure is this library's and not a copy. Only
/// the low byte of a type 2 window's new key is the program's, as with adapters. The protection domains are
/// compared when the bind is executed.
///
/// # Errors
/// Fails with EINVAL for no window, one of another type, no region, or rights that such windows cannot give,
/// and with ENOENT if the program is checked and has destroyed one of them.
pub(crate) fn window_bind(
    mw: In<'_, ibv_mw>,
    new_rkey: u32,
    info: &ibv_mw_bind_info,
    kind: u32,
) -> Result<(Option<Arc<Mw>>, WindowBind), Errno> {
    let pointer = mw.as_ptr().cast_mut();
    check_trusted(pointer)?;
    let window = mw.copied()?;
    // Programs ask for LOCAL_WRITE too, which windows do not give: keys of windows are for peers.
    let access = Access::from_bits(info.mw_access_flags).ok_or(INVALID)? - Access::LOCAL_WRITE;
    //= man:ibv_bind_mw
    //| The call binds windows of type 1, and windows of type 2 are bound by a send request.
    if window.r#type != kind || (info.mr.is_null() && info.length > 0) {
        return Err(INVALID.because(|| "the window is of another type, or has no region".to_owned()));
    }
    if kind == TYPE_1 && access.contains(Access::ZERO_BASED) {
        return Err(INVALID.because(|| {
            "ibv_bind_mw refused: IBV_ACCESS_ZERO_BASED is for windows of type 2; a window of type 1 has the \
             addresses of its region"
                .to_owned()
        }));
    }
    let bind = WindowBind {
        window_rkey: window.rkey,
        //= man:ibv_inc_rkey
        //| A bind changes the low eight bits of the key and keeps the others.
        new_rkey: window.rkey & !KEY_PART | new_rkey & KEY_PART,
        region_lkey: region_of(info)?.map_or(0, |region| region.lkey),
        address: info.addr,
        length: info.length,
        access,
    };
    Ok((find::<Mw>(pointer), bind))
}

/// Binds a window of type 1, whose next key this library chooses. Fails with EPERM if the region is of
/// another protection domain than the window.
pub(crate) extern "C" fn bind_mw(
    qp: Trusted<'_, ibv_qp>,
    mw: In<'_, ibv_mw>,
    mw_bind: In<'_, ibv_mw_bind>,
) -> c_int {
    status_of(Call::ibv_bind_mw, Qp::about(qp.as_ptr()), || {
        let (qp, bind) = (qp.held::<Qp>()?, mw_bind.get()?);
        check_trusted(mw.as_ptr())?;
        let (shown, info) = (mw.copied()?, &bind.bind_info);
        if region_of(info)?.is_some_and(|region| region.pd != shown.pd) {
            let reason = || "the region is of another protection domain than the window".to_owned();
            return Err(Errno(libc::EPERM).because(reason));
        }
        let mut request = SendRequest::new(bind.wr_id, SendOpcode::BindWindow);
        request.flags = SendFlags::from_bits_truncate(bind.send_flags);
        request.faults_complete = true;
        let (window, wanted) = window_bind(mw, shown.rkey.wrapping_add(1), info, TYPE_1)?;
        request.bind = Some(wanted);
        let Some(window) = window else {
            qp.hca().post_send(qp.number(), &request)?;
            show_key_of(mw.as_ptr().cast_mut(), wanted.new_rkey);
            return Ok(());
        };
        //= man:ibv_bind_mw
        //| The new key stands in the window when the call returns.
        show_posted(qp.number(), qp.hca(), &window, wanted.new_rkey);
        let posted = qp.hca().post_send(qp.number(), &request);
        Ok(posted.inspect_err(|_| show_not_posted(&window))?)
    })
}
