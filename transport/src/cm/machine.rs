//! The state of one process's connections, and what a caller may ask about it.

use alloc::collections::VecDeque;

use super::listeners::Listeners;
use super::pace::Pacer;
use super::table::Table;
use super::{Event, IdSource, MadOut, MadRoute, QpParameters, State};
use crate::mad::CommId;
use crate::types::Gid;

/// What a [`Cm`] is and what it may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CmConfig {
    /// Node GUID: stable, and the same in all processes of one adapter.
    pub ca_guid: u64,
    /// How long the adapter takes to acknowledge, as a time code (4.096 µs · 2^t). rdma_rxe says 15.
    pub ca_ack_delay: u8,
    /// Connections at once, those in timewait included; below 2^23.
    pub max_connections: usize,
    /// Listeners at once.
    pub max_listeners: usize,
    /// A request or reply that is repeated while the consumer has not answered it yet is answered with
    /// an MRA that asks for this much time (a time code; Linux: 24, a minute). `None`: by silence.
    pub mra_service_timeout: Option<u8>,
}

impl CmConfig {
    /// As Linux with rdma_rxe, for 65536 connections, and a listener for every port of two port spaces.
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

/// One process's connections. See the module.
#[derive(Debug)]
pub struct Cm {
    pub(super) config: CmConfig,
    pub(super) ids: IdSource,
    pub(super) table: Table,
    pub(super) listeners: Listeners,
    pub(super) pacer: Pacer,
    pub(super) transmits: VecDeque<MadOut>,
    pub(super) events: VecDeque<Event>,
}

impl Cm {
    /// MADs that wait to be sent. Beyond it new ones are lost, as on the wire.
    pub const MAX_QUEUED_TRANSMITS: usize = 1024;

    /// Without connections. `ids` chooses their communication ids.
    pub fn new(config: CmConfig, ids: IdSource) -> Cm {
        let limit = config.max_connections.min(IdSource::MAX_LIVE);
        Cm {
            config: CmConfig { max_connections: limit, ..config },
            ids,
            table: Table::default(),
            listeners: Listeners::new(config.max_listeners),
            pacer: Pacer::default(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// What it was made with.
    pub const fn config(&self) -> &CmConfig {
        &self.config
    }

    /// Connections of any state, those without a consumer included.
    pub fn connection_count(&self) -> usize {
        self.table.len()
    }

    /// Listeners.
    pub fn listener_count(&self) -> usize {
        self.listeners.len()
    }

    /// Whether nothing is left: no connection, listener, index entry or timer.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty() && self.listeners.is_empty() && self.pacer.is_empty()
    }

    /// Connections that have a consumer.
    pub fn ids(&self) -> impl Iterator<Item = CommId> {
        self.table.ids().filter(|(_, connection)| connection.consumer).map(|(id, _)| id)
    }

    /// Connections that are established.
    pub fn established(&self) -> impl Iterator<Item = CommId> {
        self.table.ids().filter(|(_, connection)| connection.state == State::Established).map(|(id, _)| id)
    }

    /// The other end of a connection: its communication id and its address.
    pub fn peer(&self, id: CommId) -> Option<(CommId, Gid)> {
        self.table.get(id).map(|connection| (connection.remote_id, connection.route.remote))
    }

    /// State of a connection that has a consumer.
    pub fn state(&self, id: CommId) -> Option<State> {
        self.table.get(id).filter(|connection| connection.consumer).map(|connection| connection.state)
    }

    /// What the connection's queue pair needs on its way to RTR and RTS: on the passive side from the
    /// request on, on the active side from the reply on.
    pub fn qp_parameters(&self, id: CommId) -> Option<&QpParameters> {
        self.table.get(id).map(|connection| &connection.qp)
    }

    /// The route of a connection's MADs.
    pub fn route(&self, id: CommId) -> Option<&MadRoute> {
        self.table.get(id).map(|connection| &connection.route)
    }

    /// The next MAD to send.
    pub fn poll_transmit(&mut self) -> Option<MadOut> {
        self.transmits.pop_front()
    }

    /// Whether [`Cm::poll_transmit`] has a message.
    #[inline]
    pub fn wants_to_send(&self) -> bool {
        !self.transmits.is_empty()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Cm::handle_timeout`] wants to be called: nanoseconds of the clock that `now_ns` counts.
    #[inline]
    pub fn poll_timeout(&self) -> Option<u64> {
        let [first_ns, second_ns] = [self.table.next_deadline_ns(), self.pacer.next_deadline_ns()];
        match second_ns {
            None => first_ns,
            Some(second_ns) => Some(first_ns.map_or(second_ns, |first_ns| first_ns.min(second_ns))),
        }
    }

    /// Tells the consumer, if the connection still has one.
    pub(super) fn tell(&mut self, id: CommId, event: Event) {
        if self.table.get(id).is_some_and(|connection| connection.consumer) {
            self.events.push_back(event);
        }
    }
}
