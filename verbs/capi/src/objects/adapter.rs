//! The HCA that all contexts of a device share in a process. The PUMICE_* variables
//! (`pumice_device::settings`) say what it is like.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use pumice_device::addresses::address_watch::GidSource;
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::event::Subscriber;
use pumice_device::faults::FaultPlan;
use pumice_device::ground::limits::Limits;
use pumice_device::hca::{CqSetup, Hca, HcaConfig};
use pumice_device::inspect::{Collected, Cursor, MAX_PAGES};
use pumice_device::listeners::{LogHook, StepHook};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::opening::{OpenError, Opening, UdpNetwork};
use pumice_device::outside::lineage::PerProcess;
use pumice_device::port::{Link, Topology};
use pumice_device::profile::{DeviceDescription, Vendor};
use pumice_device::settings::{self, DEFAULT_SEED, Log, MAX_DEVICES, Settings, Wire};
use pumice_device::shuffle::ShuffleOptions;
use pumice_transport::qp::SrdOrder;
use pumice_transport::types::WorkCompletion;

use super::capture;
use super::device::{Device, device_at, devices};
use super::events::Distributor;
use super::gid_entries::{gid_entries, gid_entries_now};
use super::loss::{LossWatch, has_been_away, is_present};
use super::record;
use super::trace;
use super::waits;
use crate::ground::check;
use crate::ground::errno::{Errno, INVALID};
use crate::ground::gate::{self, Life, Loss};
use crate::ground::listeners;
use crate::ground::log::{self, log_always, log_cause, log_warning, logs};
use crate::ground::log_places;
use crate::ground::outcome::value;
use crate::ground::settings::settings;
use crate::ground::zeroed::zeroed;

/// What the contexts of a device share. Dropped with the last of them: the port is free again then.
pub(crate) struct Adapter {
    /// Stops before the HCA does.
    distributor: Distributor,
    hca: Arc<Hca>,
    loss: LossWatch,
    /// A queue that stays empty: polling it drives the HCA if no other thread does, and never waits.
    idle: Arc<CompletionQueue>,
}

/// The addresses of a device as they are whenever that is asked. One that comes later can be used if the
/// socket has its IP version.
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

impl Adapter {
    fn open(device: &'static Device) -> Result<Adapter, Errno> {
        let (settings, profile, description) = (settings()?, device.profile(), device.description());
        let gids = gid_entries(description)?;
        let second_port = description.second_port.as_ref();
        // The addresses of two ports are reached by one socket, which has all addresses.
        let own = description.address.filter(|_| second_port.is_none());
        let address = bound_address(own, &gids)?;
        let mut config = HcaConfig {
            ca_guid: u64::from_be_bytes(device.guid()),
            // One completion queue is this library's own.
            limits: Limits { max_cq: profile.limits.max_cq.saturating_add(1), ..profile.limits },
            pkeys: profile.port.pkeys.clone(),
            second_port: second_port.map(|port| port.profile.pkeys.clone()),
            congestion: profile.congestion.of_port(&profile.port),
            srd_order: srd_order(settings),
            ..HcaConfig::new(device.name(), gids)
        };
        let loss = LossWatch::new(device.index());
        config.subscribers.push(Box::new(loss.clone()));
        let listening = with_signals_blocked(|| check::subscriber(device.index())).into_iter();
        config.subscribers.extend(listening.chain(record::subscriber(settings, device)));
        let waiting = waits::waits();
        config.subscribers.extend(post_places().into_iter().chain(waiting.iter().map(waits::subscriber)));
        config.gid_source = Some(gid_source(description, config.gids.clone(), address.is_ipv6()));
        let addresses = config.gids.iter().map(|entry| entry.ip).collect();
        let all = devices()?;
        let tag = record::noted_tag(settings, all);
        // Signals are for the application's threads.
        let opening = Opening {
            faults: plan(settings, device)?,
            triggers: Some(gate::triggers()),
            call_rules: Some(Arc::new(gate::ProcessCalls)),
            log: logs(Log::Error).then(|| -> LogHook { Box::new(|qp, cause| log_cause(qp.qpn, cause)) }),
            steps: logs(Log::Debug).then(|| -> StepHook { Box::new(log::print_step) }),
            fault_log: fault_log(),
            fault_report: capture::report(settings),
            names_device: all.len() > 1,
            asks_about_calls: false,
            tag: Some(tag),
            shuffle: settings.shuffle.map(|seed| ShuffleOptions { seed, placement: profile.placement }),
            link: Link::of(&description.link),
            topology: Topology::of(settings)?,
            capture: capture::source(settings, device),
            trace: trace::source(settings, device),
            hca: config,
        };
        let network = UdpNetwork {
            address,
            exclusive: has_short_numbers(device, settings),
            buffer_bytes: None,
            wire: settings.wire,
            one_of_several: all.len() > 1,
            ports: description.addresses_of_ports(),
        };
        let opened =
            with_signals_blocked(|| opening.on_udp(&network)).map_err(|error| not_opened(error, settings))?;
        opened.notice.into_iter().for_each(|notice| log_warning(|| notice));
        let hca = Arc::new(opened.hca);
        loss.opened(&hca);
        if let Some(waiting) = &waiting {
            hca.tells_waits(waits::tells(device.index()));
            with_signals_blocked(|| waits::opened(device.index(), waiting, &hca, objects_of));
        }
        listeners::attach(device.index(), hca.events());
        hca.add_recorder(Box::new(check::LiveChecks::new(device.index(), addresses, hca.events())));
        let distributor = with_signals_blocked(|| Distributor::start(&hca, device.index()))?;
        let idle = hca.create_cq(CqSetup { depth: 1, uncounted: true, ..CqSetup::default() })?;
        say_farewell_at_exit();
        Ok(Adapter { distributor, hca, loss, idle })
    }

    /// At exit: sends what is owed, and writes out what waits.
    fn say_goodbye(&self) {
        self.hca.end_schedule();
        self.hca.poll_cq(&self.idle, &mut [WorkCompletion::default()]);
        self.hca.poll_cq(&self.idle, &mut [WorkCompletion::default()]);
        self.hca.release_packets();
        self.hca.events().settle(LOG_PATIENCE);
        capture::flush_captures();
        self.hca.leave_nothing();
    }

    /// Whether the device is lost.
    pub(crate) fn life(&self) -> &Arc<Life> {
        self.loss.life()
    }

    pub(crate) const fn hca(&self) -> &Arc<Hca> {
        &self.hca
    }

    pub(crate) const fn distributor(&self) -> &Distributor {
        &self.distributor
    }
}

/// What hears where requests are posted of which the log is to tell.
fn post_places() -> Option<Box<dyn Subscriber>> {
    if logs(Log::Warn) { log_places::subscriber() } else { None }
}

/// Whether the numbers of queue pairs have 16 bits, as those of EFA do, which is so where the process has its
/// address alone. libfabric's addresses have room for no more.
fn has_short_numbers(device: &Device, settings: &Settings) -> bool {
    let is_efa = device.profile().direct_calls() == Some(Vendor::Amazon);
    let has_own = device.description().address.is_some();
    is_efa && has_own && settings.wire == Wire::Udp
}

/// In which order messages of SRD leave.
fn srd_order(settings: &Settings) -> SrdOrder {
    match settings.srd_order {
        settings::SrdOrder::Seed => SrdOrder::Seed(settings.seed.unwrap_or(DEFAULT_SEED)),
        settings::SrdOrder::InOrder => SrdOrder::InOrder,
        settings::SrdOrder::Reverse => SrdOrder::Reverse,
    }
}

/// What the settings want to go wrong on a device.
///
/// # Errors
/// The plan cannot be used, which has been said.
fn plan(settings: &Settings, device: &Device) -> Result<FaultPlan, Errno> {
    let plan = capture::faults(settings)?;
    Ok(if has_been_away(device.index()) { plan.without_events() } else { plan })
}

/// The address that the socket of a device is bound to: its one address, or all of those in its GID table.
///
/// # Errors
/// ENODEV: it has none.
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

/// What takes sentences about faults.
fn fault_log() -> Option<StepHook> {
    logs(Log::Warn).then(|| -> StepHook { Box::new(|said| log_warning(|| said.to_owned())) })
}

/// Says why the device is not opened.
fn not_opened(error: OpenError, settings: &Settings) -> Errno {
    match error {
        OpenError::Hca(error) => error.into(),
        OpenError::Capture(error) => capture::refused(settings, &error),
        OpenError::Trace(error) => trace::refused(settings, &error),
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

/// Runs `start`, whose new threads inherit that they get no signals but those of their own faults.
fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    let (mut all, mut old): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
    // SAFETY: sets of this frame are written and read.
    unsafe {
        libc::sigfillset(&mut all);
        // What a copy of memory that has gone meets.
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
static SHARED: PerProcess<Mutex<[Weak<Adapter>; MAX_DEVICES]>> = PerProcess::new(|_| Mutex::default());

/// How long an exit waits for the log to be written to a slow terminal.
const LOG_PATIENCE: Duration = Duration::from_millis(100);

/// From now on an exit says farewell.
fn say_farewell_at_exit() {
    // A fork child has it from its parent.
    static HAS_FAREWELL: AtomicBool = AtomicBool::new(false);
    if !HAS_FAREWELL.swap(true, Ordering::Relaxed) {
        // SAFETY: the object is never unmapped (it is linked with -z nodelete).
        unsafe { libc::atexit(farewell) };
    }
}

/// At exit: a program that exits right after its last completion has not sent the acknowledgement for
/// it. Takes no lock that is held, because programs also exit from signal handlers.
extern "C" fn farewell() {
    value((), || {
        let open: Vec<Arc<Adapter>> = match SHARED.try_lock() {
            Ok(shared) => shared.iter().filter_map(Weak::upgrade).collect(),
            Err(_) => Vec::new(),
        };
        for adapter in open {
            adapter.say_goodbye();
            // Dropping it would wait for threads.
            std::mem::forget(adapter);
        }
        log::report_left_out();
    });
}

/// The adapter of a device in this process, opened if it is not yet.
///
/// # Errors
/// Those of opening it. EIO: it has failed. ENODEV: it was pulled out.
pub(crate) fn adapter(index: usize) -> Result<Arc<Adapter>, Errno> {
    let mut all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = all.get_mut(index).ok_or(INVALID)?;
    if let Some(adapter) = shared.upgrade() {
        match adapter.life().loss() {
            None => return Ok(adapter),
            Some(Loss::Failed) => return Err(Errno(libc::EIO)),
            // Its contexts keep it, and the device that is back is another one.
            Some(Loss::Removed) => {}
        }
    }
    if !is_present(index) {
        return Err(Errno(libc::ENODEV));
    }
    let adapter = Arc::new(Adapter::open(device_at(index)?)?);
    *shared = Arc::downgrade(&adapter);
    Ok(adapter)
}

/// What the device with this index has in this process; `None` if it is not open.
fn objects_of(index: usize) -> Option<Collected> {
    // A thread that is to drop an adapter holds this lock.
    let all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let adapter = all.get(index)?.upgrade()?;
    let (mut objects, mut at) = (Collected::default(), Some(Cursor::BEGIN));
    for _ in 0..MAX_PAGES {
        let Some(cursor) = at else { break };
        at = objects.add(cursor, adapter.hca.inspect(cursor));
    }
    Some(objects)
}

/// Gives up a context's share of the adapter. The last one closes the port, before another thread can ask for
/// the device again.
pub(crate) fn release(adapter: Arc<Adapter>) {
    let _shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    drop(adapter);
}
