//! Regions whose memory the program takes away while they are registered.
//!
//! An adapter pins the pages of a region, so that they stay its pages when the program unmaps them. Here a
//! region is a range of addresses, and other memory may be mapped there. So each change of mappings is
//! announced ([`MappingChange`]), and memory that a region has lost is not accessed any more, even if memory
//! is mapped there again. Only the heap that grows again comes back to the regions: an MPI's cache of
//! registrations that is not told when the heap shrinks uses them further.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use pumice_platform::outside;
use pumice_platform::outside::fault_guard::{FaultGuard, wait_for_calls};

/// Number of changes under way, and of regions that have lost memory: 0 for nearly every program, so that a
/// copy reads one number.
static CHANGES: AtomicUsize = AtomicUsize::new(0);

/// Number of ranges of a region that are told apart. If there are more, the one range that covers them all is
/// lost.
const RANGES: usize = 4;

/// A range that grows, without a lock: empty as long as its beginning is not below its end.
#[derive(Debug)]
struct LostRange {
    first: AtomicU64,
    end: AtomicU64,
}

impl LostRange {
    const fn none() -> LostRange {
        LostRange { first: AtomicU64::new(u64::MAX), end: AtomicU64::new(0) }
    }

    fn touches(&self, range: &Range<u64>) -> bool {
        let (first, end) = (self.first.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        first < end && first < range.end && range.start < end
    }

    /// Removes a range, except from the middle: this has one beginning and one end.
    fn remove(&self, range: &Range<u64>) {
        let (first, end) = (self.first.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        let (cut, from, to) = match self.touches(range) {
            true if range.start <= first => (&self.first, first, range.end),
            true if end <= range.end => (&self.end, end, range.start),
            _ => return,
        };
        // If another change was faster, it has made the range longer.
        let _ = cut.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
    }
}

/// A region that is watched.
#[derive(Debug)]
pub(super) struct WatchedRegion {
    first: AtomicU64,
    /// End of the region; not above `first` if nothing is watched here.
    end: AtomicU64,
    has_lost: AtomicBool,
    /// Rights to some of it were changed.
    is_doubtful: AtomicBool,
    /// Number of ranges of `lost` that are in use.
    count: AtomicU32,
    lost: [LostRange; RANGES],
}

impl WatchedRegion {
    const fn new() -> WatchedRegion {
        WatchedRegion {
            first: AtomicU64::new(u64::MAX),
            end: AtomicU64::new(0),
            has_lost: AtomicBool::new(false),
            is_doubtful: AtomicBool::new(false),
            count: AtomicU32::new(0),
            lost: [const { LostRange::none() }; RANGES],
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

    /// Counts a region among those that copies check, once for each of the two reasons.
    fn count(reason: &AtomicBool) {
        if !reason.swap(true, Ordering::AcqRel) {
            CHANGES.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn touches(&self, range: &Range<u64>) -> bool {
        self.first.load(Ordering::Relaxed) < range.end && range.start < self.end.load(Ordering::Acquire)
    }

    fn mark_lost(&self, range: &Range<u64>) {
        let index = self.count.fetch_add(1, Ordering::Relaxed).min(RANGES as u32 - 1);
        if let Some(lost) = self.lost.get(index as usize) {
            // Only what the region had: the heap may grow again below it first.
            lost.first.fetch_min(range.start.max(self.first.load(Ordering::Relaxed)), Ordering::Relaxed);
            lost.end.fetch_max(range.end.min(self.end.load(Ordering::Relaxed)), Ordering::Release);
        }
        WatchedRegion::count(&self.has_lost);
    }

    /// Reports whether the program has taken away some of a range.
    pub(super) fn has_lost_of(&self, range: &Range<u64>) -> bool {
        self.has_lost.load(Ordering::Acquire) && self.lost.iter().any(|lost| lost.touches(range))
    }
}

/// Number of regions of a group.
const GROUP: usize = 64;

/// Regions that were registered at about the same time: a change checks the bounds of all first. Groups stay
/// for as long as the process lives, because threads read them without a lock.
#[derive(Debug)]
struct WatchGroup {
    low: AtomicU64,
    high: AtomicU64,
    /// Mask of the regions that are free: a bit for each.
    free: AtomicU64,
    regions: [WatchedRegion; GROUP],
    next: AtomicPtr<WatchGroup>,
}

static GROUPS: AtomicPtr<WatchGroup> = AtomicPtr::new(ptr::null_mut());

fn groups() -> impl Iterator<Item = &'static WatchGroup> {
    // SAFETY: groups are never freed.
    let first = unsafe { GROUPS.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above.
    std::iter::successors(first, |group| unsafe { group.next.load(Ordering::Relaxed).as_ref() })
}

impl WatchGroup {
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

    fn add() -> &'static WatchGroup {
        let group: &'static WatchGroup = Box::leak(Box::new(WatchGroup {
            low: AtomicU64::new(u64::MAX),
            high: AtomicU64::new(0),
            free: AtomicU64::new(u64::MAX),
            regions: [const { WatchedRegion::new() }; GROUP],
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

/// A watch on a region, until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    group: &'static WatchGroup,
    watched: &'static WatchedRegion,
    index: u32,
}

impl Watch {
    /// Watches memory of the program.
    pub(super) fn new(first: u64, bytes: u64) -> Watch {
        let taken = groups().find_map(WatchGroup::take);
        let watch = taken.or_else(|| WatchGroup::add().take());
        let watch = watch.unwrap_or_else(Watch::crowded);
        watch.move_to(first, bytes);
        watch
    }

    /// Returns a watch when other threads took all of a new group.
    #[cold]
    fn crowded() -> Watch {
        loop {
            if let Some(watch) = WatchGroup::add().take() {
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

    /// Returns the record that copies check.
    pub(super) fn watched(&self) -> &'static WatchedRegion {
        self.watched
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watched.clear();
        self.group.free.fetch_or(1 << self.index, Ordering::Release);
    }
}

/// Number of changes that may be under way at a time; more wait for one of them to end.
const MAX_ONGOING_CHANGES: usize = 64;

/// A change that is under way.
#[derive(Debug)]
struct MappingChangeSlot {
    /// Process whose thread makes the change; 0 for none. A child has those of its parent.
    process: AtomicU32,
    first: AtomicU64,
    end: AtomicU64,
}

static ONGOING_CHANGES: [MappingChangeSlot; MAX_ONGOING_CHANGES] = [const {
    MappingChangeSlot { process: AtomicU32::new(0), first: AtomicU64::new(0), end: AtomicU64::new(0) }
}; MAX_ONGOING_CHANGES];

/// Address of a region to which memory was given back; 0 for none.
static GIVEN_BACK: AtomicU64 = AtomicU64::new(0);

/// Returns the regions that have lost memory in a range.
fn regions_losing(range: &Range<u64>) -> impl Iterator<Item = &'static WatchedRegion> {
    let near = groups().filter(|group| group.touches(range)).flat_map(|group| &group.regions);
    near.filter(|watched| watched.touches(range) && watched.has_lost_of(range))
}

/// A change of mappings that is about to happen to memory that is registered. It allocates nothing and takes
/// no lock, because allocators unmap memory while they hold theirs.
#[derive(Debug)]
#[must_use]
pub struct MappingChange(&'static MappingChangeSlot);

impl MappingChange {
    /// Begins a change of a range, before the call of the kernel that makes it: when this returns, the device
    /// copies nothing there. Returns `None` if no registered memory is in the range.
    pub fn begin(range: Range<u64>) -> Option<MappingChange> {
        if range.is_empty() || !groups().any(|group| group.has_any_of(&range)) {
            return None;
        }
        let process = outside::process::number();
        let ongoing = loop {
            let free = |one: &&MappingChangeSlot| {
                let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
                one.process.compare_exchange(0, u32::MAX, order, failed).is_ok()
            };
            match ONGOING_CHANGES.iter().find(free) {
                Some(one) => break one,
                None => outside::idle(),
            }
        };
        ongoing.first.store(range.start, Ordering::Relaxed);
        ongoing.end.store(range.end, Ordering::Relaxed);
        ongoing.process.store(process, Ordering::Release);
        CHANGES.fetch_add(1, Ordering::SeqCst);
        wait_for_calls(range.start as usize, range.end as usize);
        Some(MappingChange(ongoing))
    }

    /// Ends the change: regions have lost what they had of this range, which is empty if the kernel refused.
    pub fn end(self, lost: Range<u64>) {
        self.end_with(&lost, |watched| watched.mark_lost(&lost));
    }

    /// Reports whether regions have lost memory in a range.
    pub fn has_lost(range: &Range<u64>) -> bool {
        !range.is_empty() && regions_losing(range).next().is_some()
    }

    /// Gives a range back to the regions that have lost it, after the heap has grown over it.
    pub fn give_back(range: &Range<u64>) {
        for watched in regions_losing(range) {
            GIVEN_BACK.store(watched.first.load(Ordering::Relaxed), Ordering::Relaxed);
            watched.lost.iter().for_each(|lost| lost.remove(range));
        }
    }

    /// Takes the address of a region to which memory was given back since the last call.
    pub fn take_given_back() -> Option<u64> {
        match GIVEN_BACK.load(Ordering::Relaxed) {
            0 => None,
            _ => Some(GIVEN_BACK.swap(0, Ordering::Relaxed)).filter(|first| *first != 0),
        }
    }

    /// Ends a change of rights to this range, which is empty if the kernel refused: an access may be a fault.
    pub fn end_of_rights(self, range: Range<u64>) {
        self.end_with(&range, |watched| WatchedRegion::count(&watched.is_doubtful));
    }

    fn end_with(self, range: &Range<u64>, note: impl Fn(&WatchedRegion)) {
        if !range.is_empty() {
            let near = groups().filter(|group| group.touches(range));
            near.flat_map(|group| &group.regions).filter(|watched| watched.touches(range)).for_each(note);
        }
        fence(Ordering::SeqCst);
        self.0.process.store(0, Ordering::Release);
        CHANGES.fetch_sub(1, Ordering::SeqCst);
    }
}

impl WatchGroup {
    fn touches(&self, range: &Range<u64>) -> bool {
        self.low.load(Ordering::Relaxed) < range.end && range.start < self.high.load(Ordering::Relaxed)
    }

    fn has_any_of(&self, range: &Range<u64>) -> bool {
        self.touches(range) && self.regions.iter().any(|watched| watched.touches(range))
    }
}

/// Longest time that a copy waits for a change: only a signal's handler that interrupted the change itself
/// waits so long.
const PATIENCE: Duration = Duration::from_secs(1);

/// The state of a region's memory that a copy finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Present,
    /// An access may be a fault.
    Doubtful,
    /// The region has lost some of it.
    Lost,
}

/// Begins a copy of registered memory. The guard is entered in all cases.
#[inline]
pub(super) fn enter(
    guard: &FaultGuard,
    watched: Option<&WatchedRegion>,
    first: u64,
    bytes: usize,
) -> Presence {
    guard.enter(first as usize, bytes);
    if CHANGES.load(Ordering::Relaxed) == 0 {
        return Presence::Present;
    }
    check_presence(guard, watched, first, bytes)
}

/// Begins a copy as [`enter`] does, if no check is needed. Returns false if the caller has to call `enter`.
#[inline]
pub(super) fn enter_quiet(guard: &FaultGuard, first: u64, bytes: usize) -> bool {
    guard.enter(first as usize, bytes);
    CHANGES.load(Ordering::Relaxed) == 0
}

#[cold]
fn check_presence(guard: &FaultGuard, watched: Option<&WatchedRegion>, first: u64, bytes: usize) -> Presence {
    let Some(watched) = watched else { return Presence::Present };
    let range = first..first.saturating_add(bytes as u64);
    let process = outside::process::number();
    let mut since = None;
    loop {
        fence(Ordering::SeqCst);
        let changes = |one: &MappingChangeSlot| {
            one.process.load(Ordering::Acquire) == process
                && one.first.load(Ordering::Relaxed) < range.end
                && range.start < one.end.load(Ordering::Relaxed)
        };
        if !ONGOING_CHANGES.iter().any(changes) {
            return match watched.is_doubtful.load(Ordering::Acquire) {
                _ if watched.has_lost_of(&range) => Presence::Lost,
                true => Presence::Doubtful,
                false => Presence::Present,
            };
        }
        // The change waits for copies, so this one begins again.
        guard.leave();
        outside::idle();
        guard.enter(first as usize, bytes);
        if outside::since(*since.get_or_insert_with(outside::now)) > PATIENCE {
            return Presence::Lost;
        }
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
