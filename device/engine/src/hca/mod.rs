//! The HCA as verbs see it: create objects, post, poll, wait.
//!
//! Every call that touches queue pairs or tables takes the engine's lock; polling a non-empty completion
//! queue does not. The thread that holds the lock drives the engine: [`Hca::poll_cq`] on an empty queue,
//! [`Hca::post_send`], a thread in [`Hca::wait_cq_event`], or the background thread.

mod connection;
mod counting;
mod error;
mod ethernet;
mod memory;
mod modify;
mod mrc;
mod mrc_connect;
mod mrc_control;
mod mrc_twin;
mod objects;
mod owned_memory;
mod paths;
mod posting;
mod queue_pair;
mod target;
mod wait;

use std::fmt;
use std::sync::Arc;

use pumice_model::profile::{Failures, Provider};
use pumice_platform::outside;
use pumice_transport::cm::CmConfig;
use pumice_transport::path::ROCE_PORT;
use pumice_transport::qp::{AdaptiveTimeout, Congestion, SrdOrder};
use pumice_transport::types::Mtu;
use pumice_transport::wire::ProcessIndex;

use crate::driver::{Background, Core};
use crate::engine::{Engine, QueuePairs};
use crate::resources::Resources;
use pumice_fabric::gsi::Gsi;
use pumice_faults::CallHook;
use pumice_memory::DeviceMemoryPool;
use pumice_model::addresses::address_handle::{AddressWatch, GidSource};
use pumice_model::addresses::gid_table::{GidEntry, default_guid};
use pumice_model::addresses::{DevicePort, PkeyTable, Ports};
use pumice_model::counters::Counters;
use pumice_model::event::async_event::AsyncEventQueue;
use pumice_model::event::{Subscriber, Subscribers};
use pumice_model::inspect::{InspectCursor, InspectPage, WaitReporter};
use pumice_model::port::Port;
use pumice_model::profile::QpnReuse;
use pumice_model::recording::Recorder;
use pumice_platform::clock::{Clock, Random};
use pumice_platform::error::ResourceError;
use pumice_platform::limits::Limits;

pub use crate::decisions::Decisions;
pub use crate::engine::{
    CcChange, CcProfile, ControlError, EvChange, EvMode, EvName, EvRecord, EvSlot, FormatChange, FormatMode,
    FormatProfile, MOST_EVS, MOST_PROFILES, MrcAttributes, MrcChosen, MrcEvEvent, ProfileStage,
};
pub use crate::gate::{CallEnd, CallGate, CallNumbers, CallWatch, EnteredCall};
pub use crate::resources::{CqSetup, LanePackets, ObjectCounts, Presence, SrqSetup};
pub use error::HcaError;
pub use mrc_control::EndpointRequest;
pub use owned_memory::OwnedMemory;
pub use pumice_fabric::xrc::XrcdFile;
pub use queue_pair::QpInit;
pub use target::TargetRegistration;

/// The options for opening an [`Hca`].
pub struct HcaConfig {
    /// Device name, e.g. "pumice0".
    pub name: String,
    /// Addresses of the ports, in the order of their GID tables; not empty.
    pub gids: Vec<GidEntry>,
    /// A function that lists the addresses again when the host's change: the GID table follows, with
    /// GID_CHANGE, and PORT_ERR and PORT_ACTIVE when the last one goes and the first one comes. It is not
    /// used in virtual time, nor where the operating system does not report changes.
    pub gid_source: Option<GidSource>,
    /// The index of this process among those of the address; [`ProcessIndex::NONE`] if it shares the address
    /// with no other.
    pub process: ProcessIndex,
    /// Sizes of tables and queues.
    pub limits: Limits,
    /// Partition keys by index; the default one when empty.
    pub pkeys: Vec<u16>,
    /// The partition keys of the second port, if there is one. Its addresses are among `gids`.
    pub second_port: Option<Vec<u16>>,
    /// The counters of each port, in order, if there are two.
    pub port_counters: Vec<Arc<Counters>>,
    /// The settings of congestion control.
    pub congestion: Congestion,
    /// The adaptive timeout of requesters; `None`: the attribute `timeout` decides.
    pub adaptive_timeout: Option<AdaptiveTimeout>,
    /// The `vendor_err` numbers of failures.
    pub failures: Failures,
    /// The order in which messages of SRD leave.
    pub srd_order: SrdOrder,
    /// True if messages that need no decision take the short way through the device.
    pub lanes: bool,
    /// True if MRC carries WRITEs of RC queue pairs.
    pub carries_by_mrc: bool,
    /// Number of planes between which the paths of MRC are divided.
    pub planes: u8,
    /// UDP port that packets of MRC are sent to.
    pub mrc_udp_port: u16,
    /// True if completions of queue pairs that are destroyed or reset stay in the completion queues.
    pub completions_outlive_qp: bool,
    /// The time after which the number of a destroyed queue pair is reused.
    pub qpn_reuse: QpnReuse,
    /// Longest path MTU; by default that of the first GID's interface.
    pub active_mtu: Option<Mtu>,
    /// Node GUID: stable, and the same in all processes of the adapter. By default it is made from the
    /// first address.
    pub ca_guid: u64,
    /// The seed that decides where queue pair numbers, memory keys, communication IDs and PSNs of messages
    /// begin. By default it comes from the operating system's random numbers, and is always the same in
    /// virtual time.
    pub seed: Option<u64>,
    /// The subscribers of events.
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
    /// Returns the options for a device with these addresses and default limits.
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
            adaptive_timeout: None,
            failures: Failures::default(),
            srd_order: SrdOrder::Seed(1),
            lanes: true,
            carries_by_mrc: false,
            planes: 1,
            mrc_udp_port: ROCE_PORT,
            completions_outlive_qp: false,
            qpn_reuse: QpnReuse::default(),
            active_mtu: None,
            ca_guid: default_guid(&gids),
            seed: None,
            subscribers: Vec::new(),
            gids,
        }
    }
}

impl HcaConfig {
    /// Takes the subscribers out of the options.
    pub fn subscribe(&mut self, clock: &Clock) -> Subscribers {
        Subscribers::new(std::mem::take(&mut self.subscribers), clock.clone())
    }
}

/// The settings of a device that its queue pairs follow.
struct HcaSettings {
    limits: Limits,
    congestion: Congestion,
    adaptive_timeout: Option<AdaptiveTimeout>,
    provider: Provider,
    srd_order: SrdOrder,
    carries_by_mrc: bool,
}

/// A software HCA with one or two ports.
pub struct Hca {
    pub(crate) core: Arc<Core>,
    name: String,
    /// The settings of the device that its queue pairs follow.
    settings: HcaSettings,
    port_count: u8,
    process: ProcessIndex,
    device_memory: DeviceMemoryPool,
    background: Option<Background>,
    events: Arc<Subscribers>,
    calls: CallGate,
    attendant: CallHook,
}

impl fmt::Debug for Hca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hca").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Hca {
    /// Opens a device on a port. With the operating system's clock a background thread drives one-sided
    /// operations and timers while the application is busy elsewhere; with virtual time a
    /// [`World`](crate::world::World) drives.
    ///
    /// # Errors
    /// No GIDs; congestion parameters out of bounds; the operating system has no memory, or cannot create a
    /// descriptor or a thread.
    pub fn open(mut config: HcaConfig, port: Box<dyn Port>, clock: Clock) -> Result<Hca, HcaError> {
        let events = Arc::new(config.subscribe(&clock));
        let calls = CallGate::open(events, &config.name, &clock);
        Hca::open_with(config, port, clock, calls, Decisions::default())
    }

    /// Opens a device as [`Hca::open`] does, with a gate for calls whose subscribers the port shares, and the
    /// decisions about what the device does.
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
        let provider = config.failures.provider;
        resources.completions.failures = config.failures.clone();
        resources.set_number_base(config.process.number_base());
        resources.port.ports = ports(&config);
        let port_count = resources.port.ports.count();
        resources.port.port_counters = config.port_counters;
        for entry in config.gids {
            resources.port.ports.add(entry)?;
        }
        port.observe(&resources.port.counters);
        if let (true, Some(group)) = (threaded, port.group()) {
            group.set_clock_origin(clock.origin_ns());
        }
        let mut starts = Random::new(config.seed.unwrap_or_else(|| default_seed(threaded)));
        resources.set_first_key(starts.next_u64());
        let mut gsi =
            Gsi::new(CmConfig::new(config.ca_guid), config.process, starts.next_u64(), Arc::clone(&events));
        if resources.port.ports.are_several() {
            gsi.set_own_addresses(resources.port.ports.entries().map(|(_, entry)| entry.gid).collect());
        }
        resources.completions.completions_outlive_qp = config.completions_outlive_qp;
        resources.lanes.are_open = config.lanes;
        let queue_pairs = QueuePairs::new(starts.next_u64(), config.qpn_reuse)?;
        let mut engine = Engine::new(resources, queue_pairs, port, gsi, config.name.clone())?;
        engine.mrc.udp_port = config.mrc_udp_port;
        engine.mrc.planes = config.planes.clamp(1, MOST_PLANES);
        engine.port_conditions().publish_all(clock.now_ns());
        let core = Arc::new(Core::new(engine, clock)?);
        let background = if threaded {
            let watch = config.gid_source.and_then(|source| AddressWatch::new(source).ok());
            Some(Background::start(Arc::clone(&core), watch)?)
        } else {
            None
        };
        Ok(Hca {
            attendant: attendant(&core),
            core,
            name: config.name,
            settings: HcaSettings {
                limits: config.limits,
                congestion: config.congestion,
                adaptive_timeout: config.adaptive_timeout,
                provider,
                srd_order: config.srd_order,
                carries_by_mrc: config.carries_by_mrc,
            },
            port_count,
            process: config.process,
            device_memory: DeviceMemoryPool::new(config.limits.max_dm_size),
            background,
            events,
            calls,
        })
    }

    /// Reports whether this process opened the device, and is not a fork of the one that did.
    #[inline]
    pub fn is_own(&self) -> bool {
        self.core.is_own()
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the sizes of tables and queues.
    pub fn limits(&self) -> &Limits {
        &self.settings.limits
    }

    /// Returns the largest path MTU of all ports.
    pub fn active_mtu(&self) -> Mtu {
        self.core.lock().resources.port.ports.longest_mtu()
    }

    /// Returns the largest path MTU of a port; of all ports, if it has none with that number.
    pub fn active_mtu_of(&self, port_num: u8) -> Mtu {
        let engine = self.core.lock();
        let ports = &engine.resources.port.ports;
        ports.get(port_num).map_or_else(|| ports.longest_mtu(), DevicePort::active_mtu)
    }

    /// Returns the number of ports, which are numbered from 1.
    pub fn port_count(&self) -> u8 {
        self.port_count
    }

    /// Returns the clock of timers and time stamps.
    pub fn clock(&self) -> &Clock {
        &self.core.clock
    }

    /// Returns the counters of traffic, drops by reason, retries.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.core.counters
    }

    /// Returns a page of the present objects, beginning at `cursor`, as other processes see them.
    pub fn inspect(&self, cursor: InspectCursor) -> InspectPage {
        self.core.lock().inspect(cursor, false)
    }

    /// Sets the function that tells another process what threads wait for. It is called under the engine's
    /// lock.
    pub fn set_wait_reporter(&self, tells: WaitReporter) {
        self.core.lock().observers.set_waits(tells);
    }

    /// Adds a recorder, which records events while another process wants it. It is called under the engine's
    /// lock.
    pub fn add_recorder(&self, recorder: Box<dyn Recorder>) {
        self.core.lock().observers.add_recorder(recorder);
    }

    /// Returns the queue of asynchronous events: wait for its descriptor, take with `try_event`, acknowledge.
    pub fn async_events(&self) -> &Arc<AsyncEventQueue> {
        &self.core.async_events
    }

    /// Returns the addresses of all ports, each with its index in the GID table of its port.
    pub fn gids(&self) -> Vec<(u32, GidEntry)> {
        self.core.lock().resources.port.ports.entries().map(|(index, entry)| (index, entry.clone())).collect()
    }

    /// Returns the address at an index of the GID table of a port.
    pub fn gid(&self, port_num: u8, index: u32) -> Option<GidEntry> {
        self.core.lock().resources.port.ports.get(port_num)?.gids.get(index).cloned()
    }

    /// Returns the present state of a port: addresses, partition keys, state. `None`: the device has no such
    /// port.
    pub fn port(&self, port_num: u8) -> Option<DevicePort> {
        self.core.lock().resources.port.ports.get(port_num).cloned()
    }

    /// Returns when the device is back, if a fault plan has unplugged it, in ns of its clock; `u64::MAX`:
    /// never. This device is dead in any case: another one can be opened then. The call takes no lock.
    pub fn back_ns(&self) -> Option<u64> {
        self.core.presence.back_ns()
    }

    /// Returns the record of whether the device is present.
    pub fn presence(&self) -> &Arc<Presence> {
        &self.core.presence
    }

    /// Returns the number of packets that have taken lanes, the short way of messages that need no decision.
    pub fn lane_packets(&self) -> LanePackets {
        self.core.lock().resources.lanes.packets
    }

    /// Returns the number of objects: it is as before once all that were created are destroyed.
    pub fn object_counts(&self) -> ObjectCounts {
        self.core.lock().resources.counts()
    }

    /// Publishes the present number of objects to other processes.
    pub(super) fn publish_object_counts(&self) {
        let mut engine = self.core.lock();
        let cm_ids = engine.gsi.cm.connection_count() + engine.gsi.cm.listener_count();
        let summary = engine.resources.summary(u64::from(engine.queue_pair_count()), cm_ids as u64);
        if let Some(group) = engine.port.group() {
            group.publish_objects(summary);
        }
    }

    /// Publishes the number of objects after a call that succeeded, and returns its outcome.
    pub(super) fn publish_after<T, E>(&self, outcome: Result<T, E>) -> Result<T, E> {
        if outcome.is_ok() {
            self.publish_object_counts();
        }
        outcome
    }

    /// Returns the number of existing queue pairs.
    pub fn queue_pair_count(&self) -> u32 {
        self.core.lock().queue_pair_count()
    }

    /// Returns the subscribers of the device's events.
    pub fn events(&self) -> &Arc<Subscribers> {
        &self.events
    }

    /// Returns the attendant to be called after calls have returned, which applies incidents that waited for
    /// them.
    pub fn call_hook(&self) -> &CallHook {
        &self.attendant
    }

    /// Returns the gate at the entry of calls, for code that enters calls here.
    pub fn calls(&self) -> &CallGate {
        &self.calls
    }

    /// Drives the engine once: receives, runs timers, sends. Returns whether there was anything to do. It is
    /// for virtual time; elsewhere polling and the background thread drive.
    pub fn drive(&self) -> bool {
        self.core.drive()
    }

    /// Drives the engine once before something is destroyed, so that everything due to peers leaves while it
    /// can be made. Memory that is registered, and unmapped already, is found to be so.
    pub fn drive_out(&self) {
        self.core.drive_out();
    }

    /// Stores what a shuffled schedule defers, before the process exits, unless another thread keeps the
    /// engine locked. What is due to peers then leaves with the next polls.
    pub fn end_schedule(&self) {
        if let Some(mut engine) = self.core.lock_at_exit() {
            engine.resources.drain_stores();
        }
    }

    /// Sends packets that a fault plan delays, before the process exits and after
    /// [`end_schedule`](Hca::end_schedule) and a poll, unless another thread keeps the engine locked. They
    /// are in the network, so they outlive their sender.
    pub fn release_packets(&self) {
        if let Some(mut engine) = self.core.lock_at_exit() {
            engine.port.release(self.core.clock.now_ns());
        }
    }

    /// Removes what would stay in memory behind the last process, as the last step before the process exits,
    /// unless another thread keeps the engine locked. Many programs exit without closing their device.
    pub fn remove_leftovers(&self) {
        if let Some(mut engine) = self.core.lock_at_exit() {
            for (_, domain) in engine.resources.objects.xrc.all_shared() {
                domain.remove_if_last();
            }
            if let Some(group) = engine.port.group() {
                group.remove_leftovers();
            }
        }
    }

    /// Returns when a poll can find something although no thread makes a call, in ns of its clock.
    pub fn next_change_ns(&self) -> Option<u64> {
        self.core.next_change_ns()
    }

    /// Returns when the engine has to be driven although nothing arrives, in ns of its clock.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.core.lock().deadline_ns()
    }
}

/// Most planes of MRC: a port status update has a bit for each.
const MOST_PLANES: u8 = 31;

/// Returns the ports of a device, without their addresses.
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

/// Returns a closure that is called after calls have returned, and applies incidents that waited for them.
fn attendant(core: &Arc<Core>) -> CallHook {
    let core = Arc::downgrade(core);
    Arc::new(move |key| {
        let Some(core) = core.upgrade() else { return };
        let mut engine = core.lock();
        engine.called(key);
        core.note_deadline(&engine, core.clock.now_ns());
    })
}

/// Returns the seed of a device that has none in its options. A host that does not see a connection's packets
/// must not be able to guess its numbers. In virtual time the seed is constant, so that runs can be repeated.
fn default_seed(threaded: bool) -> u64 {
    // The standard library draws the keys of its hash from the operating system's random numbers.
    if threaded { outside::random() } else { 0 }
}

impl Drop for Hca {
    fn drop(&mut self) {
        if !self.is_own() {
            // A forked child has no threads to wait for, and what is buffered is the parent's to write. The
            // copy is leaked.
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
