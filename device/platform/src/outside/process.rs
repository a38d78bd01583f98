//! The numbers, users, limits, namespaces and processors of this process, and facts about its system and its
//! clocks.

use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, CpuSet, capabilities, sched_getaffinity};

use super::fork_generation::InheritedOnce;

/// Returns the time of a clock, in ns; 0 if there is none of this number.
#[inline]
pub(super) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut read = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `read` is a live timespec, which the call fills.
    let status = unsafe { libc::clock_gettime(clock, &mut read) };
    if status != 0 {
        return 0;
    }
    // 64 bits of nanoseconds last 584 years.
    (read.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(read.tv_nsec as u64)
}

/// Returns the time since the beginning of 1970.
pub(super) fn clock_since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Reports whether the calling thread may bind ports below 1024 (CAP_NET_BIND_SERVICE); true if that is not
/// known.
pub fn may_bind_low_ports() -> bool {
    capabilities(None).map_or(true, |sets| sets.effective.contains(CapabilitySet::NET_BIND_SERVICE))
}

/// Returns the length of a page in bytes. The C library knows it; rustix would read the auxiliary vector of
/// the kernel, whose vDSO is not mapped where the program runs under valgrind.
pub fn page_bytes() -> u64 {
    // SAFETY: the call has no preconditions.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1)
}

/// Returns how many bytes the process may lock (RLIMIT_MEMLOCK); `None`: there is no limit.
pub fn lockable_bytes() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// Returns the number of this process.
#[inline]
pub fn number() -> u32 {
    outside().process()
}

/// Returns the number by which the kernel knows this process, for calls about its own memory: this answer
/// cannot be replaced.
pub fn kernel_number() -> libc::pid_t {
    process::Pid::as_raw(Some(process::getpid()))
}

/// Returns the number of the process that started this one.
pub fn parent() -> u32 {
    std::os::unix::process::parent_id()
}

/// Returns the user who owns the files and sockets that this process creates.
pub fn effective_user() -> u32 {
    process::geteuid().as_raw()
}

/// The users and groups of a process, by which the kernel decides what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    users: [u32; 2],
    groups: [u32; 2],
}

/// Returns the present credentials of this process.
pub fn credentials() -> Credentials {
    Credentials {
        users: [process::getuid().as_raw(), process::geteuid().as_raw()],
        groups: [process::getgid().as_raw(), process::getegid().as_raw()],
    }
}

/// Returns the user that the kernel names as the sender of this process's datagrams.
pub fn real_user() -> u32 {
    process::getuid().as_raw()
}

/// Reports whether the kernel lets this thread run on a processor, by its number; true for any if the kernel
/// does not say.
pub fn may_run_on(processor: u32) -> bool {
    let Ok(processor) = usize::try_from(processor) else { return false };
    processor < CpuSet::MAX_CPU && sched_getaffinity(None).map_or(true, |allowed| allowed.is_set(processor))
}

/// Returns a number that the kernel gives to one network namespace and to no other until it boots again,
/// unlike the inode number of `/proc/self/ns/net`. `None` before Linux 5.14, and where sockets are refused.
pub fn network_cookie() -> Option<u64> {
    // Sockets of every family belong to a network namespace, and these need none of its addresses.
    let socket = UnixDatagram::unbound().ok()?;
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_NETNS_COOKIE);
    // SAFETY: the socket is open, and the two variables have the sizes that the call writes.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut cookie).cast(), &raw mut length)
    };
    (result == 0 && length as usize == size_of::<u64>()).then_some(cookie)
}

/// A source of answers about the system. Every method has the machine's answer as its default, which a type
/// can override.
pub trait HostSystem: Sync {
    /// Returns the time of a clock that never goes back.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Returns the time of CLOCK_MONOTONIC, in ns.
    fn monotonic_ns(&self) -> u64 {
        clock_ns(libc::CLOCK_MONOTONIC)
    }

    /// Returns the time since the beginning of 1970.
    fn since_1970(&self) -> Duration {
        clock_since_1970()
    }

    /// Sleeps for `duration`.
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    /// Yields the processor to other threads.
    fn idle(&self) {
        std::thread::yield_now();
    }

    /// Returns how long a wait for another thread that should end after `patience` may take on the machine.
    fn patience(&self, patience: Duration) -> Duration {
        patience
    }

    /// Returns a number that no program can guess, another one each time.
    fn random(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }

    /// Returns the number of this process.
    fn process(&self) -> u32 {
        std::process::id()
    }

    /// Returns a variable of the environment.
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    /// Returns the arguments of the program, its name first.
    fn arguments(&self) -> Vec<OsString> {
        std::env::args_os().collect()
    }

    /// Returns the bytes of a system file, such as one in /proc or /sys.
    ///
    /// # Errors
    /// The system's error.
    fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }
}

/// The replacement of the machine, if there is one.
pub(super) static REPLACEMENT: InheritedOnce<&'static dyn HostSystem> = InheritedOnce::new();

/// Replaces the machine by `outside`, in this process and in its children. Only the first call counts: an
/// answer that was given once must stay true.
pub fn replace(outside: &'static dyn HostSystem) {
    REPLACEMENT.set(outside);
}

/// The machine.
struct RealSystem;

impl HostSystem for RealSystem {}

/// Returns the source of answers.
#[inline]
pub(super) fn outside() -> &'static dyn HostSystem {
    REPLACEMENT.get().map_or(&RealSystem, |outside| *outside)
}

/// Returns a number that no program can guess, another one each time.
pub fn random() -> u64 {
    outside().random()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_run_somewhere_and_nowhere_else() {
        assert!((0..1024).any(may_run_on));
        assert!(!may_run_on(0xffff) && !may_run_on(u32::MAX));
    }

    #[test]
    fn the_number_stays_while_the_namespace_does() {
        assert_eq!(network_cookie(), network_cookie());
    }
}
