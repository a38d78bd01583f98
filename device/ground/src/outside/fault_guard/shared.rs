//! Mapped files that other processes of the user can shorten.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// A place of the list; it stays for as long as the process lives.
#[derive(Debug)]
pub(crate) struct Place {
    first: AtomicUsize,
    /// 0: the place is not used, or not yet.
    bytes: AtomicUsize,
    is_taken: AtomicBool,
    next: AtomicPtr<Place>,
}

pub(crate) static PLACES: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());

pub(crate) fn all() -> impl Iterator<Item = &'static Place> {
    // SAFETY: places are never freed.
    let first = unsafe { PLACES.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above.
    std::iter::successors(first, |place| unsafe { place.next.load(Ordering::Relaxed).as_ref() })
}

/// A mapped file of numbers that the process can go without: if another process shortens the file, memory of
/// this process alone takes its place, all zero.
#[derive(Debug)]
pub struct SharedRange(&'static Place);

impl SharedRange {
    /// Takes a range that is mapped, readable and writable.
    pub fn new(first: usize, bytes: usize) -> SharedRange {
        let place = all().find(|place| !place.is_taken.swap(true, Ordering::Acquire)).unwrap_or_else(added);
        place.first.store(first, Ordering::Relaxed);
        place.bytes.store(bytes, Ordering::Release);
        SharedRange(place)
    }
}

impl Drop for SharedRange {
    fn drop(&mut self) {
        self.0.bytes.store(0, Ordering::Relaxed);
        self.0.is_taken.store(false, Ordering::Release);
    }
}

pub(crate) fn added() -> &'static Place {
    let place: &'static Place = Box::leak(Box::new(Place {
        first: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        is_taken: AtomicBool::new(true),
        next: AtomicPtr::new(ptr::null_mut()),
    }));
    let mut head = PLACES.load(Ordering::Acquire);
    loop {
        place.next.store(head, Ordering::Relaxed);
        let added = ptr::from_ref(place).cast_mut();
        match PLACES.compare_exchange_weak(head, added, Ordering::Release, Ordering::Acquire) {
            Ok(_) => return place,
            Err(now) => head = now,
        }
    }
}

/// Puts memory of this process into the place of the mapped file that has this address; false: there is none.
/// For the handler of signals.
pub(crate) fn replace(address: usize) -> bool {
    let has = |place: &&Place| {
        let first = place.first.load(Ordering::Relaxed);
        address >= first && address - first < place.bytes.load(Ordering::Acquire)
    };
    let Some(place) = all().find(has) else { return false };
    let (first, bytes) = (place.first.load(Ordering::Relaxed), place.bytes.load(Ordering::Relaxed));
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let at = ptr::with_exposed_provenance_mut(first);
    // SAFETY: the range is a mapping that the owner of the place has for itself, and only atomics are in it,
    // which have a value in the new memory too.
    unsafe { libc::mmap(at, bytes, rights, kind, -1, 0) != libc::MAP_FAILED }
}
