//! Two managers over a network in virtual time that loses, doubles and delays MADs by a seed.

use std::collections::{BTreeMap, BTreeSet};

use pumice_transport::cm::{
    AcceptParams, Cm, CmConfig, CmEvent, CmPath, CmState, ConnectParams, IdSource, ListenParams, MadOut,
    MadRoute, RejectParams, ResolveParams, SidrReply,
};
use pumice_transport::mad::{CommId, MAD_BYTES, PortSpace, RejectReason, ServiceId};
use pumice_transport::types::Mtu;
use pumice_transport::wire::{ProcessIndex, Psn, Qpn};

use crate::kit::{PEER, SECOND_NS, SERVICE, US, gid, ip_header};
use crate::link::Random;

const DATAGRAMS: ServiceId = ServiceId::rdma_cm(PortSpace::Udp, 7471);
const CLIENT: usize = 0;
const SERVER: usize = 1;

#[derive(Clone, Copy)]
struct Faults {
    loss: u64,
    duplication: u64,
    lateness: u64,
}

/// What a side knows of a connection, from its events and calls alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Belief {
    Connecting,
    Connected,
    Failed,
    Disconnected,
}

struct Side {
    cm: Cm,
    /// By the connection's number, which is also its queue pair's at both ends.
    connections: BTreeMap<u32, (CommId, Belief)>,
    resolved: BTreeSet<CommId>,
}

struct World {
    sides: [Side; 2],
    random: Random,
    faults: Faults,
    now_ns: u64,
    serial: u64,
    under_way: BTreeMap<(u64, u64), (usize, MadRoute, [u8; MAD_BYTES])>,
    /// Connections that the server refuses.
    refuse: BTreeSet<u32>,
    seed: u64,
}

impl World {
    fn new(seed: u64, faults: Faults) -> World {
        let side = |guid, process| Side {
            cm: Cm::new(CmConfig::new(guid), IdSource::new(ProcessIndex::new(process), seed as u32)),
            connections: BTreeMap::new(),
            resolved: BTreeSet::new(),
        };
        let mut sides = [side(1, 1), side(2, 2)];
        for service in [SERVICE, DATAGRAMS] {
            sides[SERVER].cm.listen(&ListenParams::new(service, 64)).unwrap();
        }
        let (under_way, refuse) = Default::default();
        World { sides, random: Random(seed), faults, now_ns: 0, serial: 0, under_way, refuse, seed }
    }

    fn connect(&mut self, number: u32) {
        let route = MadRoute { local: gid(US), remote: gid(PEER), hop_limit: 64, ..MadRoute::default() };
        let header = ip_header(US, PEER);
        let params = ConnectParams {
            private_data: &header,
            ..ConnectParams::new(
                SERVICE,
                CmPath::new(route, Mtu::Mtu1024),
                Qpn::new(number),
                Psn::new(number),
            )
        };
        let client = &mut self.sides[CLIENT];
        let id = client.cm.connect(&params, self.now_ns).unwrap();
        client.connections.insert(number, (id, Belief::Connecting));
    }

    fn disconnect(&mut self, side: usize, number: u32) {
        let (id, belief) = self.sides[side].connections[&number];
        if belief == Belief::Connected {
            let _ = self.sides[side].cm.disconnect(id, &[], self.now_ns);
        }
    }

    /// Until nothing is under way and no timer runs.
    fn settle(&mut self) {
        for _ in 0..100_000 {
            self.drain();
            let arrival = self.under_way.first_key_value().map(|(key, _)| key.0);
            let timer = self.sides.iter().filter_map(|side| side.cm.poll_timeout()).min();
            let Some(next_ns) = arrival.into_iter().chain(timer).min() else { return };
            self.now_ns = self.now_ns.max(next_ns);
            while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now_ns)
            {
                let (to, route, mad) = entry.remove();
                let _ = self.sides[to].cm.handle_mad(&route, &mad, self.now_ns);
                self.drain();
            }
            for side in 0..2 {
                self.sides[side].cm.handle_timeout(self.now_ns);
            }
        }
        panic!("seed {}: it never ends", self.seed);
    }

    fn drain(&mut self) {
        for side in 0..2 {
            while let Some(event) = self.sides[side].cm.poll_event() {
                self.on_event(side, event);
            }
            while let Some(out) = self.sides[side].cm.poll_transmit() {
                self.transmit(1 - side, out);
            }
        }
    }

    fn transmit(&mut self, to: usize, out: MadOut) {
        let mut route = out.route;
        std::mem::swap(&mut route.local, &mut route.remote);
        let copies = 1 + u64::from(self.random.chance(self.faults.duplication));
        for _ in 0..copies {
            if self.random.chance(self.faults.loss) {
                continue;
            }
            let late = self.random.chance(self.faults.lateness);
            let delay_ns = 20_000 + if late { self.random.below(10 * SECOND_NS) } else { 0 };
            self.serial += 1;
            self.under_way.insert((self.now_ns + delay_ns, self.serial), (to, route, out.mad));
        }
    }

    fn on_event(&mut self, side: usize, event: CmEvent) {
        let now_ns = self.now_ns;
        let refuse = &self.refuse;
        let Side { cm, connections, resolved } = &mut self.sides[side];
        let id = event.id();
        let mut believe = |belief| {
            let known = connections.values_mut().find(|entry| entry.0 == id);
            known.unwrap_or_else(|| panic!("event of the unknown {id}")).1 = belief;
        };
        match event {
            CmEvent::ConnectRequest { id, request, .. } => {
                let number = request.local_qpn.value();
                cm.take_request(id);
                if refuse.contains(&number) {
                    cm.reject(id, &RejectParams::consumer(b"no"), now_ns).unwrap();
                    cm.destroy(id, now_ns).unwrap();
                    return;
                }
                let accept = AcceptParams::new(Qpn::new(number), Psn::new(number));
                cm.accept(id, &accept, now_ns).unwrap();
                // A second attempt of the peer's, after it gave up the first, replaces it.
                if let Some((old, _)) = connections.insert(number, (id, Belief::Connecting)) {
                    cm.destroy(old, now_ns).unwrap();
                }
            }
            CmEvent::ConnectResponse { .. } => {
                cm.send_rtu(id, &[]).unwrap();
                believe(Belief::Connected);
            }
            CmEvent::Established { .. } => believe(Belief::Connected),
            CmEvent::Rejected { .. } | CmEvent::Unreachable { .. } => believe(Belief::Failed),
            CmEvent::DisconnectRequest { .. } => {
                cm.disconnect(id, &[], now_ns).unwrap();
                believe(Belief::Disconnected);
            }
            CmEvent::Disconnected { .. } => believe(Belief::Disconnected),
            CmEvent::SidrRequest { id, .. } => {
                cm.sidr_reply(id, &SidrReply::queue_pair(Qpn::new(9), 1, &[])).unwrap();
                cm.destroy(id, now_ns).unwrap();
            }
            CmEvent::SidrResolved { id, reply } => {
                assert_eq!(reply.qpn, Qpn::new(9));
                assert!(resolved.insert(id), "resolved once");
                cm.destroy(id, now_ns).unwrap();
            }
            CmEvent::MraReceived { .. } | CmEvent::TimewaitExit { .. } => {}
        }
    }

    fn belief(&self, side: usize, number: u32) -> Option<Belief> {
        self.sides[side].connections.get(&number).map(|entry| entry.1)
    }

    /// The consumers go; nothing of any connection may stay.
    fn assert_nothing_leaks(&mut self) {
        for side in 0..2 {
            let ids: Vec<CommId> = self.sides[side].connections.values().map(|entry| entry.0).collect();
            for id in ids {
                self.sides[side].cm.destroy(id, self.now_ns).unwrap();
            }
        }
        self.settle();
        for (side, name) in [(CLIENT, "client"), (SERVER, "server")] {
            let left = self.sides[side].cm.connection_count();
            assert_eq!(left, 0, "seed {}: {left} connections stay at the {name}", self.seed);
        }
        assert!(self.sides[CLIENT].cm.is_empty(), "seed {}", self.seed);
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("PUMICE_CM_SEED") {
        Ok(seed) => vec![seed.parse().expect("PUMICE_CM_SEED is a number")],
        Err(_) => (1..=1000).collect(),
    }
}

/// Prints the seed of a run that fails.
fn for_every_seed(run: impl Fn(u64)) {
    for seed in seeds() {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed)));
        if let Err(failure) = outcome {
            eprintln!("repeat with: PUMICE_CM_SEED={seed} cargo test -p pumice-transport --test cm chaos");
            std::panic::resume_unwind(failure);
        }
    }
}

#[test]
fn connections_complete_under_5_percent_loss() {
    for_every_seed(|seed| {
        let mut world = World::new(seed, Faults { loss: 50, duplication: 20, lateness: 20 });
        for number in 1..=8 {
            world.connect(number);
        }
        world.settle();
        for number in 1..=8 {
            for side in [CLIENT, SERVER] {
                assert_eq!(
                    world.belief(side, number),
                    Some(Belief::Connected),
                    "seed {seed}: {side} {number}"
                );
                let id = world.sides[side].connections[&number].0;
                assert_eq!(world.sides[side].cm.state(id), Some(CmState::Established), "seed {seed}");
            }
        }
        // From one side, from the other, and from both at once.
        for number in 1..=8 {
            for side in [CLIENT, SERVER] {
                if number % 3 == side as u32 || number % 3 == 2 {
                    world.disconnect(side, number);
                }
            }
        }
        world.settle();
        for number in 1..=8 {
            for side in [CLIENT, SERVER] {
                assert_eq!(
                    world.belief(side, number),
                    Some(Belief::Disconnected),
                    "seed {seed}: {side} {number}"
                );
            }
        }
        world.assert_nothing_leaks();
    });
}

/// Half of everything is lost: not every connection comes about, but both sides know.
#[test]
fn both_sides_agree_under_heavy_loss() {
    let failures = std::cell::Cell::new(0);
    for_every_seed(|seed| {
        let mut world = World::new(seed, Faults { loss: 600, duplication: 100, lateness: 300 });
        world.refuse.insert(3);
        for number in 1..=4 {
            world.connect(number);
        }
        world.settle();
        for number in 1..=4 {
            let client = world.belief(CLIENT, number).unwrap();
            let server = world.belief(SERVER, number);
            assert_ne!(client, Belief::Connecting, "seed {seed}: {number}");
            assert_ne!(server, Some(Belief::Connecting), "seed {seed}: {number}");
            if number == 3 {
                assert_eq!((client, server), (Belief::Failed, None), "seed {seed}");
            }
            failures.set(failures.get() + u32::from(client == Belief::Failed && number != 3));
        }
        world.assert_nothing_leaks();
    });
    eprintln!("{} connections were given up", failures.get());
}

#[test]
fn rejections_arrive_under_loss() {
    for_every_seed(|seed| {
        let mut world = World::new(seed, Faults { loss: 100, duplication: 50, lateness: 50 });
        world.refuse.extend(1..=4);
        for number in 1..=4 {
            world.connect(number);
        }
        world.settle();
        for number in 1..=4 {
            assert_eq!(world.belief(CLIENT, number), Some(Belief::Failed), "seed {seed}");
        }
        world.assert_nothing_leaks();
        assert_eq!(RejectReason::CONSUMER.0, 28);
    });
}

#[test]
fn questions_are_answered_under_loss() {
    for_every_seed(|seed| {
        let mut world = World::new(seed, Faults { loss: 50, duplication: 50, lateness: 50 });
        let route = MadRoute { local: gid(US), remote: gid(PEER), hop_limit: 64, ..MadRoute::default() };
        let header = ip_header(US, PEER);
        let mut asked = BTreeSet::new();
        for _ in 0..4 {
            let params = ResolveParams::new(DATAGRAMS, route, &header);
            asked.insert(world.sides[CLIENT].cm.resolve(&params, 0).unwrap());
        }
        world.settle();
        assert_eq!(world.sides[CLIENT].resolved, asked, "seed {seed}");
        world.assert_nothing_leaks();
    });
}

/// Consumers give up at any moment: no side waits for ever, and nothing stays.
#[test]
fn giving_up_at_any_time_leaves_nothing() {
    for_every_seed(|seed| {
        let mut world = World::new(seed, Faults { loss: 100, duplication: 50, lateness: 200 });
        for number in 1..=6 {
            world.connect(number);
        }
        for _ in 0..world.random.below(40) {
            world.drain();
            let arrival = world.under_way.first_key_value().map(|(key, _)| key.0);
            let timer = world.sides.iter().filter_map(|side| side.cm.poll_timeout()).min();
            let Some(next_ns) = arrival.into_iter().chain(timer).min() else { break };
            world.now_ns = world.now_ns.max(next_ns);
            if let Some(entry) = world.under_way.first_entry().filter(|entry| entry.key().0 <= world.now_ns) {
                let (to, route, mad) = entry.remove();
                let _ = world.sides[to].cm.handle_mad(&route, &mad, world.now_ns);
            }
            for side in 0..2 {
                world.sides[side].cm.handle_timeout(world.now_ns);
            }
            world.drain();
        }
        let side = world.random.below(2) as usize;
        let now_ns = world.now_ns;
        let going: Vec<(u32, CommId)> =
            world.sides[side].connections.iter().map(|(number, entry)| (*number, entry.0)).collect();
        for (number, id) in going {
            world.sides[side].cm.destroy(id, now_ns).unwrap();
            world.sides[side].connections.remove(&number);
        }
        world.settle();
        for (number, (_, belief)) in &world.sides[1 - side].connections {
            let over = matches!(belief, Belief::Failed | Belief::Disconnected);
            // Who came to the connection only now is the new one's peer.
            assert!(
                over || side == SERVER && *belief == Belief::Connected,
                "seed {seed}: {number} {belief:?}"
            );
        }
        world.assert_nothing_leaks();
    });
}
