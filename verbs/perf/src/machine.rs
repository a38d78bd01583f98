//! Facts about the machine that a reader of the figures must know, and cores for threads that measure.

use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread to one core; to none if `core` is `None` or the process may not use it. The
/// scheduler places the other threads of the process.
pub fn pin(core: Option<usize>) {
    let Some(core) = core.filter(|core| *core < CpuSet::MAX_CPU) else { return };
    let mut allowed = CpuSet::new();
    allowed.set(core);
    // In a container that does not have this core, the thread is not pinned.
    let _ = sched_setaffinity(None, &allowed);
}

/// Returns cores for the two ends of a measurement on this machine; `None` if there are fewer than two.
pub fn two() -> [Option<usize>; 2] {
    let Ok(allowed) = sched_getaffinity(None) else { return [None, None] };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    match (cores.next(), cores.next()) {
        (Some(first), Some(second)) => [Some(first), Some(second)],
        _ => [None, None],
    }
}

/// Reports whether the processors of this machine are emulated: its latencies are then those of the emulator,
/// and ratios mean little.
pub fn is_emulated() -> bool {
    static EMULATED: OnceLock<bool> = OnceLock::new();
    *EMULATED.get_or_init(|| {
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        names_an_emulator(&processors) || hypervisor().as_deref() == Some("qemu")
    })
}

/// Returns the share of this machine's processor time that was idle during `duration`, 0 to 1; `None` if
/// /proc/stat does not have it. Time that a hypervisor took is not idle.
pub fn idle_share(duration: Duration) -> Option<f64> {
    let counted = || processor_time(&std::fs::read_to_string("/proc/stat").ok()?);
    let (idle_before, all_before) = counted()?;
    thread::sleep(duration);
    let (idle, all) = counted()?;
    let passed = all.checked_sub(all_before).filter(|passed| *passed > 0)?;
    Some(idle.saturating_sub(idle_before) as f64 / passed as f64)
}

/// Returns idle ticks and all ticks of the first line of /proc/stat: user, nice, system, idle, iowait, irq,
/// softirq, steal; the numbers after these are a part of user and nice.
fn processor_time(stat: &str) -> Option<(u64, u64)> {
    let numbers = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<u64> = numbers.map_while(|word| word.parse().ok()).take(8).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((idle, ticks.iter().sum()))
}

/// Reports whether /proc/cpuinfo describes processors that QEMU emulates.
fn names_an_emulator(processors: &str) -> bool {
    let models = processors.lines().filter(|line| line.starts_with("model name"));
    models.into_iter().any(|model| model.contains("QEMU TCG") || model.contains("QEMU Virtual CPU"))
}

/// Returns systemd's name of the hypervisor: "qemu" for emulated processors, "kvm" for those of the host.
fn hypervisor() -> Option<String> {
    let mut command = Command::new("systemd-detect-virt");
    let output = command.arg("--vm").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_read_without_what_is_counted_twice() {
        let stat = "cpu  10 1 5 100 20 2 3 4 7 0\ncpu0 5 0 2 50 10 1 1 2 3 0\n";
        assert_eq!(processor_time(stat), Some((120, 145)));
        assert_eq!(processor_time("cpu  10 1"), None);
        assert_eq!(processor_time("intr 5"), None);
        let idle = idle_share(Duration::from_millis(100)).expect("Linux has /proc/stat");
        assert!((0.0..=1.0).contains(&idle), "{idle}");
    }

    #[test]
    fn emulated_processors_are_known_by_their_name() {
        assert!(names_an_emulator("processor\t: 0\nmodel name\t: QEMU TCG CPU version 2.5+\n"));
        assert!(names_an_emulator("model name\t: QEMU Virtual CPU version 2.5+\n"));
        assert!(!names_an_emulator("model name\t: AMD EPYC 7B13\nflags\t: QEMU TCG\n"));
        assert!(!names_an_emulator(""));
    }
}
