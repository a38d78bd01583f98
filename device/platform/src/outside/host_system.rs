//! The source of answers about the system: the machine, or its replacement.

use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::clocks;
use super::fork_generation::InheritedOnce;

/// A source of answers about the system. Every method has the machine's answer as its default, which a type
/// can override.
pub trait HostSystem: Sync {
    /// Returns the time of a clock that never goes back.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Returns the time of CLOCK_MONOTONIC, in ns.
    fn monotonic_ns(&self) -> u64 {
        clocks::read_ns(libc::CLOCK_MONOTONIC)
    }

    /// Returns the time since the beginning of 1970.
    fn since_1970(&self) -> Duration {
        clocks::since_1970()
    }

    /// Sleeps for `duration`.
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    /// Yields the processor to other threads.
    fn idle(&self) {
        std::thread::yield_now();
    }

    /// Returns how long a wait for another thread that should end after `patience` may take on the machine.
    fn patience(&self, patience: Duration) -> Duration {
        patience
    }

    /// Returns a number that no program can guess, another one each time.
    fn random(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }

    /// Returns the number of this process.
    fn process(&self) -> u32 {
        std::process::id()
    }

    /// Returns a variable of the environment.
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    /// Returns the arguments of the program, its name first.
    fn arguments(&self) -> Vec<OsString> {
        std::env::args_os().collect()
    }

    /// Returns the bytes of a system file, such as one in /proc or /sys.
    ///
    /// # Errors
    /// The system's error.
    fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }
}

/// The replacement of the machine, if there is one.
pub(super) static REPLACEMENT: InheritedOnce<&'static dyn HostSystem> = InheritedOnce::new();

/// Replaces the machine by `outside`, in this process and in its children. Only the first call counts: an
/// answer that was given once must stay true.
pub fn replace(outside: &'static dyn HostSystem) {
    REPLACEMENT.set(outside);
}

/// The machine.
struct RealSystem;

impl HostSystem for RealSystem {}

/// Returns the source of answers.
#[inline]
pub(super) fn outside() -> &'static dyn HostSystem {
    REPLACEMENT.get().map_or(&RealSystem, |outside| *outside)
}

/// Returns a number that no program can guess, another one each time.
pub fn random() -> u64 {
    outside().random()
}
