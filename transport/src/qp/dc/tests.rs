//! Initiators and targets of DC on a network that loses, duplicates and reorders packets: each message is
//! executed once, in the order of its stream.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::host::QpContext;
use crate::path::{Arrival, Flow, ROCE_PORT};
use crate::qp::network_kit::{KEY, Random, SentPackets, TestHost, WRONG_KEY, Weather, address_of, path};
use crate::qp::{
    AttributeMask, Congestion, ModifyLimits, Progress, QpAttributes, QpConfig, QueuePair, SrdOrder, Urgency,
};
use crate::types::{
    Access, AsyncEventType, AtomicOperation, DcDestination, DcStreams, Mtu, PostError, QpCapacity, QpState,
    RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge, UdDestination, VendorService, WcFlags, WcOpcode,
    WcStatus,
};
use crate::wire::{Packet, Qpn};

const ACCESS_KEY: u64 = 0x1234_5678_9abc_def0;
const MTU_BYTES: usize = 1024;

fn initiator_number(index: usize) -> Qpn {
    Qpn::new(0x100 + index as u32)
}

fn target_number(index: usize) -> Qpn {
    Qpn::new(0x200 + index as u32)
}

/// Creates a queue pair of a service, in its working state.
pub(in crate::qp) fn queue_pair(
    qpn: Qpn,
    own: VendorService,
    rnr_retry: u8,
    device: &mut TestHost,
) -> QueuePair {
    let context = QpContext {
        qpn,
        pd: 0,
        send_cq: 0,
        recv_cq: 0,
        recv_queue: 0,
        xrcd: 0,
        ordinal: 0,
        out_of_order: false,
    };
    let capacity =
        QpCapacity { max_send_wr: 512, max_send_sge: 2, max_inline_data: 64, ..QpCapacity::default() };
    let mut qp = QueuePair::new(QpConfig {
        context,
        qp_type: own.qp_type(),
        capacity,
        signal_all: false,
        has_srq: true,
        port_mtu_bytes: MTU_BYTES,
        congestion: Congestion::default(),
        adaptive_timeout: None,
    });
    qp.set_vendor_service(own, SrdOrder::InOrder);
    start(&mut qp, rnr_retry, device);
    qp
}

fn start(qp: &mut QueuePair, rnr_retry: u8, device: &mut TestHost) {
    let limits = ModifyLimits {
        active_mtu: Mtu::Mtu1024,
        max_rd_atomic_initiator: 16,
        max_rd_atomic_target: 16,
        pkey_table_len: 1,
        gid_table_len: 1,
        port_count: 1,
        privileged_qkey: true,
    };
    let mut attributes = QpAttributes {
        port_num: 1,
        path_mtu: 3,
        timeout: 12,
        retry_cnt: 7,
        rnr_retry,
        min_rnr_timer: 12,
        max_rd_atomic: 4,
        access: (Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC).bits(),
        ..QpAttributes::default()
    };
    attributes.address_vector.port_num = 1;
    attributes.address_vector.is_global = true;
    attributes.address_vector.dgid = address_of(0).into();
    use AttributeMask as Mask;
    let to_rts = Mask::TIMEOUT | Mask::RETRY_CNT | Mask::RNR_RETRY | Mask::SQ_PSN | Mask::MAX_QP_RD_ATOMIC;
    let init = Mask::PKEY_INDEX | Mask::PORT;
    let steps = if qp.qp_type().has_send_queue() {
        &[(QpState::Init, init), (QpState::Rtr, Mask::PATH_MTU), (QpState::Rts, to_rts)][..]
    } else {
        let to_rtr = Mask::AV | Mask::PATH_MTU | Mask::MIN_RNR_TIMER;
        &[(QpState::Init, init.union(Mask::ACCESS_FLAGS)), (QpState::Rtr, to_rtr)][..]
    };
    for (state, mask) in steps {
        attributes.qp_state = *state as u32;
        qp.modify(&attributes, *mask | Mask::STATE, &limits, None, device).unwrap();
    }
    qp.set_pkey(0xffff);
}

struct Node {
    initiator: QueuePair,
    target: QueuePair,
    device: TestHost,
}

struct Network {
    nodes: Vec<Node>,
    under_way: BTreeMap<(u64, u64), (Flow, Vec<u8>)>,
    random: Random,
    weather: Weather,
    now_ns: u64,
    packets: u64,
}

impl Network {
    fn new(count: usize, seed: u64, weather: Weather, streams: Option<DcStreams>, rnr_retry: u8) -> Network {
        let node = |index| {
            let mut device = TestHost::new(core::iter::empty());
            let initiator = VendorService::DcInitiator { streams };
            let target = VendorService::DcTarget { access_key: ACCESS_KEY };
            Node {
                initiator: queue_pair(initiator_number(index), initiator, rnr_retry, &mut device),
                target: queue_pair(target_number(index), target, 0, &mut device),
                device,
            }
        };
        Network {
            nodes: (0..count).map(node).collect(),
            under_way: BTreeMap::new(),
            random: Random(seed),
            weather,
            now_ns: 1_000_000,
            packets: 0,
        }
    }

    /// Sends all packets that can leave now.
    fn send(&mut self) {
        for index in 0..self.nodes.len() {
            for _ in 0..200 {
                let mut out = SentPackets { packets: Vec::new(), room: 1 + self.random.below(8) as usize };
                let Node { initiator, target, device } = &mut self.nodes[index];
                let mut blocked = false;
                if target.response_urgency() > Urgency::None {
                    blocked |= target.transmit_responses(self.now_ns, device, &mut out) == Progress::Blocked;
                }
                if initiator.wants_to_send() {
                    blocked |=
                        initiator.transmit_requests(self.now_ns, device, &mut out) == Progress::Blocked;
                }
                for (flow, bytes) in out.packets {
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
        let expires = self.nodes.iter().filter_map(|node| node.initiator.deadline_ns()).min();
        let Some(next) = arrives.into_iter().chain(expires).min() else { return false };
        self.now_ns = self.now_ns.max(next);
        while let Some(entry) = self.under_way.first_entry() {
            if entry.key().0 > self.now_ns {
                break;
            }
            let (flow, bytes) = entry.remove();
            let to = (0..self.nodes.len()).find(|index| address_of(*index) == flow.destination);
            let Some(Node { initiator, target, device }) = to.map(|to| &mut self.nodes[to]) else { continue };
            let arrival = Arrival { flow: &flow, traffic_class: 0, hop_limit: 64 };
            let packet = Packet::parse(&bytes).unwrap();
            for qp in [initiator, target] {
                if qp.context().qpn == packet.bth().destination {
                    qp.handle_packet(self.now_ns, &arrival, &packet, device);
                }
            }
        }
        for Node { initiator, device, .. } in &mut self.nodes {
            if initiator.deadline_ns().is_some_and(|due| due <= self.now_ns) {
                initiator.handle_timeout(self.now_ns, Default::default(), device);
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

    fn post(&mut self, from: usize, request: &SendRequest<'_>) {
        let Node { initiator, device, .. } = &mut self.nodes[from];
        initiator.post_send(request, device).unwrap();
    }

    fn sent(&self, index: usize) -> Vec<(u64, WcStatus)> {
        self.nodes[index].device.sent.iter().map(|done| (done.wr_id, done.status)).collect()
    }
}

/// Builds a request to a target.
fn request(wr_id: u64, opcode: SendOpcode, (from, to): (usize, usize), sges: &[Sge]) -> SendRequest<'_> {
    SendRequest {
        sges,
        ud: Some(UdDestination { path: path(from, to), qpn: target_number(to), qkey: 0 }),
        dc: Some(DcDestination { access_key: ACCESS_KEY, stream: 0 }),
        imm_data: (wr_id as u32).to_be_bytes(),
        remote: RemoteTarget { address: 0, rkey: KEY },
        ..SendRequest::new(wr_id, opcode)
    }
}

fn sge(address: u64, length: u32) -> Sge {
    Sge { address, length, lkey: KEY }
}

const CALM: Weather = Weather { lost: 0, twice: 0, longest_ns: 1 };
/// Distance between the data of messages in memory, and address of the receive buffers.
const SLOT: u64 = 8192;
const TO_RECEIVE: u64 = 512 * 1024;
/// Address of the word that atomics add to.
const WORD: u64 = 480 * 1024;

/// Three nodes send to each other, on several streams or on one: all messages are executed once, and in
/// order.
fn one_seed(seed: u64, streams: Option<DcStreams>) {
    let mut random = Random(seed ^ 0x5eed);
    let weather = Weather {
        // Larger losses would sometimes exhaust retry_cnt.
        lost: random.below(80),
        twice: random.below(250),
        longest_ns: 1 + random.below(3_000_000),
    };
    let mut network = Network::new(3, seed, weather, streams, 7);
    let count = streams.map_or(1, DcStreams::concurrent);
    let mut posted: Vec<(usize, usize, SendOpcode, u64, u16)> = Vec::new();
    for wr_id in 0..30 {
        for from in 0..3 {
            let to = (from + 1 + random.below(2) as usize) % 3;
            let length = random.below(5000) as u32;
            let start = (wr_id * SLOT) as usize;
            network.nodes[from].device.memory[start..start + length as usize].fill(1 + wr_id as u8);
            let opcode = [
                SendOpcode::Send,
                SendOpcode::SendWithImm,
                SendOpcode::RdmaWriteWithImm,
                SendOpcode::FetchAdd,
                SendOpcode::RdmaRead,
            ][random.below(5) as usize];
            let is_atomic = opcode == SendOpcode::FetchAdd;
            let list = [sge(wr_id * SLOT, if is_atomic { 8 } else { length })];
            let mut wanted = request(wr_id, opcode, (from, to), &list);
            let stream = random.below(u64::from(count)) as u16;
            wanted.dc = Some(DcDestination { access_key: ACCESS_KEY, stream });
            wanted.remote.address = if is_atomic { WORD } else { 300 * 1024 };
            wanted.atomic = is_atomic.then_some(AtomicOperation::FetchAdd { add: 1 });
            // The last request of each stream has to report that those before it have ended.
            if random.below(2) == 0 && wr_id < 25 {
                wanted.flags = SendFlags::empty();
            }
            network.post(from, &wanted);
            posted.push((from, to, opcode, wr_id, stream));
        }
    }
    let mut next = [0_u64; 3];
    for round in 0..400_000 {
        if !network.step() {
            break;
        }
        if round % 3 == 0 {
            let to = random.below(3) as usize;
            if next[to] < 60 {
                let address = TO_RECEIVE + next[to] % 60 * SLOT;
                network.nodes[to].device.receives.push_back((next[to], sge(address, SLOT as u32)));
                next[to] += 1;
            }
        }
        assert!(round + 1 < 400_000, "seed {seed}: it does not end");
    }
    for (index, node) in network.nodes.iter().enumerate() {
        assert_eq!(node.initiator.state(), QpState::Rts, "seed {seed}");
        assert!(node.device.sent.iter().all(|done| done.status == WcStatus::Success), "seed {seed}");
        // On several streams the last request to end may be one that is not signaled.
        let released = node.device.released;
        assert!(
            released == 30 || streams.is_some() && (26..30).contains(&released),
            "seed {seed}: {released}"
        );
        let own = posted.iter().filter(|(from, ..)| *from == index);
        for stream in 0..count {
            let of_stream: Vec<u64> = own.clone().filter(|one| one.4 == stream).map(|one| one.3).collect();
            let done = node.device.sent.iter().filter(|done| of_stream.contains(&done.wr_id));
            assert!(done.map(|done| done.wr_id).is_sorted(), "seed {seed}: completions out of order");
        }
        let adds = posted.iter().filter(|one| one.1 == index && one.2 == SendOpcode::FetchAdd).count();
        let word = WORD as usize;
        let sum = u64::from_ne_bytes(node.device.memory[word..word + 8].try_into().unwrap());
        assert_eq!(sum, adds as u64, "seed {seed}: an atomic was carried out twice, or not");
        for (from, stream) in (0..3).flat_map(|from| (0..count).map(move |stream| (from, stream))) {
            let has_imm = |opcode| matches!(opcode, SendOpcode::SendWithImm | SendOpcode::RdmaWriteWithImm);
            let sent = posted.iter().filter(|one| (one.0, one.1, one.4) == (from, index, stream));
            let sent: Vec<u64> = sent.filter(|one| has_imm(one.2)).map(|one| one.3).collect();
            let received = node.device.received.iter();
            let of_it = received.filter(|done| done.src_qp == initiator_number(from).value());
            let imms = of_it.filter(|done| done.flags.contains(WcFlags::WITH_IMM));
            let incoming: Vec<u64> = imms.map(|done| u32::from_be_bytes(done.imm_data).into()).collect();
            let incoming: Vec<u64> = incoming.into_iter().filter(|imm| sent.contains(imm)).collect();
            assert_eq!(incoming, sent, "seed {seed}: {from} to {index} on {stream}");
        }
        assert!(node.device.received.iter().all(|done| done.qp_num == target_number(index).value()));
        let all = posted.iter().filter(|one| one.1 == index);
        let receiving =
            all.filter(|one| !matches!(one.2, SendOpcode::FetchAdd | SendOpcode::RdmaRead)).count();
        assert_eq!(node.device.received.len(), receiving, "seed {seed}");
    }
}

#[test]
fn every_message_is_carried_out_once_and_in_the_order_of_its_stream() {
    for seed in 0..60 {
        one_seed(seed, None);
        one_seed(seed, Some(DcStreams { log_concurrent: 2, log_errored: 0 }));
    }
}

/// Numbers that are sent one after the other to several targets in turn arrive in that order.
#[test]
fn messages_to_several_targets_complete_in_the_order_of_posting() {
    for seed in 0..40 {
        let weather = Weather { lost: 80, twice: 150, longest_ns: 2_000_000 };
        let mut network = Network::new(4, seed, weather, None, 7);
        for to in 1..4 {
            for slot in 0..40 {
                let into = sge(TO_RECEIVE + slot * 64, 64);
                network.nodes[to].device.receives.push_back((slot, into));
            }
        }
        for wr_id in 0..90_u64 {
            let list = [sge(0, 16)];
            let to = 1 + (wr_id / 2 % 3) as usize;
            network.post(0, &request(wr_id, SendOpcode::SendWithImm, (0, to), &list));
        }
        network.run();
        let expected: Vec<(u64, WcStatus)> = (0..90).map(|wr_id| (wr_id, WcStatus::Success)).collect();
        assert_eq!(network.sent(0), expected, "seed {seed}");
        for to in 1..4_u64 {
            let received = &network.nodes[to as usize].device.received;
            let incoming: Vec<u64> =
                received.iter().map(|done| u32::from_be_bytes(done.imm_data).into()).collect();
            let expected: Vec<u64> = (0..90).filter(|wr_id| 1 + wr_id / 2 % 3 == to).collect();
            assert_eq!(incoming, expected, "seed {seed}");
            assert!(received.iter().map(|done| done.wr_id).is_sorted(), "seed {seed}");
        }
    }
}

#[test]
fn data_of_every_operation_arrives() {
    let mut network = Network::new(2, 1, Weather { lost: 100, twice: 100, longest_ns: 500_000 }, None, 7);
    for (index, byte) in network.nodes[0].device.memory[..70_000].iter_mut().enumerate() {
        *byte = (index * 7 + 1) as u8;
    }
    let word = 100_000_u64;
    network.nodes[1].device.memory[word as usize..word as usize + 8].copy_from_slice(&40_u64.to_ne_bytes());
    network.nodes[1].device.receives.push_back((9, sge(200_000, 70_000)));
    let list = [sge(0, 70_000)];
    network.post(0, &request(1, SendOpcode::Send, (0, 1), &list));
    let mut write = request(2, SendOpcode::RdmaWrite, (0, 1), &list);
    write.remote.address = 300_000;
    network.post(0, &write);
    let back = [sge(400_000, 70_000)];
    let mut read = request(3, SendOpcode::RdmaRead, (0, 1), &back);
    read.remote.address = 300_000;
    network.post(0, &read);
    let (first, second) = ([sge(500_000, 8)], [sge(500_008, 8)]);
    let mut swap = request(4, SendOpcode::CompareSwap, (0, 1), &first);
    swap.remote.address = word;
    swap.atomic = Some(AtomicOperation::CompareSwap { compare: 40, swap: 41 });
    network.post(0, &swap);
    let mut add = request(5, SendOpcode::FetchAdd, (0, 1), &second);
    add.remote.address = word;
    add.atomic = Some(AtomicOperation::FetchAdd { add: 1 });
    network.post(0, &add);
    let mut inline = request(6, SendOpcode::RdmaWrite, (0, 1), &[]);
    inline.flags |= SendFlags::INLINE;
    inline.inline_data = b"forty-two";
    inline.remote.address = 600_000;
    network.post(0, &inline);
    network.run();
    assert!(network.sent(0).iter().all(|(_, status)| *status == WcStatus::Success), "{:?}", network.sent(0));
    let opcodes: Vec<WcOpcode> = network.nodes[0].device.sent.iter().map(|done| done.opcode).collect();
    use WcOpcode as Wc;
    let expected = [Wc::Send, Wc::RdmaWrite, Wc::RdmaRead, Wc::CompareSwap, Wc::FetchAdd, Wc::RdmaWrite];
    assert_eq!(opcodes, expected);
    let [one, two] = &network.nodes[..] else { panic!("two nodes") };
    let data = &one.device.memory[..70_000];
    assert!(two.device.memory[200_000..270_000] == *data && two.device.memory[300_000..370_000] == *data);
    assert!(one.device.memory[400_000..470_000] == *data);
    let at = |node: &Node, start: usize| {
        u64::from_ne_bytes(node.device.memory[start..start + 8].try_into().unwrap())
    };
    assert_eq!((at(one, 500_000), at(one, 500_008), at(two, 100_000)), (40, 41, 42));
    assert_eq!(&two.device.memory[600_000..600_009], b"forty-two");
    let done = two.device.received.as_slice();
    assert_eq!((done.len(), done[0].wr_id, done[0].byte_len), (1, 9, 70_000));
    assert_eq!((done[0].qp_num, done[0].src_qp), (0x201, 0x100));
}

/// Each row has a mistake, the status of the request, and whether the target gets an event.
#[test]
fn an_error_ends_the_initiator_and_what_follows_is_flushed_and_not_carried_out() {
    let list = [sge(0, 100)];
    let long = [sge(0, 5000)];
    let wrong = [Sge { lkey: WRONG_KEY, ..sge(0, 100) }];
    let mut cases = Vec::new();
    let mut memory = request(1, SendOpcode::RdmaWrite, (0, 1), &list);
    memory.remote.rkey = WRONG_KEY;
    cases.push((memory, WcStatus::RemAccessErr, false));
    let mut key = request(1, SendOpcode::RdmaWrite, (0, 1), &list);
    key.dc = Some(DcDestination { access_key: ACCESS_KEY ^ 1, stream: 0 });
    cases.push((key, WcStatus::RemInvReqErr, true));
    cases.push((request(1, SendOpcode::Send, (0, 1), &long), WcStatus::RemInvReqErr, false));
    cases.push((request(1, SendOpcode::Send, (0, 1), &wrong), WcStatus::LocProtErr, false));
    let mut read = request(1, SendOpcode::RdmaRead, (0, 1), &list);
    read.remote.rkey = WRONG_KEY;
    cases.push((read, WcStatus::RemAccessErr, false));
    let mut atomic = request(1, SendOpcode::FetchAdd, (0, 1), &list[..0]);
    let words = [sge(0, 8)];
    atomic.sges = &words;
    atomic.remote = RemoteTarget { address: 8, rkey: WRONG_KEY };
    atomic.atomic = Some(AtomicOperation::FetchAdd { add: 1 });
    cases.push((atomic, WcStatus::RemAccessErr, false));
    let mut missing = request(1, SendOpcode::Send, (0, 1), &list);
    missing.ud = Some(UdDestination { path: path(0, 1), qpn: Qpn::new(0x777), qkey: 0 });
    cases.push((missing, WcStatus::RetryExcErr, false));
    for (mistake, status, is_told) in cases {
        let mut network = Network::new(2, 1, CALM, None, 7);
        network.nodes[1].device.receives.push_back((7, sge(TO_RECEIVE, 1000)));
        let mut before = request(0, SendOpcode::RdmaWrite, (0, 1), &list);
        before.flags = SendFlags::empty();
        network.nodes[0].device.memory[..100].fill(5);
        before.remote.address = 1000;
        network.post(0, &before);
        network.post(0, &mistake);
        let mut after = request(2, SendOpcode::RdmaWrite, (0, 1), &list);
        after.remote.address = 2000;
        network.post(0, &after);
        network.run();
        assert_eq!(network.sent(0), [(1, status), (2, WcStatus::WrFlushErr)]);
        assert_eq!(network.nodes[0].device.released, 3);
        assert_eq!(network.nodes[0].initiator.state(), QpState::Err);
        assert_eq!(network.nodes[1].target.state(), QpState::Rtr);
        let memory = &network.nodes[1].device.memory;
        assert_eq!((memory[1000], memory[2000]), (5, 0), "{status:?}");
        let told = network.nodes[1].device.events.contains(&AsyncEventType::QpAccessErr);
        assert_eq!(told, is_told, "{status:?}");
        // Further requests can be posted, and are flushed.
        network.post(0, &request(3, SendOpcode::Send, (0, 1), &list));
        assert_eq!(network.sent(0).last(), Some(&(3, WcStatus::WrFlushErr)));
        // After RESET it works again, though the target remembers how the messages before ended.
        let Node { initiator, device, .. } = &mut network.nodes[0];
        let reset = QpAttributes { qp_state: QpState::Reset as u32, ..QpAttributes::default() };
        let limits = ModifyLimits {
            active_mtu: Mtu::Mtu1024,
            max_rd_atomic_initiator: 16,
            max_rd_atomic_target: 16,
            pkey_table_len: 1,
            gid_table_len: 1,
            port_count: 1,
            privileged_qkey: true,
        };
        initiator.modify(&reset, AttributeMask::STATE, &limits, None, device).unwrap();
        start(initiator, 7, device);
        let mut again = request(4, SendOpcode::RdmaWrite, (0, 1), &list);
        again.remote.address = 3000;
        network.post(0, &again);
        network.run();
        assert_eq!(network.sent(0).last(), Some(&(4, WcStatus::Success)), "{status:?}");
        assert_eq!(network.nodes[1].device.memory[3000], 5);
    }
}

#[test]
fn a_stream_fails_alone_until_as_many_have_failed_as_was_said() {
    let streams = DcStreams { log_concurrent: 2, log_errored: 1 };
    let mut network = Network::new(2, 1, CALM, Some(streams), 7);
    let list = [sge(0, 100)];
    let on = |wr_id: u64, stream: u16, rkey: u32| {
        let mut wanted = request(wr_id, SendOpcode::RdmaWrite, (0, 1), &list);
        wanted.dc = Some(DcDestination { access_key: ACCESS_KEY, stream });
        wanted.remote.rkey = rkey;
        wanted
    };
    network.post(0, &on(1, 1, WRONG_KEY));
    network.post(0, &on(2, 1, KEY));
    network.post(0, &on(3, 2, KEY));
    network.run();
    let mut sent = network.sent(0);
    sent.sort_unstable_by_key(|(wr_id, _)| *wr_id);
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(sent, [(1, WcStatus::RemAccessErr), (2, flushed), (3, WcStatus::Success)]);
    assert_eq!(network.nodes[0].initiator.state(), QpState::Rts);
    // Requests on a failed stream are flushed; numbers beyond the last stream wrap to the first.
    network.post(0, &on(4, 5, KEY));
    assert_eq!(network.sent(0).last(), Some(&(4, flushed)));
    network.nodes[0].initiator.reset_dc_stream(1);
    network.post(0, &on(5, 1, KEY));
    network.run();
    assert_eq!(network.sent(0).last(), Some(&(5, WcStatus::Success)));
    network.post(0, &on(6, 0, WRONG_KEY));
    network.run();
    assert_eq!(network.nodes[0].initiator.state(), QpState::Rts);
    network.post(0, &on(7, 3, WRONG_KEY));
    network.run();
    assert_eq!(network.sent(0).last(), Some(&(7, WcStatus::RemAccessErr)));
    assert_eq!(network.nodes[0].initiator.state(), QpState::Err);
}

#[test]
fn a_target_without_receive_requests_is_asked_as_often_as_rnr_retry_says() {
    for retries in [0, 2, 6] {
        let mut network = Network::new(2, 1, CALM, None, retries);
        let list = [sge(0, 2500)];
        network.post(0, &request(1, SendOpcode::Send, (0, 1), &list));
        network.run();
        assert_eq!(network.sent(0), [(1, WcStatus::RnrRetryExcErr)]);
        // Each retry waits for 0.64 ms.
        let waited = network.now_ns - 1_000_000;
        assert!((640_000 * u64::from(retries)..640_000 * u64::from(retries) + 100_000).contains(&waited));
    }
    let mut network = Network::new(2, 1, CALM, None, 7);
    let list = [sge(0, 2500)];
    network.post(0, &request(1, SendOpcode::Send, (0, 1), &list));
    network.post(0, &request(2, SendOpcode::RdmaWriteWithImm, (0, 1), &list));
    for _ in 0..500 {
        assert!(network.step());
    }
    assert!(network.sent(0).is_empty());
    for wr_id in [5, 6] {
        network.nodes[1].device.receives.push_back((wr_id, sge(TO_RECEIVE, 4000)));
    }
    network.run();
    assert_eq!(network.sent(0), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    let received: Vec<(u64, WcOpcode)> =
        network.nodes[1].device.received.iter().map(|done| (done.wr_id, done.opcode)).collect();
    assert_eq!(received, [(5, WcOpcode::Recv), (6, WcOpcode::RecvRdmaWithImm)]);
}

#[test]
fn requests_without_a_target_are_refused_and_targets_send_nothing() {
    let mut network = Network::new(1, 1, CALM, None, 7);
    let Node { initiator, target, device } = &mut network.nodes[0];
    let list = [sge(0, 10)];
    let mut wanted = request(1, SendOpcode::Send, (0, 0), &list);
    wanted.dc = None;
    let refused = initiator.post_send(&wanted, device);
    assert!(matches!(refused, Err(PostError::Incomplete { .. })), "{refused:?}");
    let refused = initiator.post_send(&request(1, SendOpcode::LocalInvalidate, (0, 0), &list), device);
    assert!(matches!(refused, Err(PostError::WrongOpcode { .. })), "{refused:?}");
    let refused = target.post_send(&request(1, SendOpcode::Send, (0, 0), &list), device);
    assert!(refused.is_err());
}

/// Packets that are not of DC, or not valid for it, have no effect. A user of the peer's host can send from
/// its address, and may know all numbers, but has another port.
#[test]
fn what_comes_from_the_peers_address_and_another_port_changes_nothing() {
    let mut network = Network::new(2, 1, CALM, None, 7);
    network.nodes[1].device.receives.push_back((7, sge(0, 64)));
    network.post(0, &request(1, SendOpcode::Send, (0, 1), &[]));
    let inject_answer = |network: &mut Network| {
        network.send();
        let genuine = core::mem::take(&mut network.under_way);
        for (at, (flow, bytes)) in &genuine {
            assert_eq!(flow.source_port, ROCE_PORT, "without regard to the address handle");
            network.under_way.insert(*at, (Flow { source_port: 50_000, ..*flow }, bytes.clone()));
        }
        assert_eq!(network.under_way.len(), 1);
        network.step();
        assert!(network.under_way.is_empty());
        network.under_way = genuine;
    };
    inject_answer(&mut network);
    assert!(network.nodes[1].device.received.is_empty() && network.nodes[1].device.receives.len() == 1);
    network.step();
    assert_eq!(network.nodes[1].device.received.len(), 1);
    inject_answer(&mut network);
    assert_eq!(network.sent(0), []);
    network.run();
    assert_eq!(network.sent(0), [(1, WcStatus::Success)]);
}

#[test]
fn packets_that_make_no_sense_are_dropped() {
    let mut random = Random(7);
    for seed in 0..200 {
        let mut network = Network::new(2, seed, CALM, None, 7);
        network.nodes[1].device.receives.push_back((1, sge(TO_RECEIVE, 8192)));
        let list = [sge(0, 5000)];
        network.post(0, &request(1, SendOpcode::Send, (0, 1), &list));
        network.send();
        // Each packet has one byte of the headers behind the DETH changed on its way.
        let positions: Vec<(u64, u64)> = network.under_way.keys().copied().collect();
        for position in positions {
            let (flow, mut bytes) = network.under_way[&position].clone();
            bytes[20 + random.below(68) as usize] ^= 1 << random.below(8);
            network.packets += 1;
            network.under_way.insert((position.0 + 1, network.packets), (flow, bytes));
        }
        for _ in 0..10_000 {
            if !network.step() {
                break;
            }
        }
        assert!(network.nodes[1].device.received.len() <= 1);
    }
}
