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
