//! The page that the supervisor of a world gives a program: there the program tells what needs no stop.
//!
//! Its words are those of `clock_page.rs` in `verbs/world`, which writes them before a thread goes on and
//! reads them when it stops. One thread of the world runs at a time, so that no two use the page at once.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::system_call;

#[repr(C)]
struct Page {
    /// The clock of the world.
    now_ns: AtomicU64,
    readings_left: AtomicU64,
    /// Points in a row at which no other thread goes on.
    points_left: AtomicU64,
    /// Looks in vain in a row of the thread that runs.
    vain: AtomicU64,
    /// Not 0: its latest call was one.
    looked_in_vain: AtomicU64,
    /// When something happens that no thread of the world does.
    until_ns: AtomicU64,
    /// Calls of the world that sent to a socket.
    sent: AtomicU64,
    reading_ns: AtomicU64,
    /// What a point takes.
    point_ns: AtomicU64,
    /// So many looks in vain, and others go first.
    most_vain: AtomicU64,
}

/// Where the page is, once the supervisor was asked.
static PAGE: AtomicPtr<Page> = AtomicPtr::new(UNKNOWN);
const UNKNOWN: *mut Page = std::ptr::null_mut();
/// It gives none.
const NONE: *mut Page = std::ptr::without_provenance_mut(1);

fn page() -> Option<&'static Page> {
    let mut known = PAGE.load(Ordering::Relaxed);
    if known == UNKNOWN {
        known = std::ptr::with_exposed_provenance_mut(system_call::world_page());
        known = if known == UNKNOWN { NONE } else { known };
        PAGE.store(known, Ordering::Relaxed);
    }
    if known == NONE {
        return None;
    }
    // SAFETY: the supervisor mapped the page before the program began, and nothing unmaps it.
    Some(unsafe { &*known })
}

/// Another thread may go on here. Whether the page says that none does.
pub(super) fn point() -> bool {
    page().is_some_and(Page::point)
}

/// The thread found nothing. Whether it may go on all the same.
pub(super) fn looked_in_vain() -> bool {
    page().is_some_and(Page::looked_in_vain)
}

/// How many calls of the world have sent to a socket; none without a page.
pub(super) fn sent() -> Option<u64> {
    page().map(|page| page.sent.load(Ordering::Relaxed))
}

impl Page {
    fn point(&self) -> bool {
        // A thread that looks in vain looks once more before others go on.
        let is_vain = self.vain.load(Ordering::Relaxed) >= self.most_vain.load(Ordering::Relaxed);
        if is_vain {
            self.pass_time();
        } else if !self.pass_point() {
            return false;
        }
        // A call that begins says that the one before it found something, if that one said nothing.
        if self.looked_in_vain.swap(0, Ordering::Relaxed) == 0 {
            self.vain.store(0, Ordering::Relaxed);
        }
        true
    }

    fn looked_in_vain(&self) -> bool {
        let vain = self.vain.load(Ordering::Relaxed) + 1;
        if vain >= self.most_vain.load(Ordering::Relaxed) || !self.pass_point() {
            return false;
        }
        self.vain.store(vain, Ordering::Relaxed);
        self.looked_in_vain.store(1, Ordering::Relaxed);
        true
    }

    /// One of the points that are left, if nothing happens until then.
    fn pass_point(&self) -> bool {
        let left = self.points_left.load(Ordering::Relaxed);
        let at_ns = self.now_ns.load(Ordering::Relaxed) + self.point_ns.load(Ordering::Relaxed);
        if left == 0 || at_ns >= self.until_ns.load(Ordering::Relaxed) {
            return false;
        }
        self.points_left.store(left - 1, Ordering::Relaxed);
        self.pass_time();
        true
    }

    fn pass_time(&self) {
        self.now_ns.fetch_add(self.point_ns.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(points: u64) -> Page {
        let word = AtomicU64::new;
        Page {
            now_ns: word(1_000),
            readings_left: word(0),
            points_left: word(points),
            vain: word(0),
            looked_in_vain: word(0),
            until_ns: word(10_000),
            sent: word(0),
            reading_ns: word(50),
            point_ns: word(600),
            most_vain: word(3),
        }
    }

    fn state(page: &Page) -> [u64; 4] {
        [&page.now_ns, &page.points_left, &page.vain, &page.looked_in_vain]
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
    fn a_thread_that_looks_in_vain_goes_on_until_others_go_first() {
        let page = page(100);
        assert!(page.point() && page.looked_in_vain() && page.point() && page.looked_in_vain());
        assert_eq!(state(&page), [3_400, 96, 2, 1]);
        assert!(page.point() && !page.looked_in_vain(), "the third one is the supervisor's");
        assert_eq!(state(&page), [4_000, 95, 2, 0]);
        assert!(page.point());
        assert_eq!(state(&page)[2], 0, "the call before it found something");
    }
}
