//! Senders that share one link of 100 Gb/s, whose switch marks, and trims or drops. NSCC fills the link, and
//! shares it.

use std::collections::BTreeMap;

use pumice_transport::host::PeerProgress;
use pumice_transport::mrc::congestion::{Nscc, NsccParameters};
use pumice_transport::mrc::entropy::{MrcArrival, MrcOutgoingPacket, Trim};
use pumice_transport::mrc::paths::EvProfile;
use pumice_transport::mrc::{
    MrcQueuePair, MrcSettings, MrcStatistics, RequesterAttributes, ResponderAttributes,
};
use pumice_transport::types::{Mtu, QpState, RemoteTarget, SendOpcode, SendRequest, Sge};
use pumice_transport::wire::{Psn, Qpn};

use crate::device::{Device, KEY, Out, context};

const RATE: f64 = 12.5;
const BASE_RTT_NS: u64 = 12_000;
/// Bandwidth times round trip.
const BDP: f64 = RATE * BASE_RTT_NS as f64;
/// Ethernet, IP and UDP of each packet, with the gap between frames.
const LINK_OVERHEAD_BYTES: usize = 66;
const MESSAGE_BYTES: u32 = 1 << 16;
const OUTSTANDING: usize = 16;
const MTU: Mtu = Mtu::Mtu4096;

struct Packet {
    flow: usize,
    /// 0: the sender, 1: the receiver.
    to: usize,
    arrival: MrcArrival,
    bytes: Vec<u8>,
}

/// A sender and its receiver.
struct Flow {
    ends: [(MrcQueuePair, Device); 2],
    /// When the sender's port has sent what it has.
    port_free_ns: u64,
}

impl Flow {
    fn new(number: usize, has_trimming: bool) -> Flow {
        let end = |index: u32| {
            let mut qp =
                MrcQueuePair::new(MrcSettings::new(context(0x11 + index), Qpn::new(0x12 - index), MTU));
            qp.to_rtr(&ResponderAttributes::new(Psn::new(7)));
            let seed = number as u64 * 2 + u64::from(index);
            let parameters = NsccParameters::new(MTU.bytes() as u32, RATE, BASE_RTT_NS, has_trimming);
            qp.to_rts(RequesterAttributes {
                has_trimming,
                base_rtt_ns: BASE_RTT_NS,
                congestion: Box::new(Nscc::new(parameters)),
                ..RequesterAttributes::new(Psn::new(7), EvProfile::automatic(seed, 4, false), seed)
            });
            (qp, Device::new())
        };
        Flow { ends: [end(0), end(1)], port_free_ns: 0 }
    }

    fn post(&mut self) {
        let (qp, device) = &mut self.ends[0];
        while qp.outstanding() < OUTSTANDING {
            let list = [Sge { address: 0, length: MESSAGE_BYTES, lkey: KEY }];
            let request = SendRequest {
                sges: &list,
                remote: RemoteTarget { address: 1 << 19, rkey: KEY },
                ..SendRequest::new(0, SendOpcode::RdmaWrite)
            };
            qp.post_send(&request, device).unwrap();
        }
    }

    fn statistics(&self) -> MrcStatistics {
        self.ends[0].0.statistics()
    }

    fn delivered_bytes(&self) -> u64 {
        self.ends[1].1.written_bytes
    }
}

/// A switch with one port, and what flows through it.
struct Bottleneck {
    flows: Vec<Flow>,
    has_trimming: bool,
    under_way: BTreeMap<(u64, u64), Packet>,
    packets: u64,
    free_ns: u64,
    now_ns: u64,
    longest_queue: f64,
}

impl Bottleneck {
    fn new(flows: usize, has_trimming: bool) -> Bottleneck {
        Bottleneck {
            flows: (0..flows).map(|number| Flow::new(number, has_trimming)).collect(),
            has_trimming,
            under_way: BTreeMap::new(),
            packets: 0,
            free_ns: 0,
            now_ns: 1_000_000,
            longest_queue: 0.0,
        }
    }

    /// A packet of a sender comes to the switch.
    fn forward(&mut self, flow: usize, departure: MrcOutgoingPacket, mut bytes: Vec<u8>) {
        let link_bytes = (bytes.len() + LINK_OVERHEAD_BYTES) as f64;
        let queue = self.free_ns.saturating_sub(self.now_ns) as f64 * RATE;
        self.longest_queue = self.longest_queue.max(queue);
        let most = if self.has_trimming { BDP } else { 4.0 * BDP };
        let is_full = queue > most && bytes.len() > 1000;
        if is_full && !self.has_trimming {
            return;
        }
        // From 0.2 to 0.8 of the product, more and more are marked.
        let share = ((queue / BDP - 0.2) / 0.6).clamp(0.0, 1.0);
        let congested = (self.packets * 7919 % 1000) as f64 <= share * 1000.0 - 1.0;
        let mut left_ns = self.now_ns;
        if is_full {
            bytes.truncate(40);
        } else {
            self.free_ns = self.free_ns.max(self.now_ns) + (link_bytes / RATE) as u64;
            left_ns = self.free_ns;
        }
        let trim = is_full.then_some(Trim::EarlierHop);
        let arrival = MrcArrival { entropy: departure.entropy, plane: departure.plane, congested, trim };
        self.deliver(left_ns, Packet { flow, to: 1, arrival, bytes });
    }

    fn deliver(&mut self, left_ns: u64, packet: Packet) {
        self.packets += 1;
        self.under_way.insert((left_ns + BASE_RTT_NS / 2, self.packets), packet);
    }

    /// Senders send one packet when their port is free; answers have a network for themselves.
    fn send(&mut self) {
        for turn in 0..self.flows.len() {
            // None comes first each time.
            let index = (turn + self.packets as usize) % self.flows.len();
            self.flows[index].post();
            let Flow { ends: [(qp, device), (peer, peers_device)], port_free_ns } = &mut self.flows[index];
            let mut out = Out { packets: Vec::new(), room: 1 };
            if *port_free_ns <= self.now_ns && qp.wants_to_send() {
                qp.transmit(self.now_ns, device, &mut out);
                let bytes: usize =
                    out.packets.iter().map(|(_, bytes)| bytes.len() + LINK_OVERHEAD_BYTES).sum();
                *port_free_ns = self.now_ns + (bytes as f64 / RATE) as u64;
            }
            let mut back = Out { packets: Vec::new(), room: 64 };
            peer.transmit(self.now_ns, peers_device, &mut back);
            for (departure, bytes) in out.packets {
                self.forward(index, departure, bytes);
            }
            for (departure, bytes) in back.packets {
                let MrcOutgoingPacket { entropy, plane, .. } = departure;
                let arrival = MrcArrival { entropy, plane, congested: false, trim: None };
                self.deliver(self.now_ns, Packet { flow: index, to: 0, arrival, bytes });
            }
        }
    }

    fn step(&mut self) {
        self.send();
        let arrives = self.under_way.keys().next().map(|(at, _)| *at);
        let ports = self.flows.iter().filter(|flow| flow.ends[0].0.wants_to_send());
        let ports = ports.map(|flow| flow.port_free_ns.max(self.now_ns + 1)).min();
        let ends = self.flows.iter().flat_map(|flow| &flow.ends);
        let expires = ends.filter_map(|(qp, _)| qp.deadline_ns()).min();
        let next = arrives.into_iter().chain(ports).chain(expires).min().expect("something happens");
        self.now_ns = self.now_ns.max(next);
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now_ns) {
            let Packet { flow, to, arrival, bytes } = entry.remove();
            let (qp, device) = &mut self.flows[flow].ends[to];
            qp.handle_datagram(self.now_ns, &arrival, &bytes, device).unwrap();
        }
        for (qp, device) in self.flows.iter_mut().flat_map(|flow| &mut flow.ends) {
            if qp.deadline_ns().is_some_and(|due| due <= self.now_ns) {
                qp.handle_timeout(self.now_ns, PeerProgress::Unknown, device);
            }
            device.sent.clear();
            assert_eq!(qp.state(), QpState::Rts);
        }
    }

    /// The share of the line that data has in a time, and of it that of each flow.
    fn run(&mut self, time_ns: u64) -> (f64, Vec<f64>) {
        let end_ns = self.now_ns + time_ns;
        let before: Vec<u64> = self.flows.iter().map(Flow::delivered_bytes).collect();
        while self.now_ns < end_ns {
            self.step();
        }
        let after = self.flows.iter().map(Flow::delivered_bytes);
        let bytes: Vec<f64> = after.zip(before).map(|(after, before)| (after - before) as f64).collect();
        let sum: f64 = bytes.iter().sum();
        // Payload's share of a full packet on the link.
        let payload = 4096.0 / (4096 + 36 + 4 + LINK_OVERHEAD_BYTES) as f64;
        (sum / (time_ns as f64 * RATE * payload), bytes.iter().map(|one| one / sum).collect())
    }
}

#[expect(clippy::print_stdout, reason = "what was measured")]
fn measured(name: &str, flows: usize, has_trimming: bool) -> (f64, Vec<f64>, Bottleneck) {
    let mut bottleneck = Bottleneck::new(flows, has_trimming);
    // Until windows have found their sizes.
    let _ = bottleneck.run(1_000_000);
    let (line, shares) = bottleneck.run(4_000_000);
    let rounded: Vec<f64> = shares.iter().map(|share| (share * 1000.0).round() / 1000.0).collect();
    let queue = bottleneck.longest_queue / BDP;
    println!("{name}: {line:.3} of the line, shares {rounded:?}, longest queue {queue:.2} BDP");
    for statistics in bottleneck.flows.iter().map(Flow::statistics) {
        println!("  {statistics:?}");
    }
    (line, shares, bottleneck)
}

#[test]
fn one_sender_fills_the_line() {
    for has_trimming in [false, true] {
        let (line, _, bottleneck) = measured("one sender", 1, has_trimming);
        let statistics = bottleneck.flows[0].statistics();
        assert!(line > 0.96 && line < 1.01, "{line}");
        assert_eq!((statistics.retransmitted, statistics.timeouts), (0, 0));
    }
}

#[test]
fn seven_senders_share_the_line() {
    for (name, has_trimming) in [("seven, trimmed", true), ("seven, dropped", false)] {
        let (line, shares, bottleneck) = measured(name, 7, has_trimming);
        assert!(line > 0.9, "{name}: {line}");
        assert!(shares.iter().all(|share| (0.5 / 7.0..1.5 / 7.0).contains(share)), "{name}: {shares:?}");
        let statistics: Vec<MrcStatistics> = bottleneck.flows.iter().map(Flow::statistics).collect();
        assert!(statistics.iter().all(|statistics| statistics.timeouts == 0), "{name}");
        let lost: u64 = statistics.iter().map(|statistics| statistics.retransmitted).sum();
        let trimmed: u64 = statistics.iter().map(|statistics| statistics.trims).sum();
        assert!(lost > 0 && (trimmed > 0) == has_trimming, "{name}: {lost} {trimmed}");
    }
}
