//! Records on their way to the file: they wait in memory for a few milliseconds, and a thread makes bytes of
//! them and writes those.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use pumice_ground::brief_lock::{Brief, BriefLock};
use pumice_ground::outside;
use pumice_ground::outside::thread::start_without_signals;
use pumice_ground::outside::unsignalled::within_limit;
use pumice_traces::format::{CHANGING_AT, Encoder, Record, SECTION, TraceHeader};

use super::waiting::{Queued, Waiting, reuse, usual_list};
use super::ways::Way;

/// How long records wait, so that the thread is not woken for each. With the time of a write it stays below
/// 10 ms.
const GATHER: Duration = Duration::from_millis(4);
/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 18;
/// Bytes that are kept of the limit for what is written at the end.
const RESERVE_BYTES: u64 = 4096;
/// How long nothing happens until a record says that the process lives.
const BEAT: Duration = Duration::from_millis(500);
/// How long the thread that has nothing to write waits at a time, so that it notices that the process had no
/// processor.
const GLANCE: Duration = Duration::from_millis(50);
/// If the thread goes on so much later than it meant to, the process had no processor.
const LATE: Duration = Duration::from_millis(20);
/// Between two looks at a lock that must not be waited for.
const LOOK: Duration = Duration::from_millis(1);

/// The way of records to a file.
pub(super) struct TraceQueue {
    shared: Arc<SharedQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Who started the thread: a fork child has a copy of this without it.
    process: u32,
}

struct SharedQueue {
    /// Held for the copy of a record, and while no other lock is asked for.
    queued: BriefLock<Queued>,
    state: Mutex<State>,
    /// There is something for the thread to do.
    wake: Condvar,
}

/// What the thread is to do besides.
#[derive(Default)]
struct State {
    /// The thread is to write at once.
    is_urgent: bool,
    is_ended: bool,
    /// It records for a while only.
    visit: Option<Visit>,
}

/// A recording that ends by itself.
struct Visit {
    /// When, on the host's clock.
    until_ns: u64,
    /// Lets it hear no more.
    leave: Box<dyn FnOnce() + Send>,
}

impl State {
    /// The thread has to write at once.
    fn hurries(&self) -> bool {
        self.is_urgent || self.is_ended || self.left_ns() == Some(0)
    }

    /// How long the recording goes on, if it ends by itself.
    fn left_ns(&self) -> Option<u64> {
        let visit = self.visit.as_ref()?;
        Some(visit.until_ns.saturating_sub(outside::time::monotonic_ns()))
    }
}

impl TraceQueue {
    /// Appends the header to the file, and starts the thread. `say` takes a sentence at the end, if records
    /// are missing.
    ///
    /// # Errors
    /// The file cannot be written, or there is no thread to be had.
    pub(crate) fn start(
        mut file: File,
        mut header: TraceHeader,
        say: Box<dyn Fn(&str) + Send>,
    ) -> io::Result<TraceQueue> {
        let end = file.seek(SeekFrom::End(0))?;
        let section: &[u8] = if end == 0 { &[] } else { &[SECTION] };
        let bytes = header.emit();
        within_limit(|| file.write_all(&[section, bytes.as_slice()].concat()))?;
        let header_at = end + section.len() as u64;
        let mut queued = Queued::default();
        queued.swap(&mut usual_list());
        let (queued, state) = (BriefLock::new(queued), Mutex::default());
        let shared = Arc::new(SharedQueue { queued, state, wake: Condvar::new() });
        let own = Arc::clone(&shared);
        let run = move || {
            let file_bytes = header_at + bytes.len() as u64;
            let (encoder, bytes) = (Encoder::default(), Vec::with_capacity(WRITE_BYTES));
            // Neither in a simulation nor in a world does a process live by itself.
            let beats = header.monotonic_base_ns != 0 && !outside::world::is_here();
            let header = &mut header;
            let mut output = Output {
                file,
                file_bytes,
                encoder,
                bytes,
                omitted: 0,
                header_at,
                header,
                say,
                said: false,
                beats,
            };
            own.run(&mut output);
        };
        let thread = start_without_signals("pumice-trace", run)?;
        Ok(TraceQueue { shared, thread: Mutex::new(Some(thread)), process: outside::process::number() })
    }

    /// Something happened. Never waits for the file.
    pub(super) fn put(&self, at_ns: u64, record: &Record<'_>) {
        let mut fields = Vec::new();
        record.emit(&mut fields);
        let mut queued = self.shared.queued.lock();
        queued.put_emitted(at_ns, record.number(), fields);
        self.wake_if_idle(queued);
    }

    /// The same of a record without texts of others; the way of a packet comes before it, if it is new.
    ///
    /// Part of its callers, and made here, so that the fields of a record are stored where it waits, and
    /// nowhere before; and without a call before that, for whose sake registers would be saved.
    #[inline(always)]
    pub(super) fn put_value(
        &self,
        at_ns: u64,
        way: impl Fn() -> Option<Way>,
        record: impl Fn() -> Record<'static>,
    ) {
        if let Some(mut queued) = self.shared.queued.try_lock()
            && queued.takes_at_once(way().as_ref())
        {
            queued.records.push(Waiting::Value(at_ns, record()));
            return self.wake_if_idle(queued);
        }
        self.put_slowly(at_ns, way(), record());
    }

    #[cold]
    #[inline(never)]
    fn put_slowly(&self, at_ns: u64, way: Option<Way>, record: Record<'static>) {
        let mut queued = self.shared.queued.lock();
        queued.put(at_ns, way, record);
        self.wake_if_idle(queued);
    }

    #[inline(always)]
    fn wake_if_idle(&self, mut queued: Brief<'_, Queued>) {
        if queued.is_idle {
            queued.is_idle = false;
            drop(queued);
            self.shared.wake_thread();
        }
    }

    /// A queue pair was destroyed.
    pub(super) fn forget(&self, qp: u32) {
        self.shared.queued.lock().forget(qp);
    }

    /// Has everything written, and waits for it, but not for longer than `patience`, and not for a lock: the
    /// process may be exiting in a signal handler.
    pub(super) fn settle(&self, patience: Duration) {
        if self.process != outside::process::number() {
            return;
        }
        let end = outside::now() + patience;
        let mut is_asked = false;
        while outside::now() < end {
            if let Some(mut state) = self.shared.try_lock() {
                if is_asked && !state.is_urgent {
                    return;
                }
                state.is_urgent = true;
                is_asked = true;
                self.shared.wake.notify_one();
            }
            outside::sleep(LOOK);
        }
    }

    /// The recording ends after this time, before which `leave` is called.
    pub(super) fn stays(&self, time: Duration, leave: Box<dyn FnOnce() + Send>) {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = outside::time::monotonic_ns().saturating_add(time_ns);
        self.shared.lock().visit = Some(Visit { until_ns, leave });
        self.shared.wake.notify_one();
    }

    /// It ends now.
    pub(super) fn goes(&self) {
        if let Some(visit) = &mut self.shared.lock().visit {
            visit.until_ns = 0;
        }
        self.shared.wake.notify_one();
    }

    /// Has everything written, and ends the thread.
    pub(super) fn finish(&self) {
        if self.process != outside::process::number() {
            return;
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            self.shared.lock().is_ended = true;
            self.shared.wake.notify_one();
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// What the thread has for itself.
struct Output<'a> {
    file: File,
    /// Bytes of the file, with those that wait here.
    file_bytes: u64,
    encoder: Encoder,
    /// Records as bytes, before they are written.
    bytes: Vec<u8>,
    /// Left out because of the limit.
    omitted: u64,
    /// Where the header is in the file.
    header_at: u64,
    header: &'a mut TraceHeader,
    say: Box<dyn Fn(&str) + Send>,
    said: bool,
    /// Records say that the process lives.
    beats: bool,
}

impl SharedQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // What a panic leaves behind is whole: a record waits or it does not.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// There is something for the thread, which waits.
    #[cold]
    #[inline(never)]
    fn wake_thread(&self) {
        // Once this lock was had, the thread either sleeps or has not looked yet.
        drop(self.lock());
        self.wake.notify_one();
    }

    /// The thread: waits for records, gathers some more, writes them.
    fn run(&self, output: &mut Output<'_>) {
        let mut taken = usual_list();
        loop {
            let (mut state, late) = self.wait_for_work(output.clock_base_ns());
            if state.left_ns() == Some(0)
                && let Some(visit) = state.visit.take()
            {
                drop(state);
                // What it had heard before is written in the last turn.
                (visit.leave)();
                self.lock().is_ended = true;
                continue;
            }
            let (is_urgent, is_ended) = (state.is_urgent, state.is_ended);
            drop(state);
            let mut queued = self.queued.lock();
            queued.swap(&mut taken);
            let (omitted, lost) = (queued.omitted, queued.lost);
            drop(queued);
            if let Some(late) = late {
                output.note(&mut taken, Record::Stalled { late_ns: late.as_nanos() as u64 });
            }
            if taken.is_empty() || is_urgent || is_ended {
                output.note(&mut taken, Record::Alive {});
            }
            let result = output.write(&taken);
            reuse(&mut taken);
            output.account(omitted + output.omitted, lost, is_urgent || is_ended);
            self.queued.lock().note_file(output.is_full(), result.is_err());
            if is_urgent {
                self.lock().is_urgent = false;
            }
            if is_ended {
                return;
            }
        }
    }

    /// Whether nothing waits: then the next record wakes the thread.
    fn begins_to_idle(&self) -> bool {
        let mut queued = self.queued.lock();
        queued.is_idle = queued.records.is_empty();
        queued.is_idle
    }

    /// Waits for records and gathers some more; says how much later the thread went on than it meant to, if
    /// it was much.
    fn wait_for_work(&self, clock_base_ns: Option<u64>) -> (MutexGuard<'_, State>, Option<Duration>) {
        let mut state = self.lock();
        let was_idle = self.begins_to_idle();
        let mut late = Duration::ZERO;
        if was_idle && !state.hurries() {
            (state, late) = self.wait_for_records(state, clock_base_ns.is_some());
        }
        self.queued.lock().is_idle = false;
        let gathers = |state: &mut State| !state.hurries();
        let Some(base_ns) = clock_base_ns else {
            return (outside::wait_while(&self.wake, state, GATHER, gathers), None);
        };
        let before_ns = outside::time::monotonic_ns();
        let state = outside::wait_while(&self.wake, state, GATHER, gathers);
        // The writer that had nothing to write was woken by the first record.
        let first_ns = self.queued.lock().records.first().filter(|_| was_idle).map(Waiting::at_ns);
        let woken_ns = first_ns.map_or(before_ns, |first| first.wrapping_add(base_ns).min(before_ns));
        let late_ns = outside::time::monotonic_ns().saturating_sub(woken_ns);
        let late = Duration::from_nanos(late_ns).saturating_sub(GATHER).max(late);
        (state, Some(late).filter(|late| *late >= LATE))
    }

    /// Waits for records, if the process `beats` until it has to say that it lives; how much later than it
    /// meant to it went on.
    fn wait_for_records<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        beats: bool,
    ) -> (MutexGuard<'a, State>, Duration) {
        let idle = |state: &mut State| self.queued.lock().is_idle && !state.hurries();
        if !beats {
            let state = self.wake.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
            return (state, Duration::ZERO);
        }
        let mut left = state.left_ns().map_or(BEAT, |left_ns| BEAT.min(Duration::from_nanos(left_ns)));
        let mut late = Duration::ZERO;
        // What is late is noted at once, since it is noted as having ended now.
        while late < LATE && !left.is_zero() && idle(&mut state) {
            let (turn, begun) = (left.min(GLANCE), outside::now());
            state = outside::wait_while(&self.wake, state, turn, idle);
            late = outside::since(begun).saturating_sub(turn);
            left = left.saturating_sub(turn);
        }
        (state, late)
    }
}

impl Output<'_> {
    /// Makes bytes of records, and writes them.
    fn write(&mut self, records: &[Waiting]) -> io::Result<()> {
        for one in records {
            if self.is_full() {
                self.omitted += 1;
                continue;
            }
            let before = self.bytes.len();
            match one {
                Waiting::Value(at_ns, record) => self.encoder.put(*at_ns, record, &mut self.bytes),
                Waiting::Emitted(at_ns, number, fields) => {
                    self.encoder.put_emitted(*at_ns, *number, fields, &mut self.bytes);
                }
            }
            self.file_bytes += (self.bytes.len() - before) as u64;
            if self.bytes.len() >= WRITE_BYTES {
                self.flush()?;
            }
        }
        self.flush()
    }

    /// What the host's clock says at time 0 of the trace, if records say that the process lives.
    fn clock_base_ns(&self) -> Option<u64> {
        self.beats.then_some(self.header.monotonic_base_ns)
    }

    /// Adds what the thread itself has to say, if there is a clock and room for it.
    fn note(&self, records: &mut Vec<Waiting>, record: Record<'static>) {
        if let Some(base_ns) = self.clock_base_ns().filter(|_| !self.is_full()) {
            let at_ns = outside::time::monotonic_ns().wrapping_sub(base_ns);
            records.push(Waiting::Value(at_ns, record));
        }
    }

    /// Whether the file has no room for another record.
    const fn is_full(&self) -> bool {
        self.file_bytes + RESERVE_BYTES >= self.header.limit_bytes
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        // This thread gets no signals, so that a limit on the size of files is an error.
        let written = self.file.write_all(&self.bytes);
        self.bytes.clear();
        written.inspect_err(|error| {
            // What is missing from now on is said here, and not again: neither for records that were
            // queued before, nor at the end.
            if !std::mem::replace(&mut self.said, true) {
                (self.say)(&format!(
                    "the trace ends here: it cannot be written: {error}; what comes from now on is missing \
                     in it"
                ));
            }
        })
    }

    /// Says in the header what is missing, and at the end in a sentence.
    fn account(&mut self, omitted: u64, lost: u64, is_end: bool) {
        let known = (self.header.omitted_records, self.header.lost_records, self.header.is_ended);
        if known != (omitted, lost, is_end) {
            (self.header.omitted_records, self.header.lost_records) = (omitted, lost);
            self.header.is_ended = is_end;
            // There is no caller to be told; the header then says less.
            let _ = self.file.write_all_at(&self.header.changing(), self.header_at + CHANGING_AT);
        }
        if is_end && omitted + lost > 0 && !std::mem::replace(&mut self.said, true) {
            (self.say)(&missing(omitted, lost, self.header.limit_bytes));
        }
    }
}

/// What is missing in a trace, in a sentence.
fn missing(omitted: u64, lost: u64, limit_bytes: u64) -> String {
    let mut parts = Vec::new();
    if omitted > 0 {
        parts.push(format!(
            "{omitted} records were left out, because it has reached its limit of {} MiB: \
             give it more room with --trace-limit",
            limit_bytes >> 20
        ));
    }
    if lost > 0 {
        parts.push(format!("{lost} records came faster than they could be written"));
    }
    format!("the trace is not complete: {}", parts.join("; "))
}
