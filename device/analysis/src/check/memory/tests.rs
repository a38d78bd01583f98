//! The checker, told of registrations, posts, packets and completions as a device tells of them.

use std::cell::{Cell, RefCell};

use pumice_model::event::Event;
use pumice_platform::table::Handle;
use pumice_transport::event::{PacketIdentity, PacketSide, QpEvent};
use pumice_transport::host::{MemoryError, QpContext};
use pumice_transport::path::{Flow, Path};
use pumice_transport::types::{
    Cause, FailureDetail, QpCapacity, RecvRequest, RemoteRange, SendOpcode, SendRequest, Sge, WcOpcode,
    WcStatus, WorkCompletion,
};
use pumice_transport::wire::{Opcode, OperationClass, Psn, Qpn};

use super::super::{Checker, QpMade};

thread_local! {
    pub(super) static LINE: Cell<u64> = const { Cell::new(1) };
    /// What is mapped, from [`MEMORY`] on.
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(super) const MEMORY: u64 = 0x10_0000;
pub(super) const KEY: u32 = 0x1203;
const QP: u32 = 0x12;
/// Packets of SENDs of the service RC.
const FIRST: Opcode = Opcode::from_byte(0x00);
const LAST: Opcode = Opcode::from_byte(0x02);
pub(super) const ONLY: Opcode = Opcode::from_byte(0x04);

fn capture(addresses: &mut Vec<u64>) {
    addresses.push(LINE.get());
}

fn read(ranges: &[(u64, usize)], out: &mut [u8]) -> bool {
    BYTES.with_borrow(|bytes| {
        let mut out = out.iter_mut();
        ranges.iter().all(|(start, length)| {
            let first = (*start - MEMORY) as usize;
            let Some(part) = bytes.get(first..first + length) else { return false };
            part.iter().zip(&mut out).for_each(|(byte, out)| *out = *byte);
            true
        })
    })
}

/// What follows happens at this line of the program.
pub(super) fn at(line: u64) {
    LINE.set(line);
}

/// The program writes.
pub(super) fn write(offset: usize) {
    BYTES.with_borrow_mut(|bytes| bytes[offset] ^= 1);
}

pub(super) struct Rung(pub(super) Checker);

impl Rung {
    /// A checker that knows a queue pair, and 64 KiB of memory under a key.
    pub(super) fn new() -> Rung {
        Rung::of("RC")
    }

    /// The same with a queue pair of this service.
    pub(super) fn of(service: &'static str) -> Rung {
        BYTES.set(vec![0; 0x10000]);
        let mut checker = Checker::new(capture, false);
        checker.set_memory_reader(read);
        at(1);
        checker.object_made(0x2000, "queue pair", "ibv_create_qp");
        checker.qp_made(&QpMade {
            address: 0x2000,
            number: QP,
            ordinal: 0,
            service,
            send_cq: Some(5),
            recv_cq: Some(5),
            capacity: QpCapacity::default(),
        });
        let mut rung = Rung(checker);
        rung.device(&Event::RegionRegistered {
            lkey: KEY,
            rkey: KEY,
            address: MEMORY,
            length: 0x10000,
            iova: 0,
            stays_mapped: true,
            relaxed: false,
        });
        rung
    }

    pub(super) fn device(&mut self, event: &Event<'_>) {
        self.0.on_event(event);
    }

    pub(super) fn qp(&mut self, event: &QpEvent<'_>) {
        let qp = context();
        self.0.on_event(&Event::Qp { qp: &qp, event });
    }

    pub(super) fn send(&mut self, message: u64, opcode: SendOpcode, signaled: bool, sges: &[Sge]) {
        let length_bytes = sges.iter().map(|sge| sge.length).sum();
        let psn = Psn::new(message as u32);
        let (wr_id, packet_count, inline) = (message, 1, false);
        let request = SendRequest { sges, ..SendRequest::new(wr_id, opcode) };
        self.qp(&QpEvent::SendPosted {
            wr_id,
            message,
            opcode,
            length_bytes,
            psn,
            packet_count,
            signaled,
            inline,
            request: &request,
        });
    }

    fn leaves(&mut self, message: u64) {
        let path = path();
        let identity = PacketIdentity {
            side: PacketSide::Requester,
            message,
            relative_psn: message as u32,
            transmission: 1,
        };
        self.qp(&QpEvent::PacketSent {
            identity,
            opcode: ONLY,
            psn: Psn::new(message as u32),
            length_bytes: 30,
            destination: Qpn::new(QP),
            path: &path,
        });
    }

    pub(super) fn receive(&mut self, wr_id: u64, sges: &[Sge]) {
        self.qp(&QpEvent::RecvPosted { request: &RecvRequest { wr_id, sges } });
    }

    pub(super) fn comes(&mut self, opcode: Opcode) {
        let flow = path().flow;
        self.qp(&QpEvent::PacketReceived {
            is_answer: false,
            opcode,
            psn: Psn::new(0),
            relative_psn: None,
            length_bytes: 30,
            source: None,
            flow: &flow,
        });
    }

    pub(super) fn stores(&mut self, range: RemoteRange, ends: bool) {
        self.qp(&QpEvent::RemoteAccess { class: OperationClass::Write, range, ends });
    }

    pub(super) fn receives(&mut self, wr_id: u64, byte_len: u32) {
        let (opcode, qp_num) = (WcOpcode::Recv, QP);
        let completion = WorkCompletion { wr_id, opcode, qp_num, byte_len, ..WorkCompletion::default() };
        self.qp(&QpEvent::Completed { completion: &completion, cq: 5, released: 0 });
    }

    pub(super) fn polls(&mut self, wr_id: u64) {
        let (opcode, qp_num, byte_len) = (WcOpcode::Recv, QP, 48);
        let completion = WorkCompletion { wr_id, opcode, qp_num, byte_len, ..WorkCompletion::default() };
        let cq = Handle { index: 5, generation: 0 };
        self.device(&Event::Polled { cq, completion: &completion });
    }

    pub(super) fn completes(&mut self, opcode: WcOpcode, status: WcStatus, wr_id: u64, released: u32) {
        let completion = WorkCompletion { wr_id, status, opcode, qp_num: QP, ..WorkCompletion::default() };
        self.qp(&QpEvent::Completed { completion: &completion, cq: 5, released });
    }

    /// A send request completes, and the program polls that.
    fn sent(&mut self) {
        self.completes(WcOpcode::Send, WcStatus::Success, 0, 1);
        self.polls_send();
    }

    pub(super) fn polls_send(&mut self) {
        let completion = WorkCompletion { opcode: WcOpcode::Send, qp_num: QP, ..WorkCompletion::default() };
        let cq = Handle { index: 5, generation: 0 };
        self.device(&Event::Polled { cq, completion: &completion });
    }

    /// Kinds, lines and counts of what was found.
    pub(super) fn found(&mut self) -> Vec<(&'static str, u64, u64)> {
        let all = self.0.findings().all().iter();
        all.map(|one| (one.kind.name, one.call_site.addresses()[0], one.count)).collect()
    }

    pub(super) fn numbers(&mut self) -> String {
        self.0.findings().all().iter().map(|one| one.numbers.as_str()).collect()
    }
}

fn path() -> Path {
    let here = [127, 0, 0, 1].into();
    let flow = Flow { source: here, destination: here, source_port: 1, destination_port: 4791 };
    Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 }
}

pub(super) fn context() -> QpContext {
    let qpn = Qpn::new(QP);
    QpContext { qpn, pd: 1, send_cq: 5, recv_cq: 5, recv_queue: 9, xrcd: 0, ordinal: 0, out_of_order: false }
}

pub(super) fn sge(offset: u64, length: u32) -> Sge {
    Sge { address: offset, length, lkey: KEY }
}

pub(super) fn range(offset: u64, length: u64) -> RemoteRange {
    RemoteRange { rkey: KEY, address: offset, length_bytes: length }
}

#[test]
fn payload_that_changes_is_found_at_its_post() {
    let mut rung = Rung::new();
    at(10);
    rung.send(0, SendOpcode::Send, true, &[sge(0, 8), sge(64, 8)]);
    rung.leaves(0);
    rung.sent();
    write(0);
    assert_eq!(rung.found(), [], "it was complete");
    at(11);
    rung.send(1, SendOpcode::Send, true, &[sge(0, 8), sge(64, 8)]);
    write(8);
    rung.leaves(1);
    write(71);
    rung.sent();
    assert_eq!(rung.found(), [("send-buffer-changed", 11, 1)]);
    assert!(rung.numbers().contains("after its packets had left"), "{}", rung.numbers());
    at(12);
    rung.send(2, SendOpcode::RdmaWrite, true, &[sge(0, 0x8000)]);
    write(0x7fff);
    rung.leaves(2);
    write(0x7fff);
    rung.sent();
    assert_eq!(rung.found().last(), Some(&("send-buffer-changed", 12, 1)));
    assert!(rung.numbers().contains("before its last packet had left"), "{}", rung.numbers());
}

#[test]
fn a_datagram_is_not_sent_again_so_only_a_change_before_it_leaves_is_found() {
    let mut rung = Rung::of("UD");
    rung.send(0, SendOpcode::Send, true, &[sge(0, 8)]);
    rung.leaves(0);
    write(0);
    rung.sent();
    assert_eq!(rung.found(), []);
    at(15);
    rung.send(1, SendOpcode::Send, true, &[sge(0, 8)]);
    write(0);
    rung.leaves(1);
    rung.sent();
    assert_eq!(rung.found(), [("send-buffer-changed", 15, 1)]);
}

#[test]
fn a_request_without_a_completion_is_over_when_it_is_acknowledged() {
    let mut rung = Rung::new();
    at(20);
    for message in 0..3 {
        rung.send(message, SendOpcode::Send, message == 2, &[sge(message * 8, 8)]);
        rung.leaves(message);
    }
    rung.qp(&QpEvent::Acknowledged { before: Psn::new(1) });
    write(0);
    assert_eq!(rung.found(), []);
    write(8);
    rung.completes(WcOpcode::Send, WcStatus::Success, 2, 3);
    assert_eq!(rung.found(), [], "that is known when it is polled");
    rung.polls_send();
    assert_eq!(rung.found(), [("send-buffer-changed", 20, 1)], "the second one only");
}

#[test]
fn what_fails_what_is_stored_and_what_the_device_changes_is_not_told() {
    let mut rung = Rung::new();
    rung.send(0, SendOpcode::Send, true, &[sge(0, 8)]);
    write(0);
    rung.completes(WcOpcode::Send, WcStatus::RetryExcErr, 0, 1);
    rung.send(1, SendOpcode::RdmaRead, true, &[sge(0, 8)]);
    write(0);
    rung.sent();
    // A WRITE of the peer under way when the request is posted, and one that comes later.
    rung.stores(range(0, 0x2000), false);
    rung.send(2, SendOpcode::Send, true, &[sge(0x1000, 8)]);
    write(0x1000);
    rung.sent();
    rung.qp(&QpEvent::RemoteWriteEnded { has_imm: false });
    rung.send(3, SendOpcode::Send, true, &[sge(0x1000, 8)]);
    rung.stores(range(0x1004, 1), true);
    write(0x1004);
    rung.sent();
    // The answer comes into the same buffer.
    rung.receive(0, &[sge(0x3000, 8)]);
    write(0x3000);
    rung.send(4, SendOpcode::Send, true, &[sge(0x3004, 8)]);
    rung.comes(ONLY);
    write(0x3004);
    rung.sent();
    assert_eq!(rung.found(), []);
    rung.send(5, SendOpcode::Send, true, &[sge(0x1000, 8)]);
    write(0x1000);
    rung.sent();
    assert_eq!(rung.found().len(), 1, "the WRITE is over");
}

#[test]
fn a_receive_is_looked_at_when_its_message_begins() {
    let mut rung = Rung::new();
    at(30);
    rung.receive(7, &[sge(0, 0x1000)]);
    at(31);
    rung.receive(8, &[sge(0x1000, 0x1000)]);
    rung.comes(FIRST);
    write(0);
    rung.comes(FIRST);
    rung.comes(LAST);
    rung.completes(WcOpcode::Recv, WcStatus::Success, 7, 0);
    assert_eq!(rung.found(), [], "the message changes it, the first packet came twice");
    write(0x1fff);
    rung.comes(ONLY);
    rung.completes(WcOpcode::Recv, WcStatus::Success, 8, 0);
    assert_eq!(rung.found(), [("receive-buffer-written", 31, 1)]);
}

#[test]
fn memory_that_is_not_mapped_any_more_is_found() {
    let mut rung = Rung::new();
    at(40);
    rung.send(0, SendOpcode::Send, true, &[sge(0x8000, 8)]);
    rung.leaves(0);
    BYTES.set(vec![0; 0x8000]);
    rung.sent();
    assert_eq!(rung.found(), [("freed-while-in-use", 40, 1)]);
}

#[test]
fn a_region_is_in_use_until_the_requests_are_over() {
    let mut rung = Rung::new();
    let end = Event::RegionDeregistered { lkey: KEY, rkey: KEY };
    let begin = Event::RegionRegistered {
        lkey: KEY,
        rkey: KEY,
        address: MEMORY,
        length: 0x10000,
        iova: 0,
        stays_mapped: true,
        relaxed: false,
    };
    rung.send(0, SendOpcode::Send, true, &[sge(0, 8)]);
    rung.receive(0, &[sge(0, 8)]);
    rung.completes(WcOpcode::Recv, WcStatus::WrFlushErr, 0, 0);
    rung.sent();
    rung.send(1, SendOpcode::Send, false, &[sge(0, 8)]);
    rung.qp(&QpEvent::Acknowledged { before: Psn::new(2) });
    rung.device(&end);
    assert_eq!(rung.found(), []);
    rung.device(&begin);
    let requests =
        [RecvRequest { wr_id: 3, sges: &[sge(0, 8)] }, RecvRequest { wr_id: 4, sges: &[sge(0, 8)] }];
    for request in &requests {
        rung.device(&Event::SharedRecvPosted { srq: 9, request });
    }
    rung.completes(WcOpcode::Recv, WcStatus::Success, 4, 0);
    at(50);
    rung.device(&end);
    assert_eq!(rung.found(), [("deregistered-while-in-use", 50, 1)]);
    assert!(rung.numbers().contains(": 1; the oldest is a receive of a shared receive queue, 0x3"));
    rung.device(&begin);
    rung.device(&Event::SrqDestroyed { srq: 9 });
    rung.device(&Event::QpDestroyed { qp: &context() });
    rung.device(&end);
    assert_eq!(rung.found().len(), 1);
}

#[test]
fn memory_is_in_use_until_the_completion_is_polled() {
    let mut rung = Rung::new();
    at(70);
    rung.send(0, SendOpcode::Send, true, &[sge(0, 8)]);
    rung.leaves(0);
    rung.completes(WcOpcode::Send, WcStatus::Success, 0, 1);
    rung.receive(7, &[sge(0x1000, 8)]);
    rung.comes(ONLY);
    rung.receives(7, 8);
    rung.send(1, SendOpcode::RdmaRead, true, &[sge(0x2000, 8)]);
    rung.completes(WcOpcode::RdmaRead, WcStatus::Success, 1, 1);
    let users = [0, 0x1000, 0x2000].map(|offset| rung.0.user_of(MEMORY + offset, 1).is_some());
    assert_eq!(users, [true, false, true], "the sender may have told of the receive");
    write(0);
    at(71);
    rung.polls_send();
    assert_eq!(rung.found(), [("send-buffer-changed", 70, 1)]);
    assert!(rung.numbers().contains("before its completion was polled"), "{}", rung.numbers());
    assert_eq!(rung.0.user_of(MEMORY, 1), None, "it was polled");
    at(72);
    rung.device(&Event::RegionDeregistered { lkey: KEY, rkey: KEY });
    assert_eq!(rung.found().last(), Some(&("deregistered-while-in-use", 72, 1)));
    assert!(rung.numbers().contains(": 1; the oldest is a READ or an atomic of"), "{}", rung.numbers());
    assert!(rung.numbers().contains("whose completion the program has not polled"), "{}", rung.numbers());
    rung.polls_send();
    rung.device(&Event::RegionDeregistered { lkey: KEY, rkey: KEY });
    assert_eq!(rung.found().len(), 2, "all is polled");
}

#[test]
fn a_key_is_stale_if_its_region_is_gone() {
    let mut rung = Rung::new();
    let refused = |reason, detail| Cause::RequestRefused { syndrome: None, psn: Psn::new(0), reason, detail };
    let (unknown, other) = (MemoryError::UnknownKey.reason(), MemoryError::OutOfRange.reason());
    let remote = FailureDetail::Remote(range(0, 8));
    rung.qp(&QpEvent::Logged(&refused(unknown, remote)));
    at(60);
    rung.device(&Event::RegionDeregistered { lkey: KEY, rkey: KEY });
    rung.qp(&QpEvent::Logged(&refused(other, remote)));
    rung.qp(&QpEvent::Logged(&refused(
        unknown,
        FailureDetail::Remote(RemoteRange { rkey: KEY + 1, ..range(0, 8) }),
    )));
    assert_eq!(rung.found(), []);
    rung.stores(range(0, 0x2000), false);
    rung.qp(&QpEvent::Logged(&refused(unknown, FailureDetail::None)));
    assert_eq!(rung.found(), [("stale-rkey", 60, 1)]);
}

#[test]
fn receives_overlap_if_a_message_replaces_another_that_was_not_polled() {
    let mut rung = Rung::new();
    for line in 70..73 {
        at(line);
        rung.receive(line, &[sge(0, 64)]);
    }
    rung.comes(ONLY);
    write(3);
    rung.receives(70, 8);
    rung.polls(70);
    // It looks at what it polled, and changes it.
    write(3);
    rung.comes(ONLY);
    write(3);
    rung.receives(71, 8);
    // The same contents come again.
    at(73);
    rung.receive(73, &[sge(2, 62)]);
    rung.comes(ONLY);
    rung.receives(72, 8);
    assert_eq!(rung.found(), []);
    rung.comes(ONLY);
    write(3);
    rung.receives(73, 8);
    assert_eq!(rung.found(), [("buffers-overlap", 73, 1)]);
    assert!(rung.numbers().contains("replaced what had come for a receive"), "{}", rung.numbers());
}

#[test]
fn a_receive_overlaps_payload_if_its_message_changes_what_has_not_left() {
    let mut rung = Rung::new();
    at(80);
    rung.receive(1, &[sge(0, 64)]);
    rung.send(0, SendOpcode::Send, true, &[sge(0, 64)]);
    rung.leaves(0);
    rung.comes(ONLY);
    write(3);
    rung.receives(1, 64);
    rung.sent();
    assert_eq!(rung.found(), [], "the answer to a request may come into its buffer");
    at(81);
    rung.receive(2, &[sge(0, 64)]);
    at(82);
    rung.send(1, SendOpcode::Send, true, &[sge(8, 64)]);
    rung.comes(ONLY);
    write(9);
    rung.receives(2, 64);
    rung.leaves(1);
    rung.sent();
    assert_eq!(rung.found(), [("buffers-overlap", 81, 1)]);
}

#[test]
fn a_write_into_posted_buffers_is_found_if_it_is_lost_or_sent() {
    let mut rung = Rung::new();
    at(90);
    rung.receive(1, &[sge(0, 64)]);
    rung.stores(range(32, 8), true);
    rung.comes(ONLY);
    rung.receives(1, 32);
    assert_eq!(rung.found(), [], "the message is shorter");
    rung.receive(2, &[sge(0, 64)]);
    rung.stores(range(32, 8), true);
    rung.comes(ONLY);
    rung.receives(2, 33);
    assert_eq!(rung.found(), [("write-into-posted", 90, 1)]);
    at(91);
    rung.send(0, SendOpcode::Send, true, &[sge(0, 64)]);
    write(5);
    rung.stores(range(5, 1), true);
    rung.leaves(0);
    rung.sent();
    at(92);
    rung.send(1, SendOpcode::Send, true, &[sge(0, 64)]);
    rung.leaves(1);
    write(5);
    rung.stores(range(5, 1), true);
    rung.sent();
    assert_eq!(rung.found(), [("write-into-posted", 90, 1), ("write-into-posted", 91, 1)]);
}

#[test]
fn a_buffer_may_be_prepared_for_inline_payload_and_a_region_may_change() {
    let mut rung = Rung::new();
    rung.receive(1, &[sge(0, 64)]);
    write(5);
    let sges = [Sge { address: MEMORY, length: 8, lkey: 0 }];
    let request = SendRequest { sges: &sges, ..SendRequest::new(0, SendOpcode::Send) };
    rung.qp(&QpEvent::SendPosted {
        wr_id: 0,
        message: 0,
        opcode: SendOpcode::Send,
        length_bytes: 8,
        psn: Psn::new(0),
        packet_count: 1,
        signaled: true,
        inline: true,
        request: &request,
    });
    rung.comes(ONLY);
    rung.receives(1, 8);
    rung.receive(2, &[sge(0, 64)]);
    rung.device(&Event::RegionRegistered {
        lkey: KEY,
        rkey: KEY,
        address: MEMORY + 64,
        length: 64,
        iova: 0,
        stays_mapped: true,
        relaxed: false,
    });
    write(5);
    assert_eq!(rung.0.user_of(MEMORY, 64), None, "the key stands for other memory");
    rung.comes(ONLY);
    rung.receives(2, 8);
    assert_eq!(rung.found(), []);
}

#[test]
fn receives_of_a_shared_queue_are_looked_at_in_their_order() {
    let mut rung = Rung::new();
    let post = |rung: &mut Rung, line: u64| {
        at(line);
        let request = RecvRequest { wr_id: line, sges: &[sge(line * 64, 64)] };
        rung.device(&Event::SharedRecvPosted { srq: 9, request: &request });
    };
    for line in 100..104 {
        post(&mut rung, line);
    }
    rung.comes(ONLY);
    write(100 * 64);
    rung.receives(100, 8);
    write(100 * 64);
    rung.comes(FIRST);
    write(101 * 64);
    rung.comes(FIRST);
    rung.comes(LAST);
    rung.receives(101, 8);
    assert_eq!(rung.found(), [], "the messages change them, the first packet came twice");
    write(102 * 64);
    write(103 * 64);
    rung.comes(ONLY);
    rung.receives(102, 8);
    assert_eq!(rung.found(), [("receive-buffer-written", 102, 1)]);
    rung.comes(ONLY);
    assert_eq!(rung.found().last(), Some(&("receive-buffer-written", 103, 1)));
}

#[test]
fn what_overlaps_in_a_shared_queue_is_found_as_in_others() {
    let mut rung = Rung::new();
    for line in [110, 111] {
        at(line);
        let request = RecvRequest { wr_id: line, sges: &[sge(line - 110, 64)] };
        rung.device(&Event::SharedRecvPosted { srq: 9, request: &request });
    }
    rung.comes(ONLY);
    write(3);
    rung.receives(110, 8);
    rung.comes(ONLY);
    write(3);
    rung.receives(111, 8);
    assert_eq!(rung.found(), [("buffers-overlap", 111, 1)]);
}

#[test]
fn payload_that_changes_on_a_stack_is_said_to_be_there() {
    for says in [true, false] {
        let mut rung = Rung::new();
        let stack: fn() -> (u64, u64) =
            if says { || (MEMORY, MEMORY + 64) } else { || (MEMORY + 8, MEMORY + 64) };
        rung.0.set_stack_source(stack);
        rung.send(0, SendOpcode::Send, true, &[sge(0, 8), sge(56, 8)]);
        write(0);
        rung.sent();
        assert_eq!(rung.numbers().contains("IBV_SEND_INLINE copies"), says);
        assert_eq!(rung.found().len(), 1);
    }
}

thread_local! {
    static BOUNDS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

#[test]
fn freed_memory_is_found_where_it_is_freed_while_a_request_uses_it() {
    let mut rung = Rung::new();
    rung.0.set_bounds_callback(|low, high| BOUNDS.set((low, high)));
    at(120);
    rung.send(0, SendOpcode::Send, true, &[sge(64, 8)]);
    rung.receive(1, &[sge(256, 64)]);
    let (low, high) = BOUNDS.get();
    assert!(low == MEMORY + 64 && (MEMORY + 320..=MEMORY + 384).contains(&high), "{low:#x} {high:#x}");
    let users = [(0, 64), (0, 65), (71, 1), (72, 184), (256, 1)];
    let found = users.map(|(offset, bytes)| rung.0.user_of(MEMORY + offset, bytes));
    let [send, receive] = [found[1], found[4]];
    assert!(send.is_some() && receive > send, "{found:?}");
    assert_eq!(found, [None, send, send, None, receive]);
    at(121);
    rung.0.memory_freed(send.unwrap(), "free");
    rung.0.memory_freed(77, "free");
    write(64);
    rung.leaves(0);
    rung.sent();
    assert_eq!(rung.found(), [("freed-while-in-use", 121, 1)], "that it changes is not told as well");
    assert!(
        rung.numbers().starts_with("free gives back memory that a send request of"),
        "{}",
        rung.numbers()
    );
    rung.device(&Event::RegionDeregistered { lkey: KEY, rkey: KEY });
    assert_eq!(rung.0.user_of(MEMORY + 256, 1), None, "its region is gone, which is told");
    rung.device(&Event::QpDestroyed { qp: &context() });
    assert_eq!(BOUNDS.get(), (0, 0));
}

#[test]
fn receives_are_filled_unless_another_request_uses_their_buffers() {
    let mut rung = Rung::new();
    rung.0.set_poisoner(|ranges| {
        for (start, bytes) in ranges {
            let first = (start - MEMORY) as usize;
            BYTES.with_borrow_mut(|all| all[first..first + bytes].fill(0xa5));
        }
        true
    });
    rung.send(0, SendOpcode::Send, true, &[sge(0, 8)]);
    rung.receive(1, &[sge(0, 8), sge(32, 8)]);
    rung.receive(2, &[sge(64, 8), sge(96, 8)]);
    let filled = BYTES.with_borrow(|all| (0..128).filter(|offset| all[*offset] == 0xa5).count());
    assert_eq!(filled, 16);
    rung.comes(ONLY);
    rung.receives(1, 8);
    rung.comes(ONLY);
    rung.receives(2, 8);
    assert_eq!(rung.found(), [], "it was filled before it was looked at");
}
