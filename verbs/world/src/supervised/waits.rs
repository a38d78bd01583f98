//! The conditions that threads wait for: words in memory, watches of descriptors.
//!
//! Duplicates of the descriptors are in one epoll descriptor, as long as the wait takes. So the files that a
//! thread waits for stay those of the beginning of its wait, as in the kernel's own waits.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use nix::errno::Errno;
use nix::poll::PollTimeout;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::tracee::Tracee;

/// The device and inode of a mapped file, the offset of the mapping in it, and its length.
pub(crate) type MappingKey = (u64, u64, u64, u64);

/// A word of memory, the same in all processes that have it mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FutexKey {
    /// A word of private memory of one process.
    Private {
        /// Process, by its order of birth.
        process: u32,
        /// Address of the word.
        address: u64,
    },
    /// A word of a file, or of shared anonymous memory.
    Shared {
        /// Device and inode of the memory.
        file: (u64, u64),
        /// Offset in the memory, in bytes.
        offset: u64,
    },
}

/// Returns the identity of the word at an address in the memory of `tracee`, a thread of `process`.
pub(crate) fn futex_key(tracee: Tracee, process: u32, address: u64, is_private: bool) -> FutexKey {
    let private = FutexKey::Private { process, address };
    if is_private {
        return private;
    }
    let maps = fs::read_to_string(format!("/proc/{}/maps", tracee.0)).unwrap_or_default();
    maps.lines().find_map(|line| shared_futex_key(line, address)).unwrap_or(private)
}

/// Returns the shared word at this address, if this line of a process's map is the mapping that contains it,
/// and is shared.
fn shared_futex_key(line: &str, address: u64) -> Option<FutexKey> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let is_shared = fields.next()?.contains('s');
    if !(start..end).contains(&address) || !is_shared {
        return None;
    }
    let (begin, device, inode) = (hex(fields.next()?)?, fields.next()?, fields.next()?);
    let (major, minor) = device.split_once(':')?;
    let file = (hex(major)? << 32 | hex(minor)?, inode.parse().ok()?);
    Some(FutexKey::Shared { file, offset: begin + (address - start) })
}

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

/// A descriptor and the requested events, as in `poll`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) descriptor: i32,
    pub(crate) events: i16,
}

/// An end of a FIFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FifoEnd {
    /// Device and inode of the file.
    pub(crate) file: (u64, u64),
    /// The end to which programs write, and not the one from which they read.
    pub(crate) writes: bool,
}

/// The condition that ends a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// A wait that ends by time alone.
    Time,
    /// A wake of this word with one of these bits ends the wait.
    Futex(FutexKey, u32),
    /// The readiness of one of these descriptors ends the wait.
    Descriptors(Vec<Interest>),
    /// The end of a child ends the wait.
    Child,
    /// A thread that opens the other end of a FIFO ends the wait. The flags are those of the call.
    Fifo(FifoEnd, i32),
    /// Any change ends the wait, and the call is tried again. The text describes what it waits for.
    Change(&'static str),
    /// A signal ends the wait.
    Signal,
}

/// A wait of a thread.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) on: WaitFor,
    /// Time at which the wait ends, since the world began, in ns.
    pub(crate) until_ns: Option<u64>,
    /// Number of changes at the last check.
    pub(crate) checked_at_change: u64,
    /// Number of checks whether one of its descriptors is ready.
    pub(crate) checks: u32,
    /// Watch of its descriptors, after some checks.
    pub(crate) watch: Option<Watch>,
}

impl Wait {
    pub(crate) const fn new(on: WaitFor, until_ns: Option<u64>) -> Wait {
        Wait { on, until_ns, checked_at_change: 0, checks: 0, watch: None }
    }
}

/// A check of all waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WaitCheck {
    /// Number of changes before the check.
    pub(crate) change: u64,
    /// Time of the check, in ns.
    pub(crate) at_ns: u64,
    /// No wait has begun since.
    pub(crate) is_complete: bool,
}

/// The reason why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The condition is met, or may be.
    Ready,
    /// The time is over.
    TimedOut,
    /// A signal arrived.
    Interrupted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_futex_is_the_same_wherever_it_is_mapped() {
        let one = shared_futex_key("7f00-8f00 rw-s 00001000 00:01 77 /dev/shm/x", 0x7f10);
        let other = shared_futex_key("a000-b000 rw-s 00000000 00:01 77", 0xb010 - 0x10);
        assert_eq!(one, Some(FutexKey::Shared { file: (1, 77), offset: 0x1010 }));
        assert_eq!(other, None);
        assert_eq!(shared_futex_key("7f00-8f00 rw-p 00001000 00:01 77 /dev/shm/x", 0x7f10), None);
        assert_eq!(shared_futex_key("nothing", 1), None);
    }

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
