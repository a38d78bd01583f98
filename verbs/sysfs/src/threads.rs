//! Threads that the program makes, and what they are called: by whom they were made, and as which of its
//! threads. libpumice.so asks here, because the program's calls of pthread_create(3) lead to this object also
//! where libpumice.so is loaded later.
//!
//! A wrapper around the thread's function brings the name into the thread. pthread_create(3) itself takes
//! locks and allocates, so this does as well; signal handlers and allocators do not call it.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::transmute;

use libc::{pthread_attr_t, pthread_t};

use crate::original::Original;
use crate::thread_names::{MAIN, UNNAMED, child};

type Function = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type Create =
    unsafe extern "C-unwind" fn(*mut pthread_t, *const pthread_attr_t, Function, *mut c_void) -> c_int;

/// The next object's.
pub(crate) static ORIGINAL: Original = Original::new(c"pthread_create");

/// What is known of a thread: libpumice.so has the same structure, in
/// `device/ground/src/outside/thread_name.rs`.
#[repr(C)]
struct Known {
    /// The process in which it got its name; a forked child has another number. 0: it has none.
    process: Cell<u32>,
    /// See `thread_names`.
    name: Cell<u32>,
    /// Threads that it has made.
    children: Cell<u32>,
    /// Not 0: what it makes now is not the program's, and is not counted. libpumice.so sets it.
    is_quiet: Cell<u32>,
}

impl Known {
    const fn unnamed() -> Known {
        Known {
            process: Cell::new(0),
            name: Cell::new(UNNAMED),
            children: Cell::new(0),
            is_quiet: Cell::new(0),
        }
    }
}

thread_local! {
    static KNOWN: Known = const { Known::unnamed() };
}

/// What is known of the calling thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pumice_thread() -> *const c_void {
    // It has no destructor, so it is there as long as the thread.
    KNOWN.try_with(|known| (&raw const *known).cast()).unwrap_or(std::ptr::null())
}

/// The first thread of the process gets its name.
pub(crate) fn begin() {
    ORIGINAL.address();
    let _ = KNOWN.try_with(|known| {
        known.process.set(own_process());
        known.name.set(MAIN);
    });
}

fn own_process() -> u32 {
    // SAFETY: it asks for a number.
    unsafe { libc::getpid() }.cast_unsigned()
}

/// What a thread begins with.
struct Beginning {
    function: Function,
    argument: *mut c_void,
    process: u32,
    name: u32,
}

/// pthread_create(3), with a name for the thread.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    function: Function,
    argument: *mut c_void,
) -> c_int {
    let original = ORIGINAL.address();
    if original.is_null() {
        return libc::EAGAIN;
    }
    // SAFETY: the function of that name has this type.
    let create = unsafe { transmute::<*mut c_void, Create>(original) };
    let Some((process, name)) = name_of_next() else {
        // SAFETY: the caller vouches for the arguments.
        return unsafe { create(thread, attributes, function, argument) };
    };
    // SAFETY: any size may be asked for.
    let beginning = unsafe { libc::malloc(size_of::<Beginning>()) }.cast::<Beginning>();
    if beginning.is_null() {
        return libc::EAGAIN;
    }
    // SAFETY: fresh memory of that size, aligned for everything; `start` of the new thread frees it.
    unsafe { beginning.write(Beginning { function, argument, process, name }) };
    // SAFETY: as above; what the new thread begins with is in place.
    let outcome = unsafe { create(thread, attributes, start, beginning.cast()) };
    if outcome == 0 {
        let _ = KNOWN.try_with(|known| known.children.set(known.children.get().saturating_add(1)));
    } else {
        // SAFETY: no thread has it.
        unsafe { libc::free(beginning.cast()) };
    }
    outcome
}

/// The process, and the name of the thread that this one makes next; none if it is not the program's.
fn name_of_next() -> Option<(u32, u32)> {
    let process = own_process();
    let next = |known: &Known| {
        if known.is_quiet.get() != 0 {
            return None;
        }
        if known.process.get() != 0 && known.process.get() != process {
            // It is the first thread of a forked child.
            known.process.set(process);
            known.name.set(MAIN);
            known.children.set(0);
        }
        Some((process, child(known.name.get(), known.children.get())))
    };
    KNOWN.try_with(next).ok().flatten()
}

/// Where a thread begins. Nothing is to be cleaned up when it is cancelled.
extern "C-unwind" fn start(beginning: *mut c_void) -> *mut c_void {
    let beginning = beginning.cast::<Beginning>();
    // SAFETY: `pthread_create` has filled it, for this thread alone.
    let Beginning { function, argument, process, name } = unsafe { beginning.read() };
    // SAFETY: it came from malloc, and was read.
    unsafe { libc::free(beginning.cast()) };
    let _ = KNOWN.try_with(|known| {
        known.process.set(process);
        known.name.set(name);
    });
    function(argument)
}
