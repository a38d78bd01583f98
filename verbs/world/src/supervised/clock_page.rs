//! A page of every program of a world, from which it reads clocks without a call.
//!
//! The page has the clock while a thread of the program runs: the supervisor writes it there before, and
//! takes it back when the thread stops. So one thread at a time has the clock, though each process has a
//! page. The same holds for points of a library at which another thread may continue (`points.rs`).

use nix::sys::signal::{Signal, kill};

use super::clock_code::{JUMP, code, functions, offset_of_call};
use super::points::{POINT_NS, READING_NS};
use super::stepper::{Stop, await_stop};
use super::supervisor::Supervisor;
use super::threads::{IDLE_THRESHOLD, ThreadId};
use super::tracee::{Registers, Tracee};

/// Maximum number of readings of clocks in a row without a stop.
const MAX_READINGS: u64 = 256;
/// Clocks of the kernel with an id below this may be read from the page.
const CLOCK_COUNT: i32 = 12;
const PAGE_BYTES: u64 = 4096;
/// Maximum time from one stop to the next, in ns.
const MAX_ADVANCE_NS: u64 = 1_000_000;

/// The words of the page that change from one stop to the next. The code in `clock_code.rs` and the library's
/// `outside::world_page` have the same order.
#[derive(Debug, Clone, Copy)]
struct ClockPageWords {
    now_ns: u64,
    readings_left: u64,
    points_left: u64,
    idle_polls: u64,
    idle_poll: u64,
    until_ns: u64,
    /// Number of calls in the world that send to a socket.
    sent: u64,
    news: News,
}

/// What the library has done since the last stop, in a world of exact time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct News {
    /// Packets that were handed over to other processes, as `occasions.rs` reads it.
    handed_over: u64,
    /// Not 0: packets came, or a timer ran.
    has_progressed: u64,
    /// Not 0: the program has begun a call that ends with a hint.
    has_begun_call: u64,
}

/// Number of the words that change.
const CHANGING_WORDS: usize = 7;
const READING_COST_WORD: usize = 7;
const POINT_COST_WORD: usize = 8;
const IDLE_THRESHOLD_WORD: usize = 9;
const CLOCK_BASES_WORD: usize = 10;
/// Word for packets that the library has handed over, as `occasions.rs` reads it.
const HANDED_OVER_WORD: usize = CLOCK_BASES_WORD + CLOCK_COUNT as usize;
/// Number of words that the library alone writes, from that one.
const NEWS_WORDS: usize = 3;
const PAGE_WORDS: usize = HANDED_OVER_WORD + NEWS_WORDS;

impl ClockPageWords {
    fn bytes(self) -> [u8; CHANGING_WORDS * 8] {
        let ClockPageWords {
            now_ns, readings_left, points_left, idle_polls, idle_poll, until_ns, sent, ..
        } = self;
        let words = [now_ns, readings_left, points_left, idle_polls, idle_poll, until_ns, sent];
        let mut bytes = [0; CHANGING_WORDS * 8];
        bytes.copy_from_slice(words.map(u64::to_ne_bytes).as_flattened());
        bytes
    }

    fn of_bytes(bytes: &[u8; PAGE_WORDS * 8]) -> ClockPageWords {
        let mut words = [0; PAGE_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let [now_ns, readings_left, points_left, idle_polls, idle_poll, until_ns, sent, .., a, b, c] = words;
        let news = News { handed_over: a, has_progressed: b, has_begun_call: c };
        ClockPageWords { now_ns, readings_left, points_left, idle_polls, idle_poll, until_ns, sent, news }
    }
}

impl Supervisor {
    /// Maps the page into a program that begins, and puts the code in place of the vDSO's functions. If that
    /// fails, the program makes calls to read clocks.
    pub(crate) fn install_clock_page(&self, tracee: Tracee, vdso: u64) -> Option<u64> {
        let found = functions(tracee, vdso)?;
        let code_at = vdso.wrapping_add(found.code_at);
        tracee.put_code(code_at, code()).ok()?;
        let page = map_page(tracee, code_at.wrapping_add(offset_of_call()))?;
        let address_at = code_at.wrapping_add(code().len() as u64 - 8);
        tracee.put_code(address_at, &page.to_ne_bytes()).ok()?;
        for (from, to) in &found.jumps {
            let distance = i32::try_from(*to as i64 - (*from as i64 + JUMP as i64)).ok()?;
            let [a, b, c, d] = distance.to_ne_bytes();
            tracee.put_code(vdso.wrapping_add(*from), &[0xe9, a, b, c, d]).ok()?;
        }
        let reading_ns = if self.options.exact_time { 0 } else { READING_NS };
        let mut words = [0_u64; PAGE_WORDS];
        (words[READING_COST_WORD], words[POINT_COST_WORD], words[IDLE_THRESHOLD_WORD]) =
            (reading_ns, POINT_NS, u64::from(IDLE_THRESHOLD));
        for (clock, word) in (0..CLOCK_COUNT).zip(words.iter_mut().skip(CLOCK_BASES_WORD)) {
            *word =
                self.time.clock.of(clock).map_or(u64::MAX, |shown_ns| shown_ns - self.time.clock.now_ns());
        }
        tracee.write(page, words.map(u64::to_ne_bytes).as_flattened()).ok()?;
        Some(page)
    }

    /// Writes the clock into the page of a thread that is about to run in its program.
    pub(crate) fn publish_clock(&mut self, id: ThreadId) {
        self.begin_computing(id);
        let Some((tracee, page)) = self.page_of(id) else { return };
        let is_exact = self.is_exact();
        let points_left = u64::from(self.grant_points(id));
        let Some(thread) = self.threads.get(id) else { return };
        let page_words = ClockPageWords {
            now_ns: self.time.clock.now_ns(),
            readings_left: MAX_READINGS,
            points_left,
            idle_polls: if is_exact { 0 } else { u64::from(thread.polls.idle_polls) },
            idle_poll: u64::from(thread.polls.idle_poll),
            // Only points that pass without a stop need it.
            until_ns: if is_exact { u64::MAX } else { self.next_ns().unwrap_or(u64::MAX) },
            sent: self.network.sent,
            news: News::default(),
        };
        // The process may have ended.
        let _ = tracee.write(page, &page_words.bytes());
    }

    /// Takes the clock back from the page of a thread that has stopped.
    pub(crate) fn reclaim_clock(&mut self, id: ThreadId) {
        self.end_computing(id);
        let Some((tracee, page)) = self.page_of(id) else { return };
        let mut bytes = [0; PAGE_WORDS * 8];
        if tracee.read(page, &mut bytes).is_err() {
            return;
        }
        let taken = ClockPageWords::of_bytes(&bytes);
        self.reclaim_points(id, u32::try_from(taken.points_left).unwrap_or(u32::MAX));
        // A program may write to the page: the clock never goes back, or further ahead than one stop can be
        // from the next.
        let most_ns = self.time.clock.now_ns().saturating_add(MAX_ADVANCE_NS);
        self.time.clock.reach(taken.now_ns.min(most_ns));
        if self.is_exact() {
            if taken.news != News::default() {
                self.take_news(id, taken.news);
                let at = page.wrapping_add(HANDED_OVER_WORD as u64 * 8);
                let _ = tracee.write(at, &[0; NEWS_WORDS * 8]);
            }
            return;
        }
        if let Some(thread) = self.threads.get_mut(id) {
            thread.polls.idle_polls = u32::try_from(taken.idle_polls).unwrap_or(u32::MAX);
            thread.polls.idle_poll = taken.idle_poll != 0;
        }
    }

    /// Notes what the library has done without a hint.
    fn take_news(&mut self, id: ThreadId, news: News) {
        self.turns.occasions.handed_over(news.handed_over);
        if news.has_progressed != 0 {
            self.turns.occasions.on_host(self.threads.host(id));
        }
        if news.has_begun_call != 0 {
            self.begins_call(id);
        }
    }

    /// Returns the thread, and the address of its process's page, if there is one.
    pub(crate) fn page_of(&self, id: ThreadId) -> Option<(Tracee, u64)> {
        let thread = self.threads.get(id)?;
        Some((thread.tracee, self.threads.processes.get(&thread.process)?.page?))
    }
}

/// Maps a page in a program that is stopped before its first instruction; `call` is the address of a call
/// instruction.
fn map_page(tracee: Tracee, call: u64) -> Option<u64> {
    let before = tracee.registers().ok()?;
    let mapping = Registers {
        rip: call,
        rax: libc::SYS_mmap as u64,
        orig_rax: u64::MAX,
        rdi: 0,
        rsi: PAGE_BYTES,
        rdx: (libc::PROT_READ | libc::PROT_WRITE) as u64,
        r10: (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64,
        r8: u64::MAX,
        r9: 0,
        ..before
    };
    tracee.set_registers(mapping).ok()?;
    let mut later = Vec::new();
    loop {
        tracee.resume(None).ok()?;
        match await_stop(tracee).ok()? {
            Stop::Signal(Signal::SIGTRAP) => break,
            // The program gets the signal when it runs.
            Stop::Signal(signal) => later.push(signal),
            Stop::Exited(_) => return None,
            _ => {}
        }
    }
    let mapped = tracee.registers().ok()?.rax;
    tracee.set_registers(before).ok()?;
    for signal in later {
        let _ = kill(tracee.0, signal);
    }
    // The kernel returns errors as small negative numbers.
    (mapped as i64 > 0).then_some(mapped)
}
