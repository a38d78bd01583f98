//! Tests of regions that lose memory.

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
        has == Presence::Present
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
    // Another registration of the range has the memory that is mapped now.
    let b = Watch::new(BASE, 0x8000);
    assert_eq!(enter(&guard, Some(b.watched()), BASE + 0x1000, 0x1000), Presence::Present);
    guard.leave();
    let range = BASE + 0x7000..BASE + 0x8000;
    MappingChange::begin(range.clone()).unwrap().end_of_rights(range);
    assert_eq!(enter(&guard, Some(b.watched()), BASE, 8), Presence::Doubtful);
    guard.leave();
    a.move_to(BASE, 0x8000);
    assert!(has(BASE, 0x8000));
}

#[test]
fn the_heap_that_grows_again_comes_back_and_the_rest_of_it_stays_lost() {
    let first = BASE + 0x3_0000_0000;
    let at = |page: u64| first + page * 0x1000;
    let (region, guard) = (Watch::new(first, 0x8000), FaultGuard::new());
    let lost = || {
        let look = |page: &u64| {
            let presence = enter(&guard, Some(region.watched()), at(*page), 0x1000);
            guard.leave();
            presence == Presence::Lost
        };
        (0..8).filter(look).collect::<Vec<u64>>()
    };
    assert!(!MappingChange::has_lost(&(first..at(8))));
    // More often than there are ranges.
    for _ in 0..2 * RANGES {
        assert!(change(at(3)..at(9), at(3)..at(9)));
        assert!(MappingChange::has_lost(&(at(3)..at(4))) && !MappingChange::has_lost(&(at(0)..at(3))));
        MappingChange::give_back(&(at(3)..at(5)));
        assert_eq!(lost(), [5, 6, 7]);
        MappingChange::give_back(&(at(5)..at(9)));
        assert!(lost().is_empty() && !MappingChange::has_lost(&(first..at(9))));
    }
    // The heap shrinks below the region, and grows again in steps of which the first does not reach it.
    let below = first - 0x3000;
    assert!(change(below..at(9), below..at(9)));
    MappingChange::give_back(&(below..first - 0x1000));
    assert_eq!(lost(), [0, 1, 2, 3, 4, 5, 6, 7]);
    MappingChange::give_back(&(first - 0x1000..at(2)));
    MappingChange::give_back(&(at(2)..at(9)));
    assert!(lost().is_empty());
    assert!(change(at(1)..at(4), at(1)..at(4)));
    MappingChange::give_back(&(at(3)..at(9)));
    assert_eq!(lost(), [1, 2]);
    assert_eq!(MappingChange::take_given_back(), Some(first));
    assert_eq!(MappingChange::take_given_back(), None);
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
    assert!(again.iter().all(|watch| enter(&guard, Some(watch.watched()), at(0), 1) == Presence::Present));
}

#[test]
fn a_change_waits_for_copies_and_copies_wait_for_a_change() {
    let first = BASE + 0x2_0000_0000;
    let watch = Watch::new(first, 0x1000);
    let guard = FaultGuard::new();
    assert_eq!(enter(&guard, Some(watch.watched()), first, 8), Presence::Present);
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
    assert_eq!(enter(&guard, Some(watch.watched()), first, 8), Presence::Lost);
    guard.leave();
}
