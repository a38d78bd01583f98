//! A device that no one listens to builds no events. It does the same as one whose events are all heard: the
//! same packets at the same times, completions, memory and counts.

mod kit;

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use kit::{Connection, Node, Random, connect};
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::event::{Event, Subscriber, Topics};
use pumice_device::faults::{Fault, WirePlan};
use pumice_device::hca::HcaConfig;
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

const MEMORY_BYTES: usize = 1 << 16;
const PAIRS: usize = 3;
const TURNS: usize = 150;

/// Notes what happened.
struct Listener(Arc<Mutex<Vec<String>>>);

impl Subscriber for Listener {
    /// Who listens to registrations, as the checker does, has the two keys of a region differ.
    fn topics(&self) -> Topics {
        Topics::all().difference(Topics::REGIONS)
    }

    fn on_event(&self, at_ns: u64, event: &Event<'_>) {
        self.0.lock().unwrap().push(format!("{at_ns} {event:?}"));
    }
}

/// What a run leaves.
#[derive(Debug, PartialEq)]
struct Outcome {
    digest: u64,
    end_ns: u64,
    /// Of each node, in their order.
    completions: [Vec<String>; 2],
    memory: [Vec<u8>; 2],
    counts: [Vec<u64>; 2],
}

fn node(world: &mut World, number: u8, heard: Option<&Arc<Mutex<Vec<String>>>>) -> Node {
    let ip = IpAddr::from([10, 0, 0, number]);
    let mut config =
        HcaConfig::new(&format!("pumice{number}"), vec![GidEntry::new(ip, "sim", 0, Mtu::Mtu4096)]);
    config
        .subscribers
        .extend(heard.map(|heard| Box::new(Listener(Arc::clone(heard))) as Box<dyn Subscriber>));
    Node::on(world.add_hca_with(config, |port| Box::new(port)).unwrap(), ip, MEMORY_BYTES, 1024)
}

/// Both directions of three pairs of queue pairs: requests of all kinds and lengths, alone and in lists,
/// while some packets get lost.
fn run(seed: u64, heard: Option<&Arc<Mutex<Vec<String>>>>) -> Outcome {
    let faults = WirePlan::seeded(seed).by_chance(20_000, Fault::Drop);
    let mut world = World::new(FabricConfig { seed, faults, ..FabricConfig::default() });
    let nodes = [1, 2].map(|number| node(&mut world, number, heard));
    let [a, b] = &nodes;
    let pairs: Vec<[Qpn; 2]> = (0..PAIRS)
        .map(|_| {
            let pair = [a, b].map(|node| node.create_qp(QpType::Rc));
            connect(a, pair[0], b, pair[1], true, Connection::default());
            pair
        })
        .collect();
    let mut random = Random::new(seed);
    for (offset, node) in nodes.iter().enumerate() {
        node.memory.write(0, &Random::new(seed + offset as u64).bytes(MEMORY_BYTES));
    }
    let mut completions = [Vec::new(), Vec::new()];
    for turn in 0..TURNS {
        let (from, pair) = (random.below(2) as usize, random.choose(&pairs));
        post(&mut random, turn as u64, [&nodes[from], &nodes[1 - from]], [pair[from], pair[1 - from]]);
        world.run_for(random.below(30_000));
        for (node, into) in nodes.iter().zip(&mut completions) {
            into.extend(node.drain().iter().map(|completion| format!("{completion:?}")));
        }
    }
    world.run_for(20_000_000_000);
    for (node, into) in nodes.iter().zip(&mut completions) {
        into.extend(node.drain().iter().map(|completion| format!("{completion:?}")));
    }
    Outcome {
        digest: world.fabric().digest(),
        end_ns: world.now_ns(),
        completions,
        memory: nodes.each_ref().map(|node| node.memory.read(0, MEMORY_BYTES)),
        counts: nodes.each_ref().map(|node| node.hca.counters().snapshot().map(|(_, count)| count).to_vec()),
    }
}

/// A list of one to four requests of one kind, each with a receive request where it needs one.
fn post(random: &mut Random, wr_id: u64, [from, to]: [&Node; 2], [qpn, peer]: [Qpn; 2]) {
    let opcode = random.choose(&[
        SendOpcode::Send,
        SendOpcode::Send,
        SendOpcode::RdmaWrite,
        SendOpcode::RdmaWriteWithImm,
        SendOpcode::RdmaRead,
    ]);
    let count = random.between(1, 4);
    let length = random.choose(&[0, 8, 8, 100, 1024, 5000]);
    let here = random.below((MEMORY_BYTES - 5000) as u64 / 8) as usize * 8;
    let there = random.below((MEMORY_BYTES - 5000) as u64 / 8) as usize * 8;
    let sges = [from.sge(here, length)];
    let requests: Vec<SendRequest<'_>> = (0..count)
        .map(|number| {
            if matches!(opcode, SendOpcode::Send | SendOpcode::RdmaWriteWithImm) {
                // A full receive queue makes the peer say that it is not ready.
                let _ = to
                    .hca
                    .post_recv(peer, &RecvRequest { wr_id: 1000 + wr_id, sges: &[to.sge(there, 5000)] });
            }
            let flags = if number + 1 == count { SendFlags::SIGNALED } else { SendFlags::empty() };
            let remote = to.target(there);
            SendRequest { sges: &sges, remote, flags, ..SendRequest::new(wr_id, opcode) }
        })
        .collect();
    // A full send queue refuses the rest, in both runs the same.
    let _ = from.hca.post_sends(qpn, &requests);
}

#[test]
fn a_device_does_the_same_whether_its_events_are_heard_or_not() {
    for seed in [1, 17, 2026] {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (with, without) = (run(seed, Some(&heard)), run(seed, None));
        let heard = heard.lock().unwrap();
        assert!(heard.len() > 10 * TURNS, "seed {seed}: only {} events were heard", heard.len());
        let [a, b] = &without.completions;
        assert!(a.len() + b.len() > TURNS, "seed {seed}: {} and {} completions", a.len(), b.len());
        assert!(with.completions == without.completions, "seed {seed}: other completions");
        assert_eq!(with.counts, without.counts, "seed {seed}");
        assert_eq!((with.digest, with.end_ns), (without.digest, without.end_ns), "seed {seed}");
        assert!(with == without, "seed {seed}: other bytes");
    }
}
