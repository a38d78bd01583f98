//! From a peer's address to a path. RoCE asks nobody for it: the routing table knows the source
//! address, and that the rest.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;

use libc::sockaddr;
use pumice_transport::cm::{CmPath, MadRoute};

use super::address;
use super::bind::{bind, ephemeral_port};
use super::channel::LocalEvent;
use super::endpoint::complete;
use super::event::{ADDR_ERROR, ADDR_RESOLVED, ROUTE_RESOLVED};
use super::id::{Id, Stage, State};
use super::shared::shared;
use crate::ground::abi::rdma_cm_id;
use crate::ground::errno::{Errno, INVALID};
use crate::ground::outcome::number;

/// Of packets to peers, as Linux has it for routed packets.
const HOP_LIMIT: u8 = 64;

pub(crate) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    number(|| {
        // SAFETY: null or live; null or the caller's addresses.
        let (own, mut peer) = unsafe { (Id::of(id)?, address::from_c(dst_addr)?) };
        // As for sockets and in Linux: any address of a peer is this host's.
        if peer.ip().is_unspecified() {
            peer.set_ip(address::loopback(peer.is_ipv4()));
        }
        // SAFETY: as above.
        let source = if src_addr.is_null() { None } else { Some(unsafe { address::from_c(src_addr) }?) };
        {
            let mut state = own.state();
            // SAFETY: as above.
            state.by_gid |= unsafe { address::is_gid(dst_addr) };
            if let Some(source) = source
                && state.stage == Stage::Idle
            {
                bind(&own, &mut state, source)?;
            }
            if !matches!(state.stage, Stage::Idle | Stage::Bound) {
                return Err(INVALID.because(|| "this identifier has a peer already, or listens".to_owned()));
            }
            let (event, status) = match resolve(&own, &mut state, peer) {
                Ok(()) => (ADDR_RESOLVED, 0),
                Err(Errno(libc::ENODEV)) => (ADDR_ERROR, -libc::ENODEV),
                Err(other) => return Err(other),
            };
            state.channel.push(LocalEvent { id: Arc::clone(&own), event, status });
        }
        complete(&own)
    })
}

fn resolve(id: &Id, state: &mut State, peer: SocketAddr) -> Result<(), Errno> {
    let shared = shared()?;
    let hca = shared.hca();
    let bound = state.local.filter(|local| !local.ip().is_unspecified());
    let entry = match bound {
        Some(local) => address::own(hca, local.ip())?,
        None => address::source_for(hca, peer)?,
    };
    let remote = address::gid_of_peer(hca, &entry, peer.ip());
    if entry.gid.is_ipv4() != remote.is_ipv4() {
        return Err(INVALID.because(|| format!("{} and {peer} are of different IP versions", entry.ip)));
    }
    let port = state.local.map_or_else(ephemeral_port, |local| local.port());
    let shown = bound.map_or_else(|| address::shown_source(hca, &entry, peer.ip()), |local| local.ip());
    state.local = Some(SocketAddr::new(shown, port));
    state.remote = Some(peer);
    let route = MadRoute {
        local: entry.gid,
        remote,
        traffic_class: state.options.type_of_service,
        hop_limit: HOP_LIMIT,
        flow_label: flow_label(port, peer.port()),
    };
    state.path = Some(CmPath::new(route, entry.mtu.min(hca.active_mtu())));
    state.stage = Stage::AddressResolved;
    id.attach(shared);
    id.show_addresses(state);
    Ok(())
}

/// Spreads connections over paths, as Linux does: 20 bits of both ports.
fn flow_label(source_port: u16, destination_port: u16) -> u32 {
    let mixed = u32::from(source_port) * 31 + u32::from(destination_port);
    (mixed ^ mixed >> 20) & 0xf_ffff
}

pub(crate) unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    number(|| {
        // SAFETY: null or live.
        let own = unsafe { Id::of(id) }?;
        {
            let mut state = own.state();
            let Some(mut path) = state.path.filter(|_| state.stage == Stage::AddressResolved) else {
                return Err(INVALID.because(|| "a route is resolved after the peer's address".to_owned()));
            };
            // It may have been set since.
            path.route.traffic_class = state.options.type_of_service;
            state.path = Some(path);
            state.stage = Stage::RouteResolved;
            own.show_path(&path);
            state.channel.push(LocalEvent { id: Arc::clone(&own), event: ROUTE_RESOLVED, status: 0 });
        }
        complete(&own)
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
