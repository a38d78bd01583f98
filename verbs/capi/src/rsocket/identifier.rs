//! An identifier of the connection manager, on a channel of its own, as sockets need it.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;

use crate::ground::abi::{rdma_cm_id, rdma_conn_param};
use crate::ground::errno::{Errno, INVALID, errno};
use crate::rdma_cm::address;
use crate::rdma_cm::bind::{rdma_bind_addr, rdma_listen};
use crate::rdma_cm::channel::Channel;
use crate::rdma_cm::connect::{rdma_accept, rdma_connect, rdma_disconnect, rdma_reject};
use crate::rdma_cm::event::{
    ADDR_RESOLVED, CONNECT_ERROR, CONNECT_REQUEST, DISCONNECTED, ESTABLISHED, Event, REJECTED,
    ROUTE_RESOLVED, UNREACHABLE, no_conn,
};
use crate::rdma_cm::id::{Id, create, rdma_destroy_id};
use crate::rdma_cm::option::rdma_set_option;
use crate::rdma_cm::registry::registry;
use crate::rdma_cm::resolve::{rdma_resolve_addr, rdma_resolve_route};

/// `RDMA_PS_TCP`, `RDMA_PS_UDP`.
pub(crate) const PS_TCP: u32 = 0x106;
pub(crate) const PS_UDP: u32 = 0x111;
/// Resolving takes no time here.
const PATIENCE_MS: c_int = 2000;
/// The usual retries, and for ever where the peer only has no receive.
const RETRIES: u8 = 7;

/// An identifier, until it is dropped.
pub(crate) struct Identifier {
    raw: *mut rdma_cm_id,
    own: Arc<Id>,
    channel: Arc<Channel>,
}

// SAFETY: the pointer is of the object beside it, which threads may share.
unsafe impl Send for Identifier {}
// SAFETY: as above.
unsafe impl Sync for Identifier {}

/// What is heard of an identifier.
pub(crate) enum Heard {
    /// Somebody wants to connect, and says this.
    Request(Identifier, Vec<u8>),
    /// The connection is there; the one who was asked has said this.
    Established(Vec<u8>),
    /// The connection came to nothing.
    Failed(c_int),
    /// The connection is over.
    Disconnected,
    /// Nothing that matters.
    Other,
}

fn check(returned: c_int) -> Result<(), Errno> {
    if returned == 0 { Ok(()) } else { Err(Errno(errno())) }
}

impl Identifier {
    /// A new one.
    ///
    /// # Errors
    /// There is no device, or there are no descriptors.
    pub(crate) fn new(port_space: u32) -> Result<Identifier, Errno> {
        let channel = Channel::new()?;
        // SAFETY: a live channel.
        let own = unsafe { create(channel.as_ptr(), ptr::null_mut(), port_space, None) }?;
        Ok(Identifier { raw: own.hand_out(), own, channel })
    }

    /// Of a request, which came on the listener's channel; it gets a channel of its own.
    fn of_request(raw: *mut rdma_cm_id) -> Result<Identifier, Errno> {
        // SAFETY: it came with an event, and is ours from there on.
        let own = unsafe { Id::of(raw) }?;
        let moved = Channel::new().and_then(|channel| {
            let _registry = registry();
            own.migrate(Arc::clone(&channel), false)?;
            Ok(channel)
        });
        match moved {
            Ok(channel) => Ok(Identifier { raw, own, channel }),
            Err(errno) => {
                // SAFETY: as above; nobody else has it.
                unsafe { rdma_destroy_id(raw) };
                Err(errno)
            }
        }
    }

    pub(crate) const fn raw(&self) -> *mut rdma_cm_id {
        self.raw
    }

    /// The channel's descriptor: readable while there is something to hear.
    pub(crate) fn descriptor(&self) -> RawFd {
        // SAFETY: a live channel's structure.
        unsafe { (*self.channel.as_ptr()).fd }
    }

    /// Its own address, and the peer's.
    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let state = self.own.state();
        (state.local, state.remote)
    }

    /// Marks of packets, or another option of one identifier.
    ///
    /// # Errors
    /// Those of `rdma_set_option`.
    pub(crate) fn set_option<T>(&self, option: c_int, value: &T) -> Result<(), Errno> {
        /// `RDMA_OPTION_ID`.
        const LEVEL: c_int = 0;
        let value: *const T = value;
        // SAFETY: a live identifier; the value has its size, and is only read.
        check(unsafe { rdma_set_option(self.raw, LEVEL, option, value.cast_mut().cast(), size_of::<T>()) })
    }

    /// # Errors
    /// Those of `rdma_bind_addr`.
    pub(crate) fn bind(&self, to: SocketAddr) -> Result<(), Errno> {
        let mut c = address::to_c(to);
        // SAFETY: a live identifier and an address.
        check(unsafe { rdma_bind_addr(self.raw, (&raw mut c).cast()) })
    }

    /// # Errors
    /// Those of `rdma_listen`.
    pub(crate) fn listen(&self, backlog: c_int) -> Result<(), Errno> {
        // SAFETY: a live identifier.
        check(unsafe { rdma_listen(self.raw, backlog) })
    }

    /// Finds the way to a peer; the identifier is on the device then.
    ///
    /// # Errors
    /// ENETUNREACH, or what else the address is wrong for.
    pub(crate) fn resolve(&self, peer: SocketAddr) -> Result<(), Errno> {
        let mut c = address::to_c(peer);
        // SAFETY: a live identifier and an address.
        check(unsafe { rdma_resolve_addr(self.raw, ptr::null_mut(), (&raw mut c).cast(), PATIENCE_MS) })?;
        self.expect(ADDR_RESOLVED)?;
        // SAFETY: a live identifier.
        check(unsafe { rdma_resolve_route(self.raw, PATIENCE_MS) })?;
        self.expect(ROUTE_RESOLVED)
    }

    fn expect(&self, wanted: u32) -> Result<(), Errno> {
        let event = self.channel.take()?.ok_or(Errno(libc::EIO))?;
        match event.facts() {
            (event, 0) if event == wanted => Ok(()),
            _ => Err(Errno(libc::EHOSTUNREACH)),
        }
    }

    /// Asks the peer; [`Identifier::next`] has the answer.
    ///
    /// # Errors
    /// Those of `rdma_connect`.
    pub(crate) fn connect(&self, greeting: &[u8]) -> Result<(), Errno> {
        let mut param = parameters(greeting)?;
        // SAFETY: a live identifier; the greeting lives as long as the call.
        check(unsafe { rdma_connect(self.raw, &mut param) })
    }

    /// Answers a request.
    ///
    /// # Errors
    /// Those of `rdma_accept`.
    pub(crate) fn accept(&self, greeting: &[u8]) -> Result<(), Errno> {
        let mut param = parameters(greeting)?;
        // SAFETY: a live identifier; the greeting lives as long as the call.
        check(unsafe { rdma_accept(self.raw, &mut param) })
    }

    /// Turns a request down.
    pub(crate) fn reject(&self) {
        // Whoever asked may have gone.
        // SAFETY: a live identifier.
        let _ = unsafe { rdma_reject(self.raw, ptr::null(), 0) };
    }

    /// Ends the connection, and with it all requests of its queue pair.
    pub(crate) fn disconnect(&self) {
        // It may be over.
        // SAFETY: a live identifier.
        let _ = unsafe { rdma_disconnect(self.raw) };
    }

    /// What there is to hear, if there is something.
    ///
    /// # Errors
    /// Those of opening the device.
    pub(crate) fn next(&self) -> Result<Option<Heard>, Errno> {
        let Some(event) = self.channel.take()? else { return Ok(None) };
        Ok(Some(heard(&event)))
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        // SAFETY: it was handed out to this object, and nobody else destroys it.
        unsafe { rdma_destroy_id(self.raw) };
    }
}

fn parameters(greeting: &[u8]) -> Result<rdma_conn_param, Errno> {
    Ok(rdma_conn_param {
        private_data: greeting.as_ptr().cast(),
        private_data_len: u8::try_from(greeting.len()).map_err(|_| INVALID)?,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES,
        ..no_conn()
    })
}

fn heard(event: &Event) -> Heard {
    match event.facts() {
        (CONNECT_REQUEST, _) => match Identifier::of_request(event.subject()) {
            Ok(identifier) => Heard::Request(identifier, event.said().to_vec()),
            Err(_) => Heard::Other,
        },
        (ESTABLISHED, _) => Heard::Established(event.said().to_vec()),
        (REJECTED, _) => Heard::Failed(libc::ECONNREFUSED),
        (UNREACHABLE, _) => Heard::Failed(libc::ETIMEDOUT),
        (CONNECT_ERROR, status) => Heard::Failed(status.saturating_abs()),
        (DISCONNECTED, _) => Heard::Disconnected,
        _ => Heard::Other,
    }
}
