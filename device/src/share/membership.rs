//! This socket's place in the registry, from joining to leaving.

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use super::members::{Member, Members};
use super::registry::{Loaded, Registry};
use super::{ShareError, holders, process, steering};
use crate::gsi::Occupant;
use crate::interface;

/// How long leaving waits for the registry. Who gives up leaves the work to the next process that looks.
const LEAVE_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Membership {
    registry: Registry,
    member: Member,
    /// Slots of processes that have gone, whose packets come here.
    adopted: Vec<u8>,
    port: u16,
    own_pid_namespace: u32,
    /// The generation whose program this process saw in force last.
    generation: u64,
    /// The registry is locked and the socket about to be closed.
    leaving: bool,
}

impl Membership {
    /// Enters a socket whose slot is claimed into the registry, which the caller has locked.
    pub(super) fn join(
        registry: Registry,
        members: &mut Members,
        member: Member,
        port: u16,
    ) -> Result<Membership, ShareError> {
        members.add(member);
        registry.store(members)?;
        let generation = members.generation;
        let own_pid_namespace = member.pid_namespace;
        Ok(Membership {
            registry,
            member,
            adopted: Vec::new(),
            port,
            own_pid_namespace,
            generation,
            leaving: false,
        })
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn slot(&self) -> u8 {
        self.member.slot
    }

    pub(super) fn address(&self) -> IpAddr {
        self.member.address
    }

    /// Slots whose owners live, this one's included. The registry is locked.
    pub(super) fn living_slots(&self) -> Result<Vec<u8>, ShareError> {
        let loaded = self.registry.load(&self.own_slots())?;
        let known = loaded.members.iter().map(|member| member.slot);
        Ok(known.chain(loaded.strangers.iter().copied()).chain([self.member.slot]).collect())
    }

    /// Who has a slot at an address, as the registry says it without its lock.
    pub(super) fn occupant(&self, slot: u8, address: IpAddr) -> Occupant {
        if self.own_slots().contains(&slot) {
            return Occupant::Nobody;
        }
        let Some(members) = self.registry.glance() else { return Occupant::Unknown };
        let at = |member: &&Member| {
            member.slot == slot
                && (member.address == address
                    || member.address.is_unspecified() && interface::is_local(address))
        };
        let found = members.iter().find(at).filter(|member| self.is_there(member));
        found.map_or(Occupant::Nobody, |member| Occupant::Process(member.inode))
    }

    /// Whether the process with this slot and socket lives, as far as can be told.
    pub(super) fn lives(&self, slot: u8, inode: u64) -> bool {
        let Some(members) = self.registry.glance() else { return true };
        let found = members.iter().find(|member| member.slot == slot && member.inode == inode);
        found.is_some_and(|member| self.is_there(member))
    }

    fn is_there(&self, member: &Member) -> bool {
        self.registry.is_taken(member.slot) && !process::is_orphan(member, self.own_pid_namespace)
    }

    /// Attaches the program that the registry implies to the group of the socket `fd`.
    pub(super) fn steer(&self, fd: RawFd, members: &Members) -> bool {
        steering::attach(fd, &self.targets(members)).is_ok()
    }

    fn targets(&self, members: &Members) -> [u8; 256] {
        let reads = |member: &Member| {
            member.slot == self.member.slot || !process::is_orphan(member, self.own_pid_namespace)
        };
        members.targets(self.member.address, reads)
    }

    /// Mends what is wrong: entries of the dead, a missing entry of this process, a program that is not the
    /// registry's. `evidence` is the top byte of a queue pair number whose packet came here though the
    /// registry's program, known to be in force, would send it elsewhere: then the registry is wrong about
    /// the order. Returns the slots that the registry does not know; nothing if somebody else is at it, or
    /// this is a fork child.
    pub(super) fn mend(&mut self, fd: RawFd, evidence: Option<u8>) -> Option<Vec<u8>> {
        if !self.is_owner() || !self.registry.try_lock() {
            return None;
        }
        let strangers = self.mend_locked(fd, evidence).ok();
        self.registry.unlock();
        strangers
    }

    fn mend_locked(&mut self, fd: RawFd, evidence: Option<u8>) -> Result<Vec<u8>, ShareError> {
        let Loaded { mut members, mut changed, strangers } = self.registry.load(&self.own_slots())?;
        changed |= members.add(self.member);
        for &slot in &self.adopted {
            // Its lock is ours, so whoever had it is gone.
            changed |= members.remove(slot);
            changed |= members.adopt(slot, self.member.slot);
        }
        if let Some(byte) = evidence
            && !changed
            && members.generation == self.generation
            && let Some(&index) = self.targets(&members).get(usize::from(byte))
        {
            changed = members.observe(self.member.slot, index);
        }
        if changed {
            self.registry.store(&mut members)?;
        }
        self.steer(fd, &members);
        self.generation = members.generation;
        Ok(strangers)
    }

    /// Begins to leave: from now on others get this socket's packets, and until this value is dropped nobody
    /// joins or leaves. False: not possible, or not ours to do.
    pub(super) fn begin_to_leave(&mut self, fd: RawFd) -> bool {
        if !self.is_owner() || self.registry.lock(LEAVE_PATIENCE).is_err() {
            return false;
        }
        self.leaving = true;
        if let Ok(Loaded { mut members, .. }) = self.registry.load(&self.own_slots()) {
            members.remove(self.member.slot);
            members.end_adoptions(|_, by| by == self.member.slot);
            steering::attach(
                fd,
                &members.targets(self.member.address, |member| {
                    !process::is_orphan(member, self.own_pid_namespace)
                }),
            )
            .ok();
        }
        true
    }

    fn own_slots(&self) -> Vec<u8> {
        std::iter::once(self.member.slot).chain(self.adopted.iter().copied()).collect()
    }

    /// Takes over a slot whose owner has gone, and steers its packets here. `bind` makes what else belongs to
    /// the slot.
    pub(super) fn adopt<T>(&mut self, fd: RawFd, slot: u8, bind: impl FnOnce() -> Option<T>) -> Option<T> {
        if !self.is_owner() || !self.registry.try_lock() {
            return None;
        }
        let mut made = None;
        if self.registry.take(slot) {
            made = bind();
            if made.is_some() {
                self.adopted.push(slot);
                // What fails here is mended later: packets come by a detour until then.
                let _ = self.mend_locked(fd, None);
            } else {
                self.registry.release(slot);
            }
        }
        self.registry.unlock();
        made
    }

    /// Gives up an adopted slot.
    pub(super) fn abandon(&mut self, slot: u8) {
        let before = self.adopted.len();
        self.adopted.retain(|&adopted| adopted != slot);
        if self.adopted.len() != before && self.is_owner() {
            self.registry.release(slot);
        }
    }

    /// Whether this process joined, and is not a fork child of the one that did.
    pub(super) fn is_owner(&self) -> bool {
        self.member.pid == std::process::id()
    }

    /// The entry goes when the socket has gone. While a fork child holds the socket it keeps its place in
    /// the group, so the entry stays as well, until the lock of the slot is lost with the child.
    fn finish_leaving(&self) -> Result<(), ShareError> {
        let Loaded { mut members, mut changed, .. } = self.registry.load(&self.own_slots())?;
        changed |= members.end_adoptions(|_, by| by == self.member.slot);
        let held = holders::holders(self.port)
            .is_some_and(|all| all.iter().any(|holder| holder.inode == self.member.inode));
        if !held {
            changed |= members.remove(self.member.slot);
            self.registry.release(self.member.slot);
        }
        if changed { self.registry.store(&mut members) } else { Ok(()) }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if self.leaving {
            // What cannot be written now, the next process that looks finds out.
            let _ = self.finish_leaving();
            self.registry.unlock();
        }
    }
}
