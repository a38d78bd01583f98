//! Identity of this process and thread, and the process that objects belong to.

use std::cell::Cell;

pub(crate) use pumice_device::outside::fork_generation::current_pid;

/// A thread number of the kernel.
pub(crate) type ThreadNumber = libc::pid_t;

thread_local! {
    static OWN_THREAD: Cell<(u32, ThreadNumber)> = const { Cell::new((0, 0)) };
}

/// Returns the number of the calling thread.
pub(crate) fn own_thread() -> ThreadNumber {
    let process = current_pid();
    OWN_THREAD.with(|own| {
        let (of, thread) = own.get();
        if of == process {
            return thread;
        }
        // SAFETY: no memory is involved; thread numbers fit.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) as ThreadNumber };
        own.set((process, thread));
        thread
    })
}

/// Reports whether a thread of this process exists.
pub(crate) fn is_alive(thread: ThreadNumber) -> bool {
    // SAFETY: no signal is sent.
    unsafe { libc::syscall(libc::SYS_tgkill, current_pid(), thread, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_process_have_numbers_of_their_own() {
        let here = own_thread();
        assert_eq!(own_thread(), here);
        assert_eq!(current_pid(), std::process::id());
        let (there, process) = std::thread::spawn(|| (own_thread(), current_pid())).join().unwrap();
        assert_ne!(there, here);
        assert_eq!(process, current_pid());
        assert!(is_alive(here) && !is_alive(ThreadNumber::MAX));
    }

    #[test]
    fn a_child_knows_that_it_is_another() {
        let (parent, thread) = (current_pid(), own_thread());
        // SAFETY: the child only reads its numbers and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let other =
                current_pid() != parent && own_thread() != thread && current_pid() == std::process::id();
            // SAFETY: this ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(if other { 0 } else { 1 }) };
        }
        assert!(child > 0);
        let mut status = -1;
        // SAFETY: the process is a child of this one, and the pointer is to a live variable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
