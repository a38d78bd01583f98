//! All objects of a device, and who uses whom.
//!
//! The engine owns this behind its one lock. What an application touches without that lock (CQs,
//! channels, asynchronous events, counters) is handed out as `Arc`s with small locks of their own.
//!
//! **Invariant**: an object that is used cannot be destroyed (EBUSY), so a queue pair's context may
//! name its objects by bare index.

mod host_impl;
mod memory;
mod qp_setup;
mod queue_pairs;
mod queues;
mod trust;
mod users;
mod xrc;

use std::sync::Arc;

use pumice_transport::path::Path;
use pumice_transport::types::{AddressVector, AsyncEventType, Cause, Gid};
use pumice_transport::wire::Qpn;

use crate::addresses::gid_table::{GidEntry, GidTable};
use crate::addresses::multicast::MulticastGroups;
use crate::addresses::pkey_table::PkeyTable;
use crate::counters::Counters;
use crate::event::{Subscribers, Topics};
use crate::ground::error::ResourceError;
use crate::ground::limits::Limits;
use crate::ground::table::{Handle, Table};
use crate::memory::RegionTable;
use crate::objects::address_handle;
use crate::objects::async_event::{AsyncElement, AsyncEventQueue};
use crate::objects::completion_queue::{CompletionQueue, CqCommon};
use crate::objects::recv_queue::RecvQueue;
use crate::objects::srq::Srq;
use crate::xrc::XrcDomains;

pub use qp_setup::QpSetup;
pub use queue_pairs::QpAttached;
pub use queues::{CqSetup, SrqSetup};
pub(crate) use trust::Trust;
use users::check_unused;

/// In a [`QpContext`]: there is no such object.
pub const NO_OBJECT: u32 = u32::MAX;

/// A queue pair that must go to ERR because of something outside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpFault {
    /// The queue pair.
    pub qpn: Qpn,
    /// Why.
    pub cause: Cause,
}

/// The objects of a device.
pub struct Resources {
    limits: Limits,
    memory: RegionTable,
    trust: Trust,
    pds: Table<ProtectionDomain>,
    pub(crate) xrc: XrcDomains,
    ahs: Table<AddressHandle>,
    cqs: Table<CqSlot>,
    receives: Table<Receives>,
    /// Places of XRC SRQs in `receives`; the index plus one is the low part of the SRQ's number.
    xrc_srqs: Table<u32>,
    /// Shared receive queues among `receives`.
    srq_count: u32,
    number_base: u32,
    qps: Vec<Option<Box<queue_pairs::Attachment>>>,
    /// Who listens to events, and the topics that anybody listens to.
    events: Arc<Subscribers>,
    topics: Topics,
    /// Queue pairs made so far.
    qps_made: u32,
    /// Addresses of the port.
    pub gids: GidTable,
    /// Partitions of the port.
    pub pkeys: PkeyTable,
    /// Multicast groups; attach queue pairs here.
    pub groups: MulticastGroups,
    /// Counters, shared with the ports.
    pub counters: Arc<Counters>,
    /// Asynchronous events, shared with the application.
    pub async_events: Arc<AsyncEventQueue>,
    /// Send-queue slots that polling freed, and how many queues are armed: shared with the completion queues.
    pub(crate) cq_common: CqCommon,
    /// Queue pairs that a completion queue's overrun ruined. The engine takes them after every call
    /// into the protocol and moves them to ERR; their QP_FATAL is raised already. Never longer than
    /// the number of attached queue pairs.
    pub qp_faults: Vec<QpFault>,
    /// A completion was made since the engine last cleared this.
    pub new_completions: bool,
    /// The receive queue of UC or UD messages that was short of requests last, and the completion queue that
    /// tells of it.
    short_receives: Option<(u32, u32)>,
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
struct ProtectionDomain {
    users: u32,
}

#[derive(Debug)]
struct AddressHandle {
    pd: Handle,
}

#[derive(Debug)]
struct CqSlot {
    cq: Arc<CompletionQueue>,
    users: u32,
}

/// Where receive requests come from.
#[derive(Debug)]
enum Receives {
    Own(RecvQueue),
    Shared(Box<Srq>),
}

impl Resources {
    /// A device without objects whose events nobody listens to.
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
            trust: Trust::Connections,
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
            qps_made: 0,
            gids: GidTable::new(),
            pkeys: PkeyTable::new(&[], limits.pkey_table_len),
            groups: MulticastGroups::new(limits.max_mcast_grp, limits.max_mcast_qp_attach),
            counters: Arc::new(Counters::new()),
            async_events: Arc::new(AsyncEventQueue::new(limits.max_async_events, Arc::clone(&events))?),
            cq_common: CqCommon { events: Arc::clone(&events), ..CqCommon::default() },
            events,
            qp_faults: Vec::new(),
            new_completions: false,
            short_receives: None,
        })
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

    /// Regions and windows, to look at.
    pub const fn memory(&self) -> &RegionTable {
        &self.memory
    }

    /// Sets the upper 8 bits of the XRC SRQ numbers made from now on: this process's slot number, as
    /// in its QPNs.
    pub const fn set_number_base(&mut self, base: u32) {
        self.number_base = base & 0x00ff_0000;
    }

    /// Chooses the keys of the regions and windows made from now on. Only before the first one.
    pub fn set_first_key(&mut self, seed: u64) {
        self.memory.set_first_key(seed);
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// `NoMemory`: the table is full.
    pub fn alloc_pd(&mut self) -> Result<Handle, ResourceError> {
        self.pds.insert(ProtectionDomain::default())
    }

    /// Destroys a protection domain.
    ///
    /// # Errors
    /// `Busy`: something belongs to it. `Invalid`: a stale handle.
    pub fn dealloc_pd(&mut self, pd: Handle) -> Result<(), ResourceError> {
        let users = self.pds.require(pd)?.users;
        let name = format!("protection domain {}", pd.index);
        check_unused(&name, users, || self.users_of_pd(pd.index))?;
        self.pds.remove(pd);
        Ok(())
    }

    /// Makes an address handle: its name here, and the path for the datagrams that use it. Keep
    /// `pd` with it: a UD queue pair only sends along address handles of its own domain.
    ///
    /// # Errors
    /// As [`address_handle::resolve`]; a stale PD. `NoMemory`: the table is full.
    pub fn create_ah(
        &mut self,
        pd: Handle,
        vector: &AddressVector,
    ) -> Result<(Handle, Arc<Path>), ResourceError> {
        self.pds.require(pd)?;
        let path = address_handle::resolve(vector, &self.gids)?;
        let handle = self.ahs.insert(AddressHandle { pd })?;
        self.use_pd(pd);
        Ok((handle, Arc::new(path)))
    }

    /// Destroys an address handle; posted datagrams keep their path.
    ///
    /// # Errors
    /// `Invalid`: a stale handle.
    pub fn destroy_ah(&mut self, ah: Handle) -> Result<(), ResourceError> {
        let pd = self.ahs.require(ah)?.pd;
        self.ahs.remove(ah);
        self.release_pd(pd.index);
        Ok(())
    }

    /// Makes the addresses of the port these, and says so if anything changed.
    pub fn set_gids(&mut self, entries: Vec<GidEntry>) -> bool {
        let had_any = self.gids.iter().next().is_some();
        let gone: Vec<Gid> = self
            .gids
            .iter()
            .map(|(_, known)| known.gid)
            .filter(|gid| !entries.iter().any(|entry| entry.gid == *gid))
            .collect();
        let mut changed = !gone.is_empty();
        for gid in gone {
            self.gids.remove(gid);
        }
        for entry in entries {
            // What does not fit in the table has no place until another address goes.
            changed |= self.gids.add(entry).unwrap_or(false);
        }
        if changed {
            self.raise_gid_change(had_any);
        }
        changed
    }

    /// GID_CHANGE; PORT_ERR before it if the last address has gone, PORT_ACTIVE after it if there was none.
    pub(crate) fn raise_gid_change(&self, had_any: bool) {
        let raise = |event| self.async_events.raise(event, AsyncElement::Port(1));
        let has_any = self.gids.iter().next().is_some();
        if had_any && !has_any {
            raise(AsyncEventType::PortErr);
        }
        raise(AsyncEventType::GidChange);
        if !had_any && has_any {
            raise(AsyncEventType::PortActive);
        }
    }

    fn use_pd(&mut self, pd: Handle) {
        if let Some(protection_domain) = self.pds.get_mut(pd) {
            protection_domain.users += 1;
        }
    }

    fn release_pd(&mut self, pd: u32) {
        if let Some(protection_domain) = self.pds.at_mut(pd) {
            protection_domain.users = protection_domain.users.saturating_sub(1);
        }
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
fn check_size(what: &str, value: u32, least: u32, most: u32) -> Result<(), ResourceError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ResourceError::invalid(format!("{what} {value} is not within {least}..={most}")))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use pumice_transport::types::{Access, Mtu};

    use super::*;
    use crate::memory::{RegionChange, WindowType};

    #[test]
    fn a_new_list_of_addresses_keeps_places_and_is_told_once() {
        let mut resources = Resources::new(Limits::default()).unwrap();
        let entry = |ip: &str| GidEntry::new(ip.parse().unwrap(), "eth0", 2, Mtu::Mtu1024);
        let events = |resources: &Resources| -> Vec<AsyncEventType> {
            std::iter::from_fn(|| resources.async_events.try_event().map(|event| event.event)).collect()
        };
        use AsyncEventType::{GidChange, PortActive, PortErr};
        let three = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(entry);
        assert!(resources.set_gids(three.to_vec()));
        assert_eq!(events(&resources), [GidChange, PortActive]);
        assert!(
            !resources.set_gids(three.iter().rev().cloned().collect()),
            "the order of the list means nothing"
        );
        assert_eq!(events(&resources), []);
        let next = [three[2].clone(), entry("10.0.0.4"), entry("10.0.0.5")];
        assert!(resources.set_gids(next.to_vec()));
        assert_eq!(events(&resources), [GidChange], "two gone and two new: one event");
        let places: Vec<_> =
            resources.gids.iter().map(|(index, entry)| (index, entry.ip.to_string())).collect();
        let expected = [(0, "10.0.0.4"), (1, "10.0.0.5"), (2, "10.0.0.3")];
        assert_eq!(places, expected.map(|(index, ip)| (index, ip.to_owned())));
        assert!(resources.set_gids(Vec::new()));
        assert_eq!(events(&resources), [PortErr, GidChange]);
    }

    #[test]
    fn a_pd_counts_its_users() {
        let mut resources = Resources::new(Limits::default()).unwrap();
        let ip: IpAddr = "10.0.0.1".parse().unwrap();
        resources.gids.add(GidEntry::new(ip, "lo", 1, Mtu::Mtu4096)).unwrap();
        let (pd, other) = (resources.alloc_pd().unwrap(), resources.alloc_pd().unwrap());
        let vector =
            AddressVector { is_global: true, dgid: Gid::from(ip), port_num: 1, ..AddressVector::default() };
        // SAFETY: the range is never accessed.
        let region = unsafe { resources.register_region(pd, 0x1000, 8, 0x1000, Access::empty()) }.unwrap();
        let window = resources.alloc_window(pd, WindowType::Type1).unwrap();
        let (ah, path) = resources.create_ah(pd, &vector).unwrap();
        assert_eq!(path.flow.destination, ip);

        let busy = |resources: &mut Resources, pd| resources.dealloc_pd(pd).map_err(|error| error.errno());
        assert_eq!(busy(&mut resources, pd), Err(libc::EBUSY));
        // SAFETY: the range is never accessed.
        unsafe { resources.rereg_region(region.handle, Some(other), RegionChange::default()) }.unwrap();
        assert_eq!(busy(&mut resources, other), Err(libc::EBUSY));
        resources.deregister_region(region.handle).unwrap();
        assert_eq!(busy(&mut resources, other), Ok(()));
        resources.dealloc_window(window.handle).unwrap();
        assert_eq!(busy(&mut resources, pd), Err(libc::EBUSY));
        resources.destroy_ah(ah).unwrap();
        assert_eq!(resources.destroy_ah(ah).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(busy(&mut resources, pd), Ok(()));
        assert_eq!(busy(&mut resources, pd), Err(libc::EINVAL));
        assert_eq!(resources.create_ah(pd, &vector).unwrap_err().errno(), libc::EINVAL);
    }
}
