//! An identifier of the connection manager, on a channel of its own, as sockets need it.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;

use pumice_calls::Call;

use crate::ground::errno::Errno;
use crate::rdma_cm::calls::connect::{Parameters, accept, connect, disconnect, reject_silently};
use crate::rdma_cm::calls::identifier::{destroy, migrate};
use crate::rdma_cm::calls::resolve::{find_path, resolve_route};
use crate::rdma_cm::calls::{bind::listen, option};
use crate::rdma_cm::constants::{
    ADDR_RESOLVED, CONNECT_ERROR, CONNECT_REQUEST, DISCONNECTED, ESTABLISHED, REJECTED, ROUTE_RESOLVED,
    UNREACHABLE,
};
use crate::rdma_cm::events::event::Event;
use crate::rdma_cm::events::fetch::take;
use crate::rdma_cm::id::binding::bind;
use crate::rdma_cm::id::identifier::{Channel, Id};

/// An identifier, until it is dropped.
pub(crate) struct Identifier {
    own: Arc<Id>,
    channel: Arc<Channel>,
}

/// An event of an identifier.
pub(crate) enum Notice {
    /// A peer wants to connect, with this private data.
    Request(Identifier, Vec<u8>),
    /// The connection is there; the peer that accepted it has sent this private data.
    Established(Vec<u8>),
    /// The connection came to nothing.
    Failed(c_int),
    /// The connection is over.
    Disconnected,
    /// Nothing that matters to sockets.
    Other,
}

impl Identifier {
    /// A new one.
    ///
    /// # Errors
    /// There is no device, or there are no descriptors.
    pub(crate) fn new(port_space: u32) -> Result<Identifier, Errno> {
        let channel = Channel::new()?;
        let own = Id::create(Some(Arc::clone(&channel)), ptr::null_mut(), port_space, None)?;
        Ok(Identifier { own, channel })
    }

    /// Of a request, which came on the listener's channel; it gets a channel of its own.
    fn of_request(own: &Arc<Id>) -> Result<Identifier, Errno> {
        let moved = Channel::new().and_then(|channel| {
            migrate(own, Arc::clone(&channel), false)?;
            Ok(channel)
        });
        match moved {
            Ok(channel) => Ok(Identifier { own: Arc::clone(own), channel }),
            Err(errno) => {
                // The request fails for the first reason.
                let _ = destroy(own, Call::raccept);
                Err(errno)
            }
        }
    }

    /// The identifier of the connection manager.
    pub(crate) const fn id(&self) -> &Arc<Id> {
        &self.own
    }

    /// The channel's descriptor: readable while there are events.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.channel.descriptor()
    }

    /// Its own address, and the peer's.
    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let state = self.own.state();
        (state.local, state.remote)
    }

    /// Sets an option of identifiers.
    ///
    /// # Errors
    /// Those of `rdma_set_option`.
    pub(crate) fn set_option(&self, option: c_int, value: &[u8]) -> Result<(), Errno> {
        option::set(&self.own, option, Some(value))
    }

    /// # Errors
    /// Those of `rdma_bind_addr`.
    pub(crate) fn bind(&self, to: SocketAddr) -> Result<(), Errno> {
        bind(&self.own, &mut self.own.state(), to)
    }

    /// # Errors
    /// Those of `rdma_listen`.
    pub(crate) fn listen(&self, backlog: c_int) -> Result<(), Errno> {
        listen(&self.own, backlog)
    }

    /// Finds the way to a peer; the identifier is on the device then.
    ///
    /// # Errors
    /// ENETUNREACH, or what else the address is wrong for.
    pub(crate) fn resolve(&self, peer: SocketAddr) -> Result<(), Errno> {
        // The request that follows finds out whether the peer is there.
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

    /// Asks the peer; [`Identifier::next`] has the answer.
    ///
    /// # Errors
    /// Those of `rdma_connect`.
    pub(crate) fn connect(&self, private_data: &[u8]) -> Result<(), Errno> {
        connect(&self.own, Parameters::with_private_data(private_data)?).map(drop)
    }

    /// Answers a request.
    ///
    /// # Errors
    /// Those of `rdma_accept`.
    pub(crate) fn accept(&self, private_data: &[u8]) -> Result<(), Errno> {
        accept(&self.own, Parameters::with_private_data(private_data)?).map(drop)
    }

    /// Turns a request down.
    pub(crate) fn reject(&self) {
        // The peer that asked may have gone.
        let _ = reject_silently(&self.own);
    }

    /// Ends the connection, and with it all requests of its queue pair.
    pub(crate) fn disconnect(&self) {
        // The connection may be over.
        let _ = disconnect(&self.own);
    }

    /// The next event, if there is one.
    ///
    /// # Errors
    /// Those of opening the device.
    pub(crate) fn next(&self) -> Result<Option<Notice>, Errno> {
        Ok(take(&self.channel)?.as_ref().map(notice))
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        // It fails if the device is gone, and the identifier with it.
        let _ = destroy(&self.own, Call::rclose);
    }
}

fn notice(event: &Event) -> Notice {
    match event.facts() {
        (CONNECT_REQUEST, _) => match Identifier::of_request(event.id()) {
            Ok(identifier) => Notice::Request(identifier, event.private_data().to_vec()),
            Err(_) => Notice::Other,
        },
        (ESTABLISHED, _) => Notice::Established(event.private_data().to_vec()),
        (REJECTED, _) => Notice::Failed(libc::ECONNREFUSED),
        (UNREACHABLE, _) => Notice::Failed(libc::ETIMEDOUT),
        (CONNECT_ERROR, status) => Notice::Failed(status.saturating_abs()),
        (DISCONNECTED, _) => Notice::Disconnected,
        _ => Notice::Other,
    }
}
