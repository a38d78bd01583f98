//! The records of guarded calls, for the signal handler and for threads that unmap memory.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, compiler_fence, fence};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(target_arch = "x86_64")]
use super::call::pumice_short_copy;
use super::call::{Guarded, pumice_guarded_call};

/// The value of [`GuardRecord::stack`] while a call begins or ends.
pub(crate) const BETWEEN: usize = 1;
/// Most bytes of stack that a guarded function uses. The handler that interrupts a call begins below a
/// signal's frame, and so may be taken for the call itself: then its fault must be in the call's range as
/// well.
pub(crate) const STACK_BYTES: usize = 4096;
/// The distance below a guarded call within which the handlers of its fault run, in bytes, if they use the
/// same stack.
pub(crate) const HANDLERS_BYTES: usize = 64 << 10;

/// The record of one guarded call at a time. It lives as long as the process, because the handler may read
/// it.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct GuardRecord {
    /// The stack pointer of the call, for a short copy with the lowest bit set; 0: there is no call; or
    /// `BETWEEN`.
    stack: AtomicUsize,
    first: AtomicUsize,
    end: AtomicUsize,
    is_taken: AtomicBool,
    next: AtomicPtr<GuardRecord>,
}

/// The list of all records.
pub(crate) static RECORDS: AtomicPtr<GuardRecord> = AtomicPtr::new(ptr::null_mut());

pub(crate) fn all() -> impl Iterator<Item = &'static GuardRecord> {
    // SAFETY: records are never freed.
    let first = unsafe { RECORDS.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above.
    std::iter::successors(first, |record| unsafe { record.next.load(Ordering::Relaxed).as_ref() })
}

impl GuardRecord {
    pub(crate) fn touches(&self, first: usize, end: usize) -> bool {
        self.first.load(Ordering::Relaxed) < end && first < self.end.load(Ordering::Relaxed)
    }
}

/// A guard for the calls of one thread at a time.
#[derive(Debug)]
pub struct FaultGuard(&'static GuardRecord);

impl Default for FaultGuard {
    fn default() -> FaultGuard {
        FaultGuard::new()
    }
}

impl FaultGuard {
    /// Takes a free record, or adds one.
    pub fn new() -> FaultGuard {
        let free = |record: &&GuardRecord| !record.is_taken.swap(true, Ordering::Acquire);
        if let Some(record) = all().find(free) {
            return FaultGuard(record);
        }
        let record: &'static GuardRecord = Box::leak(Box::new(GuardRecord {
            stack: AtomicUsize::new(0),
            first: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            is_taken: AtomicBool::new(true),
            next: AtomicPtr::new(ptr::null_mut()),
        }));
        let added = ptr::from_ref(record).cast_mut();
        let mut head = RECORDS.load(Ordering::Acquire);
        loop {
            record.next.store(head, Ordering::Relaxed);
            match RECORDS.compare_exchange_weak(head, added, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return FaultGuard(record),
                Err(now) => head = now,
            }
        }
    }

    /// Guards these bytes until [`FaultGuard::leave`]: threads that are about to unmap them wait.
    #[inline]
    pub fn enter(&self, first: usize, bytes: usize) {
        self.0.first.store(first, Ordering::Relaxed);
        self.0.end.store(first.wrapping_add(bytes), Ordering::Relaxed);
        self.0.stack.store(BETWEEN, Ordering::Release);
        // The fence precedes what the caller reads next: the other side of `wait_for_calls` orders the
        // processors.
        compiler_fence(Ordering::SeqCst);
    }

    /// Ends the guard: the bytes are not accessed any more.
    #[inline]
    pub fn leave(&self) {
        self.0.stack.store(0, Ordering::Release);
    }

    /// Calls `function(first, second, third)`. Returns false if a fault in the entered range ended the call.
    ///
    /// # Safety
    /// The call is sound wherever the entered range is mapped with the right, and stays sound if it ends at
    /// any access to the range. The guard is used by one thread at a time.
    #[inline]
    pub unsafe fn call(
        &self,
        function: Guarded,
        first: *mut c_void,
        second: *const c_void,
        third: usize,
    ) -> bool {
        // SAFETY: the caller vouches for the call; the record stays.
        unsafe { pumice_guarded_call(first, second, third, function, &raw const self.0.stack) == 0 }
    }

    /// Reports whether [`FaultGuard::copy_short`] may copy this many bytes to the address `polled`, whose
    /// aligned words programs poll, or null: 8, 16, 24, … 64 bytes, word by word, or 1, 2 or 4 bytes.
    #[inline]
    pub fn is_short(bytes: usize, polled: *const c_void) -> bool {
        /// A set of numbers: a bit for each number, less 1.
        const NUMBERS: u64 = 0x8080_8080_8080_808b;
        let number = bytes.wrapping_sub(1);
        cfg!(target_arch = "x86_64")
            && number < 64
            && NUMBERS >> number & 1 == 1
            && polled.addr() & number & 7 == 0
    }

    /// Copies upwards, each word in one piece. Returns false if a fault in the entered range ended the copy.
    ///
    /// # Safety
    /// As [`FaultGuard::call`] with a function that copies `bytes` from `from` to `to`, which do not overlap.
    /// [`FaultGuard::is_short`] returns true for the copy.
    #[inline]
    pub unsafe fn copy_short(&self, to: *mut c_void, from: *const c_void, bytes: usize) -> bool {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller vouches for the copy; the record stays.
        return unsafe { pumice_short_copy(to, from, bytes, &raw const self.0.stack) == 0 };
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (to, from, bytes);
            false
        }
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        self.0.stack.store(0, Ordering::Relaxed);
        self.0.is_taken.store(false, Ordering::Release);
    }
}

/// Returns the stack pointer of the guarded call that an access to `address` with this stack pointer belongs
/// to.
pub(crate) fn call_of(address: usize, stack: usize) -> Option<usize> {
    let of = |record: &GuardRecord| {
        let of_call = record.stack.load(Ordering::Acquire);
        let is_of_call = of_call > BETWEEN && stack <= of_call && of_call - stack < STACK_BYTES;
        (is_of_call && record.touches(address, address.saturating_add(1))).then_some(of_call)
    };
    all().find_map(of)
}

/// Reports whether the code with this stack pointer was called by a handler of a guarded call's fault.
pub(crate) fn is_below_a_call(stack: usize) -> bool {
    let above = |record: &GuardRecord| {
        let of_call = record.stack.load(Ordering::Acquire);
        of_call > BETWEEN && stack <= of_call && of_call - stack < HANDLERS_BYTES
    };
    all().any(above)
}

/// The longest time that a thread that unmaps memory waits for a copy: one that takes longer waits for the
/// disk.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Waits until no call that began before accesses bytes of this range. Calls that begin from now on see what
/// the caller has stored before.
pub fn wait_for_calls(first: usize, end: usize) {
    order_all_processors();
    let stack_marker = 0_u8;
    let stack = (&raw const stack_marker).addr();
    let mut since = None;
    for record in all() {
        // The call is this thread's own if a signal handler unmaps what its thread copies.
        let is_own = |of_call: usize| of_call > BETWEEN && of_call.abs_diff(stack) < HANDLERS_BYTES;
        loop {
            let of_call = record.stack.load(Ordering::Acquire);
            if of_call == 0 || !record.touches(first, end) || is_own(of_call) {
                break;
            }
            if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return;
            }
            thread::yield_now();
        }
    }
}

/// The kernel's `MEMBARRIER_CMD_PRIVATE_EXPEDITED`, and its registration.
pub(crate) const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
pub(crate) const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// Registers the process for [`order_all_processors`].
pub(crate) fn prepare_order() {
    // SAFETY: the call takes numbers.
    unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) };
}

/// Orders the stores of all threads of the process: those of other threads are visible here, and those of
/// this thread there. So guarded calls need no fence of their own.
pub(crate) fn order_all_processors() {
    fence(Ordering::SeqCst);
    // SAFETY: the call takes numbers. Where the kernel does not know it, the window is a few nanoseconds.
    unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) };
    fence(Ordering::SeqCst);
}
