//! One queue pair of any type in any state, under arbitrary packets and calls: it never panics, and
//! never writes a byte that it was not given.

use proptest::prelude::*;
use pumice_transport::types::{
    Access, AtomicOperation, FlushRange, QpState, QpType, SendOpcode, SendRequest, Sge, UdDestination,
};
use pumice_transport::wire::Qpn;
use std::sync::Arc;

use crate::kit::host::XrcSrq;
use crate::kit::literal::{Literal, rc};
use crate::kit::op::{self, Header};
use crate::kit::rung::*;
use crate::kit::{CONTEXT, LOCAL, RECV_CQ, XRCD, path_to_peer};

/// A region that the peer may read but not write.
const READ_ONLY: u32 = 3;
const READ_ONLY_RKEY: u32 = 0x1003;
const READ_ONLY_BASE: u64 = 0x30_0000;
/// Where local buffers that may be written begin in the buffer region, and where they end.
const OPEN: std::ops::Range<usize> = 0x4000..0x8000;
const SRQN: u32 = 5;
/// More answers than this cannot be waiting: slots of the queue times the longest READ sent.
const MOST_PACKETS: usize = 20_000;

#[derive(Debug, Clone)]
enum Action {
    /// A packet with a PSN this far from the one that is expected of its direction.
    Packet {
        literal: Literal,
        distance: i32,
    },
    /// A whole message in order, of which one packet may get lost or come twice.
    Message {
        write: bool,
        packets: u32,
        lost: Option<u32>,
        doubled: Option<u32>,
    },
    Bytes(Vec<u8>),
    PostSend {
        opcode: SendOpcode,
        length: u32,
        fence: bool,
        inline: bool,
    },
    PostRecv {
        length: u32,
    },
    TransmitRequests {
        room: usize,
    },
    TransmitResponses {
        room: usize,
    },
    Wait {
        ns: u64,
    },
    Modify(QpState),
    Deregister,
}

fn address() -> impl Strategy<Value = u64> {
    let end = TARGET_BASE + REGION_BYTES as u64;
    prop_oneof![
        6 => (0..REGION_BYTES as u64).prop_map(|offset| TARGET_BASE + offset),
        2 => (0..0x100u64).prop_map(|offset| TARGET_BASE + 8 * offset),
        2 => (0..0x1000u64).prop_map(move |back| end - back),
        1 => (0..0x1000u64).prop_map(|offset| READ_ONLY_BASE + offset),
        1 => any::<u64>(),
        1 => (0..0x1000u64).prop_map(|back| u64::MAX - back),
    ]
}

fn rkey() -> impl Strategy<Value = u32> {
    prop_oneof![20 => Just(RKEY), 2 => Just(READ_ONLY_RKEY), 1 => any::<u32>(), 1 => Just(0)]
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => Just(256),
        2 => 0..=256usize,
        1 => Just(8usize),
        1 => Just(0usize),
        1 => 256..600usize,
    ]
    .prop_map(|length| vec![0xdd; length])
}

fn length(payload: usize) -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => Just(payload as u32),
        2 => Just(payload as u32 + 256),
        2 => 0..2000u32,
        1 => Just(1u32 << 31),
        1 => any::<u32>(),
    ]
}

/// Payload and RETH length as the operation wants them at a path MTU of 256.
fn legal_lengths(operation: u8, payload: Vec<u8>, length: u32) -> (Vec<u8>, u32) {
    let mut payload = payload;
    match operation {
        op::SEND_FIRST | op::SEND_MIDDLE | op::WRITE_MIDDLE | op::READ_FIRST | op::READ_MIDDLE => {
            payload.resize(256, 0xdd);
        }
        op::WRITE_FIRST => {
            payload.resize(256, 0xdd);
            return (payload, length % 2000 + 257);
        }
        op::READ_REQUEST | op::FLUSH => return (payload, length % 2000),
        op::ATOMIC_WRITE => return (vec![0xdd; 8], 8),
        _ => payload.truncate(256),
    }
    let length = payload.len() as u32;
    (payload, length)
}

/// A packet of any opcode, most often one that exists, with the headers it should have.
fn literal() -> impl Strategy<Value = Literal> {
    let service =
        prop_oneof![6 => Just(0u8), 2 => Just(0x20), 2 => Just(0x60), 3 => Just(0xa0), 1 => Just(0x80)];
    let opcode = (service, 0..0x20u8).prop_map(|(service, operation)| service | operation);
    let syndrome = prop_oneof![4 => Just(0x1f), 2 => 0x60..0x66u8, 2 => 0x20..0x40u8, 1 => any::<u8>()];
    let legal = prop::bool::weighted(0.8);
    let numbers = (address(), rkey(), any::<[u8; 4]>(), 0..4u8, 0..3u8, any::<bool>(), legal);
    (opcode, payload(), numbers, syndrome)
        .prop_flat_map(|(opcode, payload, numbers, syndrome)| {
            let length = length(payload.len());
            (Just(opcode), Just(payload), Just(numbers), Just(syndrome), length)
        })
        .prop_map(|(opcode, mut payload, numbers, syndrome, mut length)| {
            let (mut address, rkey, word, placement, selectivity, ack_req, legal) = numbers;
            if legal {
                (payload, length) = legal_lengths(opcode & 0x1f, payload, length);
                address &= !7;
            }
            let mut literal = Literal { opcode, payload, ack_req, ..Literal::default() };
            for header in op::headers(opcode) {
                match header {
                    Header::Xrc => literal.xrc = Some(SRQN + u32::from(word[0] > 240)),
                    Header::Deth => literal.deth = Some((QKEY + u32::from(word[0] > 240), 7)),
                    Header::Feth => literal.feth = Some((placement, selectivity)),
                    Header::Reth => literal.reth = Some((address, rkey, length)),
                    Header::Atomic => literal.atomic = Some((address, rkey, length.into(), address)),
                    Header::Aeth => literal.aeth = Some((syndrome, length & 0xff_ffff)),
                    Header::AtomicAck => literal.atomic_ack = Some(address),
                    Header::Imm => literal.imm = Some(word),
                    Header::Ieth => literal.ieth = Some(rkey),
                    Header::CnpReserved => literal.payload.clear(),
                }
            }
            let bare = [op::READ_REQUEST, op::ACK, op::ATOMIC_ACK, op::CMP_SWAP, op::FETCH_ADD, op::FLUSH];
            if bare.contains(&(opcode & 0x1f)) && opcode != op::CNP {
                literal.payload.clear();
            }
            literal
        })
}

fn action() -> impl Strategy<Value = Action> {
    use SendOpcode::*;
    let opcode = prop::sample::select(vec![
        Send,
        SendWithImm,
        SendWithInvalidate,
        RdmaWrite,
        RdmaWriteWithImm,
        RdmaRead,
        CompareSwap,
        FetchAdd,
        Flush,
        AtomicWrite,
        LocalInvalidate,
        BindWindow,
    ]);
    let lengths = prop_oneof![Just(8u32), 0..2000u32];
    let distance = prop_oneof![10 => Just(0i32), 4 => -4..6i32, 1 => -200..200i32, 1 => any::<i32>()];
    let rarely = prop::option::weighted(0.2, 0..6u32);
    prop_oneof![
        24 => (literal(), distance).prop_map(|(literal, distance)| Action::Packet { literal, distance }),
        6 => (any::<bool>(), 1..6u32, rarely.clone(), rarely)
            .prop_map(|(write, packets, lost, doubled)| Action::Message { write, packets, lost, doubled }),
        1 => prop::collection::vec(any::<u8>(), 0..80).prop_map(Action::Bytes),
        6 => (opcode, lengths, any::<bool>(), any::<bool>())
            .prop_map(|(opcode, length, fence, inline)| Action::PostSend { opcode, length, fence, inline }),
        8 => prop_oneof![Just(1500u32), 0..1500u32].prop_map(|length| Action::PostRecv { length }),
        5 => (0..40usize).prop_map(|room| Action::TransmitRequests { room }),
        4 => (0..40usize).prop_map(|room| Action::TransmitResponses { room }),
        3 => (0..200_000_000u64).prop_map(|ns| Action::Wait { ns }),
        1 => prop::sample::select(QpState::ALL.to_vec()).prop_map(Action::Modify),
        1 => Just(Action::Deregister),
    ]
}

struct Trial {
    rung: Rung,
    before: Vec<u8>,
}

impl Trial {
    fn new(qp_type: QpType, state: QpState, has_srq: bool) -> Trial {
        let setup = Setup { has_srq, state: state.min(QpState::Rts), ..Setup::new(qp_type) };
        let mut rung = setup.build();
        if state != rung.state() {
            let _ = rung.enter(state);
        }
        rung.host.region(READ_ONLY, READ_ONLY_BASE, 0x1000, Access::REMOTE_READ).bytes.fill(0x33);
        let srq = XrcSrq { xrcd: XRCD, pd: CONTEXT.pd, cq: RECV_CQ, ..XrcSrq::default() };
        rung.host.xrc_srqs.insert(SRQN, srq);
        let before = rung.buffer().to_vec();
        Trial { rung, before }
    }

    /// A buffer in the open part of the buffer region.
    fn open_buffer(length: u32) -> Sge {
        Sge { address: BUFFER_BASE + OPEN.start as u64, length, lkey: BUFFER }
    }

    fn perform(&mut self, action: Action) {
        let rung = &mut self.rung;
        match action {
            Action::Packet { mut literal, distance } => {
                let response = matches!(literal.opcode & 0x1f, op::READ_FIRST..=op::ATOMIC_ACK);
                let query = rung.qp.query();
                let origin =
                    if response { query.sq_psn.wrapping_sub(rung.qp.in_flight()) } else { query.rq_psn };
                literal.psn = origin.wrapping_add_signed(distance) & 0xff_ffff;
                rung.receive_bytes(&literal.bytes(LOCAL), &flow_from_peer(), 0);
            }
            Action::Message { write, packets, lost, doubled } => {
                let start = rung.qp.query().rq_psn;
                for k in 0..packets {
                    let position = match (k == 0, k + 1 == packets) {
                        (true, true) => op::SEND_ONLY,
                        (true, false) => op::SEND_FIRST,
                        (false, false) => op::SEND_MIDDLE,
                        (false, true) => op::SEND_LAST,
                    };
                    let opcode = match (write, position) {
                        (true, op::SEND_ONLY) => op::WRITE_ONLY,
                        (true, _) => position + op::WRITE_FIRST,
                        (false, _) => position,
                    };
                    let mut literal = rc(opcode).psn(start.wrapping_add(k) & 0xff_ffff).payload(&[0xdd; 256]);
                    literal.ack_req = position != op::SEND_MIDDLE;
                    if write && k == 0 {
                        literal.reth = Some((TARGET_BASE, RKEY, packets * 256));
                    }
                    let times = if lost == Some(k) { 0 } else { 1 + u32::from(doubled == Some(k)) };
                    let literal = for_type(literal, rung.setup.qp_type);
                    for _ in 0..times {
                        rung.receive_bytes(&literal.bytes(LOCAL), &flow_from_peer(), 0);
                    }
                }
            }
            Action::Bytes(bytes) => drop(rung.receive_bytes(&bytes, &flow_from_peer(), 0)),
            Action::PostSend { opcode, length, fence, inline } => {
                let sges = [Self::open_buffer(length)];
                let data = [0xee; 2000];
                let mut posted = SendRequest {
                    atomic: Some(AtomicOperation::FetchAdd { add: 1 }),
                    flush: Some(FlushRange { placement: 1, selectivity: 0, length }),
                    ud: Some(UdDestination { path: Arc::new(path_to_peer()), qpn: Qpn::GSI, qkey: 1 }),
                    xrc_srqn: SRQN,
                    inline_data: &data[..length as usize],
                    ..request(1, opcode, &sges)
                };
                posted.flags.set(pumice_transport::types::SendFlags::FENCE, fence);
                posted.flags.set(pumice_transport::types::SendFlags::INLINE, inline);
                let _ = rung.try_post(&posted);
            }
            Action::PostRecv { length } => {
                let Sge { address, length, lkey } = Self::open_buffer(length);
                rung.host.post_recv(2, address, length, lkey);
                rung.host.post_xrc_recv(SRQN, 3, address, length, lkey);
                rung.qp.flush_posted_receives(&mut rung.host);
            }
            Action::TransmitRequests { room } => {
                rung.sink.room = Some(room);
                rung.requests();
            }
            Action::TransmitResponses { room } => {
                rung.sink.room = Some(room);
                rung.responses();
            }
            Action::Wait { ns } => rung.wait(ns),
            Action::Modify(next) => {
                if rung.enter(next).is_ok() && next == QpState::Reset {
                    rung.climb();
                }
            }
            Action::Deregister => rung.host.memory.deregister(TARGET),
        }
    }

    fn check(mut self) {
        let open = self.rung.buffer()[OPEN].to_vec();
        self.before[OPEN].copy_from_slice(&open);
        assert!(self.rung.buffer() == self.before, "bytes outside the posted buffers were written");
        let read_only = &self.rung.host.memory.region(READ_ONLY).bytes;
        assert!(read_only.iter().all(|byte| *byte == 0x33), "read-only bytes were written");
        self.rung.sink.room = Some(MOST_PACKETS);
        let waiting = self.rung.responses().len();
        assert!(waiting < MOST_PACKETS, "answers without end");
        if self.rung.state() == QpState::Err {
            assert_eq!(self.rung.qp.deadline_ns(), None);
            assert_eq!(self.rung.requests(), []);
        }
    }
}

/// The same packet as the peer of this type of queue pair would send it.
fn for_type(literal: Literal, qp_type: QpType) -> Literal {
    if literal.opcode == op::CNP || literal.deth.is_some() || literal.xrc.is_some() {
        return literal;
    }
    let operation = literal.opcode & 0x1f;
    let is_response = matches!(operation, op::READ_FIRST..=op::ATOMIC_ACK);
    match qp_type {
        QpType::Uc => Literal { opcode: operation | 0x20, ..literal },
        QpType::XrcDuplex | QpType::XrcInitiator | QpType::XrcTarget => {
            Literal { opcode: operation | 0xa0, xrc: (!is_response).then_some(SRQN), ..literal }
        }
        QpType::Ud | QpType::Gsi | QpType::Srd | QpType::Dci | QpType::Dct => {
            Literal { opcode: operation | 0x60, deth: Some((QKEY, 7)), ..literal }
        }
        // No packet of RoCE is for raw packets: each is left alone.
        QpType::Rc | QpType::RawPacket => Literal { opcode: operation, ..literal },
    }
}

fn any_type() -> impl Strategy<Value = QpType> {
    prop_oneof![
        6 => Just(QpType::Rc),
        2 => Just(QpType::Uc),
        1 => Just(QpType::Ud),
        1 => Just(QpType::XrcDuplex),
        1 => Just(QpType::XrcInitiator),
        2 => Just(QpType::XrcTarget),
        1 => Just(QpType::RawPacket),
    ]
}

fn any_state() -> impl Strategy<Value = QpState> {
    prop_oneof![6 => Just(QpState::Rts), 2 => prop::sample::select(QpState::ALL.to_vec())]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn arbitrary_packets_do_no_harm(
        qp_type in any_type(),
        state in any_state(),
        has_srq in any::<bool>(),
        revive in prop::bool::weighted(0.8),
        actions in prop::collection::vec(action(), 1..60),
    ) {
        let mut trial = Trial::new(qp_type, state, has_srq);
        for mut action in actions {
            // Most packets are of the queue pair's own service, and most queue pairs are revived.
            if let Action::Packet { literal, distance } = &mut action
                && *distance % 8 != 7
            {
                *literal = for_type(literal.clone(), qp_type);
            }
            if revive && trial.rung.state() == QpState::Err {
                trial.perform(Action::Modify(QpState::Reset));
            }
            trial.perform(action);
        }
        trial.check();
    }
}
