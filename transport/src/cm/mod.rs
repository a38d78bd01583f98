//! Connection management: the IBTA's communication manager as a state machine without I/O.
//!
//! A [`Cm`] is one process's end of all conversations on queue pair 1. Calls of the consumer (listen,
//! connect, accept, …), MADs ([`Cm::handle_mad`]) and time ([`Cm::handle_timeout`]) go in; MADs to send
//! ([`Cm::poll_transmit`]), the next deadline ([`Cm::poll_timeout`]) and events ([`Cm::poll_event`]) come
//! out. After any call, drain them.
//!
//! On the wire it behaves as Linux does: the same messages, fields, timers and answers to duplicates. It does
//! more than Linux where a peer would otherwise wait for a timeout: a repeated REQ is answered with the REP
//! again at once; a REP for an id that does not exist is rejected; a connection that its consumer has
//! destroyed is still disconnected reliably; simultaneous DREQs are answered at once; and a peer may use a
//! queue pair again after the end of its connection. It trusts less than Linux where a message can be forged:
//! what a REQ says about an old connection is checked with its peer (`disconnect`), and only a message with
//! both communication ids ends a connection that is established. The ids cannot be guessed
//! ([`IdSource::scattered`]).
//!
//! **Ids.** A connection lives from `connect`, `resolve` or a request until [`Cm::destroy`]. The part that
//! the protocol needs after that (the answer to a DREQ, timewait) remains without the consumer, and produces
//! no more events.
//!
//! **Bounds.** Connections, listeners and requests waiting at a listener have limits; what exceeds them is
//! refused. A transmit queue that is not drained loses MADs, which the timers repeat. A burst of requests to
//! one address is sent in portions, each when the one before was answered or a short time has passed.
//!
//! The state of one process's connections, and the calls that ask about it.
//!
//! Adding and removing listeners.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use self::listeners::Listeners;
use self::pace::Pacer;
use self::table::ConnectionTable;
use crate::mad::CommId;
use crate::types::Gid;

/// Settings and limits of a [`Cm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CmConfig {
    /// Node GUID: stable, and the same in all processes of one adapter.
    pub ca_guid: u64,
    /// Time that the adapter takes to acknowledge, as a time code (4.096 µs · 2^t). rdma_rxe says 15.
    pub ca_ack_delay: u8,
    /// Largest number of connections, those in timewait included; below 2^23.
    pub max_connections: usize,
    /// Largest number of listeners.
    pub max_listeners: usize,
    /// Time (a time code) that an MRA asks for when a peer repeats a request or reply which the consumer has
    /// not answered yet; Linux asks for 24, a minute. With `None` such a repetition is not answered.
    pub mra_service_timeout: Option<u8>,
}

impl CmConfig {
    /// Creates the settings of Linux with rdma_rxe: 65536 connections, and a listener for every port of two
    /// port spaces.
    pub const fn new(ca_guid: u64) -> CmConfig {
        CmConfig {
            ca_guid,
            //= linux:rxe.c#rxe_init_device_param
            //| The adapter says that it acknowledges within the time code 15.
            ca_ack_delay: 15,
            max_connections: 1 << 16,
            max_listeners: 1 << 17,
            mra_service_timeout: Some(24),
        }
    }
}

/// The connection manager of one process. See the module.
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
    ids: IdSource,
    table: ConnectionTable,
    listeners: Listeners,
    pacer: Pacer,
    transmits: VecDeque<MadOut>,
    events: VecDeque<CmEvent>,
}

impl Cm {
    /// Largest number of MADs that wait to be sent. More are lost, as on the wire.
    pub const MAX_QUEUED_TRANSMITS: usize = 1024;

    /// Creates a connection manager without connections. `ids` chooses their communication ids.
    pub fn new(config: CmConfig, ids: IdSource) -> Cm {
        let limit = config.max_connections.min(IdSource::MAX_LIVE);
        Cm {
            config: CmConfig { max_connections: limit, ..config },
            ids,
            table: ConnectionTable::default(),
            listeners: Listeners::new(config.max_listeners),
            pacer: Pacer::default(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Returns the settings that it was made with.
    pub const fn config(&self) -> &CmConfig {
        &self.config
    }

    /// Counts the connections in any state, those without a consumer included.
    pub fn connection_count(&self) -> usize {
        self.table.len()
    }

    /// Counts the listeners.
    pub fn listener_count(&self) -> usize {
        self.listeners.len()
    }

    /// Reports whether there is no connection, listener, index entry or timer.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty() && self.listeners.is_empty() && self.pacer.is_empty()
    }

    /// Iterates over the connections that have a consumer.
    pub fn ids(&self) -> impl Iterator<Item = CommId> {
        self.table.ids().filter(|(_, connection)| connection.consumer).map(|(id, _)| id)
    }

    /// Iterates over the connections that are established.
    pub fn established(&self) -> impl Iterator<Item = CommId> {
        self.table.ids().filter(|(_, connection)| connection.state == CmState::Established).map(|(id, _)| id)
    }

    /// Returns the other end of a connection: its communication id and its address.
    pub fn peer(&self, id: CommId) -> Option<(CommId, Gid)> {
        self.table.get(id).map(|connection| (connection.remote_id, connection.route.remote))
    }

    /// Returns the state of a connection that has a consumer.
    pub fn state(&self, id: CommId) -> Option<CmState> {
        self.table.get(id).filter(|connection| connection.consumer).map(|connection| connection.state)
    }

    /// Returns the values that the connection's queue pair needs to go to RTR and RTS. They are known on the
    /// passive side from the request on, on the active side from the reply on.
    pub fn qp_parameters(&self, id: CommId) -> Option<&QpParameters> {
        self.table.get(id).map(|connection| &connection.qp)
    }

    /// Returns the route of a connection's MADs.
    pub fn route(&self, id: CommId) -> Option<&MadRoute> {
        self.table.get(id).map(|connection| &connection.route)
    }

    /// Takes the next MAD to send.
    pub fn poll_transmit(&mut self) -> Option<MadOut> {
        self.transmits.pop_front()
    }

    /// Reports whether [`Cm::poll_transmit`] has a message.
    #[inline]
    pub fn wants_to_send(&self) -> bool {
        !self.transmits.is_empty()
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// Returns the time at which [`Cm::handle_timeout`] has to be called, in nanoseconds of the clock that
    /// `now_ns` counts.
    #[inline]
    pub fn poll_timeout(&self) -> Option<u64> {
        let [first_ns, second_ns] = [self.table.next_deadline_ns(), self.pacer.next_deadline_ns()];
        match second_ns {
            None => first_ns,
            Some(second_ns) => Some(first_ns.map_or(second_ns, |first_ns| first_ns.min(second_ns))),
        }
    }

    /// Queues an event for the consumer, if the connection still has one.
    fn push_event(&mut self, id: CommId, event: CmEvent) {
        if self.table.get(id).is_some_and(|connection| connection.consumer) {
            self.events.push_back(event);
        }
    }

    /// Begins to listen for the services of `params`.
    ///
    /// # Errors
    /// Fails with [`CmError::ServiceInUse`] if another listener has the same services at the same addresses,
    /// and with [`CmError::TooManyListeners`].
    pub fn listen(&mut self, params: &ListenParams) -> Result<ListenerId, CmError> {
        if self.listeners.is_taken(params) {
            return Err(CmError::ServiceInUse(params.service_id));
        }
        if let Some(limit) = self.listeners.full() {
            return Err(CmError::TooManyListeners { limit });
        }
        Ok(self.listeners.add(params))
    }

    /// Removes a listener. Requests that wait are destroyed, hence rejected; requests that were taken stay.
    ///
    /// # Errors
    /// Fails with [`CmError::UnknownListener`] if there is no such listener.
    pub fn unlisten(&mut self, listener: ListenerId, now_ns: u64) -> Result<(), CmError> {
        self.listeners.remove(listener).ok_or(CmError::UnknownListener)?;
        let waiting = self.table.ids().filter(|(_, connection)| connection.waiting_at == Some(listener));
        let waiting: Vec<CommId> = waiting.map(|(id, _)| id).collect();
        for id in waiting {
            self.destroy(id, now_ns)?;
        }
        Ok(())
    }

    /// Removes a request from its listener's backlog because the consumer has taken its event. Answering or
    /// destroying a request does the same.
    pub fn take_request(&mut self, id: CommId) {
        if let Some(connection) = self.table.get_mut(id)
            && let Some(listener) = connection.waiting_at.take()
        {
            self.listeners.dequeue(listener);
        }
    }
}

mod active;
mod connection;
mod disconnect;
mod error;
mod event;
mod ids;
mod listeners;
mod pace;
mod params;
mod passive;
mod receive;
mod reject;
mod sidr;
mod table;

pub use connection::CmState;
pub use error::{CmError, IgnoredMad};
pub use event::{CmEvent, MadOut, UnansweredMessage};
pub use ids::IdSource;
pub use listeners::ListenScope;
pub use listeners::{BacklogOverflow, ListenParams, ListenerId, Served};

pub use params::{
    AcceptParams, CmPath, ConnectParams, MadRoute, QpParameters, RejectParams, ResolveParams, SidrReply,
    ack_timeout, time_code_ns,
};
