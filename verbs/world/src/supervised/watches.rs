//! Watches of descriptors: the kernel says, in one call, which of the waits of all threads may end.
//!
//! Duplicates of the descriptors are in one epoll descriptor, as long as the wait takes. So the files that a
//! thread waits for stay those of the beginning of its wait, as in the kernel's own waits.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use nix::errno::Errno;
use nix::poll::PollTimeout;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

/// Number of checks of a wait after which its descriptors are watched: to begin a watch costs as much as a
/// few checks.
pub(crate) const CHECKS_BEFORE_WATCH: u32 = 3;
/// Maximum number of ready descriptors that are taken at a time.
const MAX_READY: usize = 1024;

/// All watches of a world.
pub(crate) struct Watches {
    /// The epoll descriptor; `None` if there is none, and each wait is checked by itself.
    set: Option<Rc<Epoll>>,
}

/// The watch of the descriptors that one thread waits for.
pub(crate) struct Watch {
    set: Rc<Epoll>,
    files: Vec<OwnedFd>,
}

impl Watches {
    pub(crate) fn new() -> Watches {
        Watches { set: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).ok().map(Rc::new) }
    }

    /// Begins to watch the files that a thread waits for, by its number, each with the events of poll.
    /// Returns `None` if one of them cannot be watched, or does not exist.
    pub(crate) fn watch(
        &self,
        thread: u32,
        files: impl Iterator<Item = (Option<OwnedFd>, i16)>,
    ) -> Option<Watch> {
        let mut watch = Watch { set: Rc::clone(self.set.as_ref()?), files: Vec::new() };
        for (file, events) in files {
            // The events of poll have the same numbers.
            let events = EpollFlags::from_bits_retain(i32::from(events));
            let file = file?;
            watch.set.add(&file, EpollEvent::new(events, u64::from(thread))).ok()?;
            watch.files.push(file);
        }
        Some(watch)
    }

    /// Returns the threads for whose wait one of the watched files is ready.
    pub(crate) fn ready(&self) -> BTreeSet<u32> {
        let Some(set) = &self.set else { return BTreeSet::new() };
        let mut events = vec![EpollEvent::empty(); MAX_READY];
        let count = loop {
            match set.wait(&mut events, PollTimeout::ZERO) {
                // A tick of the watchdog interrupts even a wait that does not wait.
                Err(Errno::EINTR) => {}
                other => break other.unwrap_or(0),
            }
        };
        events.iter().take(count).filter_map(|event| u32::try_from(event.data()).ok()).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for file in &self.files {
            // The file itself lives on in the program, and would stay in the set.
            let _ = self.set.delete(file);
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Watch").field("files", &self.files).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_tells_its_thread_from_others_until_it_ends() {
        let watches = Watches::new();
        let pipes = [nix::unistd::pipe().unwrap(), nix::unistd::pipe().unwrap()];
        let file = |index: usize| (pipes[index].0.try_clone().ok(), libc::POLLIN);
        let first = watches.watch(1, [file(0)].into_iter()).unwrap();
        let _second = watches.watch(2, [file(0), file(1)].into_iter()).unwrap();
        assert_eq!(watches.ready(), BTreeSet::new());
        nix::unistd::write(&pipes[1].1, b"x").unwrap();
        assert_eq!(watches.ready(), BTreeSet::from([2]));
        nix::unistd::write(&pipes[0].1, b"x").unwrap();
        assert_eq!(watches.ready(), BTreeSet::from([1, 2]));
        drop(first);
        assert_eq!(watches.ready(), BTreeSet::from([2]));
        // A file of a file system cannot be watched, and a descriptor that does not exist is ready.
        let of_disk = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(watches.watch(3, [(Some(of_disk.into()), libc::POLLIN)].into_iter()).is_none());
        assert!(watches.watch(3, [(None, libc::POLLIN)].into_iter()).is_none());
    }
}
