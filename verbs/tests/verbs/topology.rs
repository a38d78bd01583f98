//! Switches in real time: devices that share a topology, on both media. Bounds hold on a machine that is
//! busy: a port is never faster than it says, and what is counted is counted exactly.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pumice_device::port::QueueReport;
use pumice_device::sharing as share;
use pumice_verbs::{Counter, Device, DeviceOptions, Topology, VerbsError, Wire};
use pumice_verbs::{PathOptions, RcConnectOptions, RcQueuePair, SendRequest};

use crate::kit::TestSide;

/// Of one WRITE.
const LENGTH: usize = 1 << 17;

/// An acknowledgement timeout of 17 s: where no packet is lost, none is sent twice because a thread waits.
const PATIENT: u8 = 22;

/// Hosts at 127.89.`net`.1 and on; `rest` is what the topology says besides them and its kind.
struct StarNetwork {
    topology: Arc<Topology>,
    hosts: Vec<TestSide>,
}

impl StarNetwork {
    fn new(net: u8, hosts: u8, wire: Wire, kind: &str, rest: &str) -> StarNetwork {
        let address = |host| IpAddr::V4(Ipv4Addr::new(127, 89, net, 1 + host));
        // The cable of the last one is slow: what leaves a sender in one batch already finds a queue there,
        // however late threads run.
        let list: Vec<String> = (0..hosts)
            .map(|host| match address(host) {
                address if host + 1 == hosts => format!("{{ address = \"{address}\", rate_mbps = 100 }}"),
                address => format!("\"{address}\""),
            })
            .collect();
        let text = format!("{kind}\nhosts = [{}]\n{rest}", list.join(", "));
        let topology = Arc::new(Topology::parse(&text).unwrap());
        // What an earlier run has counted is in the file.
        share::switches(&topology).unwrap().reset();
        let side = |host| {
            let options = DeviceOptions::new().addresses([address(host)]).wire(wire);
            TestSide::new(Device::open(options.topology((*topology).clone())).unwrap())
        };
        let hosts = (0..hosts).map(side).collect();
        StarNetwork { topology, hosts }
    }

    fn queues(&self) -> Vec<QueueReport> {
        share::switches(&self.topology).unwrap().queues()
    }

    /// The port of the switch that leads to the last host.
    fn last(&self) -> QueueReport {
        self.queues().swap_remove(2 * self.hosts.len() - 1)
    }

    /// The first hosts write to the last one, `rounds` times each and all at once; how long that takes.
    /// Each byte must be there at the end. `timeout`: that of acknowledgements.
    fn incast(&self, rounds: u64, timeout: u8) -> Duration {
        let receiver = self.hosts.last().unwrap();
        let senders = &self.hosts[..self.hosts.len() - 1];
        // Packets ask switches to mark them.
        let path = PathOptions { traffic_class: 0b10, ..PathOptions::default() };
        let how = RcConnectOptions { path, timeout, ..RcConnectOptions::default() };
        let connected = |side: &TestSide| -> (RcQueuePair, RcQueuePair) {
            let (one, other) = (side.rc(), receiver.rc());
            one.connect(&other.endpoint(), &how).unwrap();
            other.connect(&one.endpoint(), &how).unwrap();
            (one, other)
        };
        let pairs: Vec<_> = senders.iter().map(connected).collect();
        let sent: Vec<_> = senders.iter().map(|side| side.pattern(0, LENGTH)).collect();
        let begun = Instant::now();
        for round in 0..rounds {
            for (index, (side, (qp, _))) in senders.iter().zip(&pairs).enumerate() {
                let (from, to) = (side.memory.slice(..LENGTH).unwrap(), receiver.memory.remote());
                // Two senders have a range each in the memory of the receiver.
                let to = to.slice(index % 2 * LENGTH..(index % 2 + 1) * LENGTH).unwrap();
                qp.post_send(&SendRequest::write(&[from], to).wr_id(round).signaled()).unwrap();
            }
        }
        for side in senders {
            for round in 0..rounds {
                side.expect(round);
            }
        }
        let took = begun.elapsed();
        for (index, sent) in sent.iter().enumerate() {
            assert_eq!(receiver.memory.to_vec(index % 2 * LENGTH, LENGTH).unwrap(), *sent);
        }
        took
    }
}

const STAR: &str = "kind = \"star\"";
const CABLES: &str = "[link]\nrate_mbps = 2000\ndelay_ns = 10000\n";

/// The link of the receiver takes 80 ns for each byte of all senders.
fn assert_bounded(took: Duration, last: &QueueReport, payload_bytes: u64) {
    assert!(last.sent_bytes >= payload_bytes, "{last:?}");
    let least = Duration::from_nanos(payload_bytes * 80);
    assert!(took >= least, "{took:?} for {payload_bytes} bytes, at least {least:?}");
}

#[test]
fn two_senders_share_a_port_which_marks_what_finds_it_long() {
    let switch =
        "[switch]\nqueue_bytes = 4000000\n[switch.ecn]\nmin_bytes = 8000\nmax_bytes = 9000\nmost_ppm = 1\n";
    for (net, wire) in [(141, Wire::Auto), (142, Wire::Udp)] {
        let scene = StarNetwork::new(net, 3, wire, STAR, &format!("{CABLES}{switch}"));
        let took = scene.incast(3, PATIENT);
        let last = scene.last();
        assert_bounded(took, &last, 6 * LENGTH as u64);
        assert!(last.marked > 0 && last.dropped == 0 && last.pauses == 0, "{last:?}");
        // Which has come to the receiver as a mark.
        let marked = scene.hosts[2].device.counters().value(Counter::RxCongestionMarked);
        assert_eq!(marked, last.marked, "{wire:?}");
    }
}

#[test]
fn a_short_queue_loses_packets_and_every_byte_arrives_all_the_same() {
    let switch = "[switch]\nqueue_bytes = 10000\n";
    for (net, wire) in [(143, Wire::Auto), (144, Wire::Udp)] {
        let scene = StarNetwork::new(net, 3, wire, STAR, &format!("{CABLES}{switch}"));
        let took = scene.incast(1, 16);
        let last = scene.last();
        assert_bounded(took, &last, 2 * LENGTH as u64);
        assert!(last.dropped > 0 && last.marked == 0 && last.most_bytes <= 10_000, "{wire:?}: {last:?}");
        let link_drops = |host: usize| scene.hosts[host].device.counters().value(Counter::LinkDropped);
        assert!(link_drops(0) + link_drops(1) >= last.dropped, "the senders count what they lose");
    }
}

#[test]
fn a_switch_that_pauses_loses_nothing() {
    let switch = "[switch]\nqueue_bytes = 40000\n[switch.pause]\nxoff_bytes = 20000\nxon_bytes = 10000\n";
    for (net, wire) in [(145, Wire::Auto), (146, Wire::Udp)] {
        let scene = StarNetwork::new(net, 3, wire, STAR, &format!("{CABLES}{switch}"));
        let took = scene.incast(2, PATIENT);
        let queues = scene.queues();
        assert_bounded(took, &scene.last(), 4 * LENGTH as u64);
        assert!(queues.iter().all(|queue| queue.dropped == 0), "{wire:?}: {queues:?}");
        assert!(queues[..3].iter().any(|queue| queue.pauses > 0), "{wire:?}: {queues:?}");
        assert!(scene.last().most_bytes <= 40_000);
    }
}

#[test]
fn two_tiers_join_hosts_over_leaves_and_a_spine() {
    let kind = "kind = \"two-tier\"\nleaves = 2\nspines = 1";
    let rest =
        format!("{CABLES}[uplink]\nrate_mbps = 500\ndelay_ns = 5000\n[switch]\nqueue_bytes = 4000000\n");
    let scene = StarNetwork::new(147, 4, Wire::Auto, kind, &rest);
    let took = scene.incast(1, PATIENT);
    assert_bounded(took, &scene.last(), 3 * LENGTH as u64);
    let queues = scene.queues();
    let of = |name: &str| queues.iter().find(|queue| queue.name == name).unwrap();
    // Two of the three senders are at the other leaf.
    let spine = of("spine 0 to leaf 1");
    assert!(spine.packets > 0 && spine.packets <= of("leaf 0 to spine 0").packets, "{queues:?}");
    assert!(spine.sent_bytes >= 2 * LENGTH as u64 && scene.last().sent_bytes > spine.sent_bytes);
    assert!(queues.iter().all(|queue| queue.dropped == 0));
}

#[test]
fn a_file_full_of_nonsense_lets_packets_pass() {
    let rest = "[link]\nrate_mbps = 10000\ndelay_ns = 1000\n[switch]\nqueue_bytes = 400000\n";
    let scene = StarNetwork::new(148, 3, Wire::Auto, STAR, rest);
    let switching = share::switches(&scene.topology).unwrap();
    for value in [u64::MAX, 1 << 63, 0x0123_4567_89ab_cdef] {
        for word in switching.words.words() {
            word.store(value, std::sync::atomic::Ordering::Relaxed);
        }
        scene.incast(1, PATIENT);
    }
}

#[test]
fn a_device_that_is_no_host_is_refused() {
    let text = "kind = \"star\"\nhosts = [\"127.89.149.1\"]\n[link]\nrate_mbps = 1\ndelay_ns = 0\n\
                [switch]\nqueue_bytes = 10000\n";
    let options = DeviceOptions::new().addresses([IpAddr::V4(Ipv4Addr::new(127, 89, 149, 9))]);
    let error = Device::open(options.topology(Topology::parse(text).unwrap())).err().unwrap();
    assert!(matches!(error, VerbsError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("(127.89.149.9) is one of its hosts (127.89.149.1)"), "{error}");
}
