//! Multicast groups.

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_device::addresses::multicast::MulticastGroups;
use pumice_transport::types::Gid;

use crate::abi::{ibv_gid, ibv_qp};
use crate::check;
use crate::entry::arguments::In;
use crate::entry::handles::live;
use crate::entry::outcome::status_of;
use crate::objects::queue_pair::Qp;

pub(crate) extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: In<'_, ibv_gid>, _lid: u16) -> c_int {
    status_of(Call::ibv_attach_mcast, Qp::about(qp), || {
        let (qp, gid) = (live::<Qp>(qp)?, gid.get()?);
        let group = Gid(gid.raw);
        qp.hca().attach_mcast(qp.number(), group)?;
        check::with_checker(|checker| checker.group_attached(MulticastGroups::normalise(group).into()));
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: In<'_, ibv_gid>, _lid: u16) -> c_int {
    status_of(Call::ibv_detach_mcast, Qp::about(qp), || {
        let (qp, gid) = (live::<Qp>(qp)?, gid.get()?);
        Ok(qp.hca().detach_mcast(qp.number(), Gid(gid.raw))?)
    })
}
