//! Queue pairs of SRD on a network that loses, duplicates and reorders packets: each message arrives once.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::SrdOrder;
use super::header::{HEADER_BYTES, MAX_SEND_BYTES, SrdHeader, SrdPacketKind};
use crate::host::QpContext;
use crate::path::{Arrival, Flow, ROCE_PORT};
use crate::qp::network_kit::{
    KEY, MEMORY, Random, SentPackets, TestHost, WRONG_KEY, Weather, address_of, path,
};
use crate::qp::{
    AttributeMask, Congestion, ModifyLimits, Progress, QpAttributes, QpConfig, QueuePair, Urgency,
};
use crate::types::{
    Mtu, QpCapacity, QpState, QpType, RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge, UdDestination,
    VendorService, WcFlags, WcOpcode, WcStatus, WorkCompletion,
};
use crate::wire::{Packet, Qpn};

const QKEY: u32 = 0x1111_1111;

struct Node {
    qp: QueuePair,
    device: TestHost,
    address: IpAddr,
}

/// Creates a queue pair in RTS.
pub(in crate::qp) fn queue_pair(
    qpn: Qpn,
    order: SrdOrder,
    rnr_retry: Option<u8>,
    device: &mut TestHost,
) -> QueuePair {
    let context = QpContext {
        qpn,
        pd: 0,
        send_cq: 0,
        recv_cq: 0,
        recv_queue: 0,
        xrcd: 0,
        ordinal: qpn.value(),
        out_of_order: false,
    };
    let capacity =
        QpCapacity { max_send_wr: 512, max_send_sge: 2, max_inline_data: 32, ..Default::default() };
    let mut qp = QueuePair::new(QpConfig {
        context,
        qp_type: QpType::Srd,
        capacity,
        signal_all: false,
        has_srq: false,
        port_mtu_bytes: 1024,
        congestion: Congestion::default(),
        adaptive_timeout: None,
    });
    qp.set_vendor_service(VendorService::Srd { takes_unsolicited: false }, order);
    let limits = ModifyLimits {
        active_mtu: Mtu::Mtu1024,
        max_rd_atomic_initiator: 1,
        max_rd_atomic_target: 1,
        pkey_table_len: 1,
        gid_table_len: 1,
        port_count: 1,
        privileged_qkey: true,
    };
    let mut attributes = QpAttributes { qkey: QKEY, port_num: 1, ..QpAttributes::default() };
    attributes.rnr_retry = rnr_retry.unwrap_or(0);
    let rnr = if rnr_retry.is_some() { AttributeMask::RNR_RETRY } else { AttributeMask::empty() };
    for (state, mask) in [
        (QpState::Init, AttributeMask::PKEY_INDEX | AttributeMask::PORT | AttributeMask::QKEY),
        (QpState::Rtr, AttributeMask::empty()),
        (QpState::Rts, AttributeMask::SQ_PSN | rnr),
    ] {
        attributes.qp_state = state as u32;
        qp.modify(&attributes, mask | AttributeMask::STATE, &limits, None, device).unwrap();
    }
    qp.set_pkey(0xffff);
    qp
}

impl Node {
    fn new(index: usize, peers: usize, order: SrdOrder, rnr_retry: Option<u8>) -> Node {
        let mut device = TestHost::new((0..peers).map(address_of));
        let qp = queue_pair(Qpn::new(0x100 + index as u32), order, rnr_retry, &mut device);
        Node { qp, device, address: address_of(index) }
    }

    fn post(&mut self, request: &SendRequest<'_>) {
        self.qp.post_send(request, &mut self.device).unwrap();
    }

    fn take(&mut self, flow: &Flow, bytes: &[u8], now_ns: u64) {
        let arrival = Arrival { flow, traffic_class: 0, hop_limit: 64 };
        let packet = Packet::parse(bytes).unwrap();
        self.qp.handle_packet(now_ns, &arrival, &packet, &mut self.device);
    }
}

struct Network {
    nodes: Vec<Node>,
    under_way: BTreeMap<(u64, u64), (Flow, Vec<u8>)>,
    random: Random,
    weather: Weather,
    now_ns: u64,
    packets: u64,
    /// Headers of each packet that was sent.
    log: Vec<SrdHeader>,
}

impl Network {
    fn new(count: usize, seed: u64, weather: Weather, order: SrdOrder, rnr_retry: Option<u8>) -> Network {
        Network {
            nodes: (0..count).map(|index| Node::new(index, count, order, rnr_retry)).collect(),
            under_way: BTreeMap::new(),
            random: Random(seed),
            weather,
            now_ns: 1_000_000,
            packets: 0,
            log: Vec::new(),
        }
    }

    /// Sends all packets that can leave now.
    fn send(&mut self) {
        for index in 0..self.nodes.len() {
            for _ in 0..100 {
                let mut out = SentPackets { packets: Vec::new(), room: 1 + self.random.below(8) as usize };
                let Node { qp, device, .. } = &mut self.nodes[index];
                let mut blocked = false;
                if qp.response_urgency() > Urgency::None {
                    blocked |= qp.transmit_responses(self.now_ns, device, &mut out) == Progress::Blocked;
                }
                if qp.wants_to_send() {
                    blocked |= qp.transmit_requests(self.now_ns, device, &mut out) == Progress::Blocked;
                }
                for (flow, bytes) in out.packets {
                    let packet = Packet::parse(&bytes).unwrap();
                    self.log.push(SrdHeader::parse(packet.payload()).unwrap().0);
                    if self.random.below(1000) < self.weather.lost {
                        continue;
                    }
                    let copies = if self.random.below(1000) < self.weather.twice { 2 } else { 1 };
                    for _ in 0..copies {
                        let at = self.now_ns + 1 + self.random.below(self.weather.longest_ns);
                        self.packets += 1;
                        self.under_way.insert((at, self.packets), (flow, bytes.clone()));
                    }
                }
                if !blocked {
                    break;
                }
            }
        }
    }

    /// Handles the next event; returns false if there is none.
    fn step(&mut self) -> bool {
        self.send();
        let arrives = self.under_way.keys().next().map(|(at, _)| *at);
        let expires = self.nodes.iter().filter_map(|node| node.qp.deadline_ns()).min();
        let Some(next) = arrives.into_iter().chain(expires).min() else { return false };
        self.now_ns = self.now_ns.max(next);
        while let Some(entry) = self.under_way.first_entry() {
            if entry.key().0 > self.now_ns {
                break;
            }
            let (flow, bytes) = entry.remove();
            if let Some(node) = self.nodes.iter_mut().find(|node| node.address == flow.destination) {
                node.take(&flow, &bytes, self.now_ns);
            }
        }
        for node in &mut self.nodes {
            if node.qp.deadline_ns().is_some_and(|due| due <= self.now_ns) {
                node.qp.handle_timeout(self.now_ns, Default::default(), &mut node.device);
            }
        }
        true
    }

    fn run(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 1_000_000, "it does not end");
        }
    }
}

fn request(wr_id: u64, opcode: SendOpcode, (from, to): (usize, usize), sges: &[Sge]) -> SendRequest<'_> {
    let ud = UdDestination { path: path(from, to), qpn: Qpn::new(0x100 + to as u32), qkey: QKEY };
    SendRequest {
        sges,
        ud: Some(ud),
        imm_data: (wr_id as u32).to_be_bytes(),
        ..SendRequest::new(wr_id, opcode)
    }
}

fn sge(address: u64, length: u32) -> Sge {
    Sge { address, length, lkey: KEY }
}

const CALM: Weather = Weather { lost: 0, twice: 0, longest_ns: 1 };

/// Distance between the data of messages in memory, and address of the receive buffers.
const SLOT: u64 = 9216;
const TO_RECEIVE: u64 = 512 * 1024;

fn one_seed(seed: u64) {
    let mut random = Random(seed ^ 0x5eed);
    let weather = Weather {
        lost: random.below(300),
        twice: random.below(300),
        longest_ns: 1 + random.below(20_000_000),
    };
    let mut network = Network::new(3, seed, weather, SrdOrder::Seed(seed), None);
    let slots = 12;
    // Each entry is the expected arrival of a message: from, to, operation, slot, length.
    let mut posted = Vec::new();
    for slot in 0..slots {
        for from in 0..3 {
            let to = (from + 1 + random.below(2) as usize) % 3;
            let length = random.below(u64::from(MAX_SEND_BYTES) + 1) as u32;
            let start = (slot * SLOT) as usize;
            let memory = &mut network.nodes[from].device.memory;
            memory[start..start + length as usize].fill((1 + slot * 3 + from as u64) as u8);
            let opcode = [
                SendOpcode::Send,
                SendOpcode::SendWithImm,
                SendOpcode::RdmaWrite,
                SendOpcode::RdmaWriteWithImm,
                SendOpcode::RdmaRead,
            ][random.below(5) as usize];
            let wr_id = slot * 3 + from as u64;
            let list = [sge(slot * SLOT, length)];
            let mut wanted = request(wr_id, opcode, (from, to), &list);
            // WRITEs of each node have addresses of their own, and reads use these too.
            let remote = 256 * 1024 + (slot * 3 + from as u64) % 28 * SLOT;
            wanted.remote = RemoteTarget { address: remote, rkey: KEY };
            network.nodes[from].post(&wanted);
            posted.push((from, to, opcode, wr_id, length, remote));
        }
    }
    // Receives are posted late, and in parts.
    let mut next = [0_u64; 3];
    for round in 0..200_000 {
        if !network.step() {
            break;
        }
        if round % 5 == 0 {
            let to = random.below(3) as usize;
            if next[to] < 40 {
                let place = TO_RECEIVE + next[to] * SLOT;
                network.nodes[to].device.receives.push_back((next[to], sge(place, SLOT as u32)));
                next[to] += 1;
            }
        }
        assert!(round + 1 < 200_000, "seed {seed}: it does not end");
    }
    for (index, node) in network.nodes.iter().enumerate() {
        assert_eq!(node.qp.state(), QpState::Rts);
        let ids: BTreeSet<u64> = node.device.sent.iter().map(|done| done.wr_id).collect();
        assert_eq!((ids.len(), node.device.sent.len()), (slots as usize, slots as usize), "seed {seed}");
        assert!(node.device.sent.iter().all(|done| done.status == WcStatus::Success), "seed {seed}");
        let mut expected: Vec<(u32, u32)> = Vec::new();
        for (from, to, opcode, wr_id, length, _) in &posted {
            if *to == index && !matches!(opcode, SendOpcode::RdmaWrite | SendOpcode::RdmaRead) {
                let imm = if *opcode == SendOpcode::Send { 0 } else { *wr_id as u32 };
                expected.push((*length, imm));
                assert_ne!(from, to);
            }
        }
        let mut incoming: Vec<(u32, u32)> = Vec::new();
        for done in &node.device.received {
            assert_eq!((done.status, done.slid), (WcStatus::Success, 3), "seed {seed}");
            incoming.push((done.byte_len, u32::from_be_bytes(done.imm_data)));
            let has_imm = done.flags == WcFlags::WITH_IMM;
            assert!(has_imm || done.flags.is_empty());
            if done.opcode == WcOpcode::Recv && done.byte_len > 0 {
                let start = (TO_RECEIVE + done.wr_id * SLOT) as usize;
                let bytes = &node.device.memory[start..start + done.byte_len as usize];
                let from = done.src_qp - 0x100;
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "seed {seed}: a message is torn");
                assert_eq!(u32::from(bytes[0] - 1) % 3, from, "seed {seed}");
                if has_imm {
                    assert_eq!(u32::from(bytes[0] - 1), u32::from_be_bytes(done.imm_data), "seed {seed}");
                }
            }
        }
        expected.sort_unstable();
        incoming.sort_unstable();
        assert_eq!(incoming, expected, "seed {seed}");
    }
}

#[test]
fn each_message_arrives_once_whatever_the_network_does() {
    for seed in 0..60 {
        one_seed(seed);
    }
}

#[test]
fn a_write_that_comes_late_a_second_time_changes_nothing() {
    let mut network = Network::new(2, 1, CALM, SrdOrder::InOrder, None);
    network.nodes[0].device.memory[..2000].fill(9);
    let list = [sge(0, 2000)];
    let mut wanted = request(1, SendOpcode::RdmaWrite, (0, 1), &list);
    wanted.remote = RemoteTarget { address: 4096, rkey: KEY };
    network.nodes[0].post(&wanted);
    network.send();
    let copies: Vec<(Flow, Vec<u8>)> = network.under_way.values().cloned().collect();
    network.run();
    assert_eq!(network.nodes[0].device.sent[0].status, WcStatus::Success);
    assert!(network.nodes[1].device.memory[4096..6096].iter().all(|byte| *byte == 9));
    network.nodes[1].device.memory[4096..6096].fill(5);
    let now_ns = network.now_ns;
    copies.iter().for_each(|(flow, bytes)| network.nodes[1].take(flow, bytes, now_ns));
    // The next message reports that the first one has ended; copies have no effect after that either.
    network.nodes[1].device.receives.push_back((0, sge(0, 64)));
    network.nodes[0].post(&request(2, SendOpcode::Send, (0, 1), &[]));
    network.run();
    copies.iter().for_each(|(flow, bytes)| network.nodes[1].take(flow, bytes, now_ns));
    assert!(network.nodes[1].device.memory[4096..6096].iter().all(|byte| *byte == 5));
    assert_eq!(network.nodes[1].device.received.len(), 1);
}

/// A user of the peer's host can send from its address, and may know all numbers, but has another port.
#[test]
fn what_comes_from_the_peers_address_and_another_port_changes_nothing() {
    let mut network = Network::new(2, 1, CALM, SrdOrder::InOrder, None);
    network.nodes[1].device.receives.push_back((7, sge(0, 64)));
    network.nodes[0].post(&request(1, SendOpcode::Send, (0, 1), &[]));
    network.send();
    let now_ns = network.now_ns;
    let forged = |flow: Flow| Flow { source_port: 50_000, ..flow };
    let messages: Vec<(Flow, Vec<u8>)> = network.under_way.values().cloned().collect();
    assert_eq!(
        (messages.len(), messages[0].0.source_port),
        (1, ROCE_PORT),
        "without regard to the address handle"
    );
    network.nodes[1].take(&forged(messages[0].0), &messages[0].1, now_ns);
    assert!(network.nodes[1].device.received.is_empty() && network.nodes[1].device.receives.len() == 1);
    network.under_way.clear();
    network.nodes[1].take(&messages[0].0, &messages[0].1, now_ns);
    assert_eq!(network.nodes[1].device.received.len(), 1);
    network.send();
    let answers: Vec<(Flow, Vec<u8>)> = network.under_way.values().cloned().collect();
    assert_eq!((answers.len(), answers[0].0.source_port), (1, ROCE_PORT));
    network.nodes[0].take(&forged(answers[0].0), &answers[0].1, now_ns);
    assert!(network.nodes[0].device.sent.is_empty());
    network.nodes[0].take(&answers[0].0, &answers[0].1, now_ns);
    assert_eq!(network.nodes[0].device.sent.len(), 1);
}

#[test]
fn a_message_that_ended_without_a_receive_request_does_not_arrive_later() {
    for rnr_retry in [0, 1, 3] {
        let mut network = Network::new(2, 4, CALM, SrdOrder::InOrder, Some(rnr_retry));
        network.nodes[0].post(&request(1, SendOpcode::Send, (0, 1), &[sge(0, 2000)]));
        network.send();
        let copies: Vec<(Flow, Vec<u8>)> = network.under_way.values().cloned().collect();
        assert_eq!(ends(&mut network), [(1, WcStatus::RnrRetryExcErr, 10)], "{rnr_retry}");
        network.nodes[1].device.receives.push_back((0, sge(0, 4096)));
        let now_ns = network.now_ns;
        copies.iter().for_each(|(flow, bytes)| network.nodes[1].take(flow, bytes, now_ns));
        assert!(network.nodes[1].device.received.is_empty(), "{rnr_retry}: a copy was taken for the message");
        // Another message has an effect.
        network.nodes[0].post(&request(2, SendOpcode::Send, (0, 1), &[sge(0, 2000)]));
        assert_eq!(ends(&mut network)[1], (2, WcStatus::Success, 0), "{rnr_retry}");
        assert_eq!(network.nodes[1].device.received.len(), 1, "{rnr_retry}");
    }
}

/// Returns the results of requests that are posted at once, by their wr_id.
fn ends(network: &mut Network) -> Vec<(u64, WcStatus, u32)> {
    network.run();
    let mut ends: Vec<_> =
        network.nodes[0].device.sent.iter().map(|done| (done.wr_id, done.status, done.vendor_err)).collect();
    ends.sort_unstable_by_key(|end| end.0);
    assert_eq!(network.nodes[0].qp.state(), QpState::Rts);
    ends
}

#[test]
fn what_one_message_meets_does_not_touch_the_others() {
    let mut network = Network::new(2, 3, CALM, SrdOrder::InOrder, Some(2));
    let (short, long, keyless) = ([sge(0, 8)], [sge(0, 9000)], [Sge { lkey: WRONG_KEY, ..sge(0, 8) }]);
    network.nodes[1].device.receives.push_back((50, sge(0, 64)));
    network.nodes[1].device.receives.push_back((51, sge(0, 4)));
    let node = &mut network.nodes[0];
    node.post(&request(1, SendOpcode::Send, (0, 1), &short));
    node.post(&request(2, SendOpcode::Send, (0, 1), &short));
    node.post(&request(3, SendOpcode::Send, (0, 1), &long));
    node.post(&request(4, SendOpcode::Send, (0, 1), &keyless));
    let mut write = request(5, SendOpcode::RdmaWrite, (0, 1), &short);
    write.remote = RemoteTarget { address: 0, rkey: WRONG_KEY };
    node.post(&write);
    let mut read = request(6, SendOpcode::RdmaRead, (0, 1), &short);
    read.remote = RemoteTarget { address: MEMORY as u64, rkey: KEY };
    node.post(&read);
    // No node has that address.
    node.post(&request(7, SendOpcode::Send, (0, 9), &short));
    // No receive request is left.
    node.post(&request(8, SendOpcode::Send, (0, 1), &short));
    read.wr_id = 9;
    read.remote.address = 0;
    node.post(&read);
    assert_eq!(
        ends(&mut network),
        [
            (1, WcStatus::Success, 0),
            (2, WcStatus::RemInvReqErr, 11),
            (3, WcStatus::LocLenErr, 6),
            (4, WcStatus::LocProtErr, 5),
            (5, WcStatus::RemAccessErr, 7),
            (6, WcStatus::RemAccessErr, 7),
            (7, WcStatus::RespTimeoutErr, 13),
            (8, WcStatus::RnrRetryExcErr, 10),
            (9, WcStatus::Success, 0),
        ]
    );
    let received: Vec<_> = network.nodes[1]
        .device
        .received
        .iter()
        .map(|done| (done.wr_id, done.status, done.vendor_err))
        .collect();
    assert_eq!(received, [(50, WcStatus::Success, 0), (51, WcStatus::LocLenErr, 6)]);
    // READ has the opcode of SEND.
    assert!(network.nodes[0].device.sent.iter().all(|done| done.opcode != WcOpcode::RdmaRead));
}

#[test]
fn a_peer_of_the_same_host_that_stays_silent_is_gone() {
    let mut network = Network::new(2, 3, CALM, SrdOrder::InOrder, Some(2));
    for (wr_id, destination) in [(1, [127, 0, 0, 9]), (2, [10, 0, 0, 9])] {
        let list = [sge(0, 8)];
        let mut wanted = request(wr_id, SendOpcode::Send, (0, 9), &list);
        if let Some(ud) = &mut wanted.ud {
            Arc::make_mut(&mut ud.path).flow.destination = IpAddr::from(destination);
        }
        network.nodes[0].post(&wanted);
    }
    let expected = [(1, WcStatus::RemInvRdReqErr, 9), (2, WcStatus::RespTimeoutErr, 13)];
    assert_eq!(ends(&mut network), expected);
}

#[test]
fn memory_is_open_only_to_those_that_have_an_address_handle_here() {
    let mut network = Network::new(2, 3, CALM, SrdOrder::InOrder, None);
    network.nodes[1].device.knows.clear();
    network.nodes[1].device.receives.push_back((50, sge(0, 64)));
    let list = [sge(0, 8)];
    for (wr_id, opcode) in
        [(1, SendOpcode::RdmaRead), (2, SendOpcode::RdmaWrite), (3, SendOpcode::RdmaWriteWithImm)]
    {
        let mut wanted = request(wr_id, opcode, (0, 1), &list);
        wanted.remote = RemoteTarget { address: 0, rkey: KEY };
        network.nodes[0].post(&wanted);
    }
    network.nodes[0].post(&request(4, SendOpcode::Send, (0, 1), &list));
    let unknown = (WcStatus::RemOpErr, 14);
    let expected = [1, 2, 3].map(|wr_id| (wr_id, unknown.0, unknown.1));
    assert_eq!(ends(&mut network)[..3], expected);
    assert_eq!(network.nodes[1].device.received[0].slid, 0xffff);
    assert_eq!(network.nodes[1].qp.srd_source(Qpn::new(0x100)), Some(address_of(0)));
}

#[test]
fn messages_leave_in_the_order_that_was_asked_for() {
    let order_of = |order| {
        let mut network = Network::new(2, 1, CALM, order, None);
        for wr_id in 0..8_u32 {
            network.nodes[1].device.receives.push_back((wr_id.into(), sge(0, 64)));
            network.nodes[0].post(&request(wr_id.into(), SendOpcode::SendWithImm, (0, 1), &[]));
        }
        network.run();
        let sent = network.log.iter().filter(|header| header.kind == SrdPacketKind::SendImm);
        sent.map(|header| u32::from_be_bytes(header.imm)).collect::<Vec<_>>()
    };
    assert_eq!(order_of(SrdOrder::InOrder), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(order_of(SrdOrder::Reverse), [7, 6, 5, 4, 3, 2, 1, 0]);
    let shuffled = order_of(SrdOrder::Seed(5));
    assert_eq!(shuffled, order_of(SrdOrder::Seed(5)));
    assert!(!shuffled.is_sorted() && shuffled.len() == 8, "{shuffled:?}");
}

#[test]
fn a_post_has_the_flags_of_srd() {
    let mut network = Network::new(2, 1, CALM, SrdOrder::InOrder, None);
    let list = [sge(0, 8), sge(8, 8)];
    let node = &mut network.nodes[0];
    let mut wanted = request(1, SendOpcode::Send, (0, 1), &list);
    for flags in [SendFlags::empty(), SendFlags::SIGNALED | SendFlags::FENCE, SendFlags::SOLICITED] {
        wanted.flags = flags;
        assert!(node.qp.post_send(&wanted, &mut node.device).is_err(), "{flags:?}");
    }
    let mut write = request(1, SendOpcode::RdmaWrite, (0, 1), &list);
    write.remote = RemoteTarget { address: 0, rkey: KEY };
    assert!(node.qp.post_send(&write, &mut node.device).is_err());
    assert!(node.device.sent.is_empty());
}

#[test]
fn headers_of_any_kind_harm_nothing() {
    let mut random = Random(77);
    let mut network = Network::new(2, 1, CALM, SrdOrder::InOrder, None);
    let list = [sge(0, 3000)];
    network.nodes[0].post(&request(1, SendOpcode::Send, (0, 1), &list));
    network.send();
    let (flow, bytes) = network.under_way.values().next().cloned().unwrap();
    let back = Flow { source: flow.destination, destination: flow.source, ..flow };
    for _ in 0..50_000 {
        let mut forged = bytes.clone();
        let headers = bytes.len() - Packet::parse(&bytes).unwrap().payload().len() - 4;
        for _ in 0..1 + random.below(4) {
            let at = headers + 4 + random.below(HEADER_BYTES as u64 - 4) as usize;
            forged[at] = random.below(256) as u8;
        }
        network.now_ns += 1000;
        let now_ns = network.now_ns;
        network.nodes[1].take(&flow, &forged, now_ns);
        network.nodes[0].take(&back, &forged, now_ns);
    }
    network.nodes[1].device.receives.push_back((50, sge(0, 9000)));
    network.under_way.clear();
    network.run();
    assert_eq!(network.nodes[0].device.sent.len(), 1);
}

#[test]
fn a_write_that_is_not_asked_for_takes_no_receive_request_and_is_not_carried_out_twice() {
    for seed in 0..30 {
        let weather = Weather { lost: 200, twice: 300, longest_ns: 1_000_000 };
        let mut network = Network::new(2, seed, weather, SrdOrder::Seed(seed), Some(0));
        let own = VendorService::Srd { takes_unsolicited: true };
        network.nodes[1].qp.set_vendor_service(own, SrdOrder::InOrder);
        assert!(network.nodes[1].qp.takes_unsolicited() && !network.nodes[0].qp.takes_unsolicited());
        for wr_id in 1..=20 {
            let list = [sge(0, 5000)];
            let mut wanted = request(wr_id, SendOpcode::RdmaWriteWithImm, (0, 1), &list);
            wanted.remote = RemoteTarget { address: wr_id * SLOT, rkey: KEY };
            network.nodes[0].post(&wanted);
        }
        network.run();
        let (sent, received) = (&network.nodes[0].device.sent, &network.nodes[1].device.received);
        assert!(sent.len() == 20 && sent.iter().all(|done| done.status == WcStatus::Success), "seed {seed}");
        let incoming: BTreeSet<u32> = received.iter().map(|done| u32::from_be_bytes(done.imm_data)).collect();
        assert_eq!((incoming, received.len()), ((1..=20).collect(), 20), "seed {seed}");
        let is_it = |done: &WorkCompletion| {
            (done.wr_id, done.opcode, done.byte_len) == (0, WcOpcode::RecvRdmaWithImm, 5000)
        };
        assert!(received.iter().all(is_it), "seed {seed}");
    }
}
