//! The DCQCN of HPCC's simulation, by the rules of its source (`rdma-hw.cc`, `switch-mmu.cc`) and without a
//! line of pumice: senders that pace packets of 1048 bytes into one queue.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::kit::Random;

const LINE: f64 = 100.0;
/// Payload and length of a packet, in bytes.
const PAYLOAD: u64 = 1000;
const LENGTH: u64 = 1048;
const LINK_NS: u64 = 1_000;
/// A packet takes 83.84 ns; times are in hundredths of it here.
const UNITS_IN_NS: u64 = 100;
const SEND: u64 = 8_384;
const US: u64 = 1_000 * UNITS_IN_NS;

/// When a packet is marked.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Marks {
    /// When it leaves the queue, as in that simulation.
    Leaving,
    /// When it joins the queue, as in pumice.
    Joining,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Sends,
    Joins,
    Leaves,
    Cnp,
    Alpha,
    Decreases,
    /// The increase with this number: a decrease begins anew.
    Increases(u64),
}

/// A sender.
struct Flow {
    rate: f64,
    target: f64,
    alpha: f64,
    is_limited: bool,
    alpha_has_cnp: bool,
    rate_has_cnp: bool,
    stage: u32,
    timer: u64,
    left: u64,
    arriving: u64,
}

struct Star {
    flows: Vec<Flow>,
    due: BinaryHeap<Reverse<(u64, u64, usize, Event)>>,
    serial: u64,
    queue: VecDeque<(usize, bool)>,
    is_busy: bool,
    random: Random,
    marks: Marks,
}

impl Star {
    fn plan(&mut self, at: u64, flow: usize, event: Event) {
        self.serial += 1;
        self.due.push(Reverse((at, self.serial, flow, event)));
    }

    fn draws_mark(&mut self) -> bool {
        let bytes = self.queue.len() as f64 * LENGTH as f64;
        let share = if bytes > 1.6e6 { 1.0 } else { 0.2 * (bytes - 4e5) / 1.2e6 };
        share > 0.0 && (self.random.below(1_000_000) as f64) < share * 1e6
    }

    /// A packet leaves the queue, if there is one.
    fn leave(&mut self, now: u64) {
        let Some((flow, mut is_marked)) = self.queue.pop_front() else {
            self.is_busy = false;
            return;
        };
        self.is_busy = true;
        is_marked |= self.marks == Marks::Leaving && self.draws_mark();
        self.flows[flow].arriving -= 1;
        if is_marked {
            // Over the receiver's link, and back over two.
            self.plan(now + SEND + 3 * LINK_NS * UNITS_IN_NS, flow, Event::Cnp);
        }
        self.plan(now + SEND, flow, Event::Leaves);
    }

    fn handle(&mut self, now: u64, number: usize, event: Event) {
        let flow = &mut self.flows[number];
        match event {
            Event::Sends if flow.left == 0 => {}
            Event::Sends => {
                flow.left -= 1;
                let next = now + (SEND as f64 * LINE / flow.rate) as u64;
                self.plan(now + SEND + LINK_NS * UNITS_IN_NS, number, Event::Joins);
                self.plan(next, number, Event::Sends);
            }
            Event::Joins => {
                let is_marked = self.marks == Marks::Joining && self.draws_mark();
                self.queue.push_back((number, is_marked));
                if !self.is_busy {
                    self.leave(now);
                }
            }
            Event::Leaves => self.leave(now),
            Event::Cnp => {
                (flow.alpha_has_cnp, flow.rate_has_cnp) = (flow.is_limited, true);
                if !std::mem::replace(&mut flow.is_limited, true) {
                    self.plan(now + US, number, Event::Alpha);
                    self.plan(now + 4 * US + UNITS_IN_NS, number, Event::Decreases);
                }
            }
            Event::Alpha => {
                let gain = if std::mem::take(&mut flow.alpha_has_cnp) { 1.0 / 256.0 } else { 0.0 };
                flow.alpha = flow.alpha * 255.0 / 256.0 + gain;
                self.plan(now + US, number, Event::Alpha);
            }
            Event::Decreases => {
                if std::mem::take(&mut flow.rate_has_cnp) {
                    let stage = std::mem::take(&mut flow.stage);
                    flow.target = if stage > 0 { flow.rate } else { flow.target };
                    flow.rate = (flow.rate * (1.0 - flow.alpha / 2.0)).max(1.0);
                    flow.timer += 1;
                    let timer = flow.timer;
                    self.plan(now + 300 * US, number, Event::Increases(timer));
                }
                self.plan(now + 4 * US, number, Event::Decreases);
            }
            Event::Increases(timer) if timer != flow.timer => {}
            Event::Increases(timer) => {
                let growth = [0.0, 0.02, 0.2][flow.stage.min(2) as usize];
                flow.target = (flow.target + growth).min(LINE);
                flow.rate = f64::midpoint(flow.rate, flow.target);
                flow.stage += 1;
                self.plan(now + 300 * US, number, Event::Increases(timer));
            }
        }
    }
}

/// Returns the total that flows of so many bytes have, in Gbit/s of payload.
pub(crate) fn total_gbit(flows: usize, bytes: u64, marks: Marks, seed: u64) -> f64 {
    let packets = bytes / PAYLOAD;
    let flow = || Flow {
        rate: LINE,
        target: LINE,
        alpha: 1.0,
        is_limited: false,
        alpha_has_cnp: false,
        rate_has_cnp: false,
        stage: 0,
        timer: 0,
        left: packets,
        arriving: packets,
    };
    let mut star = Star {
        flows: (0..flows).map(|_| flow()).collect(),
        due: BinaryHeap::new(),
        serial: 0,
        queue: VecDeque::new(),
        is_busy: false,
        random: Random::new(seed),
        marks,
    };
    (0..flows).for_each(|number| star.plan(0, number, Event::Sends));
    let mut now = 0;
    while star.flows.iter().any(|flow| flow.arriving > 0)
        && let Some(Reverse((at, _, number, event))) = star.due.pop()
    {
        now = at;
        star.handle(at, number, event);
    }
    flows as f64 * bytes as f64 * 8.0 / (now as f64 / UNITS_IN_NS as f64)
}
