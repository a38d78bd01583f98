//! A port that is shared with other processes.

mod counters;
mod looped;
mod opening;
mod receiving;
mod requests;
mod rings;
mod sending;
mod socket_polling;
mod state;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

use pumice_transport::cm::ListenScope;
use pumice_transport::host::PeerProgress;
use pumice_transport::mad::ServiceId;
use pumice_transport::path::{Flow, Path};
use pumice_transport::types::Gid;
use pumice_transport::wire::ProcessIndex;

use crate::backlog::Backlog;
use crate::files::folder::Folder;
use crate::files::sockets::SendOutcome;
use crate::members::member_index::MemberIndex;
use crate::members::progress::{self, ProcessSigns};
use crate::registry::published::Published;
use crate::registry::services::Services;
use crate::relay::Relay;
use crate::relay::command_queue;
use crate::same_host::SameHost;
use crate::shared_port::membership::{Membership, Repaired};
use crate::shared_port::memory_folder::MemoryFolder;
use crate::system;
use crate::system::GroupPort;
use crate::system::medium::Medium;
use counters::{count, note_sent};
use pumice_model::counters::Counters;
use pumice_model::fates::trigger::Partition;
use pumice_model::port::Port;
use pumice_model::port::batch::{
    CopyReport, GsoBatch, Peer, PeerMedium, PortLimits, ReceivedBatch, ShortReceive, TransmitError,
};
use pumice_model::port::directory::{DirectoryError, Occupant, ServiceDirectory, ServiceEntry};
use pumice_model::port::group::{
    ControlCommand, ForwardOutcome, PortCondition, ProcessGroup, SharedResources,
};
use pumice_platform::limits::ObjectSummary;
use requests::is_for_all;
use socket_polling::RingPoll;
use state::{
    LastReceiver, LastSeries, PendingOrders, PollState, PortCounting, PortIdentity, Relays, RepairState,
};

pub use counters::{SharingCounters, SharingStats};
pub use opening::SharedPortConfig;

/// Number of polls of the socket between two polls of the relay while the caller does not say that the relay
/// is readable: a poll costs a system call.
const RELAY_INTERVAL: u32 = 64;
/// Time between two attempts to repair the steering, in nanoseconds.
const REPAIR_INTERVAL_NS: u64 = 10_000_000;
/// Longest time between two stray packets that are taken to have the same cause, in nanoseconds.
const INCIDENT_NS: u64 = 1_000_000_000;
/// Number of batches that are still forwarded while the port is being closed.
const LAST_BATCHES: usize = 64;

/// A port whose UDP port other processes of the same user have as well. `M` carries its batches.
///
/// **Invariant**: the handler of [`receive`](Port::receive) sees packets of this process only, apart from
/// those of no process, of queue pair 1, and multicast.
#[derive(Debug)]
pub struct SharedPort<M: Medium = GroupPort> {
    // In the order of closing: the registry is closed last, and with it the locks of the process indices.
    medium: M,
    /// Backlogs of the processes; `None` where no file can be mapped in the folder, so that nothing is held
    /// back.
    backlog: Option<Backlog>,
    /// Counters, and where they are published.
    counting: PortCounting,
    /// The names by which packets find this process.
    identity: PortIdentity,
    /// The relays of this process and of processes that have gone.
    relays: Relays,
    membership: Membership,
    services: Services,
    /// The sources that the next receive polls.
    polling: PollState,
    /// The requests and orders of other processes.
    orders: PendingOrders,
    /// Folder of shared XRC domains.
    memory: MemoryFolder,
    /// Whether the steering needs a repair.
    repair: RepairState,
    /// Rings to and from the other processes.
    same_host: SameHost,
    /// The process that was sent to last.
    receiver: LastReceiver,
    /// Folder of a registry that has no name in this process's file system, held open so that it can be
    /// reached.
    _foreign_folder: Option<Folder>,
}

impl<M: Medium> SharedPort<M> {
    /// Returns the process index of this port, 1 to 254: the top byte of its queue pair numbers.
    pub fn process(&self) -> ProcessIndex {
        self.identity.process
    }

    /// Returns the port below: that of this process's socket.
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// Returns the path of the registry file.
    pub fn registry(&self) -> PathBuf {
        self.membership.registry().path().to_owned()
    }

    /// Returns the counters of sharing, which can be read after the port was moved elsewhere.
    pub fn counters(&self) -> &Arc<SharingCounters> {
        &self.counting.counters
    }

    #[cfg(test)]
    pub(crate) fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Returns a sentence for the user about how the port was opened, if there is something to say.
    pub fn notice(&self) -> Option<&str> {
        self.identity.notice.as_deref()
    }

    /// Sets the counters of the device's ports, in order.
    pub fn observe_ports(&mut self, ports: &[Arc<Counters>]) {
        for (published, counters) in self.counting.published.iter_mut().zip(ports) {
            published.observe(counters);
        }
    }

    /// Returns a service entry for each of the port's own addresses: an entry for all addresses becomes one
    /// for the port's address, or for those of the device's two ports.
    fn at_own_addresses(&self, entry: &ServiceEntry) -> Vec<ServiceEntry> {
        let bound = Gid::from(self.membership.address());
        let own =
            if self.identity.own.is_empty() { std::slice::from_ref(&bound) } else { &self.identity.own };
        let served = own.iter().filter(|gid| entry.scope.serves(**gid));
        let here: Vec<ServiceEntry> =
            served.map(|gid| ServiceEntry { scope: ListenScope::At(*gid), ..*entry }).collect();
        let has_all = self.identity.own.is_empty() && self.membership.address().is_unspecified();
        if has_all || here.is_empty() { vec![*entry] } else { here }
    }

    /// Forwards a batch to the member at its destination that has a process index.
    fn send_on(&self, process: ProcessIndex, received: &ReceivedBatch<'_>) -> SendOutcome {
        let Some(member) = self.membership.resolve(received.flow.destination, process) else {
            return SendOutcome::NoProcess;
        };
        self.relays.relay.send_batch(self.membership.registry(), member, received)
    }

    /// Reads and repairs the registry, unless that was done just now.
    fn repair(&mut self, now_ns: u64) {
        let since_ns = self.repair.last_repair_ns.map(|last_ns| now_ns.saturating_sub(last_ns));
        if since_ns.is_some_and(|since_ns| since_ns < REPAIR_INTERVAL_NS) {
            return;
        }
        // The first repair only puts the registry's program in force, which another process may have
        // replaced.
        let incident = since_ns.is_some_and(|since_ns| since_ns < INCIDENT_NS);
        let evidence = self.repair.evidence.take().filter(|_| incident);
        self.repair.last_repair_ns = Some(now_ns);
        let repaired = self.membership.repair(self.medium.steered_socket(), evidence, &mut self.services);
        let Some(Repaired { unlisted, stopped }) = repaired else { return };
        self.repair.repair_due = false;
        self.repair.settled = false;
        count(&self.counting.counters.repaired);
        for unlisted_member in unlisted {
            self.relays.relay.send_repair_request(self.membership.registry(), unlisted_member);
        }
        if let Some(backlog) = &self.backlog {
            stopped.into_iter().for_each(|member| backlog.note_bypassed(member));
        }
    }
}

impl<M: Medium> Port for SharedPort<M> {
    fn transmit(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        if is_for_all(batch.bytes) && self.request(now_ns, batch) {
            return Ok(());
        }
        if self.same_host.is_on()
            && let Some(sent) = self.transmit_by_ring(now_ns, batch)
        {
            return sent;
        }
        let sent = self.transmit_by_medium(now_ns, batch);
        if sent == Err(TransmitError::Unreachable) { self.loop_group(now_ns, batch) } else { sent }
    }

    fn receive(&mut self, now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        if self.identity.looped.receive(handler) {
            return true;
        }
        if std::mem::take(&mut self.polling.relay_is_next) && self.receive_relayed(now_ns, handler) {
            return true;
        }
        let mut taken = false;
        if self.same_host.has_inbound() {
            match self.receive_by_ring(now_ns, handler) {
                RingPoll::Batch => return true,
                RingPoll::BatchAndSocket => taken = true,
                RingPoll::Nothing if !self.polling.socket_polling.is_due(now_ns) => {
                    self.polling.emptied_ns = Some(now_ns);
                    return false;
                }
                RingPoll::Nothing => {}
            }
        }
        self.polling.receives = self.polling.receives.wrapping_add(1);
        if self.polling.receives.is_multiple_of(RELAY_INTERVAL) || taken && self.polling.relay_due {
            // Orders are handled even when the handler gets no batch: a ring's batch and the relay are two
            // receives.
            if taken {
                self.polling.relay_is_next = true;
            } else if self.receive_relayed(now_ns, handler) {
                return true;
            }
        }
        let came = self.receive_by_medium(now_ns, handler);
        self.polling.socket_polling.note_socket_poll(now_ns, came);
        taken |= came;
        if !taken {
            self.repair.settled = true;
            if self.polling.relay_due {
                taken = self.receive_relayed(now_ns, handler);
            }
            if !taken {
                self.polling.emptied_ns = Some(now_ns);
            }
            self.sweep_rings(now_ns);
            for published in &mut self.counting.published {
                published.publish_at_intervals(now_ns);
            }
        }
        if self.repair.repair_due {
            self.repair(now_ns);
        }
        if self.orders.requests.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.resend_requests(now_ns);
        }
        taken
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        self.same_host.is_quiet()
            && !self.polling.socket_polling.is_busy()
            && !self.polling.relay_due
            && !self.polling.relay_is_next
            && self.identity.looped.is_empty()
    }

    fn next_event_ns(&self) -> Option<u64> {
        self.orders.requests.due_ns()
    }

    fn source_port(&mut self, now_ns: u64, flow: &Flow) -> u16 {
        self.medium.source_port(now_ns, flow)
    }

    fn coalesces_flows(&self, peer: Peer) -> bool {
        self.same_host.is_on() && self.backlog.as_ref().is_some_and(|backlog| backlog.find(peer).is_some())
    }

    fn expects(&mut self, now_ns: u64, path: &Path, peer: Peer) {
        self.invite_early(now_ns, path, peer);
    }

    fn listen_also(&mut self, udp_port: u16) -> io::Result<()> {
        self.medium.listen_also(udp_port)
    }

    fn limits(&self, peer: Peer) -> PortLimits {
        self.limits_of_ring(peer).unwrap_or_else(|| self.medium.limits(peer))
    }

    #[inline]
    fn admits_next_of_series(&mut self, series: u64) -> bool {
        self.ring_admits_next_of_series(series)
    }

    #[inline]
    fn transmit_next_of_series(&mut self, series: u64, segment_bytes: usize, bytes: &[u8]) -> bool {
        self.put_next_of_series(series, segment_bytes, bytes)
    }

    #[inline]
    fn receive_short(&mut self, now_ns: u64) -> ShortReceive<'_> {
        self.receive_short_by_ring(now_ns)
    }

    fn medium_to(&self, peer: Peer) -> PeerMedium {
        if let Some(why) = self.same_host.disabled_reason() {
            return PeerMedium::Udp(why);
        }
        let Some(member) = self.backlog.as_ref().and_then(|backlog| backlog.find(peer)) else {
            return PeerMedium::Udp("it is no process of this user in this network namespace");
        };
        self.same_host.medium_to(member)
    }

    fn copies_to(&self, peer: Peer) -> Option<CopyReport> {
        self.same_host.copies_to(self.backlog.as_ref()?.find(peer)?)
    }

    fn descriptors(&self) -> Vec<RawFd> {
        // The counters are requested by a thread that is about to sleep.
        self.counting.published.iter().for_each(Published::publish);
        let mut all = self.medium.descriptors();
        all.push(self.relays.relay.as_raw_fd());
        all.extend(self.same_host.prepare_sleep());
        all.extend(self.relays.adopted.iter().map(|(_, relay)| relay.as_raw_fd()));
        all
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.medium.join(group)?;
        self.identity.looped.join(group);
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        self.medium.leave(group)?;
        self.identity.looped.leave(group);
        Ok(())
    }

    fn group(&mut self) -> Option<&mut dyn ProcessGroup> {
        Some(self)
    }
}

impl<M: Medium> ProcessGroup for SharedPort<M> {
    fn admits(&mut self, now_ns: u64, peer: Peer) -> bool {
        if let Some(admits) = self.ring_admits(now_ns, peer) {
            return admits;
        }
        self.backlog.as_mut().is_none_or(|backlog| backlog.admits(now_ns, peer))
    }

    fn set_clock_origin(&mut self, origin_ns: u64) {
        self.polling.idle_poll_times.set_clock_origin(origin_ns);
    }

    fn peer_progress(&mut self, now_ns: u64, peer: Peer, since_ns: u64) -> PeerProgress {
        let member = self.backlog.as_ref().and_then(|backlog| backlog.find(peer));
        let is_own = |member| self.membership.own_members().contains(&member);
        if member.map_or_else(|| self.identity.local.is_local(peer.process), is_own) {
            // This process sends to itself, and has not yet taken what it sent: a program that posts for a
            // long time on a busy processor.
            let is_itself = self.backlog.as_ref().is_some_and(|backlog| backlog.is_local(peer.address));
            let has_polled = self.polling.emptied_ns.is_some_and(|emptied_ns| emptied_ns >= since_ns);
            return if is_itself && !has_polled { PeerProgress::Starved } else { PeerProgress::Unknown };
        }
        let is_here = self.backlog.as_ref().is_some_and(|backlog| backlog.is_local(peer.address));
        let Some(member) = member else {
            let is_absent = is_here && peer.process.is_of_process();
            return if is_absent { PeerProgress::Absent } else { PeerProgress::Unknown };
        };
        let since_ns = self.polling.idle_poll_times.shared_ns(now_ns, since_ns, system::monotonic_ns);
        let peer_last_poll_ns = self.backlog.as_ref().and_then(|backlog| backlog.peer_last_poll_ns(peer));
        let has_polled = peer_last_poll_ns.is_none_or(|polled_ns| polled_ns >= since_ns);
        if !has_polled {
            // What was sent to this member may lie with another process. Only this message makes the member
            // read and repair the registry.
            self.relays.relay.send_repair_request(self.membership.registry(), member);
        }
        let (has_index, condition) = self.membership.condition(member);
        progress::peer_progress(ProcessSigns { has_index, condition, has_polled })
    }

    fn woken(&mut self) {
        self.polling.relay_due = true;
        self.polling.socket_polling.woken();
    }

    fn observe(&mut self, counters: &Arc<Counters>) {
        self.counting.device = Some(Arc::clone(counters));
        self.medium.observe(counters);
        if self.identity.own.is_empty() {
            self.observe_ports(std::slice::from_ref(counters));
        }
    }

    fn publish_condition(&mut self, port_num: u8, condition: &PortCondition) {
        let index = usize::from(port_num).checked_sub(1);
        if let Some(published) = index.and_then(|index| self.counting.published.get_mut(index)) {
            published.set_port_condition(condition, system::monotonic_ns());
        }
    }

    fn publish_objects(&mut self, summary: ObjectSummary) {
        if let Some(published) = self.counting.published.first_mut() {
            published.count_objects(summary);
        }
    }

    fn next_command(&mut self) -> Option<ControlCommand> {
        self.orders.command_queue.next()
    }

    fn reply_to_command(&mut self, order: &ControlCommand, answer: &[u8]) {
        let text = self.orders.command_queue.answer(self.membership.index(), order, answer);
        // A process that does not get the answer gives the order again.
        let _ = self.relays.relay.answer(order.querier, &text);
    }

    fn reply_to_query(&mut self, order: &ControlCommand, answer: &[u8]) {
        let text = command_queue::encode(self.membership.index(), order.number, answer);
        let _ = self.relays.relay.answer(order.querier, &text);
    }

    fn try_forward(&mut self, process: ProcessIndex, received: &ReceivedBatch<'_>) -> ForwardOutcome {
        match self.send_on(process, received) {
            SendOutcome::Done => {
                note_sent(&self.counting.counters, SendOutcome::Done);
                ForwardOutcome::Done
            }
            SendOutcome::Full => ForwardOutcome::Full,
            SendOutcome::NoProcess => ForwardOutcome::NoProcess,
        }
    }

    fn forward(&mut self, process: ProcessIndex, received: &ReceivedBatch<'_>) -> bool {
        let sent = self.send_on(process, received);
        note_sent(&self.counting.counters, sent);
        sent == SendOutcome::Done
    }

    fn shared_resources(&self) -> Option<SharedResources> {
        // A process on another address is another device.
        let name = format!("{}-{}", self.identity.name, self.membership.address());
        Some(SharedResources {
            folder: self.memory.find(&self.membership),
            name,
            process: self.identity.process,
        })
    }

    fn remove_leftovers(&mut self) {
        if self.memory.is_made() {
            self.membership.try_with_lock(|membership| {
                if membership.is_alone() {
                    self.memory.remove();
                }
            });
        }
    }

    fn reserve_index(&mut self, process: ProcessIndex) {
        self.membership.registry().reserve(process);
    }

    fn adopt_index(&mut self, process: ProcessIndex) -> bool {
        if self.identity.local.contains(process) {
            return true;
        }
        let fd = self.medium.steered_socket();
        let sockets = self.membership.registry().sockets().clone();
        let bind = |member| Relay::bind(&sockets, member).ok();
        let Some(adopted) = self.membership.adopt(fd, process, &mut self.services, bind) else {
            return false;
        };
        self.relays.adopted.push(adopted);
        if let Some(backlog) = &self.backlog {
            backlog.end_of_adopted(Peer { address: self.membership.address(), process });
        }
        self.identity.local.set(process, true);
        // Other processes may have sent to the name before this socket had it.
        self.polling.relay_due = true;
        true
    }

    fn release_index(&mut self, process: ProcessIndex) {
        let adopted = self.relays.adopted.iter().position(|(adopted, _)| adopted.process() == process);
        let adopted = adopted.map(|index| self.relays.adopted.swap_remove(index).0);
        if process != self.identity.process {
            self.identity.local.set(process, false);
        }
        if let Some(adopted) = adopted {
            self.membership.abandon(adopted);
        }
        self.membership.registry().end_reservation(process);
        self.repair.repair_due = true;
    }

    fn services(&mut self) -> Option<&mut dyn ServiceDirectory> {
        Some(self)
    }
}

impl<M: Medium> ServiceDirectory for SharedPort<M> {
    fn publish(&mut self, entry: &ServiceEntry) -> Result<(), DirectoryError> {
        let entries = self.at_own_addresses(entry);
        for (index, entry) in entries.iter().enumerate() {
            if let Err(error) = self.services.publish(entry, &self.membership) {
                let before = entries.get(..index).unwrap_or_default();
                before.iter().for_each(|entry| self.services.withdraw(entry, &self.membership));
                return Err(error);
            }
        }
        Ok(())
    }

    fn listen(&mut self, entry: &ServiceEntry) {
        for entry in self.at_own_addresses(entry) {
            let (fd, membership) = (self.medium.steered_socket(), &self.membership);
            let steered =
                self.services.listen(&entry, membership, |services| membership.steer_locked(fd, services));
            // Until the steering is repaired, requests are forwarded.
            self.repair.repair_due |= steered.is_err();
        }
    }

    fn withdraw(&mut self, entry: &ServiceEntry) {
        for entry in self.at_own_addresses(entry) {
            self.services.withdraw(&entry, &self.membership);
        }
    }

    fn find(&mut self, service_id: ServiceId, local: Gid) -> Vec<ProcessIndex> {
        let members = self.services.find(service_id, local, &self.membership);
        members.into_iter().map(MemberIndex::process).collect()
    }

    fn is_address_of_another(&mut self, address: Gid) -> bool {
        self.membership.is_address_of_another(address.into())
    }

    fn occupant(&mut self, process: ProcessIndex, address: Gid) -> Occupant {
        self.membership.occupant(process, address.into())
    }

    fn lives(&mut self, process: ProcessIndex, who: u64) -> bool {
        self.membership.lives(process, who)
    }

    fn publish_partitions(&mut self, now_ns: u64, partitions: &[Partition]) {
        self.orders.partitions = partitions.to_vec();
        self.membership.publish_partitions(now_ns, partitions);
    }

    fn is_partitioned(&mut self, process: ProcessIndex, who: u64, address: Gid, now_ns: u64) -> bool {
        let address = IpAddr::from(address);
        let own = self.membership.address();
        let by_own_plan =
            |partition: &Partition| now_ns < partition.until_ns && partition.parts(own, address);
        self.orders.partitions.iter().any(by_own_plan)
            || self.membership.is_partitioned(process, who, address)
    }
}

impl<M: Medium> Drop for SharedPort<M> {
    fn drop(&mut self) {
        if self.membership.begin_to_leave(self.medium.steered_socket(), &mut self.services) {
            // Packets steered here for other processes are forwarded; those for this process have no receiver
            // any more.
            for _ in 0..LAST_BATCHES {
                if !self.receive_by_medium(0, &mut |_| {}) {
                    break;
                }
            }
            if self.membership.is_alone() {
                self.memory.remove();
            }
        }
    }
}

pub(crate) mod membership;
pub(crate) mod memory_folder;
pub(crate) mod report;
#[cfg(test)]
mod ring_tests;
#[cfg(test)]
mod tests;
