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

use super::readiness::Descriptors;
use super::threads::ThreadId;
use super::waits::Interest;

/// Number of checks of a wait after which its descriptors are watched: to begin a watch costs as much as a few
/// checks.
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

    /// Begins to watch the descriptors that a thread waits for. Returns `None` if one of them cannot be
    /// watched.
    pub(crate) fn watch(
        &self,
        thread: ThreadId,
        descriptors: &Descriptors,
        interests: &[Interest],
    ) -> Option<Watch> {
        let mut watch = Watch { set: Rc::clone(self.set.as_ref()?), files: Vec::new() };
        for interest in interests.iter().filter(|interest| interest.descriptor >= 0) {
            let file = descriptors.get(interest.descriptor)?;
            // The events of poll have the same numbers.
            let events = EpollFlags::from_bits_retain(i32::from(interest.events));
            watch.set.add(&file, EpollEvent::new(events, u64::from(thread.0))).ok()?;
            watch.files.push(file);
        }
        Some(watch)
    }

    /// Returns the threads for whose wait one of the watched descriptors is ready.
    pub(crate) fn ready(&self) -> BTreeSet<ThreadId> {
        let Some(set) = &self.set else { return BTreeSet::new() };
        let mut events = vec![EpollEvent::empty(); MAX_READY];
        let count = loop {
            match set.wait(&mut events, PollTimeout::ZERO) {
                // A tick of the watchdog interrupts even a wait that does not wait.
                Err(Errno::EINTR) => {}
                other => break other.unwrap_or(0),
            }
        };
        let ready = events.iter().take(count).filter_map(|event| u32::try_from(event.data()).ok());
        ready.map(ThreadId).collect()
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
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_watch_tells_its_thread_from_others_until_it_ends() {
        let watches = Watches::new();
        let own = Descriptors::of(nix::unistd::getpid());
        let pipes = [nix::unistd::pipe().unwrap(), nix::unistd::pipe().unwrap()];
        let interest =
            |index: usize| Interest { descriptor: pipes[index].0.as_raw_fd(), events: libc::POLLIN };
        let first = watches.watch(ThreadId(1), &own, &[interest(0)]).unwrap();
        let _second = watches.watch(ThreadId(2), &own, &[interest(0), interest(1)]).unwrap();
        assert_eq!(watches.ready(), BTreeSet::new());
        nix::unistd::write(&pipes[1].1, b"x").unwrap();
        assert_eq!(watches.ready(), BTreeSet::from([ThreadId(2)]));
        nix::unistd::write(&pipes[0].1, b"x").unwrap();
        assert_eq!(watches.ready(), BTreeSet::from([ThreadId(1), ThreadId(2)]));
        drop(first);
        assert_eq!(watches.ready(), BTreeSet::from([ThreadId(2)]));
        // A file of a file system cannot be watched, and a descriptor that does not exist is ready.
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let of_file = Interest { descriptor: file.as_raw_fd(), events: libc::POLLIN };
        assert!(watches.watch(ThreadId(3), &own, &[of_file]).is_none());
        assert!(watches.watch(ThreadId(3), &own, &[Interest { descriptor: 1 << 20, ..of_file }]).is_none());
    }
}
