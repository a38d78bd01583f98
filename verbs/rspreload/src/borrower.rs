//! Children that share their parent's memory (vfork(2), which posix_spawn(3) and Python's subprocess use):
//! they close descriptors of their own, and what is known of the parent's must stay as it is.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use pumice_ground::outside::process;

/// A page, as large as the kernel of the processor may have them: a forked child finds it zeroed.
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(4096)))]
#[cfg_attr(target_arch = "aarch64", repr(C, align(65536)))]
struct Page {
    /// The process whose memory this is; 0: not known.
    process: AtomicI32,
}

static PAGE: Page = Page { process: AtomicI32::new(0) };

/// From now on this process has rsockets.
pub(crate) fn note_process() {
    let page = (&raw const PAGE).cast_mut().cast();
    // SAFETY: a whole page of this file's, and the advice changes nothing in this process.
    if unsafe { libc::madvise(page, size_of::<Page>(), libc::MADV_WIPEONFORK) } == 0 {
        PAGE.process.store(own(), Ordering::Relaxed);
    }
}

/// Whether the caller is such a child of a process with rsockets.
pub(crate) fn is_borrower() -> bool {
    let process = PAGE.process.load(Ordering::Relaxed);
    process != 0 && process != own()
}

fn own() -> c_int {
    process::kernel_number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_is_no_borrower() {
        assert!(!is_borrower());
        note_process();
        assert!(!is_borrower());
        // SAFETY: the child looks at a number and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child without running what the parent registered.
            unsafe { libc::_exit(c_int::from(is_borrower())) };
        }
        let mut status = -1;
        // SAFETY: our own child, and a live variable.
        assert_eq!((unsafe { libc::waitpid(child, &mut status, 0) }, status), (child, 0));
    }
}
