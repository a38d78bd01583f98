//! Memory windows of both types, bound and used through queue pairs: who may bind what, and what opens for
//! whom.

mod kit;

use kit::scene::Scene;
use pumice_device::memory::{WindowKeys, WindowType};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

const OK: WcStatus = WcStatus::Success;
const REFUSED: WcStatus = WcStatus::MwBindErr;
const CLOSED: WcStatus = WcStatus::RemAccessErr;

struct Bench {
    scene: Scene,
}

impl Bench {
    fn new() -> Bench {
        Bench { scene: Scene::new() }
    }

    /// A fresh pair: the one before may have failed.
    fn fresh_pair(&mut self) {
        (self.scene.qa, self.scene.qb) = self.scene.another_pair(QpType::Rc);
    }

    fn window(&self, kind: WindowType) -> WindowKeys {
        self.scene.b.hca.alloc_mw(self.scene.b.pd, kind).unwrap()
    }

    /// 64 bytes at 128 of `b`'s memory, all rights, the next key.
    fn bind_of(&self, rkey: u32) -> WindowBind {
        WindowBind {
            window_rkey: rkey,
            new_rkey: next_key(rkey),
            region_lkey: self.scene.b.lkey,
            address: self.scene.b.target(128).address,
            length: 64,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        }
    }

    /// Binds on `b`'s queue pair.
    fn bind(&mut self, bind: WindowBind) -> WcStatus {
        self.on_b(SendRequest { bind: Some(bind), ..SendRequest::new(1, SendOpcode::BindWindow) })
    }

    fn invalidate(&mut self, rkey: u32) -> WcStatus {
        self.on_b(SendRequest { invalidate_rkey: rkey, ..SendRequest::new(1, SendOpcode::LocalInvalidate) })
    }

    fn on_b(&mut self, request: SendRequest<'_>) -> WcStatus {
        let scene = &mut self.scene;
        scene.b.hca.post_send(scene.qb, &request).unwrap();
        scene.settle();
        scene.b.drain()[0].status
    }

    /// `a` asks for 8 bytes under a key, on the current pair.
    fn access(&mut self, opcode: SendOpcode, address: u64, rkey: u32) -> WcStatus {
        let scene = &mut self.scene;
        let sges = [scene.a.sge(0, 8)];
        let atomic = Some(AtomicOperation::FetchAdd { add: 1 });
        let remote = RemoteTarget { address, rkey };
        scene.post(&SendRequest { sges: &sges, remote, atomic, ..SendRequest::new(1, opcode) });
        scene.settle();
        scene.b.drain();
        let status = scene.a.drain()[0].status;
        if status != OK {
            self.fresh_pair();
        }
        status
    }

    fn inside(&self) -> u64 {
        self.scene.b.target(128).address
    }
}

fn next_key(rkey: u32) -> u32 {
    rkey & !0xff | rkey.wrapping_add(1) & 0xff
}

/// What is wrong with a binding, and on which type of window.
type Spoil = fn(&Bench, &mut WindowBind);

#[test]
fn bindings_that_cannot_be_are_refused_on_either_type() {
    let cases: [(&str, Spoil); 9] = [
        ("beyond the region", |b, bind| bind.length = b.scene.b.memory.len() as u64),
        ("before the region", |_, bind| bind.address -= 129),
        ("wraps", |_, bind| bind.length = u64::MAX - 8),
        ("no region", |_, bind| bind.region_lkey = 0xdead_0000),
        ("a window for a region", |_, bind| bind.region_lkey = bind.window_rkey),
        ("another window's key", |_, bind| bind.new_rkey ^= 0x100),
        ("local rights", |_, bind| bind.access |= Access::LOCAL_WRITE),
        ("binding rights", |_, bind| bind.access |= Access::MW_BIND),
        ("no window", |_, bind| bind.window_rkey = 0x00ff_ff00),
    ];
    for kind in [WindowType::Type1, WindowType::Type2] {
        for (what, spoil) in cases {
            let mut bench = Bench::new();
            let window = bench.window(kind);
            let mut bind = bench.bind_of(window.rkey);
            spoil(&bench, &mut bind);
            assert_eq!(bench.bind(bind), REFUSED, "{what}, {kind:?}");
            assert_eq!(bench.scene.states().1, QpState::Err);
        }
    }
}

#[test]
fn a_region_must_allow_windows_and_what_they_open() {
    let plain = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let cases = [
        (plain, Access::REMOTE_READ, REFUSED, "without MW_BIND"),
        (Access::MW_BIND, Access::REMOTE_WRITE, REFUSED, "writing needs LOCAL_WRITE"),
        (Access::MW_BIND, Access::REMOTE_ATOMIC, REFUSED, "atomics need LOCAL_WRITE"),
        (Access::MW_BIND, Access::REMOTE_READ, OK, "reading does not"),
        // A window may open more to peers than the region itself does.
        (Access::MW_BIND | Access::LOCAL_WRITE, Access::REMOTE_WRITE, OK, "not REMOTE_WRITE of the region"),
        (
            Access::MW_BIND | Access::LOCAL_WRITE | Access::ZERO_BASED,
            Access::REMOTE_READ,
            REFUSED,
            "zero-based",
        ),
    ];
    for kind in [WindowType::Type1, WindowType::Type2] {
        for (rights, access, expected, what) in cases {
            let mut bench = Bench::new();
            let b = &bench.scene.b;
            let region = b.memory.register(&b.hca, b.pd, rights);
            let window = bench.window(kind);
            let bind = WindowBind { region_lkey: region.lkey, access, ..bench.bind_of(window.rkey) };
            assert_eq!(bench.bind(bind), expected, "{what}, {kind:?}");
        }
    }
}

#[test]
fn window_region_and_queue_pair_are_of_one_domain() {
    for foreign_window in [true, false] {
        let mut bench = Bench::new();
        let b = &bench.scene.b;
        let other = b.hca.alloc_pd().unwrap();
        let region = b.memory.register(&b.hca, other, kit::ALL_ACCESS);
        let window = if foreign_window {
            b.hca.alloc_mw(other, WindowType::Type1).unwrap()
        } else {
            bench.window(WindowType::Type1)
        };
        let mut bind = bench.bind_of(window.rkey);
        if !foreign_window {
            bind.region_lkey = region.lkey;
        }
        assert_eq!(bench.bind(bind), REFUSED);
    }
}

/// Bound again without unbinding: type 1 moves, and the key before is dead; type 2 has to be invalidated
/// first.
#[test]
fn only_type_1_is_bound_again_as_it_is() {
    let mut bench = Bench::new();
    let window = bench.window(WindowType::Type1);
    let first = bench.bind_of(window.rkey);
    assert_eq!(bench.bind(first), OK);
    let second = bench.bind_of(first.new_rkey);
    assert_eq!(bench.bind(second), OK);
    let inside = bench.inside();
    assert_eq!(bench.access(SendOpcode::RdmaWrite, inside, second.new_rkey), OK);
    assert_eq!(bench.access(SendOpcode::RdmaWrite, inside, first.new_rkey), CLOSED);

    let mut bench = Bench::new();
    let window = bench.window(WindowType::Type2);
    let first = bench.bind_of(window.rkey);
    assert_eq!(bench.bind(first), OK);
    assert_eq!(bench.invalidate(first.new_rkey), OK);
    assert_eq!(bench.bind(bench.bind_of(first.new_rkey)), OK);
    assert_eq!(bench.bind(bench.bind_of(next_key(first.new_rkey))), REFUSED, "it is bound");
}

#[test]
fn type_2_needs_bytes_and_type_1_is_not_zero_based() {
    for (kind, spoil) in [
        (WindowType::Type2, (|_, bind| bind.length = 0) as Spoil),
        (WindowType::Type1, |_, bind| bind.access |= Access::ZERO_BASED),
    ] {
        let mut bench = Bench::new();
        let window = bench.window(kind);
        let mut bind = bench.bind_of(window.rkey);
        spoil(&bench, &mut bind);
        assert_eq!(bench.bind(bind), REFUSED, "{kind:?}");
    }
}

/// The low byte of the key is the program's, and it may be the one that the window has. The device keeps the
/// rest, and says which key a window has: that of its last bind that was executed.
#[test]
fn any_low_byte_makes_a_key_and_a_refused_bind_changes_none() {
    let mut bench = Bench::new();
    let window = bench.window(WindowType::Type2);
    let key = |bench: &Bench| bench.scene.b.hca.window_key(window.handle);
    assert_eq!(key(&bench), Some(window.rkey));
    for part in [0, 0xff, 0xba, window.rkey & 0xff] {
        let new_rkey = window.rkey & !0xff | part;
        let bind = WindowBind { new_rkey, ..bench.bind_of(window.rkey) };
        assert_eq!(bench.bind(bind), OK);
        assert_eq!(key(&bench), Some(new_rkey));
        assert_eq!(bench.access(SendOpcode::RdmaWrite, bench.inside(), new_rkey), OK);
        let other = WindowBind { new_rkey: new_rkey ^ 1, ..bind };
        assert_eq!(bench.bind(other), REFUSED, "bound already");
        assert_eq!(key(&bench), Some(new_rkey));
        // The queue pair failed; another one takes the window, once it is free.
        let qb = bench.scene.qb;
        bench.fresh_pair();
        bench.scene.b.hca.destroy_qp(qb).unwrap();
    }
    bench.scene.b.hca.dealloc_mw(window.handle).unwrap();
    assert_eq!(key(&bench), None);
}

/// A window opens its range with its rights, and no more.
#[test]
fn a_window_opens_its_range_and_rights_only() {
    use SendOpcode as Op;
    let mut bench = Bench::new();
    let window = bench.window(WindowType::Type1);
    assert_eq!(bench.access(Op::RdmaRead, bench.inside(), window.rkey), CLOSED, "not bound yet");
    let bind = WindowBind { access: Access::REMOTE_READ, ..bench.bind_of(window.rkey) };
    assert_eq!(bench.bind(bind), OK);
    let (inside, key) = (bench.inside(), bind.new_rkey);
    for (opcode, address, expected) in [
        (Op::RdmaRead, inside, OK),
        (Op::RdmaRead, inside + 56, OK),
        (Op::RdmaRead, inside + 57, CLOSED),
        (Op::RdmaRead, inside - 1, CLOSED),
        (Op::RdmaWrite, inside, CLOSED),
        (Op::FetchAdd, inside, CLOSED),
    ] {
        assert_eq!(bench.access(opcode, address, key), expected, "{} at {address:#x}", opcode.name());
    }
    // A window's key is for peers: it is no local key.
    let sges = [Sge { address: inside, length: 8, lkey: key }];
    let send = SendRequest { sges: &sges, ..SendRequest::new(1, Op::Send) };
    assert_eq!(bench.on_b(send), WcStatus::LocProtErr);
}

/// A zero-based window of type 2 is addressed from 0.
#[test]
fn a_zero_based_window_is_addressed_from_zero() {
    let mut bench = Bench::new();
    let window = bench.window(WindowType::Type2);
    let mut bind = bench.bind_of(window.rkey);
    bind.access |= Access::ZERO_BASED;
    assert_eq!(bench.bind(bind), OK);
    bench.scene.a.memory.write(0, b"zerobase");
    assert_eq!(bench.access(SendOpcode::RdmaWrite, 8, bind.new_rkey), OK);
    assert_eq!(bench.scene.b.memory.read(136, 8), b"zerobase");
}

/// Invalidation is for type 2, by its own queue pair, once.
#[test]
fn only_a_bound_window_of_type_2_is_invalidated_by_its_queue_pair() {
    let failed = WcStatus::MwBindErr;
    let mut bench = Bench::new();
    let window = bench.window(WindowType::Type1);
    let bind = bench.bind_of(window.rkey);
    assert_eq!(bench.bind(bind), OK);
    assert_eq!(bench.invalidate(bind.new_rkey), failed, "type 1");
    for case in 0..3 {
        let mut bench = Bench::new();
        let window = bench.window(WindowType::Type2);
        let bind = bench.bind_of(window.rkey);
        match case {
            // Never bound.
            0 => assert_eq!(bench.invalidate(window.rkey), failed),
            // Twice.
            1 => {
                assert_eq!((bench.bind(bind), bench.invalidate(bind.new_rkey)), (OK, OK));
                assert_eq!(bench.invalidate(bind.new_rkey), failed);
            }
            // By another queue pair.
            _ => {
                assert_eq!(bench.bind(bind), OK);
                bench.fresh_pair();
                assert_eq!(bench.invalidate(bind.new_rkey), failed);
            }
        }
    }
}

/// A SEND that invalidates a window of type 1: the receive fails, the sender gets no answer, the window stays
/// open.
#[test]
fn a_peer_cannot_invalidate_type_1() {
    let mut bench = Bench::new();
    let window = bench.window(WindowType::Type1);
    let bind = bench.bind_of(window.rkey);
    assert_eq!(bench.bind(bind), OK);
    let scene = &mut bench.scene;
    scene.b.post_recv(scene.qb, 7, 0, 8);
    scene.post(&SendRequest {
        invalidate_rkey: bind.new_rkey,
        ..SendRequest::new(1, SendOpcode::SendWithInvalidate)
    });
    scene.settle();
    assert_eq!(scene.a.outcomes(), []);
    assert_eq!(scene.b.outcomes(), [(7, WcStatus::LocQpOpErr)]);
    bench.fresh_pair();
    assert_eq!(bench.access(SendOpcode::RdmaWrite, bench.inside(), bind.new_rkey), OK);
}

/// A window of type 2 goes with its queue pair; one of type 1 stays, for any queue pair of the domain.
#[test]
fn type_2_dies_with_its_queue_pair_and_type_1_does_not() {
    for (kind, expected) in [(WindowType::Type1, OK), (WindowType::Type2, CLOSED)] {
        let mut bench = Bench::new();
        let window = bench.window(kind);
        let bind = bench.bind_of(window.rkey);
        assert_eq!(bench.bind(bind), OK);
        let gone: Qpn = bench.scene.qb;
        bench.fresh_pair();
        bench.scene.b.hca.destroy_qp(gone).unwrap();
        assert_eq!(bench.access(SendOpcode::RdmaWrite, bench.inside(), bind.new_rkey), expected, "{kind:?}");
        let busy = bench.scene.b.hca.dereg_mr(bench.scene.b.region).is_err();
        assert_eq!(busy, kind == WindowType::Type1, "a bound window holds its region");
        bench.scene.b.hca.dealloc_mw(window.handle).unwrap();
    }
}

/// Freed while bound: the key is dead at once, and the region is free.
#[test]
fn a_window_can_be_freed_while_it_is_bound() {
    let mut bench = Bench::new();
    let window = bench.window(WindowType::Type1);
    let bind = bench.bind_of(window.rkey);
    assert_eq!(bench.bind(bind), OK);
    bench.scene.b.hca.dealloc_mw(window.handle).unwrap();
    assert_eq!(bench.access(SendOpcode::RdmaWrite, bench.inside(), bind.new_rkey), CLOSED);
    bench.scene.b.hca.dereg_mr(bench.scene.b.region).unwrap();
}
