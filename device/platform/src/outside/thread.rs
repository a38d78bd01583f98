//! Threads of the library, and the names of the program's threads.
//!
//! The names of the program's threads: the same in every run in which the threads before a thread create
//! theirs in the same order.
//!
//! The first thread of a process is `main`. The name of another thread is the number of threads that its
//! creator had created before it: `2` is the third that `main` created, and `2.0` the first that this one
//! created. The small preload of `pumice run` (`verbs/sysfs`) names threads as pthread_create(3) creates
//! them. A thread that was created otherwise, and each thread of a process without the preload, has no name.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::{MaybeUninit, transmute};
use std::str::FromStr;
use std::thread::{Builder, JoinHandle};
use std::{fmt, io, ptr};

use super::fork_generation::{InheritedOnce, current_pid};

/// The preload's data about a thread: the same structure is in `verbs/sysfs/src/threads.rs`.
#[repr(C)]
struct ThreadRecord {
    process: Cell<u32>,
    name: Cell<u32>,
    children: Cell<u32>,
    is_quiet: Cell<u32>,
}

/// The name of a thread. It is encoded as a 1, then for each thread on the way from the first one the number
/// of threads that its creator had created before it, plus one, in Elias gamma code, as the preload writes
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadName(u32);

impl ThreadName {
    /// The name of the first thread of a process.
    pub const MAIN: ThreadName = ThreadName(1);
    /// Number of bits of a name.
    pub const BITS: u32 = 20;

    /// Returns the name of this thread, if it has one.
    pub fn own() -> Option<ThreadName> {
        let thread_record = thread_record()?;
        match thread_record.process.get() {
            0 => None,
            process if process == current_pid() => ThreadName::of_bits(thread_record.name.get()),
            // The thread has forked this process.
            _ => Some(ThreadName::MAIN),
        }
    }

    /// Returns the name with these bits.
    pub fn of_bits(bits: u32) -> Option<ThreadName> {
        let is_name = bits != 0 && bits < 1 << ThreadName::BITS && steps(bits).is_some();
        is_name.then_some(ThreadName(bits))
    }

    /// Returns the bits of the name.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the name of the thread that this one creates after `before` others; `None` if there is no room
    /// for it.
    pub fn child(self, before: u32) -> Option<ThreadName> {
        let number = before.checked_add(1)?;
        let digits = 2 * number.ilog2() + 1;
        let has_room = self.0.ilog2() + 1 + digits <= ThreadName::BITS;
        has_room.then(|| ThreadName(self.0 << digits | number))
    }
}

/// Returns how many threads each creator had created before, from the first thread on; `None`: these bits are
/// no name.
fn steps(bits: u32) -> Option<Vec<u32>> {
    let mut left = bits.checked_ilog2()?;
    let mut found = Vec::new();
    while left > 0 {
        let rest = bits & ((1 << left) - 1);
        let zeros = left - 1 - rest.checked_ilog2()?;
        let digits = 2 * zeros + 1;
        left = left.checked_sub(digits)?;
        found.push((rest >> left).checked_sub(1)?);
    }
    Some(found)
}

impl fmt::Display for ThreadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == ThreadName::MAIN {
            return f.write_str("main");
        }
        for (index, step) in steps(self.0).unwrap_or_default().iter().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            write!(f, "{step}")?;
        }
        Ok(())
    }
}

/// The error of a text that is no name of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidThreadName;

impl FromStr for ThreadName {
    type Err = InvalidThreadName;

    fn from_str(text: &str) -> Result<ThreadName, InvalidThreadName> {
        if text == "main" {
            return Ok(ThreadName::MAIN);
        }
        let step = |name: ThreadName, step: &str| {
            let is_number = !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
            name.child(step.parse().ok().filter(|_| is_number)?)
        };
        text.split('.').try_fold(ThreadName::MAIN, step).ok_or(InvalidThreadName)
    }
}

/// Returns the preload's data about this thread, if the preload is loaded.
fn thread_record() -> Option<&'static ThreadRecord> {
    static FUNCTION: InheritedOnce<usize> = InheritedOnce::new();
    let function = *FUNCTION.get_or_init(|| {
        // SAFETY: a name that ends with NUL.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pumice_thread".as_ptr()) }.expose_provenance()
    });
    if function == 0 {
        return None;
    }
    let function = std::ptr::with_exposed_provenance::<c_void>(function);
    // SAFETY: the function of that name has this type. What it gives is null, or lives as long as this
    // thread, which alone uses it: the reference goes to no other one, because `Cell` is not `Sync`.
    unsafe { transmute::<*const c_void, extern "C" fn() -> *const ThreadRecord>(function)().as_ref() }
}

/// A guard during whose life the threads that this one creates are not the program's: they get no names, and
/// the program's threads are named as without them.
pub(super) struct Quiet(Option<&'static ThreadRecord>);

impl Quiet {
    pub(super) fn begin() -> Quiet {
        let thread_record = thread_record();
        if let Some(thread_record) = thread_record {
            thread_record.is_quiet.set(thread_record.is_quiet.get().saturating_add(1));
        }
        Quiet(thread_record)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(thread_record) = self.0 {
            thread_record.is_quiet.set(thread_record.is_quiet.get().saturating_sub(1));
        }
    }
}

/// Starts a thread of this name, with `stack_bytes` of stack, or as much as the standard library gives.
///
/// # Errors
/// The operating system cannot create a thread.
pub fn start<T: Send + 'static>(
    name: &str,
    stack_bytes: Option<usize>,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _quiet = Quiet::begin();
    let builder = Builder::new().name(name.to_owned());
    match stack_bytes {
        Some(bytes) => builder.stack_size(bytes).spawn(run),
        None => builder.spawn(run),
    }
}

/// Starts a thread that gets no signals: these are for the program's threads.
///
/// # Errors
/// The operating system cannot create a thread.
pub fn start_without_signals(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // The thread inherits the blocked signals.
    let _blocked = Blocked::begin();
    start(name, None, run)
}

/// A guard that blocks all signals of this thread while it lives.
struct Blocked(Option<libc::sigset_t>);

impl Blocked {
    /// Blocks the signals. If that fails, handlers run, which programs have to expect of libraries.
    fn begin() -> Blocked {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the first call fills `all`, which the second one reads; it fills `before` if it succeeds.
        let is_blocked = unsafe {
            libc::sigfillset(all.as_mut_ptr()) == 0
                && libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
        };
        // SAFETY: the call that fills it has succeeded.
        Blocked(is_blocked.then(|| unsafe { before.assume_init() }))
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: `before` is a set of signals that the same call has filled; a null pointer asks for
            // nothing.
            let _ = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["main", "0", "1", "2.0", "7.3.1", "1021", "30.30", "0.0.0.0"] {
            let name: ThreadName = text.parse().expect(text);
            assert_eq!(name.to_string(), text);
            assert_eq!(ThreadName::of_bits(name.bits()), Some(name));
        }
        for text in ["", "x", "1.", ".1", "+1", "99999999999", "255.255"] {
            assert_eq!(text.parse::<ThreadName>(), Err(InvalidThreadName), "{text}");
        }
        // No thread has bits with a code that does not end.
        for bits in [0, 0b10, 0b100, 1 << 20, u32::MAX] {
            assert_eq!(ThreadName::of_bits(bits), None, "{bits:b}");
        }
    }

    #[test]
    fn a_process_without_the_preload_has_no_names() {
        let _quiet = Quiet::begin();
        assert_eq!(ThreadName::own(), None);
    }
}
