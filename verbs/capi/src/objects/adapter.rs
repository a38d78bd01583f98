//! The HCA that all contexts of a device share in a process. The PUMICE_* variables
//! (`pumice_device::settings`) configure it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use pumice_device::addresses::address_handle::GidSource;
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::event::Subscriber;
use pumice_device::faults::FaultPlan;
use pumice_device::hca::{CqSetup, Hca, HcaConfig};
use pumice_device::inspect::{InspectCursor, InspectedObjects, MAX_PAGES};
use pumice_device::listeners::{LogHook, StepHook, UnusedRules};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::opening::{OpenError, Opening, UdpNetwork};
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::platform::limits::Limits;
use pumice_device::port::{Link, Topology};
use pumice_device::profile::{DeviceDescription, Vendor};
use pumice_device::settings::{self, DEFAULT_SEED, LogLevel, MAX_DEVICES, Settings, Wire};
use pumice_device::shuffle::ShuffleOptions;
use pumice_transport::qp::SrdOrder;
use pumice_transport::types::WorkCompletion;

use super::device::{
    Device, LossSubscriber, device_at, devices, gid_entries, gid_entries_now, is_present, was_absent,
};
use super::events::EventDistributor;
use super::{capture, unused, waits};
use crate::abi::plain::zeroed;
use crate::check;
use crate::entry::value;
use crate::gate::{self, DeviceLoss, LossState};
use crate::log::settings::settings;
use crate::log::{
    self, device_subscribers, log_always, log_cause, log_limit, log_warning, logs, print_always,
};
use crate::platform::{Errno, INVALID};

/// State that the contexts of a device share. It is dropped with the last of them: the port is free again
/// then.
pub(crate) struct DeviceAdapter {
    /// Distributor of events, which stops before the HCA does.
    distributor: EventDistributor,
    hca: Arc<Hca>,
    loss: LossSubscriber,
    /// A queue that stays empty: polling it drives the HCA if no other thread does, and never waits.
    idle: Arc<CompletionQueue>,
}

/// Returns a function that reads the current addresses of a device. An address that is added later can be
/// used if the socket has its IP version.
fn gid_source(
    description: &'static DeviceDescription,
    offered: Vec<GidEntry>,
    any_version: bool,
) -> GidSource {
    Box::new(move || {
        let mut entries = gid_entries_now(description, &offered)?;
        entries.retain(|entry| any_version || entry.ip.is_ipv4());
        Some(entries)
    })
}

/// Returns the configuration of a device from its profile.
fn config_of(device: &Device, settings: &Settings, gids: Vec<GidEntry>) -> HcaConfig {
    let (profile, description) = (device.profile(), device.description());
    let second_port = description.second_port.as_ref();
    HcaConfig {
        ca_guid: u64::from_be_bytes(device.guid()),
        // One of the completion queues is this library's own.
        limits: Limits { max_cq: profile.limits.max_cq.saturating_add(1), ..profile.limits },
        pkeys: profile.port.pkeys.clone(),
        second_port: second_port.map(|port| port.profile.pkeys.clone()),
        congestion: profile.congestion.of_port(&profile.port),
        adaptive_timeout: profile.adaptive_timer.timeout(),
        failures: profile.failures(),
        srd_order: srd_order(settings),
        lanes: settings.lanes,
        carries_by_mrc: settings.mrc,
        planes: settings.planes,
        mrc_udp_port: settings.mrc_port,
        completions_outlive_qp: profile.completions_outlive_qp,
        qpn_reuse: profile.qpn_reuse,
        ..HcaConfig::new(device.name(), gids)
    }
}

impl DeviceAdapter {
    fn open(device: &'static Device) -> Result<DeviceAdapter, Errno> {
        let (settings, profile, description) = (settings()?, device.profile(), device.description());
        let gids = gid_entries(description)?;
        // The addresses of two ports are reached by one socket, which has all addresses.
        let own = description.address.filter(|_| description.second_port.is_none());
        let address = bound_address(own, &gids)?;
        let mut config = config_of(device, settings, gids);
        let loss = LossSubscriber::new(device.index());
        config.subscribers.push(Box::new(loss.clone()));
        let listening = with_signals_blocked(|| check::subscriber(device.index())).into_iter();
        config.subscribers.extend(listening.chain(capture::subscriber(settings, device)));
        let waiting = waits::waits();
        config.subscribers.extend(post_call_sites().into_iter().chain(waiting.iter().map(waits::subscriber)));
        config.gid_source = Some(gid_source(description, config.gids.clone(), address.is_ipv6()));
        let addresses = config.gids.iter().map(|entry| entry.ip).collect();
        let all = devices()?;
        let tag = capture::record_tag(settings, all);
        // The application's threads handle signals.
        let opening = Opening {
            faults: plan(settings, device)?,
            triggers: Some(gate::triggers()),
            call_rules: Some(Arc::new(gate::ProcessCalls)),
            log: logs(LogLevel::Error).then(|| -> LogHook { Box::new(|qp, cause| log_cause(qp.qpn, cause)) }),
            steps: logs(LogLevel::Debug).then(|| -> StepHook { Box::new(log::print_step) }),
            fault_log: fault_log(),
            fault_report: capture::report(settings),
            unused_rules: Some(Arc::clone(&UNUSED_RULES)),
            names_device: all.len() > 1,
            asks_about_calls: false,
            tag: Some(tag),
            shuffle: settings.shuffle.map(|seed| ShuffleOptions { seed, placement: profile.placement }),
            link: Link::of(&description.link),
            topology: Topology::of(settings)?,
            capture: capture::source(settings, device),
            trace: capture::trace_source(settings, device),
            hca: config,
        };
        let network = UdpNetwork {
            address,
            exclusive: has_short_numbers(device, settings),
            buffer_bytes: None,
            wire: settings.wire,
            copy: settings.copy,
            one_of_several: all.len() > 1,
            ports: description.addresses_of_ports(),
        };
        let opened =
            with_signals_blocked(|| opening.on_udp(&network)).map_err(|error| not_opened(error, settings))?;
        opened.notice.into_iter().for_each(|notice| log_warning(|| notice));
        let hca = Arc::new(opened.hca);
        loss.opened(&hca);
        gate::device_opened(&hca);
        if let Some(waiting) = &waiting {
            hca.set_wait_reporter(waits::wait_reporter(device.index()));
            with_signals_blocked(|| waits::opened(device.index(), waiting, &hca, objects_of));
        }
        device_subscribers::attach(device.index(), hca.events());
        hca.add_recorder(Box::new(check::LiveChecks::new(device.index(), addresses, hca.events())));
        let distributor = with_signals_blocked(|| EventDistributor::start(&hca, device.index()))?;
        let idle = hca.create_cq(CqSetup { depth: 1, uncounted: true, ..CqSetup::default() })?;
        register_exit_handler();
        Ok(DeviceAdapter { distributor, hca, loss, idle })
    }

    /// Sends owed acknowledgements at exit, and writes out buffered output.
    fn flush_at_exit(&self) {
        self.hca.end_schedule();
        self.hca.poll_cq(&self.idle, &mut [WorkCompletion::default()]);
        self.hca.poll_cq(&self.idle, &mut [WorkCompletion::default()]);
        self.hca.release_packets();
        self.hca.events().settle(LOG_PATIENCE);
        capture::flush_captures();
        self.hca.remove_leftovers();
    }

    /// Drives the device once.
    pub(crate) fn drive(&self) {
        self.hca.poll_cq(&self.idle, &mut [WorkCompletion::default()]);
    }

    /// Returns the state that says whether the device is lost.
    pub(crate) fn loss_state(&self) -> &Arc<LossState> {
        self.loss.loss_state()
    }

    pub(crate) const fn hca(&self) -> &Arc<Hca> {
        &self.hca
    }

    pub(crate) const fn distributor(&self) -> &EventDistributor {
        &self.distributor
    }
}

/// Returns the subscriber that records call sites of posted requests for the log.
fn post_call_sites() -> Option<Box<dyn Subscriber>> {
    if logs(LogLevel::Warn) { log_limit::subscriber() } else { None }
}

/// Reports whether the numbers of queue pairs have 16 bits, as those of EFA do, which is so where the process
/// has its address alone. libfabric's addresses have room for no more.
fn has_short_numbers(device: &Device, settings: &Settings) -> bool {
    let is_efa = device.profile().direct_calls() == Some(Vendor::Amazon);
    let has_own = device.description().address.is_some();
    is_efa && has_own && settings.wire == Wire::Udp
}

/// Returns the order in which messages of SRD leave.
fn srd_order(settings: &Settings) -> SrdOrder {
    match settings.srd_order {
        settings::SrdOrder::Seed => SrdOrder::Seed(settings.seed.unwrap_or(DEFAULT_SEED)),
        settings::SrdOrder::InOrder => SrdOrder::InOrder,
        settings::SrdOrder::Reverse => SrdOrder::Reverse,
    }
}

/// Returns the faults that the settings inject on a device.
///
/// # Errors
/// Fails if the plan cannot be used, which was logged.
fn plan(settings: &Settings, device: &Device) -> Result<FaultPlan, Errno> {
    let plan = capture::faults(settings)?;
    Ok(if was_absent(device.index()) { plan.without_events() } else { plan })
}

/// Returns the address that the socket of a device is bound to: its one address, or all of those in its GID
/// table.
///
/// # Errors
/// Fails with ENODEV if it has none.
fn bound_address(own: Option<IpAddr>, gids: &[GidEntry]) -> Result<IpAddr, Errno> {
    match (gids, own) {
        ([], _) => {
            log_always("no interface that is up has an address: bring one up, `ip link set lo up` is enough");
            Err(Errno(libc::ENODEV))
        }
        (_, Some(address)) => Ok(address),
        (some, None) if some.iter().all(|entry| entry.ip.is_ipv4()) => Ok(Ipv4Addr::UNSPECIFIED.into()),
        (_, None) => Ok(Ipv6Addr::UNSPECIFIED.into()),
    }
}

/// Returns the function that logs messages about faults.
fn fault_log() -> Option<StepHook> {
    logs(LogLevel::Warn).then(|| -> StepHook { Box::new(|message| log_warning(|| message.to_owned())) })
}

/// Logs why the device is not opened, and returns the error.
fn not_opened(error: OpenError, settings: &Settings) -> Errno {
    match error {
        OpenError::Hca(error) => error.into(),
        OpenError::Capture(error) => capture::refused(settings, &error),
        OpenError::Trace(error) => capture::trace_refused(settings, &error),
        OpenError::Faults(error) => {
            log_always(&error.to_string());
            Errno(libc::EINVAL)
        }
        OpenError::Topology(_) => {
            log_always(&error.to_string());
            Errno(libc::EINVAL)
        }
        OpenError::Report(error) => capture::report_refused(settings, &error),
        OpenError::Share(error) => {
            log_always(&error.to_string());
            Errno(error.errno())
        }
        OpenError::Port(error) => {
            log_always(&error.to_string());
            Errno(libc::EIO)
        }
    }
}

/// Runs `start`, whose new threads inherit a signal mask that blocks all signals except those of their own
/// faults.
fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    let (mut all, mut old): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
    // SAFETY: sets of this frame are written and read.
    unsafe {
        libc::sigfillset(&mut all);
        // These signals are raised when memory that is being copied was unmapped.
        libc::sigdelset(&mut all, libc::SIGSEGV);
        libc::sigdelset(&mut all, libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
    }
    let started = start();
    // SAFETY: the set of this frame is read.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut()) };
    started
}

/// The adapter of each device that has an open context.
static SHARED: PerProcess<Mutex<[Weak<DeviceAdapter>; MAX_DEVICES]>> = PerProcess::new(|_| Mutex::default());

/// Rules of the fault plan that no device of this process has applied.
static UNUSED_RULES: PerProcess<Arc<UnusedRules>> = PerProcess::new(|_| Arc::default());

/// Longest time that an exit waits for the log to be written to a slow terminal.
const LOG_PATIENCE: Duration = Duration::from_millis(100);

/// Registers the function that runs at exit.
fn register_exit_handler() {
    // A forked child inherits the registration from its parent.
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    if !IS_REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the object is never unmapped (it is linked with -z nodelete).
        unsafe { libc::atexit(run_exit_handler) };
    }
}

/// Ends the devices at exit: a program that exits right after its last completion has not sent the
/// acknowledgement for it. Waits for no lock, because programs also exit from signal handlers.
extern "C" fn run_exit_handler() {
    value((), || {
        let open: Vec<Arc<DeviceAdapter>> = match SHARED.try_lock() {
            Ok(shared) => shared.iter().filter_map(Weak::upgrade).collect(),
            Err(_) => Vec::new(),
        };
        for adapter in open {
            adapter.flush_at_exit();
            // Dropping the adapter would wait for threads.
            std::mem::forget(adapter);
        }
        if logs(LogLevel::Warn)
            && let Some(sentence) = UNUSED_RULES.sentence()
        {
            print_always(&sentence);
        }
        log::report_left_out();
    });
}

/// Returns the adapter of a device in this process, and opens it if it is not open.
///
/// # Errors
/// Fails with the errors of opening it, with EIO if it has failed, and with ENODEV if it was removed.
pub(crate) fn adapter(index: usize) -> Result<Arc<DeviceAdapter>, Errno> {
    let mut all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = all.get_mut(index).ok_or(INVALID)?;
    if let Some(adapter) = shared.upgrade() {
        match adapter.loss_state().loss() {
            None => return Ok(adapter),
            Some(DeviceLoss::Failed) => return Err(Errno(libc::EIO)),
            // The contexts of the lost device keep that adapter; the device that is back gets a new one.
            Some(DeviceLoss::Removed) => {}
        }
    }
    if !is_present(index) {
        return Err(Errno(libc::ENODEV));
    }
    let adapter = Arc::new(DeviceAdapter::open(device_at(index)?)?);
    unused::is_opened();
    *shared = Arc::downgrade(&adapter);
    Ok(adapter)
}

/// Returns the objects of the device with this index in this process; `None` if it is not open.
fn objects_of(index: usize) -> Option<InspectedObjects> {
    // A thread that is to drop an adapter holds this lock.
    let all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let adapter = all.get(index)?.upgrade()?;
    let (mut objects, mut at) = (InspectedObjects::default(), Some(InspectCursor::BEGIN));
    for _ in 0..MAX_PAGES {
        let Some(cursor) = at else { break };
        at = objects.add(cursor, adapter.hca.inspect(cursor));
    }
    Some(objects)
}

/// Gives up a context's share of the adapter. The last one closes the port, before another thread can open
/// the device again.
pub(crate) fn release(adapter: Arc<DeviceAdapter>) {
    let _shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    drop(adapter);
}
