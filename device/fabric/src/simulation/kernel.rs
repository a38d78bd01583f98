//! A model of the kernel: processes and their descriptors. Files and sockets are in modules of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::files::SimFiles;
use super::sockets::{SimNetwork, UdpSocket, UnixSocket};
use crate::system::Guard;

pub(crate) type Pid = u32;
pub(crate) type Fd = i32;
pub(crate) type DescriptionId = u64;

/// First descriptor of the model, so that none of them is one of the machine's.
const FIRST_FD: Fd = 1 << 24;
/// Start of the first process, in clock ticks.
const FIRST_TICKS: u64 = 1000;

/// A batch: packets of one size that travel together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) flow: pumice_transport::path::Flow,
    pub(crate) segment_bytes: usize,
    pub(crate) bytes: Vec<u8>,
}

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SimProcessState {
    Runs,
    Stopped,
    /// The child of a fork that has not called exec or exit yet: it has its parent's descriptors.
    ForkChild,
    Exited,
}

#[derive(Debug)]
pub(super) struct KernelProcess {
    pub(super) uid: u32,
    pub(super) state: SimProcessState,
    pub(super) since_ns: u64,
    start_ticks: u64,
    descriptors: BTreeMap<Fd, DescriptionId>,
    /// Packets that the process took out of a socket last: they are lost if it is killed now.
    pub(super) in_hand: Vec<u8>,
}

/// The object that a descriptor refers to.
#[derive(Debug)]
pub(crate) enum Description {
    File { inode: u64 },
    Udp(UdpSocket),
    Unix(UnixSocket),
}

/// The state of the whole host.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(super) now_ns: u64,
    /// Number of system calls so far.
    pub(super) calls: u64,
    pub(super) processes: BTreeMap<Pid, KernelProcess>,
    pub(super) descriptions: BTreeMap<DescriptionId, Description>,
    pub(super) files: SimFiles,
    pub(super) network: SimNetwork,
    /// Batches that the kernel lost or that died with a process, as they were.
    pub(super) lost: Vec<Vec<u8>>,
    /// Guards that are switched off.
    without: Vec<Guard>,
    /// First violation of a rule that must always hold.
    pub(super) violation: Option<String>,
    begun: Instant,
    next: u64,
    next_fd: Fd,
}

impl Kernel {
    pub(super) fn new(without: &[Guard]) -> Kernel {
        Kernel {
            now_ns: 0,
            calls: 0,
            processes: BTreeMap::new(),
            descriptions: BTreeMap::new(),
            files: SimFiles::default(),
            network: SimNetwork::default(),
            lost: Vec::new(),
            without: without.to_vec(),
            violation: None,
            begun: Instant::now(),
            next: 100,
            next_fd: FIRST_FD,
        }
    }

    pub(crate) fn has(&self, guard: Guard) -> bool {
        !self.without.contains(&guard)
    }

    /// Returns the time on the simulated clock.
    pub(crate) fn now(&self) -> Instant {
        self.begun + Duration::from_nanos(self.now_ns)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(crate) fn processes_of(&self, uid: u32) -> Vec<Pid> {
        let lives = |process: &KernelProcess| process.uid == uid && process.state != SimProcessState::Exited;
        self.processes.iter().filter(|(_, process)| lives(process)).map(|(pid, _)| *pid).collect()
    }

    /// Returns the files that a process has open.
    pub(crate) fn descriptors_of(&self, pid: Pid) -> Vec<(PathBuf, PathBuf)> {
        let held = self.processes.get(&pid).into_iter().flat_map(|process| process.descriptors.values());
        let path = |id: &DescriptionId| match self.descriptions.get(id)? {
            Description::File { inode } => {
                let (path, _) = self.files.names.iter().find(|(_, named)| *named == inode)?;
                Some((PathBuf::new(), path.clone()))
            }
            _ => None,
        };
        held.filter_map(path).collect()
    }

    /// Returns a number that nothing else has.
    pub(crate) fn unique(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Notes a violation; only the first is stored.
    pub(super) fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(super) fn start(&mut self, uid: u32) -> Pid {
        let pid = self.unique() as Pid;
        let (since_ns, start_ticks) = (self.now_ns, FIRST_TICKS + u64::from(pid));
        let (descriptors, in_hand) = (BTreeMap::new(), Vec::new());
        let process =
            KernelProcess { uid, state: SimProcessState::Runs, since_ns, start_ticks, descriptors, in_hand };
        self.processes.insert(pid, process);
        pid
    }

    /// Starts a fork child, which has all descriptors of its parent and does nothing.
    pub(super) fn fork(&mut self, parent: Pid) -> Pid {
        let (uid, descriptors) = match self.processes.get(&parent) {
            Some(process) => (process.uid, process.descriptors.clone()),
            None => (0, BTreeMap::new()),
        };
        let child = self.start(uid);
        if let Some(process) = self.processes.get_mut(&child) {
            process.descriptors = descriptors;
            process.state = SimProcessState::ForkChild;
        }
        child
    }

    pub(super) fn set_state(&mut self, pid: Pid, state: SimProcessState) {
        let now_ns = self.now_ns;
        if let Some(process) = self.processes.get_mut(&pid) {
            (process.state, process.since_ns) = (state, now_ns);
        }
    }

    pub(super) fn state(&self, pid: Pid) -> SimProcessState {
        self.processes.get(&pid).map_or(SimProcessState::Exited, |process| process.state)
    }

    /// Ends a process that exits or is killed.
    pub(super) fn end(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let in_hand = std::mem::take(&mut process.in_hand);
        process.state = SimProcessState::Exited;
        let all: Vec<Fd> = process.descriptors.keys().copied().collect();
        if !in_hand.is_empty() {
            self.lost.push(in_hand);
        }
        for fd in all {
            let _ = self.close(pid, fd);
        }
    }

    pub(crate) fn uid(&self, pid: Pid) -> u32 {
        self.processes.get(&pid).map_or(u32::MAX, |process| process.uid)
    }

    /// Returns a process's line of /proc, with the fields that the code reads.
    pub(crate) fn status(&self, pid: Pid) -> Option<String> {
        let process = self.processes.get(&pid)?;
        let state = match process.state {
            SimProcessState::Exited => return None,
            SimProcessState::Stopped => 'T',
            SimProcessState::Runs | SimProcessState::ForkChild => 'S',
        };
        let zeros = "0 ".repeat(18);
        Some(format!("{pid} (simulated) {state} {zeros}{} 0 0", process.start_ticks))
    }

    pub(super) fn describe(&mut self, pid: Pid, what: Description) -> io::Result<Fd> {
        let id = self.unique();
        self.descriptions.insert(id, what);
        self.next_fd += 1;
        let fd = self.next_fd;
        let process = self.processes.get_mut(&pid).ok_or_else(process_ended)?;
        process.descriptors.insert(fd, id);
        Ok(fd)
    }

    pub(crate) fn description_id(&self, pid: Pid, fd: Fd) -> io::Result<DescriptionId> {
        let process = self.processes.get(&pid).ok_or_else(process_ended)?;
        process.descriptors.get(&fd).copied().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Closes a descriptor. The last one of a description takes its locks, its place in a group, and its
    /// datagrams with it.
    pub(crate) fn close(&mut self, pid: Pid, fd: Fd) -> io::Result<()> {
        let process = self.processes.get_mut(&pid).ok_or_else(process_ended)?;
        let id = process.descriptors.remove(&fd);
        let id = id.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        let shared = self.processes.values().any(|other| other.descriptors.values().any(|&each| each == id));
        if !shared {
            self.release(id);
        }
        Ok(())
    }

    fn release(&mut self, id: DescriptionId) {
        self.files.drop_locks_of(id);
        match self.descriptions.remove(&id) {
            Some(Description::Udp(socket)) => {
                self.network.leave_group(id, &socket);
                self.lost.extend(socket.queue.into_iter().map(|packet| packet.bytes));
            }
            Some(Description::Unix(socket)) => {
                self.network.forget_names_of(id);
                self.lost.extend(socket.queue.into_iter().map(|datagram| datagram.bytes));
            }
            Some(Description::File { .. }) | None => {}
        }
    }

    /// Returns the states of the processes that have a description.
    pub(super) fn holders(&self, id: DescriptionId) -> Vec<SimProcessState> {
        let has = |process: &&KernelProcess| process.descriptors.values().any(|each| *each == id);
        self.processes.values().filter(has).map(|process| process.state).collect()
    }

    /// Returns the number of descriptions that no process has; it must be 0.
    pub(super) fn leaks(&self) -> usize {
        let held: BTreeSet<DescriptionId> =
            self.processes.values().flat_map(|process| process.descriptors.values().copied()).collect();
        self.descriptions.keys().filter(|id| !held.contains(id)).count()
    }
}

fn process_ended() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}
