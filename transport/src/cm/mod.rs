//! Connection management as a value: the IBTA's CM, without I/O.
//!
//! A [`Cm`] is one process's end of all conversations on queue pair 1. Calls of the consumer (listen,
//! connect, accept, …), MADs ([`Cm::handle_mad`]) and time ([`Cm::handle_timeout`]) go in; MADs to
//! send ([`Cm::poll_transmit`]), the next deadline ([`Cm::poll_timeout`]) and events
//! ([`Cm::poll_event`]) come out. After any call, drain them.
//!
//! It says on the wire what Linux says: the same messages, fields, timers and answers to duplicates. Where it
//! does more, it is because a peer would otherwise wait for a timeout: a repeated REQ is answered with the
//! REP again at once; a REP for an id that does not exist is rejected; a connection that its consumer has
//! given up is still disconnected reliably; simultaneous DREQs are answered at once; and a peer that uses a
//! queue pair again after its end is believed. Where it believes less, it is because a message can be forged:
//! what a REQ says about an old connection is checked with its peer (`disconnect`), and only a message with
//! both communication ids ends a connection that is established. The ids cannot be guessed
//! ([`IdSource::scattered`]).
//!
//! **Ids.** A connection lives from `connect`, `resolve` or a request until [`Cm::destroy`]. What the
//! protocol still needs of it then (the answer to a DREQ, timewait) stays without the consumer, and
//! gives no more events.
//!
//! **Bounds.** Connections, listeners and requests waiting at a listener have limits; what does not fit is
//! refused. A transmit queue that is not drained loses MADs, which the timers repeat. A burst of requests to
//! one address leaves in portions, each when the one before was answered or a moment has passed.

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
mod place;
mod receive;
mod reject;
mod sidr;
mod table;
mod time;
mod timeouts;

use alloc::collections::VecDeque;

pub use connection::State;
pub use error::{CmError, Ignored};
pub use event::{Event, MadOut, UnansweredMessage};
pub use ids::IdSource;
pub use listeners::{BacklogOverflow, ListenParams, ListenerId, Served};
pub use params::{
    AcceptParams, CmPath, ConnectParams, MadRoute, QpParameters, RejectParams, ResolveParams, SidrReply,
};
pub use place::Place;
pub use time::{ack_timeout, time_code_ns};

use crate::mad::{CmMessage, CommId, MAD_BYTES};
use crate::types::Gid;
use listeners::Listeners;
use pace::Pacer;
use table::Table;

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
    config: CmConfig,
    ids: IdSource,
    table: Table,
    listeners: Listeners,
    pacer: Pacer,
    transmits: VecDeque<MadOut>,
    events: VecDeque<Event>,
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

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Cm::handle_timeout`] wants to be called: nanoseconds of the clock that `now_ns` counts.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.table.next_deadline_ns().into_iter().chain(self.pacer.next_deadline_ns()).min()
    }

    fn send(&mut self, route: MadRoute, message: &CmMessage, transaction: u64) {
        self.send_mad(route, message.emit(transaction));
    }

    fn send_mad(&mut self, route: MadRoute, mad: [u8; MAD_BYTES]) {
        if self.transmits.len() < Cm::MAX_QUEUED_TRANSMITS {
            self.transmits.push_back(MadOut { route, mad });
        }
    }

    /// Tells the consumer, if the connection still has one.
    fn tell(&mut self, id: CommId, event: Event) {
        if self.table.get(id).is_some_and(|connection| connection.consumer) {
            self.events.push_back(event);
        }
    }
}
