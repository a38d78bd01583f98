//! Finds mistakes of a program with this crate: calls are reported to the checker ([`pumice_device::check`]),
//! and its findings to their outputs.
//!
//! **Invariant**: a device without a check has none of this: objects hold an `Option` that is `None`.

mod options;
mod stack;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pumice_device::check::recorded::ReportEntry;
use pumice_device::check::{
    CheckSubscriber, Checker, CqMade, DeviceTag, ModifyFacts, QpMade, RecordedFinding,
};
use pumice_device::event::Subscriber;
use pumice_device::hca::Hca;
use pumice_device::outside;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::Gid;
use pumice_transport::wire::Qpn;

pub use options::CheckOptions;
use options::FindingOutput;

/// Interval at which the thread checks for new findings.
const PERIOD: Duration = Duration::from_millis(25);
/// Interval at which a wait for an event checks whether it can ever end, and the wait that is reported at
/// first.
pub(crate) const WAIT_CHECK_INTERVAL: Duration = Duration::from_millis(100);
const LONG_WAIT: Duration = Duration::from_secs(1);

/// Bases of the addresses by which the checker knows objects without one; no other object has such an
/// address.
const QUEUE_PAIRS: u64 = 1 << 62;
const REGIONS: u64 = 1 << 61;

/// The check of a device.
pub(crate) struct DeviceCheck {
    checker: Arc<Mutex<Checker>>,
    /// Output of the findings; its lock is taken before the checker's.
    output: Mutex<FindingOutput>,
    is_over: AtomicBool,
}

impl std::fmt::Debug for DeviceCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Check").finish_non_exhaustive()
    }
}

impl DeviceCheck {
    /// Creates a check with these options, and the subscriber that receives the device's events for it.
    pub(crate) fn new(options: CheckOptions) -> (Arc<DeviceCheck>, Box<dyn Subscriber>) {
        stack::prepare();
        let checker = Checker::new(stack::capture, options.checks_performance());
        let checker = Arc::new(Mutex::new(checker));
        let device = DeviceTag::default();
        let subscriber = Box::new(CheckSubscriber { checker: Arc::clone(&checker), device });
        let output = Mutex::new(FindingOutput::new(options));
        (Arc::new(DeviceCheck { checker, output, is_over: AtomicBool::new(false) }), subscriber)
    }

    /// Starts a thread that writes findings as soon as they are made. If the thread cannot be started, they
    /// are written at the end.
    pub(crate) fn begin(self: &Arc<DeviceCheck>) {
        let check = Arc::downgrade(self);
        let writes = move || {
            while let Some(check) = Weak::upgrade(&check).filter(|it| !it.is_over.load(Ordering::Relaxed)) {
                check.write_new_findings(false);
                drop(check);
                outside::sleep(PERIOD);
            }
        };
        let _ = outside::thread::start("pumice-check", None, writes);
    }

    /// Returns the findings so far that are not suppressed.
    pub(crate) fn findings(&self) -> Vec<ReportEntry> {
        self.write_new_findings(true);
        self.output().entries()
    }

    /// Ends the check, because the device is closed.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.with_checker(|checker| checker.ends(true));
        self.write_new_findings(true);
        self.output().end();
    }

    /// Writes new findings. `is_requested`: the program asked for them, so that none is held back.
    fn write_new_findings(&self, is_requested: bool) {
        let mut output = self.output();
        let (news, counts, left_out) = {
            let mut checker = self.checker();
            // The log of the Rust API reports the settled ones by itself.
            drop(checker.settle(is_requested));
            let findings = checker.findings();
            let news: Vec<RecordedFinding> = findings.news();
            let counts: Vec<u64> = findings.all().iter().map(|one| one.count).collect();
            (news, counts, findings.left_out())
        };
        output.add(news, &counts, left_out);
    }

    fn output(&self) -> MutexGuard<'_, FindingOutput> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn checker(&self) -> MutexGuard<'_, Checker> {
        self.checker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the checker under its lock, during which the device must not be called.
    fn with_checker(&self, notify: impl FnOnce(&mut Checker)) {
        notify(&mut self.checker());
    }

    pub(crate) fn cq_made(&self, address: u64, handle: u32, depth: u32, channel: u64) {
        self.with_checker(|checker| {
            checker.object_made(address, "completion queue", "Device::completion_queue");
            checker.cq_made(&CqMade { address, handle, depth, channel });
        });
    }

    pub(crate) fn cq_resized(&self, handle: u32, depth: u32) {
        self.with_checker(|checker| checker.cq_resized(handle, depth));
    }

    /// Notes an idle poll of a completion queue.
    pub(crate) fn cq_polled(&self, address: u64) {
        self.with_checker(|checker| checker.cq_polled(address));
    }

    pub(crate) fn cq_destroyed(&self, address: u64, handle: u32) {
        self.with_checker(|checker| {
            checker.cq_destroyed(handle);
            checker.object_destroyed(address);
        });
    }

    /// Notes that a thread has waited for this time for an event of the channel at this address.
    pub(crate) fn sleeps(&self, channel: u64, since: Duration) {
        self.with_checker(|checker| checker.sleeps(channel, since >= LONG_WAIT));
    }

    pub(crate) fn qp_made(&self, made: QpMade) {
        let address = QUEUE_PAIRS + u64::from(made.number);
        self.with_checker(|checker| {
            checker.object_made(address, "queue pair", "QueuePairBuilder::build");
            checker.qp_made(&QpMade { address, ..made });
        });
    }

    pub(crate) fn qp_destroyed(&self, qpn: Qpn) {
        self.with_checker(|checker| checker.object_destroyed(QUEUE_PAIRS + u64::from(qpn.value())));
    }

    /// Notes that the program has changed a queue pair, or tried to.
    pub(crate) fn qp_modified(
        &self,
        hca: &Hca,
        qpn: Qpn,
        attributes: &QpAttributes,
        mask: AttributeMask,
        is_done: bool,
    ) {
        let vector = &attributes.address_vector;
        let gids = if mask.contains(AttributeMask::AV) { hca.gids() } else { Vec::new() };
        let wanted = (vector.port_num, vector.sgid_index);
        let source = gids.iter().find(|(index, entry)| (entry.port_num, *index) == wanted);
        let facts = ModifyFacts {
            is_done,
            active_mtu: hca.active_mtu_of(vector.port_num),
            source_is_ipv4: source.map(|(_, entry)| entry.ip.is_ipv4()),
            peer_is_here: gids.iter().any(|(_, entry)| Gid::from(entry.ip) == vector.dgid),
        };
        self.with_checker(|checker| checker.qp_modified(qpn.value(), attributes, mask, &facts));
    }

    /// Notes that a post of send requests was refused because the queue is full.
    pub(crate) fn send_queue_is_full(&self, qpn: Qpn) {
        self.with_checker(|checker| checker.send_queue_is_full(qpn.value()));
    }

    pub(crate) fn region_made(&self, key: u32) {
        let address = REGIONS + u64::from(key);
        self.with_checker(|checker| {
            checker.object_made(address, "memory region", "ProtectionDomain::register")
        });
    }

    pub(crate) fn region_destroyed(&self, key: u32) {
        self.with_checker(|checker| checker.object_destroyed(REGIONS + u64::from(key)));
    }
}
