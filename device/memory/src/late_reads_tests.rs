//! Pages that a program reads after it has given them back.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use pumice_platform::outside::late_reads::{PAGE_BYTES, PAGES, WatchedPage};

use super::{catches_faults, guard_copies};

static READS: [AtomicU32; PAGES] = [const { AtomicU32::new(0) }; PAGES];

fn count(page: usize, instruction: usize, stack: usize) {
    assert!(instruction != 0 && stack != 0);
    READS[page].fetch_add(1, Ordering::Relaxed);
}

fn byte(address: usize) -> u8 {
    // SAFETY: the page stays mapped; where it cannot be accessed, the handler lets the access go on.
    unsafe { ptr::with_exposed_provenance::<u8>(address).read_volatile() }
}

#[test]
fn the_first_access_after_a_page_was_given_back_is_told_and_goes_on() {
    guard_copies();
    let page = WatchedPage::take(count).unwrap();
    let (number, address) = (page.number(), page.address());
    page.fill(b"abc");
    assert_eq!(byte(address + 1), b'b');
    assert_eq!(READS[number].load(Ordering::Relaxed), 0, "the program has it");
    page.give_back(catches_faults());
    assert_eq!([byte(address), byte(address + 2)], *b"ac");
    assert_eq!(READS[number].load(Ordering::Relaxed), 1);
    // Those that are given back are used again; those that are held are not.
    let held = WatchedPage::take(count).unwrap();
    for _ in 0..2 * PAGES {
        let other = WatchedPage::take(count).unwrap();
        assert_ne!(other.address(), held.address());
        other.fill(&[1; PAGE_BYTES + 1]);
        other.give_back(catches_faults());
    }
    assert_eq!(READS[number].load(Ordering::Relaxed), 1);
    held.give_back(false);
    assert_eq!(byte(address), 1, "a page that is not watched can be read");
}
