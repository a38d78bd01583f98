//! Regions whose memory the program takes away while they are registered.
//!
//! An adapter pins the pages of a region, so that they stay its pages when the program unmaps them. Here a
//! region is a range of addresses, and other memory may come to them. So each change of mappings is told
//! ([`MappingChange`]), and what a region has lost is not touched any more, even if memory is there again.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use pumice_ground::outside;
use pumice_ground::outside::fault_guard::{FaultGuard, wait_for_calls};

/// Changes under way, and regions that have lost memory: 0 for nearly every program, so that a copy looks at
/// one number.
static CHANGES: AtomicUsize = AtomicUsize::new(0);

/// Ranges of a region that are told apart. Of more, the one range that has them all is lost.
const RANGES: usize = 4;

/// A range that grows, without a lock: empty as long as its beginning is not below its end.
#[derive(Debug)]
struct Lost {
    first: AtomicU64,
    end: AtomicU64,
}

impl Lost {
    const fn none() -> Lost {
        Lost { first: AtomicU64::new(u64::MAX), end: AtomicU64::new(0) }
    }

    fn touches(&self, range: &Range<u64>) -> bool {
        self.first.load(Ordering::Relaxed) < range.end && range.start < self.end.load(Ordering::Relaxed)
    }
}

/// A region that is watched.
#[derive(Debug)]
pub(super) struct Watched {
    first: AtomicU64,
    /// Not above `first`: nothing is watched here.
    end: AtomicU64,
    has_lost: AtomicBool,
    /// Rights to some of it were changed.
    is_doubtful: AtomicBool,
    /// Ranges of `lost` that were taken.
    count: AtomicU32,
    lost: [Lost; RANGES],
}

impl Watched {
    const fn new() -> Watched {
        Watched {
            first: AtomicU64::new(u64::MAX),
            end: AtomicU64::new(0),
            has_lost: AtomicBool::new(false),
            is_doubtful: AtomicBool::new(false),
            count: AtomicU32::new(0),
            lost: [const { Lost::none() }; RANGES],
        }
    }

    fn begin(&self, range: &Range<u64>) {
        self.clear();
        self.first.store(range.start, Ordering::Relaxed);
        self.end.store(range.end, Ordering::Release);
    }

    fn clear(&self) {
        self.end.store(0, Ordering::Relaxed);
        self.first.store(u64::MAX, Ordering::Relaxed);
        for lost in &self.lost {
            lost.end.store(0, Ordering::Relaxed);
            lost.first.store(u64::MAX, Ordering::Relaxed);
        }
        self.count.store(0, Ordering::Relaxed);
        for counted in [&self.has_lost, &self.is_doubtful] {
            if counted.swap(false, Ordering::AcqRel) {
                CHANGES.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    /// Counts a region among those that copies look at, once for each of the two reasons.
    fn count(reason: &AtomicBool) {
        if !reason.swap(true, Ordering::AcqRel) {
            CHANGES.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn touches(&self, range: &Range<u64>) -> bool {
        self.first.load(Ordering::Relaxed) < range.end && range.start < self.end.load(Ordering::Acquire)
    }

    fn lose(&self, range: &Range<u64>) {
        let index = self.count.fetch_add(1, Ordering::Relaxed).min(RANGES as u32 - 1);
        if let Some(lost) = self.lost.get(index as usize) {
            lost.first.fetch_min(range.start, Ordering::Relaxed);
            lost.end.fetch_max(range.end, Ordering::Release);
        }
        Watched::count(&self.has_lost);
    }

    /// Whether the program has taken away some of a range.
    pub(super) fn has_lost_of(&self, range: &Range<u64>) -> bool {
        self.has_lost.load(Ordering::Acquire) && self.lost.iter().any(|lost| lost.touches(range))
    }
}

/// Regions of a group.
const GROUP: usize = 64;

/// Regions that are near each other in time: a change looks at the bounds of all first. Groups stay for as
/// long as the process lives, because threads look at them without a lock.
#[derive(Debug)]
struct Group {
    low: AtomicU64,
    high: AtomicU64,
    /// A bit for each region that is free.
    free: AtomicU64,
    regions: [Watched; GROUP],
    next: AtomicPtr<Group>,
}

static GROUPS: AtomicPtr<Group> = AtomicPtr::new(ptr::null_mut());

fn groups() -> impl Iterator<Item = &'static Group> {
    // SAFETY: groups are never freed.
    let first = unsafe { GROUPS.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above.
    std::iter::successors(first, |group| unsafe { group.next.load(Ordering::Relaxed).as_ref() })
}

impl Group {
    /// Takes a region that is free.
    fn take(&'static self) -> Option<Watch> {
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            let index = free.trailing_zeros();
            let watched = self.regions.get(index as usize)?;
            let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
            match self.free.compare_exchange_weak(free, free & !(1 << index), order, failed) {
                Ok(_) => return Some(Watch { group: self, watched, index }),
                Err(now) => free = now,
            }
        }
    }

    fn add() -> &'static Group {
        let group: &'static Group = Box::leak(Box::new(Group {
            low: AtomicU64::new(u64::MAX),
            high: AtomicU64::new(0),
            free: AtomicU64::new(u64::MAX),
            regions: [const { Watched::new() }; GROUP],
            next: AtomicPtr::new(ptr::null_mut()),
        }));
        let mut head = GROUPS.load(Ordering::Acquire);
        loop {
            group.next.store(head, Ordering::Relaxed);
            let added = ptr::from_ref(group).cast_mut();
            match GROUPS.compare_exchange_weak(head, added, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return group,
                Err(now) => head = now,
            }
        }
    }
}

/// Watches a region until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    group: &'static Group,
    watched: &'static Watched,
    index: u32,
}

impl Watch {
    /// Watches memory of the program.
    pub(super) fn new(first: u64, bytes: u64) -> Watch {
        let taken = groups().find_map(Group::take);
        let watch = taken.or_else(|| Group::add().take());
        let watch = watch.unwrap_or_else(Watch::crowded);
        watch.move_to(first, bytes);
        watch
    }

    /// Other threads took all of a new group.
    #[cold]
    fn crowded() -> Watch {
        loop {
            if let Some(watch) = Group::add().take() {
                return watch;
            }
        }
    }

    /// Watches another range from now on.
    pub(super) fn move_to(&self, first: u64, bytes: u64) {
        let range = first..first.saturating_add(bytes);
        self.group.low.fetch_min(range.start, Ordering::Relaxed);
        self.group.high.fetch_max(range.end, Ordering::Relaxed);
        self.watched.begin(&range);
    }

    /// What copies look at.
    pub(super) fn watched(&self) -> &'static Watched {
        self.watched
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watched.clear();
        self.group.free.fetch_or(1 << self.index, Ordering::Release);
    }
}

/// Changes that are under way at a time; more wait for one of them to end.
const MOST_UNDER_WAY: usize = 64;

/// A change that is under way.
#[derive(Debug)]
struct UnderWay {
    /// The process whose thread makes the change; 0: there is none. A child has those of its parent.
    process: AtomicU32,
    first: AtomicU64,
    end: AtomicU64,
}

static UNDER_WAY: [UnderWay; MOST_UNDER_WAY] =
    [const { UnderWay { process: AtomicU32::new(0), first: AtomicU64::new(0), end: AtomicU64::new(0) } };
        MOST_UNDER_WAY];

/// A change of mappings that is about to happen to memory that is registered. It allocates nothing and takes
/// no lock, because allocators unmap memory while they hold theirs.
#[derive(Debug)]
#[must_use]
pub struct MappingChange(&'static UnderWay);

impl MappingChange {
    /// Begins a change of a range, before the call of the kernel that makes it: when this returns, the device
    /// copies nothing there. None: no registered memory is in the range.
    pub fn begin(range: Range<u64>) -> Option<MappingChange> {
        if range.is_empty() || !groups().any(|group| group.has_any_of(&range)) {
            return None;
        }
        let process = outside::process::number();
        let under_way = loop {
            let free = |one: &&UnderWay| {
                let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
                one.process.compare_exchange(0, u32::MAX, order, failed).is_ok()
            };
            match UNDER_WAY.iter().find(free) {
                Some(one) => break one,
                None => outside::idle(),
            }
        };
        under_way.first.store(range.start, Ordering::Relaxed);
        under_way.end.store(range.end, Ordering::Relaxed);
        under_way.process.store(process, Ordering::Release);
        CHANGES.fetch_add(1, Ordering::SeqCst);
        wait_for_calls(range.start as usize, range.end as usize);
        Some(MappingChange(under_way))
    }

    /// Ends the change: regions have lost what they had of this range, which is empty if the kernel refused.
    pub fn end(self, lost: Range<u64>) {
        self.end_with(&lost, |watched| watched.lose(&lost));
    }

    /// Ends a change of rights to this range, which is empty if the kernel refused: an access may be a fault.
    pub fn end_of_rights(self, range: Range<u64>) {
        self.end_with(&range, |watched| Watched::count(&watched.is_doubtful));
    }

    fn end_with(self, range: &Range<u64>, note: impl Fn(&Watched)) {
        if !range.is_empty() {
            let near = groups().filter(|group| group.touches(range));
            near.flat_map(|group| &group.regions).filter(|watched| watched.touches(range)).for_each(note);
        }
        fence(Ordering::SeqCst);
        self.0.process.store(0, Ordering::Release);
        CHANGES.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Group {
    fn touches(&self, range: &Range<u64>) -> bool {
        self.low.load(Ordering::Relaxed) < range.end && range.start < self.high.load(Ordering::Relaxed)
    }

    fn has_any_of(&self, range: &Range<u64>) -> bool {
        self.touches(range) && self.regions.iter().any(|watched| watched.touches(range))
    }
}

/// How long a copy waits for a change: only a signal's handler that interrupted the change itself waits so
/// long.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a copy finds of a region's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    There,
    /// An access may be a fault.
    Doubtful,
    /// The region has lost some of it.
    Gone,
}

/// Begins a copy of registered memory. The guard is entered in all cases.
#[inline]
pub(super) fn enter(guard: &FaultGuard, watched: Option<&Watched>, first: u64, bytes: usize) -> Presence {
    guard.enter(first as usize, bytes);
    if CHANGES.load(Ordering::Relaxed) == 0 {
        return Presence::There;
    }
    look(guard, watched, first, bytes)
}

/// Before a copy as [`enter`]; false: it must ask `enter`.
#[inline]
pub(super) fn enter_quiet(guard: &FaultGuard, first: u64, bytes: usize) -> bool {
    guard.enter(first as usize, bytes);
    CHANGES.load(Ordering::Relaxed) == 0
}

#[cold]
fn look(guard: &FaultGuard, watched: Option<&Watched>, first: u64, bytes: usize) -> Presence {
    let Some(watched) = watched else { return Presence::There };
    let range = first..first.saturating_add(bytes as u64);
    let process = outside::process::number();
    let mut since = None;
    loop {
        fence(Ordering::SeqCst);
        let changes = |one: &UnderWay| {
            one.process.load(Ordering::Acquire) == process
                && one.first.load(Ordering::Relaxed) < range.end
                && range.start < one.end.load(Ordering::Relaxed)
        };
        if !UNDER_WAY.iter().any(changes) {
            return match watched.is_doubtful.load(Ordering::Acquire) {
                _ if watched.has_lost_of(&range) => Presence::Gone,
                true => Presence::Doubtful,
                false => Presence::There,
            };
        }
        // The change waits for copies: this one begins again.
        guard.leave();
        outside::idle();
        guard.enter(first as usize, bytes);
        if outside::since(*since.get_or_insert_with(outside::now)) > PATIENCE {
            return Presence::Gone;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Ranges that no memory of this process has, so that the tests do not meet each other.
    const BASE: u64 = 0x7000_0000_0000_0000;

    fn change(range: Range<u64>, lost: Range<u64>) -> bool {
        let change = MappingChange::begin(range);
        let touched = change.is_some();
        if let Some(change) = change {
            change.end(lost);
        }
        touched
    }

    #[test]
    fn a_region_loses_what_is_unmapped_and_nothing_else() {
        let (a, guard) = (Watch::new(BASE, 0x8000), FaultGuard::new());
        let has = |first, bytes| {
            let has = enter(&guard, Some(a.watched()), first, bytes);
            guard.leave();
            has == Presence::There
        };
        assert!(!change(BASE + 0x8000..BASE + 0x9000, BASE..BASE + 0x9000), "beside the region");
        assert!(change(BASE + 0x1000..BASE + 0x2000, 0..0), "the kernel refused");
        assert!(has(BASE, 0x8000));
        assert!(change(BASE + 0x1000..BASE + 0x2000, BASE + 0x1000..BASE + 0x2000));
        assert!(has(BASE, 0x1000) && has(BASE + 0x2000, 0x6000));
        assert!(!has(BASE + 0xfff, 2) && !has(BASE + 0x1fff, 1));
        for page in [3, 5, 6, 7] {
            let range = BASE + page * 0x1000..BASE + (page + 1) * 0x1000;
            assert!(change(range.clone(), range));
        }
        assert!(has(BASE + 0x2000, 0x1000) && !has(BASE + 0x6800, 8));
        // Another registration of the range has what is there now.
        let b = Watch::new(BASE, 0x8000);
        assert_eq!(enter(&guard, Some(b.watched()), BASE + 0x1000, 0x1000), Presence::There);
        guard.leave();
        let range = BASE + 0x7000..BASE + 0x8000;
        MappingChange::begin(range.clone()).unwrap().end_of_rights(range);
        assert_eq!(enter(&guard, Some(b.watched()), BASE, 8), Presence::Doubtful);
        guard.leave();
        a.move_to(BASE, 0x8000);
        assert!(has(BASE, 0x8000));
    }

    #[test]
    fn groups_are_used_again() {
        let at = |n: u64| BASE + 0x1_0000_0000 + n * 0x1000;
        let watches: Vec<Watch> = (0..200).map(|n| Watch::new(at(n), 0x1000)).collect();
        let before = groups().count();
        assert!(change(at(199)..at(200), 0..0));
        drop(watches);
        assert!(!change(at(0)..at(200), at(0)..at(200)));
        let again: Vec<Watch> = (0..200).map(|n| Watch::new(at(n), 0x1000)).collect();
        // Without those, four would be added.
        assert!(groups().count() < before + 4);
        let guard = FaultGuard::new();
        assert!(again.iter().all(|watch| enter(&guard, Some(watch.watched()), at(0), 1) == Presence::There));
    }

    #[test]
    fn a_change_waits_for_copies_and_copies_wait_for_a_change() {
        let first = BASE + 0x2_0000_0000;
        let watch = Watch::new(first, 0x1000);
        let guard = FaultGuard::new();
        assert_eq!(enter(&guard, Some(watch.watched()), first, 8), Presence::There);
        let is_left = AtomicBool::new(false);
        thread::scope(|scope| {
            let changer = scope.spawn(|| {
                let change = MappingChange::begin(first..first + 0x1000).unwrap();
                let saw_the_end = is_left.load(Ordering::SeqCst);
                change.end(first..first + 0x1000);
                saw_the_end
            });
            while CHANGES.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            is_left.store(true, Ordering::SeqCst);
            guard.leave();
            assert!(changer.join().unwrap(), "the change began while bytes were copied");
        });
        assert_eq!(enter(&guard, Some(watch.watched()), first, 8), Presence::Gone);
        guard.leave();
    }
}
