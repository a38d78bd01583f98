//! Children that share their parent's memory (vfork(2), which posix_spawn(3) and Python's subprocess use):
//! they close descriptors of their own, and the records about the parent's must not change.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use pumice_platform::outside::process;

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
