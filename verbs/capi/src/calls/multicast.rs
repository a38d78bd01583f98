//! Multicast groups.

use std::ffi::c_int;

use pumice_transport::types::Gid;

use crate::calls::queue_pair::Qp;
use crate::ground::abi::{ibv_gid, ibv_qp};
use crate::ground::errno::INVALID;
use crate::ground::handles::live;
use crate::ground::outcome::status;

pub(crate) unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    status(|| {
        // SAFETY: null or live; null or the caller's.
        let (qp, gid) = unsafe { (live::<Qp>(qp)?, gid.as_ref().ok_or(INVALID)?) };
        Ok(qp.hca().attach_mcast(qp.number(), Gid(gid.raw))?)
    })
}

pub(crate) unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    status(|| {
        // SAFETY: null or live; null or the caller's.
        let (qp, gid) = unsafe { (live::<Qp>(qp)?, gid.as_ref().ok_or(INVALID)?) };
        Ok(qp.hca().detach_mcast(qp.number(), Gid(gid.raw))?)
    })
}
