//! Data breakpoints of the processor, as events of perf_event_open(2).
//!
//! An event belongs to the thread that opens it. After an access of that thread the kernel sends it SIGTRAP,
//! before the next instruction. Accesses of the kernel do not count, so neither do those of system calls.

use std::ffi::{c_int, c_ulong};
use std::os::fd::RawFd;

/// A word of the program's memory that can be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchedWord {
    /// Address of the first byte, a multiple of `bytes`.
    pub address: u64,
    /// Length in bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// True if accesses by instructions of the C library count. If not, the C library may touch the word
    /// while it reads what lies beside it: its functions for strings read more than the string.
    pub by_library: bool,
}

/// The kernel's `struct perf_event_attr`, as Linux 5.13 has it.
#[repr(C)]
struct PerfEventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_kind: u32,
    address: u64,
    bytes: u64,
    unused: [u64; 6],
    mark: u64,
}

const _: () = assert!(size_of::<PerfEventAttributes>() == 128, "PERF_ATTR_SIZE_VER7");

/// `PERF_TYPE_BREAKPOINT`
const OF_BREAKPOINT: u32 = 5;
/// `HW_BREAKPOINT_RW`: an x86-64 cannot watch reads alone.
const READ_AND_WRITE: u32 = 3;
/// Bits of `flags`.
const DISABLED: u64 = 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const REMOVE_ON_EXEC: u64 = 1 << 36;
const SEND_SIGTRAP: u64 = 1 << 37;
/// `PERF_FLAG_FD_CLOEXEC`
const CLOSE_ON_EXEC: c_ulong = 8;
/// `PERF_EVENT_IOC_DISABLE`, for an event and those of its group, and `PERF_EVENT_IOC_MODIFY_ATTRIBUTES`.
const DISABLE: c_ulong = 0x2401;
const OF_GROUP: c_ulong = 1;
const MODIFY: c_ulong = 0x4008_240b;

fn attributes(word: WatchedWord, mark: u64, flags: u64) -> PerfEventAttributes {
    PerfEventAttributes {
        kind: OF_BREAKPOINT,
        size: size_of::<PerfEventAttributes>() as u32,
        config: 0,
        sample_period: 1,
        sample_type: 0,
        read_format: 0,
        flags: EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | REMOVE_ON_EXEC | SEND_SIGTRAP | flags,
        wakeup: 0,
        breakpoint_kind: READ_AND_WRITE,
        address: word.address,
        bytes: word.bytes.into(),
        unused: [0; 6],
        mark,
    }
}

/// Opens an event of the calling thread that watches nothing yet. Its signals have this mark. `leader`: the
/// event whose group it joins; -1: a new group. Returns `None` if the kernel refuses it.
pub(super) fn open(mark: u64, leader: RawFd) -> Option<RawFd> {
    // The address does not matter yet; any one of the program is accepted.
    let here = 0_u64;
    let word = WatchedWord { address: (&raw const here).addr() as u64, bytes: 8, by_library: false };
    let attributes = attributes(word, mark, DISABLED);
    let (this_thread, any_processor): (libc::pid_t, c_int) = (0, -1);
    // SAFETY: a structure of this frame, of the size that it names, and numbers.
    let opened = unsafe {
        let number = libc::SYS_perf_event_open;
        libc::syscall(number, &raw const attributes, this_thread, any_processor, leader, CLOSE_ON_EXEC)
    };
    RawFd::try_from(opened).ok().filter(|event| *event >= 0)
}

/// Makes an event watch this word. Returns false if the descriptor is no such event any more.
pub(super) fn watch(event: RawFd, word: WatchedWord, mark: u64) -> bool {
    let attributes = attributes(word, mark, 0);
    // SAFETY: the call reads the structure of this frame. On a descriptor of another kind, which the program
    // may have opened in its place, the kernel refuses it.
    unsafe { libc::ioctl(event, MODIFY as _, &raw const attributes) == 0 }
}

/// Stops all events of this one's group. It may be called in signal handlers.
pub(super) fn stop(leader: RawFd) {
    // SAFETY: as above; the argument is a number.
    unsafe { libc::ioctl(leader, DISABLE as _, OF_GROUP) };
}

/// Closes an event.
pub(super) fn close(event: RawFd) {
    // SAFETY: what `open` has returned, which its owner gives up.
    unsafe { libc::close(event) };
}
