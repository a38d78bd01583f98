//! Shared receive queues, and XRC.

use pumice_verbs::{
    AsyncElement, AsyncEventType, AttributeMask, QpAttributes, QpState, RcQueuePair, RecvRequest,
    SendRequest, XrcDomainOpening, XrcDuplexQueuePair, XrcInitiatorQueuePair, XrcTargetQueuePair,
};

use crate::kit::{LIMIT, on_both, simulated};

#[test]
fn queue_pairs_take_turns_at_a_shared_receive_queue() {
    on_both(40, |a, b| {
        let srq = b.domain.shared_receive_queue(16, 1).unwrap();
        let pairs: Vec<_> = (0..3)
            .map(|_| {
                let builder = RcQueuePair::builder(&b.domain, &b.cq, &b.cq).shared_receive_queue(&srq);
                let (one, other) = (a.rc(), builder.build().unwrap());
                one.connect(&other.endpoint(), &Default::default()).unwrap();
                other.connect(&one.endpoint(), &Default::default()).unwrap();
                (one, other)
            })
            .collect();
        let error = pairs[0].1.post_recv(&RecvRequest { wr_id: 1, sges: &[] }).unwrap_err();
        assert_eq!(error.object(), "queue pair");
        let room: Vec<_> = (0..6).map(|n| [b.memory.slice(n * 10..n * 10 + 10).unwrap()]).collect();
        let receives: Vec<_> = (0..).zip(&room).map(|(wr_id, sges)| RecvRequest { wr_id, sges }).collect();
        srq.post_recvs(&receives).unwrap();
        for wr_id in 0..6 {
            let (from, to) = &pairs[wr_id as usize % 3];
            from.post_send(&SendRequest::send(&[]).inline(&[wr_id as u8; 10]).signaled()).unwrap();
            let arrived = b.expect(wr_id);
            assert_eq!((arrived.qp_num, arrived.byte_len), (to.qpn().value(), 10));
            assert_eq!(b.memory.to_vec(wr_id as usize * 10, 10).unwrap(), [wr_id as u8; 10]);
            a.expect(0);
        }
    });
}

#[test]
fn a_low_shared_receive_queue_is_announced_once() {
    on_both(41, |a, b| {
        let srq = b.domain.shared_receive_queue(16, 1).unwrap();
        let builder = RcQueuePair::builder(&b.domain, &b.cq, &b.cq).shared_receive_queue(&srq);
        let (one, other) = (a.rc(), builder.build().unwrap());
        one.connect(&other.endpoint(), &Default::default()).unwrap();
        other.connect(&one.endpoint(), &Default::default()).unwrap();
        for wr_id in 0..3 {
            srq.post_recv(&RecvRequest { wr_id, sges: &[] }).unwrap();
        }
        srq.arm_limit(2).unwrap();
        assert_eq!(srq.query().unwrap().limit, 2);
        for wr_id in 0..2 {
            one.post_send(&SendRequest::send(&[])).unwrap();
            b.expect(wr_id);
        }
        let mut event = b.device.async_event(LIMIT).unwrap();
        if event.event == AsyncEventType::CommEst {
            event = b.device.async_event(LIMIT).unwrap();
        }
        assert_eq!(event.event, AsyncEventType::SrqLimitReached);
        assert!(matches!(event.element, AsyncElement::Srq { .. }));
        assert_eq!(srq.query().unwrap().limit, 0);
    });
}

#[test]
fn xrc_initiators_choose_the_remote_queue() {
    on_both(42, |a, b| {
        let xrcd = b.device.xrc_domain().unwrap();
        let queue = || xrcd.shared_receive_queue(&b.domain, &b.cq, 8, 1).unwrap();
        let (first, second) = (queue(), queue());
        let target = XrcTargetQueuePair::builder(&xrcd).build().unwrap();
        let initiator = XrcInitiatorQueuePair::builder(&a.domain, &a.cq).build().unwrap();
        initiator.connect(&target.endpoint(), &Default::default()).unwrap();
        target.connect(&initiator.endpoint(), &Default::default()).unwrap();
        first.post_recv(&RecvRequest { wr_id: 1, sges: &[b.memory.slice(..64).unwrap()] }).unwrap();
        second.post_recv(&RecvRequest { wr_id: 2, sges: &[b.memory.slice(64..128).unwrap()] }).unwrap();
        let to = |number| SendRequest::send(&[]).remote_srq(number);
        initiator.post_send(&to(second.number().unwrap()).inline(b"second")).unwrap();
        initiator.post_send(&to(first.number().unwrap()).inline(b"first").wr_id(3).signaled()).unwrap();
        b.expect(2);
        b.expect(1);
        a.expect(3);
        assert_eq!(b.memory.to_vec(0, 5).unwrap(), b"first");
        assert_eq!(b.memory.to_vec(64, 6).unwrap(), b"second");
        let write = SendRequest::write(&[], b.memory.remote_slice(200..).unwrap());
        let write = write.remote_srq(first.number().unwrap()).inline(b"written");
        initiator.post_send(&write.wr_id(4).signaled()).unwrap();
        a.expect(4);
        assert_eq!(b.memory.to_vec(200, 7).unwrap(), b"written");
    });
}

#[test]
fn xrc_queue_pairs_of_ofed_are_each_others_targets() {
    on_both(43, |a, b| {
        let half = |side: &crate::kit::TestSide| {
            let xrcd = side.device.xrc_domain().unwrap();
            let srq = xrcd.shared_receive_queue(&side.domain, &side.cq, 8, 1).unwrap();
            let qp = XrcDuplexQueuePair::builder(&side.domain, &xrcd, &side.cq).build().unwrap();
            (srq, qp)
        };
        let ((srq_a, qp_a), (srq_b, qp_b)) = (half(&a), half(&b));
        qp_a.connect(&qp_b.endpoint(), &Default::default()).unwrap();
        qp_b.connect(&qp_a.endpoint(), &Default::default()).unwrap();
        for round in 0..10_u64 {
            let there = ((&a, &qp_a), (&b, &qp_b, &srq_b));
            let back = ((&b, &qp_b), (&a, &qp_a, &srq_a));
            let ((from, sender), (to, receiver, srq)) = if round % 2 == 0 { there } else { back };
            let sges = [to.memory.slice(..64).unwrap()];
            srq.post_recv(&RecvRequest { wr_id: 100 + round, sges: &sges }).unwrap();
            let number = srq.number().unwrap();
            let data = [round as u8; 20];
            let send = SendRequest::send(&[]).remote_srq(number).inline(&data);
            sender.post_send(&send.wr_id(round).signaled()).unwrap();
            let arrived = to.expect(100 + round);
            assert_eq!((arrived.qp_num, arrived.byte_len), (receiver.qpn().value(), 20));
            from.expect(round);
            assert_eq!(to.memory.to_vec(0, 20).unwrap(), data);
        }
    });
}

#[test]
fn only_xrc_queues_have_a_number() {
    let (a, _b) = simulated();
    let srq = a.domain.shared_receive_queue(1, 1).unwrap();
    assert_eq!(srq.number().unwrap_err().object(), "shared receive queue");
}

#[test]
fn xrc_domains_of_files_are_shared_and_targets_are_opened_by_number() {
    let (a, _b) = simulated();
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let open = |opening| a.device.xrc_domain_of_file(&file, opening);
    assert_eq!(open(XrcDomainOpening::Existing).unwrap_err().errno(), 11, "EAGAIN");
    let first = open(XrcDomainOpening::New).unwrap();
    assert!(open(XrcDomainOpening::New).is_err());
    let second = open(XrcDomainOpening::Existing).unwrap();
    let private = a.device.xrc_domain().unwrap();
    let target = XrcTargetQueuePair::builder(&first).build().unwrap();
    let qpn = target.qpn();
    assert!(private.open_target(qpn, 7).is_err() && private.query_target(qpn).is_err());
    let opened = second.open_target(qpn, 7).unwrap();
    assert_eq!(opened.query().unwrap().qp_state, QpState::Init as u32);
    drop((target, first));
    let failed = QpAttributes { qp_state: QpState::Err as u32, ..QpAttributes::default() };
    opened.modify(&failed, AttributeMask::STATE).unwrap();
    let event = a.device.hca().async_events().try_event().unwrap();
    assert_eq!(event.element, AsyncElement::Qp { qpn: qpn.value(), cookie: 7 });
    event.ack();
    drop(opened);
    assert!(second.query_target(qpn).is_err(), "the last one destroyed it");
}
