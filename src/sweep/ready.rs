//! Finds when a server is ready: one of its processes listens, for TCP connections or by rdma_listen.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::report_file::CallReport;

/// State of a listening socket in /proc/net/tcp.
const LISTENING: &str = "0A";

/// Reports whether a process of this group, or one that writes this report of calls, listens.
pub(super) fn is_listening(group: u32, report: &Path) -> bool {
    members(group).into_iter().any(listens_by_tcp) || CallReport::read(report).listening
}

/// Returns the processes of a group.
fn members(group: u32) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(|process| group_of(*process) == Some(group)).collect()
}

/// Returns the group of a process: the third field behind its name, which may contain anything.
fn group_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(2)?.parse().ok()
}

fn listens_by_tcp(process: u32) -> bool {
    let tables = ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{process}/net/{table}")));
    let listening: BTreeSet<String> =
        tables.into_iter().flatten().flat_map(|table| listening_sockets(&table)).collect();
    if listening.is_empty() {
        return false;
    }
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    files.flatten().any(|file| {
        let target = fs::read_link(file.path()).unwrap_or_default();
        let name = target.to_string_lossy();
        let inode = name.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| listening.contains(inode))
    })
}

/// Returns the inodes of the listening sockets of a table.
fn listening_sockets(table: &str) -> Vec<String> {
    let inode = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(3) == Some(&LISTENING)).then(|| words.get(9).map(|inode| (*inode).to_owned())).flatten()
    };
    table.lines().filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_listening_process_is_seen() {
        let table = "  sl local_address rem_address st tx_queue rx_queue tr tm retrnsmt uid timeout inode
             0: 0100007F:4855 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1
             1: 0100007F:4856 00000000:0000 01 00000000:00000000 00:00000000 00000000 0 0 4712 1";
        assert_eq!(listening_sockets(table), ["4711"]);
        let own = group_of(std::process::id()).unwrap();
        assert!(members(own).contains(&std::process::id()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_listening(own, Path::new("/nowhere")));
        drop(listener);
    }
}
