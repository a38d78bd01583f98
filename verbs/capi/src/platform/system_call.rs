//! System calls on descriptors and UDP sockets, and the system calls that this process's threads are in.
//!
//! The calls go to the kernel by number and not by their names in the C library: a preload that replaces
//! sockets by rsockets has those names and would call this library. They are also no points at which a thread
//! is cancelled.

use std::ffi::{c_int, c_long};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::ptr;
use std::time::Instant;

use libc::{epoll_event, pollfd, sockaddr_storage, socklen_t, timespec};
use pumice_device::inspect::AwaitedThread;
use pumice_device::outside;

use super::{Errno, errno};

/// Returns the result of a system call, or this thread's errno.
fn checked(returned: c_long) -> Result<c_long, Errno> {
    if returned < 0 { Err(Errno(errno())) } else { Ok(returned) }
}

/// Takes a descriptor that a system call has just made.
fn owned(returned: c_long) -> Result<OwnedFd, Errno> {
    let descriptor = checked(returned)? as RawFd;
    // SAFETY: the kernel has just returned it, so no other part of the process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Makes an eventfd that does not block; `flags` are further flags of eventfd(2).
///
/// # Errors
/// Fails if there are no descriptors.
pub(crate) fn event(flags: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: the arguments are numbers.
    owned(unsafe { libc::syscall(libc::SYS_eventfd2, 0, flags | libc::EFD_NONBLOCK) })
}

/// Makes an eventfd readable.
pub(crate) fn signal(event: BorrowedFd<'_>) {
    let word = 1_u64.to_ne_bytes();
    // SAFETY: eight live bytes; an eventfd that does not block takes them or refuses.
    unsafe { libc::syscall(libc::SYS_write, event.as_raw_fd(), word.as_ptr(), word.len()) };
}

/// Makes an eventfd unreadable.
pub(crate) fn clear(event: BorrowedFd<'_>) {
    let mut word = [0_u8; 8];
    // SAFETY: room for eight bytes; an eventfd that does not block fills them or refuses.
    unsafe { libc::syscall(libc::SYS_read, event.as_raw_fd(), word.as_mut_ptr(), word.len()) };
}

/// Makes an epoll instance, closed on exec.
///
/// # Errors
/// Fails if there are no descriptors.
pub(crate) fn epoll() -> Result<OwnedFd, Errno> {
    // SAFETY: the argument is a number.
    owned(unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })
}

/// Calls epoll_ctl(2) for readability of `descriptor`, which is also the event's number.
///
/// # Errors
/// Fails with EEXIST, ENOENT and others of epoll_ctl(2).
pub(crate) fn epoll_change(epoll: BorrowedFd<'_>, operation: c_int, descriptor: RawFd) -> Result<(), Errno> {
    let mut interest = epoll_event { events: libc::EPOLLIN as u32, u64: descriptor as u64 };
    let epoll = epoll.as_raw_fd();
    // SAFETY: a live structure, which the kernel only reads.
    checked(unsafe { libc::syscall(libc::SYS_epoll_ctl, epoll, operation, descriptor, &raw mut interest) })?;
    Ok(())
}

/// Calls epoll_pwait(2) without a signal mask, and returns how many of `ready` are filled. A `limit_ms` of -1
/// is for ever.
pub(crate) fn epoll_wait(epoll: BorrowedFd<'_>, ready: &mut [epoll_event], limit_ms: c_int) -> usize {
    let (no_mask, mask_bytes) = (ptr::null::<libc::sigset_t>(), 8_usize);
    let (epoll, events, room) = (epoll.as_raw_fd(), ready.as_mut_ptr(), ready.len());
    // SAFETY: there is room for this many events; no mask.
    let count =
        unsafe { libc::syscall(libc::SYS_epoll_pwait, epoll, events, room, limit_ms, no_mask, mask_bytes) };
    usize::try_from(count).unwrap_or_default()
}

/// Calls poll(2) until an entry is ready or the time is up, and returns the number of ready entries.
///
/// # Errors
/// Fails with EINTR and the other errors of poll(2).
pub(crate) fn poll(entries: &mut [pollfd], until: Option<Instant>) -> Result<usize, Errno> {
    let time = until.map(|until| {
        let left = until.saturating_duration_since(outside::now());
        timespec {
            tv_sec: left.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let (no_mask, mask_bytes) = (ptr::null::<libc::sigset_t>(), 8_usize);
    let (first, count) = (entries.as_mut_ptr(), entries.len());
    // SAFETY: live entries; null or a live time; no mask.
    let ready = unsafe { libc::syscall(libc::SYS_ppoll, first, count, time, no_mask, mask_bytes) };
    checked(ready).map(|ready| ready as usize)
}

/// Calls fcntl(2) for flags.
fn flags(descriptor: RawFd, command: c_int) -> Result<c_int, Errno> {
    // SAFETY: the arguments are numbers, and the commands of this file take no other argument.
    checked(unsafe { libc::syscall(libc::SYS_fcntl, descriptor, command) }).map(|flags| flags as c_int)
}

/// Reports whether a program has set O_NONBLOCK.
pub(crate) fn is_nonblocking(descriptor: BorrowedFd<'_>) -> bool {
    flags(descriptor.as_raw_fd(), libc::F_GETFL).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0)
}

/// Reports whether a number is that of an open descriptor.
pub(crate) fn is_open(descriptor: RawFd) -> bool {
    flags(descriptor, libc::F_GETFD).is_ok()
}

/// Closes a number that no [`OwnedFd`] of this process owns: one that a forked child has from its parent.
pub(crate) fn close(descriptor: RawFd) {
    // SAFETY: the argument is a number, and by the caller's word no owner of it is left to close it again.
    unsafe { libc::syscall(libc::SYS_close, descriptor) };
}

/// Makes a UDP socket that does not block, closed on exec.
///
/// # Errors
/// Fails if there are no descriptors, or no such family.
pub(crate) fn udp_socket(family: c_int) -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the arguments are numbers.
    owned(unsafe { libc::syscall(libc::SYS_socket, family, kind, 0) })
}

/// Calls bind(2) with an address in its C form.
///
/// # Errors
/// Fails with the errors of bind(2).
pub(crate) fn bind(
    socket: BorrowedFd<'_>,
    address: &sockaddr_storage,
    length: socklen_t,
) -> Result<(), Errno> {
    let length = length.min(size_of::<sockaddr_storage>() as socklen_t);
    // SAFETY: the structure has at least this many bytes.
    checked(unsafe { libc::syscall(libc::SYS_bind, socket.as_raw_fd(), ptr::from_ref(address), length) })?;
    Ok(())
}

/// Calls setsockopt(2).
///
/// # Errors
/// Fails with the errors of setsockopt(2).
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: Option<&[u8]>,
) -> Result<(), Errno> {
    let (bytes, length) = value.map_or((ptr::null(), 0), |value| (value.as_ptr(), value.len()));
    let fd = socket.as_raw_fd();
    // SAFETY: null, or this many live bytes, which the kernel only reads.
    checked(unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, option, bytes, length) })?;
    Ok(())
}

/// Calls getsockopt(2), for at most `most` bytes.
///
/// # Errors
/// Fails with the errors of getsockopt(2).
pub(crate) fn option(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    most: usize,
) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0_u8; most];
    let mut length = most as socklen_t;
    let (fd, buffer) = (socket.as_raw_fd(), value.as_mut_ptr());
    // SAFETY: there is room for as many bytes as `length` says; the kernel writes how many it used.
    checked(unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, option, buffer, &raw mut length) })?;
    value.truncate(length as usize);
    Ok(value)
}

/// Largest number of threads that are examined.
const MAX_THREADS: usize = 64;
/// Largest number of descriptors of a call that are examined.
const MAX_POLLED: usize = 1024;
/// Length of a `struct pollfd` in bytes.
const POLLFD_BYTES: usize = 8;
/// Length in bytes of the beginning of a `pthread_mutex_t` of glibc: its word, the number of times that its
/// owner has locked it, and the owner.
const MUTEX_BYTES: usize = 12;
/// Word of a mutex that is locked, and that another thread waits for.
const LOCKED_AND_AWAITED: u32 = 2;
/// Prefix of the names of this library's threads.
const OWN_PREFIX: &str = "pumice-";

/// A thread and the system call that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ThreadInfo {
    /// Number of the thread.
    pub(crate) number: u32,
    pub(crate) name: String,
    /// System call that it is in; `None` if it computes.
    pub(crate) call: Option<KernelCall>,
}

/// Returns all threads except those of this library.
pub(crate) fn threads() -> Vec<ThreadInfo> {
    let tasks = outside::files::list("/proc/self/task").into_iter().flatten().flatten();
    tasks
        .take(MAX_THREADS)
        .filter_map(|task| {
            let number = task.file_name().to_str()?.parse().ok()?;
            let text = |name| outside::files::fact_text(task.path().join(name)).unwrap_or_default();
            let name = text("comm").trim_end().to_owned();
            if name.starts_with(OWN_PREFIX) {
                return None;
            }
            Some(ThreadInfo { number, name, call: KernelCall::parse(&text("syscall")) })
        })
        .collect()
}

/// Returns the calling thread's number.
pub(crate) fn kernel_thread_number() -> u32 {
    // SAFETY: the call has no argument.
    let number = unsafe { libc::syscall(libc::SYS_gettid) };
    u32::try_from(number).unwrap_or_default()
}

/// A system call that a thread is in, with its first arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelCall {
    number: i64,
    first: u64,
    second: u64,
    third: u64,
    fourth: u64,
}

impl KernelCall {
    /// Parses the text of the kernel, such as "7 0x7ffd2e3c 0x1 …"; a thread that computes has "running".
    pub(crate) fn parse(text: &str) -> Option<KernelCall> {
        let mut words = text.split(' ');
        let number = words.next()?.parse().ok()?;
        let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let (first, second) = (argument()?, argument()?);
        let (third, fourth) = (argument().unwrap_or_default(), argument().unwrap_or_default());
        Some(KernelCall { number, first, second, third, fourth })
    }

    /// Returns its name, or its number.
    pub(crate) fn name(&self) -> String {
        let name = match self.number {
            libc::SYS_read | libc::SYS_readv | libc::SYS_pread64 => "read",
            libc::SYS_write | libc::SYS_writev | libc::SYS_pwrite64 => "write",
            libc::SYS_ppoll => "poll",
            libc::SYS_pselect6 => "select",
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => "epoll_wait",
            // A call with a time limit ends by itself.
            libc::SYS_futex if self.fourth != 0 => "futex with a limit",
            libc::SYS_futex => "futex",
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => "sleep",
            libc::SYS_sched_yield => "sched_yield",
            libc::SYS_wait4 | libc::SYS_waitid => "wait",
            libc::SYS_accept | libc::SYS_accept4 => "accept",
            libc::SYS_connect => "connect",
            libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_recvmmsg => "recv",
            libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_sendmmsg => "send",
            libc::SYS_rt_sigtimedwait => "sigwait",
            libc::SYS_rt_sigsuspend => "pause",
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => "poll",
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => "select",
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => "epoll_wait",
            #[cfg(target_arch = "x86_64")]
            libc::SYS_pause => "pause",
            other => return format!("system call {other}"),
        };
        name.to_owned()
    }

    /// Reports whether it is poll(2), select(2), epoll_wait(2) or one like these, and ends if the descriptor
    /// is readable.
    pub(crate) fn awaits(&self, descriptor: i32) -> bool {
        match self.number {
            libc::SYS_ppoll => self.polls(descriptor),
            libc::SYS_pselect6 => self.selects(descriptor),
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => self.has_in_set(descriptor),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => self.polls(descriptor),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => self.selects(descriptor),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => self.has_in_set(descriptor),
            _ => false,
        }
    }

    /// Reports whether it is read(2) of this descriptor.
    pub(crate) fn reads(&self, descriptor: i32) -> bool {
        self.number == libc::SYS_read && i32::try_from(self.first) == Ok(descriptor)
    }

    /// Returns the thread that a futex(2) without a time limit waits for: the one that holds a
    /// `pthread_mutex_t`, or the one that pthread_join(3) waits for.
    pub(crate) fn awaited_thread(&self) -> Option<AwaitedThread> {
        if self.number != libc::SYS_futex || self.fourth != 0 {
            return None;
        }
        let bytes = memory(self.first, MUTEX_BYTES);
        let (words, _) = bytes.as_chunks::<4>();
        let [word, _, owner] = [*words.first()?, *words.get(1)?, *words.get(2)?].map(u32::from_ne_bytes);
        // The thread waits while the word has this value.
        if u64::from(word) != self.third {
            return None;
        }
        match word {
            LOCKED_AND_AWAITED if is_thread(owner) => Some(AwaitedThread::Lock { thread: owner }),
            thread if is_thread(thread) => Some(AwaitedThread::End { thread }),
            _ => None,
        }
    }

    /// Searches the `struct pollfd`s: the first argument is their address, the second their number.
    fn polls(&self, descriptor: i32) -> bool {
        let count = usize::try_from(self.second).unwrap_or(usize::MAX).min(MAX_POLLED);
        let bytes = memory(self.first, count.saturating_mul(POLLFD_BYTES));
        let (polled, _) = bytes.as_chunks::<POLLFD_BYTES>();
        polled.iter().any(|one| one.starts_with(&descriptor.to_ne_bytes()))
    }

    /// Tests a bit: the first argument is the number of bits, the second the address of those that are to be
    /// readable.
    fn selects(&self, descriptor: i32) -> bool {
        let Ok(bit) = u64::try_from(descriptor) else { return false };
        let byte = memory(self.second.wrapping_add(bit / 8), 1);
        bit < self.first && byte.first().is_some_and(|byte| byte & (1 << (bit % 8)) != 0)
    }

    /// Searches the members of an epoll set, whose descriptor is the first argument.
    fn has_in_set(&self, descriptor: i32) -> bool {
        let set = outside::files::fact_text(format!("/proc/self/fdinfo/{}", self.first)).unwrap_or_default();
        let members = set.lines().filter_map(|line| line.strip_prefix("tfd:")?.split_whitespace().next());
        members.into_iter().any(|member| member.parse() == Ok(descriptor))
    }
}

/// Reports whether this is the number of a thread of this process.
fn is_thread(number: u32) -> bool {
    number != 0 && outside::files::fact_text(format!("/proc/self/task/{number}/comm")).is_ok()
}

/// Copies memory of this process through the kernel, because the program may unmap it meanwhile.
fn memory(address: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let read =
        outside::files::open("/proc/self/mem").and_then(|memory| memory.read_exact_at(&mut bytes, address));
    if read.is_ok() { bytes } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: i64, first: u64, second: u64) -> KernelCall {
        KernelCall { number, first, second, third: 0, fourth: 0 }
    }

    #[test]
    fn calls_are_read_and_running_threads_have_none() {
        let call = KernelCall::parse("7 0x10 0x2 0xffffffff 0x5 0x0 0x0 0x7ffe 0x7f12\n").unwrap();
        let arguments = (call.number, call.first, call.second, call.third, call.fourth);
        assert_eq!(arguments, (7, 16, 2, 0xffff_ffff, 5));
        for text in ["running\n", "", "7", "7 0x10", "-1 0x7ffe\n", "7 16 2"] {
            assert!(KernelCall::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_thread_that_sleeps_is_in_a_call_and_its_name_is_known() {
        let (begun, ends) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let sleeper = std::thread::Builder::new().name("sleeper".to_owned());
        let sleeper = sleeper.spawn(move || {
            begun.0.send(kernel_thread_number()).unwrap();
            let _ = ends.1.recv();
        });
        let number = begun.1.recv().unwrap();
        let found = loop {
            let found = threads().into_iter().find(|thread| thread.number == number).unwrap();
            if found.call.is_some() {
                break found;
            }
            std::thread::yield_now();
        };
        assert_eq!((found.name.as_str(), found.call.unwrap().name().as_str()), ("sleeper", "futex"));
        drop(ends.0);
        sleeper.unwrap().join().unwrap();
    }

    #[test]
    fn a_lock_has_the_thread_that_holds_it_and_a_join_the_thread_that_is_to_end() {
        let own = kernel_thread_number();
        let waits = |words: &[u32; 3], third: u32| {
            let first = words.as_ptr().addr() as u64;
            KernelCall { number: libc::SYS_futex, first, second: 0, third: third.into(), fourth: 0 }
        };
        let (locked, joined) = ([2, 0, own], [own, 0, 0]);
        assert_eq!(waits(&locked, 2).awaited_thread(), Some(AwaitedThread::Lock { thread: own }));
        assert_eq!(waits(&joined, own).awaited_thread(), Some(AwaitedThread::End { thread: own }));
        // Another word, a thread that does not exist, a time limit, and another call give no thread.
        assert_eq!(waits(&locked, 1).awaited_thread(), None);
        assert_eq!(waits(&[2, 0, u32::MAX], 2).awaited_thread(), None);
        assert_eq!(KernelCall { fourth: 8, ..waits(&locked, 2) }.awaited_thread(), None);
        assert_eq!(KernelCall { number: libc::SYS_ppoll, ..waits(&locked, 2) }.awaited_thread(), None);
    }

    #[test]
    fn descriptors_are_found_in_the_memory_of_calls() {
        let polled: [[u8; 8]; 2] = [[3, 0, 0, 0, 1, 0, 0, 0], [9, 0, 0, 0, 1, 0, 0, 0]];
        let poll = call(libc::SYS_ppoll, polled.as_ptr().addr() as u64, 2);
        assert_eq!([3, 9, 1].map(|descriptor| poll.awaits(descriptor)), [true, true, false]);
        let bits = [0_u8, 0b10, 0];
        let select = |count| call(libc::SYS_pselect6, count, bits.as_ptr().addr() as u64);
        assert!(select(10).awaits(9) && !select(9).awaits(9) && !select(10).awaits(8));
        assert!(!select(10).awaits(-1));
        assert!(!call(libc::SYS_ppoll, 8, u64::MAX).awaits(3));
        assert!(!call(libc::SYS_epoll_pwait, u64::MAX, 0).awaits(3));
    }
}
