//! What a reader of figures must know about the machine.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Whether the processors of this machine are a program: its latencies are then those of the emulator, and
/// ratios mean little.
pub fn is_emulated() -> bool {
    static EMULATED: OnceLock<bool> = OnceLock::new();
    *EMULATED.get_or_init(|| {
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        names_an_emulator(&processors) || hypervisor().as_deref() == Some("qemu")
    })
}

/// Whether /proc/cpuinfo describes processors that QEMU plays.
fn names_an_emulator(processors: &str) -> bool {
    let models = processors.lines().filter(|line| line.starts_with("model name"));
    models.into_iter().any(|model| model.contains("QEMU TCG") || model.contains("QEMU Virtual CPU"))
}

/// What systemd calls the machine: "qemu" without a processor of the host's, "kvm" with one.
fn hypervisor() -> Option<String> {
    let mut command = Command::new("systemd-detect-virt");
    let output = command.arg("--vm").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulated_processors_are_known_by_their_name() {
        assert!(names_an_emulator("processor\t: 0\nmodel name\t: QEMU TCG CPU version 2.5+\n"));
        assert!(names_an_emulator("model name\t: QEMU Virtual CPU version 2.5+\n"));
        assert!(!names_an_emulator("model name\t: AMD EPYC 7B13\nflags\t: QEMU TCG\n"));
        assert!(!names_an_emulator(""));
    }
}
