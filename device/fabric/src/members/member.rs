//! The processes that share the port, and which socket of its group each one has.

use std::collections::HashSet;
use std::net::IpAddr;

use pumice_transport::wire::ProcessIndex;

use super::holders::overlap;
use super::member_index::MemberIndex;

/// Number of process indices that devices with one address leave to devices with all addresses of the host,
/// as long as they find others that only devices with other addresses have.
const LEFT_FREE: usize = 32;

/// A process with a socket on the shared port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) index: MemberIndex,
    /// Process that opened the socket, as its PID namespace numbers it.
    pub(crate) pid: u32,
    pub(crate) pid_namespace: u32,
    /// Start of that process, in clock ticks since boot. Tells it from a later process with the same number.
    pub(crate) start_ticks: u64,
    /// Address that the socket is bound to. Each address has a group of its own.
    pub(crate) address: IpAddr,
    pub(crate) inode: u64,
}

impl Member {
    /// Returns the top byte of the member's queue pair numbers.
    pub(crate) fn process(&self) -> ProcessIndex {
        self.index.process()
    }

    /// Reports whether packets to `address` may be for this member.
    pub(crate) fn may_get(&self, address: IpAddr) -> bool {
        self.address == address || self.address.is_unspecified()
    }
}

/// The readiness of a member to take packets. The smallest value serves others best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Availability {
    /// The process takes packets, as far as can be known.
    Now,
    /// The process is stopped.
    Later,
    /// The process has ended, and a fork child has the socket.
    Never,
}

/// All members, in the order in which the kernel keeps the sockets of each group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Members {
    /// Number of the version of the list; grows with each change.
    pub(crate) generation: u64,
    /// Process index at which the search for a free one begins. A freed index is not assigned again soon,
    /// because packets for its last owner may still come.
    pub(crate) next_process: ProcessIndex,
    list: Vec<Member>,
    /// Members that have gone while queue pairs with their numbers live on, each with the member that gets
    /// their packets.
    adopted: Vec<(MemberIndex, MemberIndex)>,
}

impl Members {
    /// Creates an empty list.
    pub(crate) fn new(generation: u64, next_process: ProcessIndex) -> Members {
        Members { generation, next_process, list: Vec::new(), adopted: Vec::new() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.list.iter()
    }

    pub(crate) fn contains(&self, index: MemberIndex) -> bool {
        self.find(index).is_some()
    }

    pub(crate) fn find(&self, index: MemberIndex) -> Option<&Member> {
        self.list.iter().find(|member| member.index == index)
    }

    /// Returns the member indices without a member of their own, each with the member that gets their
    /// packets.
    pub(crate) fn adopted(&self) -> &[(MemberIndex, MemberIndex)] {
        &self.adopted
    }

    /// Notes that `by` gets the packets of `index`. Returns false if that was known or is not possible.
    pub(crate) fn adopt(&mut self, index: MemberIndex, by: MemberIndex) -> bool {
        let possible = !self.contains(index) && self.contains(by);
        if !possible || self.adopted.contains(&(index, by)) {
            return false;
        }
        self.adopted.retain(|&(known, _)| known != index);
        self.adopted.push((index, by));
        true
    }

    /// Removes adoptions that `ended` selects, by adopted member and adopter. Returns true if there were
    /// some.
    pub(crate) fn end_adoptions(&mut self, ended: impl Fn(MemberIndex, MemberIndex) -> bool) -> bool {
        let before = self.adopted.len();
        self.adopted.retain(|&(index, by)| !ended(index, by));
        self.adopted.len() != before
    }

    /// Returns the member that gets packets to an address which name a process index, of its own or adopted.
    pub(crate) fn at(&self, address: IpAddr, process: ProcessIndex) -> Option<MemberIndex> {
        let own = self.list.iter().find(|member| member.process() == process && member.may_get(address));
        own.map(|member| member.index).or_else(|| {
            let gets = |by| self.find(by).is_some_and(|member| member.may_get(address));
            let adopted = self.adopted.iter().find(|&&(index, by)| index.process() == process && gets(by));
            adopted.map(|&(index, _)| index)
        })
    }

    /// Adds a socket at the end of its group. Returns false if the member index is taken, or if a member that
    /// gets packets of the same addresses has the process index.
    pub(crate) fn add(&mut self, member: Member) -> bool {
        let clash = |other: &Member| {
            other.index == member.index
                || other.process() == member.process() && overlap(other.address, member.address)
        };
        let fits = !self.list.iter().any(clash);
        if fits {
            self.adopted.retain(|&(index, _)| index != member.index);
            self.list.push(member);
        }
        fits
    }

    /// Adds members, in order, to an empty list. Returns false if some of them exclude each other.
    pub(crate) fn add_all(&mut self, list: Vec<Member>) -> bool {
        let mut indices = HashSet::with_capacity(list.len());
        let mut pairs = HashSet::with_capacity(list.len());
        let fits = self.list.is_empty()
            && list.iter().all(|member| {
                indices.insert(member.index) && pairs.insert((member.address, member.process()))
            });
        if fits {
            self.list = list;
        }
        fits
    }

    /// Removes a socket that was closed; the last of its group takes its place, as in the kernel. Returns
    /// false if the member did not exist.
    pub(crate) fn remove(&mut self, index: MemberIndex) -> bool {
        let Some(position) = self.list.iter().position(|member| member.index == index) else { return false };
        let Some(address) = self.list.get(position).map(|member| member.address) else { return false };
        let last = self.list.iter().rposition(|member| member.address == address).unwrap_or(position);
        self.list.swap(position, last);
        self.list.remove(last);
        true
    }

    /// Corrects the order: a member was observed to have the socket with this index of its group, so it
    /// changes places with the one that was listed there. Returns false if the order was correct already or
    /// there is no such index.
    pub(crate) fn observe(&mut self, member: MemberIndex, index: u8) -> bool {
        let Some(position) = self.list.iter().position(|other| other.index == member) else { return false };
        let Some(address) = self.list.get(position).map(|member| member.address) else { return false };
        let mut group = self.list.iter().enumerate().filter(|(_, member)| member.address == address);
        let Some((seen, _)) = group.nth(usize::from(index)) else { return false };
        self.list.swap(position, seen);
        position != seen
    }

    /// Chooses the next member index that `claim` accepts for a member with this address; process indices are
    /// tried in turn. No member that may get packets of the same addresses has the chosen process index.
    ///
    /// While many process indices are free, one is chosen that no member has, so that it fits any address.
    /// Then devices with one address get those that members with other addresses have, each in the lowest
    /// bank where it is free, and at last the rest.
    pub(crate) fn choose<T>(
        &mut self,
        address: IpAddr,
        mut claim: impl FnMut(MemberIndex) -> Option<T>,
    ) -> Option<(MemberIndex, T)> {
        let first = self.next_process.clamp(ProcessIndex::FIRST, ProcessIndex::LAST);
        let from_first = ProcessIndex::all().skip_while(|process| *process < first);
        let turn: Vec<ProcessIndex> =
            from_first.chain(ProcessIndex::all().take_while(|process| *process < first)).collect();
        let adopted = self.adopted.iter().map(|&(index, _)| index);
        let used: HashSet<MemberIndex> = self.list.iter().map(|member| member.index).chain(adopted).collect();
        let address_of = |by| self.find(by).map(|member| member.address);
        let addresses =
            self.list.iter().map(|member| (member.process(), member.address)).chain(
                self.adopted.iter().filter_map(|&(index, by)| Some((index.process(), address_of(by)?))),
            );
        let clashing: HashSet<ProcessIndex> =
            addresses.filter(|&(_, other)| overlap(other, address)).map(|(process, _)| process).collect();
        let known: HashSet<ProcessIndex> = used.iter().map(|index| index.process()).collect();
        let has_many = ProcessIndex::all().count() - known.len() > LEFT_FREE;
        let new = |from: &mut dyn Iterator<Item = &ProcessIndex>| -> Vec<MemberIndex> {
            from.filter(|process| !known.contains(process))
                .filter_map(|process| MemberIndex::new(0, *process))
                .collect()
        };
        let free = new(&mut turn.iter());
        let shared = turn.iter().filter(|process| known.contains(process) && !clashing.contains(process));
        let shared: Vec<MemberIndex> = shared
            .filter_map(|process| MemberIndex::all_of(*process).find(|index| !used.contains(index)))
            .collect();
        let is_alone = address.is_unspecified();
        let order = if has_many || is_alone { [free, shared] } else { [shared, free] };
        for index in order.into_iter().flatten() {
            if let Some(claimed) = claim(index) {
                self.next_process = following(index.process());
                return Some((index, claimed));
            }
        }
        None
    }

    /// Returns, for each top byte of a queue pair number, the index of the socket in the group of `address`.
    /// Packets for an index without an owner go to the running process with the lowest index. `reading`
    /// returns whether a member still takes packets.
    pub(crate) fn targets(
        &self,
        address: IpAddr,
        mut reading: impl FnMut(&Member) -> Availability,
    ) -> [u8; 256] {
        let group = self.list.iter().filter(|member| member.address == address);
        let readers: Vec<(Availability, MemberIndex, u8)> = group
            .zip(0_u8..=u8::MAX)
            .map(|(member, index)| (reading(member), member.index, index))
            .filter(|&(reading, ..)| reading != Availability::Never)
            .collect();
        let lowest = readers.iter().min().map_or(0, |&(.., index)| index);
        let mut targets = [lowest; 256];
        for &(_, member, index) in &readers {
            if let Some(target) = targets.get_mut(usize::from(member.process())) {
                *target = index;
            }
        }
        for &(adopted, by) in &self.adopted {
            let index = readers.iter().find(|&&(_, member, _)| member == by).map(|&(.., index)| index);
            if let (Some(target), Some(index)) = (targets.get_mut(usize::from(adopted.process())), index) {
                *target = index;
            }
        }
        targets
    }
}

/// Returns the process index that comes after another one in turn.
fn following(process: ProcessIndex) -> ProcessIndex {
    ProcessIndex::all().find(|other| *other > process).unwrap_or(ProcessIndex::FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nth(index: u16) -> MemberIndex {
        MemberIndex::of_number(index).unwrap()
    }

    const fn address(last_byte: u8) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, last_byte))
    }

    fn member(number: u16, last_byte: u8) -> Member {
        Member {
            index: nth(number),
            pid: 1,
            pid_namespace: 2,
            start_ticks: 3,
            address: address(last_byte),
            inode: 100 + u64::from(number),
        }
    }

    fn members(processes: &[u16]) -> Members {
        let mut members = Members::new(0, ProcessIndex::FIRST);
        for &process in processes {
            assert!(members.add(member(process, 1)));
        }
        members
    }

    fn order(members: &Members, last_byte: u8) -> Vec<u16> {
        let of_group = members.iter().filter(|member| member.address == address(last_byte));
        of_group.map(|member| member.index.number()).collect()
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
        assert!(!members.add(member(5, 2)) && !members.add(member(0x205, 1)));
    }

    #[test]
    fn observations_lead_to_the_truth() {
        // Two deaths whose order no process saw: the kernel has [1, 5, 4], the registry [1, 4, 5].
        let truth = [1_u16, 5, 4];
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
        let first: Vec<u16> = (0..3)
            .filter_map(|_| members.choose(address(1), Some).map(|(index, _)| index.number()))
            .collect();
        assert_eq!(first, [1, 2, 4]);
        members.next_process = ProcessIndex::LAST;
        assert_eq!(members.choose(address(1), |_| Some("x")), Some((nth(254), "x")));
        assert_eq!(members.next_process, ProcessIndex::FIRST);
        assert_eq!(members.choose(address(1), |index| (index > nth(3)).then_some(())), Some((nth(4), ())));
        assert_eq!(members.choose(address(1), |_| None::<()>), None);
    }

    /// Adds a member with the address `127.0.0.last_byte`, or with all addresses for 0, and returns its
    /// index.
    fn join(members: &mut Members, last_byte: u8) -> Option<MemberIndex> {
        let address =
            if last_byte == 0 { std::net::Ipv4Addr::UNSPECIFIED.into() } else { address(last_byte) };
        let (index, ()) = members.choose(address, |_| Some(()))?;
        assert!(members.add(Member { address, ..member(index.number(), 1) }), "{index}");
        Some(index)
    }

    #[test]
    fn addresses_share_process_indices_when_these_run_short() {
        let mut members = members(&[]);
        for round in 0..100 {
            for last_byte in 1..=16 {
                let index = join(&mut members, last_byte).unwrap();
                assert_eq!(members.at(address(last_byte), index.process()), Some(index), "{round}");
            }
        }
        assert_eq!(members.iter().filter(|member| member.index.bank() == 0).count(), 254 - LEFT_FREE);
        // The indices that are left are for members with all addresses only.
        let all: Vec<MemberIndex> = std::iter::from_fn(|| join(&mut members, 0)).collect();
        assert_eq!(all.len(), LEFT_FREE);
        for index in all {
            assert!((1..=16).all(|last_byte| members.at(address(last_byte), index.process()) == Some(index)));
            let same = members.iter().filter(|member| member.process() == index.process());
            assert_eq!(same.count(), 1);
        }
        let more = std::iter::from_fn(|| join(&mut members, 1)).count();
        assert_eq!(more, 254 - LEFT_FREE - 100, "the rest of one address");
    }

    #[test]
    fn one_address_may_have_all_process_indices() {
        let mut members = members(&[]);
        assert_eq!(std::iter::from_fn(|| join(&mut members, 1)).count(), 254);
        assert_eq!(join(&mut members, 0), None);
        assert_eq!(join(&mut members, 2).map(MemberIndex::bank), Some(1));
        assert!(members.remove(nth(7)) && members.adopt(nth(7), nth(8)));
        assert_eq!(members.at(address(1), ProcessIndex::new(7)), Some(nth(7)), "its adopter's");
        assert_eq!((join(&mut members, 1), members.at(address(3), ProcessIndex::new(7))), (None, None));
        assert!(members.end_adoptions(|_, _| true));
        assert_eq!(join(&mut members, 1), Some(nth(7)));
    }

    #[test]
    fn unknown_processes_go_to_the_lowest_that_reads() {
        let mut members = members(&[7, 2, 9]);
        assert!(members.add(member(1, 2)));
        let address = address(1);
        let targets = members.targets(address, |_| Availability::Now);
        assert_eq!([targets[7], targets[2], targets[9]], [0, 1, 2]);
        assert!([0, 1, 3, 254, 255].iter().all(|&process: &usize| targets[process] == 1));
        let without = |process, reading| {
            move |member: &Member| if member.index == process { reading } else { Availability::Now }
        };
        let targets = members.targets(address, without(nth(2), Availability::Never));
        assert_eq!([targets[7], targets[2], targets[9], targets[0]], [0, 0, 2, 0]);
        let targets = members.targets(address, without(nth(2), Availability::Later));
        assert_eq!(
            [targets[7], targets[2], targets[9], targets[0]],
            [0, 1, 2, 0],
            "it keeps what is its own"
        );
        let targets = members.targets(address, |_| Availability::Later);
        assert_eq!([targets[2], targets[0]], [1, 1]);
        assert_eq!(members.targets(IpAddr::from([127, 0, 0, 3]), |_| Availability::Now), [0; 256]);
    }
}
