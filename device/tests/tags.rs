//! Shared receive queues that match the tags of messages: which buffer a message gets, what its completions
//! say, and what the device reads for a rendezvous.

mod kit;

use kit::scene::Scene;
use kit::{Connection, connect};
use pumice_device::hca::{QpInit, SrqSetup};
use pumice_device::objects::tag_list::{TagBuffer, TagChange, TagOperation};
use pumice_device::platform::table::Handle;
use pumice_transport::types::*;

const EAGER: u8 = 3;
const RENDEZVOUS: u8 = 1;
const MATCH: WcFlags = WcFlags::TAG_MATCH;
const VALID: WcFlags = WcFlags::TAG_DATA_VALID;
const WHOLE: WcFlags = MATCH.union(VALID);
/// Where buffers with tags begin in the receiver's memory, and those without.
const TAGGED: usize = 0x1000;
const PLAIN: usize = 0x8000;

struct Bench {
    scene: Scene,
    srq: Handle,
}

impl Bench {
    /// A pair whose receiving end uses a shared receive queue with four plain requests.
    fn new() -> Bench {
        let mut scene = Scene::new();
        let b = &scene.b;
        let tags = Some((b.cq.handle(), 8));
        let setup = SrqSetup { pd: b.pd, max_wr: 8, max_sge: 1, cookie: 0, xrc: None, tags };
        let srq = b.hca.create_srq(&setup).unwrap();
        let mut init = QpInit { srq: Some(srq), ..b.qp_init(QpType::Rc) };
        assert_eq!(b.hca.create_qp(&init).unwrap_err().errno(), libc::EINVAL, "it has a send queue");
        init.capacity = QpCapacity::default();
        let (qb, capacity) = b.hca.create_qp(&init).unwrap();
        assert_eq!(capacity.max_send_wr, 0);
        let qa = scene.a.create_qp(QpType::Rc);
        connect(&scene.a, qa, b, qb, true, Connection::default());
        for wr_id in 100..104 {
            let sges = [b.sge(PLAIN + 0x1000 * (wr_id as usize - 100), 0x1000)];
            b.hca.post_srq_recv(srq, &RecvRequest { wr_id, sges: &sges }).unwrap();
        }
        (scene.qa, scene.qb) = (qa, qb);
        Bench { scene, srq }
    }

    fn change(&self, wr_id: u64, handled: Option<u32>, change: TagChange) -> u32 {
        let operation = TagOperation { wr_id, signaled: true, handled, change };
        self.scene.b.hca.change_tags(self.srq, operation).unwrap()
    }

    /// Adds a buffer of some bytes for a tag, whose number is its identifier.
    fn add(&self, tag: u64, length: u32) -> u32 {
        let sges = vec![self.scene.b.sge(TAGGED, length)];
        self.change(tag, None, TagChange::Add(TagBuffer { wr_id: tag, tag, mask: u64::MAX, sges }))
    }

    /// Sends a message with a header, then `length` bytes of it in all.
    fn send(&mut self, kind: u8, tag: u64, length: u32) {
        let mut header = vec![kind, 0, 0, 0, 0, 0, 0, 77];
        header.extend(tag.to_be_bytes());
        self.scene.a.memory.write(0, &header);
        self.scene.send(1, length);
        self.scene.settle();
    }

    /// Opcode, identifier, flags, bytes and tag of the receiver's completions, all of which succeeded.
    fn seen(&self) -> Vec<(WcOpcode, u64, WcFlags, u32, u64)> {
        let all = self.scene.b.drain();
        all.iter()
            .map(|one| {
                assert_eq!(one.status, WcStatus::Success, "{one:?}");
                (one.opcode, one.wr_id, one.flags, one.byte_len, one.tag().0)
            })
            .collect()
    }
}

#[test]
fn a_message_goes_to_the_buffer_with_its_tag_without_its_header() {
    let mut bench = Bench::new();
    bench.add(5, 64);
    bench.add(6, 64);
    let none = WcFlags::empty();
    assert_eq!(bench.seen(), [(WcOpcode::TagAdd, 5, none, 0, 0), (WcOpcode::TagAdd, 6, none, 0, 0)]);
    bench.scene.a.memory.write(16, b"payload!");
    bench.send(EAGER, 6, 24);
    let completion = bench.scene.b.drain()[0];
    assert_eq!((completion.opcode, completion.wr_id, completion.flags), (WcOpcode::TagRecv, 6, WHOLE));
    assert_eq!((completion.byte_len, completion.tag()), (8, (6, 77)));
    assert_eq!(bench.scene.b.memory.read(TAGGED, 8), b"payload!");
}

#[test]
fn a_message_of_many_packets_is_matched_before_it_is_complete() {
    let mut bench = Bench::new();
    bench.add(9, 10_000);
    bench.seen();
    let contents: Vec<u8> = (0..10_000u32).map(|byte| byte as u8).collect();
    bench.scene.a.memory.write(16, &contents);
    bench.send(EAGER, 9, 10_016);
    assert_eq!(bench.seen(), [(WcOpcode::TagRecv, 9, MATCH, 0, 9), (WcOpcode::TagRecv, 9, VALID, 10_000, 9)]);
    assert_eq!(bench.scene.b.memory.read(TAGGED, 10_000), contents);
}

#[test]
fn unexpected_messages_are_the_programs_and_new_buffers_wait_for_its_report() {
    let mut bench = Bench::new();
    bench.send(EAGER, 5, 24);
    let none = WcFlags::empty();
    assert_eq!(bench.seen(), [(WcOpcode::TagRecv, 100, none, 24, 0)]);
    assert_eq!(bench.scene.b.memory.read(PLAIN, 1), [EAGER], "with its header");
    bench.add(5, 64);
    assert_eq!(bench.seen(), [(WcOpcode::TagAdd, 5, WcFlags::TAG_SYNC_WANTED, 0, 0)]);
    bench.send(EAGER, 5, 24);
    assert_eq!(bench.seen(), [(WcOpcode::TagRecv, 101, none, 24, 0)]);
    bench.change(50, Some(2), TagChange::None);
    assert_eq!(bench.seen(), [(WcOpcode::TagSync, 50, none, 0, 0)]);
    bench.send(EAGER, 5, 24);
    assert_eq!(bench.seen(), [(WcOpcode::TagRecv, 5, WHOLE, 8, 5)]);
    // What is no tagged message is not unexpected.
    bench.send(0, 5, 24);
    bench.scene.send(1, 3);
    bench.scene.settle();
    assert_eq!(bench.seen(), [(WcOpcode::TagNoTag, 102, none, 24, 0), (WcOpcode::TagNoTag, 103, none, 3, 0)]);
    bench.add(1, 64);
    assert_eq!(bench.seen(), [(WcOpcode::TagAdd, 1, none, 0, 0)]);
}

#[test]
fn a_deleted_buffer_is_not_matched_and_a_matched_one_is_not_deleted() {
    let mut bench = Bench::new();
    let (first, second) = (bench.add(1, 64), bench.add(2, 64));
    bench.change(60, None, TagChange::Delete(first));
    bench.send(EAGER, 2, 24);
    bench.change(61, None, TagChange::Delete(second));
    let all = bench.scene.b.drain();
    let last = |count: usize| all.iter().rev().nth(count).map(|one| (one.opcode, one.wr_id, one.status));
    assert_eq!(last(0), Some((WcOpcode::TagDelete, 61, WcStatus::TmErr)));
    assert_eq!(last(2), Some((WcOpcode::TagDelete, 60, WcStatus::Success)));
    bench.send(EAGER, 1, 24);
    assert_eq!(bench.seen()[0].1, 100, "it is unexpected");
}

impl Bench {
    /// Sends a rendezvous about some bytes of the sender's memory at 0x2000. The sender has a receive for the
    /// end.
    fn rendezvous(&mut self, tag: u64, rkey: u32, length: u32) {
        let a = &self.scene.a;
        let contents: Vec<u8> = (0..length).map(|byte| byte as u8 ^ 0x5a).collect();
        a.memory.write(0x2000, &contents);
        a.memory.write(16, &a.target(0x2000).address.to_be_bytes());
        a.memory.write(24, &rkey.to_be_bytes());
        a.memory.write(28, &length.to_be_bytes());
        a.post_recv(self.scene.qa, 30, 0x6000, 64);
        self.send(RENDEZVOUS, tag, 40);
    }
}

#[test]
fn the_payload_of_a_rendezvous_is_read_and_its_sender_told() {
    let mut bench = Bench::new();
    for (tag, length) in [(7, 9000), (8, 0), (9, 16)] {
        bench.add(tag, 9000);
        bench.seen();
        let rkey = bench.scene.a.target(0).rkey;
        bench.rendezvous(tag, rkey, length);
        let expected = [(WcOpcode::TagRecv, tag, MATCH, 0, tag), (WcOpcode::TagRecv, tag, VALID, length, 0)];
        assert_eq!(bench.seen(), expected);
        let contents = bench.scene.a.memory.read(0x2000, length as usize);
        assert_eq!(bench.scene.b.memory.read(TAGGED, length as usize), contents);
        let told = bench.scene.a.drain();
        let received = told.iter().find(|one| one.opcode == WcOpcode::Recv).unwrap();
        assert_eq!((received.wr_id, received.byte_len), (30, 32));
        let mut headers = bench.scene.a.memory.read(0, 32);
        headers[0] = 2;
        assert_eq!(bench.scene.a.memory.read(0x6000, 32), headers);
    }
}

#[test]
fn a_rendezvous_that_does_not_fit_is_left_to_the_program() {
    let mut bench = Bench::new();
    bench.add(7, 100);
    bench.seen();
    let rkey = bench.scene.a.target(0).rkey;
    bench.rendezvous(7, rkey, 101);
    let all = bench.scene.b.drain();
    let seen: Vec<_> = all.iter().map(|one| (one.wr_id, one.status)).collect();
    assert_eq!(seen, [(7, WcStatus::TmRndvIncomplete)]);
    assert_eq!(bench.scene.b.memory.read(TAGGED, 32), bench.scene.a.memory.read(0, 32));
    assert_eq!(bench.scene.states(), (QpState::Rts, QpState::Rts));
}

#[test]
fn a_rendezvous_with_a_wrong_key_fails_with_its_buffer() {
    let mut bench = Bench::new();
    bench.add(7, 100);
    bench.seen();
    bench.rendezvous(7, 0xdead_0000, 100);
    let all = bench.scene.b.drain();
    let seen: Vec<_> = all.iter().map(|one| (one.wr_id, one.status)).collect();
    assert_eq!(seen, [(7, WcStatus::Success), (7, WcStatus::RemAccessErr)]);
    assert_eq!(bench.scene.states().1, QpState::Err);
}

#[test]
fn without_a_request_an_unexpected_message_waits_for_one() {
    let mut bench = Bench::new();
    for _ in 0..4 {
        bench.send(EAGER, 5, 24);
    }
    assert_eq!(bench.seen().len(), 4);
    bench.send(EAGER, 5, 24);
    assert_eq!(bench.seen(), []);
    bench.change(50, Some(4), TagChange::None);
    bench.seen();
    // It has not been counted, and matches when it comes again.
    bench.add(5, 64);
    bench.seen();
    bench.scene.run(2_000_000_000);
    assert_eq!(bench.seen(), [(WcOpcode::TagRecv, 5, WHOLE, 8, 5)]);
}

#[test]
fn destroyed_queue_pairs_and_queues_leave_nothing() {
    let mut bench = Bench::new();
    bench.add(7, 9000);
    let rkey = bench.scene.a.target(0).rkey;
    bench.rendezvous(7, rkey, 9000);
    let (hca, qb) = (&bench.scene.b.hca, bench.scene.qb);
    assert_eq!(hca.destroy_srq(bench.srq).unwrap_err().errno(), libc::EBUSY);
    hca.destroy_qp(qb).unwrap();
    hca.destroy_srq(bench.srq).unwrap();
    let error = hca.change_tags(
        bench.srq,
        TagOperation { wr_id: 0, signaled: true, handled: None, change: TagChange::None },
    );
    assert_eq!(error.unwrap_err().errno(), libc::EINVAL);
}
