//! Mapped files that other processes of the user can shorten.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// An entry of the list of mapped files; it lives as long as the process.
#[derive(Debug)]
pub(crate) struct RangeEntry {
    first: AtomicUsize,
    /// Length of the range in bytes; 0: the entry is not used, or not yet.
    bytes: AtomicUsize,
    is_taken: AtomicBool,
    next: AtomicPtr<RangeEntry>,
}

pub(crate) static RANGES: AtomicPtr<RangeEntry> = AtomicPtr::new(ptr::null_mut());

pub(crate) fn all() -> impl Iterator<Item = &'static RangeEntry> {
    // SAFETY: entries are never freed.
    let first = unsafe { RANGES.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above.
    std::iter::successors(first, |entry| unsafe { entry.next.load(Ordering::Relaxed).as_ref() })
}

/// A mapped file of numbers that is not essential: if another process shortens the file, private memory of
/// this process replaces it, all zero.
#[derive(Debug)]
pub struct SharedRange(&'static RangeEntry);

impl SharedRange {
    /// Guards a range that is mapped, readable and writable.
    pub fn new(first: usize, bytes: usize) -> SharedRange {
        let entry = all().find(|entry| !entry.is_taken.swap(true, Ordering::Acquire)).unwrap_or_else(added);
        entry.first.store(first, Ordering::Relaxed);
        entry.bytes.store(bytes, Ordering::Release);
        SharedRange(entry)
    }
}

impl Drop for SharedRange {
    fn drop(&mut self) {
        self.0.bytes.store(0, Ordering::Relaxed);
        self.0.is_taken.store(false, Ordering::Release);
    }
}

pub(crate) fn added() -> &'static RangeEntry {
    let entry: &'static RangeEntry = Box::leak(Box::new(RangeEntry {
        first: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        is_taken: AtomicBool::new(true),
        next: AtomicPtr::new(ptr::null_mut()),
    }));
    let mut head = RANGES.load(Ordering::Acquire);
    loop {
        entry.next.store(head, Ordering::Relaxed);
        let added = ptr::from_ref(entry).cast_mut();
        match RANGES.compare_exchange_weak(head, added, Ordering::Release, Ordering::Acquire) {
            Ok(_) => return entry,
            Err(now) => head = now,
        }
    }
}

/// Replaces the mapped file that has this address by memory of this process. Returns false if there is none.
/// It is called by the signal handler.
pub(crate) fn replace(address: usize) -> bool {
    let has = |entry: &&RangeEntry| {
        let first = entry.first.load(Ordering::Relaxed);
        address >= first && address - first < entry.bytes.load(Ordering::Acquire)
    };
    let Some(entry) = all().find(has) else { return false };
    let (first, bytes) = (entry.first.load(Ordering::Relaxed), entry.bytes.load(Ordering::Relaxed));
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let at = ptr::with_exposed_provenance_mut(first);
    // SAFETY: the range is a mapping that the owner of the entry has for itself, and only atomics are in it,
    // which have a value in the new memory too.
    unsafe { libc::mmap(at, bytes, rights, kind, -1, 0) != libc::MAP_FAILED }
}
