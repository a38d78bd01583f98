//! The tables of a device's objects.

use std::net::IpAddr;
use std::sync::Arc;

use crate::ethernet::Ethernet;
use crate::objects::completion_counter::CompletionCounter;
use crate::objects::completion_queue::{CompletionQueue, CqCommon};
use crate::objects::direct_delivery::DirectDelivery;
use crate::objects::recv_queue::RecvQueue;
use crate::objects::srq::Srq;
use pumice_fabric::xrc::XrcDomains;
use pumice_memory::RegionTable;
use pumice_model::addresses::multicast::MulticastGroups;
use pumice_model::addresses::{DevicePort, PkeyTable, Ports};
use pumice_model::counters::Counters;
use pumice_model::event::async_event::AsyncEventQueue;
use pumice_model::event::{Subscribers, Topics};
use pumice_model::profile::Failures;
use pumice_platform::error::ResourceError;
use pumice_platform::event_queue::EventAccount;
use pumice_platform::limits::{Limits, ObjectSummary};
use pumice_platform::ordinal::ObjectOrdinals;
use pumice_platform::table::{Handle, Table, try_new_list};
use pumice_transport::host::QpContext;
use pumice_transport::types::{Cause, Mtu};
use pumice_transport::wire::{ProcessIndex, Qpn};

use super::batch_time::BatchTime;
use super::presence::Presence;
use super::rendezvous::AllRendezvous;
use super::tally::QpTally;
use crate::decisions::Decisions;

/// Number of queue pair indices: the low 16 bits of a queue pair number are its index.
const QP_INDICES: usize = 1 << 16;

/// The index in a [`QpContext`] that means that there is no such object.
pub const NO_OBJECT: u32 = u32::MAX;

/// A queue pair that must go to ERR because of something outside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpFailure {
    /// The queue pair.
    pub qpn: Qpn,
    /// The cause.
    pub cause: Cause,
}

/// The objects of a device, and what its engine knows beside them.
pub struct Resources {
    pub(crate) objects: ObjectTables,
    pub(super) created: CreatedObjects,
    pub(crate) listeners: Listeners,
    /// The port, its counters and its events.
    pub port: PortState,
    pub(crate) completions: CompletionState,
    /// The decisions about packets, work and stores, and what is delayed because of them.
    pub(crate) decisions: Decisions,
    pub(crate) lanes: Lanes,
    /// The sockets of raw packet queue pairs, if there are any.
    pub(crate) ethernet: Option<Box<Ethernet>>,
    /// The READs of queue pairs for messages that matched a tag.
    pub(crate) rendezvous: AllRendezvous,
}

/// The tables of a device's objects.
pub(crate) struct ObjectTables {
    pub(super) limits: Limits,
    pub(super) memory: RegionTable,
    pub(super) pds: Table<ProtectionDomain>,
    pub(crate) xrc: XrcDomains,
    pub(super) ahs: Table<AddressHandleEntry>,
    pub(super) cqs: Table<CqEntry>,
    pub(super) receives: Table<Receives>,
    /// Indices of XRC SRQs in `receives`; the index in this table plus one is the low part of the SRQ's
    /// number.
    pub(super) xrc_srqs: Table<u32>,
    /// Number of shared receive queues among `receives`.
    pub(super) srq_count: u32,
    pub(super) number_base: u32,
    pub(super) qps: Vec<Option<Box<QpAttachment>>>,
}

/// The ordinals of the objects created so far, by kind.
#[derive(Default)]
pub(super) struct CreatedObjects {
    pub(super) qps: ObjectOrdinals,
    pub(super) cqs: ObjectOrdinals,
    /// The completion queues that fault plans count.
    pub(super) counted_cqs: ObjectOrdinals,
    /// Number of existing completion queues that the library created for itself.
    pub(super) uncounted_cqs: u32,
    pub(super) srqs: ObjectOrdinals,
}

/// The subscribers of events.
pub(crate) struct Listeners {
    pub(super) subscribers: Arc<Subscribers>,
    /// The topics that any of them listens to.
    pub(super) topics: Topics,
    /// The time that packets of one batch share.
    pub(crate) batch_time: BatchTime,
}

/// The port of a device, its counters and its events.
pub struct PortState {
    /// The presence of the device.
    pub(crate) presence: Arc<Presence>,
    /// The ports: addresses, partitions, state.
    pub ports: Ports,
    /// Multicast groups; attach queue pairs here.
    pub groups: MulticastGroups,
    /// The counters, shared with the ports.
    pub counters: Arc<Counters>,
    /// The counters of the ports, in order, on a device with two.
    pub(crate) port_counters: Vec<Arc<Counters>>,
    /// Asynchronous events, shared with the application.
    pub async_events: Arc<AsyncEventQueue>,
}

/// What completion queues share, and what the engine has to do because of completions.
#[derive(Default)]
pub(crate) struct CompletionState {
    /// The send queue entries that polling freed, and the number of armed queues.
    pub(crate) cq_common: CqCommon,
    /// The queue pairs that a completion queue's overrun failed. The engine takes them after every call into
    /// the protocol and moves them to ERR; their QP_FATAL is raised already. Never longer than the number of
    /// attached queue pairs.
    pub(crate) qp_failures: Vec<QpFailure>,
    /// The `vendor_err` numbers of failures.
    pub(crate) failures: Failures,
    /// True if a completion was made since the engine last cleared this.
    pub(crate) new_completions: bool,
    /// The completion that a polling thread gets past its queue.
    pub(crate) direct: DirectDelivery,
    /// True if a queue pair ever had a completion counter.
    pub(super) counts_completions: bool,
    /// True if completions of queue pairs that are destroyed or reset stay in the completion queues.
    pub(crate) completions_outlive_qp: bool,
    /// The receive queue of UC or UD messages that was short of requests last, and its completion queue.
    pub(super) short_receives: Option<(u32, u32)>,
}

/// The short way of messages through the device.
pub(crate) struct Lanes {
    /// True if messages may take it.
    pub(crate) are_open: bool,
    /// The packets that have taken it.
    pub(crate) packets: LanePackets,
}

/// The number of packets of a device that have taken lanes, the short way through it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LanePackets {
    /// Number of packets sent.
    pub sent: u64,
    /// Number of packets received.
    pub received: u64,
}

/// The number of objects of a device, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Number of protection domains.
    pub pds: usize,
    /// Number of memory regions and windows.
    pub regions_and_windows: usize,
    /// Number of address handles.
    pub ahs: usize,
    /// Number of completion queues.
    pub cqs: usize,
    /// Number of receive queues, including shared ones.
    pub receive_queues: usize,
    /// Number of XRC domains.
    pub xrcds: usize,
    /// Number of queue pairs.
    pub qps: usize,
    /// Number of multicast groups with members.
    pub groups: usize,
}

/// A protection domain: only the number of its users.
#[derive(Debug, Default)]
pub(super) struct ProtectionDomain {
    pub(super) users: u32,
}

#[derive(Debug)]
pub(super) struct AddressHandleEntry {
    pub(super) pd: Handle,
    /// The address that the handle leads to.
    pub(super) destination: IpAddr,
    /// The number of this handle, once that was asked for, and of all others of its domain that lead to the
    /// same address.
    pub(super) number: Option<u16>,
}

#[derive(Debug)]
pub(super) struct CqEntry {
    pub(super) cq: Arc<CompletionQueue>,
    pub(super) users: u32,
    /// Number of completion queues created before this one; `None`: fault plans do not count it.
    pub(super) ordinal: Option<u32>,
}

/// A queue pair as the device's tables see it.
#[derive(Debug)]
pub(super) struct QpAttachment {
    pub(super) context: QpContext,
    pub(super) cookie: u64,
    pub(super) srq: Option<Handle>,
    pub(super) xrcd: Option<Handle>,
    pub(super) account: Arc<EventAccount>,
    /// True if QP_FATAL was raised and the engine informed.
    pub(super) fatal: bool,
    /// The counts of rare events of the queue pair.
    pub(super) tally: QpTally,
    /// The counters of its port, on a device with two.
    pub(super) port_counters: Option<Arc<Counters>>,
    /// The completion counters in which its operations count.
    pub(super) counters: Vec<AttachedCounter>,
}

/// A completion counter, and the operations that count in it.
#[derive(Debug)]
pub(super) struct AttachedCounter {
    pub(super) counter: Arc<CompletionCounter>,
    pub(super) operations: u32,
}

/// A source of receive requests.
#[derive(Debug)]
pub(super) enum Receives {
    Own(RecvQueue),
    Shared(Box<Srq>),
}

impl Resources {
    /// Returns a device without objects whose events have no subscriber.
    ///
    /// # Errors
    /// `Os`: no file descriptor is available. `NoMemory`.
    pub fn new(limits: Limits) -> Result<Resources, ResourceError> {
        Resources::with_subscribers(limits, Arc::default())
    }

    /// Returns a device without objects.
    ///
    /// # Errors
    /// `Os`: no file descriptor is available. `NoMemory`.
    pub fn with_subscribers(limits: Limits, events: Arc<Subscribers>) -> Result<Resources, ResourceError> {
        let max_srq = limits.max_srq.min(0xffff);
        Ok(Resources {
            objects: ObjectTables {
                limits,
                memory: RegionTable::new(limits.max_mr),
                pds: Table::new("PD", limits.max_pd),
                xrc: XrcDomains::new(limits.max_xrcd),
                ahs: Table::new("AH", limits.max_ah),
                cqs: Table::new("CQ", limits.max_cq),
                receives: Table::new("receive queue", limits.max_qp.saturating_add(max_srq)),
                xrc_srqs: Table::new("XRC SRQ", max_srq),
                srq_count: 0,
                number_base: 0,
                qps: try_new_list(QP_INDICES, "queue pairs")?,
            },
            created: CreatedObjects::default(),
            port: PortState {
                presence: Arc::default(),
                ports: Ports::one(DevicePort::new(PkeyTable::new(&[], limits.pkey_table_len), Mtu::Mtu1024)),
                groups: MulticastGroups::new(limits.max_mcast_grp, limits.max_mcast_qp_attach),
                counters: Arc::new(Counters::new()),
                port_counters: Vec::new(),
                async_events: Arc::new(AsyncEventQueue::new(limits.max_async_events, Arc::clone(&events))?),
            },
            completions: CompletionState {
                cq_common: CqCommon { events: Arc::clone(&events), ..CqCommon::default() },
                ..CompletionState::default()
            },
            listeners: Listeners {
                topics: events.topics(),
                subscribers: events,
                batch_time: BatchTime::default(),
            },
            decisions: Decisions::default(),
            lanes: Lanes { are_open: true, packets: LanePackets::default() },
            ethernet: None,
            rendezvous: AllRendezvous::default(),
        })
    }

    /// Returns the subscribers of events.
    pub(crate) fn subscribers(&self) -> Arc<Subscribers> {
        Arc::clone(&self.listeners.subscribers)
    }

    /// Returns the number of queue pairs created so far.
    pub(crate) fn queue_pairs_made(&self) -> u32 {
        self.created.qps.count()
    }

    /// Returns the limits of the device.
    pub const fn limits(&self) -> &Limits {
        &self.objects.limits
    }

    /// Returns the number of present objects, by kind.
    pub fn counts(&self) -> ObjectCounts {
        ObjectCounts {
            pds: self.objects.pds.len(),
            regions_and_windows: self.objects.memory.len(),
            ahs: self.objects.ahs.len(),
            cqs: self.objects.cqs.len(),
            receive_queues: self.objects.receives.len(),
            xrcds: self.objects.xrc.open_count(),
            qps: self.objects.qps.iter().flatten().count(),
            groups: self.port.groups.iter().count(),
        }
    }

    /// Returns the summary of the objects for other processes, with the given numbers of queue pairs and
    /// identifiers.
    pub(crate) fn summary(&self, qps: u64, cm_ids: u64) -> ObjectSummary {
        let cqs = self.objects.cqs.len().saturating_sub(self.created.uncounted_cqs as usize);
        ObjectSummary([
            self.objects.pds.len() as u64,
            cqs as u64,
            qps,
            cm_ids,
            self.objects.memory.region_count() as u64,
        ])
    }

    /// Returns the table of regions and windows.
    pub const fn memory(&self) -> &RegionTable {
        &self.objects.memory
    }

    /// Returns the process index in the queue pair numbers.
    pub(crate) const fn process(&self) -> ProcessIndex {
        ProcessIndex::new((self.objects.number_base >> 16) as u8)
    }

    /// Sets the upper 8 bits of the XRC SRQ numbers assigned from now on: this process's index, as in its
    /// QPNs.
    pub const fn set_number_base(&mut self, base: u32) {
        self.objects.number_base = base & 0x00ff_0000;
    }

    /// Chooses the keys of the regions and windows created from now on. It may be called only before the
    /// first one.
    pub fn set_first_key(&mut self, seed: u64) {
        self.objects.memory.set_first_key(seed);
    }
}

impl std::fmt::Debug for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resources")
            .field("pds", &self.objects.pds.len())
            .field("regions_and_windows", &self.objects.memory.len())
            .field("cqs", &self.objects.cqs.len())
            .field("receive_queues", &self.objects.receives.len())
            .field("qps", &self.objects.qps.iter().flatten().count())
            .finish_non_exhaustive()
    }
}

/// Checks that `value` of an attribute lies in `least..=most`.
pub(super) fn check_size(what: &str, value: u32, least: u32, most: u32) -> Result<(), ResourceError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ResourceError::invalid(format!("{what} {value} is not within {least}..={most}")))
}
