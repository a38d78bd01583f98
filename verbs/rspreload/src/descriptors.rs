//! Which descriptors are rsockets, and which sets of epoll have rsockets in them.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Descriptors beyond are never rsockets.
const MOST: usize = 1 << 16;
const BITS: usize = 64;

static RSOCKETS: [AtomicU64; MOST / BITS] = [const { AtomicU64::new(0) }; MOST / BITS];
/// One more than the set of librdmacm's that stands behind a set of the kernel's; 0 if none does.
static SETS: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];

fn bit_of(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((RSOCKETS.get(fd / BITS)?, 1 << (fd % BITS)))
}

/// Whether it is an rsocket.
#[inline]
pub(crate) fn is_rsocket(fd: c_int) -> bool {
    bit_of(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// It is one now. False: its number is too high for that to be remembered.
pub(crate) fn add(fd: c_int) -> bool {
    bit_of(fd).map(|(word, bit)| word.fetch_or(bit, Ordering::Relaxed)).is_some()
}

/// It is none any more. Whether it was.
pub(crate) fn remove(fd: c_int) -> bool {
    bit_of(fd).is_some_and(|(word, bit)| word.fetch_and(!bit, Ordering::Relaxed) & bit != 0)
}

/// The set of librdmacm's behind a set of the kernel's.
pub(crate) fn set_behind(epoll: c_int) -> Option<c_int> {
    let entry = SETS.get(usize::try_from(epoll).ok()?)?;
    Some(entry.load(Ordering::Relaxed) - 1).filter(|set| *set >= 0)
}

/// There is one now; `None`: not any more. The one before, if there was one.
pub(crate) fn put_behind(epoll: c_int, set: Option<c_int>) -> Option<c_int> {
    let entry = SETS.get(usize::try_from(epoll).ok()?)?;
    let before = entry.swap(set.map_or(0, |set| set + 1), Ordering::Relaxed);
    Some(before - 1).filter(|set| *set >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_remembered_one_by_one() {
        assert!(!is_rsocket(-1) && !is_rsocket(c_int::MAX) && !is_rsocket(70));
        assert!(add(70) && add(65535) && !add(65536) && !add(-1));
        assert!(
            is_rsocket(70) && is_rsocket(65535) && !is_rsocket(6) && !is_rsocket(71) && !is_rsocket(65536)
        );
        assert!(remove(70) && !remove(70) && !remove(-1));
        assert!(!is_rsocket(70));
    }

    #[test]
    fn sets_have_at_most_one_behind_them() {
        assert_eq!(set_behind(9), None);
        assert_eq!(put_behind(9, Some(0)), None);
        assert_eq!(set_behind(9), Some(0));
        assert_eq!(put_behind(9, None), Some(0));
        assert_eq!((set_behind(9), set_behind(-1), put_behind(1 << 20, Some(1))), (None, None, None));
    }
}
