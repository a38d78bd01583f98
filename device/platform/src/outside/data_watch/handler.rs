//! The handler of SIGTRAP. It handles only the signals of watched words, and is installed only where the
//! program has no handler of its own.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, transmute};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::pair::{FRAMES, Pairs};

/// A function that examines an access, in a signal handler. It gets the addresses of the instruction after
/// the access and of something on its stack, and whether accesses by the C library count. It stores return
/// addresses of the program in the list, the innermost first, and returns their number; 0 means that the
/// access does not count. It takes no lock and allocates no memory.
pub type AccessCallback =
    fn(instruction: usize, stack: usize, by_library: bool, frames: &mut [u64; FRAMES]) -> usize;

/// The function that examines accesses.
static CALLBACK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// `TRAP_PERF`
const OF_EVENT: c_int = 6;
/// `TRAP_BRKPT` and `TRAP_HWBKPT`: a trap of the processor for which the kernel finds no event, because
/// another thread was stopping it, or because a virtual processor did not say which breakpoint it was (once
/// in 800 runs of a program with 1,200 watches). A breakpoint in the program, `int3`, has another code.
const OF_NO_EVENT: [c_int; 2] = [1, 4];
/// `TRAP_PERF_FLAG_ASYNC`: the signal was blocked at the time of the access.
const IS_LATE: u32 = 1;

/// The kernel's data about an event's signal.
#[repr(C)]
struct EventInfo {
    numbers: [c_int; 4],
    address: usize,
    mark: u64,
    kind: u32,
    flags: u32,
}

const _: () = assert!(size_of::<EventInfo>() <= size_of::<libc::siginfo_t>());

fn own_handler() -> usize {
    let own: Handler = on_trap;
    (own as *const c_void).expose_provenance()
}

/// Returns the present handler of the signal; `None` if it cannot be read.
fn installed_handler() -> Option<usize> {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the call fills the structure of this frame if it returns 0.
    unsafe {
        (libc::sigaction(libc::SIGTRAP, ptr::null(), now.as_mut_ptr()) == 0)
            .then(|| now.assume_init().sa_sigaction)
    }
}

/// Installs the handler, with this function to examine accesses. Returns false if the program handles the
/// signal itself.
pub(super) fn install(callback: AccessCallback) -> bool {
    CALLBACK.store(callback as *mut c_void, Ordering::Release);
    match installed_handler() {
        Some(libc::SIG_DFL) => {}
        now => return now == Some(own_handler()),
    }
    // SAFETY: all bits 0 are a value of the structure.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = own_handler();
    // The handler uses the stack for signals, if the thread has one: the runtimes of other languages ask for
    // that.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: an action of this frame, whose handler has the type that SA_SIGINFO asks for, and stays: what
    // is loaded into programs is never unmapped.
    unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()) == 0 }
}

/// Reports whether signals of the calling thread come here at once.
pub(super) fn catches_traps() -> bool {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call fills the set of this frame before it is read.
    let is_open = unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), blocked.as_mut_ptr()) == 0
            && libc::sigismember(blocked.as_ptr(), libc::SIGTRAP) == 0
    };
    is_open && installed_handler() == Some(own_handler())
}

extern "C" fn on_trap(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the location is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    if !is_settled(info, context) {
        restore_default_action(signal);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Handles the signal if it is that of a watched word, and returns whether it is.
fn is_settled(info: *mut libc::siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: the kernel gives a whole structure to a handler with SA_SIGINFO, which is longer than this
    // part.
    let about = unsafe { info.cast::<EventInfo>().read_unaligned() };
    let [_, _, code, _] = about.numbers;
    let Some(pairs) = Pairs::get_if_created() else { return code == OF_EVENT };
    if code != OF_EVENT {
        return OF_NO_EVENT.contains(&code);
    }
    let Some((pair, word)) = pairs.marked(about.mark) else { return false };
    let callback = CALLBACK.load(Ordering::Acquire);
    if about.flags & IS_LATE != 0 || callback.is_null() {
        return true;
    }
    // SAFETY: `install` has stored a function of this type.
    let callback = unsafe { transmute::<*mut c_void, AccessCallback>(callback) };
    // SAFETY: the kernel gives it to a handler with SA_SIGINFO.
    let (instruction, stack) = fault_site(unsafe { &*context.cast::<libc::ucontext_t>() });
    if pair.note(word, |by_library, frames| callback(instruction, stack, by_library, frames)) {
        pairs.has_new_record();
    }
    true
}

/// Returns where the thread was interrupted: addresses of its next instruction and of its stack.
#[cfg(target_arch = "x86_64")]
fn fault_site(context: &libc::ucontext_t) -> (usize, usize) {
    const _: () = assert!(libc::REG_RSP == 15 && libc::REG_RIP == 16, "the indices in the list");
    let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, stack, instruction, ..] = context.uc_mcontext.gregs;
    (instruction as usize, stack as usize)
}

/// Returns zeros, since no word is watched on other processors.
#[cfg(not(target_arch = "x86_64"))]
fn fault_site(_context: &libc::ucontext_t) -> (usize, usize) {
    (0, 0)
}

/// Ends the process as without this handler, for a signal that has another cause: there was no handler before
/// this one.
fn restore_default_action(signal: c_int) {
    // SAFETY: all bits 0 are a value of both structures, and SIG_DFL is 0.
    let (usual, mut only): (libc::sigaction, libc::sigset_t) =
        unsafe { (MaybeUninit::zeroed().assume_init(), MaybeUninit::zeroed().assume_init()) };
    // SAFETY: structures of this frame are read and written; a handler may call all of these.
    unsafe {
        libc::sigaction(signal, &raw const usual, ptr::null_mut());
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, signal);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, ptr::null_mut());
    }
}
