//! Plain copies to and from registered memory.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Copies application memory at `source` into `out`.
#[inline]
pub(super) fn load(source: u64, out: &mut [u8]) {
    // SAFETY: the caller located `source..source + out.len()` inside a registered range, which
    // `RegionTable::register` requires to stay mapped. `out` is the device's own buffer, so the two
    // do not overlap. The application may write at the same time: the bytes are then any mixture.
    unsafe {
        ptr::copy_nonoverlapping(
            ptr::with_exposed_provenance::<u8>(source as usize),
            out.as_mut_ptr(),
            out.len(),
        );
    }
}

/// Copies ranges (process address, bytes) of registered memory one behind the other to the front of `out`;
/// false if `out` is too short.
///
/// # Safety
/// All ranges can be read, as `RegionTable::register` requires of registered memory.
pub unsafe fn read_registered(ranges: &[(u64, usize)], mut out: &mut [u8]) -> bool {
    for (address, bytes) in ranges {
        let Some((now, rest)) = out.split_at_mut_checked(*bytes) else { return false };
        load(*address, now);
        out = rest;
    }
    true
}

/// Copies `data` into application memory at `target`, the last aligned word last.
#[inline]
pub(super) fn store(target: u64, data: &[u8]) {
    let end = target.wrapping_add(data.len() as u64);
    if let Some((head, tail)) = data.split_last_chunk::<8>()
        && end.is_multiple_of(8)
    {
        store_bytes(target, head);
        let place = ptr::with_exposed_provenance_mut::<u64>((end - 8) as usize);
        // SAFETY: as in `store_bytes`; the word is aligned and inside the range.
        unsafe { AtomicU64::from_ptr(place) }.store(u64::from_ne_bytes(*tail), Ordering::Release);
    } else if let Some((head, tail)) = data.split_last_chunk::<4>()
        && end.is_multiple_of(4)
    {
        store_bytes(target, head);
        let place = ptr::with_exposed_provenance_mut::<u32>((end - 4) as usize);
        // SAFETY: as in `store_bytes`; the word is aligned and inside the range.
        unsafe { AtomicU32::from_ptr(place) }.store(u32::from_ne_bytes(*tail), Ordering::Release);
    } else if let Some((last, head)) = data.split_last() {
        store_bytes(target, head);
        fence(Ordering::Release);
        store_bytes(end - 1, std::slice::from_ref(last));
    }
}

#[inline]
fn store_bytes(target: u64, data: &[u8]) {
    // SAFETY: the caller located `target..target + data.len()` inside a registered range with a
    // write right, which `RegionTable::register` requires to stay mapped and writable. `data` is the
    // device's own buffer, so the two do not overlap.
    unsafe {
        ptr::copy_nonoverlapping(
            data.as_ptr(),
            ptr::with_exposed_provenance_mut::<u8>(target as usize),
            data.len(),
        );
    }
}
