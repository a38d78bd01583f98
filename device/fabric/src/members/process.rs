//! The user and the namespaces of this process, and the test whether another process still lives.

use super::progress::RunState;
use crate::members::member::Member;
use crate::system;

pub(crate) use crate::system::{effective_uid, real_uid};

/// Returns this process's effective user as the namespace around its user namespace numbers it, as far as
/// /proc shows it.
pub(crate) fn outer_uid() -> u32 {
    let uid = effective_uid();
    system::read_text("/proc/self/uid_map").and_then(|map| map_uid(&map, uid)).unwrap_or(uid)
}

/// Maps a user with the lines of a `uid_map`. Each line maps a range of users: the first one inside, the
/// first one outside, and how many.
fn map_uid(map: &str, uid: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (inside, outside, count) = (fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?);
        let offset = uid.checked_sub(inside).filter(|offset| *offset < count)?;
        outside.checked_add(offset)
    })
}

/// Reports whether this number stands for all users that this user namespace has no number for.
pub(crate) fn may_be_several_users(uid: u32) -> bool {
    let told = system::read_text("/proc/sys/kernel/overflowuid");
    let overflow = told.and_then(|text| text.trim().parse().ok()).unwrap_or(65_534);
    uid == overflow
}

/// Returns the number of the network namespace of this thread; 0 without /proc. The kernel gives it to
/// another namespace when this one has ended.
pub fn network_namespace() -> u64 {
    system::namespace("net")
}

/// Returns a number that tells the network namespace of this thread from others that have or had the same
/// namespace number: this boot of the kernel assigns it once. `None` on kernels older than Linux 5.14, which
/// have no such number.
pub(crate) fn network_generation() -> Option<String> {
    let cookie = system::network_cookie()?;
    let boot = system::read_text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot: String = boot.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    Some(format!("{boot}.{cookie}"))
}

/// Returns the number of the PID namespace of this process; 0 without /proc.
pub(crate) fn pid_namespace() -> u32 {
    system::namespace("pid") as u32
}

/// Returns the start of a process, in clock ticks since boot; `None` if it does not exist or has exited.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    stat(pid).filter(|stat| stat.condition != RunState::Exited).map(|stat| stat.start_ticks)
}

/// Returns the kernel's view of the process that opened a socket. If it has ended although the socket exists,
/// a fork child has the socket.
pub(crate) fn condition(member: &Member, own_pid_namespace: u32) -> RunState {
    let comparable =
        member.start_ticks != 0 && member.pid_namespace == own_pid_namespace && own_pid_namespace != 0;
    if !comparable {
        return RunState::Unknown;
    }
    let stat = stat(member.pid).filter(|stat| stat.start_ticks == member.start_ticks);
    stat.map_or(RunState::Exited, |stat| stat.condition)
}

/// Reports whether the process that opened a socket is known to be gone.
pub(crate) fn is_orphan(member: &Member, own_pid_namespace: u32) -> bool {
    condition(member, own_pid_namespace) == RunState::Exited
}

/// Reports whether a process is stopped, by a signal or a debugger.
pub(crate) fn is_stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.condition == RunState::Stopped)
}

/// Fields of `/proc/PID/stat` that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    condition: RunState,
    start_ticks: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&system::process_status(pid)?)
}

/// Parses fields 3, the state, and 22, the start; the second field is the name in parentheses, which may
/// contain anything. A zombie does not read packets any more.
fn parse_stat(stat: &str) -> Option<Stat> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let condition = match fields.next()? {
        "Z" | "X" => RunState::Exited,
        "T" | "t" => RunState::Stopped,
        _ => RunState::Alive,
    };
    Some(Stat { condition, start_ticks: fields.nth(18)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_cannot_confuse() {
        let stat = "17 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        for (state, condition) in [
            ("S", RunState::Alive),
            ("T", RunState::Stopped),
            ("t", RunState::Stopped),
            ("Z", RunState::Exited),
        ] {
            let stat = stat.replace(" S ", &format!(" {state} "));
            assert_eq!(parse_stat(&stat), Some(Stat { condition, start_ticks: 4242 }));
        }
        for broken in
            ["", "17", "17 (x)", "17 (x) S 1 2", "17 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 y"]
        {
            assert_eq!(parse_stat(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn a_user_has_a_number_outside_of_its_namespace() {
        assert_eq!(map_uid("         0          0 4294967295\n", 1000), Some(1000));
        let map = "0 1000 1\n1 100000 65536\n";
        assert_eq!([0, 1, 65_536].map(|uid| map_uid(map, uid)), [Some(1000), Some(100_000), Some(165_535)]);
        assert_eq!(map_uid(map, 65_537), None);
        assert_eq!(map_uid("x 1 2\n0 4294967295 9", 3), None);
    }

    #[test]
    fn this_process_lives() {
        let own = start_ticks(std::process::id());
        assert!(own.is_some() && network_namespace() != 0 && pid_namespace() != 0);
        let mut member = Member {
            index: crate::members::member_index::MemberIndex::of_number(1).unwrap(),
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
