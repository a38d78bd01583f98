//! The state of queue pair 1, and the events of connections on their way to consumers.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_model::event::{Event, Subscribers, Topics};
use pumice_platform::clock::earliest;
use pumice_transport::cm::{Cm, CmConfig, CmEvent, IdSource, ListenerId, MadOut};
use pumice_transport::mad::CommId;
use pumice_transport::types::Gid;
use pumice_transport::wire::ProcessIndex;

use super::binding::Bindings;
use super::channel::CmChannel;
use super::detained::DetainedMads;
use super::early::EarlyRequests;
use super::envelope::InboundMad;
use super::peers::Peers;

/// Number of MADs that may wait to be read: what one round of receiving brings. More are lost, as on the
/// wire.
const MAX_INBOX: usize = 2048;

/// Queue pair 1 of an adapter.
pub struct Gsi {
    #[doc(hidden)]
    pub cm: Cm,
    pub(super) process: ProcessIndex,
    pub(super) bindings: Bindings,
    pub(super) channels: BTreeMap<CommId, Arc<CmChannel>>,
    pub(super) listeners: BTreeMap<ListenerId, Arc<CmChannel>>,
    pub(super) inbox: Vec<InboundMad>,
    /// A request is in the inbox, and the port was not polled since it came.
    pub(super) has_new_request_flag: bool,
    pub(super) early: EarlyRequests,
    pub(super) outbound: OutboundMads,
    /// Connections whose peers' processes have to be looked up.
    pub(super) fresh: Vec<CommId>,
    pub(super) peers: Peers,
    pub(super) subscribers: Arc<Subscribers>,
    /// Addresses of a device with two ports: requests to others are for other devices. Empty means all.
    pub(super) own: Vec<Gid>,
}

/// The MADs on their way from queue pair 1 to the port.
pub(super) struct OutboundMads {
    /// MADs for processes that do not keep up.
    pub(super) detained: DetainedMads,
    /// MAD that the port had no room for.
    pub(super) held_back: Option<MadOut>,
    /// PSN of the next MAD.
    pub(super) next_psn: u32,
}

impl Gsi {
    /// Creates queue pair 1. `seed` determines the communication ids and the first PSNs.
    pub fn new(config: CmConfig, process: ProcessIndex, seed: u64, subscribers: Arc<Subscribers>) -> Gsi {
        Gsi {
            cm: Cm::new(config, IdSource::scattered(process, seed)),
            process,
            bindings: Bindings::default(),
            channels: BTreeMap::new(),
            listeners: BTreeMap::new(),
            inbox: Vec::new(),
            has_new_request_flag: false,
            early: EarlyRequests::default(),
            outbound: OutboundMads {
                detained: DetainedMads::default(),
                held_back: None,
                next_psn: (seed >> 32) as u32,
            },
            fresh: Vec::new(),
            peers: Peers::default(),
            subscribers,
            own: Vec::new(),
        }
    }

    /// Sets the only addresses of the device, though packets to others may come to it.
    pub fn set_own_addresses(&mut self, own: Vec<Gid>) {
        self.own = own;
    }

    /// Reports whether an address is the device's.
    pub fn is_own(&self, local: Gid) -> bool {
        self.own.is_empty() || self.own.contains(&local)
    }

    /// Queues a packet for queue pair 1, which is read when the port is free to forward it.
    pub fn accept(&mut self, inbound: InboundMad) {
        if self.inbox.len() < MAX_INBOX {
            self.has_new_request_flag |= inbound.names_no_connection();
            self.inbox.push(inbound);
        }
    }

    /// Reports what [`take_new_request`](Gsi::take_new_request) would return.
    #[inline]
    pub fn has_new_request(&self) -> bool {
        self.has_new_request_flag
    }

    /// Reports whether a request has come since the last call. Earlier packets of its sender, about a
    /// connection that exists, may have taken another way into this process, and not be received yet.
    #[inline]
    pub fn take_new_request(&mut self) -> bool {
        self.has_new_request_flag && std::mem::take(&mut self.has_new_request_flag)
    }

    #[doc(hidden)]
    #[inline]
    pub fn has_mads(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Returns the time at which its timers are due.
    #[inline]
    pub fn deadline_ns(&self) -> Option<u64> {
        earliest([self.cm.poll_timeout(), self.peers.next_check_ns(), self.early.deadline_ns()])
    }

    /// Reports whether a turn to send would find anything to do.
    #[inline]
    pub fn wants_to_send(&self) -> bool {
        self.cm.wants_to_send() || self.has_backlog()
    }

    /// Reports whether something waits to be sent.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        self.outbound.held_back.is_some() || !self.outbound.detained.is_empty()
    }

    /// Delivers events to their channels. A request that its channel has no room for is turned away.
    pub fn deliver(&mut self, now_ns: u64) {
        while let Some(event) = self.cm.poll_event() {
            let id = event.id();
            if self.subscribers.listen(Topics::CM) {
                let (event, state) = (&event, self.cm.state(id));
                self.subscribers.emit(&Event::CmEvent { event, state });
            }
            let requested = match &event {
                CmEvent::ConnectRequest { listener, .. } | CmEvent::SidrRequest { listener, .. } => {
                    Some(*listener)
                }
                _ => None,
            };
            if let Some(channel) = requested.and_then(|listener| self.listeners.get(&listener)) {
                self.channels.insert(id, Arc::clone(channel));
            }
            if let CmEvent::Established { .. } = &event {
                self.fresh.push(id);
            }
            let delivered = self.channels.get(&id).is_some_and(|channel| channel.push(event));
            if !delivered && requested.is_some() {
                self.channels.remove(&id);
                // The connection exists: the event was about it.
                let _ = self.cm.destroy(id, now_ns);
            }
        }
    }
}
