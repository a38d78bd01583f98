//! The option RDMA_OPTION_IB_PATH: a path that the program gives itself, instead of resolving a route.

use std::ffi::c_int;
use std::sync::Arc;

use pumice_transport::cm::CmPath;
use pumice_transport::types::{Gid, Mtu};

use crate::abi::plain::Plain as _;
use crate::abi::{ibv_path_data, ibv_path_record};
use crate::platform::errno::{Errno, INVALID};
use crate::rdma_cm::constants::ROUTE_RESOLVED;
use crate::rdma_cm::events::fetch::complete;
use crate::rdma_cm::id::identifier::{Id, IdStage, LocalEvent};

/// The level `RDMA_OPTION_IB`, and the option `RDMA_OPTION_IB_PATH`.
pub(crate) const LEVEL: c_int = 1;
pub(crate) const PATH: c_int = 1;
/// Flags `IBV_PATH_FLAG_GMP`, `..._PRIMARY`, and both directions: the path of connections.
const PRIMARY: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 5;

/// Sets the identifier's path from `ibv_path_data` structures, of this total length; this resolves the route.
///
/// # Errors
/// Fails with EINVAL if none of them is the primary path both ways, or if it is not one between the
/// identifier's addresses.
pub(crate) fn set(own: &Arc<Id>, paths: Option<&[u8]>) -> Result<c_int, Errno> {
    let (size, paths) = (size_of::<ibv_path_data>(), paths.ok_or(INVALID)?);
    if paths.is_empty() || !paths.len().is_multiple_of(size) {
        let length = paths.len();
        return Err(INVALID.because(|| format!("paths have {size} bytes each; these have {length} together")));
    }
    let mut given = paths.chunks_exact(size).filter_map(ibv_path_data::parse);
    let primary = given.find(|given| given.flags == PRIMARY).ok_or_else(|| {
        INVALID.because(|| "no path is for management, primary, and for both directions".to_owned())
    })?;
    {
        let mut state = own.state();
        let Some(path) = state.addresses.path.filter(|_| state.stage == IdStage::AddressResolved) else {
            return Err(INVALID.because(|| "a path is set after the peer's address is resolved".to_owned()));
        };
        let path = from_record(&primary.path, &path)?;
        state.addresses.path = Some(path);
        state.stage = IdStage::RouteResolved;
        own.show_path(&path);
        state.channel.push(LocalEvent::new(Arc::clone(own), ROUTE_RESOLVED, 0));
    }
    complete(own)
}

fn from_record(record: &ibv_path_record, known: &CmPath) -> Result<CmPath, Errno> {
    let (local, remote) = (Gid(record.sgid.raw), Gid(record.dgid.raw));
    if (local, remote) != (known.route.local, known.route.remote) {
        return Err(INVALID.because(|| {
            format!(
                "the path is from {local} to {remote}, the identifier's addresses are {} and {}",
                known.route.local, known.route.remote
            )
        }));
    }
    // Two bits of the MTU and the rate say how exact they are.
    let code = record.mtu & 0x3f;
    let mtus = [Mtu::Mtu256, Mtu::Mtu512, Mtu::Mtu1024, Mtu::Mtu2048, Mtu::Mtu4096];
    let mtu = mtus.into_iter().find(|mtu| *mtu as u8 == code).unwrap_or(known.mtu);
    let label = u32::from_be(record.flowlabel_hoplimit);
    let mut path = *known;
    path.mtu = mtu.min(known.mtu);
    path.route.flow_label = label >> 8 & 0xf_ffff;
    // As everywhere in RoCEv2, the hop limit is at least 1.
    path.route.hop_limit = if label as u8 == 0 { known.route.hop_limit } else { label as u8 };
    path.route.traffic_class = record.tclass;
    path.sl = (u16::from_be(record.qosclass_sl) & 0xf) as u8;
    path.packet_rate = record.rate & 0x3f;
    Ok(path)
}
