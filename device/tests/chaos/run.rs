//! One seed: make the scenario, run it, judge it, take it down.

use pumice_device::faults::WirePlan;
use pumice_device::hca::{QpInit, SrqSetup};
use pumice_device::platform::table::Handle;
use pumice_device::world::World;
use pumice_transport::host::Counter;
use pumice_transport::types::*;

use crate::flow::{Direction, Endpoint, RECV, SHARED};
use crate::image::Image;
use crate::kit::{self, Node, Random, address_vector};
use crate::plan::{self, Ends};
use crate::scenario::{Fate, Medium, Pair, Scenario};

const SRQ_DEPTH: u32 = 8;
/// Longest virtual time between healing and the end: seven RNR waits, timers and queues fit well.
const LIVENESS_NS: u64 = 60_000_000_000;

/// What happened, for the report.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub messages: u64,
    pub failed_as_specified: u64,
    pub packets: u64,
    pub lost: u64,
    pub retransmitted: u64,
    pub rnr_naks: u64,
    pub timeouts: u64,
    /// Times that a sender had to wait for room.
    pub back_pressured: u64,
    pub virtual_ms: u64,
    /// Of the fabric; not summed.
    pub digest: u64,
}

impl Outcome {
    pub fn add(&mut self, other: &Outcome) {
        self.messages += other.messages;
        self.failed_as_specified += other.failed_as_specified;
        self.packets += other.packets;
        self.lost += other.lost;
        self.retransmitted += other.retransmitted;
        self.rnr_naks += other.rnr_naks;
        self.timeouts += other.timeouts;
        self.back_pressured += other.back_pressured;
        self.virtual_ms += other.virtual_ms;
        self.digest ^= other.digest;
    }
}

/// A node's shared receive queue and the buffers that go through it, each once.
struct SharedQueue {
    handle: Handle,
    buffers: Vec<(usize, u32)>,
    posted: usize,
    used: Vec<bool>,
}

struct Chaos {
    world: World,
    nodes: Vec<Node>,
    images: Vec<Image>,
    shared: Vec<SharedQueue>,
    directions: Vec<Direction>,
    address_handles: Vec<(usize, Handle)>,
    random: Random,
}

pub fn run(medium: Medium, seed: u64, verbose: bool) -> Outcome {
    let mut random = Random::new(seed);
    let scenario = Scenario::new(medium, seed, &mut random);
    if verbose {
        eprintln!("{scenario:#?}");
    }
    let mut chaos = Chaos::new(&scenario, random);
    chaos.run(&scenario);
    let outcome = chaos.judge(&scenario);
    chaos.take_down();
    outcome
}

impl Chaos {
    fn new(scenario: &Scenario, mut random: Random) -> Chaos {
        let mut world = World::new(scenario.fabric.clone());
        let mut images: Vec<Image> = (0..scenario.node_count).map(|_| Image::default()).collect();
        let shared_words: Vec<usize> =
            images.iter_mut().map(|image| image.area(&random.next().to_ne_bytes())).collect();
        let mut plans = Vec::new();
        for pair in &scenario.pairs {
            for side in 0..2 {
                let (from, to) = (pair.nodes[side], pair.nodes[1 - side]);
                let shared_word = shared_words[to];
                let ends = Ends { from, to, qp_type: pair.qp_type, mtu: pair.numbers.mtu, shared_word };
                let certain = pair.qp_type == QpType::Rc && pair.fate == Fate::Completes;
                let depth = pair.send_depth[side];
                let works = plan::plan(ends, pair.works[side], depth, certain, &mut images, &mut random);
                let nowhere = Endpoint { node: 0, qpn: pumice_transport::wire::Qpn::new(0) };
                let mut direction = Direction::new(plans.len(), pair.qp_type, pair.fate, [nowhere; 2], works);
                direction.uses_srq = pair.uses_srq[1 - side];
                direction.signal_all = pair.signal_all;
                if !direction.uses_srq {
                    direction.plan_buffers(&mut images[to], &mut random);
                }
                if direction.consuming.is_empty() && direction.fate == Fate::Starved {
                    direction.fate = Fate::Completes;
                }
                plans.push(direction);
            }
        }
        let shared_buffers: Vec<Vec<(usize, u32)>> = (0..scenario.node_count)
            .map(|node| plan_shared(node, scenario, &plans, &mut images[node]))
            .collect();
        let mut nodes = Vec::new();
        let mut shared = Vec::new();
        for (index, buffers) in shared_buffers.into_iter().enumerate() {
            let bytes = images[index].size();
            let depth = 4096 + buffers.len() as u32;
            let node = Node::new(&mut world, &format!("10.0.0.{}", index + 1), bytes, depth);
            images[index].load(&node.memory);
            let setup =
                SrqSetup { pd: node.pd, max_wr: SRQ_DEPTH, max_sge: 1, cookie: 0, xrc: None, tags: None };
            let handle = node.hca.create_srq(&setup).unwrap();
            let used = vec![false; buffers.len()];
            shared.push(SharedQueue { handle, buffers, posted: 0, used });
            nodes.push(node);
        }
        let mut chaos =
            Chaos { world, nodes, images, shared, directions: plans, address_handles: Vec::new(), random };
        for (index, pair) in scenario.pairs.iter().enumerate() {
            chaos.connect(index, pair);
        }
        chaos
    }

    fn create(&self, pair: &Pair, side: usize) -> Endpoint {
        let node = pair.nodes[side];
        let mut init = self.nodes[node].qp_init(pair.qp_type);
        init.capacity.max_send_wr = pair.send_depth[side];
        init.capacity.max_recv_wr = pair.recv_depth[side];
        init.signal_all = pair.signal_all;
        if pair.uses_srq[side] {
            init = QpInit { srq: Some(self.shared[node].handle), ..init };
            init.capacity.max_recv_wr = 0;
        }
        Endpoint { node, qpn: self.nodes[node].hca.create_qp(&init).unwrap().0 }
    }

    fn connect(&mut self, index: usize, pair: &Pair) {
        let ends = [self.create(pair, 0), self.create(pair, 1)];
        let [one, other] = ends;
        for side in 0..2 {
            let direction = &mut self.directions[2 * index + side];
            direction.from = ends[side];
            direction.to = ends[1 - side];
        }
        let (a, b) = (&self.nodes[one.node], &self.nodes[other.node]);
        if pair.qp_type != QpType::Ud {
            kit::connect(a, one.qpn, b, other.qpn, pair.qp_type == QpType::Rc, pair.numbers);
            return;
        }
        for (side, end) in ends.into_iter().enumerate() {
            let node = &self.nodes[end.node];
            node.to_rts_datagram(end.qpn, pair.numbers.psn_here);
            let peer = ends[1 - side];
            let vector = address_vector(self.nodes[peer.node].ip);
            let (handle, path) = node.hca.create_ah(node.pd, &vector).unwrap();
            self.address_handles.push((end.node, handle));
            let destination = UdDestination { path, qpn: peer.qpn, qkey: 0x1111_1111 };
            self.directions[2 * index + side].ud = Some(destination);
        }
    }

    fn run(&mut self, scenario: &Scenario) {
        let cut: Vec<[usize; 2]> =
            scenario.pairs.iter().filter(|pair| pair.fate == Fate::Cut).map(|pair| pair.nodes).collect();
        let mut cut_at_ns = (!cut.is_empty()).then(|| self.random.below(scenario.heal_at_ns));
        let mut partition_ends_ns = None;
        let mut healed = false;
        for direction in &mut self.directions {
            if direction.fate == Fate::Starved {
                direction.post_receives(&self.nodes, usize::MAX);
            }
        }
        while !self.directions.iter().all(Direction::is_done) {
            for _ in 0..=self.random.below(30) {
                // While only timers run, one step can be long: partitions end in time.
                let due = partition_ends_ns.is_some_and(|end_ns| end_ns <= self.world.now_ns());
                if due || !self.world.step() {
                    break;
                }
            }
            self.act(healed);
            let now_ns = self.world.now_ns();
            if cut_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
                cut_at_ns = None;
                self.end(scenario, cut[0]);
            }
            if partition_ends_ns.is_some_and(|end_ns| end_ns <= now_ns) {
                partition_ends_ns = None;
                self.heal(scenario, cut_at_ns.is_none(), &cut);
            }
            if !healed && scenario.partitions && partition_ends_ns.is_none() && self.random.percent(2) {
                let count = scenario.node_count as u64;
                let nodes = [0; 2].map(|_: i32| self.random.below(count) as usize);
                self.part(scenario, nodes);
                partition_ends_ns = Some(now_ns + self.random.below(15_000_000));
            }
            if !healed && now_ns >= scenario.heal_at_ns {
                healed = true;
                partition_ends_ns = None;
                self.world.fabric().play(&WirePlan::new());
                self.heal(scenario, cut_at_ns.is_none(), &cut);
            }
            assert!(now_ns < scenario.heal_at_ns + LIVENESS_NS, "stuck:\n{}", self.status());
        }
        if scenario.medium == Medium::Rings {
            self.resume_all();
        }
    }

    fn status(&self) -> String {
        let lines: Vec<String> =
            self.directions.iter().filter(|one| !one.is_done()).map(Direction::status).collect();
        lines.join("\n")
    }

    /// The end of a path, or of a process.
    fn end(&self, scenario: &Scenario, nodes: [usize; 2]) {
        match scenario.dies {
            Some(dead) => _ = self.world.fabric().kill(self.nodes[dead].ip),
            None => self.cut(nodes),
        }
    }

    /// For a while nothing passes between two nodes, or the first one is stopped.
    fn part(&self, scenario: &Scenario, nodes: [usize; 2]) {
        match scenario.medium {
            Medium::Network => self.cut(nodes),
            Medium::Rings => _ = self.world.fabric().stop(self.nodes[nodes[0]].ip),
        }
    }

    fn cut(&self, nodes: [usize; 2]) {
        let [one, other] = nodes.map(|node| self.nodes[node].ip);
        self.world.fabric().cut(one, other);
    }

    fn resume_all(&self) {
        for node in &self.nodes {
            self.world.fabric().resume(node.ip);
        }
    }

    fn heal(&self, scenario: &Scenario, cut_for_good: bool, cut: &[[usize; 2]]) {
        if scenario.medium == Medium::Rings {
            return self.resume_all();
        }
        self.world.fabric().heal_all();
        if cut_for_good && let Some(&nodes) = cut.first() {
            self.cut(nodes);
        }
    }

    /// The applications do something: post, poll.
    fn act(&mut self, eager: bool) {
        for index in 0..self.directions.len() {
            if eager || self.random.percent(50) {
                let count = self.random.below(5) as usize;
                self.directions[index].post_receives(&self.nodes, count);
            }
            if eager || self.random.percent(60) {
                let count = self.random.below(8) as usize;
                self.directions[index].post_sends(&self.nodes, count);
            }
        }
        for node in 0..self.nodes.len() {
            if eager || self.random.percent(50) {
                self.post_shared(node);
            }
            if eager || self.random.percent(80) {
                self.poll(node);
            }
        }
    }

    fn post_shared(&mut self, node: usize) {
        let shared = &mut self.shared[node];
        for _ in 0..self.random.below(5) {
            let Some(&(offset, length)) = shared.buffers.get(shared.posted) else { return };
            let owner = &self.nodes[node];
            let wr_id = RECV | SHARED | shared.posted as u64;
            let request = RecvRequest { wr_id, sges: &[owner.sge(offset, length)] };
            match owner.hca.post_srq_recv(shared.handle, &request) {
                Ok(()) => shared.posted += 1,
                Err(error) => {
                    assert_eq!(error.errno(), libc::ENOMEM, "{error}");
                    return;
                }
            }
        }
    }

    fn poll(&mut self, node: usize) {
        for wc in self.nodes[node].drain() {
            if wc.wr_id & RECV == 0 {
                let direction = &mut self.directions[(wc.wr_id >> 16) as usize];
                assert_eq!(direction.from.node, node);
                direction.sent(&wc);
            } else if wc.wr_id & SHARED == 0 {
                let direction = &mut self.directions[((wc.wr_id ^ RECV) >> 16) as usize];
                assert_eq!(direction.to.node, node);
                direction.received_own(&wc, &self.nodes[node], &mut self.images[node]);
            } else {
                let at = (wc.wr_id ^ RECV ^ SHARED) as usize;
                let shared = &mut self.shared[node];
                assert!(at < shared.posted && !shared.used[at], "{wc:?} was not posted or is done");
                shared.used[at] = true;
                let direction = self
                    .directions
                    .iter_mut()
                    .find(|one| one.to.node == node && one.to.qpn.value() == wc.qp_num)
                    .expect("the completion is of a queue pair of this node");
                assert!(direction.uses_srq);
                let buffer = shared.buffers[at];
                direction.receive(&wc, buffer, &self.nodes[node], &mut self.images[node]);
            }
        }
    }

    /// Everything is done: nothing may happen any more, and memory must be as foreseen.
    fn judge(&mut self, scenario: &Scenario) -> Outcome {
        for _ in 0..200_000 {
            if !self.world.step() {
                break;
            }
        }
        assert!(!self.world.step(), "timers or packets remain for ever");
        let mut outcome = Outcome::default();
        for node in &self.nodes {
            assert_eq!(node.hca.deadline_ns(), None);
            outcome.retransmitted += node.counter(Counter::RetransmittedPackets);
            outcome.rnr_naks += node.counter(Counter::RxRnrNak);
            outcome.timeouts += node.counter(Counter::Timeout);
        }
        for node in 0..self.nodes.len() {
            self.poll(node);
            self.judge_events(node);
            if self.directions.iter().any(|one| one.fate != Fate::Completes) {
                // A failed connection may have begun to fill a shared buffer.
                for (at, &(offset, length)) in self.shared[node].buffers.iter().enumerate() {
                    if !self.shared[node].used[at] {
                        self.images[node].loosen(offset, length as usize);
                    }
                }
            }
            self.images[node].check(&self.nodes[node].memory, &format!("node {node}"));
        }
        for direction in &self.directions {
            outcome.messages += direction.works.len() as u64;
            outcome.failed_as_specified += u64::from(direction.failure.is_some());
            if direction.fate == Fate::Starved {
                assert_eq!(direction.failure, Some(WcStatus::RnrRetryExcErr));
            }
            let state = self.nodes[direction.from.node].state(direction.from.qpn);
            let expected = if direction.failure.is_some() { QpState::Err } else { QpState::Rts };
            assert_eq!(state, expected, "{}", direction.status());
        }
        let stats = self.world.fabric().stats();
        if scenario.medium == Medium::Rings {
            let lost = [stats.lost, stats.queue_drops, stats.cut_off, stats.reordered, stats.corrupted];
            assert_eq!(lost, [0; 5], "a ring loses nothing");
            assert!(scenario.dies.is_some() || stats.receive_drops + stats.unrouted == 0, "{stats:?}");
        }
        outcome.back_pressured = stats.back_pressured;
        outcome.packets = stats.sent;
        outcome.lost = stats.lost + stats.queue_drops + stats.receive_drops + stats.cut_off;
        outcome.virtual_ms = self.world.now_ns() / 1_000_000;
        outcome.digest = self.world.fabric().digest();
        outcome
    }

    fn judge_events(&self, node: usize) {
        while let Some(event) = self.nodes[node].hca.async_events().try_event() {
            // Queue pairs that fail while they use an SRQ say so; nothing else is worth an event.
            assert_eq!(event.event, AsyncEventType::QpLastWqeReached, "node {node}: {event:?}");
            event.ack();
        }
    }

    fn take_down(self) {
        let Chaos { nodes, shared, directions, address_handles, .. } = self;
        for direction in &directions {
            nodes[direction.from.node].hca.destroy_qp(direction.from.qpn).unwrap();
        }
        for (node, handle) in address_handles {
            nodes[node].hca.destroy_ah(handle).unwrap();
        }
        for (node, shared) in nodes.iter().zip(shared) {
            assert_eq!(node.hca.queue_pair_count(), 0);
            node.hca.destroy_srq(shared.handle).unwrap();
            node.hca.destroy_cq(node.cq.handle()).unwrap();
            node.hca.dereg_mr(node.region).unwrap();
            // Refused while anything belongs to it.
            node.hca.dealloc_pd(node.pd).unwrap();
        }
    }
}

/// Buffers of a node's SRQ: each holds any message, and there are some to spare.
fn plan_shared(
    node: usize,
    scenario: &Scenario,
    plans: &[Direction],
    image: &mut Image,
) -> Vec<(usize, u32)> {
    let (mut count, mut longest) = (0, 0);
    for (index, pair) in scenario.pairs.iter().enumerate() {
        for side in 0..2 {
            let direction = &plans[2 * index + side];
            if pair.nodes[1 - side] == node && direction.uses_srq {
                count += direction.consuming.len();
                let lengths = direction.consuming.iter().map(|&at| direction.works[at].message.len());
                longest = longest.max(lengths.max().unwrap_or(0));
            }
        }
    }
    // Failing connections may keep one each.
    let spare = if count > 0 { 16 } else { 0 };
    (0..count + spare).map(|_| (image.area(&vec![0x77; longest]), longest as u32)).collect()
}
