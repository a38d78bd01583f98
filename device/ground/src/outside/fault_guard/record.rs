//! What calls are guarded now, for the handler of signals and for threads that unmap memory.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, compiler_fence, fence};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(target_arch = "x86_64")]
use super::call::pumice_short_copy;
use super::call::{Guarded, pumice_guarded_call};

/// What [`Record::stack`] has while a call begins or ends.
pub(crate) const BETWEEN: usize = 1;
/// Bytes of stack that a guarded function uses at most. An interrupted call's handler begins below a signal's
/// frame, and so may be taken for the call itself: then its fault must be in the call's range as well.
pub(crate) const STACK_BYTES: usize = 4096;
/// How far below a guarded call the handlers of its fault run, if they use the same stack.
pub(crate) const HANDLERS_BYTES: usize = 64 << 10;

/// One guarded call at a time. It stays for as long as the process lives, because the handler may look at it.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Record {
    /// 0: there is no call; `BETWEEN`; or its stack pointer, of a short copy with the lowest bit set.
    stack: AtomicUsize,
    first: AtomicUsize,
    end: AtomicUsize,
    is_taken: AtomicBool,
    next: AtomicPtr<Record>,
}

/// All records.
pub(crate) static RECORDS: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());

pub(crate) fn all() -> impl Iterator<Item = &'static Record> {
    // SAFETY: records are never freed.
    let first = unsafe { RECORDS.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above.
    std::iter::successors(first, |record| unsafe { record.next.load(Ordering::Relaxed).as_ref() })
}

impl Record {
    pub(crate) fn touches(&self, first: usize, end: usize) -> bool {
        self.first.load(Ordering::Relaxed) < end && first < self.end.load(Ordering::Relaxed)
    }
}

/// Guards the calls of one thread at a time.
#[derive(Debug)]
pub struct FaultGuard(&'static Record);

impl Default for FaultGuard {
    fn default() -> FaultGuard {
        FaultGuard::new()
    }
}

impl FaultGuard {
    /// Takes a record that no guard has, or adds one.
    pub fn new() -> FaultGuard {
        let free = |record: &&Record| !record.is_taken.swap(true, Ordering::Acquire);
        if let Some(record) = all().find(free) {
            return FaultGuard(record);
        }
        let record: &'static Record = Box::leak(Box::new(Record {
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

    /// From now on until [`FaultGuard::leave`], threads that are about to unmap these bytes wait.
    #[inline]
    pub fn enter(&self, first: usize, bytes: usize) {
        self.0.first.store(first, Ordering::Relaxed);
        self.0.end.store(first.wrapping_add(bytes), Ordering::Relaxed);
        self.0.stack.store(BETWEEN, Ordering::Release);
        // Before what the caller reads next: the other side of `wait_for_calls` orders the processors.
        compiler_fence(Ordering::SeqCst);
    }

    /// The bytes that were entered are not accessed any more.
    #[inline]
    pub fn leave(&self) {
        self.0.stack.store(0, Ordering::Release);
    }

    /// Calls `function(first, second, third)`; false: a fault in the range that was entered ended it.
    ///
    /// # Safety
    /// The call is sound wherever the range that was entered is mapped with the right, and stays sound if it
    /// ends at any access to the range. The guard is used by one thread at a time.
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

    /// Whether [`FaultGuard::copy_short`] may copy so many bytes to the address `polled`,
    /// whose aligned words programs poll, or null: 8, 16, 24, … 64 bytes, word by word, or 1, 2 or 4 bytes.
    #[inline]
    pub fn is_short(bytes: usize, polled: *const c_void) -> bool {
        /// A bit for each number, less 1.
        const NUMBERS: u64 = 0x8080_8080_8080_808b;
        let number = bytes.wrapping_sub(1);
        cfg!(target_arch = "x86_64")
            && number < 64
            && NUMBERS >> number & 1 == 1
            && polled.addr() & number & 7 == 0
    }

    /// Copies upwards, each word in one piece; false: a fault in the range that was entered ended it.
    ///
    /// # Safety
    /// As [`FaultGuard::call`] with a function that copies `bytes` from `from` to `to`, which do not overlap.
    /// [`FaultGuard::is_short`] says that it may.
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

/// The stack pointer of the guarded call that an access to `address` with this stack pointer belongs to.
pub(crate) fn call_of(address: usize, stack: usize) -> Option<usize> {
    let of = |record: &Record| {
        let of_call = record.stack.load(Ordering::Acquire);
        let is_of_call = of_call > BETWEEN && stack <= of_call && of_call - stack < STACK_BYTES;
        (is_of_call && record.touches(address, address.saturating_add(1))).then_some(of_call)
    };
    all().find_map(of)
}

/// Whether the code with this stack pointer was called by a handler of a guarded call's fault.
pub(crate) fn is_below_a_call(stack: usize) -> bool {
    let above = |record: &Record| {
        let of_call = record.stack.load(Ordering::Acquire);
        of_call > BETWEEN && stack <= of_call && of_call - stack < HANDLERS_BYTES
    };
    all().any(above)
}

/// How long a thread that unmaps memory waits for a copy: one that takes longer waits for the disk.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Waits until no call that began before accesses bytes of this range. Calls that begin from now on see what
/// the caller has stored before.
pub fn wait_for_calls(first: usize, end: usize) {
    order_all_processors();
    let here = 0_u8;
    let stack = (&raw const here).addr();
    let mut since = None;
    for record in all() {
        // A signal's handler that unmaps what its own thread copies.
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

/// Lets this thread ask for order later.
pub(crate) fn prepare_order() {
    // SAFETY: the call takes numbers.
    unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) };
}

/// What other threads of the process have stored is seen here, and what was stored here is seen there: so
/// guarded calls need no fence of their own.
pub(crate) fn order_all_processors() {
    fence(Ordering::SeqCst);
    // SAFETY: the call takes numbers. Where the kernel does not know it, the window is a few nanoseconds.
    unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) };
    fence(Ordering::SeqCst);
}
