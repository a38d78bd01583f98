//! The state of one process's connections, and the calls that ask about it.

use alloc::collections::VecDeque;

use super::listeners::Listeners;
use super::pace::Pacer;
use super::table::ConnectionTable;
use super::{CmEvent, CmState, IdSource, MadOut, MadRoute, QpParameters};
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
    pub(super) config: CmConfig,
    pub(super) ids: IdSource,
    pub(super) table: ConnectionTable,
    pub(super) listeners: Listeners,
    pub(super) pacer: Pacer,
    pub(super) transmits: VecDeque<MadOut>,
    pub(super) events: VecDeque<CmEvent>,
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
    pub(super) fn push_event(&mut self, id: CommId, event: CmEvent) {
        if self.table.get(id).is_some_and(|connection| connection.consumer) {
            self.events.push_back(event);
        }
    }
}
