//! Programs that are checked for a while, because another process of their user asks (`pumice check live`).
//!
//! A checker of its own hears the device's events, as a guest. It is told of no calls: what only calls tell
//! is not judged, and the calls of the program are not held up. What was there before is known to it, without
//! where it was made; requests of before are passed over when they complete.

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
use pumice_device::check::report::{About, Entry, Format, document, summary};
use pumice_device::check::{CheckSubscriber, Checker, JUDGED_LIVE, QpMade, holding};
use pumice_device::event::{Event, Subscriber, Subscribers, Topics};
use pumice_device::memory::{on_demand_is_available, read_mapped, read_registered};
use pumice_device::outside;
use pumice_device::record_orders::{
    Existing, MAX_RECORDING_MS, QpNow, RecordAnswer, RecordOrder, Recorder, RegionNow,
};
use pumice_device::settings::Marks;
use pumice_device::trace::create_private;
use pumice_transport::event::QpEvent;
use pumice_transport::types::{Peer, QpCapacity, QpState};
use pumice_transport::wire::Qpn;

use super::state::{is_on, of_device};
use super::{place, stack, symbols};
use crate::ground::process::own_process;

/// How often the thread of a check looks.
const PERIOD: Duration = Duration::from_millis(25);
/// How long the end of the device, or of the process, waits for a report at most.
const PATIENCE: Duration = Duration::from_secs(3);
/// Checks at a time.
const MOST: usize = 4;
/// Queue pairs whose requests of before are passed over; of further ones nothing is known.
const MAX_QPS: usize = 1 << 16;
/// Objects have addresses that no pointer of the program has.
const NO_ADDRESS: u64 = 1 << 63;

/// What checks a device while another process wants it.
pub(crate) struct LiveChecks {
    device: usize,
    /// Its addresses when it was opened: what is connected to them is in this process.
    addresses: Arc<[IpAddr]>,
    events: Weak<Subscribers>,
    going: Vec<Weak<Visit>>,
}

/// A check for a while.
struct Visit {
    file: String,
    addresses: Arc<[IpAddr]>,
    told: CheckSubscriber,
    unseen: Mutex<HashMap<u32, Unseen>>,
    /// It is to end before its time.
    ends: AtomicBool,
    is_written: AtomicBool,
}

/// Requests of before that have not completed.
#[derive(Debug, Clone, Copy, Default)]
struct Unseen {
    sends: u64,
    receives: u32,
}

impl LiveChecks {
    /// Of the device with this index among the devices.
    pub(crate) fn new(device: usize, addresses: Arc<[IpAddr]>, events: &Arc<Subscribers>) -> LiveChecks {
        LiveChecks { device, addresses, events: Arc::downgrade(events), going: Vec::new() }
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
        if self.going.len() >= MOST {
            return Err("it is checked by as many already as may do so: try again later".to_owned());
        }
        let file = open(path).map_err(|error| format!("{path} cannot be written: {error}"))?;
        let checker = Arc::new(Mutex::new(new_checker()));
        let told = CheckSubscriber { checker, device: of_device(Some(self.device)) };
        let unseen = holding(|| told.finds(now, &self.addresses));
        let visit = Arc::new(Visit {
            file: path.to_owned(),
            addresses: Arc::clone(&self.addresses),
            told,
            unseen: Mutex::new(unseen),
            ends: AtomicBool::new(false),
            is_written: AtomicBool::new(false),
        });
        let guest = Arc::clone(&visit);
        let number =
            events.join(guest).ok_or("it is recorded by as many already as may do so: try again later")?;
        let (own, of) = (Arc::clone(&visit), self.events.clone());
        let begun = outside::now();
        let run = move || {
            while outside::since(begun) < time && !own.ends.load(Ordering::Relaxed) {
                outside::sleep(PERIOD.min(time));
                let _ = holding(|| lock(&own.told.checker).settle(false));
            }
            if let Some(events) = of.upgrade() {
                events.leave(number);
            }
            // A disk that is full must not end the program; the one that asked sees that the end is missing.
            let _ = own.write(&file, format);
            own.is_written.store(true, Ordering::Release);
        };
        if let Err(error) = outside::thread::start_without_signals("pumice-check", run) {
            events.leave(number);
            return Err(format!("no thread is to be had: {error}"));
        }
        self.going.push(Arc::downgrade(&visit));
        Ok(())
    }
}

/// The file of a report, which begins with marks: the last of them says that the report is whole.
fn open(path: &str) -> io::Result<File> {
    let file = create_private(Path::new(path))?;
    file.set_len(0)?;
    file.write_all_at(Marks::UNFINISHED, 0)?;
    Ok(file)
}

fn new_checker() -> Checker {
    let mut checker = Checker::new(stack::capture, false);
    if on_demand_is_available() {
        checker.reads_memory_by(|ranges, out| read_mapped(own_process(), ranges, out));
        // SAFETY: as for the checker of programs that are started so: the payload of requests that the device
        // has taken lies in registered memory, which the device itself copies now.
        checker.reads_mapped_memory_by(|ranges, out| unsafe { read_registered(ranges, out) });
    }
    checker.knows_stacks_by(stack::own_stack);
    checker
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder for LiveChecks {
    fn obey(&mut self, order: &RecordOrder, now: &dyn Existing) -> Option<RecordAnswer> {
        self.going.retain(|going| going.strong_count() > 0);
        match order {
            RecordOrder::Check { file, for_ms, format } => {
                let file =
                    file.replace("%p", &own_process().to_string()).replace("%d", &self.device.to_string());
                let time = Duration::from_millis((*for_ms).min(MAX_RECORDING_MS));
                let begun = match Format::named(format) {
                    Some(format) => self.begin(&file, time, format, now),
                    None => Err(format!("it knows no format {format}: both sides have to be of one version")),
                };
                Some(RecordAnswer { file, refused: begun.err(), ..RecordAnswer::default() })
            }
            RecordOrder::End { file } => {
                let visit = self.going.iter().filter_map(Weak::upgrade).find(|visit| visit.file == *file)?;
                visit.ends.store(true, Ordering::Relaxed);
                Some(RecordAnswer { file: file.clone(), ..RecordAnswer::default() })
            }
            RecordOrder::Trace { .. } => None,
        }
    }
}

/// Tells a checker of a queue pair.
fn made(number: u32, ordinal: u32, service: &'static str, cqs: (u32, u32), capacity: QpCapacity) -> QpMade {
    let address = NO_ADDRESS | u64::from(number);
    let (send_cq, recv_cq) = (Some(cqs.0), Some(cqs.1));
    QpMade { address, number, ordinal, service, send_cq, recv_cq, capacity }
}

/// What finds the objects that are there.
trait Finds {
    /// Tells the checker of what there is; the requests that are under way, by the ordinals of queue pairs.
    fn finds(&self, now: &dyn Existing, addresses: &[IpAddr]) -> HashMap<u32, Unseen>;
}

impl Finds for CheckSubscriber {
    fn finds(&self, now: &dyn Existing, addresses: &[IpAddr]) -> HashMap<u32, Unseen> {
        let mut unseen = HashMap::new();
        let mut checker = lock(&self.checker);
        checker.on(self.device).finds(|checker| {
            now.regions(&mut |region| {
                let RegionNow { key, address, length, iova, stays_mapped } = *region;
                checker.hear(&Event::RegionRegistered { key, address, length, iova, stays_mapped });
            });
            now.queue_pairs(&mut |qp| {
                let QpNow { ordinal, qpn, send_cq, recv_cq, service, sends, receives, .. } = *qp;
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
                if unseen.len() < MAX_QPS && (sends > 0 || receives > 0) {
                    unseen.insert(ordinal, Unseen { sends, receives });
                }
            });
        });
        unseen
    }
}

impl Subscriber for Visit {
    fn topics(&self) -> Topics {
        self.told.topics()
    }

    fn hear(&self, at_ns: u64, event: &Event<'_>) {
        match event {
            Event::QpCreated { qp, service } => holding(|| {
                let cqs = (qp.send_cq, qp.recv_cq);
                let made = made(qp.qpn.value(), qp.ordinal, service, cqs, QpCapacity::default());
                let mut checker = lock(&self.told.checker);
                let checker = checker.on(self.told.device);
                checker.object_made(made.address, "queue pair", Call::ibv_create_qp.name());
                checker.qp_made(&made);
            }),
            Event::Qp { qp, event: QpEvent::Completed { completion, cq, released } } => {
                if let Some(released) = self.passes(qp.ordinal, completion.opcode.is_recv(), *released) {
                    let event = QpEvent::Completed { completion, cq: *cq, released };
                    self.told.hear(at_ns, &Event::Qp { qp, event: &event });
                }
            }
            Event::Qp { qp, event: QpEvent::StateChanged { to: QpState::Rtr, peer: Some(peer), .. } } => {
                if self.addresses.contains(&peer.address) {
                    holding(|| {
                        let mut checker = lock(&self.told.checker);
                        let checker = checker.on(self.told.device);
                        checker.qp_is_connected_here(qp.qpn.value(), peer.qpn.value());
                    });
                }
                self.told.hear(at_ns, event);
            }
            // A message comes for a receive of before.
            Event::Qp { qp, event: QpEvent::PacketReceived { .. } } if self.has_receives(qp.ordinal) => {}
            Event::Qp { qp, event: QpEvent::StateChanged { to: QpState::Reset, .. } }
            | Event::QpDestroyed { qp } => {
                lock(&self.unseen).remove(&qp.ordinal);
                self.told.hear(at_ns, event);
            }
            _ => self.told.hear(at_ns, event),
        }
    }

    /// Takes no lock. To look for symbols takes longer than others may take to settle, and the command waits
    /// for the report.
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

impl Visit {
    /// How many requests a completion ends that are known; `None`: none of them.
    fn passes(&self, qp: u32, is_receive: bool, released: u32) -> Option<u32> {
        let mut all = lock(&self.unseen);
        let Some(unseen) = all.get_mut(&qp) else { return Some(released) };
        if is_receive {
            let is_known = unseen.receives == 0;
            unseen.receives = unseen.receives.saturating_sub(1);
            return is_known.then_some(released);
        }
        let count = u64::from(released.max(1));
        let before = count.min(unseen.sends);
        unseen.sends -= before;
        Some(u32::try_from(count - before).unwrap_or(released)).filter(|known| *known > 0)
    }

    fn has_receives(&self, qp: u32) -> bool {
        lock(&self.unseen).get(&qp).is_some_and(|unseen| unseen.receives > 0)
    }

    /// Writes what was found; marks first, of which the last says that it is whole.
    fn write(&self, file: &File, format: Format) -> io::Result<()> {
        let (news, left_out) = holding(|| {
            let mut checker = lock(&self.told.checker);
            let _ = checker.settle(true);
            let findings = checker.findings();
            (findings.news(), findings.left_out())
        });
        let is_judged = |kind: &str| JUDGED_LIVE.iter().any(|one| one.name == kind);
        let news = news.into_iter().filter(|one| is_judged(one.kind.name));
        let entries: Vec<Entry> = news
            .map(|one| {
                let frames =
                    |addresses: &[u64]| place::looking(|| symbols::frames(addresses)).unwrap_or_default();
                Entry::new(one, frames)
            })
            .collect();
        let program = outside::environment::program().to_string_lossy().into_owned();
        let about = About { program, process: own_process(), is_whole: true, suppressed: 0, left_out };
        let text = match format {
            Format::Text => {
                let paragraphs: String = entries.iter().map(|entry| entry.paragraph() + "\n").collect();
                paragraphs + &summary(&entries, &about) + "\n"
            }
            _ => document(&entries, &about, format),
        };
        file.write_all_at(text.as_bytes(), Marks::UNFINISHED.len() as u64)?;
        let all: Vec<Marks> = entries.iter().map(Entry::marks).collect();
        file.write_all_at(&Marks::finished(&all), 0)
    }
}
