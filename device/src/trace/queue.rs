//! Records on their way to the file: they wait in memory for a few milliseconds, and a thread writes them.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::encode::Encoder;
use super::header::{CHANGING_AT, TraceHeader};
use super::record::Record;
use super::ways::{Way, Ways};
use crate::ground::thread::start_without_signals;

/// Bytes that wait to be written at most; beyond that records are lost, and counted.
const WAITING_BYTES: usize = 8 << 20;
/// How long records wait, so that the thread is not woken for each. With the time of a write it stays below
/// 10 ms.
const GATHER: Duration = Duration::from_millis(4);
/// Bytes that are kept of the limit for what is written at the end.
const RESERVE_BYTES: u64 = 4096;
/// Between two looks at a lock that must not be waited for.
const LOOK: Duration = Duration::from_millis(1);

/// The way of records to a file.
pub(super) struct TraceQueue {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Who started the thread: a fork child has a copy of this without it.
    process: u32,
}

struct Shared {
    state: Mutex<State>,
    /// There is something for the thread to do.
    wake: Condvar,
}

#[derive(Default)]
struct State {
    encoder: Encoder,
    ways: Ways,
    waiting: Vec<u8>,
    /// Bytes of the file, with those that wait.
    file_bytes: u64,
    limit_bytes: u64,
    /// Left out because of the limit.
    omitted: u64,
    /// Lost because they came too fast, or could not be written.
    lost: u64,
    /// Of these, those that no record has told of yet.
    untold: u64,
    /// The thread waits for something to do.
    is_idle: bool,
    /// The thread is to write at once.
    is_urgent: bool,
    is_ended: bool,
    has_failed: bool,
}

impl State {
    fn put(&mut self, at_ns: u64, record: &Record<'_>) {
        if self.has_failed || self.waiting.len() >= WAITING_BYTES {
            self.lost += 1;
            self.untold += 1;
            return;
        }
        if self.file_bytes + RESERVE_BYTES >= self.limit_bytes {
            self.omitted += 1;
            return;
        }
        let before = self.waiting.len();
        if self.untold > 0 {
            let lost = Record::Lost { records: std::mem::take(&mut self.untold) };
            self.encoder.put(at_ns, &lost, &mut self.waiting);
        }
        self.encoder.put(at_ns, record, &mut self.waiting);
        self.file_bytes += (self.waiting.len() - before) as u64;
    }
}

impl TraceQueue {
    /// Appends the header to the file, and starts the thread. `say` takes a sentence at the end, if records
    /// are missing.
    ///
    /// # Errors
    /// The file cannot be written, or there is no thread to be had.
    pub(super) fn start(
        mut file: File,
        mut header: TraceHeader,
        say: Box<dyn Fn(&str) + Send>,
    ) -> io::Result<TraceQueue> {
        let end = file.seek(SeekFrom::End(0))?;
        let section: &[u8] = if end == 0 { &[] } else { &[super::encode::SECTION] };
        let bytes = header.emit();
        file.write_all(&[section, bytes.as_slice()].concat())?;
        let header_at = end + section.len() as u64;
        let state = State {
            waiting: Vec::with_capacity(1 << 18),
            file_bytes: header_at + bytes.len() as u64,
            limit_bytes: header.limit_bytes,
            ..State::default()
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), wake: Condvar::new() });
        let own = Arc::clone(&shared);
        let run = move || own.run(&mut Output { file, header_at, header: &mut header, say, said: false });
        let thread = start_without_signals("pumice-trace", run)?;
        Ok(TraceQueue { shared, thread: Mutex::new(Some(thread)), process: std::process::id() })
    }

    /// Something happened. Never waits for the file.
    pub(super) fn put(&self, at_ns: u64, record: &Record<'_>) {
        self.put_on_way(at_ns, None, record);
    }

    /// The same; the way of a packet comes before it, if it is new.
    pub(super) fn put_on_way(&self, at_ns: u64, way: Option<Way>, record: &Record<'_>) {
        let mut state = self.shared.lock();
        if let Some(change) = way.and_then(|way| state.ways.note(way)) {
            state.put(at_ns, &change);
        }
        state.put(at_ns, record);
        if std::mem::replace(&mut state.is_idle, false) {
            drop(state);
            self.shared.wake.notify_one();
        }
    }

    /// A queue pair was destroyed.
    pub(super) fn forget(&self, qp: u32) {
        self.shared.lock().ways.forget(qp);
    }

    /// Has everything written, and waits for it, but not for longer than `patience`, and not for a lock: the
    /// process may be exiting in a signal handler.
    pub(super) fn settle(&self, patience: Duration) {
        if self.process != std::process::id() {
            return;
        }
        let end = Instant::now() + patience;
        let mut is_asked = false;
        while Instant::now() < end {
            if let Some(mut state) = self.shared.try_lock() {
                if is_asked && !state.is_urgent {
                    return;
                }
                state.is_urgent = true;
                is_asked = true;
                self.shared.wake.notify_one();
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Has everything written, and ends the thread.
    pub(super) fn finish(&self) {
        if self.process != std::process::id() {
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
    /// Where the header is in the file.
    header_at: u64,
    header: &'a mut TraceHeader,
    say: Box<dyn Fn(&str) + Send>,
    said: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside of the encoder leaves half a record, which readers find out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The thread: waits for records, gathers some more, writes them.
    fn run(&self, output: &mut Output<'_>) {
        let mut spare = Vec::with_capacity(1 << 18);
        loop {
            let mut state = self.wait_for_work();
            std::mem::swap(&mut state.waiting, &mut spare);
            let (is_urgent, is_ended) = (state.is_urgent, state.is_ended);
            let (omitted, lost) = (state.omitted, state.lost);
            drop(state);
            let result = output.write(&spare);
            spare.clear();
            output.account(omitted, lost, is_urgent || is_ended);
            let mut state = self.lock();
            state.has_failed |= result.is_err();
            if is_urgent {
                state.is_urgent = false;
            }
            drop(state);
            if is_ended {
                return;
            }
        }
    }

    fn wait_for_work(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        let hurries = |state: &State| state.is_urgent || state.is_ended;
        if state.waiting.is_empty() && !hurries(&state) {
            state.is_idle = true;
            let idle = |state: &mut State| state.is_idle && !hurries(state);
            state = self.wake.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_idle = false;
        let gathers = |state: &mut State| !hurries(state);
        let gathered = self.wake.wait_timeout_while(state, GATHER, gathers);
        gathered.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.file.write_all(bytes).inspect_err(|error| {
            (self.say)(&format!(
                "the trace ends here: it cannot be written: {error}; what comes from now on is missing in it"
            ));
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
