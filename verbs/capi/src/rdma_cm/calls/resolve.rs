//! Resolution of a peer's address to a path. RoCE has no subnet administrator to ask: the routing table gives
//! the source address, the neighbour table shows whether the first host on the way is there, and the path
//! follows.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pumice_calls::Call;
use pumice_transport::cm::{CmPath, MadRoute};

use crate::check::{self, misuse};
use crate::entry::outcome::number_of;
use crate::platform::errno::{Errno, INVALID};
use crate::rdma_cm::address::local;
use crate::rdma_cm::address::socket_address::AddressPointer;
use crate::rdma_cm::constants::{HOP_LIMIT, ROUTE_RESOLVED};
use crate::rdma_cm::events::fetch::complete;
use crate::rdma_cm::id::binding::{bind, ephemeral_port};
use crate::rdma_cm::id::identifier::{Id, IdPointer, IdStage, IdState, LocalEvent};
use crate::rdma_cm::id::neighbours::{ResolvedCmPath, apply_when_found, fail_resolution};
use crate::rdma_cm::id::shared::{shared_towards, shared_with};

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
        peer.set_ip(local::loopback(peer.is_ipv4()));
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
        Some(address) => local::own(hca, address.ip())?,
        //= man:rdma_resolve_addr
        //| Without a source address the routing table chooses one.
        None => local::source_for(hca, peer)?,
    };
    let remote = local::gid_of_peer(hca, &entry, peer.ip());
    if entry.gid.is_ipv4() != remote.is_ipv4() {
        return Err(INVALID.because(|| format!("{} and {peer} are of different IP versions", entry.ip)));
    }
    let port = state.addresses.local.map_or_else(ephemeral_port, |local| local.port());
    let shown = bound.map_or_else(|| local::shown_source(hca, &entry, peer.ip()), |local| local.ip());
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
        neighbour: local::neighbour_towards(hca, entry.ip, peer),
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
