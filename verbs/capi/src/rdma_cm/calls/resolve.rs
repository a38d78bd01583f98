//! Resolution of names and of a peer's address to a path.
//!
//! The option RDMA_OPTION_IB_PATH: a path that the program gives itself, instead of resolving a route.
//!
//! Resolution of a peer's address to a path. RoCE has no subnet administrator to ask: the routing table gives
//! the source address, the neighbour table shows whether the first host on the way is there, and the path
//! follows.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pumice_calls::Call;
use pumice_transport::cm::{CmPath, MadRoute};
use pumice_transport::types::{Gid, Mtu};

use crate::abi::plain::Plain as _;
use crate::abi::{ibv_path_data, ibv_path_record, rdma_addrinfo};
use crate::check::{self, misuse};
use crate::entry::arguments::Text;
use crate::entry::{number, number_of, value};
use crate::platform::{Errno, INVALID};
use crate::rdma_cm::address::lookup::{LookupResult, free, look_up};
use crate::rdma_cm::address::{AddressPointer, lookup};
use crate::rdma_cm::constants::{ADDRINFO_ERROR, ADDRINFO_RESOLVED, HOP_LIMIT, RAI_SA, ROUTE_RESOLVED};
use crate::rdma_cm::events::translation::complete;
use crate::rdma_cm::id::binding::{bind, ephemeral_port};
use crate::rdma_cm::id::neighbours::{ResolvedCmPath, apply_when_found, fail_resolution};
use crate::rdma_cm::id::shared::{shared_towards, shared_with};
use crate::rdma_cm::id::{Id, IdPointer, IdStage, IdState, LocalEvent};

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

/// Resolves a name. Returns 0, an `EAI_*` as getaddrinfo(3) does, or -1 and errno.
pub(crate) extern "C" fn rdma_getaddrinfo(
    node: Text<'_>,
    service: Text<'_>,
    hints: Option<&rdma_addrinfo>,
    res: Option<&mut MaybeUninit<*mut rdma_addrinfo>>,
) -> c_int {
    number(Call::rdma_getaddrinfo, || {
        let res = res.ok_or(INVALID)?;
        match look_up(node, service, hints)? {
            LookupResult::Found(info) => {
                res.write(info.into_raw());
                Ok(0)
            }
            LookupResult::NotFound(code) => Ok(code),
        }
    })
}

pub(crate) unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    // SAFETY: the program gives back what `rdma_getaddrinfo` or `rdma_query_addrinfo` gave it.
    value((), || unsafe { free(res) });
}

pub(crate) extern "C" fn rdma_resolve_addr(
    id: IdPointer,
    src_addr: AddressPointer,
    dst_addr: AddressPointer,
    timeout_ms: c_int,
) -> c_int {
    // As for the kernel, a negative number stands for a very long time.
    let limit = Duration::from_millis(u64::from(timeout_ms as u32));
    number_of(Call::rdma_resolve_addr, id.about(), || {
        let own = id.id()?;
        run_step(&own, misuse::ADDRESS, || resolve_address(&own, src_addr, dst_addr, limit))
    })
}

/// Runs a step after which the program gets this event, and notifies the checker.
fn run_step(
    own: &Id,
    event: &'static str,
    step: impl FnOnce() -> Result<c_int, Errno>,
) -> Result<c_int, Errno> {
    if !check::is_on() || own.state().synchronous {
        return step();
    }
    // Another thread of the program may get the event at once.
    misuse::step_requested(own.as_ptr().addr(), event);
    step().inspect_err(|_| misuse::step_failed(own.as_ptr().addr()))
}

/// Runs `rdma_resolve_addr`, and waits for its event if the identifier is synchronous.
///
/// # Errors
/// Fails with the errors of the call.
pub(crate) fn resolve_address(
    own: &Arc<Id>,
    source: AddressPointer,
    peer: AddressPointer,
    limit: Duration,
) -> Result<c_int, Errno> {
    let by_gid = peer.is_gid();
    let peer = peer.parse()?;
    let source = if source.is_null() { None } else { Some(source.parse()?) };
    find_path(own, source, peer, by_gid, Some(limit))?;
    complete(own)
}

/// Finds the path to a peer, and queues its event. `by_gid` says that the program writes the address as a
/// GID. `limit` is the longest search for the peer's host; `None` for no search.
///
/// # Errors
/// Fails with EINVAL if the identifier has a peer, or listens, and with ENETUNREACH and others if there is no
/// way to the peer.
pub(crate) fn find_path(
    own: &Arc<Id>,
    source: Option<SocketAddr>,
    mut peer: SocketAddr,
    by_gid: bool,
    limit: Option<Duration>,
) -> Result<(), Errno> {
    // As for sockets and in Linux, the unspecified address of a peer stands for this host.
    if peer.ip().is_unspecified() {
        peer.set_ip(lookup::loopback(peer.is_ipv4()));
    }
    let mut state = own.state();
    state.addresses.by_gid |= by_gid;
    if let Some(source) = source
        && state.stage == IdStage::Idle
    {
        bind(own, &mut state, source)?;
    }
    if !matches!(state.stage, IdStage::Idle | IdStage::Bound) {
        return Err(INVALID.because(|| "this identifier has a peer already, or listens".to_owned()));
    }
    if let Some(local) = state.addresses.local.filter(|local| local.is_ipv4() != peer.is_ipv4()) {
        return Err(INVALID.because(|| format!("{} and {peer} are of different IP versions", local.ip())));
    }
    match (resolve_path(&state, peer), limit) {
        (Ok(resolved), Some(limit)) => apply_when_found(own, &mut state, resolved, limit),
        (Ok(resolved), None) => resolved.take(own, &mut state),
        (Err(Errno(libc::ENODEV)), _) => fail_resolution(own, &mut state, peer, -libc::ENODEV),
        (Err(other), _) => return Err(other),
    }
    Ok(())
}

fn resolve_path(state: &IdState, peer: SocketAddr) -> Result<ResolvedCmPath, Errno> {
    let bound = state.addresses.local.filter(|local| !local.ip().is_unspecified());
    let shared = match bound {
        Some(address) => shared_with(address.ip())?,
        None => shared_towards(peer)?,
    };
    let hca = shared.hca();
    let entry = match bound {
        Some(address) => lookup::own(hca, address.ip())?,
        //= man:rdma_resolve_addr
        //| Without a source address the routing table chooses one.
        None => lookup::source_for(hca, peer)?,
    };
    let remote = lookup::gid_of_peer(hca, &entry, peer.ip());
    if entry.gid.is_ipv4() != remote.is_ipv4() {
        return Err(INVALID.because(|| format!("{} and {peer} are of different IP versions", entry.ip)));
    }
    let port = state.addresses.local.map_or_else(ephemeral_port, |local| local.port());
    let shown = bound.map_or_else(|| lookup::shown_source(hca, &entry, peer.ip()), |local| local.ip());
    let route = MadRoute {
        local: entry.gid,
        remote,
        traffic_class: state.options.type_of_service,
        hop_limit: HOP_LIMIT,
        flow_label: flow_label(port, peer.port()),
    };
    Ok(ResolvedCmPath {
        device: shared.index(),
        port_num: entry.port_num,
        local: SocketAddr::new(shown, port),
        remote: peer,
        path: CmPath::new(route, entry.mtu.min(hca.active_mtu_of(entry.port_num))),
        neighbour: lookup::neighbour_towards(hca, entry.ip, peer),
    })
}

/// Computes a flow label that spreads connections over paths, as Linux does: 20 bits of both ports.
fn flow_label(source_port: u16, destination_port: u16) -> u32 {
    let mixed = u32::from(source_port) * 31 + u32::from(destination_port);
    (mixed ^ mixed >> 20) & 0xf_ffff
}

pub(crate) extern "C" fn rdma_resolve_route(id: IdPointer, _timeout_ms: c_int) -> c_int {
    number_of(Call::rdma_resolve_route, id.about(), || {
        let own = id.id()?;
        run_step(&own, misuse::ROUTE, || resolve_route(&own))
    })
}

/// Runs `rdma_resolve_route`, and waits for its event if the identifier is synchronous.
///
/// # Errors
/// Fails with EINVAL if the peer's address is not resolved.
pub(crate) fn resolve_route(own: &Arc<Id>) -> Result<c_int, Errno> {
    {
        let mut state = own.state();
        //= man:rdma_resolve_route
        //| The address is resolved before the route.
        let Some(mut path) = state.addresses.path.filter(|_| state.stage == IdStage::AddressResolved) else {
            return Err(INVALID.because(|| "a route is resolved after the peer's address".to_owned()));
        };
        // The option may have been set since the address was resolved.
        path.route.traffic_class = state.options.type_of_service;
        state.addresses.path = Some(path);
        state.stage = IdStage::RouteResolved;
        own.show_path(&path);
        state.channel.push(LocalEvent::new(Arc::clone(own), ROUTE_RESOLVED, 0));
    }
    complete(own)
}

/// Resolves the names at once, with the C library; a name that does not exist causes ADDRINFO_ERROR with the
/// `EAI_*` as its status.
pub(crate) extern "C" fn rdma_resolve_addrinfo(
    id: IdPointer,
    node: Text<'_>,
    service: Text<'_>,
    hints: Option<&rdma_addrinfo>,
) -> c_int {
    number_of(Call::rdma_resolve_addrinfo, id.on(), || {
        let own = id.id()?;
        if hints.is_some_and(|hints| hints.ai_flags & RAI_SA != 0) {
            return Err(Errno(libc::ENOTSUP).because(|| {
                "names of services are InfiniBand's (RAI_SA): RoCE has no subnet administration".to_owned()
            }));
        }
        if own.state().addresses.address_info.is_some() {
            return Err(Errno(libc::EBUSY)
                .because(|| "the last answer was not asked for yet: rdma_query_addrinfo".to_owned()));
        }
        let answer = look_up(node, service, hints)?;
        {
            let mut state = own.state();
            let (info, event, status) = match answer {
                LookupResult::Found(info) => (Some(info), ADDRINFO_RESOLVED, 0),
                LookupResult::NotFound(code) => (None, ADDRINFO_ERROR, code),
            };
            state.addresses.address_info = info;
            state.channel.push(LocalEvent::new(Arc::clone(&own), event, status));
        }
        complete(&own)
    })
}

/// Gives the answer to the program, which frees it.
pub(crate) extern "C" fn rdma_query_addrinfo(
    id: IdPointer,
    info: Option<&mut MaybeUninit<*mut rdma_addrinfo>>,
) -> c_int {
    number_of(Call::rdma_query_addrinfo, id.on(), || {
        let own = id.id()?;
        let info = info.ok_or(INVALID)?;
        let answer = own.state().addresses.address_info.take().ok_or(Errno(libc::ENOENT))?;
        info.write(answer.into_raw());
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_labels_have_twenty_bits_and_depend_on_both_ports() {
        assert_eq!(flow_label(1, 2), 33);
        assert!(flow_label(u16::MAX, u16::MAX) <= 0xf_ffff);
        assert_ne!(flow_label(40000, 7174), flow_label(40001, 7174));
        assert_ne!(flow_label(40000, 7174), flow_label(40000, 7175));
    }
}
