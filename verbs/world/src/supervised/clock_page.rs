//! A page of every program of a world, by which it reads clocks without a call.
//!
//! It has the clock while a thread of the program runs: the supervisor writes it there before, and takes it
//! from there when the thread stops. So one thread at a time has the clock, though each process has a page.
//! The same holds for points of a library at which another thread may go on (`points.rs`).

use nix::sys::signal::{Signal, kill};

use super::clock_code::{code, offset_of_call};
use super::points::POINT_NS;
use super::stop::{Stop, await_stop};
use super::supervisor::Supervisor;
use super::threads::{ThreadId, VAIN};
use super::tracee::{Registers, Tracee};
use super::vdso::{JUMP, functions};

/// Readings of clocks in a row without a stop.
const READINGS: u64 = 256;
/// What each takes, in ns of the world.
const READING_NS: u64 = 50;
/// Clocks of the kernel with a number below this may be read by the page.
const CLOCKS: i32 = 12;
const PAGE_BYTES: u64 = 4096;
/// The time from one stop to the next at most, in ns.
const MOST_NS: u64 = 1_000_000;

/// The words of the page that change from one stop to the next. The code in `clock_code.rs` and the library's
/// `outside::world_page` have the same order.
#[derive(Debug, Clone, Copy)]
struct Lent {
    now_ns: u64,
    readings_left: u64,
    points_left: u64,
    vain: u64,
    looked_in_vain: u64,
    until_ns: u64,
    /// What was sent in the world.
    sent: u64,
}

/// How many they are, those behind them, and the first of what clocks show when the world begins.
const CHANGING: usize = 7;
const READING: usize = 7;
const POINT: usize = 8;
const MOST_VAIN: usize = 9;
const BASES: usize = 10;
const WORDS: usize = BASES + CLOCKS as usize;

impl Lent {
    fn bytes(self) -> [u8; CHANGING * 8] {
        let Lent { now_ns, readings_left, points_left, vain, looked_in_vain, until_ns, sent } = self;
        let words = [now_ns, readings_left, points_left, vain, looked_in_vain, until_ns, sent];
        let mut bytes = [0; CHANGING * 8];
        bytes.copy_from_slice(words.map(u64::to_ne_bytes).as_flattened());
        bytes
    }

    fn of_bytes(bytes: &[u8; CHANGING * 8]) -> Lent {
        let mut words = [0; CHANGING];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let [now_ns, readings_left, points_left, vain, looked_in_vain, until_ns, sent] = words;
        Lent { now_ns, readings_left, points_left, vain, looked_in_vain, until_ns, sent }
    }
}

impl Supervisor {
    /// Gives a program that begins its page, and puts the code where it looks for clocks. Where that cannot
    /// be done, it makes calls to read them.
    pub(crate) fn lay_clock_page(&self, tracee: Tracee, vdso: u64) -> Option<u64> {
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
        let mut words = [0_u64; WORDS];
        (words[READING], words[POINT], words[MOST_VAIN]) = (READING_NS, POINT_NS, u64::from(VAIN));
        for (clock, word) in (0..CLOCKS).zip(words.iter_mut().skip(BASES)) {
            *word = self.clock.of(clock).map_or(u64::MAX, |shown_ns| shown_ns - self.clock.now_ns());
        }
        tracee.write(page, words.map(u64::to_ne_bytes).as_flattened()).ok()?;
        Some(page)
    }

    /// The thread is about to run in its program: it has the clock.
    pub(crate) fn lend_clock(&mut self, id: ThreadId) {
        let Some((tracee, page)) = self.page_of(id) else { return };
        let points_left = u64::from(self.lend_points(id));
        let Some(thread) = self.threads.get(id) else { return };
        let lent = Lent {
            now_ns: self.clock.now_ns(),
            readings_left: READINGS,
            points_left,
            vain: u64::from(thread.vain),
            looked_in_vain: u64::from(thread.looked_in_vain),
            until_ns: self.next_ns().unwrap_or(u64::MAX),
            sent: self.sent,
        };
        // It may have ended.
        let _ = tracee.write(page, &lent.bytes());
    }

    /// The thread has stopped: the clock is the supervisor's again.
    pub(crate) fn take_clock(&mut self, id: ThreadId) {
        let Some((tracee, page)) = self.page_of(id) else { return };
        let mut bytes = [0; CHANGING * 8];
        if tracee.read(page, &mut bytes).is_err() {
            return;
        }
        let taken = Lent::of_bytes(&bytes);
        self.take_points(u32::try_from(taken.points_left).unwrap_or(u32::MAX));
        // A program may write there: no clock goes back, or further than one stop can be from the next.
        let most_ns = self.clock.now_ns().saturating_add(MOST_NS);
        self.clock.reach(taken.now_ns.min(most_ns));
        if let Some(thread) = self.threads.get_mut(id) {
            thread.vain = u32::try_from(taken.vain).unwrap_or(u32::MAX);
            thread.looked_in_vain = taken.looked_in_vain != 0;
        }
    }

    /// The thread, and where the page of its process is, if it has one.
    pub(crate) fn page_of(&self, id: ThreadId) -> Option<(Tracee, u64)> {
        let thread = self.threads.get(id)?;
        Some((thread.tracee, self.threads.processes.get(&thread.process)?.page?))
    }
}

/// Has a program that stands before its first instruction map a page; `call`: where a call is made.
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
        tracee.go_on(None).ok()?;
        match await_stop(tracee).ok()? {
            Stop::Signal(Signal::SIGTRAP) => break,
            // It gets it when it runs.
            Stop::Signal(signal) => later.push(signal),
            Stop::Gone(_) => return None,
            _ => {}
        }
    }
    let mapped = tracee.registers().ok()?.rax;
    tracee.set_registers(before).ok()?;
    for signal in later {
        let _ = kill(tracee.0, signal);
    }
    // The kernel's errors are the last numbers of all.
    (mapped as i64 > 0).then_some(mapped)
}
