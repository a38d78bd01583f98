//! Queue pair 1: the general services interface, and the connection manager behind it.
//!
//! All processes of an address share its queue pair 1. A message for a connection carries the slot of
//! its process in the communication id; a request is for whoever has bound the service, which the
//! [`ServiceDirectory`] of the port knows. Whoever receives a message of another process hands it on, and
//! answers for those that nobody owns; a request for a service of nobody's only after a moment (`early`).
//!
//! Consumers hear of their connections through a [`CmChannel`]: a queue of events with a descriptor. A
//! connection made by a request begins on its listener's channel.

mod binding;
mod channel;
mod early;
mod envelope;
mod error;
mod turn;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pumice_transport::cm::{Cm, CmConfig, Event, IdSource, ListenerId, MadOut};
use pumice_transport::mad::CommId;
use pumice_transport::types::Gid;
use pumice_transport::wire::ProcessIndex;

pub use binding::BindingId;
pub use channel::CmChannel;
pub use error::ConnectionError;

pub use crate::port::{DirectoryError, Forwarded, Occupant, ServiceDirectory, ServiceEntry};

use crate::addresses::gid_table::GidEntry;
use binding::Bindings;
use early::EarlyRequests;
use envelope::Inbound;
use watch::Watch;

#[cfg(test)]
pub(crate) use envelope::PACKET_BYTES;
pub(crate) use envelope::inbound;
pub(crate) use turn::MailSink;

/// MADs that wait to be looked at: what one round of receiving brings. More are lost, as on the wire.
const MAX_INBOX: usize = 2048;
/// MADs that wait for other processes. More are lost, as on the wire.
const MAX_DETAINED: usize = 8192;

/// A MAD that waits for a process.
struct Detained {
    process: ProcessIndex,
    until_ns: u64,
    inbound: Inbound,
}

/// Queue pair 1 of an adapter.
pub(crate) struct Gsi {
    pub(crate) cm: Cm,
    process_slot: u8,
    bindings: Bindings,
    channels: BTreeMap<CommId, Arc<CmChannel>>,
    listeners: BTreeMap<ListenerId, Arc<CmChannel>>,
    inbox: Vec<Inbound>,
    early: EarlyRequests,
    /// MADs for processes that do not keep up.
    detained: VecDeque<Detained>,
    /// A MAD that the port had no room for.
    held_back: Option<MadOut>,
    /// Connections whose peers' processes are to be looked at.
    fresh: Vec<CommId>,
    watch: Watch,
    next_psn: u32,
}

impl Gsi {
    /// `seed` decides which communication ids there are, and where PSNs begin.
    pub(crate) fn new(config: CmConfig, process_slot: u8, seed: u64) -> Gsi {
        Gsi {
            cm: Cm::new(config, IdSource::scattered(process_slot, seed)),
            process_slot,
            bindings: Bindings::default(),
            channels: BTreeMap::new(),
            listeners: BTreeMap::new(),
            inbox: Vec::new(),
            early: EarlyRequests::default(),
            detained: VecDeque::new(),
            held_back: None,
            fresh: Vec::new(),
            watch: Watch::default(),
            next_psn: (seed >> 32) as u32,
        }
    }

    /// A packet for queue pair 1: it is looked at when the port is free to hand it on.
    pub(crate) fn accept(&mut self, inbound: Inbound) {
        if self.inbox.len() < MAX_INBOX {
            self.inbox.push(inbound);
        }
    }

    pub(crate) fn has_mail(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// When its timers are due.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let early = self.early.deadline_ns();
        self.cm.poll_timeout().into_iter().chain(self.watch.next_look_ns()).chain(early).min()
    }

    /// Something waits to be sent.
    pub(crate) fn has_backlog(&self) -> bool {
        self.held_back.is_some() || !self.detained.is_empty()
    }

    /// Events to their channels. A request that its channel has no room for is turned away.
    fn deliver(&mut self, now_ns: u64) {
        while let Some(event) = self.cm.poll_event() {
            let id = event.id();
            let asked = match &event {
                Event::ConnectRequest { listener, .. } | Event::SidrRequest { listener, .. } => {
                    Some(*listener)
                }
                _ => None,
            };
            if let Some(channel) = asked.and_then(|listener| self.listeners.get(&listener)) {
                self.channels.insert(id, Arc::clone(channel));
            }
            if let Event::Established { .. } = &event {
                self.fresh.push(id);
            }
            let delivered = self.channels.get(&id).is_some_and(|channel| channel.push(event));
            if !delivered && asked.is_some() {
                self.channels.remove(&id);
                // It exists: the event was about it.
                let _ = self.cm.destroy(id, now_ns);
            }
        }
    }
}

/// A node GUID for an adapter whose owner names none: the same in all processes that have its first
/// address, made as from a locally administered MAC address.
pub(crate) fn default_guid(gids: &[GidEntry]) -> u64 {
    let gid = gids.first().map_or(Gid::ZERO, |entry| entry.gid);
    let hash = gid.0.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let [a, b, c, d, e, f, _, _] = hash.to_be_bytes();
    u64::from_be_bytes([a & 0xfc, b, c, 0xff, 0xfe, d, e, f])
}

#[cfg(test)]
mod detained_tests;
