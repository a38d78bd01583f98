//! Orders of requests, told to a checker as a device tells them.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};

use pumice_model::event::Event;
use pumice_transport::event::{QpEvent, StateChangeActor};
use pumice_transport::host::QpContext;
use pumice_transport::types::{
    Peer, QpState, RemoteRange, RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge, WcOpcode,
    WorkCompletion,
};
use pumice_transport::wire::{OperationClass, Qpn};

use crate::check::Checker;

thread_local! {
    static LINE: Cell<u64> = const { Cell::new(1) };
    static WAITS: Cell<u64> = const { Cell::new(0) };
}

fn capture(addresses: &mut Vec<u64>) {
    addresses.push(LINE.get());
}

/// The queue pairs of this process; 1 and 2 are connected to one peer, 3 to another.
struct Program {
    checker: Checker,
    posted: [u64; 4],
}

impl Program {
    fn new() -> Program {
        let mut checker = Checker::new(capture, false).with_wait_counter(|| WAITS.get());
        for (number, peer) in [(1, 0x10_0001), (2, 0x10_0002), (3, 0x20_0001)] {
            let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
            let peer = Peer { address, qpn: Qpn::new(peer) };
            checker.order_of_state(number, QpState::Rtr, Some(peer));
            checker.order_of_state(number, QpState::Rts, Some(peer));
        }
        Program { checker, posted: [0; 4] }
    }

    /// Posts at this line: local memory, remote memory, bytes.
    fn post(
        &mut self,
        line: u64,
        number: u32,
        opcode: SendOpcode,
        local: u64,
        remote: u64,
        flags: SendFlags,
    ) {
        LINE.set(line);
        let sges = [Sge { address: local, length: 64, lkey: 1 }];
        let remote = RemoteTarget { address: remote, rkey: 7 };
        let request = SendRequest { sges: &sges, remote, flags, ..SendRequest::new(0, opcode) };
        let message = &mut self.posted[number as usize];
        self.checker.order_of_post(number, *message, 64, &request);
        *message += 1;
    }

    fn write(&mut self, line: u64, number: u32, remote: u64) {
        self.post(line, number, SendOpcode::RdmaWrite, 0x9000, remote, SendFlags::empty());
    }

    fn complete(&mut self, number: u32, released: u32) -> WorkCompletion {
        let completion =
            WorkCompletion { qp_num: number, opcode: WcOpcode::RdmaWrite, ..WorkCompletion::default() };
        self.checker.order_of_completion(number, &completion, released);
        completion
    }

    fn poll(&mut self, number: u32, released: u32) {
        let completion = self.complete(number, released);
        self.checker.order_of_poll(&completion);
    }

    /// The program polls a message of a peer.
    fn notified(&mut self) {
        let completion = WorkCompletion { qp_num: 3, opcode: WcOpcode::Recv, ..WorkCompletion::default() };
        self.checker.order_of_poll(&completion);
    }

    /// A WRITE comes: its packets but the last, and the last.
    fn begins(&mut self, number: u32, address: u64) {
        let range = RemoteRange { rkey: 7, address, length_bytes: 64 };
        self.checker.order_of_access(number, OperationClass::Write, &range, false);
    }

    fn arrives(&mut self, number: u32, address: u64) {
        self.begins(number, address);
        self.checker.order_of_write(number, false);
    }

    fn kinds(&mut self) -> Vec<(&'static str, u64)> {
        let all = self.checker.findings().all().iter();
        all.map(|one| (one.kind.name, one.call_site.addresses().first().copied().unwrap_or(0))).collect()
    }
}

#[test]
fn writes_of_two_queue_pairs_to_one_range_race_until_the_first_is_known_to_be_over() {
    let mut program = Program::new();
    program.write(10, 1, 1000);
    program.write(11, 1, 1000);
    program.write(12, 3, 1000);
    program.write(13, 2, 1064);
    assert_eq!(program.kinds(), [], "one queue pair, another peer, the bytes behind");
    program.write(14, 2, 1063);
    assert_eq!(program.kinds(), [("remote-race", 14)]);
    let mut program = Program::new();
    program.write(20, 1, 1000);
    program.write(21, 1, 5000);
    program.complete(1, 2);
    program.write(22, 2, 1000);
    assert_eq!(program.kinds(), [("remote-race", 22)], "it is over, and the program does not know");
    let mut program = Program::new();
    program.write(30, 1, 1000);
    program.write(31, 1, 5000);
    program.poll(1, 2);
    program.write(32, 2, 1000);
    program.write(33, 2, 5000);
    assert_eq!(program.kinds(), [], "a completion speaks for the requests before it");
}

#[test]
fn a_message_or_a_write_of_a_peer_may_have_told_that_a_write_arrived() {
    let mut program = Program::new();
    program.write(10, 1, 1000);
    program.notified();
    program.write(11, 2, 1000);
    program.arrives(3, 0);
    program.write(12, 1, 1000);
    assert_eq!(program.kinds(), []);
}

#[test]
fn reads_and_atomics_race_with_writes_and_not_with_each_other() {
    for (first, second, is_race) in [
        (SendOpcode::RdmaRead, SendOpcode::RdmaRead, false),
        (SendOpcode::RdmaRead, SendOpcode::RdmaWriteWithImm, true),
        (SendOpcode::RdmaWrite, SendOpcode::RdmaRead, true),
        (SendOpcode::FetchAdd, SendOpcode::CompareSwap, false),
        (SendOpcode::RdmaWrite, SendOpcode::FetchAdd, true),
        (SendOpcode::RdmaRead, SendOpcode::FetchAdd, false),
        (SendOpcode::RdmaWrite, SendOpcode::Send, false),
    ] {
        let mut program = Program::new();
        program.post(10, 1, first, 100, 1000, SendFlags::empty());
        program.post(11, 2, second, 200, 1000, SendFlags::FENCE);
        let race = [("remote-race", 11)];
        assert_eq!(program.kinds(), if is_race { &race[..] } else { &[] }, "{first:?} {second:?}");
    }
}

#[test]
fn a_write_behind_a_read_needs_a_fence() {
    let mut program = Program::new();
    program.post(10, 3, SendOpcode::RdmaRead, 100, 1000, SendFlags::empty());
    program.post(11, 3, SendOpcode::RdmaWrite, 500, 1000, SendFlags::FENCE);
    program.write(12, 3, 1000);
    assert_eq!(program.kinds(), [], "what follows the fence is behind the READ as well");
    program.post(13, 3, SendOpcode::RdmaRead, 100, 1000, SendFlags::empty());
    program.write(14, 3, 1000);
    assert_eq!(program.kinds(), [("write-passes-read", 14)]);
}

#[test]
fn what_a_read_brings_is_sent_behind_a_fence_or_a_completion_only() {
    let send = |program: &mut Program, line, number, local, flags| {
        program.post(line, number, SendOpcode::Send, local, 0, flags);
    };
    let read = |program: &mut Program| {
        program.post(10, 1, SendOpcode::RdmaRead, 100, 1000, SendFlags::empty());
    };
    let mut program = Program::new();
    read(&mut program);
    send(&mut program, 11, 1, 164, SendFlags::empty());
    send(&mut program, 12, 1, 100, SendFlags::INLINE);
    send(&mut program, 13, 1, 100, SendFlags::FENCE);
    send(&mut program, 14, 1, 100, SendFlags::empty());
    assert_eq!(program.kinds(), []);
    send(&mut program, 15, 2, 100, SendFlags::FENCE);
    assert_eq!(program.kinds(), [("read-result-early", 15)], "a fence is of one queue pair");
    let mut program = Program::new();
    read(&mut program);
    program.poll(1, 1);
    send(&mut program, 16, 1, 100, SendFlags::empty());
    read(&mut program);
    send(&mut program, 17, 1, 163, SendFlags::empty());
    assert_eq!(program.kinds(), [("read-result-early", 17)]);
}

#[test]
fn notices_on_another_queue_pair_are_told_at_the_eighth_time() {
    let mut program = Program::new();
    let notice = |program: &mut Program, line| {
        program.post(line, 2, SendOpcode::Send, 0x8000, 0, SendFlags::empty());
    };
    for turn in 0..20 {
        program.write(10, 1, 1000 + turn * 64);
        program.poll(1, 1);
        notice(&mut program, 11);
    }
    for _ in 0..20 {
        (0..7).for_each(|turn| {
            program.write(12, 1, 9000 + turn * 64);
            notice(&mut program, 13);
        });
        notice(&mut program, 14);
    }
    assert_eq!(program.kinds(), [], "the WRITE is over, or messages do not take turns with WRITEs");
    for turn in 0..20 {
        program.write(15, 1, 20000 + turn * 64);
        notice(&mut program, 16);
        program.notified();
    }
    assert_eq!(program.kinds(), [("notified-on-other-qp", 16)]);
}

#[test]
fn messages_beside_writes_to_a_relaxed_region_are_told_at_the_eighth_time() {
    let message = |program: &mut Program, line, number| {
        LINE.set(line);
        let completion =
            WorkCompletion { qp_num: number, opcode: WcOpcode::Recv, ..WorkCompletion::default() };
        program.checker.order_of_poll(&completion);
    };
    let program = |relaxed| {
        let mut program = Program::new();
        let (key, address, length, iova, stays_mapped) = (7, 0, 1 << 20, 0, true);
        program.checker.on_event(&Event::RegionRegistered {
            lkey: key,
            rkey: key,
            address,
            length,
            iova,
            stays_mapped,
            relaxed,
        });
        program
    };
    let mut strict = program(false);
    let mut right = program(true);
    for turn in 0..20 {
        strict.arrives(1, turn * 64);
        message(&mut strict, 10, 2);
        // By a message of their queue pair, an atomic there, or a message that is not of their turn.
        right.arrives(1, turn * 64);
        message(&mut right, 11, if turn % 7 == 6 { 1 } else { 2 });
        right.arrives(2, turn * 64);
        let range = RemoteRange { rkey: 7, address: 8, length_bytes: 8 };
        right.checker.order_of_access(2, OperationClass::Atomic, &range, true);
        message(&mut right, 12, 1);
        right.arrives(3, turn * 64);
    }
    assert_eq!(strict.kinds(), [], "the region is not relaxed");
    assert_eq!(right.kinds(), [], "the data was shown, or the peer is another one");
    let mut wrong = program(true);
    for turn in 0..20 {
        wrong.arrives(1, turn * 64);
        message(&mut wrong, 13 + turn, 2);
    }
    assert_eq!(wrong.kinds(), [("notified-on-other-qp", 20)]);
}

#[test]
fn writes_of_a_queue_pair_that_places_data_out_of_order_pass_each_other() {
    for out_of_order in [false, true] {
        let mut program = Program::new();
        let context = QpContext {
            qpn: Qpn::new(3),
            pd: 0,
            send_cq: 0,
            recv_cq: 0,
            recv_queue: 0,
            xrcd: 0,
            ordinal: 0,
            out_of_order,
        };
        let event = QpEvent::StateChanged {
            from: QpState::Rtr,
            to: QpState::Rts,
            by: StateChangeActor::Program,
            connection: 0,
            peer: None,
            requests: 1,
            reads: 1,
        };
        program.checker.on_event(&Event::Qp { qp: &context, event: &event });
        let write = |program: &mut Program, line, local, remote| {
            program.post(line, 3, SendOpcode::RdmaWrite, local, remote, SendFlags::empty());
        };
        write(&mut program, 10, 100, 1000);
        write(&mut program, 11, 100, 1000);
        write(&mut program, 12, 200, 1064);
        program.poll(3, 3);
        write(&mut program, 13, 300, 1000);
        assert_eq!(program.kinds(), [], "the same payload, other bytes, after its completion");
        write(&mut program, 14, 400, 1063);
        let passes = [("write-passes-write", 14)];
        assert_eq!(program.kinds(), if out_of_order { &passes[..] } else { &[] });
    }
}

#[test]
fn programs_that_answer_writes_without_being_told_look_at_memory() {
    let ping_pong = |program: &mut Program, turns, each: fn(&mut Program)| {
        for _ in 0..turns {
            program.arrives(3, 1000);
            each(program);
            program.write(10, 3, 1000);
        }
    };
    let mut program = Program::new();
    ping_pong(&mut program, 1000, |_| WAITS.set(WAITS.get() + 1));
    ping_pong(&mut program, 1000, Program::notified);
    ping_pong(&mut program, 60, |_| {});
    program.write(11, 3, 0);
    ping_pong(&mut program, 60, |_| {});
    program.arrives(3, 0);
    ping_pong(&mut program, 60, |_| {});
    assert_eq!(program.kinds(), []);
    ping_pong(&mut program, 70, |_| {});
    assert_eq!(program.kinds().len(), 1);
    assert_eq!(program.kinds()[0], ("write-polled-in-memory", 10));
}

#[test]
fn a_flag_behind_data_in_a_relaxed_region_is_looked_at_in_memory_as_well() {
    for relaxed in [false, true] {
        let mut program = Program::new();
        let (key, address, length, iova, stays_mapped) = (7, 0, 1 << 20, 0, true);
        program.checker.on_event(&Event::RegionRegistered {
            lkey: key,
            rkey: key,
            address,
            length,
            iova,
            stays_mapped,
            relaxed,
        });
        let flag = RemoteRange { rkey: 7, address: 4096, length_bytes: 8 };
        for _ in 0..80 {
            program.arrives(3, 1000);
            program.checker.order_of_access(3, OperationClass::Write, &flag, true);
            program.checker.order_of_write(3, false);
            program.write(10, 3, 1000);
        }
        let found = [("write-polled-in-memory", 10)];
        assert_eq!(program.kinds(), if relaxed { &found[..] } else { &[] });
    }
}

#[test]
fn writes_of_two_peers_that_overlap_in_time_and_range_race() {
    let mut program = Program::new();
    program.begins(1, 1000);
    program.begins(3, 1064);
    program.checker.order_of_write(3, false);
    program.begins(3, 1032);
    assert_eq!(program.kinds(), [], "the first peer may have given up");
    program.checker.order_of_write(1, false);
    assert_eq!(program.kinds(), [("remote-race", 0)]);
    let mut program = Program::new();
    for _ in 0..3 {
        program.arrives(1, 1000);
        program.arrives(3, 1000);
    }
    program.begins(1, 1000);
    program.checker.order_of_state(1, QpState::Err, None);
    program.arrives(3, 1000);
    program.checker.order_of_write(1, false);
    assert_eq!(program.kinds(), [], "one after the other; one of them died");
}

#[test]
fn what_is_remembered_is_bounded_and_goes_with_the_queue_pair() {
    let mut program = Program::new();
    for turn in 0..100_000 {
        program.post(10, 1, SendOpcode::RdmaRead, turn * 64, turn * 64, SendFlags::empty());
        program.complete(1, 1);
    }
    program.checker.order_of_end(1);
    for turn in 0..100_000 {
        program.post(11, 2, SendOpcode::RdmaWrite, turn * 64, turn * 64, SendFlags::empty());
    }
    assert_eq!(program.kinds(), []);
}
