//! Which process and thread this is, and which processes objects are of.

use std::cell::Cell;

pub(crate) use pumice_device::outside::lineage::own_process;

/// A thread, as the kernel numbers it.
pub(crate) type Thread = libc::pid_t;

thread_local! {
    static OWN_THREAD: Cell<(u32, Thread)> = const { Cell::new((0, 0)) };
}

/// The number of the calling thread.
pub(crate) fn own_thread() -> Thread {
    let process = own_process();
    OWN_THREAD.with(|own| {
        let (of, thread) = own.get();
        if of == process {
            return thread;
        }
        // SAFETY: no memory is involved; thread numbers fit.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) as Thread };
        own.set((process, thread));
        thread
    })
}

/// Whether a thread of this process is there.
pub(crate) fn is_alive(thread: Thread) -> bool {
    // SAFETY: no signal is sent.
    unsafe { libc::syscall(libc::SYS_tgkill, own_process(), thread, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_process_have_numbers_of_their_own() {
        let here = own_thread();
        assert_eq!(own_thread(), here);
        assert_eq!(own_process(), std::process::id());
        let (there, process) = std::thread::spawn(|| (own_thread(), own_process())).join().unwrap();
        assert_ne!(there, here);
        assert_eq!(process, own_process());
        assert!(is_alive(here) && !is_alive(Thread::MAX));
    }

    #[test]
    fn a_child_knows_that_it_is_another() {
        let (parent, thread) = (own_process(), own_thread());
        // SAFETY: the child only looks at its numbers and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let other =
                own_process() != parent && own_thread() != thread && own_process() == std::process::id();
            // SAFETY: ends the child without running what the parent registered.
            unsafe { libc::_exit(if other { 0 } else { 1 }) };
        }
        assert!(child > 0);
        let mut status = -1;
        // SAFETY: our own child, and a live variable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
