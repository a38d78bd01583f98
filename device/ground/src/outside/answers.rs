//! Who answers: the machine, or what takes its place.

use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::clocks;
use super::lineage::Settled;

/// What answers instead of the machine. Every method says what the machine says, until a type answers
/// otherwise.
pub trait Outside: Sync {
    /// A clock that never goes back.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// What CLOCK_MONOTONIC says, in ns.
    fn monotonic_ns(&self) -> u64 {
        clocks::read_ns(libc::CLOCK_MONOTONIC)
    }

    /// The time since the beginning of 1970.
    fn since_1970(&self) -> Duration {
        clocks::since_1970()
    }

    /// Lets so much time pass.
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    /// Lets other threads have the processor.
    fn idle(&self) {
        std::thread::yield_now();
    }

    /// How long a wait for another thread may take on the machine that is to end after `patience`.
    fn patience(&self, patience: Duration) -> Duration {
        patience
    }

    /// A number that no program can guess, another one each time.
    fn random(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }

    /// The number of this process.
    fn process(&self) -> u32 {
        std::process::id()
    }

    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    /// The arguments of the program, its name first.
    fn arguments(&self) -> Vec<OsString> {
        std::env::args_os().collect()
    }

    /// The bytes of a file that the system keeps, such as one in /proc or /sys.
    ///
    /// # Errors
    /// What the system says.
    fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }
}

/// What answers, if it is not the machine.
pub(super) static REPLACED: Settled<&'static dyn Outside> = Settled::new();

/// Has `outside` answer from now on, in this process and in its children. Only the first call counts: what
/// has been told once must stay true.
pub fn replace(outside: &'static dyn Outside) {
    REPLACED.set(outside);
}

/// The machine.
struct Machine;

impl Outside for Machine {}

/// What answers.
#[inline]
pub(super) fn outside() -> &'static dyn Outside {
    REPLACED.get().map_or(&Machine, |outside| *outside)
}

/// A number that no program can guess, another one each time.
pub fn random() -> u64 {
    outside().random()
}
