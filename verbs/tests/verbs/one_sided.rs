//! WRITE, READ and atomics: the target's application does nothing.

use std::sync::atomic::Ordering;
use std::sync::mpsc;

use pumice_verbs::{
    Access, Placement, RcEndpoint, RecvRequest, RemoteSlice, SendRequest, WcOpcode, WcStatus, WindowType,
};

use crate::kit::{TestSide, all_access, connected, on_both, simulated, udp};

#[test]
fn every_one_sided_operation_arrives() {
    on_both(20, |a, b| {
        let (qp, peer) = connected(&a, &b);
        let sent = a.pattern(0, 60_000);
        let remote = b.memory.remote();
        let target = remote.slice(1000..61_000).unwrap();
        qp.post_send(&SendRequest::write(&[a.memory.slice(..60_000).unwrap()], target).wr_id(1).signaled())
            .unwrap();
        assert_eq!(a.expect(1).opcode, WcOpcode::RdmaWrite);
        assert_eq!(b.memory.to_vec(1000, 60_000).unwrap(), sent);
        let back = [a.memory.slice(100_000..160_000).unwrap()];
        qp.post_send(&SendRequest::read(&back, target).wr_id(2).signaled()).unwrap();
        assert_eq!(a.expect(2).opcode, WcOpcode::RdmaRead);
        assert_eq!(a.memory.to_vec(100_000, 60_000).unwrap(), sent);

        let word = remote.slice(200_000..200_008).unwrap();
        let counter = b.memory.atomic_u64(200_000).unwrap();
        let result = [a.memory.slice(64..72).unwrap()];
        let original = a.memory.atomic_u64(64).unwrap();
        counter.store(40, Ordering::Relaxed);
        qp.post_send(&SendRequest::fetch_add(&result, word, 2).wr_id(3).signaled()).unwrap();
        assert_eq!(a.expect(3).opcode, WcOpcode::FetchAdd);
        assert_eq!((original.load(Ordering::Acquire), counter.load(Ordering::Acquire)), (40, 42));
        qp.post_send(&SendRequest::compare_swap(&result, word, 42, 99).wr_id(4).signaled()).unwrap();
        assert_eq!(a.expect(4).opcode, WcOpcode::CompareSwap);
        assert_eq!((original.load(Ordering::Acquire), counter.load(Ordering::Acquire)), (42, 99));
        qp.post_send(&SendRequest::compare_swap(&result, word, 42, 7).wr_id(5).signaled()).unwrap();
        a.expect(5);
        assert_eq!((original.load(Ordering::Acquire), counter.load(Ordering::Acquire)), (99, 99));

        let value = 0x1122_3344_5566_7788_u64.to_ne_bytes();
        qp.post_send(&SendRequest::atomic_write(&[], word).inline(&value).wr_id(6).signaled()).unwrap();
        assert_eq!(a.expect(6).opcode, WcOpcode::AtomicWrite);
        assert_eq!(counter.load(Ordering::Acquire), 0x1122_3344_5566_7788);
        qp.post_send(&SendRequest::flush(target, Placement::GlobalVisibility).wr_id(7).signaled()).unwrap();
        assert_eq!(a.expect(7).opcode, WcOpcode::Flush);

        peer.post_recv(&RecvRequest { wr_id: 8, sges: &[] }).unwrap();
        let end = remote.slice(262_000..).unwrap();
        qp.post_send(&SendRequest::write(&[], end).inline(b"end").imm([9; 4])).unwrap();
        let completion = b.expect(8);
        assert_eq!(
            (completion.opcode, completion.byte_len, completion.imm_data),
            (WcOpcode::RecvRdmaWithImm, 3, [9; 4])
        );
        assert_eq!(b.memory.to_vec(262_000, 3).unwrap(), b"end");
    });
}

/// The target connects, tells where its memory is, and then blocks outside of verbs until it is told that
/// everything is over.
#[test]
fn a_passive_target_answers_over_udp() {
    let (a, b) = udp(21);
    let (to_target, target_inbox) = mpsc::channel::<[u8; RcEndpoint::LEN]>();
    let (from_target, inbox) = mpsc::channel::<([u8; RcEndpoint::LEN], [u8; RemoteSlice::LEN])>();
    let (over, wait_for_end) = mpsc::channel::<()>();
    let target = std::thread::spawn(move || {
        let qp = b.rc();
        b.memory.write(4096, b"look here").unwrap();
        let peer = RcEndpoint::from_bytes(&target_inbox.recv().unwrap()).unwrap();
        qp.connect(&peer, &Default::default()).unwrap();
        from_target.send((qp.endpoint().to_bytes(), b.memory.remote().to_bytes())).unwrap();
        wait_for_end.recv().unwrap();
        (b.memory.to_vec(0, 5000).unwrap(), b.memory.atomic_u64(8192).unwrap().load(Ordering::Acquire))
    });
    let qp = a.rc();
    to_target.send(qp.endpoint().to_bytes()).unwrap();
    let (peer, remote) = inbox.recv().unwrap();
    qp.connect(&RcEndpoint::from_bytes(&peer).unwrap(), &Default::default()).unwrap();
    let remote = RemoteSlice::from_bytes(&remote);
    let seen = [a.memory.slice(..9).unwrap()];
    qp.post_send(&SendRequest::read(&seen, remote.slice(4096..).unwrap()).wr_id(1).signaled()).unwrap();
    a.expect(1);
    assert_eq!(a.memory.to_vec(0, 9).unwrap(), b"look here");
    let sent = a.pattern(10_000, 4000);
    let local = [a.memory.slice(10_000..14_000).unwrap()];
    qp.post_send(&SendRequest::write(&local, remote).wr_id(2).signaled()).unwrap();
    a.expect(2);
    let result = [a.memory.slice(16..24).unwrap()];
    for round in 0..100 {
        let word = remote.slice(8192..8200).unwrap();
        qp.post_send(&SendRequest::fetch_add(&result, word, 3).wr_id(round).signaled()).unwrap();
        a.expect(round);
        assert_eq!(a.memory.atomic_u64(16).unwrap().load(Ordering::Acquire), round * 3);
    }
    over.send(()).unwrap();
    let (memory, counter) = target.join().unwrap();
    assert_eq!(memory[..4000], sent);
    assert_eq!(counter, 300);
}

#[test]
fn zero_based_regions_count_from_zero() {
    let (a, b) = simulated();
    let (qp, _peer) = connected(&a, &b);
    let memory = b.domain.allocate(4096, all_access() | Access::ZERO_BASED).unwrap();
    assert_eq!((memory.remote().address, memory.slice(8..).unwrap().address), (0, 8));
    let target = memory.remote_slice(8..16).unwrap();
    qp.post_send(&SendRequest::write(&[], target).inline(b"at eight").signaled()).unwrap();
    a.expect(0);
    assert_eq!(memory.to_vec(0, 16).unwrap(), b"\0\0\0\0\0\0\0\0at eight");
}

#[test]
fn a_window_opens_part_of_a_region() {
    for window_type in [WindowType::Type1, WindowType::Type2] {
        let (a, b) = simulated();
        let (qp, peer) = connected(&a, &b);
        let window = b.domain.memory_window(window_type).unwrap();
        let region = b.domain.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
        let rights = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let (bind, open) = window.bind(&region, 100..200, rights).unwrap();
        peer.post_send(&bind.wr_id(1).signaled()).unwrap();
        assert_eq!(b.expect(1).opcode, WcOpcode::BindWindow);
        // The region's owner lets go of it: its memory stays as long as the window.
        let handle = region.handle();
        drop(region);
        qp.post_send(&SendRequest::write(&[], open).inline(b"inside").wr_id(2).signaled()).unwrap();
        a.expect(2);
        let others: Vec<_> = (0..8).map(|_| b.domain.allocate(4096, all_access()).unwrap()).collect();
        others.iter().for_each(|other| other.fill(0xee).unwrap());
        let seen = [a.memory.slice(..6).unwrap()];
        qp.post_send(&SendRequest::read(&seen, open).wr_id(4).signaled()).unwrap();
        a.expect(4);
        assert_eq!(a.memory.to_vec(0, 6).unwrap(), b"inside");
        assert!(b.device.hca().query_mr(handle).is_ok());
        drop(window);
        assert!(b.device.hca().query_mr(handle).is_err());
        qp.post_send(&SendRequest::write(&[], open).inline(b"closed").wr_id(3).signaled()).unwrap();
        a.expect_failure(3, WcStatus::RemAccessErr);
    }
}

#[test]
fn changed_rights_hold_at_once() {
    let (a, b) = simulated();
    let write = |a: &TestSide, b: &TestSide, status: Option<WcStatus>| {
        let (qp, _peer) = connected(a, b);
        qp.post_send(&SendRequest::write(&[], b.memory.remote()).inline(b"x").signaled()).unwrap();
        match status {
            Some(status) => a.expect_failure(0, status),
            None => assert_eq!(a.expect(0).opcode, WcOpcode::RdmaWrite),
        }
    };
    write(&a, &b, None);
    b.memory.set_access(Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
    write(&a, &b, Some(WcStatus::RemAccessErr));
    b.memory.set_access(all_access()).unwrap();
    write(&a, &b, None);
    let elsewhere = b.device.protection_domain().unwrap();
    b.memory.set_protection_domain(&elsewhere).unwrap();
    write(&a, &b, Some(WcStatus::RemAccessErr));
    assert_eq!(b.memory.protection_domain().handle(), elsewhere.handle());
    let error = b.memory.set_access(Access::REMOTE_WRITE).unwrap_err();
    assert_eq!(error.object(), "memory region");
    assert_eq!(b.memory.access(), all_access());
}
