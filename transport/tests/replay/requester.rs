//! We ask, rdma_rxe answers: the messages of a capture's requester are posted to a queue pair of ours, its
//! packets are compared with rdma_rxe's, and the captured answers are handed to it. Time passes only where
//! the capture shows a repetition.

use std::collections::VecDeque;

use pumice_transport::types::{
    AtomicOperation, FlushRange, Mtu, QpType, RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge,
    UdDestination, WcStatus,
};
use pumice_transport::wire::Qpn;

use crate::kit::literal::Literal;
use crate::kit::rung::{BUFFER, BUFFER_BASE, Rung, Setup};
use crate::kit::{op, path_to_peer};
use crate::tape::{Noted, Tape};

/// Each of eight messages in turn has its own slot of the local buffers.
const SLOTS: usize = 8;
const SLOT_BYTES: usize = 8192;
const MTU_BYTES: usize = 1024;

/// A message of the capture, put together from its packets.
struct SentMessage {
    first: Literal,
    last: Literal,
    payload: Vec<u8>,
    /// Packet numbers that it takes.
    psn_count: u32,
}

/// The messages in the order of their first transmission.
fn messages(tape: &Tape) -> Vec<SentMessage> {
    let mut messages: Vec<SentMessage> = Vec::new();
    let mut next_psn = tape.a_psn;
    for literal in tape.sent(true).into_iter() {
        if literal.psn != next_psn {
            continue;
        }
        let operation = literal.opcode & 0x1f;
        let continues = matches!(
            operation,
            op::SEND_MIDDLE
                | op::SEND_LAST
                | op::SEND_LAST_IMM
                | op::SEND_LAST_INV
                | op::WRITE_MIDDLE
                | op::WRITE_LAST
                | op::WRITE_LAST_IMM
        );
        let mut count = 1;
        if let (op::READ_REQUEST, Some((_, _, length))) = (operation, literal.reth) {
            count = length.div_ceil(MTU_BYTES as u32).max(1);
        }
        next_psn = (next_psn + count) & 0xff_ffff;
        match messages.last_mut() {
            Some(message) if continues => {
                message.payload.extend(&literal.payload);
                message.psn_count += 1;
                message.last = literal;
            }
            _ => messages.push(SentMessage {
                payload: literal.payload.clone(),
                first: literal.clone(),
                last: literal,
                psn_count: count,
            }),
        }
    }
    messages
}

fn post(rung: &mut Rung, index: usize, message: &SentMessage) {
    let (first, last) = (&message.first, &message.last);
    let opcode = match last.opcode & 0x1f {
        op::SEND_LAST | op::SEND_ONLY => SendOpcode::Send,
        op::SEND_LAST_IMM | op::SEND_ONLY_IMM => SendOpcode::SendWithImm,
        op::SEND_LAST_INV | op::SEND_ONLY_INV => SendOpcode::SendWithInvalidate,
        op::WRITE_LAST | op::WRITE_ONLY => SendOpcode::RdmaWrite,
        op::WRITE_LAST_IMM | op::WRITE_ONLY_IMM => SendOpcode::RdmaWriteWithImm,
        op::READ_REQUEST => SendOpcode::RdmaRead,
        op::CMP_SWAP => SendOpcode::CompareSwap,
        op::FETCH_ADD => SendOpcode::FetchAdd,
        op::FLUSH => SendOpcode::Flush,
        op::ATOMIC_WRITE => SendOpcode::AtomicWrite,
        other => panic!("{} begins no message", op::name(other)),
    };
    let length = match (opcode, first.reth) {
        (SendOpcode::RdmaRead, Some((_, _, length))) => length,
        (SendOpcode::CompareSwap | SendOpcode::FetchAdd, _) => 8,
        _ => message.payload.len() as u32,
    };
    let offset = index % SLOTS * SLOT_BYTES;
    rung.buffer()[offset..offset + message.payload.len()].copy_from_slice(&message.payload);
    let sges = [Sge { address: BUFFER_BASE + offset as u64, length, lkey: BUFFER }];
    let target = first.reth.map(|(address, rkey, _)| (address, rkey));
    let target = target.or(first.atomic.map(|(address, rkey, ..)| (address, rkey))).unwrap_or_default();
    let solicited = if last.solicited { SendFlags::SOLICITED } else { SendFlags::empty() };
    rung.post(&SendRequest {
        sges: if length > 0 { &sges } else { &[] },
        flags: SendFlags::SIGNALED | solicited,
        imm_data: last.imm.unwrap_or_default(),
        invalidate_rkey: last.ieth.unwrap_or_default(),
        remote: RemoteTarget { address: target.0, rkey: target.1 },
        atomic: first.atomic.map(|(_, _, operand, compare)| match opcode {
            SendOpcode::FetchAdd => AtomicOperation::FetchAdd { add: operand },
            _ => AtomicOperation::CompareSwap { compare, swap: operand },
        }),
        flush: first.feth.zip(first.reth).map(|((placement, selectivity), (.., length))| FlushRange {
            placement,
            selectivity,
            length,
        }),
        ud: first.deth.map(|(qkey, _)| destination(qkey)),
        ..SendRequest::new(index as u64, opcode)
    });
}

/// Attributes other than the usual.
pub(crate) struct Attributes {
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
}

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes { timeout: 14, retry_cnt: 7, rnr_retry: 7 }
    }
}

/// Every packet is as rdma_rxe's was, every completion too, and what READs and atomics fetched is in the
/// buffers; returns how many packets were compared.
pub(crate) fn asks_as_rxe(name: &str, attributes: &Attributes) -> usize {
    let tape = Tape::read(name);
    let qp_type = match op::service(tape.shots[0].literal.opcode) {
        "RC" => QpType::Rc,
        "UC" => QpType::Uc,
        _ => QpType::Ud,
    };
    let mut rung = Setup {
        mtu: if qp_type == QpType::Ud { Mtu::Mtu4096 } else { Mtu::Mtu1024 },
        rq_psn: tape.b_psn,
        sq_psn: tape.a_psn,
        max_rd_atomic: 16,
        timeout: attributes.timeout,
        retry_cnt: attributes.retry_cnt,
        rnr_retry: attributes.rnr_retry,
        qkey: 0x1111_1111,
        ..Setup::new(qp_type)
    }
    .build();
    let messages = messages(&tape);
    let mut posted = 0;
    let mut ours: VecDeque<Literal> = VecDeque::new();
    let mut fetched = Vec::new();
    let mut compared = 0;
    for (at, shot) in tape.shots.iter().enumerate() {
        if !shot.from_a {
            assert!(ours.is_empty(), "{name}: more requests than rdma_rxe made: {ours:?}");
            rung.receive_bytes(&shot.bytes, &crate::kit::rung::flow_from_peer(), 0);
            fetch(&mut rung, &tape, &shot.literal, &messages, &mut fetched);
            continue;
        }
        if ours.is_empty() {
            // All that the capture's requester sent before the next answer was there to be sent. Where there
            // are no answers, it went on when a message was out.
            let at_once = if qp_type == QpType::Rc { usize::MAX } else { 1 };
            let run = tape.shots[at..].iter().take_while(|shot| shot.from_a).take(at_once);
            let before = posted;
            for sent in run {
                if messages.get(posted).is_some_and(|message| message.first.psn == sent.literal.psn) {
                    post(&mut rung, posted, &messages[posted]);
                    posted += 1;
                }
            }
            if posted == before {
                rung.wait_for_deadline().unwrap_or_else(|| panic!("{name}: nothing to wait for"));
            }
            ours.extend(rung.requests());
        }
        let got = ours.pop_front().unwrap_or_else(|| panic!("{name}: we do not send {:?}", shot.literal));
        assert_eq!(
            without_own_number(got),
            without_own_number(shot.literal.clone()),
            "{name}: our packet, rdma_rxe's"
        );
        compared += 1;
    }
    assert_eq!(posted, messages.len(), "{name}");
    // A requester that got no answer notices at the next deadline.
    while rung.host.sends_done.len() < tape.a_saw.len() && rung.wait_for_deadline().is_some() {
        assert_eq!(rung.requests(), [], "{name}: more retries than rdma_rxe's");
    }
    let saw: Vec<_> = rung.host.sends_done.iter().map(|done| done.wc.status).collect();
    assert_eq!(saw, tape.a_saw.iter().map(|noted: &Noted| noted.status).collect::<Vec<WcStatus>>(), "{name}");
    compared
}

/// A datagram names its sender, which is another queue pair here.
fn without_own_number(literal: Literal) -> Literal {
    Literal { deth: literal.deth.map(|(qkey, _)| (qkey, 0)), ..literal }
}

fn destination(qkey: u32) -> UdDestination {
    UdDestination { path: std::sync::Arc::new(path_to_peer()), qpn: Qpn::new(crate::kit::PEER.value()), qkey }
}

/// Follows an answer: what it brought must be in the buffer of the message that asked for it.
fn fetch(rung: &mut Rung, tape: &Tape, answer: &Literal, messages: &[SentMessage], so_far: &mut Vec<u8>) {
    let after = |psn: u32| answer.psn.wrapping_sub(psn) & 0xff_ffff;
    let Some(index) = messages.iter().position(|message| after(message.first.psn) < message.psn_count) else {
        panic!("{}: no request asked for {answer:?}", tape.name)
    };
    let offset = index % SLOTS * SLOT_BYTES;
    match answer.opcode & 0x1f {
        op::READ_FIRST | op::READ_MIDDLE => {
            so_far.extend(&answer.payload);
            return;
        }
        op::READ_LAST | op::READ_ONLY => so_far.extend(&answer.payload),
        op::ATOMIC_ACK => so_far.extend(answer.atomic_ack.unwrap_or_default().to_ne_bytes()),
        _ => return,
    }
    assert_eq!(rung.buffer()[offset..offset + so_far.len()], so_far[..], "{}: fetched by {index}", tape.name);
    so_far.clear();
}
