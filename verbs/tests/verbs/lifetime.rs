//! Objects end in the right order, for every order in which the application drops them.

use std::sync::mpsc;
use std::time::Duration;

use pumice_verbs::{
    Access, Cause, DeviceOptions, FabricConfig, Fault, FaultPlan, RecvRequest, SendRequest, Simulation,
    WcStatus, WirePlan,
};

use crate::kit::{LIMIT, TestSide, all_access, connected, on_both, simulated};

#[test]
fn children_keep_their_parents_alive() {
    on_both(100, |a, b| {
        let (qp, peer) = connected(&a, &b);
        let TestSide { device, domain, cq, memory } = a;
        let weak_check = device.hca().queue_pair_count();
        assert_eq!(weak_check, 1);
        drop((device, domain));
        let slice = memory.slice(..4).unwrap();
        peer.post_recv(&RecvRequest { wr_id: 1, sges: &[b.memory.slice(..4).unwrap()] }).unwrap();
        memory.write(0, b"late").unwrap();
        qp.post_send(&SendRequest::send(&[slice]).signaled()).unwrap();
        cq.wait_success(LIMIT).unwrap();
        b.expect(1);
        assert_eq!(b.memory.to_vec(0, 4).unwrap(), b"late");
        drop(cq); // the queue pair holds it
        let again = qp.clone();
        drop(qp);
        again.post_send(&SendRequest::write(&[slice], b.memory.remote())).unwrap();
        drop((again, memory));
    });
}

#[test]
fn everything_is_destroyed_with_its_last_clone() {
    let (a, b) = simulated();
    let device = a.device.clone();
    let clone = {
        let (qp, _peer) = connected(&a, &b);
        let clone = qp.clone();
        drop(qp);
        assert_eq!(device.hca().queue_pair_count(), 1);
        clone
    };
    drop(clone);
    assert_eq!(device.hca().queue_pair_count(), 0);
    let (pd, cq, mr) = (a.domain.handle(), a.cq.handle(), a.memory.handle());
    assert!(device.hca().query_mr(mr).is_ok());
    drop(a);
    // Nothing left to destroy: the handles are stale.
    assert!(device.hca().query_mr(mr).is_err());
    assert!(device.hca().dealloc_pd(pd).is_err());
    assert!(device.hca().destroy_cq(cq).is_err());
}

#[test]
fn a_request_whose_memory_was_freed_fails_with_loc_prot_err() {
    on_both(101, |a, b| {
        let (qp, peer) = connected(&a, &b);
        peer.post_recv(&RecvRequest { wr_id: 1, sges: &[b.memory.slice(..8).unwrap()] }).unwrap();
        let dropped = a.domain.allocate(64, Access::LOCAL_WRITE).unwrap();
        let slice = dropped.slice(..8).unwrap();
        drop(dropped);
        qp.post_send(&SendRequest::send(&[slice]).wr_id(2)).unwrap();
        a.expect_failure(2, WcStatus::LocProtErr);
        let error = qp.post_send(&SendRequest::send(&[]).wr_id(3));
        error.unwrap(); // in ERR it is flushed at once
        a.expect_failure(3, WcStatus::WrFlushErr);
    });
}

#[test]
fn freed_remote_memory_is_refused() {
    on_both(102, |a, b| {
        let (qp, _peer) = connected(&a, &b);
        let dropped = b.domain.allocate(64, all_access()).unwrap();
        let target = dropped.remote();
        drop(dropped);
        qp.post_send(&SendRequest::write(&[], target).inline(b"ghost").wr_id(1)).unwrap();
        a.expect_failure(1, WcStatus::RemAccessErr);
    });
}

#[test]
fn faults_are_survived_explained_and_captured() {
    let address = |last: u8| std::net::IpAddr::from([10, 0, 0, last]);
    let file = std::env::temp_dir().join(format!("pumice-verbs-{}.pcapng", std::process::id()));
    let (sender, causes) = mpsc::channel();
    let simulation = Simulation::new(FabricConfig::default());
    let faults = FaultPlan::seeded(7).losing(100_000);
    let options = DeviceOptions::new().addresses([address(1)]).name("faulty").faults(faults).capture(&file);
    let explained = options.explain(move |qpn, cause: &Cause| sender.send((qpn, *cause)).unwrap());
    let a = TestSide::new(simulation.device_with(explained).unwrap());
    let b = TestSide::new(simulation.device(address(2)).unwrap());
    assert_eq!((a.device.name(), b.device.name()), ("faulty", "pumice1"));
    let (qp, _peer) = connected(&a, &b);
    let sent = a.pattern(0, 200_000);
    let local = [a.memory.slice(..200_000).unwrap()];
    qp.post_send(&SendRequest::write(&local, b.memory.remote()).signaled()).unwrap();
    a.expect(0);
    assert_eq!(b.memory.to_vec(0, 200_000).unwrap(), sent);
    assert!(causes.try_recv().is_err());
    // No process answers any more.
    simulation.fabric().cut(address(1), address(2));
    qp.post_send(&SendRequest::write(&local, b.memory.remote()).wr_id(5)).unwrap();
    a.expect_failure(5, WcStatus::RetryExcErr);
    let (qpn, cause) = causes.try_recv().unwrap();
    assert_eq!(qpn, qp.qpn());
    let exceeded = (WcStatus::RetryExcErr, 5);
    assert!(
        matches!(cause, Cause::SendFailed(failed) if (failed.status, failed.wr_id) == exceeded),
        "{cause}"
    );
    drop((a, b, qp, _peer, simulation));
    let captured = std::fs::metadata(&file).unwrap().len();
    std::fs::remove_file(&file).unwrap();
    assert!(captured > 200_000, "{captured} bytes captured");
}

#[test]
fn a_scripted_loss_costs_a_retransmission_and_virtual_time() {
    let simulation = Simulation::new(FabricConfig::default());
    let address = |last: u8| std::net::IpAddr::from([10, 0, 0, last]);
    simulation.fabric().play(&WirePlan::new().at(address(1), address(2), 0, Fault::Drop));
    let (a, b) = (
        TestSide::new(simulation.device(address(1)).unwrap()),
        TestSide::new(simulation.device(address(2)).unwrap()),
    );
    let (qp, _peer) = connected(&a, &b);
    qp.post_send(&SendRequest::write(&[], b.memory.remote()).inline(b"x").signaled()).unwrap();
    assert!(!simulation.run_until(Duration::from_micros(1), || !a.cq.is_empty()));
    a.expect(0);
    assert!(simulation.now_ns() > 100_000, "{} ns", simulation.now_ns());
    assert_eq!(simulation.fabric().stats().sent, 3);
}
