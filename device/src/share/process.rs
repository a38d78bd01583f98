//! Who this process is, and whether another one still lives.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::members::Member;

/// The user whose files and sockets this process makes.
pub(super) fn effective_uid() -> u32 {
    // SAFETY: no memory is involved, and it cannot fail.
    unsafe { libc::geteuid() }
}

/// The user that the kernel names as the sender of this process's datagrams.
pub(super) fn real_uid() -> u32 {
    // SAFETY: no memory is involved, and it cannot fail.
    unsafe { libc::getuid() }
}

/// Number of the network namespace of this thread; 0 without /proc.
pub(super) fn network_namespace() -> u64 {
    ["/proc/thread-self/ns/net", "/proc/self/ns/net"]
        .iter()
        .find_map(|path| fs::metadata(path).ok())
        .map_or(0, |namespace| namespace.ino())
}

/// Number of the namespace in which process numbers mean something to us; 0 without /proc.
pub(super) fn pid_namespace() -> u32 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino() as u32)
}

/// When a process began, in clock ticks since boot; nothing if there is none, or it has exited.
pub(super) fn start_ticks(pid: u32) -> Option<u64> {
    parse_start_ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Whether the process that opened a socket is known to be gone, though the socket is not: a fork child
/// has it.
pub(super) fn is_orphan(member: &Member, own_pid_namespace: u32) -> bool {
    let comparable =
        member.start_ticks != 0 && member.pid_namespace == own_pid_namespace && own_pid_namespace != 0;
    comparable && start_ticks(member.pid) != Some(member.start_ticks)
}

/// Field 22; the second is the name in parentheses, which may contain anything. The third is the state:
/// a zombie does not read packets any more.
fn parse_start_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let alive = !matches!(fields.next()?, "Z" | "X");
    let ticks = fields.nth(18)?.parse().ok()?;
    alive.then_some(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_cannot_confuse() {
        let stat = "17 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        assert_eq!(parse_start_ticks(stat), Some(4242));
        assert_eq!(parse_start_ticks(&stat.replace(" S ", " Z ")), None);
        for broken in
            ["", "17", "17 (x)", "17 (x) S 1 2", "17 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 y"]
        {
            assert_eq!(parse_start_ticks(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn this_process_lives() {
        let own = start_ticks(std::process::id());
        assert!(own.is_some() && network_namespace() != 0 && pid_namespace() != 0);
        let mut member = Member {
            slot: 1,
            pid: std::process::id(),
            pid_namespace: pid_namespace(),
            start_ticks: own.unwrap_or_default(),
            address: [127, 0, 0, 1].into(),
            inode: 0,
        };
        assert!(!is_orphan(&member, pid_namespace()));
        member.start_ticks += 1;
        assert!(is_orphan(&member, pid_namespace()), "the number is another process's now");
        assert!(!is_orphan(&member, pid_namespace() + 1), "numbers of another namespace say nothing");
    }
}
