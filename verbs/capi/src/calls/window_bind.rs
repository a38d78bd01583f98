//! Binding memory windows.

use std::ffi::c_int;
use std::sync::Arc;

use pumice_transport::types::{Access, SendFlags, SendOpcode, SendRequest, WindowBind};

use crate::ground::abi::{ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_qp};
use crate::ground::arguments::{In, Trusted};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::gate::About;
use crate::ground::handles::{live, live_or_none};
use crate::ground::outcome::status_of;
use crate::objects::memory_region::Mr;
use crate::objects::memory_window::{Mw, show_not_posted, show_posted};
use crate::objects::queue_pair::Qp;

const TYPE_1: u32 = 1;
pub(crate) const TYPE_2: u32 = 2;

/// The low byte of a key, which is the program's in windows of type 2; the rest is the device's.
const KEY_PART: u32 = 0xff;

/// What the device is to bind. Of the new key of a window of type 2 only the low byte is the program's, as
/// with adapters. Whether the protection domains agree is found out when the bind is executed.
///
/// # Errors
/// EINVAL: no window, one of another type, no region, or rights that windows cannot give. ENOENT: no live
/// window or region.
pub(crate) fn window_bind(
    mw: *mut ibv_mw,
    new_rkey: u32,
    info: &ibv_mw_bind_info,
    kind: u32,
) -> Result<(Arc<Mw>, WindowBind), Errno> {
    let window = live::<Mw>(mw)?;
    // Programs ask for LOCAL_WRITE too, which windows do not give: keys of windows are for peers.
    let access = Access::from_bits(info.mw_access_flags).ok_or(INVALID)? - Access::LOCAL_WRITE;
    if window.kind() != kind || (info.mr.is_null() && info.length > 0) {
        return Err(INVALID.because(|| "the window is of another type, or has no region".to_owned()));
    }
    let window_rkey = window.rkey();
    let bind = WindowBind {
        window_rkey,
        new_rkey: window_rkey & !KEY_PART | new_rkey & KEY_PART,
        region_lkey: live_or_none::<Mr>(info.mr)?.map_or(0, |region| region.lkey()),
        address: info.addr,
        length: info.length,
        access,
    };
    Ok((window, bind))
}

/// Binds a window of type 1; its next key is ours to choose. EPERM: the region is of another protection
/// domain than the window.
pub(crate) extern "C" fn bind_mw(
    qp: Trusted<'_, ibv_qp>,
    mw: *mut ibv_mw,
    mw_bind: In<'_, ibv_mw_bind>,
) -> c_int {
    status_of(About::on(qp.as_ptr()), || {
        let (qp, window, bind) = (qp.held::<Qp>()?, live::<Mw>(mw)?, mw_bind.get()?);
        let info = &bind.bind_info;
        let region = live_or_none::<Mr>(info.mr)?;
        if region.is_some_and(|region| region.domain_pointer() != window.domain_pointer()) {
            let reason = || "the region is of another protection domain than the window".to_owned();
            return Err(Errno(libc::EPERM).because(reason));
        }
        let mut request = SendRequest::new(bind.wr_id, SendOpcode::BindWindow);
        request.flags = SendFlags::from_bits_truncate(bind.send_flags);
        request.faults_complete = true;
        let (window, wanted) = window_bind(mw, window.rkey().wrapping_add(1), info, TYPE_1)?;
        request.bind = Some(wanted);
        show_posted(qp.number(), qp.hca(), &window, wanted.new_rkey);
        let posted = qp.hca().post_send(qp.number(), &request);
        Ok(posted.inspect_err(|_| show_not_posted(&window))?)
    })
}
