//! A plan at work in a device: asked about each packet, it says what happens to it.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use pumice_ground::clock::Clock;
use pumice_ground::ordinal::Ordinal;
use pumice_transport::event::Departure;
use pumice_transport::host::QpContext;
use pumice_transport::mad::CmMessage;
use pumice_transport::types::Fate;
use pumice_transport::wire::Qpn;

use super::action::{Fault, Size};
use super::armed::{About, Armed, OF_A_REPORT, Origin, Roster, Rules};
use super::calls::TIME;
use super::connections::Connections;
use super::identity::PacketKey;
use super::incident::{Incident, Incidents};
use super::notes::Notes;
use super::partition::Partitions;
use super::plan::{FaultPlan, PacketRule, Recorded, Rule, What};
use super::rejection::RejData;
use super::timed::{Due, Timed};
use super::traffic::{Count, Stream, Traffic};
use super::trigger::Occurrence;
use super::waits::Triggers;

/// Queue pairs that are remembered at a time: more than a device has.
pub(crate) const MAX_QUEUE_PAIRS: usize = 1 << 20;

/// A rule applied to a packet.
#[derive(Debug, Clone, Copy)]
pub struct Fired<'a> {
    /// The name of the rule.
    pub rule: &'a str,
    /// The tag of this process.
    pub tag: &'a str,
    /// The packet.
    pub key: &'a PacketKey,
    /// What happens to it by this rule.
    pub fate: &'a Fate,
    /// For how long nothing passes from here on, if that happens: `Some(None)` is for ever.
    pub partition_ns: Option<Option<u64>>,
    /// What happens to the device.
    pub incident: Option<Incident>,
    /// What the peer says as it rejects a request for a connection.
    pub private_data: Option<&'a RejData>,
    /// The address that the packet is for.
    pub peer: IpAddr,
    /// Its payload, in bytes, if the rule only notes it.
    pub noted_bytes: Option<u32>,
}

/// Is told of each rule that applies.
pub(crate) type Witness<'a> = &'a mut dyn FnMut(&Fired<'_>);

/// What a rule of this process's is about.
pub(crate) enum Aim {
    Packets(Box<PacketRule>),
    Recorded(HashMap<PacketKey, Effect>),
    /// What happens to the device when the call has returned that the rule waits for.
    AfterCall(Incident),
    /// What happens to the device when the time has passed that the rule waits for, in ns.
    AfterTime(u64, Incident),
    /// What happens to the device when a call has returned, by its name and ordinal; or at a time, by
    /// [`TIME`] and ns.
    AtCalls(HashMap<(String, u64), Incident>),
}

/// What a rule does when it applies.
#[derive(Clone)]
pub(crate) struct Effect {
    fate: Fate,
    partition_ns: Option<Option<u64>>,
    incident: Option<Incident>,
    private_data: Option<Box<RejData>>,
    noted: bool,
}

/// A plan at work.
pub struct Faults {
    pub(super) seed: u64,
    pub(super) tag: String,
    /// The name of the device, where it is known.
    pub(super) device: String,
    pub(super) rules: Rules<Aim>,
    pub(super) triggers: Arc<Triggers>,
    /// Rules of any kind that there were so far, those that concern other processes too.
    rules_made: usize,
    queue_pairs: BTreeMap<u32, Traffic>,
    /// Packets left before a rule was there: what is seen first of a queue pair may be any packet of it.
    is_late: bool,
    connections: Connections,
    /// The ordinals of queue pairs that another thread than the first has made.
    of_threads: BTreeMap<u32, u32>,
    /// What rules have counted of connection management.
    management: BTreeMap<(usize, Stream), Count>,
    partitions: Partitions,
    /// What is to happen to the device.
    pub(super) incidents: Incidents,
    /// What is to happen to it when a time has come.
    pub(super) timed: Timed,
    /// What the peer says with the rejection that was decided last.
    rejection: RejData,
    /// What captures say about packets, if there is one.
    notes: Option<Notes>,
    clock: Clock,
}

/// A packet about which the rules are asked.
pub struct Case<'a> {
    key: &'a PacketKey,
    stream: Stream,
    size: Size,
    peer: IpAddr,
}

impl Faults {
    /// The part of a plan that concerns packets of a process of this tag.
    pub fn new(plan: &FaultPlan, tag: &str, triggers: &Arc<Triggers>, clock: Clock) -> Faults {
        let rules = Rules::of_plan(plan, triggers, |rule| Aim::new(rule, tag));
        let mut timed = Timed::default();
        rules.all().flat_map(|armed| times_of(armed, clock.now_ns())).for_each(|due| timed.add(due));
        Faults {
            seed: plan.seed(),
            tag: tag.to_owned(),
            device: String::new(),
            rules,
            timed,
            triggers: Arc::clone(triggers),
            rules_made: plan.rules().len(),
            queue_pairs: BTreeMap::new(),
            is_late: false,
            connections: Connections::default(),
            of_threads: BTreeMap::new(),
            management: BTreeMap::new(),
            partitions: Partitions::default(),
            incidents: Incidents::default(),
            rejection: RejData::NONE,
            notes: None,
            clock,
        }
    }

    /// Takes a rule while the program runs, if it concerns this process: true.
    pub(crate) fn arm(&mut self, rule: &Rule, origin: Origin<'_>) -> bool {
        let Some(aim) = Aim::new(rule, &self.tag) else { return false };
        if self.rules.is_empty() {
            // Nothing was asked about for a while: where traffic stands has to be found out anew.
            self.queue_pairs.clear();
            self.is_late = true;
        }
        self.rules.push(rule, aim, origin, &self.triggers);
        if let Some(armed) = self.rules.all().last() {
            times_of(armed, self.clock.now_ns()).into_iter().for_each(|due| self.timed.add(due));
        }
        true
    }

    /// What the next rule of any kind counts by.
    pub fn next_id(&mut self) -> usize {
        self.rules_made += 1;
        self.rules_made - 1
    }

    /// The rules, for what is done to rules of every kind.
    pub fn roster(&mut self) -> &mut dyn Roster {
        &mut self.rules
    }

    /// Whether there are rules: without them there is nothing to ask.
    pub fn is_active(&self) -> bool {
        !self.rules.is_empty()
    }

    /// From now on fates have notes, for captures.
    pub fn keep_notes(&mut self) {
        self.notes.get_or_insert_default();
    }

    /// The notes of fates, if there are any.
    pub fn notes(&self) -> Option<&Notes> {
        self.notes.as_ref()
    }

    /// The names of the rules.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.names()
    }

    /// Whether something is to happen to the device now.
    #[inline]
    pub fn has_incidents(&self) -> bool {
        self.incidents.is_due()
    }

    /// What is to happen to the device now, and at which queue pair.
    pub fn take_incidents(&mut self) -> Vec<(Qpn, Incident)> {
        self.incidents.take()
    }

    /// A queue pair stands still before a packet.
    pub fn halted(&mut self, qp: &QpContext) {
        self.incidents.halted(qp.qpn);
    }

    /// What the peer says with the rejection that was decided last.
    pub fn rejection(&self) -> RejData {
        self.rejection
    }

    /// The seed of the plan.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// What the plan calls the process.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// The clock of the plan, which is the device's.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The time of the plan's clock.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Something passes a port again, after [`Faults::cut_off`].
    pub fn rejoin(&self, port_num: u8) {
        self.partitions.rejoin(port_num);
    }

    /// Nothing passes a port with these addresses until then; without any: the only port.
    pub fn cut_off(&self, port_num: u8, own: Vec<IpAddr>, until_ns: u64) {
        self.partitions.cut_off(port_num, own, until_ns);
    }

    /// The partitions that the plan has begun.
    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    /// A queue pair was made.
    pub fn made(&mut self, qp: &QpContext) {
        if Ordinal(qp.ordinal).parts().0.is_some() && self.of_threads.len() < MAX_QUEUE_PAIRS {
            self.of_threads.insert(qp.qpn.value(), qp.ordinal);
        }
    }

    /// A queue pair was destroyed.
    pub fn forget(&mut self, qp: &QpContext) {
        self.of_threads.remove(&qp.qpn.value());
        self.queue_pairs.remove(&qp.ordinal);
        self.incidents.forget(qp.qpn);
    }

    /// What happens to a packet of a queue pair.
    pub fn decide(&mut self, qp: &QpContext, departure: &Departure<'_>, witness: Witness<'_>) -> Fate {
        if self.queue_pairs.len() >= MAX_QUEUE_PAIRS && !self.queue_pairs.contains_key(&qp.ordinal) {
            self.queue_pairs.pop_first();
        }
        let peer = departure.path.flow.destination;
        let parted = self.is_parted(departure.path.flow.source, peer);
        let begin = || if self.is_late { Traffic::late(departure.connection) } else { Traffic::default() };
        let mut traffic = self.queue_pairs.remove(&qp.ordinal).unwrap_or_else(begin);
        let of_connection = traffic.of_connection(departure.connection);
        let mut fate = if parted { self.parted_fate() } else { Fate::default() };
        if let Some((key, stream)) = of_connection.key(qp.ordinal, departure)
            && !(parted && is_sent_until_it_arrives(&key, stream))
        {
            let size = Size::of(departure);
            let case = Case { key: &key, stream, size, peer };
            let decided = self.apply(&case, &mut of_connection.counts, witness);
            of_connection.decided(&key, stream, departure.psn_count, decided.arrives());
            fate = fate.and(decided);
            self.incidents.belong_to(qp.qpn, fate.halted);
        }
        self.queue_pairs.insert(qp.ordinal, traffic);
        fate
    }

    /// What happens to a message of connection management, whose packet is so long.
    pub fn decide_message(
        &mut self,
        (own, peer): (IpAddr, IpAddr),
        message: &CmMessage,
        size: (u32, u32),
        witness: Witness<'_>,
    ) -> Fate {
        if self.is_parted(own, peer) {
            return self.parted_fate();
        }
        let of_threads = &self.of_threads;
        let ordinal_of = |qpn: Qpn| of_threads.get(&qpn.value()).copied();
        let Some(key) = self.connections.key(peer, message, ordinal_of) else { return Fate::default() };
        let size = Size { length_bytes: size.0, payload_bytes: size.1 };
        let case = Case { key: &key, stream: Stream::Management, size, peer };
        let mut counts = std::mem::take(&mut self.management);
        let fate = self.apply(&case, &mut counts, witness);
        self.management = counts;
        self.connections.decided(message, fate.arrives());
        fate
    }

    /// The fate of what is sent to a peer that nothing passes to.
    pub fn parted_fate(&self) -> Fate {
        let note = self.notes.as_ref().map_or(0, |notes| notes.keep("a partition loses it".to_owned()));
        Fate { note, ..Fate::LOST }
    }

    #[doc(hidden)]
    pub fn is_parted(&self, own: IpAddr, peer: IpAddr) -> bool {
        self.partitions.any() && self.partitions.part(own, peer, self.clock.now_ns())
    }

    /// All rules together.
    pub fn apply(
        &mut self,
        case: &Case<'_>,
        counts: &mut BTreeMap<(usize, Stream), Count>,
        witness: Witness<'_>,
    ) -> Fate {
        let (mut fate, mut said) = (Fate::default(), Vec::new());
        let mut happened = Vec::new();
        for armed in self.rules.awake() {
            let applied = match &armed.aim {
                Aim::Recorded(packets) => packets.get(case.key).cloned(),
                Aim::Packets(rule) if armed.has_begun() && rule.matches(case.key, case.peer) => {
                    let fault = &rule.fault;
                    let count = counts.entry((armed.id, case.stream)).or_default();
                    armed.meet();
                    let more = self.ask(armed, fault, case, count);
                    more.map(|fate| Effect::of(fate, fault, case.key))
                }
                Aim::Packets(_) | Aim::AfterCall(_) | Aim::AfterTime(..) | Aim::AtCalls(_) => None,
            };
            let Some(Effect { fate: more, partition_ns, incident, private_data, noted }) = applied else {
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
                said.push(fired.note());
            }
            witness(&fired);
        }
        if let Some(notes) = self.notes.as_ref().filter(|_| !fate.is_ordinary()) {
            fate.note = notes.keep(said.join("; "));
        }
        self.incidents.begin(happened);
        fate
    }

    /// Whether a rule applies to a packet that it is about, and how.
    pub(crate) fn ask(
        &self,
        armed: &Armed<Aim>,
        fault: &Fault,
        case: &Case<'_>,
        count: &mut Count,
    ) -> Option<Fate> {
        let mut random = case.key.draw(self.seed, &armed.name, &self.tag);
        // Drawn in the same order whether needed or not.
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

    /// A partition begins: from the peers that the rule names, or from the one that the packet was for.
    pub(crate) fn part(&self, armed: &Armed<Aim>, peer: IpAddr, for_ns: Option<u64>) {
        let until_ns = for_ns.map_or(u64::MAX, |ns| self.clock.now_ns().saturating_add(ns));
        match &armed.aim {
            Aim::Packets(rule) if !rule.selector.peer.is_empty() => {
                self.partitions.begin(&rule.selector.peer, until_ns);
            }
            _ => self.partitions.begin(&[peer], until_ns),
        }
    }
}

/// Packets that a partition only holds up: asking about them waits until it is over, because how often they
/// are sent until then depends on time.
pub(crate) fn is_sent_until_it_arrives(key: &PacketKey, stream: Stream) -> bool {
    !key.service.is_unreliable() && matches!(stream, Stream::Requests | Stream::Answers)
}

impl Effect {
    pub(crate) fn of(fate: Fate, fault: &Fault, key: &PacketKey) -> Effect {
        let none = Effect { fate, partition_ns: None, incident: None, private_data: None, noted: false };
        match fault {
            Fault::Partition { for_ns } => Effect { partition_ns: Some(*for_ns), ..none },
            Fault::Reject { private_data, .. } => {
                Effect { private_data: Some(Box::new(*private_data)), ..none }
            }
            // No queue pair could send it again.
            Fault::Happen(incident) if key.service.is_unreliable() => {
                Effect { fate: Fate::default(), incident: Some(*incident), ..none }
            }
            Fault::Happen(incident) => Effect { incident: Some(*incident), ..none },
            Fault::Note => Effect { noted: true, ..none },
            _ => none,
        }
    }
}

/// What a rule brings at a time. What was to come before the device was opened does not come.
pub(crate) fn times_of(armed: &Armed<Aim>, now_ns: u64) -> Vec<Due> {
    let id = armed.id;
    match &armed.aim {
        Aim::AfterTime(1.., _) if armed.time_left_ns() == 0 => Vec::new(),
        Aim::AfterTime(after_ns, incident) => {
            let at_ns = now_ns.saturating_add(armed.time_left_ns());
            vec![Due { at_ns, after_ns: *after_ns, incident: *incident, id }]
        }
        Aim::AtCalls(calls) => {
            let of_times = calls.iter().filter(|((call, _), _)| call == TIME);
            let due = |((_, after_ns), incident): (&(String, u64), &Incident)| {
                let at_ns = now_ns.saturating_add(*after_ns);
                Due { at_ns, after_ns: *after_ns, incident: *incident, id }
            };
            of_times.map(due).collect()
        }
        Aim::Packets(_) | Aim::Recorded(_) | Aim::AfterCall(_) => Vec::new(),
    }
}

/// Whether a rule has applied often enough in the process: events are counted over all queue pairs.
pub(crate) fn is_spent(armed: &Armed<Aim>, fault: &Fault, times: u64) -> bool {
    matches!(fault, Fault::Happen(_)) && armed.applied() >= times
}

impl About for Aim {
    fn kind(&self) -> &'static str {
        match self {
            Aim::Packets(rule) => rule.fault.kind(),
            Aim::AfterCall(_) | Aim::AfterTime(..) => "event",
            Aim::Recorded(_) | Aim::AtCalls(_) => OF_A_REPORT,
        }
    }
}

impl Aim {
    pub(crate) fn new(rule: &Rule, tag: &str) -> Option<Aim> {
        Some(match &rule.what {
            What::Packet(packets) => {
                let aim = || match (rule.incident_after_call(), rule.incident_after_time()) {
                    (Some(incident), _) => Aim::AfterCall(incident),
                    (_, Some((ns, incident))) => Aim::AfterTime(ns, incident),
                    (None, None) => Aim::Packets(packets.clone()),
                };
                packets.selector.is_of(tag).then(aim)?
            }
            What::Call(_) | What::Completion(_) | What::CompletionEvent(_) => return None,
            What::Recorded(recording) if !recording.is_of_packets() => {
                let own = recording.calls.iter().filter(|call| call.tag == tag);
                let own = own.filter_map(|one| Some(((one.call.clone(), one.nth), one.fate.incident?)));
                let own: HashMap<_, _> = own.collect();
                (!own.is_empty()).then_some(Aim::AtCalls(own))?
            }
            What::Recorded(recording) if !recording.tags.contains(tag) => return None,
            What::Recorded(recording) => Aim::Recorded(
                recording
                    .packets
                    .iter()
                    .filter(|packet| packet.tag == tag)
                    .map(|packet| {
                        let Recorded { key, fate, partition_ns, incident, noted, .. } = *packet;
                        let private_data = packet.private_data.clone();
                        (key, Effect { fate, partition_ns, incident, private_data, noted })
                    })
                    .collect(),
            ),
        })
    }
}
