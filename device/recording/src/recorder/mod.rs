//! The recorder of traces: the history of every message, as a file (`--trace`).
//!
//! A [`TraceSubscriber`] subscribes to the device's events and records them in the compact form that
//! [`crate::format`] defines. The code that reads traces is in that crate, too.
//!
//! The file is bounded: beyond its limit records are counted and left out. A thread writes the records some
//! milliseconds later, so that a process that is killed leaves all but its last moments behind.
//!
//! The queue of records on their way to the file: they wait in memory for a few milliseconds, and a thread
//! encodes and writes them.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use pumice_platform::outside;
use pumice_platform::outside::system_call::within_limit;
use pumice_platform::outside::thread::start_without_signals;
use pumice_platform::spin_lock::{SpinLock, SpinLockGuard};

use self::waiting::{PacketPath, QueuedRecords, WaitingRecord, reuse, usual_list};
use crate::format::{CHANGING_AT, Encoder, Record, SECTION, TraceHeader};

/// Time that records wait, so that the thread is not woken for each. With the time of a write it stays below
/// 10 ms.
const GATHER: Duration = Duration::from_millis(4);
/// Number of bytes that are written at once.
const WRITE_BYTES: usize = 1 << 18;
/// Number of bytes of the limit that are reserved for what is written at the end.
const RESERVE_BYTES: u64 = 4096;
/// Time without records after which a record says that the process lives.
const BEAT: Duration = Duration::from_millis(500);
/// Time that the thread waits at a time while it has nothing to write, so that it notices that the process
/// had no processor.
const GLANCE: Duration = Duration::from_millis(50);
/// Delay of the thread from which on it concludes that the process had no processor.
const LATE: Duration = Duration::from_millis(20);
/// Time between two attempts to take a lock that must not be waited for.
const LOOK: Duration = Duration::from_millis(1);

/// The queue of records to a file.
struct TraceQueue {
    shared: Arc<TraceQueueShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Process that started the thread: a fork child has a copy of this without it.
    process: u32,
}

struct TraceQueueShared {
    /// Queued records. The lock is held for the copy of a record, and while no other lock is asked for.
    queued: SpinLock<QueuedRecords>,
    state: Mutex<WriterState>,
    /// Signal that there is something for the thread to do.
    wake: Condvar,
}

/// Tasks of the thread besides the records.
#[derive(Default)]
struct WriterState {
    /// The thread has to write at once.
    is_urgent: bool,
    is_ended: bool,
    /// The recording lasts for a limited time only.
    timed_recording: Option<TimedRecording>,
}

/// A recording that ends by itself.
struct TimedRecording {
    /// Time of the end, on the host's clock.
    until_ns: u64,
    /// Function that unsubscribes the recorder.
    leave: Box<dyn FnOnce() + Send>,
}

impl WriterState {
    /// Reports whether the thread has to write at once.
    fn hurries(&self) -> bool {
        self.is_urgent || self.is_ended || self.left_ns() == Some(0)
    }

    /// Returns how long the recording goes on, if it ends by itself.
    fn left_ns(&self) -> Option<u64> {
        let timed_recording = self.timed_recording.as_ref()?;
        Some(timed_recording.until_ns.saturating_sub(outside::time::monotonic_ns()))
    }
}

impl TraceQueue {
    /// Appends the header to the file, and starts the thread. `on_problem` takes a sentence at the end, if
    /// records are missing.
    ///
    /// # Errors
    /// Fails if the file cannot be written, or if no thread can be started.
    pub(crate) fn start(
        mut file: File,
        mut header: TraceHeader,
        on_problem: Box<dyn Fn(&str) + Send>,
    ) -> io::Result<TraceQueue> {
        let end = file.seek(SeekFrom::End(0))?;
        let section: &[u8] = if end == 0 { &[] } else { &[SECTION] };
        let bytes = header.emit();
        within_limit(|| file.write_all(&[section, bytes.as_slice()].concat()))?;
        let header_at = end + section.len() as u64;
        let mut queued = QueuedRecords::default();
        queued.swap(&mut usual_list());
        let (queued, state) = (SpinLock::new(queued), Mutex::default());
        let shared = Arc::new(TraceQueueShared { queued, state, wake: Condvar::new() });
        let own = Arc::clone(&shared);
        let run = move || {
            let file_bytes = header_at + bytes.len() as u64;
            let (encoder, bytes) = (Encoder::default(), Vec::with_capacity(WRITE_BYTES));
            // In a simulation or a world the process does not run by itself, so its records prove nothing
            // about its processor.
            let beats = header.monotonic_base_ns != 0 && !outside::world::is_in_world();
            let header = &mut header;
            let mut output = Output {
                file,
                file_bytes,
                encoder,
                bytes,
                omitted: 0,
                header_at,
                header,
                on_problem,
                reported: false,
                beats,
            };
            own.run(&mut output);
        };
        let thread = start_without_signals("pumice-trace", run)?;
        Ok(TraceQueue { shared, thread: Mutex::new(Some(thread)), process: outside::process::number() })
    }

    /// Queues a record. Never waits for the file.
    fn put(&self, at_ns: u64, record: &Record<'_>) {
        let mut fields = Vec::new();
        record.emit(&mut fields);
        let mut queued = self.shared.queued.lock();
        queued.put_emitted(at_ns, record.number(), fields);
        self.wake_if_idle(queued);
    }

    /// Queues a record without borrowed texts; the way of a packet is recorded before it, if it is new.
    ///
    /// It is inlined into its callers, so that the fields of a record are stored where it waits, and nowhere
    /// before, and without a call before that, for whose sake registers would be saved.
    #[inline(always)]
    fn put_value(
        &self,
        at_ns: u64,
        packet_path: impl Fn() -> Option<PacketPath>,
        record: impl Fn() -> Record<'static>,
    ) {
        if let Some(mut queued) = self.shared.queued.try_lock()
            && queued.takes_at_once(packet_path().as_ref())
        {
            queued.records.push(WaitingRecord::Value(at_ns, record()));
            return self.wake_if_idle(queued);
        }
        self.put_slowly(at_ns, packet_path(), record());
    }

    #[cold]
    #[inline(never)]
    fn put_slowly(&self, at_ns: u64, packet_path: Option<PacketPath>, record: Record<'static>) {
        let mut queued = self.shared.queued.lock();
        queued.put(at_ns, packet_path, record);
        self.wake_if_idle(queued);
    }

    #[inline(always)]
    fn wake_if_idle(&self, mut queued: SpinLockGuard<'_, QueuedRecords>) {
        if queued.is_idle {
            queued.is_idle = false;
            drop(queued);
            self.shared.wake_thread();
        }
    }

    /// Handles the destruction of a queue pair.
    fn forget(&self, qp: u32) {
        self.shared.queued.lock().forget(qp);
    }

    /// Has everything written, and waits for it, but not for longer than `patience`, and not for a lock: the
    /// process may be exiting in a signal handler.
    fn settle(&self, patience: Duration) {
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

    /// Limits the recording to this time, at whose end `leave` is called.
    fn limit_time(&self, time: Duration, leave: Box<dyn FnOnce() + Send>) {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = outside::time::monotonic_ns().saturating_add(time_ns);
        self.shared.lock().timed_recording = Some(TimedRecording { until_ns, leave });
        self.shared.wake.notify_one();
    }

    /// Ends such a recording now.
    fn end_recording(&self) {
        if let Some(timed_recording) = &mut self.shared.lock().timed_recording {
            timed_recording.until_ns = 0;
        }
        self.shared.wake.notify_one();
    }

    /// Has everything written, and ends the thread.
    fn finish(&self) {
        if self.process != outside::process::number() {
            return;
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            self.shared.lock().is_ended = true;
            self.shared.wake.notify_one();
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

/// State that only the thread uses.
struct Output<'a> {
    file: File,
    /// Length of the file, including the bytes that wait here.
    file_bytes: u64,
    encoder: Encoder,
    /// Encoded records that are not written yet.
    bytes: Vec<u8>,
    /// Number of records left out because of the limit.
    omitted: u64,
    /// Offset of the header in the file.
    header_at: u64,
    header: &'a mut TraceHeader,
    on_problem: Box<dyn Fn(&str) + Send>,
    reported: bool,
    /// The trace has records which say that the process lives.
    beats: bool,
}

impl TraceQueueShared {
    fn lock(&self) -> MutexGuard<'_, WriterState> {
        // A panic leaves a consistent state behind: a record waits or it does not.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, WriterState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Wakes the thread, which waits for something to do.
    #[cold]
    #[inline(never)]
    fn wake_thread(&self) {
        // Once this lock was taken, the thread either sleeps or has not checked yet.
        drop(self.lock());
        self.wake.notify_one();
    }

    /// Runs the thread: waits for records, gathers some more, writes them.
    fn run(&self, output: &mut Output<'_>) {
        let mut taken = usual_list();
        loop {
            let (mut state, late) = self.wait_for_work(output.clock_base_ns());
            if state.left_ns() == Some(0)
                && let Some(timed_recording) = state.timed_recording.take()
            {
                drop(state);
                // The records that came before are written in the last turn.
                (timed_recording.leave)();
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

    /// Reports whether nothing waits; then the next record wakes the thread.
    fn begins_to_idle(&self) -> bool {
        let mut queued = self.queued.lock();
        queued.is_idle = queued.records.is_empty();
        queued.is_idle
    }

    /// Waits for records and gathers some more. Returns how much later the thread went on than it meant to,
    /// if it was much.
    fn wait_for_work(&self, clock_base_ns: Option<u64>) -> (MutexGuard<'_, WriterState>, Option<Duration>) {
        let mut state = self.lock();
        let was_idle = self.begins_to_idle();
        let mut late = Duration::ZERO;
        if was_idle && !state.hurries() {
            (state, late) = self.wait_for_records(state, clock_base_ns.is_some());
        }
        self.queued.lock().is_idle = false;
        let gathers = |state: &mut WriterState| !state.hurries();
        let Some(base_ns) = clock_base_ns else {
            return (outside::wait_while(&self.wake, state, GATHER, gathers), None);
        };
        let before_ns = outside::time::monotonic_ns();
        let state = outside::wait_while(&self.wake, state, GATHER, gathers);
        // The thread had nothing to write and was woken by the first record.
        let first_ns = self.queued.lock().records.first().filter(|_| was_idle).map(WaitingRecord::at_ns);
        let woken_ns = first_ns.map_or(before_ns, |first| first.wrapping_add(base_ns).min(before_ns));
        let late_ns = outside::time::monotonic_ns().saturating_sub(woken_ns);
        let late = Duration::from_nanos(late_ns).saturating_sub(GATHER).max(late);
        (state, Some(late).filter(|late| *late >= LATE))
    }

    /// Waits for records; if the process `beats`, at most until a record has to say that it lives. Returns
    /// how much later than it meant to the thread went on.
    fn wait_for_records<'a>(
        &'a self,
        mut state: MutexGuard<'a, WriterState>,
        beats: bool,
    ) -> (MutexGuard<'a, WriterState>, Duration) {
        let idle = |state: &mut WriterState| self.queued.lock().is_idle && !state.hurries();
        if !beats {
            let state = self.wake.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
            return (state, Duration::ZERO);
        }
        let mut left = state.left_ns().map_or(BEAT, |left_ns| BEAT.min(Duration::from_nanos(left_ns)));
        let mut late = Duration::ZERO;
        // A delay is recorded at once, since its record says that it ends now.
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
    /// Encodes records, and writes them.
    fn write(&mut self, records: &[WaitingRecord]) -> io::Result<()> {
        for one in records {
            if self.is_full() {
                self.omitted += 1;
                continue;
            }
            let before = self.bytes.len();
            match one {
                WaitingRecord::Value(at_ns, record) => self.encoder.put(*at_ns, record, &mut self.bytes),
                WaitingRecord::Emitted(at_ns, number, fields) => {
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

    /// Returns the time of the host's clock at time 0 of the trace, if records say that the process lives.
    fn clock_base_ns(&self) -> Option<u64> {
        self.beats.then_some(self.header.monotonic_base_ns)
    }

    /// Adds a record of the thread itself, if there is a clock and room for it.
    fn note(&self, records: &mut Vec<WaitingRecord>, record: Record<'static>) {
        if let Some(base_ns) = self.clock_base_ns().filter(|_| !self.is_full()) {
            let at_ns = outside::time::monotonic_ns().wrapping_sub(base_ns);
            records.push(WaitingRecord::Value(at_ns, record));
        }
    }

    /// Reports whether the file has no room for another record.
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
            // Records that are missing from now on are reported here, and not again: neither those that were
            // queued before, nor those at the end.
            if !std::mem::replace(&mut self.reported, true) {
                (self.on_problem)(&format!(
                    "the trace ends here: it cannot be written: {error}; what comes from now on is missing \
                     in it"
                ));
            }
        })
    }

    /// Writes the numbers of missing records to the header, and reports them in a sentence at the end.
    fn account(&mut self, omitted: u64, lost: u64, is_end: bool) {
        let known = (self.header.omitted_records, self.header.lost_records, self.header.is_ended);
        if known != (omitted, lost, is_end) {
            (self.header.omitted_records, self.header.lost_records) = (omitted, lost);
            self.header.is_ended = is_end;
            // There is no caller to report the error to; the header then has older numbers.
            let _ = self.file.write_all_at(&self.header.changing(), self.header_at + CHANGING_AT);
        }
        if is_end && omitted + lost > 0 && !std::mem::replace(&mut self.reported, true) {
            (self.on_problem)(&missing(omitted, lost, self.header.limit_bytes));
        }
    }
}

/// Returns the sentence about the records that are missing in a trace.
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

mod fault_detail;
mod subscriber;

mod waiting;

pub use subscriber::{ClockBase, DEFAULT_LIMIT_BYTES, TraceFile, TraceNetwork, TraceSource, TraceSubscriber};
pub use waiting::create_private;

#[cfg(test)]
mod tests;
