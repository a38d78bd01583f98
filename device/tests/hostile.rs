//! Packets that no peer should send: counted by reason, never answered, never harmful.
//!
//! The peer of the victim's queue pairs is a bare port, so everything can be forged.

mod kit;

use kit::forger::{Forger, headers};
use kit::{Connection, Memory, Node};
use proptest::prelude::*;
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::host::Counter;
use pumice_transport::types::*;
use pumice_transport::wire::{Aeth, AtomicEth, Deth, Headers, Packet, Psn, Qpn, Reth, Service, Syndrome};

const MEMORY_BYTES: usize = 16_384;
const PEER_QPN: u32 = 0x12_3456;
const PSN: u32 = 0x500;

const SEND_ONLY: u8 = 0x04;
const WRITE_FIRST: u8 = 0x06;
const WRITE_ONLY: u8 = 0x0a;
const READ_REQUEST: u8 = 0x0c;
const READ_RESPONSE_ONLY: u8 = 0x10;
const ACKNOWLEDGE: u8 = 0x11;
const FETCH_ADD: u8 = 0x14;
const ATOMIC_WRITE: u8 = 0x1d;
const UC: u8 = 0x20;
const UD_SEND_ONLY: u8 = 0x64;
const CNP: u8 = 0x81;

struct Scene {
    world: World,
    victim: Node,
    rc: Qpn,
    ud: Qpn,
    peer: Forger,
    stranger: Forger,
}

impl Scene {
    fn new() -> Scene {
        let mut world = World::new(FabricConfig::default());
        let victim = Node::new(&mut world, "10.0.0.1", MEMORY_BYTES, 64);
        victim.memory.write(0, &[0x3c; MEMORY_BYTES]);
        let peer = Forger::new(&world, "10.0.0.9", victim.ip);
        let stranger = Forger::new(&world, "10.0.0.66", victim.ip);
        let rc = victim.create_qp(QpType::Rc);
        let numbers = Connection { psn_here: PSN, psn_there: PSN, ..Connection::default() };
        victim.to_rtr(rc, true, "10.0.0.9".parse().unwrap(), Qpn::new(PEER_QPN), numbers);
        victim.to_rts(rc, true, numbers);
        let ud = victim.create_qp(QpType::Ud);
        victim.to_rts_datagram(ud, 0);
        Scene { world, victim, rc, ud, peer, stranger }
    }

    /// Lets packets arrive and everything that follows happen; timers are left alone.
    fn settle(&mut self) {
        self.world.run_until(100_000, || false);
    }

    fn to_rc(&self, opcode: u8) -> Headers {
        headers(opcode, self.rc, PSN)
    }

    fn write(&self, opcode: u8, address: u64, length: u32) -> Headers {
        Headers { reth: Some(Reth { address, rkey: self.victim.rkey, length }), ..self.to_rc(opcode) }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let snapshot = self.victim.hca.counters().snapshot();
        let traffic = ["rx_packets", "rx_bytes", "rx_batches"];
        let told = snapshot.iter().filter(|(info, _)| !traffic.contains(&info.name));
        told.map(|(info, value)| (info.name, *value)).collect()
    }

    /// The packet is counted for exactly this reason, not answered, and changes nothing.
    fn expect_silence(&mut self, what: &str, counter: Counter, bytes: &[u8], from_stranger: bool) {
        let before = self.counters();
        let sender = if from_stranger { &mut self.stranger } else { &mut self.peer };
        sender.send(&mut self.world, bytes);
        self.settle();
        let mut expected = before;
        expected[counter as usize].1 += 1;
        assert_eq!(self.counters(), expected, "{what}");
        assert!(self.peer.answers(&self.world).is_empty(), "{what} was answered");
        assert!(self.stranger.answers(&self.world).is_empty(), "{what} was answered");
        assert!(self.victim.memory.all() == [0x3c; MEMORY_BYTES], "{what} changed memory");
        assert_eq!(self.victim.state(self.rc), QpState::Rts, "{what}");
        assert_eq!(self.victim.state(self.ud), QpState::Rts, "{what}");
        assert!(self.victim.drain().is_empty(), "{what} made a completion");
        assert!(self.victim.hca.async_events().try_event().is_none(), "{what} raised an event");
    }
}

/// Statements 2 and 8: what is not for us, or not a packet, is dropped without an answer.
#[test]
fn malformed_and_foreign_packets_are_dropped_silently_and_counted() {
    let mut scene = Scene::new();
    scene.victim.post_recv(scene.rc, 1, 0, 4096);
    scene.victim.post_recv(scene.ud, 2, 4096, 4096);
    let good = scene.peer.packet(&scene.to_rc(SEND_ONLY), b"payload!");
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        bytes
    };
    let sealed = |change: &dyn Fn(&mut Vec<u8>)| scene.peer.seal(changed(change));
    let mut with_bth = scene.to_rc(SEND_ONLY);
    with_bth.bth.destination = Qpn::new(0x77);
    let unknown = scene.peer.packet(&with_bth, b"payload!");
    let mut with_bth = scene.to_rc(SEND_ONLY);
    with_bth.bth.pkey = 0x1234;
    let partition = scene.peer.packet(&with_bth, b"payload!");
    let mut with_bth = scene.to_rc(SEND_ONLY);
    with_bth.bth.destination = Qpn::MULTICAST;
    let not_ud = scene.peer.packet(&with_bth, b"payload!");
    let datagram = |destination, qkey| Headers {
        deth: Some(Deth { qkey, source: Qpn::new(PEER_QPN) }),
        ..headers(UD_SEND_ONLY, destination, 0)
    };
    let wrong_qkey = scene.peer.packet(&datagram(scene.ud, 0x2222_2222), b"payload!");
    let no_group = scene.peer.packet(&datagram(Qpn::MULTICAST, 0x1111_1111), b"payload!");
    let mut shortened = scene.peer.packet(&scene.write(WRITE_ONLY, scene.victim.target(0).address, 4), b"");
    shortened.truncate(20);
    let cases: Vec<(&str, Counter, Vec<u8>)> = vec![
        ("one byte", Counter::RxTooShort, vec![SEND_ONLY]),
        ("a BTH without ICRC", Counter::RxTooShort, good[..12].to_vec()),
        ("15 bytes", Counter::RxTooShort, good[..15].to_vec()),
        ("a WRITE without room for its RETH", Counter::RxTooShort, scene.peer.seal(shortened)),
        ("opcode 0xff", Counter::RxBadOpcode, sealed(&|b| b[0] = 0xff)),
        ("opcode 0x1f", Counter::RxBadOpcode, sealed(&|b| b[0] = 0x1f)),
        ("TVer 1", Counter::RxBadVersion, sealed(&|b| b[1] |= 1)),
        (
            "three pad bytes of none",
            Counter::RxBadPad,
            sealed(&|b| {
                b.drain(12..20);
                b[1] |= 0x30;
            }),
        ),
        ("an unknown QPN", Counter::RxUnknownQpn, unknown),
        ("another partition", Counter::RxBadPkey, partition),
        ("UC to an RC queue pair", Counter::RxWrongService, sealed(&|b| b[0] |= UC)),
        ("RC to the multicast QPN", Counter::RxWrongService, not_ud),
        ("a datagram with a wrong Q_Key", Counter::RxBadQkey, wrong_qkey),
        ("a datagram to no group", Counter::RxUnknownGroup, no_group),
        ("a reversed ICRC", Counter::RxBadIcrc, changed(&|b| b[16..].reverse())),
        ("a flipped payload bit", Counter::RxBadIcrc, changed(&|b| b[13] ^= 0x10)),
        ("a flipped PSN bit", Counter::RxBadIcrc, changed(&|b| b[11] ^= 1)),
    ];
    let stranger = scene.stranger.packet(&scene.to_rc(SEND_ONLY), b"payload!");
    for (what, counter, bytes) in &cases {
        scene.expect_silence(what, *counter, bytes, false);
    }
    scene.expect_silence("a stranger's packet", Counter::RxWrongAddress, &stranger, true);
    // The proof that the packet without all this is a good one.
    scene.peer.send(&mut scene.world, &good);
    scene.settle();
    assert_eq!(scene.victim.drain().len(), 1);
    assert_eq!(scene.peer.answers(&scene.world).len(), 1);
}

/// Statements 21, 50, 51: responses to nothing, an ATOMIC WRITE of nothing, a CNP.
#[test]
fn answers_to_nothing_and_congestion_notifications_change_nothing() {
    let mut scene = Scene::new();
    let aeth =
        |syndrome: u8, opcode| Headers { aeth: Some(Aeth { syndrome, msn: 0 }), ..scene.to_rc(opcode) };
    let nothing: Vec<(&str, u8, u8)> = vec![
        ("an ACK", Syndrome::ACK_UNLIMITED.byte(), ACKNOWLEDGE),
        ("a sequence NAK", 0x60, ACKNOWLEDGE),
        ("a fatal NAK", 0x62, ACKNOWLEDGE),
        ("an RNR NAK", 0x21, ACKNOWLEDGE),
        ("a READ response", Syndrome::ACK_UNLIMITED.byte(), READ_RESPONSE_ONLY),
    ];
    let mut cases: Vec<(&str, Counter, Vec<u8>)> = nothing
        .into_iter()
        .map(|(what, syndrome, opcode)| {
            (what, Counter::RxUnexpectedResponse, scene.peer.packet(&aeth(syndrome, opcode), b""))
        })
        .collect();
    let target = scene.victim.target(0).address;
    let empty = scene.peer.packet(&scene.write(ATOMIC_WRITE, target, 0), b"");
    cases.push(("an ATOMIC WRITE of nothing", Counter::RxBadLength, empty));
    let mut cnp = scene.to_rc(CNP);
    cnp.bth.becn = true;
    cases.push(("a CNP", Counter::RxCnp, scene.peer.packet(&cnp, b"")));
    for (what, counter, bytes) in &cases {
        scene.expect_silence(what, *counter, bytes, false);
    }
    assert_eq!(scene.victim.hca.query_qp(scene.rc).unwrap().sq_psn, PSN);
}

/// Requests that are refused for good: the NAK says why, the queue pair goes to ERR, memory stays.
#[test]
fn requests_beyond_memory_or_rights_are_refused() {
    type Make = fn(&Scene) -> (Headers, Vec<u8>);
    let cases: [(&str, u8, Counter, AsyncEventType, Make); 8] = [
        ("a range that wraps", 0x62, Counter::TxNakAccess, AsyncEventType::QpAccessErr, |s| {
            (s.write(WRITE_ONLY, u64::MAX - 3, 8), vec![1; 8])
        }),
        ("a range one byte too long", 0x62, Counter::TxNakAccess, AsyncEventType::QpAccessErr, |s| {
            (s.write(WRITE_ONLY, s.victim.target(MEMORY_BYTES - 7).address, 8), vec![1; 8])
        }),
        ("a range before the region", 0x62, Counter::TxNakAccess, AsyncEventType::QpAccessErr, |s| {
            (s.write(READ_REQUEST, s.victim.target(0).address - 1, 8), Vec::new())
        }),
        ("a READ beyond the region", 0x62, Counter::TxNakAccess, AsyncEventType::QpAccessErr, |s| {
            (s.write(READ_REQUEST, s.victim.target(0).address, MEMORY_BYTES as u32 + 1), Vec::new())
        }),
        ("a RETH length over 2^31", 0x61, Counter::TxNakInvalid, AsyncEventType::QpReqErr, |s| {
            (s.write(WRITE_FIRST, s.victim.target(0).address, (1 << 31) + 1), vec![1; 1024])
        }),
        ("an unknown key", 0x62, Counter::TxNakAccess, AsyncEventType::QpAccessErr, |s| {
            let mut headers = s.write(WRITE_ONLY, s.victim.target(0).address, 8);
            headers.reth.as_mut().unwrap().rkey ^= 0x100;
            (headers, vec![1; 8])
        }),
        ("a misaligned atomic", 0x61, Counter::TxNakInvalid, AsyncEventType::QpReqErr, |s| {
            let RemoteTarget { address, rkey } = s.victim.target(4);
            let eth = AtomicEth { address, rkey, swap_or_add: 1, compare: 0 };
            (Headers { atomic_eth: Some(eth), ..s.to_rc(FETCH_ADD) }, Vec::new())
        }),
        ("payload that is not the RETH length", 0x61, Counter::TxNakInvalid, AsyncEventType::QpReqErr, |s| {
            (s.write(WRITE_ONLY, s.victim.target(0).address, 4), vec![1; 8])
        }),
    ];
    for (what, syndrome, counter, event, make) in cases {
        let mut scene = Scene::new();
        let (headers, payload) = make(&scene);
        let bytes = scene.peer.packet(&headers, &payload);
        scene.peer.send(&mut scene.world, &bytes);
        scene.settle();
        let answers = scene.peer.answers(&scene.world);
        assert_eq!(answers.len(), 1, "{what}");
        let answer = Packet::parse(&answers[0]).unwrap();
        assert_eq!(answer.aeth().unwrap().syndrome, syndrome, "{what}");
        assert_eq!(answer.bth().psn, Psn::new(PSN), "{what}");
        assert_eq!(answer.bth().destination, Qpn::new(PEER_QPN), "{what}");
        assert_eq!(scene.victim.counter(counter), 1, "{what}");
        assert_eq!(scene.victim.state(scene.rc), QpState::Err, "{what}");
        assert!(scene.victim.memory.all() == [0x3c; MEMORY_BYTES], "{what} changed memory");
        let raised = scene.victim.hca.async_events().try_event().unwrap();
        assert_eq!(raised.event, event, "{what}");
        raised.ack();
        // Dead is dead: the same packet again is only counted.
        let before = scene.victim.counter(Counter::RxWrongState);
        scene.peer.send(&mut scene.world, &bytes);
        scene.settle();
        assert_eq!(scene.victim.counter(Counter::RxWrongState), before + 1, "{what}");
        assert!(scene.peer.answers(&scene.world).is_empty(), "{what}");
    }
}

/// A packet with ECN bits CE is answered by one CNP, and a CNP by nothing.
#[test]
fn congestion_marks_are_answered_by_a_cnp_at_most_every_interval() {
    let mut scene = Scene::new();
    let target = scene.victim.target(0).address;
    for k in 0..3 {
        let mut headers = scene.write(WRITE_ONLY, target, 8);
        headers.bth.psn = Psn::new(PSN + k);
        let bytes = scene.peer.packet(&headers, &[0x3c; 8]);
        scene.peer.send_marked(&mut scene.world, &bytes, 0b11);
    }
    scene.settle();
    assert_eq!(scene.victim.counter(Counter::RxCongestionMarked), 3);
    assert_eq!(scene.victim.counter(Counter::TxCnp), 1);
    let answers = scene.peer.answers(&scene.world);
    let cnps = answers.iter().filter(|bytes| bytes[0] == CNP).count();
    assert_eq!(cnps, 1);
    assert_eq!(Packet::parse(&answers[0]).unwrap().bth().destination, Qpn::new(PEER_QPN));
}

/// A victim whose region is the middle third of its memory.
struct Arena {
    scene: Scene,
    memory: Memory,
    rkey: u32,
}

const THIRD: usize = 4096;

impl Arena {
    fn new() -> Arena {
        let scene = Scene::new();
        let memory = Memory::new(3 * THIRD);
        memory.write(0, &[0xe1; 3 * THIRD]);
        let keys = memory.register_part(&scene.victim.hca, scene.victim.pd, THIRD, THIRD, kit::ALL_ACCESS);
        for (qpn, wr_id) in [(scene.rc, 1), (scene.ud, 2)] {
            let sge = Sge { address: memory.address() + THIRD as u64, length: 2000, lkey: keys.lkey };
            for _ in 0..8 {
                scene.victim.hca.post_recv(qpn, &RecvRequest { wr_id, sges: &[sge] }).unwrap();
            }
        }
        Arena { scene, memory, rkey: keys.rkey }
    }

    fn throw(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.scene.peer.send(&mut self.scene.world, bytes);
        }
    }

    fn check(mut self) {
        self.scene.settle();
        assert!(self.memory.read(0, THIRD) == [0xe1; THIRD], "written before the region");
        assert!(self.memory.read(2 * THIRD, THIRD) == [0xe1; THIRD], "written behind the region");
        // Nothing is answered but by a packet that a peer can read.
        for answer in self.scene.peer.answers(&self.scene.world) {
            let packet = Packet::parse(&answer).unwrap();
            assert!(matches!(packet.info().service, Service::Rc | Service::Cnp));
        }
        while let Some(event) = self.scene.victim.hca.async_events().try_event() {
            event.ack();
        }
        self.scene.victim.drain();
        self.scene.victim.hca.destroy_qp(self.scene.rc).unwrap();
        self.scene.victim.hca.destroy_qp(self.scene.ud).unwrap();
    }
}

/// Opcodes of requests of RC.
const REQUESTS: [u8; 13] = [
    SEND_ONLY,
    0x00,
    0x02,
    WRITE_FIRST,
    0x07,
    0x08,
    0x0b,
    WRITE_ONLY,
    READ_REQUEST,
    0x13,
    FETCH_ADD,
    ATOMIC_WRITE,
    0x17,
];

/// Fewer than `limit` bytes.
fn some_bytes(limit: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..limit)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_do_no_harm(packets in prop::collection::vec(some_bytes(300), 1..20)) {
        let mut arena = Arena::new();
        for bytes in &packets {
            arena.throw(bytes);
        }
        arena.check();
    }

    #[test]
    fn arbitrary_packets_with_a_right_icrc_do_no_harm(
        packets in prop::collection::vec((any::<u8>(), 0..4u32, any::<bool>(), some_bytes(1200)), 1..20)
    ) {
        let mut arena = Arena::new();
        for (opcode, gap, to_ud, body) in &packets {
            let qpn = if *to_ud { arena.scene.ud } else { arena.scene.rc };
            let mut bytes = vec![opcode & 0x7f, 0, 0xff, 0xff];
            bytes.extend_from_slice(&qpn.value().to_be_bytes());
            bytes.extend_from_slice(&(PSN + gap).to_be_bytes());
            bytes.extend_from_slice(body);
            bytes.resize(bytes.len().next_multiple_of(4) + 4, 0);
            let bytes = arena.scene.peer.seal(bytes);
            arena.throw(&bytes);
        }
        arena.check();
    }

    #[test]
    fn valid_requests_with_bent_fields_stay_inside(
        requests in prop::collection::vec(
            (prop::sample::select(REQUESTS.to_vec()),
             -64i64..(THIRD as i64 + 64), 0u32..5000, 0usize..1300, 0usize..400),
            1..24)
    ) {
        let mut arena = Arena::new();
        let base = arena.memory.address() + THIRD as u64;
        for (k, (opcode, offset, length, payload, flip)) in requests.iter().enumerate() {
            let address = base.wrapping_add_signed(*offset);
            let mut headers = headers(*opcode, arena.scene.rc, PSN + k as u32);
            if let Some(info) = headers.bth.opcode.info() {
                use pumice_transport::wire::HeaderSet as Set;
                let has = |set| info.headers.contains(set);
                headers.reth = has(Set::RETH).then_some(Reth { address, rkey: arena.rkey, length: *length });
                headers.atomic_eth = has(Set::ATOMIC_ETH)
                    .then_some(AtomicEth { address, rkey: arena.rkey, swap_or_add: 1, compare: 0 });
                headers.imm = has(Set::IMM).then_some(pumice_transport::wire::ImmDt([0; 4]));
                headers.ieth = has(Set::IETH).then_some(pumice_transport::wire::Ieth { rkey: arena.rkey });
            }
            let mut bytes = arena.scene.peer.packet(&headers, &vec![0x5a; *payload]);
            if let Some(byte) = bytes.get_mut(*flip / 8).filter(|_| *flip % 3 == 0) {
                *byte ^= 1 << (flip % 8);
            }
            let bytes = arena.scene.peer.seal(bytes);
            arena.throw(&bytes);
        }
        arena.check();
    }
}
