//! What a program does wrong with this crate: what calls tell the checker ([`pumice_device::check`]), and
//! where what it finds goes.
//!
//! **Invariant**: a device without a check has none of this: objects hold an `Option` that is `None`.

mod options;
mod output;
mod stack;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pumice_device::check::report::Entry;
use pumice_device::check::{CheckSubscriber, Checker, CqMade, ModifyFacts, OfDevice, QpMade, Recorded};
use pumice_device::event::Subscriber;
use pumice_device::hca::Hca;
use pumice_device::outside;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::Gid;
use pumice_transport::wire::Qpn;

pub use options::CheckOptions;
use output::Output;

/// How often the thread looks for something new.
const PERIOD: Duration = Duration::from_millis(25);
/// How often a wait for an event looks whether it waits in vain, and from when on that is told.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(1);

/// Objects that the checker knows by their addresses have these, which no other object has.
const QUEUE_PAIRS: u64 = 1 << 62;
const REGIONS: u64 = 1 << 61;

/// The check of a device.
pub(crate) struct Check {
    checker: Arc<Mutex<Checker>>,
    /// Taken before the checker's lock.
    output: Mutex<Output>,
    is_over: AtomicBool,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Check").finish_non_exhaustive()
    }
}

impl Check {
    /// A check by these options, and what listens to the events of the device for it.
    pub(crate) fn new(options: CheckOptions) -> (Arc<Check>, Box<dyn Subscriber>) {
        stack::prepare();
        let checker = Checker::new(stack::capture, options.looks_for_slow());
        let checker = Arc::new(Mutex::new(checker));
        let device = OfDevice::default();
        let subscriber = Box::new(CheckSubscriber { checker: Arc::clone(&checker), device });
        let output = Mutex::new(Output::new(options));
        (Arc::new(Check { checker, output, is_over: AtomicBool::new(false) }), subscriber)
    }

    /// From now on what is found is written when it is found. Without a thread it is written in the end.
    pub(crate) fn begin(self: &Arc<Check>) {
        let check = Arc::downgrade(self);
        let writes = move || {
            while let Some(check) = Weak::upgrade(&check).filter(|it| !it.is_over.load(Ordering::Relaxed)) {
                check.write_news(false);
                drop(check);
                outside::sleep(PERIOD);
            }
        };
        let _ = outside::thread::start("pumice-check", None, writes);
    }

    /// What was found until now, and is not suppressed.
    pub(crate) fn findings(&self) -> Vec<Entry> {
        self.write_news(true);
        self.output().entries()
    }

    /// The device is closed.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.tell(|checker| checker.ends(true));
        self.write_news(true);
        self.output().end();
    }

    /// `is_asked`: nothing is held back.
    fn write_news(&self, is_asked: bool) {
        let mut output = self.output();
        let (news, counts, left_out) = {
            let mut checker = self.checker();
            // The log of the Rust API says them by itself.
            drop(checker.settle(is_asked));
            let findings = checker.findings();
            let news: Vec<Recorded> = findings.news();
            let counts: Vec<u64> = findings.all().iter().map(|one| one.count).collect();
            (news, counts, findings.left_out())
        };
        output.add(news, &counts, left_out);
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn checker(&self) -> MutexGuard<'_, Checker> {
        self.checker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the checker, whose lock is held: the device must not be called.
    fn tell(&self, say: impl FnOnce(&mut Checker)) {
        say(&mut self.checker());
    }

    pub(crate) fn cq_made(&self, address: u64, handle: u32, depth: u32, channel: u64) {
        self.tell(|checker| {
            checker.object_made(address, "completion queue", "Device::completion_queue");
            checker.cq_made(&CqMade { address, handle, depth, channel });
        });
    }

    pub(crate) fn cq_resized(&self, handle: u32, depth: u32) {
        self.tell(|checker| checker.cq_resized(handle, depth));
    }

    /// A poll found nothing.
    pub(crate) fn cq_polled(&self, address: u64) {
        self.tell(|checker| checker.cq_polled(address));
    }

    pub(crate) fn cq_destroyed(&self, address: u64, handle: u32) {
        self.tell(|checker| {
            checker.cq_destroyed(handle);
            checker.object_destroyed(address);
        });
    }

    /// A thread waits for an event of the channel at this address, since so long.
    pub(crate) fn sleeps(&self, channel: u64, since: Duration) {
        self.tell(|checker| checker.sleeps(channel, since >= LONG));
    }

    pub(crate) fn qp_made(&self, made: QpMade) {
        let address = QUEUE_PAIRS + u64::from(made.number);
        self.tell(|checker| {
            checker.object_made(address, "queue pair", "QueuePairBuilder::build");
            checker.qp_made(&QpMade { address, ..made });
        });
    }

    pub(crate) fn qp_destroyed(&self, qpn: Qpn) {
        self.tell(|checker| checker.object_destroyed(QUEUE_PAIRS + u64::from(qpn.value())));
    }

    /// The program has changed a queue pair, or tried to.
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
        self.tell(|checker| checker.qp_modified(qpn.value(), attributes, mask, &facts));
    }

    /// A post of send requests was refused because the queue is full.
    pub(crate) fn send_queue_is_full(&self, qpn: Qpn) {
        self.tell(|checker| checker.send_queue_is_full(qpn.value()));
    }

    pub(crate) fn region_made(&self, key: u32) {
        let address = REGIONS + u64::from(key);
        self.tell(|checker| checker.object_made(address, "memory region", "ProtectionDomain::register"));
    }

    pub(crate) fn region_destroyed(&self, key: u32) {
        self.tell(|checker| checker.object_destroyed(REGIONS + u64::from(key)));
    }
}
