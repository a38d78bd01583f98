//! Replacements of calls that change mappings, and system calls that need no C library.
//!
//! Replacements of calls that change mappings, from when memory is registered: they do the same, and notify
//! the device.
//!
//! This code runs where the program's calls do, in the middle of an allocator and in signal handlers: it
//! allocates no memory and takes no lock.

use std::ffi::{CStr, c_int, c_long, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pumice_device::memory::{MappingChange, mapping_at};
use pumice_device::outside::process::page_bytes;

/// Makes a system call; a result below 0 is the negative number of an error. errno does not change.
#[cfg(target_arch = "x86_64")]
pub(super) fn make(number: c_long, arguments: &[u64; 6]) -> i64 {
    let [first, second, third, fourth, fifth, sixth] = *arguments;
    let outcome;
    // SAFETY: the call is the program's, with its arguments, or one that asks for a number. For the compiler
    // the assembly may write any memory.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => outcome,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    outcome
}

/// Makes a system call; a result below 0 is the negative number of an error. On aarch64 and riscv64 no calls
/// of the C library's `syscall` are watched.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn make(number: c_long, arguments: &[u64; 6]) -> i64 {
    let [first, second, third, fourth, fifth, sixth] = *arguments;
    // SAFETY: as above; the location of errno is this thread's own.
    unsafe {
        let before = *libc::__errno_location();
        let outcome = libc::syscall(number, first, second, third, fourth, fifth, sixth);
        let error = std::mem::replace(&mut *libc::__errno_location(), before);
        if outcome == -1 { -i64::from(error) } else { i64::from(outcome) }
    }
}

/// A function of the C library, and its replacement.
pub(super) struct Function {
    pub(super) name: &'static CStr,
    pub(super) address: fn() -> usize,
}

/// The functions whose calls can unmap memory or take away rights to it.
pub(super) static FUNCTIONS: [Function; 6] = [
    Function { name: c"munmap", address: || (munmap as *const c_void).expose_provenance() },
    Function { name: c"mmap", address: || (mmap as *const c_void).expose_provenance() },
    Function { name: c"mremap", address: || (mremap as *const c_void).expose_provenance() },
    Function { name: c"mprotect", address: || (mprotect as *const c_void).expose_provenance() },
    Function { name: c"shmdt", address: || (shmdt as *const c_void).expose_provenance() },
    Function { name: c"brk", address: || (brk as *const c_void).expose_provenance() },
];

const NOTHING: Range<u64> = 0..0;

/// Largest number of an error.
const MAX_ERRNO: i64 = 4095;

fn is_error(outcome: i64) -> bool {
    (-MAX_ERRNO..0).contains(&outcome)
}

/// Returns the address range of a mapping.
fn pages(first: u64, bytes: u64) -> Range<u64> {
    first..first.saturating_add(bytes)
}

/// Effect that a call may have on memory.
enum MappingEffect {
    /// Memory is unmapped, in at most two ranges.
    Loses(Range<u64>, Range<u64>),
    /// Access rights are removed.
    Forbids(Range<u64>),
    /// The heap grows over memory that regions have lost.
    Regains(Range<u64>),
    Nothing,
}

/// Returns the effect that a call may have on memory, before it is made.
fn effect(number: c_long, arguments: &[u64; 6]) -> MappingEffect {
    let [first, second, third, fourth, fifth, _] = *arguments;
    let has = |argument: u64, flag: c_int| argument & flag as u64 == flag as u64;
    match number {
        libc::SYS_munmap | libc::SYS_remap_file_pages => MappingEffect::Loses(pages(first, second), NOTHING),
        libc::SYS_mmap if has(fourth, libc::MAP_FIXED) => MappingEffect::Loses(pages(first, second), NOTHING),
        libc::SYS_mremap => {
            let over = if has(fourth, libc::MREMAP_FIXED) { pages(fifth, third) } else { NOTHING };
            MappingEffect::Loses(pages(first, second), over)
        }
        libc::SYS_brk if first != 0 => effect_on_heap(make(number, &[0; 6]) as u64, first),
        libc::SYS_shmdt => {
            let range = mapping_at(first).filter(|range| range.start == first);
            MappingEffect::Loses(range.unwrap_or(NOTHING), NOTHING)
        }
        libc::SYS_shmat if has(third, libc::SHM_REMAP) => {
            MappingEffect::Loses(pages(second, segment_bytes(first)), NOTHING)
        }
        libc::SYS_mprotect | libc::SYS_pkey_mprotect if !has(third, libc::PROT_READ | libc::PROT_WRITE) => {
            MappingEffect::Forbids(pages(first, second))
        }
        _ => MappingEffect::Nothing,
    }
}

/// Returns the effect of another end of the heap: its last page is mapped as a whole.
fn effect_on_heap(before: u64, after: u64) -> MappingEffect {
    let page_end = |end: u64| end.checked_next_multiple_of(page_bytes()).unwrap_or(end);
    let (before, after) = (page_end(before), page_end(after));
    if after < before {
        MappingEffect::Loses(after..before, NOTHING)
    } else if MappingChange::has_lost(&(before..after)) {
        MappingEffect::Regains(before..after)
    } else {
        MappingEffect::Nothing
    }
}

/// Returns the length in bytes of a segment of shared memory; 0 if there is none.
fn segment_bytes(segment: u64) -> u64 {
    let mut about = std::mem::MaybeUninit::<libc::shmid_ds>::uninit();
    // SAFETY: the kernel fills the variable, or fails.
    match unsafe { libc::shmctl(segment as c_int, libc::IPC_STAT, about.as_mut_ptr()) } {
        // SAFETY: the kernel has filled it.
        0 => unsafe { about.assume_init() }.shm_segsz as u64,
        _ => 0,
    }
}

/// Returns the memory that a call has taken away.
fn lost(
    number: c_long,
    arguments: &[u64; 6],
    outcome: i64,
    may_lose: (Range<u64>, Range<u64>),
) -> [Range<u64>; 2] {
    let [first, _, third, ..] = *arguments;
    let now = outcome as u64;
    let (before, over) = may_lose;
    match number {
        _ if is_error(outcome) => [NOTHING, NOTHING],
        libc::SYS_brk if now != first => [NOTHING, NOTHING],
        // The mapping grows, or its end is cut off.
        libc::SYS_mremap if now == first => [before.end.min(pages(first, third).end)..before.end, NOTHING],
        _ => [before, over],
    }
}

/// Makes a call that may change mappings, and notifies the device. Returns the kernel's result.
fn change(number: c_long, arguments: &[u64; 6], effect: MappingEffect) -> i64 {
    match effect {
        MappingEffect::Nothing => make(number, arguments),
        MappingEffect::Forbids(range) => {
            let change = MappingChange::begin(range.clone());
            let outcome = make(number, arguments);
            if let Some(change) = change {
                change.end_of_rights(if is_error(outcome) { NOTHING } else { range });
            }
            outcome
        }
        MappingEffect::Regains(range) => {
            let outcome = make(number, arguments);
            // The kernel answers with the end that the heap has now.
            let [wanted, ..] = *arguments;
            if outcome as u64 == wanted {
                MappingChange::give_back(&range);
            }
            outcome
        }
        MappingEffect::Loses(before, over) => {
            let changes = (MappingChange::begin(before.clone()), MappingChange::begin(over.clone()));
            let outcome = make(number, arguments);
            let [of_first, of_second] = lost(number, arguments, outcome, (before, over));
            if let Some(change) = changes.1 {
                change.end(of_second);
            }
            if let Some(change) = changes.0 {
                change.end(of_first);
            }
            outcome
        }
    }
}

/// Makes a system call of the program's own if it changes mappings; `None` if the program has to make it.
#[cfg(target_arch = "x86_64")]
pub(super) fn change_mappings(number: u32, arguments: &[u64; 6]) -> Option<i64> {
    let number = c_long::from(number);
    keeping_errno(|| {
        let effect = effect(number, arguments);
        let here = (&raw const number).addr() as u64;
        match &effect {
            MappingEffect::Nothing => return None,
            // A thread that ends unmaps its own stack, and returns nowhere.
            MappingEffect::Loses(before, over) if before.contains(&here) || over.contains(&here) => {
                return None;
            }
            _ => {}
        }
        Some(change(number, arguments, effect))
    })
}

fn keeping_errno<T>(run: impl FnOnce() -> T) -> T {
    // SAFETY: the location is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let outcome = run();
    set_errno(errno);
    outcome
}

fn set_errno(errno: c_int) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// Makes a call as a function of the C library does: errno says why it failed.
fn call(number: c_long, arguments: &[u64; 6]) -> i64 {
    let outcome = keeping_errno(|| change(number, arguments, effect(number, arguments)));
    if is_error(outcome) {
        set_errno(-outcome as c_int);
        return -1;
    }
    outcome
}

fn number_of(address: *const c_void) -> u64 {
    address.expose_provenance() as u64
}

fn address_of(number: i64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(number as usize)
}

extern "C" fn munmap(first: *mut c_void, bytes: usize) -> c_int {
    call(libc::SYS_munmap, &[number_of(first), bytes as u64, 0, 0, 0, 0]) as c_int
}

extern "C" fn mmap(
    first: *mut c_void,
    bytes: usize,
    rights: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    let what = [rights, flags, descriptor].map(|argument| i64::from(argument) as u64);
    let [rights, flags, descriptor] = what;
    let arguments = [number_of(first), bytes as u64, rights, flags, descriptor, offset as u64];
    address_of(call(libc::SYS_mmap, &arguments))
}

/// The last argument is passed only with some flags. Functions with a variable number of arguments get them
/// where others do, on all processors that pumice is built for.
extern "C" fn mremap(
    old: *mut c_void,
    old_bytes: usize,
    bytes: usize,
    flags: c_int,
    wanted: *mut c_void,
) -> *mut c_void {
    let arguments = [number_of(old), old_bytes as u64, bytes as u64, flags as u64, number_of(wanted), 0];
    address_of(call(libc::SYS_mremap, &arguments))
}

extern "C" fn mprotect(first: *mut c_void, bytes: usize, rights: c_int) -> c_int {
    call(libc::SYS_mprotect, &[number_of(first), bytes as u64, rights as u64, 0, 0, 0]) as c_int
}

extern "C" fn shmdt(first: *const c_void) -> c_int {
    call(libc::SYS_shmdt, &[number_of(first), 0, 0, 0, 0, 0]) as c_int
}

/// The C library's own variable with the end of the heap, from which `sbrk` continues.
static HEAP_END: AtomicPtr<AtomicPtr<c_void>> = AtomicPtr::new(ptr::null_mut());

/// Sets the address of that variable of the C library; without it, `brk` is not replaced.
pub(super) fn heap_end_is_at(variable: *mut c_void) {
    HEAP_END.store(variable.cast(), Ordering::Relaxed);
}

extern "C" fn brk(wanted: *mut c_void) -> c_int {
    let now = address_of(call(libc::SYS_brk, &[number_of(wanted), 0, 0, 0, 0, 0]));
    // SAFETY: null, or the C library's variable, which is never freed.
    if let Some(variable) = unsafe { HEAP_END.load(Ordering::Relaxed).as_ref() } {
        variable.store(now, Ordering::Relaxed);
    }
    if now < wanted {
        set_errno(libc::ENOMEM);
        return -1;
    }
    0
}
