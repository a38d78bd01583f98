//! The table of transitions through `modify_qp` of a device: each state, each attribute, each errno.

use pumice_transport::qp::transition::{Transition, effective_mask, transition};
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::kit::scene::Scene;
use crate::kit::{Connection, address_vector};

const TYPES: [QpType; 6] =
    [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcDuplex, QpType::XrcInitiator, QpType::XrcTarget];

struct Bench {
    scene: Scene,
    xrcd: pumice_device::platform::table::Handle,
}

impl Bench {
    fn new() -> Bench {
        let scene = Scene::new();
        let xrcd = scene.a.hca.open_xrcd().unwrap();
        Bench { scene, xrcd }
    }

    fn create(&self, qp_type: QpType) -> Qpn {
        let a = &self.scene.a;
        let mut init = a.qp_init(qp_type);
        match qp_type {
            QpType::XrcDuplex => init.xrcd = Some(self.xrcd),
            QpType::XrcInitiator => init.recv_cq = None,
            QpType::XrcTarget => {
                (init.pd, init.send_cq, init.recv_cq) = (None, None, None);
                init.xrcd = Some(self.xrcd);
            }
            _ => {}
        }
        a.hca.create_qp(&init).unwrap().0
    }

    /// A queue pair in this state; none if the type has no such state.
    fn in_state(&self, qp_type: QpType, state: QpState) -> Option<Qpn> {
        let a = &self.scene.a;
        let qpn = self.create(qp_type);
        if state == QpState::Reset {
            return Some(qpn);
        }
        a.to_init(qpn);
        if matches!(state, QpState::Init | QpState::Err) {
            if state == QpState::Err {
                a.move_to(qpn, state);
            }
            return Some(qpn);
        }
        self.modify(qpn, required(qp_type, QpState::Init, QpState::Rtr), QpState::Rtr).unwrap();
        if state == QpState::Rtr {
            return Some(qpn);
        }
        self.modify(qpn, required(qp_type, QpState::Rtr, QpState::Rts), QpState::Rts).unwrap();
        match state {
            QpState::Sqd => a.move_to(qpn, state),
            QpState::Sqe => self.fail_send_side(qp_type, qpn)?,
            _ => {}
        }
        assert_eq!(a.state(qpn), state);
        Some(qpn)
    }

    /// A local error of the send side, for the types that survive it.
    fn fail_send_side(&self, qp_type: QpType, qpn: Qpn) -> Option<()> {
        let a = &self.scene.a;
        let bad = [Sge { lkey: 0xdead_0000, ..a.sge(0, 8) }];
        let mut request = SendRequest { sges: &bad, ..SendRequest::new(1, SendOpcode::Send) };
        match qp_type {
            QpType::Ud => request.ud = Some(self.scene.destination(1)),
            QpType::Uc => {}
            _ => return None,
        }
        a.hca.post_send(qpn, &request).unwrap();
        a.drain();
        Some(())
    }

    fn modify(&self, qpn: Qpn, mask: AttributeMask, to: QpState) -> Result<(), i32> {
        let from = self.scene.a.state(qpn);
        let result = self.scene.a.hca.modify_qp(qpn, &self.legal(from, to), mask);
        result.map_err(|error| error.errno())
    }

    /// Attributes whose values are all legal.
    fn legal(&self, from: QpState, to: QpState) -> QpAttributes {
        let vector = address_vector(self.scene.b.ip);
        QpAttributes {
            qp_state: to as u32,
            cur_qp_state: from as u32,
            path_mtu: Mtu::Mtu1024 as u32,
            qkey: 0x1111_1111,
            dest_qp_num: self.scene.qb.value(),
            access: 15,
            address_vector: vector,
            alt_address_vector: vector,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 12,
            port_num: 1,
            alt_port_num: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttributes::default()
        }
    }

    fn destroy(&self, qpn: Qpn) {
        // The events that transitions raised.
        self.scene.a.events();
        self.scene.a.hca.destroy_qp(qpn).unwrap();
    }
}

fn required(qp_type: QpType, from: QpState, to: QpState) -> AttributeMask {
    AttributeMask::STATE | transition(qp_type, from, to).map_or(AttributeMask::empty(), |row| row.required)
}

/// For every type and every pair of states: the transition works with exactly what it needs, with each
/// optional attribute, and in no other way; a refusal is EINVAL and changes nothing.
#[test]
fn every_transition_of_every_type_takes_what_it_needs_and_nothing_else() {
    let bench = Bench::new();
    let mut tried = 0;
    for qp_type in TYPES {
        for from in QpState::ALL {
            for to in QpState::ALL {
                let row = transition(qp_type, from, to);
                for (mask, legal) in masks(qp_type, row) {
                    let Some(qpn) = bench.in_state(qp_type, from) else { continue };
                    let case = format!("{} {} → {} with {mask}", qp_type.name(), from.name(), to.name());
                    let before = bench.scene.a.hca.query_qp(qpn).unwrap();
                    let expected = if legal { Ok(()) } else { Err(libc::EINVAL) };
                    assert_eq!(bench.modify(qpn, mask, to), expected, "{case}");
                    let after = bench.scene.a.hca.query_qp(qpn).unwrap();
                    if legal {
                        assert_eq!(after.qp_state, to as u32, "{case}");
                    } else {
                        assert_eq!(after, before, "{case}");
                    }
                    tried += 1;
                    bench.destroy(qpn);
                }
            }
        }
    }
    assert!(tried > 2_000, "{tried}");
}

/// Masks to try for a row of the table, and whether each is legal.
fn masks(qp_type: QpType, row: Option<&Transition>) -> Vec<(AttributeMask, bool)> {
    let rate = if qp_type.is_raw() { AttributeMask::empty() } else { AttributeMask::RATE_LIMIT };
    let supported = AttributeMask::all() - AttributeMask::STATE - rate;
    let Some(row) = row else {
        return vec![(AttributeMask::STATE, false), (supported | AttributeMask::STATE, false)];
    };
    let whole = row.required | AttributeMask::STATE;
    let mut all = vec![(whole, true), (whole | row.optional, true)];
    for bit in supported.iter() {
        if row.required.contains(bit) {
            all.push((whole - bit, false));
        } else {
            // What an XRC queue pair has no use for is overlooked.
            let overlooked = effective_mask(qp_type, bit).is_empty();
            all.push((whole | bit, overlooked || row.optional.contains(bit)));
        }
    }
    all
}

/// Bits without meaning are EOPNOTSUPP in every state, and so is the rate limit.
#[test]
fn unknown_attributes_are_not_supported() {
    let bench = Bench::new();
    for qp_type in TYPES {
        for from in [QpState::Reset, QpState::Init, QpState::Rts] {
            let qpn = bench.in_state(qp_type, from).unwrap();
            for bit in [1 << 21, 1 << 25, 1 << 30, 1 << 31] {
                let mask = AttributeMask::STATE | AttributeMask::from_bits_retain(bit);
                assert_eq!(bench.modify(qpn, mask, QpState::Init), Err(libc::EOPNOTSUPP), "{bit:#x}");
            }
            bench.destroy(qpn);
        }
    }
}

/// Without a state in the mask the queue pair stays where it is, and the row from the state to itself
/// decides; RTR has none.
#[test]
fn a_modify_without_state_is_a_transition_to_the_same_state() {
    let bench = Bench::new();
    for qp_type in TYPES {
        for from in QpState::ALL {
            let Some(qpn) = bench.in_state(qp_type, from) else { continue };
            let expected = match transition(qp_type, from, from) {
                Some(row) if row.required.is_empty() => Ok(()),
                _ => Err(libc::EINVAL),
            };
            assert_eq!(bench.modify(qpn, AttributeMask::empty(), QpState::Err), expected, "{}", from.name());
            assert_eq!(bench.scene.a.state(qpn), from);
            bench.destroy(qpn);
        }
    }
    assert!(transition(QpType::Rc, QpState::Rtr, QpState::Rtr).is_none());
}

/// States beyond the last one, and a wrong idea of the current one.
#[test]
fn states_that_do_not_exist_or_are_not_the_current_one_are_refused() {
    let bench = Bench::new();
    let qpn = bench.in_state(QpType::Rc, QpState::Rts).unwrap();
    let modify = |attributes: &QpAttributes, mask| {
        bench.scene.a.hca.modify_qp(qpn, attributes, mask).map_err(|error| error.errno())
    };
    for qp_state in [7, 8, 255, u32::MAX] {
        let attributes = QpAttributes { qp_state, ..QpAttributes::default() };
        assert_eq!(modify(&attributes, AttributeMask::STATE), Err(libc::EINVAL), "{qp_state}");
    }
    let mask = AttributeMask::STATE | AttributeMask::CUR_STATE;
    for state in QpState::ALL {
        let attributes = QpAttributes {
            qp_state: QpState::Rts as u32,
            cur_qp_state: state as u32,
            ..QpAttributes::default()
        };
        let expected = if state == QpState::Rts { Ok(()) } else { Err(libc::EINVAL) };
        assert_eq!(modify(&attributes, mask), expected, "{}", state.name());
    }
}

/// Values out of range, one at a time, on the way to RTR and to RTS.
#[test]
fn wrong_values_are_refused_and_change_nothing() {
    type Spoil = fn(&mut QpAttributes);
    let bench = Bench::new();
    let to_rtr: [(&str, Spoil); 13] = [
        ("path_mtu 0", |a| a.path_mtu = 0),
        ("path_mtu 6", |a| a.path_mtu = 6),
        ("not global", |a| a.address_vector.is_global = false),
        ("no dgid", |a| a.address_vector.dgid = Gid::ZERO),
        ("dgid of the other family", |a| a.address_vector.dgid = Gid([0xfd; 16])),
        ("multicast dgid", |a| a.address_vector.dgid = Gid([0xff; 16])),
        ("sgid_index of nothing", |a| a.address_vector.sgid_index = 77),
        ("sgid_index beyond", |a| a.address_vector.sgid_index = 1 << 20),
        ("port 0", |a| a.address_vector.port_num = 0),
        ("port 2", |a| a.address_vector.port_num = 2),
        ("max_dest_rd_atomic", |a| a.max_dest_rd_atomic = 255),
        ("min_rnr_timer", |a| a.min_rnr_timer = 32),
        ("pkey_index", |a| a.pkey_index = 9),
    ];
    for (what, spoil) in to_rtr {
        let qpn = bench.in_state(QpType::Rc, QpState::Init).unwrap();
        let mut attributes = bench.legal(QpState::Init, QpState::Rtr);
        spoil(&mut attributes);
        let mask = required(QpType::Rc, QpState::Init, QpState::Rtr) | AttributeMask::PKEY_INDEX;
        let error = bench.scene.a.hca.modify_qp(qpn, &attributes, mask).unwrap_err();
        let is_empty = what == "sgid_index of nothing";
        let is_right = match error.errno() {
            libc::ENODATA => is_empty,
            errno => !is_empty && matches!(errno, libc::EINVAL | libc::EHOSTUNREACH),
        };
        assert!(is_right, "{what}: {error}");
        assert_eq!(bench.scene.a.state(qpn), QpState::Init, "{what}");
        bench.destroy(qpn);
    }
    let to_rts: [(&str, Spoil); 4] = [
        ("timeout", |a| a.timeout = 32),
        ("retry_cnt", |a| a.retry_cnt = 8),
        ("rnr_retry", |a| a.rnr_retry = 8),
        ("max_rd_atomic", |a| a.max_rd_atomic = 255),
    ];
    for (what, spoil) in to_rts {
        let qpn = bench.in_state(QpType::Rc, QpState::Rtr).unwrap();
        let mut attributes = bench.legal(QpState::Rtr, QpState::Rts);
        spoil(&mut attributes);
        let mask = required(QpType::Rc, QpState::Rtr, QpState::Rts);
        let error = bench.scene.a.hca.modify_qp(qpn, &attributes, mask).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL, "{what}: {error}");
        assert_eq!(bench.scene.a.state(qpn), QpState::Rtr, "{what}");
        bench.destroy(qpn);
    }
}

/// SQE: the send side is in error and flushes, receiving goes on, and RTS resumes.
#[test]
fn sqe_stops_sending_only_and_rts_resumes() {
    for qp_type in [QpType::Ud, QpType::Uc] {
        let mut scene = Scene::of(qp_type);
        let ud = qp_type.is_datagram().then(|| scene.destination(0x1111_1111));
        let back = qp_type.is_datagram().then(|| {
            let (_, path) = scene.b.hca.create_ah(scene.b.pd, &address_vector(scene.a.ip)).unwrap();
            UdDestination { path, qpn: scene.qa, qkey: 0x1111_1111 }
        });
        let bad = [Sge { lkey: 0xdead_0000, ..scene.a.sge(0, 8) }];
        let good = [scene.a.sge(0, 8)];
        let send = |scene: &Scene, wr_id, sges: &[Sge]| {
            scene.post(&SendRequest { sges, ud: ud.clone(), ..SendRequest::new(wr_id, SendOpcode::Send) });
        };
        send(&scene, 1, &bad);
        send(&scene, 2, &good);
        scene.settle();
        assert_eq!(scene.a.outcomes(), [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)]);
        assert_eq!(scene.a.state(scene.qa), QpState::Sqe, "{}", qp_type.name());
        scene.a.post_recv(scene.qa, 10, 0, 256);
        let sges = [scene.b.sge(0, 8)];
        let request = SendRequest { sges: &sges, ud: back, ..SendRequest::new(3, SendOpcode::Send) };
        scene.b.hca.post_send(scene.qb, &request).unwrap();
        scene.settle();
        assert_eq!(scene.a.outcomes(), [(10, WcStatus::Success)], "{}", qp_type.name());
        scene.a.move_to(scene.qa, QpState::Rts);
        scene.b.post_recv(scene.qb, 11, 0, 256);
        send(&scene, 4, &good);
        scene.settle();
        assert_eq!(scene.a.outcomes(), [(4, WcStatus::Success)]);
        assert_eq!(scene.b.drain().last().unwrap().wr_id, 11);
    }
}

/// `query_qp` tells the next PSNs and both states.
#[test]
fn query_tells_what_modify_set_and_where_the_psns_are() {
    let mut scene = Scene::new();
    let numbers = Connection { psn_here: 0xff_fffe, psn_there: 7, ..Connection::default() };
    scene.a.move_to(scene.qa, QpState::Reset);
    scene.b.move_to(scene.qb, QpState::Reset);
    scene.connect(numbers);
    let a = scene.a.hca.query_qp(scene.qa).unwrap();
    assert_eq!((a.qp_state, a.cur_qp_state), (3, 3));
    assert_eq!((a.sq_psn, a.rq_psn, a.dest_qp_num), (0xff_fffe, 7, scene.qb.value()));
    assert_eq!((a.timeout, a.retry_cnt, a.rnr_retry, a.path_mtu), (14, 7, 7, Mtu::Mtu1024 as u32));
    scene.write(1, 3000);
    scene.settle();
    let (a, b) = (scene.a.hca.query_qp(scene.qa).unwrap(), scene.b.hca.query_qp(scene.qb).unwrap());
    assert_eq!((a.sq_psn, b.rq_psn), (1, 1), "three packets, past the end of the circle");
}
