//! Lanes and the general way: the same program, packet by packet, on two pairs of queue pairs. All the time
//! the whole state of the queue pairs, their packets, memory, completions, events and counters are equal.

use std::collections::VecDeque;

use pumice_transport::path::Flow;
use pumice_transport::qp::{Arrival, AttributeMask, LaneSend, Progress, QpAttributes, may_leave_by_lane};
use pumice_transport::types::{
    Access, AtomicOperation, Mtu, QpState, QpType, RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge,
};
use pumice_transport::wire::{Bth, Packet, icrc};

use crate::kit::host::FakeHost;
use crate::kit::rung::{ALL_REMOTE, LIMITS};
use crate::link::{Frame, Random};
use crate::node::{Node, Terms};

/// Number of programs of a run, where [`PROGRAMS`] does not give another one.
const USUAL_PROGRAMS: u64 = 2000;
/// Variable with which a longer run asks for more.
const PROGRAMS: &str = "PUMICE_LANE_PROGRAMS";
const STEPS: u64 = 120;
/// Number of steps after which both ways are compared: a difference stays.
const COMPARED_EVERY: u64 = 10;
const MTU: Mtu = Mtu::Mtu256;
const REGION_BYTES: usize = 1024;
const LOCAL: u32 = 1;
const LOCAL_BASE: u64 = 0x1000_0000;
const SHARED: u32 = 2;
const SHARED_RKEY: u32 = 0x1002;
const SHARED_BASE: u64 = 0x2000_0000;
const INBOX: u32 = 3;
const INBOX_BASE: u64 = 0x3000_0000;
const UNKNOWN_KEY: u32 = 99;

/// Two connected queue pairs and what is under way between them.
struct Ends {
    nodes: [Node; 2],
    /// Packets to each end.
    under_way: [VecDeque<Frame>; 2],
    now_ns: u64,
    uses_lanes: bool,
    /// Number of packets that lanes sent and received, and of requests that they posted.
    by_lane: [u64; 3],
}

impl Ends {
    fn new(terms: &Terms, uses_lanes: bool) -> Ends {
        let mut nodes = [Node::new(0, terms), Node::new(1, terms)];
        for node in &mut nodes {
            let noise = (0..REGION_BYTES).map(|index| index as u8);
            node.host.region(LOCAL, LOCAL_BASE, REGION_BYTES, Access::LOCAL_WRITE).bytes = noise.collect();
            node.host.region(SHARED, SHARED_BASE, REGION_BYTES, ALL_REMOTE);
            node.host.region(INBOX, INBOX_BASE, REGION_BYTES, Access::LOCAL_WRITE);
        }
        Ends { nodes, under_way: Default::default(), now_ns: 1000, uses_lanes, by_lane: [0; 3] }
    }

    /// Sends what can be sent now: requests, then answers.
    fn transmit(&mut self, end: usize) {
        self.send_by_lane(end, None);
        let Ends { nodes, under_way, now_ns, .. } = self;
        let (node, to) = (&mut nodes[end], &mut under_way[1 - end]);
        node.outbox.room = 1000;
        let progress = node.qp.transmit_requests(*now_ns, &mut node.host, &mut node.outbox);
        assert_eq!(progress, Progress::Idle);
        while node.qp.transmit_responses(*now_ns, &mut node.host, &mut node.outbox) != Progress::Idle {}
        to.extend(node.outbox.frames.drain(..));
    }

    /// Posts a request by a lane, or lets the newest one leave by a lane. Returns false if a lane does not do
    /// that.
    fn send_by_lane(&mut self, end: usize, posted: Option<&LaneSend<'_>>) -> bool {
        let Ends { nodes, under_way, now_ns, uses_lanes, by_lane } = self;
        let (Node { qp, host, .. }, to) = (&mut nodes[end], &mut under_way[1 - end]);
        let Some((path, _)) = qp.lane().filter(|_| *uses_lanes) else { return false };
        let (flow, traffic_class) = (path.flow, path.traffic_class);
        let mut room = [0xa5; 512];
        let sent = match posted {
            Some(send) => qp.post_by_lane(*now_ns, send, host, &mut room),
            None => qp.send_by_lane(*now_ns, host, &mut room),
        };
        let Some(batch) = sent else { return false };
        let (request, rest) = room.split_at(batch.request_bytes);
        let packets = [request, &rest[..batch.acknowledge_bytes]];
        for packet in packets.into_iter().filter(|packet| !packet.is_empty()) {
            let mut bytes = packet.to_vec();
            icrc::seal(&flow, 0, &mut bytes);
            to.push_back(Frame { flow, traffic_class, bytes });
            by_lane[0] += 1;
        }
        by_lane[2] += u64::from(posted.is_some());
        true
    }

    /// Gives a packet to its end.
    fn deliver(&mut self, end: usize, frame: &Frame) {
        let Ends { nodes, now_ns, uses_lanes, by_lane, .. } = self;
        let node = &mut nodes[end];
        let Frame { flow, traffic_class, bytes } = frame;
        let arrival = Arrival { flow, traffic_class: *traffic_class, hop_limit: 63 };
        if Bth::parse(bytes).is_none_or(|bth| bth.destination != node.qp.context().qpn) {
            return;
        }
        let is_done = *uses_lanes && node.qp.receive_by_lane(*now_ns, &arrival, bytes, &mut node.host);
        match Packet::parse(bytes) {
            _ if is_done => by_lane[1] += 1,
            Ok(packet) => node.qp.handle_packet(*now_ns, &arrival, &packet, &mut node.host),
            Err(_) => {}
        }
    }

    fn wait(&mut self, ns: u64) {
        self.now_ns += ns;
        let now_ns = self.now_ns;
        self.nodes.iter_mut().for_each(|node| node.timeout(now_ns));
    }

    fn modify(&mut self, end: usize, state: QpState) {
        let node = &mut self.nodes[end];
        let attributes = QpAttributes { qp_state: state as u32, ..QpAttributes::default() };
        let _ = node.qp.modify(&attributes, AttributeMask::STATE, &LIMITS, None, &mut node.host);
    }

    /// Everything that a program or a peer could see, and what it follows from.
    fn state(&self) -> String {
        let packets = self.under_way.iter().flatten().map(|frame| format!("{frame:02x?}\n"));
        let ends = self.nodes.iter().map(|Node { qp, host, .. }| format!("{qp:?}\n{host:?}\n"));
        packets.chain(ends).collect()
    }
}

/// A step of a program.
#[derive(Debug, Clone)]
enum Step {
    /// A request is posted, and perhaps leaves.
    Post {
        end: usize,
        opcode: SendOpcode,
        flags: SendFlags,
        local: Sge,
        remote: RemoteTarget,
        leaves: bool,
    },
    PostReceive {
        end: usize,
        buffer: Sge,
    },
    Transmit {
        end: usize,
    },
    /// The oldest packet to this end arrives, perhaps twice, or changed.
    Arrive {
        end: usize,
        times: usize,
        change: Option<Change>,
    },
    Wait {
        ns: u64,
    },
    Modify {
        end: usize,
        state: QpState,
    },
    Deregister {
        end: usize,
        lkey: u32,
    },
}

/// A change of a packet on its way.
#[derive(Debug, Clone, Copy)]
enum Change {
    Bit { at: usize },
    Length { bytes: usize },
    Marked,
    Port { port: u16 },
    Source,
}

impl Change {
    fn of(random: &mut Random) -> Change {
        match random.below(8) {
            0..4 => Change::Bit { at: random.below(8 * 48) as usize },
            4 => Change::Length { bytes: random.below(64) as usize },
            5 => Change::Marked,
            6 => Change::Port { port: random.below(0x1_0000) as u16 },
            _ => Change::Source,
        }
    }

    fn apply(self, frame: &mut Frame) {
        match self {
            Change::Bit { at } => {
                if let Some(byte) = frame.bytes.get_mut(at / 8) {
                    *byte ^= 0x80 >> (at % 8);
                }
            }
            Change::Length { bytes } => frame.bytes.resize(bytes, 0),
            Change::Marked => frame.traffic_class |= 3,
            Change::Port { port } => frame.flow.source_port = port,
            Change::Source => {
                let Flow { source, destination, .. } = frame.flow;
                (frame.flow.source, frame.flow.destination) = (destination, source);
            }
        }
    }
}

/// The kinds of a program: how rough it is.
#[derive(Debug, Clone, Copy)]
struct Manner {
    /// Cases in a thousand in which a packet is lost, doubled or changed.
    rough: u64,
    /// Cases in a thousand of mistakes in requests, and of calls that are not about messages.
    wrong: u64,
}

impl Step {
    fn of(random: &mut Random, manner: Manner) -> Step {
        let end = random.below(2) as usize;
        match random.below(1000) {
            0..250 => Step::post(random, end, manner),
            250..420 => {
                let short = random.chance(manner.wrong);
                let length = if short { random.below(16) as u32 } else { 600 };
                let lkey = if random.chance(manner.wrong) { UNKNOWN_KEY } else { INBOX };
                Step::PostReceive { end, buffer: Sge { address: INBOX_BASE, length, lkey } }
            }
            420..600 => Step::Transmit { end },
            600..960 => {
                let times = if random.chance(manner.rough) { 2 * random.below(2) as usize } else { 1 };
                let change = random.chance(manner.rough).then(|| Change::of(random));
                Step::Arrive { end, times, change }
            }
            960..980 => Step::Wait { ns: random.below(3_000_000) },
            _ if !random.chance(10 * manner.wrong) => Step::Transmit { end },
            980..994 => {
                let states = [QpState::Sqd, QpState::Rts, QpState::Rts, QpState::Rts, QpState::Err];
                Step::Modify { end, state: random.pick(&states) }
            }
            _ => Step::Deregister { end, lkey: random.pick(&[LOCAL, SHARED, INBOX]) },
        }
    }

    fn post(random: &mut Random, end: usize, manner: Manner) -> Step {
        use SendOpcode::*;
        let usual = [Send, Send, SendWithImm, RdmaWrite, RdmaWrite, RdmaWriteWithImm];
        let all = [RdmaRead, FetchAdd, SendWithInvalidate, AtomicWrite, LocalInvalidate, Send];
        let kinds = if random.chance(150) { &all } else { &usual };
        let opcode = random.pick(kinds);
        let mut length = random.pick(&[0, 1, 3, 4, 8, 8, 8, 17, 48, 64, 255, 256, 257, 513]);
        if matches!(opcode, FetchAdd | AtomicWrite) {
            length = 8;
        }
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, random.chance(700));
        flags.set(SendFlags::SOLICITED, random.chance(200));
        flags.set(SendFlags::FENCE, random.chance(50));
        flags.set(SendFlags::INLINE, length <= 64 && opcode.info().data.is_sent() && random.chance(500));
        let mut local = Sge { address: LOCAL_BASE + random.below(64), length, lkey: LOCAL };
        let mut remote = RemoteTarget { address: SHARED_BASE + 8 * random.below(32), rkey: SHARED_RKEY };
        if random.chance(manner.wrong) {
            local.lkey = UNKNOWN_KEY;
        }
        if random.chance(manner.wrong) {
            remote.rkey = UNKNOWN_KEY;
        }
        if random.chance(manner.wrong) {
            remote.address = SHARED_BASE + REGION_BYTES as u64 - 4;
        }
        Step::Post { end, opcode, flags, local, remote, leaves: random.chance(800) }
    }

    fn perform(&self, number: u64, ends: &mut Ends) {
        match *self {
            Step::Post { end, opcode, flags, local, remote, leaves } => {
                let data = [number as u8; 64];
                let inline_data = data.get(..local.length as usize).unwrap_or_default();
                let sges = [local];
                let request = SendRequest {
                    flags,
                    sges: &sges,
                    inline_data: if flags.contains(SendFlags::INLINE) { inline_data } else { &[] },
                    imm_data: (number as u32).to_be_bytes(),
                    invalidate_rkey: if may_leave_by_lane(opcode) { 0 } else { SHARED_RKEY },
                    remote,
                    atomic: Some(AtomicOperation::FetchAdd { add: number }),
                    ..SendRequest::new(number, opcode)
                };
                let lane = LaneSend::of(&request).filter(|_| leaves);
                if !lane.is_some_and(|send| ends.send_by_lane(end, Some(&send))) {
                    let Node { qp, host, .. } = &mut ends.nodes[end];
                    let _ = qp.post_send(&request, host);
                }
                if leaves {
                    ends.transmit(end);
                }
            }
            Step::PostReceive { end, buffer } => {
                let Node { qp, host, .. } = &mut ends.nodes[end];
                host.post_recv(number, buffer.address, buffer.length, buffer.lkey);
                qp.flush_posted_receives(host);
            }
            Step::Transmit { end } => ends.transmit(end),
            Step::Arrive { end, times, change } => {
                let Some(mut frame) = ends.under_way[end].pop_front() else { return };
                if let Some(change) = change {
                    change.apply(&mut frame);
                }
                (0..times).for_each(|_| ends.deliver(end, &frame));
            }
            Step::Wait { ns } => ends.wait(ns),
            Step::Modify { end, state } => ends.modify(end, state),
            Step::Deregister { end, lkey } => forget(&mut ends.nodes[end].host, lkey),
        }
    }
}

fn forget(host: &mut FakeHost, lkey: u32) {
    host.memory.deregister(lkey);
}

/// Runs the program of a seed both ways, and returns how many packets lanes sent and received, and how many
/// requests they posted.
fn run(seed: u64, manner: Manner) -> [u64; 3] {
    let mut random = Random(seed);
    let terms = Terms {
        qp_type: QpType::Rc,
        mtu: MTU,
        psn: random.pick(&[7, 0xff_ffe0]),
        window_limit_packets: random.pick(&[4, 64]),
        read_limit_packets: 16,
        rd_atomic: 4,
    };
    let mut both = [Ends::new(&terms, false), Ends::new(&terms, true)];
    let mut steps = Vec::new();
    for number in 0..STEPS {
        let step = Step::of(&mut random, manner);
        both.iter_mut().for_each(|ends| step.perform(number, ends));
        steps.push(step);
        if number % COMPARED_EVERY != COMPARED_EVERY - 1 {
            continue;
        }
        let [general, lanes] = both.each_ref().map(Ends::state);
        if let Some(at) = general.bytes().zip(lanes.bytes()).position(|(one, other)| one != other) {
            let around =
                |text: &str| text.get(at.saturating_sub(120)..text.len().min(at + 80)).map(str::to_owned);
            let differ = [around(&general), around(&lanes)];
            panic!("seed {seed}, {manner:?}, step {number}:\n{steps:#?}\n{differ:#?}");
        }
        assert_eq!(general.len(), lanes.len(), "seed {seed}, {manner:?}, step {number}");
    }
    both[1].by_lane
}

fn programs() -> u64 {
    std::env::var(PROGRAMS).ok().and_then(|count| count.parse().ok()).unwrap_or(USUAL_PROGRAMS)
}

#[test]
fn a_program_by_lanes_is_the_program_by_the_general_way() {
    let manners = [
        Manner { rough: 0, wrong: 0 },
        Manner { rough: 30, wrong: 0 },
        Manner { rough: 0, wrong: 10 },
        Manner { rough: 60, wrong: 10 },
    ];
    let mut carried = [0; 3];
    for (seed, manner) in (0..programs()).zip(manners.into_iter().cycle()) {
        let [sent, received, posted] = run(seed, manner);
        carried = [carried[0] + sent, carried[1] + received, carried[2] + posted];
    }
    // Most packets take lanes, else the comparison says nothing.
    assert!(carried.iter().all(|packets| *packets > 5 * programs()), "{carried:?}");
}
