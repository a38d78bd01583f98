//! rdma_rxe asks, we answer: the requests of a capture go to a queue pair of ours, in their order, and what
//! it answers is compared with what the other rdma_rxe answered.

use pumice_transport::host::Counter;
use pumice_transport::types::{Access, Mtu, QpState, QpType, WcFlags, WcStatus};

use crate::kit::literal::Literal;
use crate::kit::memory::{Bound, Window};
use crate::kit::rung::{ALL_REMOTE, BUFFER, BUFFER_BASE, Rung, Setup, flow_from_peer};
use crate::kit::{LOCAL, PD, op};
use crate::tape::{Noted, Tape};

/// L_Key of the memory that the capture's requests name.
const NAMED: u32 = 3;
const NAMED_BYTES: usize = 256 * 1024;
const RECEIVE_BYTES: u32 = 65_536;
/// AETH syndromes of RNR NAKs: 0x20 … 0x3f.
const RNR: std::ops::Range<u8> = 0x20..0x40;

/// What a responder of ours did.
pub(crate) struct Answered {
    pub(crate) rung: Rung,
    pub(crate) answers: Vec<Literal>,
}

impl Answered {
    pub(crate) fn received(&self) -> Vec<Noted> {
        let noted = |wc: &pumice_transport::types::WorkCompletion| Noted {
            status: wc.status,
            byte_len: wc.byte_len,
            imm: wc.flags.contains(WcFlags::WITH_IMM).then_some(wc.imm_data),
        };
        // One that was left over when the queue pair failed: the captured program had posted just enough.
        let flushed = |noted: &Noted| noted.status == WcStatus::WrFlushErr;
        self.rung.host.recvs_done.iter().map(|done| noted(&done.wc)).filter(|noted| !flushed(noted)).collect()
    }

    pub(crate) fn memory(&mut self) -> &mut [u8] {
        &mut self.rung.host.memory.region(NAMED).bytes
    }
}

/// Before the first request.
pub(crate) struct Before {
    /// What B's memory held.
    pub(crate) memory: fn(usize) -> u8,
    pub(crate) receive_bytes: u32,
    /// Key of a window of B that was bound to 4096 bytes at 4096, for writing.
    pub(crate) window: Option<u32>,
    /// Rights of the queue pair and of the memory.
    pub(crate) access: Access,
}

impl Default for Before {
    fn default() -> Before {
        Before { memory: |_| 0, receive_bytes: RECEIVE_BYTES, window: None, access: ALL_REMOTE }
    }
}

/// Hands the requests over. A receive is there whenever the capture's responder had one.
pub(crate) fn answer(tape: &Tape, before: &Before) -> Answered {
    let qp_type = match op::service(tape.shots[0].literal.opcode) {
        "RC" => QpType::Rc,
        "UC" => QpType::Uc,
        _ => QpType::Ud,
    };
    let mut rung = Setup {
        mtu: if qp_type == QpType::Ud { Mtu::Mtu4096 } else { Mtu::Mtu1024 },
        rq_psn: tape.a_psn,
        sq_psn: tape.b_psn,
        max_dest_rd_atomic: 16,
        access: before.access,
        qkey: 0x1111_1111,
        ..Setup::new(qp_type)
    }
    .build();
    let (base, rkey) = tape.b_memory;
    let region = rung.host.region(NAMED, base, NAMED_BYTES, before.access);
    region.rkey = rkey;
    region.bytes = (0..NAMED_BYTES).map(before.memory).collect();
    if let Some(rkey) = before.window {
        let bound = Bound {
            qpn: LOCAL,
            lkey: NAMED,
            access: Access::REMOTE_WRITE,
            address: base + 4096,
            length: 4096,
        };
        rung.host.memory.windows.push(Window { rkey, pd: PD, bound: Some(bound) });
    }
    let mut answers = Vec::new();
    for (index, shot) in tape.shots.iter().enumerate().filter(|(_, shot)| shot.from_a) {
        let next = tape.shots[index..].iter().find(|shot| !shot.from_a);
        let had_none =
            next.and_then(|shot| shot.literal.aeth).is_some_and(|(syndrome, _)| RNR.contains(&syndrome));
        if had_none {
            rung.host.receives.clear();
        } else if rung.host.receives.is_empty() {
            rung.host.post_recv(index as u64, BUFFER_BASE, before.receive_bytes, BUFFER);
        }
        assert!(rung.receive_bytes(&shot.bytes, &flow_from_peer(), 0), "{}: {:?}", tape.name, shot.literal);
        rung.now_ns += 1_000_000;
        answers.extend(rung.responses());
    }
    rung.host.receives.clear();
    Answered { rung, answers }
}

/// Every answer and every completion is as rdma_rxe's was; returns how many answers were compared.
pub(crate) fn answers_as_rxe(name: &str, before: &Before) -> usize {
    let tape = Tape::read(name);
    let answered = answer(&tape, before);
    assert_eq!(answered.answers, tape.sent(false), "{name}: our answers, rdma_rxe's");
    assert_eq!(answered.received(), tape.b_saw, "{name}: our completions, rdma_rxe's");
    answered.answers.len()
}

/// Requests that were lost, doubled or out of order on their way: each answer of rdma_rxe, repetitions
/// aside, is among our answers, each SEND was received once and the addition was made once.
pub(crate) fn answers_through_faults(name: &str) {
    let tape = Tape::read(name);
    let mut answered = answer(&tape, &Before::default());
    for wanted in tape.sent(false) {
        let is_nak = wanted.aeth.is_some_and(|(syndrome, _)| syndrome >= RNR.start);
        let found = answered.answers.iter().any(|answer| {
            // Acknowledgements may cover more at once.
            answer == &wanted || wanted.opcode == op::ACK && !is_nak && covers(answer, &wanted)
        });
        assert!(found, "{name}: {wanted:?} is not among {:#?}", answered.answers);
    }
    let received: Vec<_> = answered.received().iter().map(|noted| (noted.status, noted.byte_len)).collect();
    assert_eq!(received, [(WcStatus::Success, 3000); 6], "{name}");
    assert_eq!(answered.memory()[64..72], 1u64.to_ne_bytes(), "{name}: the word that 1 was added to");
    assert_eq!(answered.rung.state(), QpState::Rts, "{name}");
    assert_eq!(answered.rung.host.counter(Counter::RxBadLength), 0, "{name}");
}

fn covers(answer: &Literal, wanted: &Literal) -> bool {
    let ahead = answer.psn.wrapping_sub(wanted.psn) & 0xff_ffff;
    answer.aeth.is_some_and(|(syndrome, _)| syndrome < RNR.start) && ahead < 1 << 23
}
