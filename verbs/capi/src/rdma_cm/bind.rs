//! Addresses and ports: bind and listen.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use libc::sockaddr;
use pumice_device::gsi::{BindingId, ConnectionError, ServiceEntry};
use pumice_transport::cm::{BacklogOverflow, Place};
use pumice_transport::mad::ServiceId;

use super::address;
use super::id::{Id, Stage, State};
use super::registry::registry;
use super::shared::{Shared, random, shared};
use crate::ground::abi::rdma_cm_id;
use crate::ground::errno::{Errno, INVALID};
use crate::ground::outcome::number;

/// Ports that nobody names.
const EPHEMERAL: std::ops::Range<u16> = 32768..61000;
/// Requests that wait at most, and when the program does not say, as in Linux.
const BACKLOG: usize = 1024;

pub(crate) unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    number(|| {
        // SAFETY: null or live; null or the caller's address.
        let (own, address) = unsafe { (Id::of(id)?, address::from_c(addr)?) };
        let mut state = own.state();
        // SAFETY: as above.
        state.by_gid = unsafe { address::is_gid(addr) };
        bind(&own, &mut state, address)?;
        Ok(0)
    })
}

/// Gives an identifier an address, and a port if it names none.
pub(crate) fn bind(id: &Arc<Id>, state: &mut State, mut address: SocketAddr) -> Result<(), Errno> {
    if state.stage != Stage::Idle {
        return Err(INVALID.because(|| "this identifier has an address already".to_owned()));
    }
    let shared = shared()?;
    let hca = shared.hca();
    // As in Linux, 127.0.0.1 and ::1 choose no device, just as 0.0.0.0 chooses none, unless they are the
    // device's own addresses. libfabric relies on this: it binds 127.0.0.1 first. If the identifier then has a
    // device, libfabric tells 127.0.0.1 to its peers on other hosts; if not, it tells them the device's address.
    let names_a_device =
        !address.ip().is_unspecified() && address::own(hca, address.ip())?.ip == address.ip();
    // An address that others may use, too, is nobody's before it is listened at.
    if !(state.options.reuse_address && address.port() != 0) {
        state.binding = Some(reserve(id, shared, &mut address, state.options.one_family)?);
    }
    state.local = Some(address);
    state.stage = Stage::Bound;
    id.show_addresses(state);
    if names_a_device {
        id.attach(shared);
    }
    Ok(())
}

/// Where the service of an address is offered. All addresses are those of both families if it is IPv6's and neither the program nor
/// the host want otherwise, as with sockets.
fn place(address: IpAddr, one_family: Option<bool>) -> Place {
    if !address.is_unspecified() {
        return Place::At(address.into());
    }
    let host_wants_one =
        || std::fs::read("/proc/sys/net/ipv6/bindv6only").is_ok_and(|set| set.starts_with(b"1"));
    match address {
        IpAddr::V4(_) if one_family.unwrap_or(true) => Place::Ipv4,
        IpAddr::V6(_) if one_family.unwrap_or_else(host_wants_one) => Place::Ipv6,
        _ => Place::Everywhere,
    }
}

/// Binds the service of an address; chooses the port if that is 0.
fn reserve(
    id: &Id,
    shared: Shared,
    address: &mut SocketAddr,
    one_family: Option<bool>,
) -> Result<BindingId, Errno> {
    let space = id.port_space();
    let place = place(address.ip(), one_family);
    let entry = |port| ServiceEntry { service_id: ServiceId::rdma_cm(space, port), mask: u64::MAX, place };
    if address.port() != 0 {
        return Ok(shared.hca().cm_bind(&entry(address.port()))?);
    }
    let (first, count) = (ephemeral_port() - EPHEMERAL.start, EPHEMERAL.len() as u16);
    for step in 0..count {
        let port = EPHEMERAL.start + (first + step) % count;
        match shared.hca().cm_bind(&entry(port)) {
            Ok(binding) => {
                address.set_port(port);
                return Ok(binding);
            }
            Err(ConnectionError::Directory { error, .. }) if error.errno() == libc::EADDRINUSE => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno(libc::EADDRNOTAVAIL))
}

/// A port for somebody who connects: nobody looks for it, so that it need not be his alone.
pub(crate) fn ephemeral_port() -> u16 {
    EPHEMERAL.start + (random() % u32::from(EPHEMERAL.end - EPHEMERAL.start)) as u16
}

pub(crate) unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    number(|| {
        // SAFETY: null or live.
        let own = unsafe { Id::of(id) }?;
        let mut registry = registry();
        let mut state = own.state();
        if state.stage == Stage::Idle {
            let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
            bind(&own, &mut state, any)?;
        }
        if state.stage != Stage::Bound {
            return Err(
                INVALID.because(|| "only an identifier that is bound, and no more, listens".to_owned())
            );
        }
        let shared = shared()?;
        let binding = match (state.binding, state.local) {
            (Some(binding), _) => binding,
            (None, Some(mut address)) => reserve(&own, shared, &mut address, state.options.one_family)?,
            (None, None) => return Err(INVALID),
        };
        state.binding = Some(binding);
        let backlog = usize::try_from(backlog).ok().filter(|backlog| (1..BACKLOG).contains(backlog));
        let (backlog, overflow) = (backlog.unwrap_or(BACKLOG), BacklogOverflow::Ignore);
        let listener =
            shared.hca().cm_listen(binding, own.served(), backlog, overflow, state.channel.device())?;
        state.listener = Some(listener);
        state.stage = Stage::Listening;
        registry.listeners.insert(listener, Arc::clone(&own));
        Ok(0)
    })
}
