//! The rules about packets in one device: asked about each packet, they decide what happens to it.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use pumice_platform::clock::Clock;
use pumice_platform::ordinal::Ordinal;
use pumice_transport::event::OutgoingPacket;
use pumice_transport::host::QpContext;
use pumice_transport::mad::CmMessage;
use pumice_transport::path::ROCE_PORT;
use pumice_transport::types::Fate;
use pumice_transport::wire::Qpn;

use super::action::{Fault, Size};
use super::armed::{ArmedRule, FROM_REPORT, RuleControl, RuleOrigin, RuleSubject, Rules};
use super::incident::{Incidents, TimedIncident, TimedIncidents};
use super::plan::{FaultPlan, PacketRule, Recorded, Rule, What};
use super::traffic::{Connections, StreamCount, Traffic, TrafficKind};
use super::waits::Triggers;
use pumice_model::fates::fired::{Fired, RejData};
use pumice_model::fates::incident::Incident;
use pumice_model::fates::trigger::{Occurrence, Partitions};
use pumice_model::fates::{Notes, PacketKey, TIME};

/// Most queue pairs that are remembered at a time: more than a device has.
pub(crate) const MAX_QUEUE_PAIRS: usize = 1 << 20;

/// A closure that is called with each rule that applies.
pub(crate) type Witness<'a> = &'a mut dyn FnMut(&Fired<'_>);

/// The packets or the occasions that a rule of this process is about.
pub(crate) enum PacketAim {
    Packets(Box<PacketRule>),
    Recorded(HashMap<PacketKey, RuleEffect>),
    /// An incident after the call that the rule waits for has returned.
    AfterCall(Incident),
    /// An incident after the time that the rule waits for has passed, in ns.
    AfterTime(u64, Incident),
    /// Incidents after calls, by name and ordinal of the call; or at times, by [`TIME`] and ns.
    AtCalls(HashMap<(String, u64), Incident>),
}

/// The effect of a rule when it applies.
#[derive(Clone)]
pub(crate) struct RuleEffect {
    fate: Fate,
    partition_ns: Option<Option<u64>>,
    incident: Option<Incident>,
    private_data: Option<Box<RejData>>,
    noted: bool,
}

/// The traffic of a device as its rules count it.
#[derive(Default)]
struct CountedTraffic {
    queue_pairs: BTreeMap<u32, Traffic>,
    /// True if packets left before a rule existed: the first packet seen of a queue pair may then be any
    /// packet of it.
    began_midway: bool,
    connections: Connections,
    /// The ordinals of queue pairs that another thread than the first created, by number.
    of_threads: BTreeMap<u32, u32>,
    /// The counts of the rules for connection management.
    management: BTreeMap<(usize, TrafficKind), StreamCount>,
}

/// The rules of a plan about packets and incidents, in one device.
pub struct Faults {
    pub(super) seed: u64,
    pub(super) tag: String,
    /// The name of the device, where it is known.
    pub(super) device: String,
    pub(super) rules: Rules<PacketAim>,
    pub(super) triggers: Arc<Triggers>,
    /// Number of rules of any kind so far, including those that concern other processes.
    rules_made: usize,
    traffic: CountedTraffic,
    partitions: Partitions,
    /// The incidents that are to happen to the device.
    pub(super) incidents: Incidents,
    /// The incidents that are to happen to the device at a time.
    pub(super) timed: TimedIncidents,
    /// The private data of the rejection that was decided last.
    rejection: RejData,
    /// The notes about packets for captures, if there is a capture.
    notes: Option<Notes>,
    clock: Clock,
}

/// A packet about which the rules are asked.
pub struct PacketCase<'a> {
    key: &'a PacketKey,
    stream: TrafficKind,
    size: Size,
    peer: IpAddr,
    source_port: u16,
}

impl Faults {
    /// Returns the rules of a plan about packets that concern a process with this tag.
    pub fn new(plan: &FaultPlan, tag: &str, triggers: &Arc<Triggers>, clock: Clock) -> Faults {
        let rules = Rules::of_plan(plan, triggers, |rule| PacketAim::new(rule, tag));
        let mut timed = TimedIncidents::default();
        rules.all().flat_map(|armed| times_of(armed, clock.now_ns())).for_each(|due| timed.add(due));
        Faults {
            seed: plan.seed(),
            tag: tag.to_owned(),
            device: String::new(),
            rules,
            timed,
            triggers: Arc::clone(triggers),
            rules_made: plan.rules().len(),
            traffic: CountedTraffic::default(),
            partitions: Partitions::default(),
            incidents: Incidents::default(),
            rejection: RejData::NONE,
            notes: None,
            clock,
        }
    }

    /// Adds a rule while the program runs, if it concerns this process. Returns whether it does.
    pub(crate) fn arm(&mut self, rule: &Rule, origin: RuleOrigin<'_>) -> bool {
        let Some(subject) = PacketAim::new(rule, &self.tag) else { return false };
        if self.rules.is_empty() {
            // Packets left without being asked about: the progress of traffic has to be determined anew.
            self.traffic.queue_pairs.clear();
            self.traffic.began_midway = true;
        }
        self.rules.push(rule, subject, origin, &self.triggers);
        if let Some(armed) = self.rules.all().last() {
            times_of(armed, self.clock.now_ns()).into_iter().for_each(|due| self.timed.add(due));
        }
        true
    }

    /// Returns the number for the next rule of any kind.
    pub fn next_id(&mut self) -> usize {
        self.rules_made += 1;
        self.rules_made - 1
    }

    /// Returns the rules, for operations that are the same for every kind.
    pub fn roster(&mut self) -> &mut dyn RuleControl {
        &mut self.rules
    }

    /// Reports whether there are rules: without them no packet has to be asked about.
    pub fn is_active(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Starts to note the fates of packets for captures.
    pub fn store_notes(&mut self) {
        self.notes.get_or_insert_default();
    }

    /// Returns the notes of fates, if there are any.
    pub fn notes(&self) -> Option<&Notes> {
        self.notes.as_ref()
    }

    /// Returns the names of the rules.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.names()
    }

    /// Reports whether an incident is due for the device now.
    #[inline]
    pub fn has_incidents(&self) -> bool {
        self.incidents.is_due()
    }

    /// Takes the incidents that are due for the device now, each with its queue pair.
    pub fn take_incidents(&mut self) -> Vec<(Qpn, Incident)> {
        self.incidents.take()
    }

    /// Records that a queue pair is halted before a packet.
    pub fn halted(&mut self, qp: &QpContext) {
        self.incidents.halted(qp.qpn);
    }

    /// Returns the private data of the rejection that was decided last.
    pub fn rejection(&self) -> RejData {
        self.rejection
    }

    /// Returns the seed of the plan.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the tag of the process.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Returns the clock of the plan, which is the device's.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the time of the plan's clock.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Ends [`Faults::cut_off`] of a port.
    pub fn rejoin(&self, port_num: u8) {
        self.partitions.rejoin(port_num);
    }

    /// Cuts off a port with these addresses until `until_ns`: nothing passes it. Without addresses the
    /// device's only port is meant.
    pub fn cut_off(&self, port_num: u8, own: Vec<IpAddr>, until_ns: u64) {
        self.partitions.cut_off(port_num, own, until_ns);
    }

    /// Returns the partitions that the plan has begun.
    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    /// Records that a queue pair was created.
    pub fn made(&mut self, qp: &QpContext) {
        if Ordinal(qp.ordinal).parts().0.is_some() && self.traffic.of_threads.len() < MAX_QUEUE_PAIRS {
            self.traffic.of_threads.insert(qp.qpn.value(), qp.ordinal);
        }
    }

    /// Forgets a queue pair that was destroyed.
    pub fn forget(&mut self, qp: &QpContext) {
        self.traffic.of_threads.remove(&qp.qpn.value());
        self.traffic.queue_pairs.remove(&qp.ordinal);
        self.incidents.forget(qp.qpn);
    }

    /// Decides what happens to a packet of a queue pair.
    pub fn decide(&mut self, qp: &QpContext, departure: &OutgoingPacket<'_>, witness: Witness<'_>) -> Fate {
        if self.traffic.queue_pairs.len() >= MAX_QUEUE_PAIRS
            && !self.traffic.queue_pairs.contains_key(&qp.ordinal)
        {
            self.traffic.queue_pairs.pop_first();
        }
        let peer = departure.path.flow.destination;
        let parted = self.is_partitioned(departure.path.flow.source, peer);
        let begin = || {
            if self.traffic.began_midway { Traffic::late(departure.connection) } else { Traffic::default() }
        };
        let mut traffic = self.traffic.queue_pairs.remove(&qp.ordinal).unwrap_or_else(begin);
        let of_connection = traffic.of_connection(departure.connection);
        let mut fate = if parted { self.partition_fate() } else { Fate::default() };
        if let Some((key, stream)) = of_connection.key(qp.ordinal, departure)
            && !(parted && is_sent_until_it_arrives(&key, stream))
        {
            let size = Size::of(departure);
            let source_port = departure.path.flow.source_port;
            let case = PacketCase { key: &key, stream, size, peer, source_port };
            let decided = self.apply(&case, &mut of_connection.counts, witness);
            of_connection.decided(&key, stream, departure.psn_count, decided.arrives());
            fate = fate.and(decided);
            self.incidents.belong_to(qp.qpn, fate.halted);
        }
        self.traffic.queue_pairs.insert(qp.ordinal, traffic);
        self.is_lost_entirely(fate)
    }

    /// Decides what happens to a message of connection management; `size` is that of its packet.
    pub fn decide_message(
        &mut self,
        (own, peer): (IpAddr, IpAddr),
        message: &CmMessage,
        size: (u32, u32),
        witness: Witness<'_>,
    ) -> Fate {
        if self.is_partitioned(own, peer) {
            return self.partition_fate();
        }
        let of_threads = &self.traffic.of_threads;
        let ordinal_of = |qpn: Qpn| of_threads.get(&qpn.value()).copied();
        let Some(key) = self.traffic.connections.key(peer, message, ordinal_of) else {
            return self.is_lost_entirely(Fate::default());
        };
        let size = Size { length_bytes: size.0, payload_bytes: size.1 };
        let case =
            PacketCase { key: &key, stream: TrafficKind::Management, size, peer, source_port: ROCE_PORT };
        let mut counts = std::mem::take(&mut self.traffic.management);
        let fate = self.apply(&case, &mut counts, witness);
        self.traffic.management = counts;
        self.traffic.connections.decided(message, fate.arrives());
        self.is_lost_entirely(fate)
    }

    /// Returns the fate of a packet about which no rule is asked: a repetition, a packet that left too early,
    /// a NAK. It is lost if a rule loses every packet. The number of such packets is not reproducible, so
    /// they are not counted and not reported.
    fn is_lost_entirely(&self, fate: Fate) -> Fate {
        if !fate.arrives() {
            return fate;
        }
        let Some(rule) = self.rules.active().find(|armed| loses_all(armed)) else { return fate };
        let applied_notes = || format!("fault \"{}\" loses everything", rule.name.as_str());
        let note = self.notes.as_ref().map_or(0, |notes| notes.store(applied_notes()));
        Fate { note, ..Fate::LOST }
    }

    /// Returns the fate of a packet to a peer that a partition separates.
    pub fn partition_fate(&self) -> Fate {
        let note = self.notes.as_ref().map_or(0, |notes| notes.store("a partition loses it".to_owned()));
        Fate { note, ..Fate::LOST }
    }

    #[doc(hidden)]
    pub fn is_partitioned(&self, own: IpAddr, peer: IpAddr) -> bool {
        self.partitions.any() && self.partitions.part(own, peer, self.clock.now_ns())
    }

    /// Applies all rules to a packet.
    pub fn apply(
        &mut self,
        case: &PacketCase<'_>,
        counts: &mut BTreeMap<(usize, TrafficKind), StreamCount>,
        witness: Witness<'_>,
    ) -> Fate {
        let (mut fate, mut applied_notes) = (Fate::default(), Vec::new());
        let mut happened = Vec::new();
        for armed in self.rules.active() {
            let applied = match &armed.subject {
                PacketAim::Recorded(packets) => packets.get(case.key).cloned(),
                PacketAim::Packets(rule)
                    if armed.has_begun() && rule.matches(case.key, case.peer, case.source_port) =>
                {
                    let fault = &rule.fault;
                    let count = counts.entry((armed.id, case.stream)).or_default();
                    armed.count_match();
                    let more = self.ask(armed, fault, case, count);
                    more.map(|fate| RuleEffect::of(fate, fault, case.key))
                }
                PacketAim::Packets(_)
                | PacketAim::AfterCall(_)
                | PacketAim::AfterTime(..)
                | PacketAim::AtCalls(_) => None,
            };
            let Some(RuleEffect { fate: more, partition_ns, incident, private_data, noted }) = applied else {
                continue;
            };
            if more.rejected.is_some() && fate.rejected.is_none() {
                self.rejection = private_data.as_deref().copied().unwrap_or_default();
            }
            fate = fate.and(more);
            happened.extend(incident);
            armed.apply();
            if let Some(for_ns) = partition_ns {
                self.part(armed, case.peer, for_ns);
            }
            self.triggers.note(Occurrence::Rule(&armed.name));
            let (rule, tag, key, peer) = (armed.name.as_str(), self.tag.as_str(), case.key, case.peer);
            let private_data = private_data.as_deref();
            let noted_bytes = noted.then_some(case.size.payload_bytes);
            let fired = Fired {
                rule,
                tag,
                key,
                fate: &more,
                partition_ns,
                incident,
                private_data,
                peer,
                noted_bytes,
            };
            if self.notes.is_some() {
                applied_notes.push(fired.note());
            }
            witness(&fired);
        }
        if let Some(notes) = self.notes.as_ref().filter(|_| !fate.is_ordinary()) {
            fate.note = notes.store(applied_notes.join("; "));
        }
        self.incidents.begin(happened);
        fate
    }

    /// Decides whether a rule applies to a packet that it is about, and what it does.
    pub(crate) fn ask(
        &self,
        armed: &ArmedRule<PacketAim>,
        fault: &Fault,
        case: &PacketCase<'_>,
        count: &mut StreamCount,
    ) -> Option<Fate> {
        let mut random = case.key.draw(self.seed, &armed.name, &self.tag);
        // All three are drawn in the same order whether they are needed or not.
        let [chance, stretch, operand] = [(); 3].map(|()| random.next_u64());
        let below = |drawn: u64, ppm: u32| (u128::from(drawn) * 1_000_000) >> 64 < u128::from(ppm);
        let when = &armed.when;
        count.matched = count.matched.saturating_add(1);
        if let Some(bursts) = when.bursts {
            let ppm = if count.bad { bursts.end_ppm } else { bursts.begin_ppm };
            count.bad ^= below(stretch, ppm);
        }
        let applies = when.steps.is_none_or(|steps| steps.has(count.matched))
            && when.chance_ppm.is_none_or(|ppm| below(chance, ppm))
            && (when.bursts.is_none() || count.bad)
            && when.times.is_none_or(|times| count.applied < times && !is_spent(armed, fault, times));
        let fate = if applies { fault.fate(case.size, operand, &mut count.before) } else { None };
        count.applied = count.applied.saturating_add(u64::from(fate.is_some()));
        fate
    }

    /// Begins a partition from the peers that the rule names, or from the destination of the packet.
    pub(crate) fn part(&self, armed: &ArmedRule<PacketAim>, peer: IpAddr, for_ns: Option<u64>) {
        let until_ns = for_ns.map_or(u64::MAX, |ns| self.clock.now_ns().saturating_add(ns));
        match &armed.subject {
            PacketAim::Packets(rule) if !rule.selector.peer.is_empty() => {
                self.partitions.begin(&rule.selector.peer, until_ns);
            }
            _ => self.partitions.begin(&[peer], until_ns),
        }
    }
}

/// Reports whether a rule loses every packet of the process.
fn loses_all(armed: &ArmedRule<PacketAim>) -> bool {
    let PacketAim::Packets(rule) = &armed.subject else { return false };
    matches!(rule.fault, Fault::Drop)
        && rule.selector.is_of_all()
        && armed.when.is_always()
        && armed.has_begun()
}

/// Reports whether a packet is sent again until it arrives, so that a partition only delays it. Rules are
/// asked about it after the partition, because how often it is sent until then depends on time.
pub(crate) fn is_sent_until_it_arrives(key: &PacketKey, stream: TrafficKind) -> bool {
    !key.service.is_unreliable() && matches!(stream, TrafficKind::Requests | TrafficKind::Answers)
}

impl RuleEffect {
    pub(crate) fn of(fate: Fate, fault: &Fault, key: &PacketKey) -> RuleEffect {
        let none = RuleEffect { fate, partition_ns: None, incident: None, private_data: None, noted: false };
        match fault {
            Fault::Partition { for_ns } => RuleEffect { partition_ns: Some(*for_ns), ..none },
            Fault::Reject { private_data, .. } => {
                RuleEffect { private_data: Some(Box::new(*private_data)), ..none }
            }
            // An unreliable queue pair does not send a lost packet again, so the packet is not held back.
            Fault::Happen(incident) if key.service.is_unreliable() => {
                RuleEffect { fate: Fate::default(), incident: Some(*incident), ..none }
            }
            Fault::Happen(incident) => RuleEffect { incident: Some(*incident), ..none },
            Fault::Note => RuleEffect { noted: true, ..none },
            _ => none,
        }
    }
}

/// Returns the timed incidents of a rule. Those of a time before the device was opened are left out.
pub(crate) fn times_of(armed: &ArmedRule<PacketAim>, now_ns: u64) -> Vec<TimedIncident> {
    let id = armed.id;
    match &armed.subject {
        PacketAim::AfterTime(1.., _) if armed.time_left_ns() == 0 => Vec::new(),
        PacketAim::AfterTime(after_ns, incident) => {
            let at_ns = now_ns.saturating_add(armed.time_left_ns());
            vec![TimedIncident { at_ns, after_ns: *after_ns, incident: *incident, id }]
        }
        PacketAim::AtCalls(calls) => {
            let of_times = calls.iter().filter(|((call, _), _)| call == TIME);
            let due = |((_, after_ns), incident): (&(String, u64), &Incident)| {
                let at_ns = now_ns.saturating_add(*after_ns);
                TimedIncident { at_ns, after_ns: *after_ns, incident: *incident, id }
            };
            of_times.map(due).collect()
        }
        PacketAim::Packets(_) | PacketAim::Recorded(_) | PacketAim::AfterCall(_) => Vec::new(),
    }
}

/// Reports whether a rule with an incident has applied often enough in the process: incidents are counted
/// over all queue pairs.
pub(crate) fn is_spent(armed: &ArmedRule<PacketAim>, fault: &Fault, times: u64) -> bool {
    matches!(fault, Fault::Happen(_)) && armed.applied() >= times
}

impl RuleSubject for PacketAim {
    fn kind(&self) -> &'static str {
        match self {
            PacketAim::Packets(rule) => rule.fault.kind(),
            PacketAim::AfterCall(_) | PacketAim::AfterTime(..) => "event",
            PacketAim::Recorded(_) | PacketAim::AtCalls(_) => FROM_REPORT,
        }
    }
}

impl PacketAim {
    pub(crate) fn new(rule: &Rule, tag: &str) -> Option<PacketAim> {
        Some(match &rule.what {
            What::Packet(packets) => {
                let subject = || match (rule.incident_after_call(), rule.incident_after_time()) {
                    (Some(incident), _) => PacketAim::AfterCall(incident),
                    (_, Some((ns, incident))) => PacketAim::AfterTime(ns, incident),
                    (None, None) => PacketAim::Packets(packets.clone()),
                };
                packets.selector.is_of(tag).then(subject)?
            }
            What::Call(_) | What::Completion(_) | What::CompletionEvent(_) => return None,
            What::Recorded(recording) if !recording.is_of_packets() => {
                let own = recording.calls.iter().filter(|call| call.tag == tag);
                let own = own.filter_map(|one| Some(((one.call.clone(), one.nth), one.fate.incident?)));
                let own: HashMap<_, _> = own.collect();
                (!own.is_empty()).then_some(PacketAim::AtCalls(own))?
            }
            What::Recorded(recording) if !recording.tags.contains(tag) => return None,
            What::Recorded(recording) => PacketAim::Recorded(
                recording
                    .packets
                    .iter()
                    .filter(|packet| packet.tag == tag)
                    .map(|packet| {
                        let Recorded { key, fate, partition_ns, incident, noted, .. } = *packet;
                        let private_data = packet.private_data.clone();
                        (key, RuleEffect { fate, partition_ns, incident, private_data, noted })
                    })
                    .collect(),
            ),
        })
    }
}
