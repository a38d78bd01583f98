//! The membership of this process's socket in the registry, from joining to leaving.

use std::cell::RefCell;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use pumice_model::fates::trigger::Partition;
use pumice_model::port::directory::Occupant;
use pumice_transport::wire::ProcessIndex;

use crate::members::error::SharingError;
use crate::members::member::{Availability, Member, Members};
use crate::members::member_index::MemberIndex;
use crate::members::progress::{self, RunState};
use crate::members::{holders, process};
use crate::registry::published_partitions;
use crate::registry::services::{Publisher, Services};
use crate::registry::{Loaded, Registry};
use crate::steering::Targets;
use crate::system::Guard;
use crate::{steering, system};

/// Time that leaving waits for the lock of the registry. A process that gives up leaves the work to the next
/// one that reads the registry.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Result of reading and repairing the registry.
#[derive(Debug)]
pub(crate) struct Repaired {
    /// Members that have an owner which the registry does not list.
    pub(crate) unlisted: Vec<MemberIndex>,
    /// Members whose processes are stopped, which serve no other process for now.
    pub(crate) stopped: Vec<MemberIndex>,
}

/// The process that gets packets which name no process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) member: MemberIndex,
    /// The process is the one that the group's program names when all processes run.
    pub(crate) is_usual: bool,
}

#[derive(Debug)]
pub(crate) struct Membership {
    registry: Registry,
    member: Member,
    /// Members that have gone and whose packets come to this process.
    adopted: Vec<MemberIndex>,
    /// Cached registry, as it was read last.
    known: RefCell<Option<Members>>,
    port: u16,
    own_pid_namespace: u32,
    /// Generation of the program that this process last saw in force.
    generation: u64,
    /// The registry is locked and the socket is about to be closed.
    leaving: bool,
}

impl Membership {
    /// Enters a socket whose process index is claimed into the registry, which the caller has locked.
    pub(crate) fn join(
        registry: Registry,
        members: &mut Members,
        member: Member,
        port: u16,
    ) -> Result<Membership, SharingError> {
        // The partitions of an earlier process with this index go and, in an empty registry, those of all.
        if members.iter().next().is_none() {
            published_partitions::sweep(registry.sockets(), |index| registry.is_taken(index));
        }
        published_partitions::forget(registry.sockets(), member.index);
        members.add(member);
        registry.store(members)?;
        let generation = members.generation;
        let own_pid_namespace = member.pid_namespace;
        Ok(Membership {
            registry,
            member,
            adopted: Vec::new(),
            known: RefCell::new(None),
            port,
            own_pid_namespace,
            generation,
            leaving: false,
        })
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn process(&self) -> ProcessIndex {
        self.member.process()
    }

    pub(crate) fn index(&self) -> MemberIndex {
        self.member.index
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.member.address
    }

    /// Returns the members whose owners live, this one included. The registry is locked.
    pub(crate) fn live_members(&self) -> Result<Vec<MemberIndex>, SharingError> {
        let loaded = self.registry.load(&self.own_members())?;
        let known = loaded.members.iter().map(|member| member.index);
        Ok(known.chain(loaded.unlisted.iter().copied()).chain([self.member.index]).collect())
    }

    /// Reports whether no other process lives. The registry is locked.
    pub(crate) fn is_alone(&self) -> bool {
        let own = self.own_members();
        self.live_members().is_ok_and(|members| members.iter().all(|member| own.contains(member)))
    }

    /// Runs `work` with the registry locked. Returns `None` if the registry stays locked by others, or in a
    /// fork child.
    pub(crate) fn with_lock<T>(&self, work: impl FnOnce(&Membership) -> T) -> Option<T> {
        if !self.is_owner() || self.registry.lock(LEAVE_TIMEOUT).is_err() {
            return None;
        }
        let done = work(self);
        self.registry.unlock();
        Some(done)
    }

    /// Runs `work` with the registry locked; does nothing if others have it locked, or in a fork child.
    pub(crate) fn try_with_lock(&self, work: impl FnOnce(&Membership)) {
        if self.is_owner() && self.registry.try_lock() {
            work(self);
            self.registry.unlock();
        }
    }

    /// Returns the process that has an index at an address, as the registry lists it, read without its lock.
    pub(crate) fn occupant(&self, process: ProcessIndex, address: IpAddr) -> Occupant {
        let Some(members) = self.registry.peek() else { return Occupant::Unknown };
        let own = self.own_members();
        let at = |member: &&Member| {
            member.process() == process
                && !own.contains(&member.index)
                && (member.address == address
                    || member.address.is_unspecified() && system::is_host_address(address))
        };
        let found = members.iter().find(at).filter(|member| self.is_there(member));
        found.map_or(Occupant::NoProcess, |member| Occupant::Process(member.inode))
    }

    /// Reports whether another living process is bound to this address, as the registry lists it, read
    /// without its lock.
    pub(crate) fn is_address_of_another(&self, address: IpAddr) -> bool {
        let other = |member: &Member| member.index != self.member.index && member.address == address;
        let members = self.registry.peek();
        members.is_some_and(|members| members.iter().any(|member| other(member) && self.is_there(member)))
    }

    /// Returns the member that gets packets to an address which name a process index, as the registry lists
    /// it, read without its lock. Returns `None` if processes with other addresses have the index. A member
    /// that the registry does not list may be in the first bank: then the registry was damaged.
    pub(crate) fn resolve(&self, address: IpAddr, process: ProcessIndex) -> Option<MemberIndex> {
        let mut known = self.known.borrow_mut();
        let generation = self.registry.glance();
        if known.as_ref().map(|members| members.generation) != generation || generation.is_none() {
            *known = self.registry.peek();
        }
        let first = MemberIndex::new(0, process)?;
        let Some(members) = known.as_ref() else { return Some(first) };
        members.at(address, process).or_else(|| {
            let is_known =
                members.contains(first) || members.adopted().iter().any(|&(adopted, _)| adopted == first);
            (!is_known).then_some(first)
        })
    }

    /// Reports whether the process with this index and socket lives, as far as can be known.
    pub(crate) fn lives(&self, process: ProcessIndex, inode: u64) -> bool {
        let Some(members) = self.registry.peek() else { return true };
        let found = members.iter().find(|member| member.process() == process && member.inode == inode);
        found.is_some_and(|member| self.is_there(member))
    }

    /// Publishes the partitions of this process by its fault plan, for the processes that find it dead.
    pub(crate) fn publish_partitions(&self, now_ns: u64, partitions: &[Partition]) {
        if self.is_owner() {
            let sockets = self.registry.sockets();
            published_partitions::write_partitions(
                sockets,
                self.member.index,
                self.member.inode,
                now_ns,
                partitions,
            );
        }
    }

    /// Reports whether the process that had this index, socket and address was separated from this one by its
    /// own fault plan when it died, and still is.
    pub(crate) fn is_partitioned(&self, process: ProcessIndex, inode: u64, address: IpAddr) -> bool {
        let own = self.member.address;
        let peers = if own.is_unspecified() { system::host_addresses() } else { vec![own] };
        published_partitions::is_partitioned(self.registry.sockets(), process, inode, address, &peers)
    }

    /// Returns whether a member index has an owner, and the kernel's view of that process.
    pub(crate) fn condition(&self, index: MemberIndex) -> (bool, RunState) {
        let members = self.registry.peek();
        let member = members.as_ref().and_then(|members| members.find(index));
        let condition =
            member.map_or(RunState::Unknown, |member| process::condition(member, self.own_pid_namespace));
        (self.registry.is_taken(index), condition)
    }

    fn is_there(&self, member: &Member) -> bool {
        self.registry.is_taken(member.index) && !process::is_orphan(member, self.own_pid_namespace)
    }

    /// Returns the process that should get packets to `address` which name no process and that is none of
    /// `except`. Also says whether it is the one to which the group sends them when all processes run.
    pub(crate) fn server(&self, address: IpAddr, except: &[MemberIndex]) -> Option<Server> {
        let members = self.registry.peek()?;
        let exact = members.iter().any(|member| member.address == address);
        let group = members
            .iter()
            .filter(|member| if exact { member.address == address } else { member.address.is_unspecified() });
        let group: Vec<(Availability, MemberIndex)> = group
            .filter(|member| member.index == self.member.index || self.registry.is_taken(member.index))
            .map(|member| (self.reading(member), member.index))
            .filter(|&(reading, _)| reading != Availability::Never)
            .collect();
        let lowest = group.iter().map(|&(_, member)| member).min()?;
        let serving = group.iter().filter(|(_, member)| !except.contains(member));
        serving.min().map(|&(_, member)| Server { member, is_usual: member == lowest })
    }

    /// Reports whether another process takes packets now, as far as can be known.
    pub(crate) fn reads_now(&self, member: MemberIndex) -> bool {
        let (has_index, condition) = self.condition(member);
        has_index && progress::reading(condition) == Availability::Now
    }

    fn reading(&self, member: &Member) -> Availability {
        if member.index == self.member.index {
            return Availability::Now;
        }
        progress::reading(process::condition(member, self.own_pid_namespace))
    }

    /// Attaches the program that the registry and the services imply to the group of the socket `fd`. The
    /// registry is locked. Returns the members whose processes are stopped, which serve no other process for
    /// now.
    pub(crate) fn steer(&self, fd: RawFd, members: &Members, services: &mut Services) -> Vec<MemberIndex> {
        let mut stopped = Vec::new();
        let processes = members.targets(self.member.address, |member| {
            let reading = self.reading(member);
            if reading == Availability::Later {
                stopped.push(member.index);
            }
            reading
        });
        self.attach(fd, members, processes, services);
        stopped
    }

    fn attach(&self, fd: RawFd, members: &Members, processes: [u8; 256], services: &mut Services) {
        let in_group = |index: MemberIndex| {
            members.find(index).is_some_and(|member| member.address == self.member.address)
        };
        let listening = services.listening(self.member.address).into_iter();
        let services = listening
            .filter(|&(_, member)| system::guards(Guard::RequestsToListeners) && in_group(member))
            .filter_map(|(service, member)| Some((service, *processes.get(usize::from(member.process()))?)))
            .collect();
        // A kernel that does not take the program leaves everything to forwarding.
        let _ = steering::attach(fd, &Targets { processes, services });
    }

    /// Attaches a new program at once. The registry is locked.
    pub(crate) fn steer_locked(&self, fd: RawFd, services: &mut Services) {
        if let Ok(Loaded { members, .. }) = self.registry.load(&self.own_members()) {
            self.steer(fd, &members, services);
        }
    }

    /// Repairs the registry and the program of the group: entries of dead processes, a missing entry of this
    /// process, a program that is not the registry's. `evidence` is the process index in a queue pair number
    /// whose packet came here though the registry's program, known to be in force, would send it elsewhere:
    /// then the registry is wrong about the order. Does nothing while another process repairs, and in a fork
    /// child.
    pub(crate) fn repair(
        &mut self,
        fd: RawFd,
        evidence: Option<ProcessIndex>,
        services: &mut Services,
    ) -> Option<Repaired> {
        if !self.is_owner() || !self.registry.try_lock() {
            return None;
        }
        let repaired = self.repair_locked(fd, evidence, services).ok();
        self.registry.unlock();
        repaired
    }

    fn repair_locked(
        &mut self,
        fd: RawFd,
        evidence: Option<ProcessIndex>,
        services: &mut Services,
    ) -> Result<Repaired, SharingError> {
        let Loaded { mut members, mut changed, unlisted } = self.registry.load(&self.own_members())?;
        changed |= members.add(self.member);
        for &index in &self.adopted {
            // This process holds the lock of the index, so its owner has ended.
            changed |= members.remove(index);
            changed |= members.adopt(index, self.member.index);
        }
        if let Some(process) = evidence
            && !changed
            && members.generation == self.generation
            && let targets = members.targets(self.member.address, |member| self.reading(member))
            && let Some(&index) = targets.get(usize::from(process))
        {
            changed = members.observe(self.member.index, index);
        }
        if changed {
            self.registry.store(&mut members)?;
        }
        let stopped = self.steer(fd, &members, services);
        self.generation = members.generation;
        Ok(Repaired { unlisted, stopped })
    }

    /// Begins to leave: from now on other processes get this socket's packets, and until this value is
    /// dropped no process joins or leaves. Returns false if that is not possible, or not the task of this
    /// process.
    pub(crate) fn begin_to_leave(&mut self, fd: RawFd, services: &mut Services) -> bool {
        if !self.is_owner() || self.registry.lock(LEAVE_TIMEOUT).is_err() {
            return false;
        }
        self.leaving = true;
        if let Ok(Loaded { mut members, .. }) = self.registry.load(&self.own_members()) {
            members.remove(self.member.index);
            members.end_adoptions(|_, by| by == self.member.index);
            let processes = members.targets(self.member.address, |member| self.reading(member));
            self.attach(fd, &members, processes, services);
        }
        true
    }

    /// Returns this member and those that it has adopted.
    pub(crate) fn own_members(&self) -> Vec<MemberIndex> {
        std::iter::once(self.member.index).chain(self.adopted.iter().copied()).collect()
    }

    /// Takes over a process index whose owner has gone, and steers its packets here. `bind` makes the other
    /// things that belong to the index.
    pub(crate) fn adopt<T>(
        &mut self,
        fd: RawFd,
        process: ProcessIndex,
        services: &mut Services,
        bind: impl FnOnce(MemberIndex) -> Option<T>,
    ) -> Option<(MemberIndex, T)> {
        if !self.is_owner() || !self.registry.try_lock() {
            return None;
        }
        let mut made = None;
        if let Some(index) = self.take_free(process) {
            made = bind(index).map(|bound| (index, bound));
            if made.is_some() {
                self.adopted.push(index);
                // A failure is repaired later; until then packets are forwarded.
                let _ = self.repair_locked(fd, None, services);
            } else {
                self.registry.release(index);
            }
        }
        self.registry.unlock();
        made
    }

    /// Claims a member index whose process index no member has that may get packets of this one's address.
    /// The registry is locked.
    fn take_free(&self, process: ProcessIndex) -> Option<MemberIndex> {
        let Loaded { members, unlisted, .. } = self.registry.load(&self.own_members()).ok()?;
        let address = |index| members.find(index).map(|member| member.address);
        let members_with = members.iter().map(|member| (member.index, member.address));
        let adopters = members.adopted().iter().filter_map(|&(index, by)| Some((index, address(by)?)));
        let is_had = members_with
            .chain(adopters)
            .any(|(index, other)| index.process() == process && holders::overlap(other, self.member.address));
        if is_had || unlisted.iter().any(|stranger| stranger.process() == process) {
            return None;
        }
        MemberIndex::all_of(process).find(|index| self.registry.take(*index))
    }

    /// Gives up an adopted member index.
    pub(crate) fn abandon(&mut self, index: MemberIndex) {
        let before = self.adopted.len();
        self.adopted.retain(|&adopted| adopted != index);
        if self.adopted.len() != before && self.is_owner() {
            self.registry.release(index);
        }
    }

    /// Reports whether this process joined, and is not a fork child of the one that did.
    pub(crate) fn is_owner(&self) -> bool {
        self.member.pid == system::process_id()
    }

    /// Removes the entry once the socket is closed. While a fork child holds the socket, the socket keeps its
    /// place in the group, so the entry stays as well, until the lock of the process index is lost with the
    /// child.
    fn finish_leaving(&self) -> Result<(), SharingError> {
        let Loaded { mut members, mut changed, .. } = self.registry.load(&self.own_members())?;
        changed |= members.end_adoptions(|_, by| by == self.member.index);
        let held = holders::holders(self.port)
            .is_some_and(|all| all.iter().any(|holder| holder.inode == self.member.inode));
        if !held {
            changed |= members.remove(self.member.index);
            self.registry.release(self.member.index);
        }
        if members.iter().next().is_none() {
            self.registry.sockets().sweep_members(|member| self.registry.is_taken(member));
            published_partitions::sweep(self.registry.sockets(), |member| self.registry.is_taken(member));
        }
        if changed { self.registry.store(&mut members) } else { Ok(()) }
    }
}

impl Publisher for Membership {
    fn index(&self) -> MemberIndex {
        self.member.index
    }

    fn is_owner(&self) -> bool {
        Membership::is_owner(self)
    }

    fn registry(&self) -> &Registry {
        &self.registry
    }

    fn live_members(&self) -> Result<Vec<MemberIndex>, SharingError> {
        Membership::live_members(self)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if self.leaving {
            // If the entry cannot be removed now, the next process that reads the registry removes it.
            let _ = self.finish_leaving();
            self.registry.unlock();
        }
    }
}
