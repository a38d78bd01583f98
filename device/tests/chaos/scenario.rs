//! What a seed makes: the network, and when it misbehaves.

use pumice_device::faults::{Fault, WirePlan};
use pumice_device::port::FabricConfig;
use pumice_transport::types::{Mtu, QpType};

use crate::kit::{Connection, Random};

/// What carries packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// A network that loses, doubles, reorders and damages.
    Network,
    /// The rings of one host: packets come late and senders wait for room, but nothing is lost unless a
    /// process dies.
    Rings,
}

/// How a connection is meant to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Everything completes.
    Completes,
    /// The path is cut for good, or a process dies: retries are exhausted.
    Cut,
    /// The peer stops posting receives: RNR retries are exhausted.
    Starved,
}

#[derive(Debug)]
pub struct Pair {
    pub qp_type: QpType,
    /// Nodes; may be the same one.
    pub nodes: [usize; 2],
    pub numbers: Connection,
    pub fate: Fate,
    pub works: [usize; 2],
    pub send_depth: [u32; 2],
    pub recv_depth: [u32; 2],
    pub uses_srq: [bool; 2],
    pub signal_all: bool,
}

#[derive(Debug)]
pub struct Scenario {
    pub medium: Medium,
    pub fabric: FabricConfig,
    pub node_count: usize,
    /// On rings: the node that dies.
    pub dies: Option<usize>,
    pub pairs: Vec<Pair>,
    /// Virtual time at which all faults end.
    pub heal_at_ns: u64,
    /// Now and then a partition begins, or a process stops.
    pub partitions: bool,
}

fn psn(random: &mut Random) -> u32 {
    match random.below(3) {
        0 => 0xff_ffff - random.below(40) as u32,
        1 => 0x7f_ffff - random.below(40) as u32,
        _ => random.below(1 << 24) as u32,
    }
}

fn fabric(seed: u64, random: &mut Random) -> FabricConfig {
    // Some seeds have one kind of trouble, some have all.
    let mut ppm = |limit: u64| if random.percent(60) { random.below(limit) as u32 } else { 0 };
    let (loss_ppm, duplicate_ppm, reorder_ppm) = (ppm(60_000), ppm(50_000), ppm(50_000));
    let (corrupt_ppm, truncate_ppm) = (ppm(20_000), ppm(10_000));
    FabricConfig {
        seed,
        delay_ns: random.between(500, 150_000),
        jitter_ns: random.below(40_000),
        rate_bits_per_second: random.percent(70).then(|| random.between(1, 40) * 1_000_000_000),
        queue_bytes: random.choose(&[48 << 10, 128 << 10, 1 << 20]),
        receive_buffer_bytes: random.choose(&[96 << 10, 512 << 10, 4 << 20]),
        faults: WirePlan::seeded(seed)
            .by_chance(loss_ppm, Fault::Drop)
            .by_chance(duplicate_ppm, Fault::DUPLICATE)
            .by_chance(reorder_ppm, Fault::delay(random.between(1_000, 300_000)))
            .by_chance(corrupt_ppm, Fault::FLIP)
            .by_chance(truncate_ppm, Fault::CUT),
        ..FabricConfig::default()
    }
}

/// Delays, and receivers with little room.
fn rings(seed: u64, random: &mut Random) -> FabricConfig {
    FabricConfig {
        seed,
        delay_ns: random.between(50, 50_000),
        jitter_ns: random.below(20_000),
        receive_buffer_bytes: random.choose(&[128 << 10, 192 << 10, 1 << 20]),
        back_pressure: true,
        ..FabricConfig::default()
    }
}

impl Scenario {
    pub fn new(medium: Medium, seed: u64, random: &mut Random) -> Scenario {
        let node_count = random.between(2, 4) as usize;
        let mut pairs = Vec::new();
        for _ in 0..random.between(1, 5) {
            pairs.push(pair(QpType::Rc, node_count, random));
        }
        for qp_type in [QpType::Uc, QpType::Ud] {
            if random.percent(40) {
                pairs.push(pair(qp_type, node_count, random));
            }
        }
        // At most one pair of nodes is cut for good, and with it all that connects them; or one node dies.
        let mut dies = None;
        if random.percent(15) {
            let nodes = pairs[0].nodes;
            dies = (medium == Medium::Rings).then_some(nodes[1]);
            for pair in &mut pairs {
                let ends = match dies {
                    Some(dead) => pair.nodes.contains(&dead),
                    None => {
                        nodes[0] != nodes[1] && (pair.nodes == nodes || pair.nodes == [nodes[1], nodes[0]])
                    }
                };
                if ends {
                    pair.fate = Fate::Cut;
                    pair.numbers.timeout = 10;
                }
            }
        } else if random.percent(15) && pairs[0].qp_type == QpType::Rc {
            let pair = &mut pairs[0];
            pair.fate = Fate::Starved;
            pair.works = [pair.works[0].max(8), 0];
            pair.uses_srq = [false; 2];
            pair.recv_depth = [64; 2];
            pair.numbers.rnr_retry = random.below(4) as u8;
        }
        let fabric = match medium {
            Medium::Network => fabric(seed, random),
            Medium::Rings => rings(seed, random),
        };
        Scenario {
            medium,
            fabric,
            node_count,
            dies,
            pairs,
            heal_at_ns: random.between(20, 400) * 1_000_000,
            partitions: random.percent(40),
        }
    }
}

fn pair(qp_type: QpType, node_count: usize, random: &mut Random) -> Pair {
    let first = random.below(node_count as u64) as usize;
    let second = if random.percent(10) {
        first
    } else {
        (first + 1 + random.below(node_count as u64 - 1) as usize) % node_count
    };
    let reliable = qp_type == QpType::Rc;
    let numbers = Connection {
        mtu: random.choose(&Mtu::ALL),
        psn_here: psn(random),
        psn_there: psn(random),
        timeout: random.between(12, 14) as u8,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: random.between(1, 14) as u8,
        rd_atomic: random.between(1, 8) as u8,
    };
    Pair {
        qp_type,
        nodes: [first, second],
        numbers,
        fate: Fate::Completes,
        works: [random.between(1, 24) as usize, random.below(25) as usize],
        send_depth: [random.between(1, 16) as u32, random.between(1, 16) as u32],
        recv_depth: [random.between(1, 16) as u32, random.between(1, 16) as u32],
        uses_srq: [reliable && random.percent(40), reliable && random.percent(40)],
        signal_all: random.percent(20),
    }
}
