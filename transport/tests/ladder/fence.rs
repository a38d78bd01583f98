//! Fence, LOCAL_INV, BIND_MW: order inside one send queue.

use crate::kit::memory::Window;
use crate::prelude::*;

fn fenced(wr_id: u64, opcode: SendOpcode) -> SendRequest<'static> {
    SendRequest { flags: SendFlags::FENCE | SendFlags::SIGNALED, ..request(wr_id, opcode, &[]) }
}

fn opcodes(rung: &mut Rung) -> Vec<u8> {
    rung.requests().iter().map(|literal| literal.opcode).collect()
}

#[test]
fn statement_28_a_fence_waits_for_reads_and_atomics() {
    let mut rung = Rung::rc();
    rung.post_read(1, 300);
    rung.post(&SendRequest {
        atomic: Some(AtomicOperation::FetchAdd { add: 1 }),
        ..request(2, SendOpcode::FetchAdd, &[Sge { address: BUFFER_BASE, length: 8, lkey: BUFFER }])
    });
    rung.post(&fenced(3, SendOpcode::Send));
    rung.post_send(4, 4);
    assert_eq!(opcodes(&mut rung), [op::READ_REQUEST, op::FETCH_ADD]);
    rung.receive(&read_response(op::READ_FIRST, SQ_PSN, 1, &[1; 256]));
    assert_eq!(opcodes(&mut rung), []);
    rung.receive(&read_response(op::READ_LAST, SQ_PSN + 1, 1, &[1; 44]));
    assert_eq!(opcodes(&mut rung), [], "the atomic is still out");
    rung.receive(&atomic_ack(SQ_PSN + 2, 2, 0));
    assert_eq!(opcodes(&mut rung), [op::SEND_ONLY, op::SEND_ONLY]);
}

#[test]
fn statement_28_a_fence_does_not_wait_for_sends_and_writes() {
    let mut rung = Rung::rc();
    rung.post_send(1, 4);
    rung.post_op(2, SendOpcode::RdmaWrite, 4);
    rung.post(&fenced(3, SendOpcode::Send));
    assert_eq!(opcodes(&mut rung), [op::SEND_ONLY, op::WRITE_ONLY, op::SEND_ONLY]);
}

#[test]
fn statement_28_a_fence_holds_when_the_read_is_asked_for_again() {
    let mut rung = Rung::rc();
    rung.post_read(1, 4);
    rung.post(&fenced(2, SendOpcode::Send));
    assert_eq!(opcodes(&mut rung), [op::READ_REQUEST]);
    rung.wait_for_deadline();
    assert_eq!(opcodes(&mut rung), [op::READ_REQUEST]);
    rung.receive(&read_response(op::READ_ONLY, SQ_PSN, 1, &[1; 4]));
    assert_eq!(opcodes(&mut rung), [op::SEND_ONLY]);
}

fn with_window() -> Rung {
    let mut rung = Rung::rc();
    rung.host.memory.windows.push(Window { rkey: 0x500, pd: CONTEXT.pd, bound: None });
    rung
}

fn bind(wr_id: u64, window_rkey: u32) -> SendRequest<'static> {
    let bind = WindowBind {
        window_rkey,
        new_rkey: 0x501,
        region_lkey: TARGET,
        address: TARGET_BASE,
        length: 64,
        access: Access::REMOTE_WRITE,
    };
    SendRequest { bind: Some(bind), ..request(wr_id, SendOpcode::BindWindow, &[]) }
}

#[test]
fn a_window_is_bound_in_its_turn_once_and_takes_no_psn() {
    let mut rung = with_window();
    rung.post_send(1, 4);
    rung.post(&bind(2, 0x500));
    rung.post_send(3, 4);
    let sent = rung.requests();
    assert_eq!(sent.iter().map(|literal| literal.psn).collect::<Vec<_>>(), [SQ_PSN, SQ_PSN + 1]);
    assert!(rung.host.memory.windows[0].bound.is_some());
    assert_eq!(rung.host.take_sends(), [], "completions keep the order");
    rung.wait_for_deadline();
    assert_eq!(rung.requests(), sent, "a second pass does not bind again");
    rung.receive(&ack(SQ_PSN + 1, 2));
    assert_eq!(rung.host.take_sends(), successes(&[1, 2, 3]));
    let write = rc(op::WRITE_ONLY).psn(RQ_PSN).reth(TARGET_BASE, 0x501, 4).payload(b"data").ack_req();
    assert_eq!(rung.answer(&write), ack(RQ_PSN, 1));
}

#[test]
fn a_window_that_cannot_be_bound_is_a_bind_error() {
    let mut rung = with_window();
    rung.post(&bind(1, 0x777));
    rung.post_send(2, 4);
    assert_eq!(rung.requests(), []);
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::MwBindErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(rung.state(), QpState::Err);
}

#[test]
fn an_invalidation_waits_for_everything_before_it() {
    let mut rung = with_window();
    rung.post(&bind(1, 0x500));
    rung.post_send(2, 4);
    rung.post(&SendRequest { invalidate_rkey: 0x501, ..request(3, SendOpcode::LocalInvalidate, &[]) });
    rung.post_send(4, 4);
    assert_eq!(rung.requests().len(), 1);
    assert!(rung.host.memory.windows[0].bound.is_some());
    rung.receive(&ack(SQ_PSN, 1));
    assert_eq!(rung.requests().len(), 1);
    assert!(rung.host.memory.windows[0].bound.is_none());
    assert_eq!(rung.host.take_sends(), successes(&[1, 2, 3]));
}

#[test]
fn an_invalidation_that_fails_is_a_memory_management_error() {
    let mut rung = Rung::rc();
    rung.post(&SendRequest { invalidate_rkey: 0x999, ..request(3, SendOpcode::LocalInvalidate, &[]) });
    rung.requests();
    assert_eq!(rung.host.take_sends(), [(3, WcStatus::MwBindErr)]);
    assert_eq!(rung.state(), QpState::Err);
}

/// A copy of the buffer's first bytes to the target region.
fn copy(wr_id: u64, sges: &[Sge], lkey: u32) -> SendRequest<'_> {
    let to = Sge { address: TARGET_BASE + 16, length: 0, lkey };
    SendRequest { copy_to: Some(to), ..request(wr_id, SendOpcode::CopyMemory, sges) }
}

#[test]
fn a_copy_moves_bytes_in_its_turn_and_takes_no_psn() {
    let mut rung = Rung::rc();
    let contents: Vec<u8> = (0..9000_u32).map(|at| (at % 251) as u8).collect();
    rung.buffer()[..9000].copy_from_slice(&contents);
    let whole = [
        Sge { address: BUFFER_BASE, length: 4001, lkey: BUFFER },
        Sge { address: BUFFER_BASE + 4001, length: 4999, lkey: BUFFER },
    ];
    rung.post_send(1, 4);
    rung.post(&copy(2, &whole, TARGET));
    rung.post_send(3, 4);
    let sent = rung.requests();
    assert_eq!(sent.iter().map(|literal| literal.psn).collect::<Vec<_>>(), [SQ_PSN, SQ_PSN + 1]);
    assert_eq!(rung.target()[16..9016], contents);
    let target = rung.target();
    assert!(target[..16].iter().chain(&target[9016..9100]).all(|byte| *byte == 0));
    rung.target()[16] = 7;
    assert_eq!(rung.host.take_sends(), [], "completions keep the order");
    rung.wait_for_deadline();
    assert_eq!(rung.requests(), sent);
    assert_eq!(rung.target()[16], 7, "a second pass does not copy again");
    rung.receive(&ack(SQ_PSN + 1, 2));
    let done: Vec<_> = rung.host.sends_done.iter().map(|done| done.wc.opcode).collect();
    assert_eq!(done, [WcOpcode::Send, WcOpcode::CopyMemory, WcOpcode::Send]);
    assert_eq!(rung.host.take_sends(), successes(&[1, 2, 3]));
}

#[test]
fn a_copy_from_or_to_other_memory_is_a_protection_error() {
    let good = [Sge { address: BUFFER_BASE, length: 64, lkey: BUFFER }];
    let unknown = [Sge { lkey: 0x77, ..good[0] }];
    for (sges, lkey) in [(&good, 0x77), (&unknown, TARGET)] {
        let mut rung = Rung::rc();
        rung.post(&copy(1, sges, lkey));
        rung.post_send(2, 4);
        assert_eq!(rung.requests(), []);
        assert_eq!(rung.host.take_sends(), [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)]);
        assert_eq!(rung.state(), QpState::Err);
    }
}

#[test]
fn what_configures_a_key_needs_a_host_that_has_such_keys() {
    let mut rung = Rung::rc();
    let key = KeyConfiguration::new(0x1001);
    rung.post(&SendRequest { key: Some(key.into()), ..request(1, SendOpcode::ConfigureKey, &[]) });
    assert_eq!(rung.requests(), []);
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::MwBindErr)]);
    let mut rung = Rung::rc();
    for opcode in [SendOpcode::ConfigureKey, SendOpcode::CopyMemory] {
        let refused = rung.try_post(&request(2, opcode, &[])).unwrap_err();
        assert!(matches!(refused, PostError::Incomplete { .. }), "{refused}");
    }
}

#[test]
fn a_request_says_what_its_completion_shows() {
    let mut rung = Rung::rc();
    let raw = Some(WcOpcode::RawRequest);
    rung.post(&SendRequest { completes_as: raw, ..request(1, SendOpcode::Send, &[]) });
    rung.post_send(2, 4);
    assert_eq!(rung.requests().len(), 2);
    rung.receive(&ack(SQ_PSN + 1, 2));
    let done: Vec<_> = rung.host.sends_done.iter().map(|done| done.wc.opcode).collect();
    assert_eq!(done, [WcOpcode::RawRequest, WcOpcode::Send]);
}
