//! The tables of a device's objects.

use std::net::IpAddr;
use std::sync::Arc;

use pumice_events::counters::Counters;
use pumice_events::{Subscribers, Topics};
use pumice_ground::error::ResourceError;
use pumice_ground::limits::Limits;
use pumice_ground::object_summary::ObjectSummary;
use pumice_ground::ordinal::ObjectOrdinals;
use pumice_ground::table::{Handle, Table};
use pumice_objects::async_event::AsyncEventQueue;
use pumice_objects::completion_queue::{CompletionQueue, CqCommon};
use pumice_objects::event_account::EventAccount;
use pumice_objects::memory::RegionTable;
use pumice_objects::recv_queue::RecvQueue;
use pumice_objects::srq::Srq;
use pumice_ports::ethernet::Ethernet;
use pumice_profile::addresses::multicast::MulticastGroups;
use pumice_profile::addresses::pkey_table::PkeyTable;
use pumice_profile::addresses::ports::{DevicePort, Ports};
use pumice_share::xrc::XrcDomains;
use pumice_transport::host::QpContext;
use pumice_transport::types::{Cause, Mtu};
use pumice_transport::wire::{ProcessIndex, Qpn};

use super::moment::Moment;
use super::presence::Presence;
use super::tally::Tally;
use crate::decisions::Decisions;

/// In a [`QpContext`]: there is no such object.
pub const NO_OBJECT: u32 = u32::MAX;

/// A queue pair that must go to ERR because of something outside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpFailure {
    /// The queue pair.
    pub qpn: Qpn,
    /// Why.
    pub cause: Cause,
}

/// The objects of a device.
pub struct Resources {
    pub(super) limits: Limits,
    pub(super) memory: RegionTable,
    pub(super) pds: Table<ProtectionDomain>,
    pub(crate) xrc: XrcDomains,
    pub(super) ahs: Table<AddressHandle>,
    pub(super) cqs: Table<CqEntry>,
    pub(super) receives: Table<Receives>,
    /// Places of XRC SRQs in `receives`; the index plus one is the low part of the SRQ's number.
    pub(super) xrc_srqs: Table<u32>,
    /// Shared receive queues among `receives`.
    pub(super) srq_count: u32,
    pub(super) number_base: u32,
    pub(super) qps: Vec<Option<Box<Attachment>>>,
    /// The subscribers of events, and the topics that any of them listens to.
    pub(super) events: Arc<Subscribers>,
    pub(super) topics: Topics,
    /// The time of packets.
    pub(crate) moment: Moment,
    /// Queue pairs made so far.
    pub(super) qps_made: ObjectOrdinals,
    /// Completion queues made so far.
    pub(super) cqs_made: ObjectOrdinals,
    /// Completion queues that plans count, and shared receive queues, made so far.
    pub(super) cqs_counted: ObjectOrdinals,
    /// Those of the library's own that are there.
    pub(super) cqs_uncounted: u32,
    pub(super) srqs_made: ObjectOrdinals,
    /// Whether the device is there.
    pub(crate) presence: Arc<Presence>,
    /// The ports: addresses, partitions, state.
    pub ports: Ports,
    /// Multicast groups; attach queue pairs here.
    pub groups: MulticastGroups,
    /// Counters, shared with the ports.
    pub counters: Arc<Counters>,
    /// The counters of the ports, in order, on a device with two.
    pub(crate) port_counters: Vec<Arc<Counters>>,
    /// Asynchronous events, shared with the application.
    pub async_events: Arc<AsyncEventQueue>,
    /// Send queue entries that polling freed, and how many queues are armed: shared with the completion
    /// queues.
    pub(crate) cq_common: CqCommon,
    /// Queue pairs that a completion queue's overrun ruined. The engine takes them after every call
    /// into the protocol and moves them to ERR; their QP_FATAL is raised already. Never longer than
    /// the number of attached queue pairs.
    pub qp_failures: Vec<QpFailure>,
    /// Who decides about packets, work and stores, and what waits because of that.
    pub(crate) decisions: Decisions,
    /// A completion was made since the engine last cleared this.
    pub new_completions: bool,
    /// What raw packet queue pairs send and receive by, if there are any.
    pub(crate) ethernet: Option<Box<Ethernet>>,
    /// The receive queue of UC or UD messages that was short of requests last, and the completion queue that
    /// tells of it.
    pub(super) short_receives: Option<(u32, u32)>,
}

/// How many objects a device has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Protection domains.
    pub pds: usize,
    /// Memory regions and windows.
    pub regions_and_windows: usize,
    /// Address handles.
    pub ahs: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Receive queues, shared ones included.
    pub receive_queues: usize,
    /// XRC domains.
    pub xrcds: usize,
    /// Queue pairs.
    pub qps: usize,
    /// Multicast groups with members.
    pub groups: usize,
}

/// A protection domain: nothing but its users.
#[derive(Debug, Default)]
pub(super) struct ProtectionDomain {
    pub(super) users: u32,
}

#[derive(Debug)]
pub(super) struct AddressHandle {
    pub(super) pd: Handle,
    /// Where it leads to.
    pub(super) destination: IpAddr,
    /// What the device calls it, once that was asked for, and all of its domain that lead there.
    pub(super) number: Option<u16>,
}

#[derive(Debug)]
pub(super) struct CqEntry {
    pub(super) cq: Arc<CompletionQueue>,
    pub(super) users: u32,
    /// How many were made before; `None`: plans do not count it.
    pub(super) ordinal: Option<u32>,
}

/// A queue pair as the device's tables see it.
#[derive(Debug)]
pub(super) struct Attachment {
    pub(super) context: QpContext,
    pub(super) cookie: u64,
    pub(super) srq: Option<Handle>,
    pub(super) xrcd: Option<Handle>,
    pub(super) account: Arc<EventAccount>,
    /// QP_FATAL was raised and the engine told.
    pub(super) fatal: bool,
    /// What happened to it that does not happen to every packet.
    pub(super) tally: Tally,
    /// The counters of its port, on a device with two.
    pub(super) port_counters: Option<Arc<Counters>>,
}

/// Where receive requests come from.
#[derive(Debug)]
pub(super) enum Receives {
    Own(RecvQueue),
    Shared(Box<Srq>),
}

impl Resources {
    /// A device without objects whose events have no listener.
    ///
    /// # Errors
    /// `Os`: no file descriptor is to be had.
    pub fn new(limits: Limits) -> Result<Resources, ResourceError> {
        Resources::with_subscribers(limits, Arc::default())
    }

    /// A device without objects.
    ///
    /// # Errors
    /// `Os`: no file descriptor is to be had.
    pub fn with_subscribers(limits: Limits, events: Arc<Subscribers>) -> Result<Resources, ResourceError> {
        let max_srq = limits.max_srq.min(0xffff);
        Ok(Resources {
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
            qps: Vec::new(),
            topics: events.topics(),
            moment: Moment::default(),
            qps_made: ObjectOrdinals::default(),
            cqs_made: ObjectOrdinals::default(),
            cqs_counted: ObjectOrdinals::default(),
            cqs_uncounted: 0,
            srqs_made: ObjectOrdinals::default(),
            presence: Arc::default(),
            ports: Ports::one(DevicePort::new(PkeyTable::new(&[], limits.pkey_table_len), Mtu::Mtu1024)),
            groups: MulticastGroups::new(limits.max_mcast_grp, limits.max_mcast_qp_attach),
            counters: Arc::new(Counters::new()),
            port_counters: Vec::new(),
            async_events: Arc::new(AsyncEventQueue::new(limits.max_async_events, Arc::clone(&events))?),
            cq_common: CqCommon { events: Arc::clone(&events), ..CqCommon::default() },
            events,
            qp_failures: Vec::new(),
            decisions: Decisions::default(),
            new_completions: false,
            ethernet: None,
            short_receives: None,
        })
    }

    /// Who listens to events.
    pub(crate) fn subscribers(&self) -> Arc<Subscribers> {
        Arc::clone(&self.events)
    }

    /// Queue pairs made so far.
    pub(crate) fn queue_pairs_made(&self) -> u32 {
        self.qps_made.count()
    }

    /// What the device is made for.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How many objects there are now.
    pub fn counts(&self) -> ObjectCounts {
        ObjectCounts {
            pds: self.pds.len(),
            regions_and_windows: self.memory.len(),
            ahs: self.ahs.len(),
            cqs: self.cqs.len(),
            receive_queues: self.receives.len(),
            xrcds: self.xrc.open_count(),
            qps: self.qps.iter().flatten().count(),
            groups: self.groups.iter().count(),
        }
    }

    /// What other processes are told of these objects, and of as many queue pairs and identifiers.
    pub(crate) fn summary(&self, qps: u64, cm_ids: u64) -> ObjectSummary {
        let cqs = self.cqs.len().saturating_sub(self.cqs_uncounted as usize);
        ObjectSummary([self.pds.len() as u64, cqs as u64, qps, cm_ids, self.memory.region_count() as u64])
    }

    /// Regions and windows, to look at.
    pub const fn memory(&self) -> &RegionTable {
        &self.memory
    }

    /// The process whose numbers queue pairs have.
    pub(crate) const fn process(&self) -> ProcessIndex {
        ProcessIndex::new((self.number_base >> 16) as u8)
    }

    /// Sets the upper 8 bits of the XRC SRQ numbers made from now on: this process's index, as
    /// in its QPNs.
    pub const fn set_number_base(&mut self, base: u32) {
        self.number_base = base & 0x00ff_0000;
    }

    /// Chooses the keys of the regions and windows made from now on. Only before the first one.
    pub fn set_first_key(&mut self, seed: u64) {
        self.memory.set_first_key(seed);
    }
}

impl std::fmt::Debug for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resources")
            .field("pds", &self.pds.len())
            .field("regions_and_windows", &self.memory.len())
            .field("cqs", &self.cqs.len())
            .field("receive_queues", &self.receives.len())
            .field("qps", &self.qps.iter().flatten().count())
            .finish_non_exhaustive()
    }
}

/// `value` of an attribute must lie in `least..=most`.
pub(super) fn check_size(what: &str, value: u32, least: u32, most: u32) -> Result<(), ResourceError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ResourceError::invalid(format!("{what} {value} is not within {least}..={most}")))
}
