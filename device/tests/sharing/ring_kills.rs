//! Rings to processes that are killed at any instruction.

use std::io::BufRead as _;
use std::net::IpAddr;
use std::time::Instant;

use pumice_device::port::{GsoBatch, Peer, PeerMedium, Port, ProcessGroup};
use pumice_device::sharing::{SharedPort, SharedPortConfig};
use pumice_transport::path::{Flow, Path};
use pumice_transport::wire::ProcessIndex;

use crate::child;
use crate::fleet::{ChildProcess, Scene};

/// Bytes of a packet: some in a slot, some in the data of a ring.
const LENGTHS: [usize; 5] = [16, 24, 48, 700, 4000];
/// Processes that are killed. The environment may ask for more.
const KILLS: u32 = 100;

fn path(from: IpAddr, to: IpAddr) -> Path {
    let flow = Flow { source: from, destination: to, source_port: 4791, destination_port: 4791 };
    Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 }
}

/// A process that sends whole packets to one other process, and looks at what comes from it.
struct Sender {
    port: SharedPort,
    path: Path,
    peer: Peer,
    begun: Instant,
    sent: u64,
    received: u64,
}

impl Sender {
    fn new(port: SharedPort, to: IpAddr, process: ProcessIndex) -> Sender {
        let from = port.medium().address();
        let peer = Peer { address: to, process };
        Sender { port, path: path(from, to), peer, begun: Instant::now(), sent: 0, received: 0 }
    }

    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// A batch of packets of one length. What is in them follows from their number and their length.
    fn send(&mut self) {
        let now_ns = self.now_ns();
        if !self.port.admits(now_ns, self.peer) {
            return;
        }
        let length = LENGTHS[self.sent as usize % LENGTHS.len()];
        let count = 1 + self.sent as usize % 3;
        let mut bytes = Vec::new();
        for _ in 0..count {
            let fill = (self.sent % 251) as u8;
            let start = bytes.len();
            bytes.resize(start + length, fill);
            // An opcode of RC, and the number of a queue pair of the process.
            bytes[start..start + 8].copy_from_slice(&[4, 0, 0, 0, 0, self.peer.process.value(), 0, fill]);
        }
        let _ = self.port.transmit(now_ns, &GsoBatch::new(&self.path, length, &bytes));
        self.sent += 1;
    }

    /// Takes everything that came, and looks whether it is whole.
    fn receive(&mut self) {
        let now_ns = self.now_ns();
        let received = &mut self.received;
        for _ in 0..64 {
            let more = self.port.receive(now_ns, &mut |batch| {
                for packet in batch.segments() {
                    let fill = packet[7];
                    assert!(LENGTHS.contains(&packet.len()), "{} bytes", packet.len());
                    assert!(packet[8..].iter().all(|byte| *byte == fill), "a torn packet: {packet:02x?}");
                }
                *received += 1;
            });
            if !more {
                break;
            }
        }
    }
}

/// The role "flood": sends without an end.
pub(crate) fn run() {
    let config = SharedPortConfig { udp_only: false, ..child::config() };
    let address = config.udp.address;
    let port = SharedPort::open(&config).unwrap_or_else(|error| panic!("{error}"));
    child::say(&format!("index {}", port.process()));
    let line = std::io::stdin().lock().lines().next().unwrap().unwrap();
    let process = ProcessIndex::new(line.parse().unwrap());
    let mut sender = Sender::new(port, address, process);
    loop {
        sender.send();
        sender.receive();
    }
}

/// Descriptors, and mapped rings, of this process.
fn held() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, maps.lines().filter(|line| line.contains("pumice-ring")).count())
}

/// Another process survives, so that no other test's rings and descriptors are counted.
#[test]
fn the_survivor_of_many_kills_has_whole_packets_and_leaks_nothing() {
    let kills: u32 = std::env::var("PUMICE_RING_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let scene = Scene::new();
    let mut survivor = ChildProcess::start(None, &scene, "survivor");
    survivor.say(&kills.to_string());
    for kill in 0..kills {
        assert_eq!(survivor.read_reply("survived"), kill.to_string());
    }
    survivor.quit();
}

/// The role "survivor": sends to processes that it kills one after another.
pub(crate) fn survive() {
    let mut lines = std::io::stdin().lock().lines();
    let kills: u32 = lines.next().unwrap().unwrap().parse().unwrap();
    let config = SharedPortConfig { udp_only: false, ..child::config() };
    let scene = Scene::of_child();
    let port = SharedPort::open(&config).unwrap();
    let own = port.process();
    let mut survivor = Sender::new(port, scene.address(), ProcessIndex::NONE);
    let mut chance = 1_u64;
    let mut before = None;
    for kill in 0..kills {
        let mut victim = ChildProcess::start(None, &scene, "flood");
        survivor.peer.process = ProcessIndex::new(victim.read_reply("index").parse().unwrap());
        victim.say(&own.value().to_string());
        let (received, begun) = (survivor.received, Instant::now());
        // Both directions work.
        while survivor.port.medium_to(survivor.peer) != PeerMedium::Ring || survivor.received < received + 10
        {
            assert!(begun.elapsed().as_secs() < 60, "kill {kill}: no ring: {:?}", survivor.port);
            survivor.send();
            survivor.receive();
        }
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        for _ in 0..chance >> 54 {
            survivor.send();
            survivor.receive();
        }
        victim.kill();
        // It goes on sending to the dead one: the ring fills, is found without an owner, and is closed.
        let begun = Instant::now();
        while survivor.port.medium_to(survivor.peer) == PeerMedium::Ring {
            assert!(begun.elapsed().as_secs() < 60, "kill {kill}: the ring stays");
            survivor.send();
            survivor.receive();
        }
        drop(victim);
        before.get_or_insert_with(|| held().0);
        child::say(&format!("survived {kill}"));
    }
    // Rings from the dead go within a second or so.
    let (begun, at_first) = (Instant::now(), before.unwrap());
    loop {
        let (descriptors, rings) = held();
        if rings == 0 && descriptors <= at_first {
            break;
        }
        assert!(
            begun.elapsed().as_secs() < 60,
            "{rings} rings stay mapped; {descriptors} descriptors, {at_first} after the first kill"
        );
        survivor.receive();
    }
    assert_eq!(lines.next().unwrap().unwrap(), "quit");
}
