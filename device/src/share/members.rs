//! The processes that share the port, and which socket of its group each one has.

use std::net::IpAddr;

use pumice_transport::wire::ProcessIndex;

/// A socket on the shared port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) process: ProcessIndex,
    /// The process that opened it, as its PID namespace numbers it.
    pub(super) pid: u32,
    pub(super) pid_namespace: u32,
    /// When that process began, in clock ticks since boot: a number that comes again is another process.
    pub(super) start_ticks: u64,
    /// What the socket is bound to: one group per address.
    pub(super) address: IpAddr,
    pub(super) inode: u64,
}

/// Whether a member takes packets. The first is the best to serve others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reading {
    /// As far as can be told.
    Now,
    /// Its process is stopped.
    Later,
    /// Its process is gone, and a fork child has the socket.
    Never,
}

/// All members, in the order in which the kernel keeps the sockets of each group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Members {
    /// Grows with each change.
    pub(super) generation: u64,
    /// Where the search for a free process index begins: one is not given away again soon,
    /// because packets for its last owner may still come.
    pub(super) next_process: ProcessIndex,
    list: Vec<Member>,
    /// Process indices whose process has gone while queue pairs with its numbers live on, and the process
    /// that gets their packets.
    adopted: Vec<(ProcessIndex, ProcessIndex)>,
}

impl Members {
    /// No member yet.
    pub(super) fn new(generation: u64, next_process: ProcessIndex) -> Members {
        Members { generation, next_process, list: Vec::new(), adopted: Vec::new() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.list.iter()
    }

    pub(super) fn contains(&self, process: ProcessIndex) -> bool {
        self.list.iter().any(|member| member.process == process)
    }

    /// Process indices without a process of their own, and the process that gets their packets.
    pub(super) fn adopted(&self) -> &[(ProcessIndex, ProcessIndex)] {
        &self.adopted
    }

    /// Notes that `by` gets the packets of `process`. False: that was known, or cannot be.
    pub(super) fn adopt(&mut self, process: ProcessIndex, by: ProcessIndex) -> bool {
        let possible = process.is_of_process() && !self.contains(process) && self.contains(by);
        if !possible || self.adopted.contains(&(process, by)) {
            return false;
        }
        self.adopted.retain(|&(known, _)| known != process);
        self.adopted.push((process, by));
        true
    }

    /// Forgets adoptions, by adopted process and adopter. True: there were some.
    pub(super) fn end_adoptions(&mut self, ended: impl Fn(ProcessIndex, ProcessIndex) -> bool) -> bool {
        let before = self.adopted.len();
        self.adopted.retain(|&(process, by)| !ended(process, by));
        self.adopted.len() != before
    }

    /// A new socket comes last in its group. False: the process index is taken or none.
    pub(super) fn add(&mut self, member: Member) -> bool {
        let fits = member.process.is_of_process() && !self.contains(member.process);
        if fits {
            self.adopted.retain(|&(process, _)| process != member.process);
            self.list.push(member);
        }
        fits
    }

    /// A socket was closed: the last of its group takes its place. False: there was none.
    pub(super) fn remove(&mut self, process: ProcessIndex) -> bool {
        let Some(place) = self.list.iter().position(|member| member.process == process) else { return false };
        let Some(address) = self.list.get(place).map(|member| member.address) else { return false };
        let last = self.list.iter().rposition(|member| member.address == address).unwrap_or(place);
        self.list.swap(place, last);
        self.list.remove(last);
        true
    }

    /// `process` was seen to have the socket with this index of its group: it changes places with the one
    /// that was thought to be there. False: that was known, or there is no such index.
    pub(super) fn observe(&mut self, process: ProcessIndex, index: u8) -> bool {
        let Some(place) = self.list.iter().position(|member| member.process == process) else { return false };
        let Some(address) = self.list.get(place).map(|member| member.address) else { return false };
        let mut group = self.list.iter().enumerate().filter(|(_, member)| member.address == address);
        let Some((seen, _)) = group.nth(usize::from(index)) else { return false };
        self.list.swap(place, seen);
        place != seen
    }

    /// The next process index that `claim` accepts, in turn.
    pub(super) fn choose_process<T>(
        &mut self,
        mut claim: impl FnMut(ProcessIndex) -> Option<T>,
    ) -> Option<(ProcessIndex, T)> {
        let first = self.next_process.clamp(ProcessIndex::FIRST, ProcessIndex::LAST);
        let from_first = ProcessIndex::all().skip_while(|process| *process < first);
        for process in from_first.chain(ProcessIndex::all().take_while(|process| *process < first)) {
            if !self.contains(process)
                && !self.adopted.iter().any(|&(adopted, _)| adopted == process)
                && let Some(claimed) = claim(process)
            {
                self.next_process = following(process);
                return Some((process, claimed));
            }
        }
        None
    }

    /// For each top byte of a queue pair number the index of the socket in the group of `address`. Packets
    /// for an index without an owner go to the running process with the lowest index. `reading` says
    /// whether a member still takes packets.
    pub(super) fn targets(&self, address: IpAddr, mut reading: impl FnMut(&Member) -> Reading) -> [u8; 256] {
        let group = self.list.iter().filter(|member| member.address == address);
        let readers: Vec<(Reading, ProcessIndex, u8)> = group
            .zip(0_u8..=u8::MAX)
            .map(|(member, index)| (reading(member), member.process, index))
            .filter(|&(reading, ..)| reading != Reading::Never)
            .collect();
        let lowest = readers.iter().min().map_or(0, |&(.., index)| index);
        let mut targets = [lowest; 256];
        for (_, process, index) in readers {
            if let Some(target) = targets.get_mut(usize::from(process)) {
                *target = index;
            }
        }
        for &(process, by) in &self.adopted {
            let index = targets.get(usize::from(by)).copied();
            if let (Some(target), Some(index)) = (targets.get_mut(usize::from(process)), index) {
                *target = index;
            }
        }
        targets
    }
}

/// The process index that comes after another one in turn.
fn following(process: ProcessIndex) -> ProcessIndex {
    ProcessIndex::all().find(|other| *other > process).unwrap_or(ProcessIndex::FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn nth(index: u8) -> ProcessIndex {
        ProcessIndex::new(index)
    }

    fn member(process: u8, last_byte: u8) -> Member {
        let address = IpAddr::from([127, 0, 0, last_byte]);
        Member {
            process: nth(process),
            pid: 1,
            pid_namespace: 2,
            start_ticks: 3,
            address,
            inode: 100 + u64::from(process),
        }
    }

    fn members(processes: &[u8]) -> Members {
        let mut members = Members::new(0, ProcessIndex::FIRST);
        for &process in processes {
            assert!(members.add(member(process, 1)));
        }
        members
    }

    fn order(members: &Members, last_byte: u8) -> Vec<u8> {
        let address = IpAddr::from([127, 0, 0, last_byte]);
        members
            .iter()
            .filter(|member| member.address == address)
            .map(|member| member.process.value())
            .collect()
    }

    #[test]
    fn the_last_socket_of_the_group_moves_into_the_hole() {
        let mut members = members(&[1, 2, 3, 4]);
        assert!(members.add(member(9, 2)) && members.add(member(5, 1)) && members.add(member(8, 2)));
        assert!(members.remove(nth(2)));
        assert_eq!((order(&members, 1), order(&members, 2)), (vec![1, 5, 3, 4], vec![9, 8]));
        assert!(members.remove(nth(4)) && members.remove(nth(9)));
        assert_eq!((order(&members, 1), order(&members, 2)), (vec![1, 5, 3], vec![8]));
        assert!(!members.remove(nth(4)));
        assert!(!members.add(member(5, 2)) && !members.add(member(0, 1)) && !members.add(member(255, 1)));
    }

    #[test]
    fn observations_lead_to_the_truth() {
        // Two deaths whose order no process saw: the kernel has [1, 5, 4], the registry [1, 4, 5].
        let truth = [1_u8, 5, 4];
        let mut members = members(&[1, 4, 5]);
        let mut changes = 0;
        while order(&members, 1) != truth {
            for (index, process) in (0..).zip(truth) {
                changes += usize::from(members.observe(nth(process), index));
            }
            assert!(changes <= truth.len());
        }
        assert!(!members.observe(nth(5), 1) && !members.observe(nth(5), 7) && !members.observe(nth(77), 0));
    }

    #[test]
    fn indices_are_given_in_turn() {
        let mut members = members(&[3]);
        let first: Vec<u8> =
            (0..3).filter_map(|_| members.choose_process(Some).map(|(process, _)| process.value())).collect();
        assert_eq!(first, [1, 2, 4]);
        members.next_process = ProcessIndex::LAST;
        assert_eq!(members.choose_process(|_| Some("x")), Some((ProcessIndex::LAST, "x")));
        assert_eq!(members.next_process, ProcessIndex::FIRST);
        assert_eq!(members.choose_process(|process| (process > nth(3)).then_some(())), Some((nth(4), ())));
        assert_eq!(members.choose_process(|_| None::<()>), None);
    }

    #[test]
    fn unknown_processes_go_to_the_lowest_that_reads() {
        let mut members = members(&[7, 2, 9]);
        assert!(members.add(member(1, 2)));
        let address = IpAddr::from([127, 0, 0, 1]);
        let targets = members.targets(address, |_| Reading::Now);
        assert_eq!([targets[7], targets[2], targets[9]], [0, 1, 2]);
        assert!([0, 1, 3, 254, 255].iter().all(|&process: &usize| targets[process] == 1));
        let without = |process, reading| {
            move |member: &Member| if member.process == process { reading } else { Reading::Now }
        };
        let targets = members.targets(address, without(nth(2), Reading::Never));
        assert_eq!([targets[7], targets[2], targets[9], targets[0]], [0, 0, 2, 0]);
        let targets = members.targets(address, without(nth(2), Reading::Later));
        assert_eq!(
            [targets[7], targets[2], targets[9], targets[0]],
            [0, 1, 2, 0],
            "it keeps what is its own"
        );
        let targets = members.targets(address, |_| Reading::Later);
        assert_eq!([targets[2], targets[0]], [1, 1]);
        assert_eq!(members.targets(IpAddr::from([127, 0, 0, 3]), |_| Reading::Now), [0; 256]);
    }
}
