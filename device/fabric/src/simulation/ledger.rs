//! The ledger: what all processes did, as an observer of the whole host knows it, and the rules that must
//! hold for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use pumice_transport::mad::ServiceId;
use pumice_transport::wire::ProcessIndex;

use super::kernel::Pid;
use crate::shared_port::SharingCounters;

/// Longest time from sending a request until its listener has it, while other processes are stopped.
pub(super) const REQUEST_BOUND_NS: u64 = 300_000_000;
/// Time after the last change of the set of running processes in which requests may be lost: a request in the
/// socket of a process that was just stopped waits there.
pub(super) const GRACE_NS: u64 = 150_000_000;

/// The activity of the processes at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// The processes do all that they can do.
    Work,
    /// The processes only take what comes.
    Settle,
    /// The processes leave.
    Close,
}

/// A packet of the network or of a process.
#[derive(Debug)]
struct SentBatch {
    /// Number of the first packet in its batch.
    batch: u64,
    index: ProcessIndex,
    /// Process that is about to send it.
    sender: Option<Pid>,
    /// Process that had the index.
    owner: Option<Pid>,
    delivered: bool,
    /// A queue was full, or the packet's owner was gone.
    lost: bool,
}

#[derive(Debug)]
struct SentRequest {
    service: ServiceId,
    listener: Pid,
    /// Process that is about to send it.
    sender: Option<Pid>,
    sent_ns: u64,
    arrived: bool,
    /// Processes that took it from a socket.
    seen_by: BTreeSet<Pid>,
}

/// Answers that the peers of a target received, which the target must not forget.
#[derive(Debug, Default)]
struct Target {
    acknowledged: u32,
    /// Value that a process was about to write when it was killed.
    attempted: Option<u32>,
    holder: Option<Pid>,
    registered: BTreeSet<Pid>,
}

/// Counts that show that the runs did something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LedgerTally {
    pub(super) opened: u64,
    pub(super) refused: u64,
    pub(super) delivered: u64,
    pub(super) lost: u64,
    pub(super) requests: u64,
    pub(super) requests_judged: u64,
    pub(super) records: u64,
    pub(super) adopted: u64,
    pub(super) kills: u64,
    pub(super) stops: u64,
    pub(super) forks: u64,
}

impl LedgerTally {
    pub(super) fn add(&mut self, other: &LedgerTally) {
        self.opened += other.opened;
        self.refused += other.refused;
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.requests += other.requests;
        self.requests_judged += other.requests_judged;
        self.records += other.records;
        self.adopted += other.adopted;
        self.kills += other.kills;
        self.stops += other.stops;
        self.forks += other.forks;
    }

    /// Returns the smallest of the counts that should not be small.
    pub(super) fn least(&self) -> u64 {
        let LedgerTally { opened, delivered, requests_judged, records, adopted, kills, stops, forks, .. } =
            *self;
        let counts = [opened, delivered, requests_judged, records, adopted, kills, stops, forks];
        counts.into_iter().min().unwrap_or(0)
    }
}

#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) phase: Phase,
    pub(super) tally: LedgerTally,
    pub(super) violation: Option<String>,
    owners: BTreeMap<ProcessIndex, Pid>,
    adopters: BTreeMap<ProcessIndex, Pid>,
    /// Addresses that the sockets of processes are bound to.
    addresses: BTreeMap<Pid, IpAddr>,
    services: BTreeMap<(u64, IpAddr), Pid>,
    sent: BTreeMap<u64, SentBatch>,
    requests: BTreeMap<u64, SentRequest>,
    targets: BTreeMap<u32, Target>,
    counters: Vec<Arc<SharingCounters>>,
    next: u64,
    /// Time at which a process was last killed, stopped or resumed, or left.
    pub(super) last_change_ns: u64,
}

impl Ledger {
    pub(super) fn new() -> Ledger {
        Ledger {
            phase: Phase::Work,
            tally: LedgerTally::default(),
            violation: None,
            owners: BTreeMap::new(),
            adopters: BTreeMap::new(),
            addresses: BTreeMap::new(),
            services: BTreeMap::new(),
            sent: BTreeMap::new(),
            requests: BTreeMap::new(),
            targets: BTreeMap::new(),
            counters: Vec::new(),
            next: 1,
            last_change_ns: 0,
        }
    }

    pub(super) fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Notes that a process has an index and a socket now.
    pub(super) fn opened(
        &mut self,
        pid: Pid,
        index: ProcessIndex,
        address: IpAddr,
        counters: &Arc<SharingCounters>,
    ) {
        self.tally.opened += 1;
        self.addresses.insert(pid, address);
        self.counters.push(Arc::clone(counters));
        self.take(pid, index);
    }

    fn take(&mut self, pid: Pid, index: ProcessIndex) {
        let other = self.owners.insert(index, pid).or(self.adopters.get(&index).copied());
        if let Some(other) = other.filter(|other| *other != pid) {
            self.violate(format!("index {index} is process {other}'s, and now also process {pid}'s"));
        }
    }

    /// Notes that a process begins to leave: packets that come for it now have no receiver.
    pub(super) fn leaving(&mut self, pid: Pid) {
        self.owners.retain(|_, owner| *owner != pid);
        self.adopters.retain(|_, owner| *owner != pid);
        self.services.retain(|_, owner| *owner != pid);
    }

    /// Notes that a process is gone, killed or not.
    pub(super) fn process_ended(&mut self, pid: Pid) {
        self.leaving(pid);
        for target in self.targets.values_mut() {
            target.registered.remove(&pid);
            if target.holder == Some(pid) {
                target.holder = None;
            }
        }
        self.sent.values_mut().filter(|sent| sent.sender == Some(pid)).for_each(|sent| sent.lost = true);
        // The requests that the process had taken are lost with it, and those for it have no receiver.
        self.requests.retain(|_, request| {
            request.listener != pid && request.sender != Some(pid) && !request.seen_by.contains(&pid)
        });
    }

    pub(super) fn owner(&self, index: ProcessIndex) -> Option<Pid> {
        self.owners.get(&index).or_else(|| self.adopters.get(&index)).copied()
    }

    /// Returns the process indices that have an owner, and the owner's address.
    pub(super) fn indices(&self) -> Vec<(ProcessIndex, IpAddr)> {
        let all = self.owners.iter().chain(&self.adopters);
        all.filter_map(|(index, pid)| Some((*index, *self.addresses.get(pid)?))).collect()
    }

    /// Returns a number that nothing else has.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Notes that a process has taken over the index of one that is gone, or gives it up.
    pub(super) fn adopted(&mut self, pid: Pid, index: ProcessIndex) {
        self.tally.adopted += 1;
        let other = self.adopters.insert(index, pid).or(self.owners.get(&index).copied());
        if let Some(other) = other.filter(|other| *other != pid) {
            self.violate(format!("process {pid} adopted index {index}, which is process {other}'s"));
        }
    }

    pub(super) fn released(&mut self, index: ProcessIndex) {
        self.adopters.remove(&index);
    }

    /// Notes that a process, or the network, is about to send a batch of packets to a process index, and
    /// returns the packets' numbers.
    pub(super) fn sends(
        &mut self,
        sender: Option<Pid>,
        index: ProcessIndex,
        count: u64,
    ) -> std::ops::Range<u64> {
        let (owner, batch) = (self.owner(index), self.next + 1);
        self.next += count;
        for number in batch..batch + count {
            self.sent
                .insert(number, SentBatch { batch, index, sender, owner, delivered: false, lost: false });
        }
        batch..batch + count
    }

    /// Notes that the batch has left its sender.
    pub(super) fn has_sent(&mut self, numbers: std::ops::Range<u64>) {
        self.sent.range_mut(numbers).for_each(|(_, sent)| sent.sender = None);
    }

    /// Notes that a process received a packet.
    pub(super) fn delivered(&mut self, pid: Pid, number: u64) {
        let Some(sent) = self.sent.get_mut(&number) else {
            return self.violate(format!("packet {number} was never sent"));
        };
        let twice = std::mem::replace(&mut sent.delivered, true);
        let (index, owner) = (sent.index, sent.owner);
        self.tally.delivered += 1;
        if twice {
            self.violate(format!("packet {number} for index {index} came twice, now to process {pid}"));
        }
        // The index may have another owner by now, which may have the packet.
        let stays = owner.is_some() && self.owner(index) == owner;
        if let Some(owner) = owner.filter(|owner| stays && *owner != pid) {
            self.violate(format!(
                "packet {number} for index {index}, of process {owner}, came to process {pid}"
            ));
        }
    }

    /// Notes that a batch was lost where batches may be lost: in a full queue, or with a process or a socket
    /// that is gone.
    pub(super) fn lost(&mut self, bytes: &[u8]) {
        for number in super::actor::numbers(bytes) {
            self.tally.lost += 1;
            if let Some(sent) = self.sent.get_mut(&number) {
                sent.lost = true;
            }
            self.requests.remove(&number);
        }
    }

    /// Checks, at the end of all traffic, that packets for living processes which neither arrived nor were
    /// lost are among those that were counted.
    pub(super) fn settle(&mut self) {
        let stats = self.counters.iter().map(|counters| counters.stats());
        let counted: u64 = stats.map(|stats| stats.forward_dropped + stats.rejected).sum();
        let is_missing = |sent: &SentBatch| !sent.delivered && !sent.lost && sent.owner.is_some();
        let missing: BTreeSet<(u64, ProcessIndex, Option<Pid>)> = self
            .sent
            .values()
            .filter(|sent| is_missing(sent) && self.owner(sent.index) == sent.owner)
            .map(|sent| (sent.batch, sent.index, sent.owner))
            .collect();
        if missing.len() as u64 > counted {
            self.violate(format!(
                "batches {missing:?} have disappeared, and {counted} were counted as dropped"
            ));
        }
    }

    pub(super) fn bound(&mut self, pid: Pid, service: ServiceId) {
        let Some(address) = self.addresses.get(&pid).copied() else { return };
        if let Some(other) = self.services.insert((service.0, address), pid).filter(|other| *other != pid) {
            self.violate(format!("service {service:?} is process {other}'s, and now also process {pid}'s"));
        }
    }

    pub(super) fn unbinds(&mut self, pid: Pid, service: ServiceId) {
        self.services.retain(|(each, _), owner| *each != service.0 || *owner != pid);
        self.requests.retain(|_, request| request.service != service || request.listener != pid);
    }

    /// Returns the services, their addresses, and the processes that bound them.
    pub(super) fn services(&self) -> Vec<(ServiceId, IpAddr, Pid)> {
        self.services.iter().map(|((service, address), pid)| (ServiceId(*service), *address, *pid)).collect()
    }

    /// Notes that a process, or the network, is about to send a request, and returns its number.
    pub(super) fn asks(
        &mut self,
        service: ServiceId,
        listener: Pid,
        now_ns: u64,
        sender: Option<Pid>,
    ) -> u64 {
        self.next += 1;
        self.tally.requests += 1;
        let seen_by = BTreeSet::new();
        let sent_ns = now_ns;
        let request = SentRequest { service, listener, sender, sent_ns, arrived: false, seen_by };
        self.requests.insert(self.next, request);
        self.next
    }

    /// Notes that the request has left its sender.
    pub(super) fn record_request(&mut self, number: u64) {
        if let Some(request) = self.requests.get_mut(&number) {
            request.sender = None;
        }
    }

    pub(super) fn request_seen(&mut self, pid: Pid, number: u64) {
        if let Some(request) = self.requests.get_mut(&number) {
            request.seen_by.insert(pid);
        }
    }

    pub(super) fn request_arrived(&mut self, pid: Pid, number: u64) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        request.arrived = true;
        let (service, listener) = (request.service, request.listener);
        if listener != pid && self.services.values().any(|owner| *owner == listener) {
            self.violate(format!("a request for {service:?}, of process {listener}, came to process {pid}"));
        }
    }

    /// Judges the requests whose time is over: those that were sent, and had to arrive, while no process was
    /// killed, stopped or resumed. `certain` says that all processes run, or that none was ever killed. When
    /// one is killed the kernel moves sockets of the group, and until a process notices, requests may lie in
    /// the socket of a stopped one; repetition helps.
    pub(super) fn judge_requests(&mut self, now_ns: u64, certain: bool, runs: impl Fn(Pid) -> bool) {
        let is_due = |request: &SentRequest| now_ns >= request.sent_ns + REQUEST_BOUND_NS;
        let calm_ns = self.last_change_ns + GRACE_NS;
        let mut late = None;
        let mut judged = 0;
        self.requests.retain(|number, request| {
            if !is_due(request) {
                return true;
            }
            let promised = request.sender.is_none() && certain;
            if promised && request.sent_ns >= calm_ns && runs(request.listener) {
                judged += 1;
                if !request.arrived {
                    late = Some((*number, request.service, request.listener, request.sent_ns));
                }
            }
            false
        });
        self.tally.requests_judged += judged;
        if let Some((number, service, listener, sent_ns)) = late {
            self.violate(format!(
                "request {number} for {service:?}, sent at {sent_ns} ns, has not come to process {listener}, \
                 which listens and runs, by {now_ns} ns"
            ));
        }
    }

    /// Notes that a process takes or releases the lock of a target's record.
    pub(super) fn locked(&mut self, pid: Pid, qpn: u32) {
        let target = self.targets.entry(qpn).or_default();
        if let Some(other) = target.holder.replace(pid).filter(|other| *other != pid) {
            self.violate(format!("record {qpn:#x} is locked by processes {other} and {pid}"));
        }
    }

    pub(super) fn unlocks(&mut self, qpn: u32) {
        if let Some(target) = self.targets.get_mut(&qpn) {
            target.holder = None;
        }
    }

    /// Checks the content of a locked record against what it has to remember.
    pub(super) fn record_read(&mut self, qpn: u32, expected_psn: u32) {
        self.tally.records += 1;
        let target = self.targets.entry(qpn).or_default();
        if target.attempted == Some(expected_psn) {
            target.acknowledged = expected_psn;
        }
        target.attempted = None;
        let acknowledged = target.acknowledged;
        if acknowledged != expected_psn {
            self.violate(format!(
                "the peer of target {qpn:#x} was told {acknowledged}, and its record remembers {expected_psn}"
            ));
        }
    }

    /// Notes that a record is gone, which is a violation if a process that is registered for it lives.
    pub(super) fn record_gone(&mut self, qpn: u32) {
        if let Some(pid) = self.targets.get(&qpn).and_then(|target| target.registered.first()) {
            self.violate(format!(
                "the record of target {qpn:#x} is gone, and process {pid} is registered for it"
            ));
        }
        self.targets.remove(&qpn);
    }

    pub(super) fn record_stores(&mut self, qpn: u32, expected_psn: u32) {
        self.targets.entry(qpn).or_default().attempted = Some(expected_psn);
    }

    pub(super) fn record_stored(&mut self, qpn: u32) {
        let target = self.targets.entry(qpn).or_default();
        if let Some(stored) = target.attempted.take() {
            target.acknowledged = stored;
        }
    }

    pub(super) fn registered(&mut self, pid: Pid, qpn: u32) {
        self.targets.entry(qpn).or_default().registered.insert(pid);
    }

    /// Notes that a process does not use the domain any more.
    pub(super) fn closes_domain(&mut self, pid: Pid) {
        for target in self.targets.values_mut() {
            target.registered.remove(&pid);
        }
    }
}
