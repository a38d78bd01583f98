//! Memory that may be unmapped while the device uses it: where a plain access would end the process, the
//! error is reported instead.
//!
//! A guarded call notes its range and its stack in a record. A fault (SIGSEGV, SIGBUS) of that stack at an
//! address of that range ends only the call; every other fault goes to the previous handler.
//! docs/decisions/application-memory.md has the reasons.
//!
//! The handler of SIGSEGV and SIGBUS, and mapped files that other processes of the user can shorten.
//!
//! The handler of SIGSEGV and SIGBUS. A signal that is no guarded call's fault goes to the handler before it.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, transmute};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::outside::fork_generation::{PerProcess, once};
use crate::outside::late_reads;

/// An entry of the list of mapped files; it lives as long as the process.
#[derive(Debug)]
pub(crate) struct RangeEntry {
    first: AtomicUsize,
    /// Length of the range in bytes; 0: the entry is not used, or not yet.
    bytes: AtomicUsize,
    is_taken: AtomicBool,
    next: AtomicPtr<RangeEntry>,
}

static RANGES: AtomicPtr<RangeEntry> = AtomicPtr::new(ptr::null_mut());

pub(crate) fn all() -> impl Iterator<Item = &'static RangeEntry> {
    // SAFETY: entries are never freed.
    let first = unsafe { RANGES.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above.
    std::iter::successors(first, |entry| unsafe { entry.next.load(Ordering::Relaxed).as_ref() })
}

/// A mapped file of numbers that is not essential: if another process shortens the file, private memory of
/// this process replaces it, all zero.
#[derive(Debug)]
pub struct SharedRange(&'static RangeEntry);

impl SharedRange {
    /// Guards a range that is mapped, readable and writable.
    pub fn new(first: usize, bytes: usize) -> SharedRange {
        let entry = all().find(|entry| !entry.is_taken.swap(true, Ordering::Acquire)).unwrap_or_else(added);
        entry.first.store(first, Ordering::Relaxed);
        entry.bytes.store(bytes, Ordering::Release);
        SharedRange(entry)
    }
}

impl Drop for SharedRange {
    fn drop(&mut self) {
        self.0.bytes.store(0, Ordering::Relaxed);
        self.0.is_taken.store(false, Ordering::Release);
    }
}

pub(crate) fn added() -> &'static RangeEntry {
    let entry: &'static RangeEntry = Box::leak(Box::new(RangeEntry {
        first: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        is_taken: AtomicBool::new(true),
        next: AtomicPtr::new(ptr::null_mut()),
    }));
    let mut head = RANGES.load(Ordering::Acquire);
    loop {
        entry.next.store(head, Ordering::Relaxed);
        let added = ptr::from_ref(entry).cast_mut();
        match RANGES.compare_exchange_weak(head, added, Ordering::Release, Ordering::Acquire) {
            Ok(_) => return entry,
            Err(now) => head = now,
        }
    }
}

/// Replaces the mapped file that has this address by memory of this process. Returns false if there is none.
/// It is called by the signal handler.
pub(crate) fn replace(address: usize) -> bool {
    let has = |entry: &&RangeEntry| {
        let first = entry.first.load(Ordering::Relaxed);
        address >= first && address - first < entry.bytes.load(Ordering::Acquire)
    };
    let Some(entry) = all().find(has) else { return false };
    let (first, bytes) = (entry.first.load(Ordering::Relaxed), entry.bytes.load(Ordering::Relaxed));
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let at = ptr::with_exposed_provenance_mut(first);
    // SAFETY: the range is a mapping that the owner of the entry has for itself, and only atomics are in it,
    // which have a value in the new memory too.
    unsafe { libc::mmap(at, bytes, rights, kind, -1, 0) != libc::MAP_FAILED }
}

/// The handlers that were installed before ours; they live as long as the process.
static BEFORE_SEGV: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());
static BEFORE_BUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// Installs the handler, so that faults of guarded calls end only these calls.
///
/// A handler that the program installs later is in front of this one ([`catches_faults`]).
pub fn watch_faults() {
    static SEGV: PerProcess<Once> = PerProcess::new(once);
    SEGV.call_once(|| {
        record::prepare_order();
        install(libc::SIGSEGV, &BEFORE_SEGV);
    });
    watch_bus_errors();
}

/// Installs the handler, so that files that are shortened do not end the process.
pub(crate) fn watch_bus_errors() {
    static BUS: PerProcess<Once> = PerProcess::new(once);
    BUS.call_once(|| install(libc::SIGBUS, &BEFORE_BUS));
}

/// Number of copies between two checks whether a thread's faults reach the handler: the checks are system
/// calls.
const COPIES_PER_CHECK: u32 = 256;

thread_local! {
    /// The number of copies until the next check, and the result of the last one.
    static LAST_CHECK: Cell<(u32, bool)> = const { Cell::new((0, false)) };
}

/// Reports whether faults of this thread reach the handler: the thread does not block the signals, and the
/// program has put no other handler in front, which may pass them on or not.
#[inline]
pub fn catches_faults() -> bool {
    let (left, sees) = LAST_CHECK.get();
    if left == 0 {
        return catches_faults_now();
    }
    LAST_CHECK.set((left - 1, sees));
    sees
}

/// Checks what [`catches_faults`] reports, by system calls.
#[cold]
pub fn catches_faults_now() -> bool {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the calls fill the variables of this frame that they are given, before these are read.
    let sees = unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), blocked.as_mut_ptr()) == 0
            && [libc::SIGSEGV, libc::SIGBUS].into_iter().all(|signal| {
                let mut now = MaybeUninit::<libc::sigaction>::uninit();
                libc::sigismember(blocked.as_ptr(), signal) == 0
                    && libc::sigaction(signal, ptr::null(), now.as_mut_ptr()) == 0
                    && now.assume_init().sa_sigaction == own_handler()
            })
    };
    LAST_CHECK.set((COPIES_PER_CHECK, sees));
    sees
}

pub(crate) fn own_handler() -> usize {
    let own: Handler = on_fault;
    (own as *const c_void).expose_provenance()
}

pub(crate) type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

pub(crate) fn install(signal: c_int, before: &AtomicPtr<libc::sigaction>) {
    let mut old = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the kernel writes the action of the signal to the address that is given.
    if unsafe { libc::sigaction(signal, ptr::null(), old.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: the call above has filled it.
    let old = unsafe { old.assume_init() };
    // A thread of the parent was about to record the installation when this process was forked.
    if old.sa_sigaction == own_handler() {
        return;
    }
    before.store(Box::leak(Box::new(old)), Ordering::Release);
    // SAFETY: all bits 0 are a value of the structure.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = own_handler();
    // The handler uses the stack for signals, if the thread has one: the runtimes of other languages ask for
    // that.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: an action of this frame, whose handler has the type that SA_SIGINFO asks for.
    unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the location is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    if !is_settled(signal, info, context) {
        forward_signal(signal, info, context);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Handles the signal if it is a fault of a guarded call, and returns whether it is.
pub(crate) fn is_settled(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: the kernel gives both to a handler with SA_SIGINFO.
    let (info, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    let (counter, stack) = registers(context);
    if info.si_code <= 0 {
        // SAFETY: what `kill` and `raise` fill in.
        let is_own = unsafe { info.si_pid() == libc::getpid() };
        // A handler in front of this one got a guarded call's fault, and raises it again, after it has
        // restored this handler: the access is repeated when that handler returns.
        return is_own && record::is_below_a_call(*stack as usize);
    }
    // SAFETY: the kernel has filled in the address of a fault.
    let address = unsafe { info.si_addr() }.addr();
    if let Some(of_call) = record::call_of(address, *stack as usize) {
        let (landing, its_stack) = call::landing(of_call);
        *counter = landing as _;
        *stack = its_stack as _;
        return true;
    }
    let is_late = || late_reads::settle(address, *counter as usize, *stack as usize);
    if signal == libc::SIGBUS { replace(address) } else { is_late() }
}

/// The type of a register in the kernel's structure.
#[cfg(target_arch = "x86_64")]
pub(crate) type Register = libc::greg_t;
#[cfg(target_arch = "aarch64")]
type Register = u64;
#[cfg(target_arch = "riscv64")]
type Register = libc::c_ulong;

/// Returns the program counter and the stack pointer of the interrupted code.
fn registers(context: &mut libc::ucontext_t) -> (&mut Register, &mut Register) {
    #[cfg(target_arch = "x86_64")]
    {
        const _: () = assert!(libc::REG_RSP == 15 && libc::REG_RIP == 16, "the indices in the list");
        let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, stack, counter, ..] =
            &mut context.uc_mcontext.gregs;
        (counter, stack)
    }
    #[cfg(target_arch = "aarch64")]
    {
        (&mut context.uc_mcontext.pc, &mut context.uc_mcontext.sp)
    }
    #[cfg(target_arch = "riscv64")]
    {
        const _: () = assert!(libc::REG_PC == 0 && libc::REG_SP == 2, "the indices in the list");
        let [counter, _, stack, ..] = &mut context.uc_mcontext.__gregs;
        (counter, stack)
    }
}

/// Does what the previous handler would have done.
fn forward_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = if signal == libc::SIGBUS { &BEFORE_BUS } else { &BEFORE_SEGV };
    // SAFETY: null, or an action that stays.
    let Some(before) = (unsafe { before.load(Ordering::Acquire).as_ref() }) else {
        return by_default(signal, info);
    };
    match before.sa_sigaction {
        libc::SIG_DFL => by_default(signal, info),
        // SAFETY: the kernel gives it to a handler with SA_SIGINFO.
        libc::SIG_IGN if unsafe { (*info).si_code } <= 0 => {}
        libc::SIG_IGN => by_default(signal, info),
        handler => {
            enter_mask(signal, before);
            if before.sa_flags & libc::SA_RESETHAND != 0 {
                set_default(signal);
            }
            if before.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: the handler of an action with SA_SIGINFO has this type.
                let handler = unsafe { transmute::<usize, Handler>(handler) };
                handler(signal, info, context);
            } else {
                // SAFETY: the handler of an action without SA_SIGINFO has this type.
                let handler = unsafe { transmute::<usize, extern "C" fn(c_int)>(handler) };
                handler(signal);
            }
        }
    }
}

/// Blocks the signals that the kernel would have blocked for that handler. The return from this one unblocks
/// them.
fn enter_mask(signal: c_int, action: &libc::sigaction) {
    // SAFETY: sets of the action and of this frame.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const action.sa_mask, ptr::null_mut());
        if action.sa_flags & libc::SA_NODEFER != 0 {
            let mut own = MaybeUninit::uninit();
            libc::sigemptyset(own.as_mut_ptr());
            libc::sigaddset(own.as_mut_ptr(), signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, own.as_ptr(), ptr::null_mut());
        }
    }
}

fn set_default(signal: c_int) {
    // SAFETY: all bits 0 are an action: the default one.
    unsafe {
        let action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        libc::sigaction(signal, &raw const action, ptr::null_mut());
    }
}

/// Ends the process: a fault happens again when the handler returns, at the same instruction; a signal that
/// was sent is sent again.
fn by_default(signal: c_int, info: *mut libc::siginfo_t) {
    set_default(signal);
    // SAFETY: the kernel gives it to a handler with SA_SIGINFO; the calls take numbers.
    unsafe {
        if (*info).si_code <= 0 {
            libc::raise(signal);
        }
    }
}

mod call;
mod record;

pub use call::Guarded;

pub use record::FaultGuard;
pub use record::wait_for_calls;

/// Guards a mapped file of numbers, which is readable and writable: it may be shortened from now on.
pub fn guard_shared(first: usize, bytes: usize) -> SharedRange {
    watch_bus_errors();
    SharedRange::new(first, bytes)
}
