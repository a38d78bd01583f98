//! The page that the supervisor of a world maps for a program: through it the program gives hints that need
//! no stop.
//!
//! Its words are those of `clock_page.rs` in `verbs/world`, which writes them before a thread continues and
//! reads them when it stops. One thread of the world runs at a time, so no two use the page at once.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::system_call;

#[repr(C)]
struct WorldPage {
    /// The clock of the world, in ns.
    now_ns: AtomicU64,
    readings_left: AtomicU64,
    /// Number of points in a row at which no other thread continues.
    points_left: AtomicU64,
    /// Number of idle polls in a row of the running thread.
    idle_polls: AtomicU64,
    /// The idle flag of the running thread: not 0 if its latest call was an idle poll.
    idle_poll: AtomicU64,
    /// The time of the next occurrence that no thread of the world causes, in ns.
    until_ns: AtomicU64,
    /// Number of calls of the world that sent to a socket.
    sent: AtomicU64,
    reading_ns: AtomicU64,
    /// The virtual time that a point takes, in ns.
    point_ns: AtomicU64,
    /// Number of idle polls in a row after which other threads run.
    max_idle_polls: AtomicU64,
    /// The difference between each of the kernel's clocks and that of the world.
    clock_bases: [AtomicU64; CLOCKS],
    /// The process to which packets were handed over since the last stop: its number and 1, [`TO_NONE`] or
    /// [`TO_SEVERAL`].
    handed_over: AtomicU64,
    /// Not 0 if the library has done something since the last stop that other threads of the program may look
    /// for.
    has_progressed: AtomicU64,
    /// Not 0 if the program has begun a call of the library since the last stop, without a hint.
    has_begun_call: AtomicU64,
}

/// Number of the kernel's clocks that the page has.
const CLOCKS: usize = 12;
const TO_NONE: u64 = 0;
const TO_SEVERAL: u64 = u64::MAX;

/// The address of the page, once the supervisor was asked.
static WORLD_PAGE: AtomicPtr<WorldPage> = AtomicPtr::new(UNKNOWN);
const UNKNOWN: *mut WorldPage = std::ptr::null_mut();
/// The value that means that the supervisor gives no page.
const NONE: *mut WorldPage = std::ptr::without_provenance_mut(1);

fn page() -> Option<&'static WorldPage> {
    let mut known = WORLD_PAGE.load(Ordering::Relaxed);
    if known == UNKNOWN {
        known = std::ptr::with_exposed_provenance_mut(system_call::world_page());
        known = if known == UNKNOWN { NONE } else { known };
        WORLD_PAGE.store(known, Ordering::Relaxed);
    }
    if known == NONE {
        return None;
    }
    // SAFETY: the supervisor mapped the page before the program began, and nothing unmaps it.
    Some(unsafe { &*known })
}

/// Marks a point at which another thread may continue. Returns whether the page says that none does.
pub(super) fn point() -> bool {
    page().is_some_and(WorldPage::point)
}

/// Marks a point at a lock, at which another thread may continue. Returns whether the page says that none
/// does.
pub(super) fn lock_point() -> bool {
    page().is_some_and(|page| page.pass_point(&page.reading_ns))
}

/// Records that the thread found nothing. Returns whether it may continue all the same.
pub(super) fn idle_poll() -> bool {
    page().is_some_and(WorldPage::idle_poll)
}

/// Returns how many calls of the world have sent to a socket; `None` without a page.
pub(super) fn sent() -> Option<u64> {
    page().map(|page| page.sent.load(Ordering::Relaxed))
}

/// Records that packets were handed over to a process.
pub(super) fn handed_over(receiver: u64) {
    if let Some(page) = page() {
        page.handed_over(receiver);
    }
}

/// Records that the library has done something that other threads of the program may look for.
pub(super) fn progressed() {
    if let Some(page) = page() {
        page.has_progressed.store(1, Ordering::Relaxed);
    }
}

/// Records that the program begins a call of the library. Returns false if there is no page.
pub(super) fn begin_call() -> bool {
    page().map(|page| page.has_begun_call.store(1, Ordering::Relaxed)).is_some()
}

impl WorldPage {
    fn handed_over(&self, receiver: u64) {
        let word = receiver.saturating_add(1);
        let known = self.handed_over.load(Ordering::Relaxed);
        let both = if known == TO_NONE || known == word { word } else { TO_SEVERAL };
        self.handed_over.store(both, Ordering::Relaxed);
    }

    fn point(&self) -> bool {
        // A thread with idle polls polls once more before others continue.
        let is_idle = self.idle_polls.load(Ordering::Relaxed) >= self.max_idle_polls.load(Ordering::Relaxed);
        if is_idle {
            self.pass_time(&self.point_ns);
        } else if !self.pass_point(&self.point_ns) {
            return false;
        }
        // A new call shows that the one before it found something, if that call reported nothing.
        if self.idle_poll.swap(0, Ordering::Relaxed) == 0 {
            self.idle_polls.store(0, Ordering::Relaxed);
        }
        true
    }

    fn idle_poll(&self) -> bool {
        let idle_polls = self.idle_polls.load(Ordering::Relaxed) + 1;
        if idle_polls >= self.max_idle_polls.load(Ordering::Relaxed) || !self.pass_point(&self.point_ns) {
            return false;
        }
        self.idle_polls.store(idle_polls, Ordering::Relaxed);
        self.idle_poll.store(1, Ordering::Relaxed);
        true
    }

    /// Uses one of the remaining points, which takes this time, if nothing happens until then.
    fn pass_point(&self, takes_ns: &AtomicU64) -> bool {
        let left = self.points_left.load(Ordering::Relaxed);
        let at_ns = self.now_ns.load(Ordering::Relaxed) + takes_ns.load(Ordering::Relaxed);
        if left == 0 || at_ns >= self.until_ns.load(Ordering::Relaxed) {
            return false;
        }
        self.points_left.store(left - 1, Ordering::Relaxed);
        self.pass_time(takes_ns);
        true
    }

    fn pass_time(&self, takes_ns: &AtomicU64) {
        self.now_ns.fetch_add(takes_ns.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(points: u64) -> WorldPage {
        let word = AtomicU64::new;
        WorldPage {
            now_ns: word(1_000),
            readings_left: word(0),
            points_left: word(points),
            idle_polls: word(0),
            idle_poll: word(0),
            until_ns: word(10_000),
            sent: word(0),
            reading_ns: word(50),
            point_ns: word(600),
            max_idle_polls: word(3),
            clock_bases: [const { AtomicU64::new(0) }; CLOCKS],
            handed_over: word(TO_NONE),
            has_progressed: word(0),
            has_begun_call: word(0),
        }
    }

    fn state(page: &WorldPage) -> [u64; 4] {
        [&page.now_ns, &page.points_left, &page.idle_polls, &page.idle_poll]
            .map(|word| word.load(Ordering::Relaxed))
    }

    #[test]
    fn points_pass_until_none_is_left_or_something_happens() {
        let few = page(2);
        assert_eq!([few.point(), few.point(), few.point()], [true, true, false]);
        assert_eq!(state(&few), [2_200, 0, 0, 0]);
        let many = page(100);
        assert_eq!((0..100).filter(|_| many.point()).count(), 14, "the clock stays below 10 µs");
    }

    #[test]
    fn a_lock_takes_the_time_of_a_reading_and_says_nothing_about_polls() {
        let page = page(100);
        assert!(page.idle_poll() && page.pass_point(&page.reading_ns));
        assert_eq!(state(&page), [1_650, 98, 1, 1]);
    }

    #[test]
    fn a_thread_that_looks_in_vain_goes_on_until_others_go_first() {
        let page = page(100);
        assert!(page.point() && page.idle_poll() && page.point() && page.idle_poll());
        assert_eq!(state(&page), [3_400, 96, 2, 1]);
        assert!(page.point() && !page.idle_poll(), "the third one is the supervisor's");
        assert_eq!(state(&page), [4_000, 95, 2, 0]);
        assert!(page.point());
        assert_eq!(state(&page)[2], 0, "the call before it found something");
    }

    #[test]
    fn the_page_says_to_whom_packets_go() {
        let page = page(0);
        let word = || page.handed_over.load(Ordering::Relaxed);
        page.handed_over(4);
        page.handed_over(4);
        assert_eq!(word(), 5);
        page.handed_over(3);
        assert_eq!(word(), TO_SEVERAL);
        page.handed_over(3);
        assert_eq!(word(), TO_SEVERAL);
    }
}
