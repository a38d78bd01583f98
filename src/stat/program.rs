//! What processes are called.

/// The name of a process, if it is of our PID namespace.
pub(crate) fn program(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect())
}
