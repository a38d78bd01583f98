//! Arguments that cannot be: each is refused with its errno, nothing changes, and no object is left behind.

mod kit;

use kit::scene::Scene;
use kit::{ALL_ACCESS, Connection, Random, address_vector};
use pumice_device::hca::{CqSetup, Hca, HcaError, ObjectCounts, QpInit, SrqSetup};
use pumice_device::memory::{RegionChange, WindowType};
use pumice_device::objects::srq::SrqChange;
use pumice_device::platform::table::Handle;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

const NO_HANDLE: Handle = Handle { index: 77, generation: 5 };

fn errno<T>(result: Result<T, HcaError>) -> i32 {
    result.err().map_or(0, |error| error.errno())
}

/// Runs `calls` and expects that they left no object.
fn leaves_nothing(hca: &Hca, calls: impl FnOnce()) {
    let before: ObjectCounts = hca.object_counts();
    calls();
    assert_eq!(hca.object_counts(), before);
}

#[test]
fn handles_of_nothing_are_einval_everywhere() {
    let scene = Scene::new();
    let (a, hca) = (&scene.a, &scene.a.hca);
    let none = Qpn::new(0x00_4321);
    leaves_nothing(hca, || {
        for stale in [NO_HANDLE, Handle { generation: a.pd.generation.wrapping_add(1), ..a.pd }] {
            assert_eq!(errno(hca.dealloc_pd(stale)), libc::EINVAL);
            // SAFETY: refused before it is looked at.
            assert_eq!(errno(unsafe { hca.reg_mr(stale, 0, 8, 0, Access::empty()) }), libc::EINVAL);
            assert_eq!(errno(hca.alloc_mw(stale, WindowType::Type1)), libc::EINVAL);
            assert_eq!(errno(hca.create_ah(stale, &address_vector(scene.b.ip))), libc::EINVAL);
            let setup = SrqSetup { pd: stale, max_wr: 1, max_sge: 1, cookie: 0, xrc: None, tags: None };
            assert_eq!(errno(hca.create_srq(&setup)), libc::EINVAL);
        }
        assert_eq!(errno(hca.dereg_mr(NO_HANDLE)), libc::EINVAL);
        assert_eq!(errno(hca.dealloc_mw(NO_HANDLE)), libc::EINVAL);
        assert_eq!(errno(hca.destroy_cq(NO_HANDLE)), libc::EINVAL);
        assert_eq!(errno(hca.resize_cq(NO_HANDLE, 8)), libc::EINVAL);
        assert_eq!(errno(hca.destroy_srq(NO_HANDLE)), libc::EINVAL);
        assert_eq!(errno(hca.modify_srq(NO_HANDLE, SrqChange::default())), libc::EINVAL);
        assert_eq!(errno(hca.query_srq(NO_HANDLE)), libc::EINVAL);
        assert_eq!(errno(hca.post_srq_recv(NO_HANDLE, &RecvRequest { wr_id: 0, sges: &[] })), libc::EINVAL);
        assert_eq!(errno(hca.destroy_ah(NO_HANDLE)), libc::EINVAL);
        assert_eq!(errno(hca.close_xrcd(NO_HANDLE)), libc::EINVAL);
        assert_eq!(errno(hca.destroy_qp(none)), libc::EINVAL);
        assert_eq!(errno(hca.query_qp(none)), libc::EINVAL);
        assert_eq!(errno(hca.modify_qp(none, &QpAttributes::default(), AttributeMask::STATE)), libc::EINVAL);
        assert_eq!(errno(hca.post_send(none, &SendRequest::new(0, SendOpcode::Send))), libc::EINVAL);
        assert_eq!(errno(hca.post_recv(none, &RecvRequest { wr_id: 0, sges: &[] })), libc::EINVAL);
        // A region where a window belongs, and the other way round.
        assert_eq!(errno(hca.dealloc_mw(a.region)), libc::EINVAL);
        let window = hca.alloc_mw(a.pd, WindowType::Type2).unwrap();
        assert_eq!(errno(hca.dereg_mr(window.handle)), libc::EINVAL);
        hca.dealloc_mw(window.handle).unwrap();
    });
}

#[test]
fn sizes_out_of_range_are_refused() {
    let scene = Scene::new();
    let (a, hca) = (&scene.a, &scene.a.hca);
    let limits = *hca.limits();
    leaves_nothing(hca, || {
        for depth in [0, limits.max_cqe + 1, u32::MAX] {
            assert_eq!(errno(hca.create_cq(CqSetup { depth, ..CqSetup::default() })), libc::EINVAL);
            assert_eq!(errno(hca.resize_cq(a.cq.handle(), depth)), libc::EINVAL);
        }
        let vector = CqSetup { depth: 1, comp_vector: limits.num_comp_vectors, ..CqSetup::default() };
        assert_eq!(errno(hca.create_cq(vector)), libc::EINVAL);
        let good = SrqSetup { pd: a.pd, max_wr: 8, max_sge: 1, cookie: 0, xrc: None, tags: None };
        for bad in [
            SrqSetup { max_wr: 0, ..good },
            SrqSetup { max_wr: limits.max_srq_wr + 1, ..good },
            SrqSetup { max_sge: limits.max_srq_sge + 1, ..good },
            SrqSetup { max_wr: u32::MAX, max_sge: u32::MAX, ..good },
            SrqSetup { xrc: Some((NO_HANDLE, a.cq.handle())), ..good },
            SrqSetup { xrc: Some((NO_HANDLE, NO_HANDLE)), ..good },
        ] {
            assert_eq!(errno(hca.create_srq(&bad)), libc::EINVAL, "{bad:?}");
        }
        let srq = hca.create_srq(&good).unwrap();
        for change in [
            SrqChange { limit: Some(9), max_wr: None },
            SrqChange { limit: Some(u32::MAX), max_wr: None },
            SrqChange { limit: None, max_wr: Some(0) },
            SrqChange { limit: None, max_wr: Some(limits.max_srq_wr + 1) },
            SrqChange { limit: Some(5), max_wr: Some(4) },
        ] {
            assert_eq!(errno(hca.modify_srq(srq, change)), libc::EINVAL, "{change:?}");
            assert_eq!(hca.query_srq(srq).unwrap().limit, 0);
        }
        hca.destroy_srq(srq).unwrap();
        type Spoil = fn(&mut QpInit, &pumice_device::platform::limits::Limits);
        let spoils: [Spoil; 12] = [
            |init, limits| init.capacity.max_send_wr = limits.max_qp_wr + 1,
            |init, limits| init.capacity.max_recv_wr = limits.max_qp_wr + 1,
            |init, limits| init.capacity.max_send_sge = limits.max_sge + 1,
            |init, limits| init.capacity.max_recv_sge = limits.max_sge + 1,
            |init, limits| init.capacity.max_inline_data = limits.max_inline_data + 1,
            |init, _| init.capacity.max_send_wr = u32::MAX,
            |init, _| init.send_cq = None,
            |init, _| init.recv_cq = None,
            |init, _| init.send_cq = Some(NO_HANDLE),
            |init, _| init.pd = None,
            |init, _| init.pd = Some(NO_HANDLE),
            |init, _| init.srq = Some(NO_HANDLE),
        ];
        for (number, spoil) in spoils.iter().enumerate() {
            for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
                let mut init = a.qp_init(qp_type);
                spoil(&mut init, &limits);
                assert_eq!(errno(hca.create_qp(&init)), libc::EINVAL, "{number} on {}", qp_type.name());
            }
        }
    });
}

#[test]
fn ranges_that_wrap_and_rights_that_contradict_are_refused() {
    let scene = Scene::new();
    let (a, hca) = (&scene.a, &scene.a.hca);
    let own = a.memory.len() as u64;
    leaves_nothing(hca, || {
        let ranges =
            [(u64::MAX, 2, 0), (u64::MAX - 7, 16, 0), (4096, u64::MAX - 100, 0), (4096, 16, u64::MAX)];
        for (address, length, iova) in ranges {
            // SAFETY: refused.
            let result = unsafe { hca.reg_mr(a.pd, address, length, iova, Access::LOCAL_WRITE) };
            assert_eq!(errno(result), libc::EINVAL, "{address:#x} {length:#x} {iova:#x}");
        }
        for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            // SAFETY: refused.
            assert_eq!(errno(unsafe { hca.reg_mr(a.pd, 4096, 8, 4096, access) }), libc::EINVAL);
        }
        let change = RegionChange { translation: Some((u64::MAX, 8, 0)), ..RegionChange::default() };
        // SAFETY: refused.
        assert_eq!(errno(unsafe { hca.rereg_mr(a.region, None, change) }), libc::EINVAL);
        // SAFETY: refused.
        let rereg = unsafe { hca.rereg_mr(a.region, Some(NO_HANDLE), RegionChange::default()) };
        assert_eq!(errno(rereg), libc::EINVAL);
        let info = hca.query_mr(a.region).unwrap();
        assert_eq!((info.length, info.pd), (own, a.pd.index), "the region is as it was");
    });
}

#[test]
fn unaligned_and_ill_sized_atomics_are_refused_at_once() {
    let scene = Scene::new();
    let (a, hca) = (&scene.a, &scene.a.hca);
    let remote = scene.b.target(0);
    let atomic = Some(AtomicOperation::FetchAdd { add: 1 });
    for opcode in [SendOpcode::FetchAdd, SendOpcode::CompareSwap, SendOpcode::AtomicWrite] {
        for offset in 1..8 {
            let remote = RemoteTarget { address: remote.address + offset, ..remote };
            let sges = [a.sge(0, 8)];
            let request = SendRequest { sges: &sges, remote, atomic, ..SendRequest::new(1, opcode) };
            assert_eq!(errno(hca.post_send(scene.qa, &request)), libc::EINVAL, "{offset}");
        }
        for length in [0, 4, 7, 9, 16] {
            let sges = [a.sge(0, length)];
            let request = SendRequest { sges: &sges, remote, atomic, ..SendRequest::new(1, opcode) };
            assert_eq!(errno(hca.post_send(scene.qa, &request)), libc::EINVAL, "{length}");
        }
    }
    let sges = [Sge { length: 1 << 31, ..a.sge(0, 8) }, a.sge(0, 1)];
    let long = SendRequest { sges: &sges, remote, ..SendRequest::new(1, SendOpcode::RdmaWrite) };
    assert_eq!(errno(hca.post_send(scene.qa, &long)), libc::EINVAL, "2^31 + 1 bytes");
    assert_eq!(scene.states().0, QpState::Rts);
    assert!(scene.a.drain().is_empty());
}

#[test]
fn operations_of_other_services_are_refused_at_once() {
    use SendOpcode as Op;
    const ALL: [Op; 12] = [
        Op::RdmaWrite,
        Op::RdmaWriteWithImm,
        Op::Send,
        Op::SendWithImm,
        Op::RdmaRead,
        Op::CompareSwap,
        Op::FetchAdd,
        Op::LocalInvalidate,
        Op::BindWindow,
        Op::SendWithInvalidate,
        Op::Flush,
        Op::AtomicWrite,
    ];
    let uc =
        [Op::RdmaWrite, Op::RdmaWriteWithImm, Op::Send, Op::SendWithImm, Op::LocalInvalidate, Op::BindWindow];
    for (qp_type, allowed) in [(QpType::Uc, &uc[..]), (QpType::Ud, &[Op::Send, Op::SendWithImm])] {
        let scene = Scene::of(qp_type);
        for opcode in ALL.iter().filter(|opcode| !allowed.contains(opcode)) {
            let ud = qp_type.is_datagram().then(|| scene.destination(1));
            let request = SendRequest { ud, ..SendRequest::new(1, *opcode) };
            assert_eq!(errno(scene.a.hca.post_send(scene.qa, &request)), libc::EINVAL, "{}", opcode.name());
        }
    }
    let scene = Scene::of(QpType::Ud);
    let nowhere = SendRequest::new(1, Op::Send);
    assert_eq!(errno(scene.a.hca.post_send(scene.qa, &nowhere)), libc::EINVAL, "no address handle");
}

#[test]
fn sends_are_refused_before_rts_and_receives_in_reset() {
    let scene = Scene::new();
    let a = &scene.a;
    let qpn = a.create_qp(QpType::Rc);
    let send = || errno(a.hca.post_send(qpn, &SendRequest::new(1, SendOpcode::Send)));
    let receive = || errno(a.hca.post_recv(qpn, &RecvRequest { wr_id: 1, sges: &[] }));
    assert_eq!((send(), receive()), (libc::EINVAL, libc::EINVAL));
    a.to_init(qpn);
    assert_eq!((send(), receive()), (libc::EINVAL, 0));
    a.to_rtr(qpn, true, scene.b.ip, scene.qb, Connection::default());
    assert_eq!((send(), receive()), (libc::EINVAL, 0));
    a.to_rts(qpn, true, Connection::default());
    assert_eq!((send(), receive()), (0, 0));
}

#[test]
fn multicast_is_for_ud_and_for_groups() {
    let scene = Scene::new();
    let ud = scene.a.create_qp(QpType::Ud);
    let group = Gid::from("239.9.9.9".parse::<std::net::IpAddr>().unwrap());
    leaves_nothing(&scene.a.hca, || {
        assert_eq!(errno(scene.a.hca.attach_mcast(scene.qa, group)), libc::EINVAL, "RC");
        assert_eq!(errno(scene.a.hca.attach_mcast(ud, Gid::from(scene.b.ip))), libc::EINVAL, "unicast");
        assert_eq!(errno(scene.a.hca.attach_mcast(Qpn::new(0x99_9999), group)), libc::EINVAL);
        assert_eq!(errno(scene.a.hca.detach_mcast(ud, group)), libc::EINVAL, "not attached");
    });
}

/// Destruction in the wrong order is EBUSY at each step, and afterwards everything can still be destroyed.
#[test]
fn what_is_used_is_busy_and_in_the_right_order_all_goes() {
    let scene = Scene::new();
    let hca = &scene.a.hca;
    leaves_nothing(hca, || {
        let pd = hca.alloc_pd().unwrap();
        let (send, recv) =
            (CqSetup { depth: 4, ..CqSetup::default() }, CqSetup { depth: 4, ..CqSetup::default() });
        let (send, recv) = (hca.create_cq(send).unwrap(), hca.create_cq(recv).unwrap());
        let srq = SrqSetup { pd, max_wr: 4, max_sge: 1, cookie: 0, xrc: None, tags: None };
        let srq = hca.create_srq(&srq).unwrap();
        let (ah, _) = hca.create_ah(pd, &address_vector(scene.b.ip)).unwrap();
        let region = scene.a.memory.register(hca, pd, ALL_ACCESS);
        let window = hca.alloc_mw(pd, WindowType::Type1).unwrap();
        let mut init = scene.a.qp_init(QpType::Rc);
        (init.pd, init.send_cq, init.recv_cq, init.srq) =
            (Some(pd), Some(send.handle()), Some(recv.handle()), Some(srq));
        let qpn = hca.create_qp(&init).unwrap().0;
        for _ in 0..2 {
            assert_eq!(errno(hca.dealloc_pd(pd)), libc::EBUSY);
            assert_eq!(errno(hca.destroy_cq(send.handle())), libc::EBUSY);
            assert_eq!(errno(hca.destroy_cq(recv.handle())), libc::EBUSY);
            assert_eq!(errno(hca.destroy_srq(srq)), libc::EBUSY);
        }
        hca.destroy_qp(qpn).unwrap();
        assert_eq!(errno(hca.destroy_qp(qpn)), libc::EINVAL, "twice");
        hca.destroy_cq(send.handle()).unwrap();
        hca.destroy_cq(recv.handle()).unwrap();
        assert_eq!(errno(hca.dealloc_pd(pd)), libc::EBUSY);
        hca.destroy_srq(srq).unwrap();
        hca.destroy_ah(ah).unwrap();
        hca.dealloc_mw(window.handle).unwrap();
        hca.dereg_mr(region.handle).unwrap();
        hca.dealloc_pd(pd).unwrap();
        assert_eq!(errno(hca.dealloc_pd(pd)), libc::EINVAL, "twice");
    });
}

/// Random calls with random arguments, most of them wrong: nothing panics, and what was made can be
/// destroyed.
#[test]
fn random_calls_never_panic_and_leave_nothing() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut scene = Scene::new();
        let before = scene.a.hca.object_counts();
        let mut qps = Vec::new();
        for _ in 0..300 {
            let (a, hca) = (&scene.a, &scene.a.hca);
            let any = |random: &mut Random| random.below(1 << 32) as u32;
            match random.below(7) {
                0 => {
                    let types = [QpType::Rc, QpType::Uc, QpType::Ud];
                    let mut init = a.qp_init(types[random.below(3) as usize]);
                    init.capacity.max_send_wr = random.below(40) as u32;
                    init.capacity.max_inline_data = random.below(700) as u32;
                    qps.extend(hca.create_qp(&init).ok().map(|(qpn, _)| qpn));
                }
                1 => {
                    let attributes = QpAttributes {
                        qp_state: random.below(9) as u32,
                        cur_qp_state: random.below(9) as u32,
                        path_mtu: random.below(7) as u32,
                        address_vector: address_vector(scene.b.ip),
                        dest_qp_num: any(&mut random),
                        access: any(&mut random),
                        port_num: random.below(3) as u8,
                        timeout: random.below(40) as u8,
                        ..QpAttributes::default()
                    };
                    let mask = AttributeMask::from_bits_retain(any(&mut random) & any(&mut random));
                    let qpn = pick(&mut random, &qps, scene.qa);
                    let _ = hca.modify_qp(qpn, &attributes, mask);
                }
                2 => {
                    let opcode = [
                        SendOpcode::Send,
                        SendOpcode::RdmaRead,
                        SendOpcode::FetchAdd,
                        SendOpcode::BindWindow,
                    ];
                    let sge = Sge {
                        address: random.below(u64::MAX),
                        length: any(&mut random),
                        lkey: any(&mut random),
                    };
                    let sges = vec![sge; random.below(5) as usize];
                    let request = SendRequest {
                        sges: &sges,
                        flags: SendFlags::from_bits_retain(any(&mut random)),
                        remote: RemoteTarget { address: random.below(u64::MAX), rkey: any(&mut random) },
                        ..SendRequest::new(1, opcode[random.below(4) as usize])
                    };
                    let _ = hca.post_send(pick(&mut random, &qps, scene.qa), &request);
                }
                3 => {
                    let sges = vec![a.sge(0, 8); random.below(5) as usize];
                    let request = RecvRequest { wr_id: 1, sges: &sges };
                    let _ = hca.post_recv(pick(&mut random, &qps, scene.qa), &request);
                }
                4 => {
                    let qpn = pick(&mut random, &qps, Qpn::new(9));
                    if hca.destroy_qp(qpn).is_ok() {
                        qps.retain(|other| *other != qpn);
                    }
                }
                5 => drop(a.drain()),
                _ => scene.run(10_000),
            }
            // No thread acknowledges for a queue pair that is destroyed meanwhile.
            scene.a.events();
        }
        for qpn in qps {
            scene.a.hca.destroy_qp(qpn).unwrap();
        }
        assert_eq!(scene.a.hca.object_counts(), before, "seed {seed}");
    }
}

fn pick(random: &mut Random, qps: &[Qpn], otherwise: Qpn) -> Qpn {
    match qps.len() {
        0 => otherwise,
        some => qps[random.below(some as u64) as usize],
    }
}
