//! The HCA as verbs see it: make objects, post, poll, wait.
//!
//! Every call that touches queue pairs or tables takes the engine's lock; polling a completion queue
//! that has something does not. The thread that holds the lock drives the engine: [`Hca::poll_cq`] on an
//! empty queue, [`Hca::post_send`], a thread in [`Hca::wait_cq_event`], or the background thread.

mod connection;
mod error;
mod ethernet;
mod memory;
mod objects;
mod owned_memory;
mod paths;
mod queue_pair;
mod target;
mod wait;

use std::fmt;
use std::sync::Arc;

use pumice_ground::outside;
use pumice_transport::cm::CmConfig;
use pumice_transport::qp::{Congestion, SrdOrder};
use pumice_transport::types::Mtu;
use pumice_transport::wire::ProcessIndex;

use crate::driver::{Background, Core};
use crate::engine::{Engine, QueuePairs};
use crate::resources::Resources;
use pumice_events::counters::Counters;
use pumice_events::inspect::{Cursor, Page, TellsWaits};
use pumice_events::recording::Recorder;
use pumice_events::{Subscriber, Subscribers};
use pumice_faults::CallAttendant;
use pumice_ground::clock::Clock;
use pumice_ground::error::ResourceError;
use pumice_ground::limits::Limits;
use pumice_ground::random::Random;
use pumice_objects::async_event::AsyncEventQueue;
use pumice_objects::memory::DeviceMemoryPool;
use pumice_ports::Port;
use pumice_ports::gsi::Gsi;
use pumice_profile::addresses::address_watch::{AddressWatch, GidSource};
use pumice_profile::addresses::gid_table::GidEntry;
use pumice_profile::addresses::guid::default_guid;
use pumice_profile::addresses::pkey_table::PkeyTable;
use pumice_profile::addresses::ports::{DevicePort, Ports};

pub use crate::decisions::Decisions;
pub use crate::gate::{CallEnd, CallGate, CallNumbers, CallWatch, Entered};
pub use crate::resources::{CqSetup, ObjectCounts, Presence, SrqSetup};
pub use error::HcaError;
pub use owned_memory::OwnedMemory;
pub use pumice_share::xrc::XrcdFile;
pub use queue_pair::QpInit;
pub use target::TargetRegistration;

/// How to open an [`Hca`].
pub struct HcaConfig {
    /// Device name, e.g. "pumice0".
    pub name: String,
    /// Addresses of the ports, in the order of their GID tables; not empty.
    pub gids: Vec<GidEntry>,
    /// Lists the addresses again when the host's change: the GID table follows, with GID_CHANGE, and PORT_ERR
    /// and PORT_ACTIVE when the last one goes and the first one comes. Not in virtual time, nor where the
    /// operating system does not tell of changes.
    pub gid_source: Option<GidSource>,
    /// Which process of the address this is; [`ProcessIndex::NONE`] if it shares the address with no other.
    pub process: ProcessIndex,
    /// Sizes of tables and queues.
    pub limits: Limits,
    /// Partition keys by index; the default one when empty.
    pub pkeys: Vec<u16>,
    /// The second port, if there is one: its partition keys. Its addresses are among `gids`.
    pub second_port: Option<Vec<u16>>,
    /// Where what happens at each port is counted, in order, if there are two.
    pub port_counters: Vec<Arc<Counters>>,
    /// What queue pairs do about congestion.
    pub congestion: Congestion,
    /// In which order messages of SRD leave.
    pub srd_order: SrdOrder,
    /// Longest path MTU; by default that of the first GID's interface.
    pub active_mtu: Option<Mtu>,
    /// Node GUID: stable, and the same in all processes of the adapter. By default it is made from the
    /// first address.
    pub ca_guid: u64,
    /// Decides where queue pair numbers, memory keys, communication ids and PSNs of messages begin. By
    /// default it comes from the operating system's random numbers, and is always the same in virtual time.
    pub seed: Option<u64>,
    /// What listens to events.
    pub subscribers: Vec<Box<dyn Subscriber>>,
}

impl fmt::Debug for HcaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HcaConfig")
            .field("name", &self.name)
            .field("gids", &self.gids)
            .finish_non_exhaustive()
    }
}

impl HcaConfig {
    /// A device with these addresses and default limits.
    pub fn new(name: &str, gids: Vec<GidEntry>) -> HcaConfig {
        HcaConfig {
            name: name.to_owned(),
            gid_source: None,
            process: ProcessIndex::NONE,
            limits: Limits::default(),
            pkeys: Vec::new(),
            second_port: None,
            port_counters: Vec::new(),
            congestion: Congestion::default(),
            srd_order: SrdOrder::Seed(1),
            active_mtu: None,
            ca_guid: default_guid(&gids),
            seed: None,
            subscribers: Vec::new(),
            gids,
        }
    }
}

impl HcaConfig {
    /// Takes out who listens.
    pub fn subscribe(&mut self, clock: &Clock) -> Subscribers {
        Subscribers::new(std::mem::take(&mut self.subscribers), clock.clone())
    }
}

/// A software HCA with one or two ports.
pub struct Hca {
    pub(crate) core: Arc<Core>,
    name: String,
    limits: Limits,
    congestion: Congestion,
    srd_order: SrdOrder,
    port_count: u8,
    process: ProcessIndex,
    device_memory: DeviceMemoryPool,
    background: Option<Background>,
    events: Arc<Subscribers>,
    calls: CallGate,
}

impl fmt::Debug for Hca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hca").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Hca {
    /// Opens a device on a port. With the operating system's clock a background thread keeps
    /// one-sided operations and timers going while the application is busy elsewhere; with virtual
    /// time a [`World`](crate::world::World) drives.
    ///
    /// # Errors
    /// No GIDs; congestion parameters out of bounds; the operating system has no descriptor or thread to
    /// give.
    pub fn open(mut config: HcaConfig, port: Box<dyn Port>, clock: Clock) -> Result<Hca, HcaError> {
        let events = Arc::new(config.subscribe(&clock));
        let calls = CallGate::open(events, &config.name, &clock);
        Hca::open_with(config, port, clock, calls, Decisions::default())
    }

    /// As [`Hca::open`], with the subscribers of the gate and the port, and who decides what the device does.
    pub fn open_with(
        config: HcaConfig,
        mut port: Box<dyn Port>,
        clock: Clock,
        calls: CallGate,
        decisions: Decisions,
    ) -> Result<Hca, HcaError> {
        config.congestion.check().map_err(ResourceError::invalid)?;
        let threaded = !clock.is_virtual();
        let events = Arc::clone(calls.events());
        let mut resources = Resources::with_subscribers(config.limits, Arc::clone(&events))?;
        resources.set_decisions(decisions);
        resources.set_number_base(config.process.number_base());
        resources.ports = ports(&config);
        let port_count = resources.ports.count();
        resources.port_counters = config.port_counters;
        for entry in config.gids {
            resources.ports.add(entry)?;
        }
        port.observe(&resources.counters);
        if let (true, Some(group)) = (threaded, port.group()) {
            group.clock_began(clock.origin_ns());
        }
        let mut starts = Random::new(config.seed.unwrap_or_else(|| default_seed(threaded)));
        resources.set_first_key(starts.next_u64());
        let mut gsi =
            Gsi::new(CmConfig::new(config.ca_guid), config.process, starts.next_u64(), Arc::clone(&events));
        if resources.ports.are_several() {
            gsi.set_own_addresses(resources.ports.entries().map(|(_, entry)| entry.gid).collect());
        }
        let queue_pairs = QueuePairs::new(starts.next_u64());
        let mut engine = Engine::new(resources, queue_pairs, port, gsi, config.name.clone());
        engine.publish_conditions(clock.now_ns());
        let core = Arc::new(Core::new(engine, clock)?);
        let background = if threaded {
            let watch = config.gid_source.and_then(|source| AddressWatch::new(source).ok());
            Some(Background::start(Arc::clone(&core), watch)?)
        } else {
            None
        };
        Ok(Hca {
            core,
            name: config.name,
            limits: config.limits,
            congestion: config.congestion,
            srd_order: config.srd_order,
            port_count,
            process: config.process,
            device_memory: DeviceMemoryPool::new(config.limits.max_dm_size),
            background,
            events,
            calls,
        })
    }

    /// Whether this process opened the device, and is not a fork of the one that did, whose it is.
    #[inline]
    pub fn is_own(&self) -> bool {
        self.core.is_own()
    }

    /// Device name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sizes of tables and queues.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Largest path MTU, of all ports.
    pub fn active_mtu(&self) -> Mtu {
        self.core.lock().resources.ports.longest_mtu()
    }

    /// Largest path MTU of a port; of all ports, if it has none with that number.
    pub fn active_mtu_of(&self, port_num: u8) -> Mtu {
        let engine = self.core.lock();
        let ports = &engine.resources.ports;
        ports.get(port_num).map_or_else(|| ports.longest_mtu(), DevicePort::active_mtu)
    }

    /// Ports, which are numbered from 1.
    pub fn port_count(&self) -> u8 {
        self.port_count
    }

    /// The clock of timers and time stamps.
    pub fn clock(&self) -> &Clock {
        &self.core.clock
    }

    /// Counters of traffic, drops by reason, retries.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.core.counters
    }

    /// A page of the objects that there are now, beginning at `cursor`, as other processes see them.
    pub fn inspect(&self, cursor: Cursor) -> Page {
        self.core.lock().inspect(cursor, false)
    }

    /// From now on `tells` says what threads wait for when another process asks. It is called under the
    /// engine's lock.
    pub fn tells_waits(&self, tells: TellsWaits) {
        self.core.lock().set_waits(tells);
    }

    /// From now on this records what happens while another process wants it, as well as those that were added
    /// before. It is called under the engine's lock.
    pub fn add_recorder(&self, recorder: Box<dyn Recorder>) {
        self.core.lock().add_recorder(recorder);
    }

    /// Asynchronous events: wait for its descriptor, take with `try_event`, acknowledge.
    pub fn async_events(&self) -> &Arc<AsyncEventQueue> {
        &self.core.async_events
    }

    /// Addresses of all ports, each with its index in the GID table of its port.
    pub fn gids(&self) -> Vec<(u32, GidEntry)> {
        self.core.lock().resources.ports.entries().map(|(index, entry)| (index, entry.clone())).collect()
    }

    /// The address at an index of the GID table of a port.
    pub fn gid(&self, port_num: u8, index: u32) -> Option<GidEntry> {
        self.core.lock().resources.ports.get(port_num)?.gids.get(index).cloned()
    }

    /// The port as it is now: addresses, partition keys, state. None: the device has no such port.
    pub fn port(&self, port_num: u8) -> Option<DevicePort> {
        self.core.lock().resources.ports.get(port_num).cloned()
    }

    /// When the device is back, if a fault plan has pulled it out, in ns of its clock; `u64::MAX`: never.
    /// This one is dead in any case: another one can be opened then. Takes no lock.
    pub fn back_ns(&self) -> Option<u64> {
        self.core.presence.back_ns()
    }

    /// Whether the device is there.
    pub fn presence(&self) -> &Arc<Presence> {
        &self.core.presence
    }

    /// How many objects there are: after all that were made are destroyed, as many as before.
    pub fn object_counts(&self) -> ObjectCounts {
        self.core.lock().resources.counts()
    }

    /// Other processes are told how many objects there are now.
    pub(super) fn note_objects(&self) {
        let mut engine = self.core.lock();
        let cm_ids = engine.gsi.cm.connection_count() + engine.gsi.cm.listener_count();
        let summary = engine.resources.summary(u64::from(engine.queue_pairs.count()), cm_ids as u64);
        if let Some(group) = engine.port.group() {
            group.publish_objects(summary);
        }
    }

    /// The same after a call that may have made or destroyed some.
    pub(super) fn noted<T, E>(&self, outcome: Result<T, E>) -> Result<T, E> {
        if outcome.is_ok() {
            self.note_objects();
        }
        outcome
    }

    /// Queue pairs that exist.
    pub fn queue_pair_count(&self) -> u32 {
        self.core.lock().queue_pairs.count()
    }

    /// Who listens to what happens to the device.
    pub fn events(&self) -> &Arc<Subscribers> {
        &self.events
    }

    /// Who wants to be told of calls that returned, to let happen here what waits for them.
    pub fn call_attendant(&self) -> CallAttendant {
        let core = Arc::downgrade(&self.core);
        Arc::new(move |key| {
            let Some(core) = core.upgrade() else { return false };
            let mut engine = core.lock();
            engine.called(key);
            core.note_deadline(&engine, core.clock.now_ns());
            true
        })
    }

    /// The gate at the entry of calls, for those who ask about calls here.
    pub fn calls(&self) -> &CallGate {
        &self.calls
    }

    /// Drives the engine once: receives, runs timers, sends. True if there was anything to do. For
    /// virtual time; elsewhere polling and the background thread do it.
    pub fn drive(&self) -> bool {
        self.core.drive()
    }

    /// Drives the engine once before something is destroyed: what is owed to peers leaves while it can be
    /// made. Memory that is registered, and unmapped already, is found to be so.
    pub fn drive_out(&self) {
        self.core.drive_out();
    }

    /// Before the process exits: what waits to be stored is stored, unless another thread drives.
    /// What is owed to peers then leaves with the next polls.
    pub fn end_schedule(&self) {
        if let Some(mut engine) = self.core.try_lock() {
            engine.resources.drain_stores();
        }
    }

    /// Before the process exits, and after [`end_schedule`](Hca::end_schedule) and a poll: packets that a
    /// fault plan delays leave, unless another thread drives. They are in the network, so they outlive
    /// their sender.
    pub fn release_packets(&self) {
        if let Some(mut engine) = self.core.try_lock() {
            engine.port.release(self.core.clock.now_ns());
        }
    }

    /// Before the process exits, at the end: what would stay in memory behind the last process is removed,
    /// unless another thread drives. Many programs exit without closing their device.
    pub fn leave_nothing(&self) {
        if let Some(mut engine) = self.core.try_lock() {
            for (_, domain) in engine.resources.xrc.all_shared() {
                domain.remove_if_last();
            }
            if let Some(group) = engine.port.group() {
                group.leave_nothing();
            }
        }
    }

    /// When the engine wants to be driven though nothing arrives, in ns of its clock.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.core.lock().deadline_ns()
    }
}

/// The ports of a device, without their addresses.
fn ports(config: &HcaConfig) -> Ports {
    let port = |port_num: u8, pkeys: &[u16]| {
        let first = config.gids.iter().find(|entry| entry.port_num == port_num);
        let mtu = config.active_mtu.or(first.map(|entry| entry.mtu)).unwrap_or(Mtu::Mtu1024);
        let mut port = DevicePort::new(PkeyTable::new(pkeys, config.limits.pkey_table_len), mtu);
        port.choose_mtu(config.active_mtu);
        port
    };
    let mut ports = Ports::one(port(1, &config.pkeys));
    if let Some(pkeys) = &config.second_port {
        ports.push(port(2, pkeys));
    }
    ports
}

/// A host that does not see a connection's packets must not be able to guess its numbers. In virtual time the
/// seed is constant, so that runs can be repeated.
fn default_seed(threaded: bool) -> u64 {
    // The standard library draws the keys of its hash from the operating system's random numbers.
    if threaded { outside::random() } else { 0 }
}

impl Drop for Hca {
    fn drop(&mut self) {
        if !self.is_own() {
            // A forked child: the threads are not here to be waited for, and what is buffered is the parent's
            // to write. The copy stays.
            std::mem::forget((Arc::clone(&self.core), Arc::clone(&self.events), self.background.take()));
            return;
        }
        if let Some(background) = self.background.take() {
            background.stop();
        }
        self.close_connections(self.core.lock());
        self.events.finish();
    }
}
