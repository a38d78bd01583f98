//! An identifier of the connection manager with its own channel, in the form that sockets need.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;

use pumice_calls::Call;

use crate::platform::Errno;
use crate::rdma_cm::calls::identifier::{destroy, listen, migrate};
use crate::rdma_cm::calls::resolve::{find_path, resolve_route};
use crate::rdma_cm::calls::{ConnectParameters, accept, connect, disconnect, endpoint, reject_silently};
use crate::rdma_cm::constants::{
    ADDR_RESOLVED, CONNECT_ERROR, CONNECT_REQUEST, DISCONNECTED, ESTABLISHED, REJECTED, ROUTE_RESOLVED,
    UNREACHABLE,
};
use crate::rdma_cm::events::RdmaCmEvent;
use crate::rdma_cm::events::translation::take;
use crate::rdma_cm::id::binding::bind;
use crate::rdma_cm::id::{EventChannel, Id};

/// An identifier, which is destroyed when this is dropped.
pub(crate) struct SocketId {
    own: Arc<Id>,
    channel: Arc<EventChannel>,
}

/// An event of an identifier.
pub(crate) enum CmNotice {
    /// A peer wants to connect, with this private data.
    Request(SocketId, Vec<u8>),
    /// The connection is established; the peer that accepted it has sent this private data.
    Established(Vec<u8>),
    /// The connection failed.
    Failed(c_int),
    /// The connection is over.
    Disconnected,
    /// The event does not matter to sockets.
    Other,
}

impl SocketId {
    /// Creates an identifier.
    ///
    /// # Errors
    /// Fails if there is no device, or if there are no descriptors.
    pub(crate) fn new(port_space: u32) -> Result<SocketId, Errno> {
        let channel = EventChannel::new()?;
        let own = Id::create(Some(Arc::clone(&channel)), ptr::null_mut(), port_space, None)?;
        Ok(SocketId { own, channel })
    }

    /// Takes over a request's identifier, which came on the listener's channel; it gets a channel of its own.
    fn of_request(own: &Arc<Id>) -> Result<SocketId, Errno> {
        let moved = EventChannel::new().and_then(|channel| {
            migrate(own, Arc::clone(&channel), false)?;
            Ok(channel)
        });
        match moved {
            Ok(channel) => Ok(SocketId { own: Arc::clone(own), channel }),
            Err(errno) => {
                // The request fails for the first reason.
                let _ = destroy(own, Call::raccept);
                Err(errno)
            }
        }
    }

    /// Returns the identifier of the connection manager.
    pub(crate) const fn id(&self) -> &Arc<Id> {
        &self.own
    }

    /// Returns the channel's descriptor, which is readable while there are events.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.channel.descriptor()
    }

    /// Returns its own address, and the peer's.
    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let state = self.own.state();
        (state.addresses.local, state.addresses.remote)
    }

    /// Sets an option of identifiers.
    ///
    /// # Errors
    /// Fails with the errors of `rdma_set_option`.
    pub(crate) fn set_option(&self, option: c_int, value: &[u8]) -> Result<(), Errno> {
        endpoint::set(&self.own, option, Some(value))
    }

    /// # Errors
    /// Fails with the errors of `rdma_bind_addr`.
    pub(crate) fn bind(&self, to: SocketAddr) -> Result<(), Errno> {
        bind(&self.own, &mut self.own.state(), to)
    }

    /// # Errors
    /// Fails with the errors of `rdma_listen`.
    pub(crate) fn listen(&self, backlog: c_int) -> Result<(), Errno> {
        listen(&self.own, backlog)
    }

    /// Finds the path to a peer; the identifier is on the device afterwards.
    ///
    /// # Errors
    /// Fails with ENETUNREACH, and with the other errors for a wrong address.
    pub(crate) fn resolve(&self, peer: SocketAddr) -> Result<(), Errno> {
        // The request that follows shows whether the peer is there.
        find_path(&self.own, None, peer, false, None)?;
        self.expect(ADDR_RESOLVED)?;
        resolve_route(&self.own)?;
        self.expect(ROUTE_RESOLVED)
    }

    fn expect(&self, wanted: u32) -> Result<(), Errno> {
        let event = take(&self.channel)?.ok_or(Errno(libc::EIO))?;
        match event.facts() {
            (event, 0) if event == wanted => Ok(()),
            _ => Err(Errno(libc::EHOSTUNREACH)),
        }
    }

    /// Sends a request to the peer; [`SocketId::next`] returns the answer.
    ///
    /// # Errors
    /// Fails with the errors of `rdma_connect`.
    pub(crate) fn connect(&self, private_data: &[u8]) -> Result<(), Errno> {
        connect(&self.own, ConnectParameters::with_private_data(private_data)?).map(drop)
    }

    /// Answers a request.
    ///
    /// # Errors
    /// Fails with the errors of `rdma_accept`.
    pub(crate) fn accept(&self, private_data: &[u8]) -> Result<(), Errno> {
        accept(&self.own, ConnectParameters::with_private_data(private_data)?).map(drop)
    }

    /// Rejects a request.
    pub(crate) fn reject(&self) {
        // The requesting peer may have gone.
        let _ = reject_silently(&self.own);
    }

    /// Ends the connection, and with it all requests of its queue pair.
    pub(crate) fn disconnect(&self) {
        // The connection may be over already.
        let _ = disconnect(&self.own);
    }

    /// Takes the next event, if there is one.
    ///
    /// # Errors
    /// Fails with the errors of opening the device.
    pub(crate) fn next(&self) -> Result<Option<CmNotice>, Errno> {
        Ok(take(&self.channel)?.as_ref().map(notice))
    }
}

impl Drop for SocketId {
    fn drop(&mut self) {
        // This fails if the device is gone, and the identifier with it.
        let _ = destroy(&self.own, Call::rclose);
    }
}

fn notice(event: &RdmaCmEvent) -> CmNotice {
    match event.facts() {
        (CONNECT_REQUEST, _) => match SocketId::of_request(event.id()) {
            Ok(identifier) => CmNotice::Request(identifier, event.private_data().to_vec()),
            Err(_) => CmNotice::Other,
        },
        (ESTABLISHED, _) => CmNotice::Established(event.private_data().to_vec()),
        (REJECTED, _) => CmNotice::Failed(libc::ECONNREFUSED),
        (UNREACHABLE, _) => CmNotice::Failed(libc::ETIMEDOUT),
        (CONNECT_ERROR, status) => CmNotice::Failed(status.saturating_abs()),
        (DISCONNECTED, _) => CmNotice::Disconnected,
        _ => CmNotice::Other,
    }
}
