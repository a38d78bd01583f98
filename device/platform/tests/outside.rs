//! The machine can be replaced as a whole: what decides whether two runs are the same is answered by one
//! value. A program of its own, since a process has one outside.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pumice_platform::clock::Clock;
use pumice_platform::event_queue::Awaited;
use pumice_platform::outside::{self, HostSystem};

/// An outside in which time passes only when a thread sleeps or waits.
struct Scripted {
    begun: Instant,
    now_ns: AtomicU64,
    idled: AtomicU64,
    drawn: AtomicU64,
}

impl Scripted {
    fn pass(&self, duration: Duration) {
        self.now_ns.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl HostSystem for Scripted {
    fn now(&self) -> Instant {
        self.begun + Duration::from_nanos(self.monotonic_ns())
    }

    fn monotonic_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    fn since_1970(&self) -> Duration {
        Duration::from_nanos(self.monotonic_ns())
    }

    fn sleep(&self, duration: Duration) {
        self.pass(duration);
    }

    fn idle(&self) {
        self.idled.fetch_add(1, Ordering::Relaxed);
    }

    fn patience(&self, patience: Duration) -> Duration {
        self.pass(patience);
        Duration::ZERO
    }

    fn random(&self) -> u64 {
        self.drawn.fetch_add(1, Ordering::Relaxed)
    }

    fn process(&self) -> u32 {
        7
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        (name == "PUMICE_SEED").then(|| "17".into())
    }

    fn arguments(&self) -> Vec<OsString> {
        vec!["program".into()]
    }

    fn file(&self, path: &Path) -> io::Result<Vec<u8>> {
        if path == Path::new("/proc/sys/kernel/random/boot_id") {
            return Ok(b"boot".to_vec());
        }
        Err(io::ErrorKind::NotFound.into())
    }
}

static SCRIPTED: LazyLock<Scripted> = LazyLock::new(|| Scripted {
    begun: Instant::now(),
    now_ns: AtomicU64::new(5_000),
    idled: AtomicU64::new(0),
    drawn: AtomicU64::new(40),
});

#[test]
fn every_answer_comes_from_what_answers_instead_of_the_machine() {
    outside::replace(&*SCRIPTED);
    let clock = Clock::monotonic();
    assert_eq!((clock.origin_ns(), clock.now_ns()), (5_000, 0));

    let begun = outside::now();
    outside::sleep(Duration::from_secs(3600));
    assert_eq!(outside::since(begun), Duration::from_secs(3600));
    assert_eq!(clock.now_ns(), 3600 * 1_000_000_000);

    // A wait in vain takes its whole patience of that time, and none of the machine's.
    let value = Awaited::new(0);
    assert!(!value.wait_for(Duration::from_secs(74), |&value| value == 1));
    assert_eq!(outside::since(begun), Duration::from_secs(3674));
    assert_eq!(outside::since_1970(), Duration::from_nanos(5_000) + Duration::from_secs(3674));

    outside::idle();
    assert_eq!(SCRIPTED.idled.load(Ordering::Relaxed), 1);
    assert_eq!([outside::random(), outside::random()], [40, 41]);
    assert_eq!(outside::process::number(), 7);
    assert_eq!(outside::process::kernel_number(), std::process::id() as i32);
    assert_eq!(outside::environment::text("PUMICE_SEED"), Ok("17".to_owned()));
    assert_eq!(outside::environment::variable("HOME"), None);
    assert_eq!(outside::environment::program(), "program");
    assert_eq!(outside::files::fact_text("/proc/sys/kernel/random/boot_id").unwrap(), "boot");
    assert_eq!(outside::files::fact("/proc/self/maps").unwrap_err().kind(), io::ErrorKind::NotFound);

    // The first one stays.
    struct Machine;
    impl HostSystem for Machine {}
    outside::replace(&Machine);
    assert_eq!(outside::process::number(), 7);
}
