//! Programs that are checked for a while, because another process of their user asks (`pumice check live`).
//!
//! A separate checker subscribes to the device's events as a guest. It is not notified of calls: faults that
//! only calls show are not judged, and the calls of the program are not delayed. It knows the objects that
//! existed before, but not where they were made; requests from before are ignored when they complete.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::check::recorded::{Format, ReportEntry, ReportHeader, document, summary};
use pumice_device::check::{CheckSubscriber, Checker, JUDGED_LIVE, QpMade, holding};
use pumice_device::event::{Event, Subscriber, Subscribers, Topics};
use pumice_device::memory::{on_demand_is_available, read_mapped, read_registered};
use pumice_device::outside;
use pumice_device::record_orders::{
    Existing, MAX_RECORDING_MS, QpSnapshot, RecordCommand, RecordReply, Recorder, RegionSnapshot,
};
use pumice_device::settings::Marks;
use pumice_device::trace::create_private;
use pumice_transport::event::QpEvent;
use pumice_transport::types::{Peer, QpCapacity, QpState};
use pumice_transport::wire::Qpn;

use crate::call_sites::state::{is_on, of_device};
use crate::call_sites::{stack, state};
use crate::platform::current_pid;

/// Interval at which the thread of a check looks for news.
const PERIOD: Duration = Duration::from_millis(25);
/// Longest time that the end of the device, or of the process, waits for a report.
const PATIENCE: Duration = Duration::from_secs(3);
/// Largest number of simultaneous checks.
const MAX_CHECKS: usize = 4;
/// Largest number of queue pairs whose earlier requests are recorded; requests of further ones are not known.
const MAX_QPS: usize = 1 << 16;
/// Bit of the addresses of objects here, which no pointer of the program has.
const FAKE_ADDRESS: u64 = 1 << 63;

/// The checks of a device that other processes have asked for.
pub(crate) struct LiveChecks {
    device: usize,
    /// Addresses of the device when it was opened: peers at them are in this process.
    addresses: Arc<[IpAddr]>,
    events: Weak<Subscribers>,
    running: Vec<Weak<LiveCheck>>,
}

/// A check for a limited time.
struct LiveCheck {
    file: String,
    addresses: Arc<[IpAddr]>,
    checker_subscriber: CheckSubscriber,
    earlier_requests: Mutex<HashMap<u32, EarlierRequests>>,
    /// True if it is to end before its time.
    ends: AtomicBool,
    is_written: AtomicBool,
}

/// Earlier requests that have not completed.
#[derive(Debug, Clone, Copy, Default)]
struct EarlierRequests {
    sends: u64,
    receives: u32,
}

impl LiveChecks {
    /// Creates the checks of the device with this index among the devices.
    pub(crate) fn new(device: usize, addresses: Arc<[IpAddr]>, events: &Arc<Subscribers>) -> LiveChecks {
        LiveChecks { device, addresses, events: Arc::downgrade(events), running: Vec::new() }
    }

    fn begin(
        &mut self,
        path: &str,
        time: Duration,
        format: Format,
        now: &dyn Existing,
    ) -> Result<(), String> {
        if is_on() {
            return Err("it is checked already, because it was started so".to_owned());
        }
        let events = self.events.upgrade().ok_or("its device is being closed")?;
        if self.running.len() >= MAX_CHECKS {
            return Err("it is checked by as many already as may do so: try again later".to_owned());
        }
        let file = open(path).map_err(|error| format!("{path} cannot be written: {error}"))?;
        let checker = Arc::new(Mutex::new(new_checker()));
        let checker_subscriber = CheckSubscriber { checker, device: of_device(Some(self.device)) };
        let earlier_requests = holding(|| checker_subscriber.finds(now, &self.addresses));
        let live_check = Arc::new(LiveCheck {
            file: path.to_owned(),
            addresses: Arc::clone(&self.addresses),
            checker_subscriber,
            earlier_requests: Mutex::new(earlier_requests),
            ends: AtomicBool::new(false),
            is_written: AtomicBool::new(false),
        });
        let guest = Arc::clone(&live_check);
        let number =
            events.join(guest).ok_or("it is recorded by as many already as may do so: try again later")?;
        let (own, of) = (Arc::clone(&live_check), self.events.clone());
        let begun = outside::now();
        let run = move || {
            while outside::since(begun) < time && !own.ends.load(Ordering::Relaxed) {
                outside::sleep(PERIOD.min(time));
                let _ = holding(|| lock(&own.checker_subscriber.checker).settle(false));
            }
            if let Some(events) = of.upgrade() {
                events.leave(number);
            }
            // A full disk must not end the program; the process that asked sees that the end is missing.
            let _ = own.write(&file, format);
            own.is_written.store(true, Ordering::Release);
        };
        if let Err(error) = outside::thread::start_without_signals("pumice-check", run) {
            events.leave(number);
            return Err(format!("no thread is to be had: {error}"));
        }
        self.running.push(Arc::downgrade(&live_check));
        Ok(())
    }
}

/// Opens the file of a report, which begins with marks: the last of them says that the report is complete.
fn open(path: &str) -> io::Result<File> {
    let file = create_private(Path::new(path))?;
    file.set_len(0)?;
    file.write_all_at(Marks::UNFINISHED, 0)?;
    Ok(file)
}

fn new_checker() -> Checker {
    let mut checker = Checker::new(stack::capture, false);
    if on_demand_is_available() {
        checker.set_memory_reader(|ranges, out| read_mapped(current_pid(), ranges, out));
        // SAFETY: as for the checker of programs that are started with checks: the payload of requests that
        // the device has taken is in registered memory, which the device itself copies now.
        checker.set_mapped_memory_reader(|ranges, out| unsafe { read_registered(ranges, out) });
    }
    checker.set_stack_source(stack::stack_bounds);
    checker
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder for LiveChecks {
    fn apply_command(&mut self, order: &RecordCommand, now: &dyn Existing) -> Option<RecordReply> {
        self.running.retain(|running| running.strong_count() > 0);
        match order {
            RecordCommand::Check { file, for_ms, format } => {
                let file =
                    file.replace("%p", &current_pid().to_string()).replace("%d", &self.device.to_string());
                let time = Duration::from_millis((*for_ms).min(MAX_RECORDING_MS));
                let begun = match Format::named(format) {
                    Some(format) => self.begin(&file, time, format, now),
                    None => Err(format!("it knows no format {format}: both sides have to be of one version")),
                };
                Some(RecordReply { file, refused: begun.err(), ..RecordReply::default() })
            }
            RecordCommand::End { file } => {
                let live_check = self
                    .running
                    .iter()
                    .filter_map(Weak::upgrade)
                    .find(|live_check| live_check.file == *file)?;
                live_check.ends.store(true, Ordering::Relaxed);
                Some(RecordReply { file: file.clone(), ..RecordReply::default() })
            }
            RecordCommand::Trace { .. } => None,
        }
    }
}

/// Describes a queue pair for a checker.
fn made(number: u32, ordinal: u32, service: &'static str, cqs: (u32, u32), capacity: QpCapacity) -> QpMade {
    let address = FAKE_ADDRESS | u64::from(number);
    let (send_cq, recv_cq) = (Some(cqs.0), Some(cqs.1));
    QpMade { address, number, ordinal, service, send_cq, recv_cq, capacity }
}

/// A finder of the existing objects.
trait FindExisting {
    /// Reports the existing objects to the checker; returns the outstanding requests, by the ordinals of
    /// queue pairs.
    fn finds(&self, now: &dyn Existing, addresses: &[IpAddr]) -> HashMap<u32, EarlierRequests>;
}

impl FindExisting for CheckSubscriber {
    fn finds(&self, now: &dyn Existing, addresses: &[IpAddr]) -> HashMap<u32, EarlierRequests> {
        let mut earlier_requests = HashMap::new();
        let mut checker = lock(&self.checker);
        checker.on(self.device).finds(|checker| {
            now.regions(&mut |region| {
                let RegionSnapshot { lkey, rkey, address, length, iova, stays_mapped, relaxed } = *region;
                let registered =
                    Event::RegionRegistered { lkey, rkey, address, length, iova, stays_mapped, relaxed };
                checker.on_event(&registered);
            });
            now.queue_pairs(&mut |qp| {
                let QpSnapshot { ordinal, qpn, send_cq, recv_cq, service, sends, receives, .. } = *qp;
                let capacity = QpCapacity { max_send_wr: qp.send_depth, ..QpCapacity::default() };
                let made = made(qpn, ordinal, service, (send_cq, recv_cq), capacity);
                checker.object_made(made.address, "queue pair", Call::ibv_create_qp.name());
                checker.qp_made(&made);
                let peer = qp.peer.map(|(address, qpn)| Peer { address, qpn: Qpn::new(qpn) });
                if let Some(peer) = peer.filter(|peer| addresses.contains(&peer.address)) {
                    checker.qp_is_connected_here(qpn, peer.qpn.value());
                }
                if let Some(state) = QpState::from_verbs(qp.state.into()) {
                    checker.qp_is_in(qpn, state, peer, qp.next);
                }
                if earlier_requests.len() < MAX_QPS && (sends > 0 || receives > 0) {
                    earlier_requests.insert(ordinal, EarlierRequests { sends, receives });
                }
            });
        });
        earlier_requests
    }
}

impl Subscriber for LiveCheck {
    fn topics(&self) -> Topics {
        self.checker_subscriber.topics()
    }

    fn on_event(&self, at_ns: u64, event: &Event<'_>) {
        match event {
            Event::QpCreated { qp, service } => holding(|| {
                let cqs = (qp.send_cq, qp.recv_cq);
                let made = made(qp.qpn.value(), qp.ordinal, service, cqs, QpCapacity::default());
                let mut checker = lock(&self.checker_subscriber.checker);
                let checker = checker.on(self.checker_subscriber.device);
                checker.object_made(made.address, "queue pair", Call::ibv_create_qp.name());
                checker.qp_made(&made);
            }),
            Event::Qp { qp, event: QpEvent::Completed { completion, cq, released } } => {
                if let Some(released) = self.count_known(qp.ordinal, completion.opcode.is_recv(), *released) {
                    let event = QpEvent::Completed { completion, cq: *cq, released };
                    self.checker_subscriber.on_event(at_ns, &Event::Qp { qp, event: &event });
                }
            }
            Event::Qp { qp, event: QpEvent::StateChanged { to: QpState::Rtr, peer: Some(peer), .. } } => {
                if self.addresses.contains(&peer.address) {
                    holding(|| {
                        let mut checker = lock(&self.checker_subscriber.checker);
                        let checker = checker.on(self.checker_subscriber.device);
                        checker.qp_is_connected_here(qp.qpn.value(), peer.qpn.value());
                    });
                }
                self.checker_subscriber.on_event(at_ns, event);
            }
            // A message arrives for an earlier receive request.
            Event::Qp { qp, event: QpEvent::PacketReceived { .. } } if self.has_receives(qp.ordinal) => {}
            Event::Qp { qp, event: QpEvent::StateChanged { to: QpState::Reset, .. } }
            | Event::QpDestroyed { qp } => {
                lock(&self.earlier_requests).remove(&qp.ordinal);
                self.checker_subscriber.on_event(at_ns, event);
            }
            _ => self.checker_subscriber.on_event(at_ns, event),
        }
    }

    /// Takes no lock. Searching for symbols takes longer than others may take to settle, and the command
    /// waits for the report.
    fn settle(&self, _patience: Duration) {
        self.ends.store(true, Ordering::Relaxed);
        let begun = outside::now();
        while !self.is_written.load(Ordering::Acquire) && outside::since(begun) < PATIENCE {
            outside::sleep(Duration::from_millis(1));
        }
    }

    fn finish(&self) {
        self.settle(PATIENCE);
    }
}

impl LiveCheck {
    /// Returns how many known requests a completion ends; `None` if it ends only earlier ones.
    fn count_known(&self, qp: u32, is_receive: bool, released: u32) -> Option<u32> {
        let mut all = lock(&self.earlier_requests);
        let Some(earlier_requests) = all.get_mut(&qp) else { return Some(released) };
        if is_receive {
            let is_known = earlier_requests.receives == 0;
            earlier_requests.receives = earlier_requests.receives.saturating_sub(1);
            return is_known.then_some(released);
        }
        let count = u64::from(released.max(1));
        let before = count.min(earlier_requests.sends);
        earlier_requests.sends -= before;
        Some(u32::try_from(count - before).unwrap_or(released)).filter(|known| *known > 0)
    }

    fn has_receives(&self, qp: u32) -> bool {
        lock(&self.earlier_requests).get(&qp).is_some_and(|earlier_requests| earlier_requests.receives > 0)
    }

    /// Writes the findings; the marks come first, of which the last says that the report is complete.
    fn write(&self, file: &File, format: Format) -> io::Result<()> {
        let (news, left_out) = holding(|| {
            let mut checker = lock(&self.checker_subscriber.checker);
            let _ = checker.settle(true);
            let findings = checker.findings();
            (findings.news(), findings.left_out())
        });
        let is_judged = |kind: &str| JUDGED_LIVE.iter().any(|one| one.name == kind);
        let news = news.into_iter().filter(|one| is_judged(one.kind.name));
        let entries: Vec<ReportEntry> = news
            .map(|one| {
                let frames =
                    |addresses: &[u64]| state::with_symbols(|| stack::frames(addresses)).unwrap_or_default();
                ReportEntry::new(one, frames)
            })
            .collect();
        let program = outside::environment::program().to_string_lossy().into_owned();
        let about = ReportHeader {
            program,
            process: current_pid(),
            is_whole: true,
            left_out,
            ..ReportHeader::default()
        };
        let text = match format {
            Format::Text => {
                let paragraphs: String = entries.iter().map(|entry| entry.paragraph() + "\n").collect();
                paragraphs + &summary(&entries, &about) + "\n"
            }
            _ => document(&entries, &about, format),
        };
        file.write_all_at(text.as_bytes(), Marks::UNFINISHED.len() as u64)?;
        let all: Vec<Marks> = entries.iter().map(ReportEntry::marks).collect();
        file.write_all_at(&Marks::finished(&all), 0)
    }
}
