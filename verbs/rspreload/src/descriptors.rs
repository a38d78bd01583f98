//! Records of descriptors, and children that share their parent's memory (vfork(2)).
//!
//! Children that share their parent's memory (vfork(2), which posix_spawn(3) and Python's subprocess use):
//! they close descriptors of their own, and the records about the parent's must not change.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use pumice_platform::outside::process;

/// Number of descriptors that can be rsockets; those beyond never are.
const MAX_DESCRIPTORS: usize = 1 << 16;
const BITS: usize = 64;

static RSOCKETS: [AtomicU64; MAX_DESCRIPTORS / BITS] = [const { AtomicU64::new(0) }; MAX_DESCRIPTORS / BITS];
/// Number of librdmacm's set for a set of the kernel's, plus one; 0 if there is none.
static SETS: [AtomicI32; MAX_DESCRIPTORS] = [const { AtomicI32::new(0) }; MAX_DESCRIPTORS];

fn bit_of(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((RSOCKETS.get(fd / BITS)?, 1 << (fd % BITS)))
}

/// Reports whether a descriptor is an rsocket.
#[inline]
pub(crate) fn is_rsocket(fd: c_int) -> bool {
    bit_of(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Records an rsocket. Returns false if its number is too high for that.
pub(crate) fn add(fd: c_int) -> bool {
    bit_of(fd).map(|(word, bit)| word.fetch_or(bit, Ordering::Relaxed)).is_some()
}

/// Removes an rsocket; returns whether it was one.
pub(crate) fn remove(fd: c_int) -> bool {
    bit_of(fd).is_some_and(|(word, bit)| word.fetch_and(!bit, Ordering::Relaxed) & bit != 0)
}

/// Returns librdmacm's set for a set of the kernel's.
pub(crate) fn rsocket_set_of(epoll: c_int) -> Option<c_int> {
    let entry = SETS.get(usize::try_from(epoll).ok()?)?;
    Some(entry.load(Ordering::Relaxed) - 1).filter(|set| *set >= 0)
}

/// Sets librdmacm's set for a set of the kernel's; `None` removes it. Returns the former one, if there was
/// one.
pub(crate) fn set_rsocket_set(epoll: c_int, set: Option<c_int>) -> Option<c_int> {
    let entry = SETS.get(usize::try_from(epoll).ok()?)?;
    let before = entry.swap(set.map_or(0, |set| set + 1), Ordering::Relaxed);
    Some(before - 1).filter(|set| *set >= 0)
}

/// A page of the largest size that kernels for the processor use: a forked child finds it zeroed.
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(4096)))]
#[cfg_attr(target_arch = "aarch64", repr(C, align(65536)))]
struct OwnerPage {
    /// Process that the memory belongs to; 0 if not known.
    process: AtomicI32,
}

static PAGE: OwnerPage = OwnerPage { process: AtomicI32::new(0) };

/// Records that this process has rsockets.
pub(crate) fn record_process() {
    let page = (&raw const PAGE).cast_mut().cast();
    // SAFETY: a whole page of this file's, and the advice changes nothing in this process.
    if unsafe { libc::madvise(page, size_of::<OwnerPage>(), libc::MADV_WIPEONFORK) } == 0 {
        PAGE.process.store(current_process(), Ordering::Relaxed);
    }
}

/// Reports whether the caller is such a child of a process with rsockets.
pub(crate) fn is_vfork_child() -> bool {
    let process = PAGE.process.load(Ordering::Relaxed);
    process != 0 && process != current_process()
}

fn current_process() -> c_int {
    process::kernel_number()
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
    fn sets_have_at_most_one_rsocket_set() {
        assert_eq!(rsocket_set_of(9), None);
        assert_eq!(set_rsocket_set(9, Some(0)), None);
        assert_eq!(rsocket_set_of(9), Some(0));
        assert_eq!(set_rsocket_set(9, None), Some(0));
        assert_eq!(
            (rsocket_set_of(9), rsocket_set_of(-1), set_rsocket_set(1 << 20, Some(1))),
            (None, None, None)
        );
    }

    #[test]
    fn a_forked_child_is_no_vfork_child() {
        assert!(!is_vfork_child());
        record_process();
        assert!(!is_vfork_child());
        // SAFETY: the child reads a number and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: this ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(c_int::from(is_vfork_child())) };
        }
        let mut status = -1;
        // SAFETY: the process is a child of this one, and the pointer is to a live variable.
        assert_eq!((unsafe { libc::waitpid(child, &mut status, 0) }, status), (child, 0));
    }
}
