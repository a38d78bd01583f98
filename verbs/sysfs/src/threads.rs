//! Threads that the program creates, and their names: each is named after its creator, and its ordinal among
//! the creator's threads. libpumice.so reads them here, because the program's calls of pthread_create(3) lead
//! to this object even if libpumice.so is loaded later.
//!
//! A wrapper around the thread's function passes the name into the thread. pthread_create(3) itself takes
//! locks and allocates, so this does as well; signal handlers and allocators do not call it.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::transmute;

use libc::{pthread_attr_t, pthread_t};

use crate::kernel::Original;
use crate::thread_names::{MAIN, UNNAMED, child};

type StartFunction = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type PthreadCreate =
    unsafe extern "C-unwind" fn(*mut pthread_t, *const pthread_attr_t, StartFunction, *mut c_void) -> c_int;

/// The `pthread_create` of the next object.
pub(crate) static ORIGINAL: Original = Original::new(c"pthread_create");

/// The state of a thread: libpumice.so has the same structure, in
/// `device/platform/src/outside/thread.rs`.
#[repr(C)]
struct ThreadRecord {
    /// Process in which it got its name; a forked child has another id. 0 if it has no name.
    process: Cell<u32>,
    /// Name of the thread; see `thread_names`.
    name: Cell<u32>,
    /// Number of threads that it has created.
    children: Cell<u32>,
    /// Flag that libpumice.so sets (not 0) while the threads that this one creates are not the program's, and
    /// are not counted.
    is_uncounted: Cell<u32>,
}

impl ThreadRecord {
    const fn unnamed() -> ThreadRecord {
        ThreadRecord {
            process: Cell::new(0),
            name: Cell::new(UNNAMED),
            children: Cell::new(0),
            is_uncounted: Cell::new(0),
        }
    }
}

thread_local! {
    static THREAD_RECORD: ThreadRecord = const { ThreadRecord::unnamed() };
}

/// Returns the state of the calling thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pumice_thread() -> *const c_void {
    // The state has no destructor, so it lives as long as the thread.
    THREAD_RECORD.try_with(|record| (&raw const *record).cast()).unwrap_or(std::ptr::null())
}

/// Names the first thread of the process.
pub(crate) fn begin() {
    ORIGINAL.address();
    let _ = THREAD_RECORD.try_with(|record| {
        record.process.set(current_pid());
        record.name.set(MAIN);
    });
}

fn current_pid() -> u32 {
    // SAFETY: the call only returns a number.
    unsafe { libc::getpid() }.cast_unsigned()
}

/// The arguments of a thread's start function.
struct StartArguments {
    function: StartFunction,
    argument: *mut c_void,
    process: u32,
    name: u32,
}

/// Calls pthread_create(3), and names the thread.
///
/// # Safety
/// The requirements of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    function: StartFunction,
    argument: *mut c_void,
) -> c_int {
    let original = ORIGINAL.address();
    if original.is_null() {
        return libc::EAGAIN;
    }
    // SAFETY: the function of that name has this type.
    let create = unsafe { transmute::<*mut c_void, PthreadCreate>(original) };
    let Some((process, name)) = name_of_next() else {
        // SAFETY: the caller vouches for the arguments.
        return unsafe { create(thread, attributes, function, argument) };
    };
    // SAFETY: malloc accepts any size.
    let start_arguments = unsafe { libc::malloc(size_of::<StartArguments>()) }.cast::<StartArguments>();
    if start_arguments.is_null() {
        return libc::EAGAIN;
    }
    // SAFETY: fresh memory of that size, aligned for everything; `start` of the new thread frees it.
    unsafe { start_arguments.write(StartArguments { function, argument, process, name }) };
    // SAFETY: the same as above; the argument of the new thread is initialized.
    let outcome = unsafe { create(thread, attributes, start, start_arguments.cast()) };
    if outcome == 0 {
        let _ = THREAD_RECORD.try_with(|record| record.children.set(record.children.get().saturating_add(1)));
    } else {
        // SAFETY: no thread uses it.
        unsafe { libc::free(start_arguments.cast()) };
    }
    outcome
}

/// Returns the process, and the name of the thread that this one creates next; `None` if that thread is not
/// the program's.
fn name_of_next() -> Option<(u32, u32)> {
    let process = current_pid();
    let next = |record: &ThreadRecord| {
        if record.is_uncounted.get() != 0 {
            return None;
        }
        if record.process.get() != 0 && record.process.get() != process {
            // The thread is the first one of a forked child.
            record.process.set(process);
            record.name.set(MAIN);
            record.children.set(0);
        }
        Some((process, child(record.name.get(), record.children.get())))
    };
    THREAD_RECORD.try_with(next).ok().flatten()
}

/// Starts a thread. Nothing is to be cleaned up when it is cancelled.
extern "C-unwind" fn start(start_arguments: *mut c_void) -> *mut c_void {
    let start_arguments = start_arguments.cast::<StartArguments>();
    // SAFETY: `pthread_create` has initialized it, for this thread alone.
    let StartArguments { function, argument, process, name } = unsafe { start_arguments.read() };
    // SAFETY: the memory came from malloc, and was read.
    unsafe { libc::free(start_arguments.cast()) };
    let _ = THREAD_RECORD.try_with(|record| {
        record.process.set(process);
        record.name.set(name);
    });
    function(argument)
}
