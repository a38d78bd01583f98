//! Switches that processes share, in virtual time: beside the simulated ones, with words full of nonsense.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_model::counters::Counters;
use pumice_platform::clock::{Clock, Random, VirtualTime};
use pumice_transport::host::Counter;
use pumice_transport::path::{Flow, Path, ROCE_PORT};

use super::*;
use crate::{Fabric, FabricConfig, SimPort};
use pumice_model::network::topology::Topology;
use pumice_model::port::Port;
use pumice_model::port::batch::GsoBatch;

/// UDP payload of a packet that has 1000 bytes on a link over IPv4: a microsecond at 8 Gbit/s.
const PAYLOAD: usize = 1_000 - 46;

fn address(host: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + host as u8])
}

fn path(from: usize, to: usize, source_port: u16) -> Path {
    let (source, destination) = (address(from), address(to));
    let flow = Flow { source, destination, source_port, destination_port: ROCE_PORT };
    Path { flow, traffic_class: 0b10, hop_limit: 64, flow_label: 0 }
}

fn topology(kind: &str, hosts: usize, switch: &str) -> Topology {
    let hosts: Vec<String> = (0..hosts).map(|host| format!("\"{}\"", address(host))).collect();
    let text = format!(
        "{kind}\nhosts = [{}]\n[link]\nrate_mbps = 8000\ndelay_ns = 700\n[switch]\n{switch}",
        hosts.join(", ")
    );
    Topology::parse(&text).unwrap()
}

const STAR: &str = "kind = \"star\"";
const TWO_TIER: &str = "kind = \"two-tier\"\nleaves = 2\nspines = 2";
const THREE_TIER: &str = "kind = \"three-tier\"\npods = 2\nleaves = 4\nspines = 4\ncores = 4";

/// A packet: when it is sent, from, to, source port.
type Sent = (u64, usize, usize, u16);
/// When a packet arrived, where, its first byte, its ECN field.
type ArrivedPacket = (u64, usize, u8, u8);

/// Hosts, each a device of its own, on a network that does nothing: all that happens is the switches'.
struct Scene {
    time: VirtualTime,
    fabric: Fabric,
    ports: Vec<SwitchedPort<SimPort>>,
    switching: Switching,
    counters: Arc<Counters>,
}

impl Scene {
    fn new(topology: Topology, words: Vec<AtomicU64>) -> Scene {
        let time = VirtualTime::default();
        let clock = Clock::Virtual(time.clone());
        let config =
            FabricConfig { delay_ns: 0, jitter_ns: 0, rate_bits_per_second: None, ..FabricConfig::default() };
        let fabric = Fabric::new(config);
        let switching = Switching { topology: Arc::new(topology), words: Arc::new(words) };
        let counters = Arc::new(Counters::new());
        let port = |host| {
            let mut port = SwitchedPort::new(fabric.attach(&[address(host)]), &switching, &clock);
            port.observe(&counters);
            port
        };
        let ports = (0..usize::from(switching.topology.hosts)).map(port).collect();
        Scene { time, fabric, ports, switching, counters }
    }

    fn idle(topology: Topology) -> Scene {
        let words = (0..topology.link_count() * PORT_WORDS).map(|_| AtomicU64::new(0)).collect();
        Scene::new(topology, words)
    }

    /// Sends the packets and lets all arrive that will.
    fn run(&mut self, packets: &[Sent]) -> Vec<ArrivedPacket> {
        let mut waiting: VecDeque<(u8, Sent)> = (0..).zip(packets.iter().copied()).collect();
        let mut arrived = Vec::new();
        loop {
            let held_ns = self.ports.iter().filter_map(Port::next_event_ns).min();
            let next_ns = [held_ns, waiting.front().map(|(_, sent)| sent.0)].into_iter().flatten().min();
            let Some(next_ns) = next_ns else { return arrived };
            self.time.advance_to(next_ns);
            let now_ns = self.time.now_ns();
            while let Some((mark, (at_ns, from, to, port))) = waiting.front().copied()
                && at_ns <= now_ns
            {
                let path = path(from, to, port);
                let bytes = [mark; PAYLOAD];
                self.ports[from].transmit(now_ns, &GsoBatch::new(&path, PAYLOAD, &bytes)).unwrap();
                waiting.pop_front();
            }
            // What one port sends now, an earlier one has now.
            for _ in 0..2 {
                for (host, port) in self.ports.iter_mut().enumerate() {
                    while port.receive(now_ns, &mut |r| {
                        arrived.push((now_ns, host, r.bytes[0], r.traffic_class & 3))
                    }) {}
                }
            }
        }
    }
}

/// What the simulated switches make of the same packets.
fn simulated(topology: Topology, packets: &[Sent]) -> (Vec<ArrivedPacket>, Fabric) {
    let hosts = usize::from(topology.hosts);
    let fabric = Fabric::new(FabricConfig { topology: Some(topology), ..FabricConfig::default() });
    let mut ports: Vec<SimPort> = (0..hosts).map(|host| fabric.attach(&[address(host)])).collect();
    let mut arrived = Vec::new();
    let mut receive = |ports: &mut Vec<SimPort>, now_ns: u64| {
        for (host, port) in ports.iter_mut().enumerate() {
            while port.receive(now_ns, &mut |r| arrived.push((now_ns, host, r.bytes[0], r.traffic_class & 3)))
            {
            }
        }
    };
    for (mark, (at_ns, from, to, port)) in (0..).zip(packets.iter().copied()) {
        while let Some(now_ns) = fabric.next_event_ns().filter(|now_ns| *now_ns <= at_ns) {
            receive(&mut ports, now_ns);
        }
        ports[from]
            .transmit(at_ns, &GsoBatch::new(&path(from, to, port), PAYLOAD, &[mark; PAYLOAD]))
            .unwrap();
    }
    while let Some(now_ns) = fabric.next_event_ns() {
        receive(&mut ports, now_ns);
    }
    (arrived, fabric)
}

fn sorted(mut arrived: Vec<ArrivedPacket>) -> Vec<ArrivedPacket> {
    arrived.sort_unstable();
    arrived
}

#[test]
fn they_do_to_packets_of_one_size_what_the_simulated_ones_do() {
    // Two thirds of what four senders offer pass; at no two ports does something happen at one time.
    let switch = "queue_bytes = 12500\n[switch.ecn]\nmin_bytes = 2500\nmax_bytes = 9500\nmost_ppm = 500000\n";
    // Three tiers have what is offered less often: where two queues are full, packets leave both at one time.
    for (kind, hosts, gap_ns) in [(STAR, 5, 383), (TWO_TIER, 6, 383), (THREE_TIER, 8, 1_283)] {
        let packets: Vec<Sent> = (0..200_u64)
            .map(|n| {
                let (from, to) = if n % 10 == 9 { (hosts - 1, 0) } else { (n as usize % 4, hosts - 1) };
                (n * gap_ns + n % 4 * 17, from, to, ROCE_PORT + (n % 4) as u16)
            })
            .collect();
        let mut scene = Scene::idle(topology(kind, hosts, switch));
        let ours = scene.run(&packets);
        let (theirs, fabric) = simulated(topology(kind, hosts, switch), &packets);
        assert_eq!(sorted(ours), sorted(theirs), "{kind}");
        let totals = |queues: Vec<pumice_model::network::topology::QueueReport>| {
            let of = |queue: pumice_model::network::topology::QueueReport| {
                (queue.name, queue.packets, queue.marked, queue.dropped)
            };
            queues.into_iter().map(of).collect::<Vec<_>>()
        };
        let (ours, theirs) = (totals(scene.switching.queues()), totals(fabric.queues()));
        assert_eq!(ours, theirs, "{kind}");
        let sum = |pick: fn(&(String, u64, u64, u64)) -> u64| ours.iter().map(pick).sum::<u64>();
        let (marked, dropped) = (sum(|queue| queue.2), sum(|queue| queue.3));
        assert!(gap_ns > 1_000 || marked > 5 && dropped > 5, "{kind}: {marked} marked, {dropped} dropped");
        let counted = [Counter::LinkMarked, Counter::LinkDropped].map(|each| scene.counters.value(each));
        assert_eq!(counted, [marked, dropped]);
    }
}

#[test]
fn with_pauses_nothing_is_lost_and_the_queue_has_a_bound() {
    let switch = "queue_bytes = 30000\n[switch.pause]\nxoff_bytes = 20000\nxon_bytes = 10000\n";
    for (kind, hosts) in [(STAR, 4), (TWO_TIER, 4)] {
        let mut scene = Scene::idle(topology(kind, hosts, switch));
        let packets: Vec<Sent> =
            (0..250).map(|n: u64| (n / 3 * 1_000, n as usize % 3, hosts - 1, ROCE_PORT)).collect();
        let arrived = scene.run(&packets);
        assert_eq!(arrived.len(), 250, "{kind}");
        for from in 0..3 {
            let of_one = arrived.iter().map(|arrived| arrived.2).filter(|mark| mark % 3 == from);
            assert!(of_one.is_sorted(), "{kind}: the packets of a sender are in order");
        }
        let queues = scene.switching.queues();
        assert!(queues.iter().all(|queue| queue.dropped == 0));
        assert!(queues.iter().map(|queue| queue.pauses).sum::<u64>() > 3, "{kind}: {queues:?}");
        let last = &queues[2 * hosts - 1];
        assert_eq!((last.packets, last.sent_bytes, last.bytes), (250, 250_000, 0));
        assert!((20_000..=21_000).contains(&last.most_bytes), "{last:?}");
        // The port has never stood still since the first packet came.
        let first_ns = arrived.first().unwrap().0;
        let last_ns = arrived.last().unwrap().0;
        assert!(last_ns - first_ns >= 249_000, "{kind}: never faster than the port");
        if kind == STAR {
            assert_eq!(last_ns - first_ns, 249_000);
        }
    }
}

#[test]
fn a_paused_sender_waits_with_all_that_it_sends() {
    let switch = "queue_bytes = 30000\n[switch.pause]\nxoff_bytes = 10000\nxon_bytes = 5000\n";
    let mut scene = Scene::idle(topology(STAR, 4, switch));
    // Two senders fill the port to host 3; then one of them sends to host 2, whose port is idle.
    let mut packets: Vec<Sent> = (0..60).map(|n: u64| (0, n as usize % 2, 3, ROCE_PORT)).collect();
    packets.push((0, 0, 2, ROCE_PORT));
    let arrived = scene.run(&packets);
    let to_idle_ns = arrived.iter().find(|arrived| arrived.1 == 2).unwrap().0;
    // Without pauses it would come after 31 packets on its cable, one on the other, and two delays.
    assert!(to_idle_ns > 31_000 + 700 + 1_000 + 700, "{to_idle_ns}");
}

#[test]
fn nonsense_in_the_words_lets_packets_pass() {
    let pause = "queue_bytes = 12000\n[switch.pause]\nxoff_bytes = 9000\nxon_bytes = 5000\n";
    for (kind, hosts) in [(STAR, 3), (TWO_TIER, 4)] {
        for switch in ["queue_bytes = 12000\nbuffer_bytes = 12000\n", pause] {
            for seed in 0..40_u64 {
                let topology = topology(kind, hosts, switch);
                let mut random = Random::new(seed);
                let mut value = |_| match seed {
                    0 => AtomicU64::new(u64::MAX),
                    1 => AtomicU64::new(1 << 63),
                    // Times that a process could have meant.
                    2..20 => AtomicU64::new(random.below(60_000)),
                    _ => AtomicU64::new(random.below(u64::MAX)),
                };
                let words = (0..topology.link_count() * PORT_WORDS).map(&mut value).collect();
                let mut scene = Scene::new(topology, words);
                // What a process could have meant is over by then.
                scene.time.advance_to(2_000_000);
                let packets: Vec<Sent> =
                    (0..20).map(|n| (2_000_000 + n * 5_000, 0, hosts - 1, ROCE_PORT)).collect();
                assert_eq!(scene.run(&packets).len(), 20, "{kind} {switch} {seed}");
            }
        }
        // A file that is too short: ports without words are never busy.
        let mut scene = Scene::new(topology(kind, hosts, pause), Vec::new());
        assert_eq!(scene.run(&[(0, 0, hosts - 1, ROCE_PORT)]).len(), 1);
    }
}

#[test]
fn words_that_change_all_the_time_hold_no_packet_for_ever() {
    let pause = "queue_bytes = 12000\n[switch.pause]\nxoff_bytes = 9000\nxon_bytes = 5000\n";
    let mut scene = Scene::idle(topology(STAR, 2, pause));
    let busy = 3 * PORT_WORDS;
    scene.ports[0].transmit(0, &GsoBatch::new(&path(0, 1, ROCE_PORT), PAYLOAD, &[7; PAYLOAD])).unwrap();
    let mut came_ns = None;
    for now_ns in (0..3_000_000_000).step_by(1_000_000) {
        // Another process of the user says again and again that the queue is full.
        scene.switching.words.words()[busy].store(now_ns + 11_000, Ordering::Relaxed);
        scene.time.advance_to(now_ns);
        scene.ports[0].receive(now_ns, &mut |_| {});
        scene.ports[1].receive(now_ns, &mut |_| came_ns = Some(now_ns));
        if came_ns.is_some() {
            break;
        }
    }
    assert!(came_ns.is_some_and(|ns| ns > 900_000_000), "{came_ns:?}");
}

#[test]
fn what_goes_to_no_host_passes_and_what_is_held_leaves_at_the_end() {
    let mut scene = Scene::idle(topology(STAR, 2, "queue_bytes = 12000\n"));
    let mut stranger = scene.fabric.attach(&[address(7)]);
    let path_out = path(0, 7, ROCE_PORT);
    scene.ports[0].transmit(0, &GsoBatch::new(&path_out, PAYLOAD, &[1; PAYLOAD])).unwrap();
    let mut seen = 0;
    stranger.receive(0, &mut |_| seen += 1);
    assert_eq!((seen, scene.ports[0].next_event_ns()), (1, None));
    // Three packets in one batch, of which none is due.
    let path_in = path(0, 1, ROCE_PORT);
    scene.ports[0].transmit(0, &GsoBatch::new(&path_in, PAYLOAD, &[2; 3 * PAYLOAD])).unwrap();
    assert_eq!(scene.ports[0].next_event_ns(), Some(1_700));
    scene.ports[0].release(0);
    while scene.ports[1].receive(0, &mut |_| seen += 1) {}
    assert_eq!((seen, scene.ports[0].next_event_ns()), (4, None));
}

#[test]
fn a_sender_whose_own_queue_is_full_waits() {
    let mut scene = Scene::idle(topology(STAR, 2, "queue_bytes = 1000000\n"));
    let path = path(0, 1, ROCE_PORT);
    let batch = vec![1; 16 * PAYLOAD];
    let mut sent = 0;
    while scene.ports[0].transmit(0, &GsoBatch::new(&path, PAYLOAD, &batch)).is_ok() {
        sent += 16;
    }
    // 256 KiB are 263 packets; a batch is taken whole. Half of them have left after 131 us.
    assert_eq!(sent, 272);
    assert_eq!(scene.ports[0].room_at_ns(), Some(272_000 - 131_072));
    assert_eq!(scene.counters.value(Counter::LinkBusy), 1);
    assert_eq!(scene.run(&[]).len(), 272);
}
