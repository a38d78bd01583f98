//! The user and the namespaces of this process, and whether another one still lives.

use super::members::Member;
use super::progress::Condition;
use super::system;

pub(super) use super::system::{effective_uid, real_uid};

/// This process's effective user as the namespace around its user namespace numbers it, as far as /proc
/// tells.
pub(super) fn outer_uid() -> u32 {
    let uid = effective_uid();
    system::read_text("/proc/self/uid_map").and_then(|map| map_uid(&map, uid)).unwrap_or(uid)
}

/// Each line maps a range of users: the first one inside, the first one outside, and how many.
fn map_uid(map: &str, uid: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (inside, outside, count) = (fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?);
        let offset = uid.checked_sub(inside).filter(|offset| *offset < count)?;
        outside.checked_add(offset)
    })
}

/// Whether this number stands for all users that this user namespace has no number for.
pub(super) fn may_be_several_users(uid: u32) -> bool {
    let told = system::read_text("/proc/sys/kernel/overflowuid");
    let overflow = told.and_then(|text| text.trim().parse().ok()).unwrap_or(65_534);
    uid == overflow
}

/// Number of the network namespace of this thread; 0 without /proc.
pub(super) fn network_namespace() -> u64 {
    system::namespace("net")
}

/// Number of the namespace in which process numbers mean something to us; 0 without /proc.
pub(crate) fn pid_namespace() -> u32 {
    system::namespace("pid") as u32
}

/// When a process began, in clock ticks since boot; nothing if there is none, or it has exited.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    stat(pid).filter(|stat| stat.condition != Condition::Gone).map(|stat| stat.start_ticks)
}

/// What the kernel says about the process that opened a socket. Gone, though the socket is not: a fork child
/// has it.
pub(super) fn condition(member: &Member, own_pid_namespace: u32) -> Condition {
    let comparable =
        member.start_ticks != 0 && member.pid_namespace == own_pid_namespace && own_pid_namespace != 0;
    if !comparable {
        return Condition::Unknown;
    }
    let stat = stat(member.pid).filter(|stat| stat.start_ticks == member.start_ticks);
    stat.map_or(Condition::Gone, |stat| stat.condition)
}

/// Whether the process that opened a socket is known to be gone.
pub(super) fn is_orphan(member: &Member, own_pid_namespace: u32) -> bool {
    condition(member, own_pid_namespace) == Condition::Gone
}

/// Whether a process is stopped, by a signal or a debugger.
pub(super) fn is_stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.condition == Condition::Stopped)
}

/// What is read about a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    condition: Condition,
    start_ticks: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&system::process_status(pid)?)
}

/// Fields 3, the state, and 22, the start; the second is the name in parentheses, which may contain anything.
/// A zombie does not read packets any more.
fn parse_stat(stat: &str) -> Option<Stat> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let condition = match fields.next()? {
        "Z" | "X" => Condition::Gone,
        "T" | "t" => Condition::Stopped,
        _ => Condition::Alive,
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
            ("S", Condition::Alive),
            ("T", Condition::Stopped),
            ("t", Condition::Stopped),
            ("Z", Condition::Gone),
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
            index: crate::member_index::MemberIndex::of_number(1).unwrap(),
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
