//! From which UDP port a peer's packets are taken.

use pumice_transport::path::ROCE_PORT;

use crate::prelude::*;

/// A port as rdma_rxe and NICs compute one.
const NIC: u16 = 0xc123;
/// The port of a socket that another user of the peer's host has.
const STRANGER: u16 = 40_000;
const ACCESS_NAK: u8 = 0x62;

fn from(rung: &mut Rung, port: u16, literal: &Literal) {
    let flow = pumice_transport::path::Flow { source_port: port, ..flow_from_peer() };
    assert!(rung.receive_bytes(&literal.bytes(LOCAL), &flow, 0));
}

fn write(psn: u32, payload: &[u8]) -> Literal {
    rc(op::WRITE_ONLY).psn(psn).reth(TARGET_BASE, RKEY, payload.len() as u32).payload(payload).ack_req()
}

/// A peer whose port is known from one WRITE.
fn known(port: u16) -> Rung {
    let mut rung = Rung::rc();
    from(&mut rung, port, &write(RQ_PSN, b"peer"));
    assert_eq!(rung.responses(), [ack(RQ_PSN, 1)]);
    rung
}

/// What a local user did to a connection in 34 seconds: one WRITE with a wrong key for each PSN there is.
#[test]
fn all_psns_from_a_strangers_port_change_nothing() {
    for (peer, explained) in [(ROCE_PORT, 13), (NIC, 13)] {
        let mut rung = known(peer);
        let forged = rc(op::WRITE_ONLY).reth(TARGET_BASE, 0, 0);
        let mut bytes = forged.bytes(LOCAL);
        let flow = pumice_transport::path::Flow { source_port: STRANGER, ..flow_from_peer() };
        for psn in 0..1_u32 << 24 {
            bytes[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
            rung.receive_bytes(&bytes, &flow, 0);
            rung.now_ns += 2_000;
        }
        assert_eq!((rung.state(), rung.qp.query().rq_psn), (QpState::Rts, RQ_PSN + 1));
        // Those executed before are answered again for a NIC, to the NIC.
        let (answers, duplicates) = if peer == NIC { (1, 512) } else { (0, 0) };
        assert_eq!(rung.responses().len(), answers);
        assert_eq!(rung.host.counter(Counter::RxWrongPort), (1 << 24) - duplicates);
        assert!(rung.host.causes.len() <= explained, "{:?}", rung.host.causes);
        // The peer goes on as if nothing had been.
        from(&mut rung, peer, &write(RQ_PSN + 1, b"more"));
        assert_eq!(rung.responses(), [ack(RQ_PSN + 1, 2)]);
        assert_eq!(rung.target()[..4], *b"more");
    }
}

#[test]
fn the_explanation_names_both_ports() {
    let mut rung = known(ROCE_PORT);
    from(&mut rung, STRANGER, &write(RQ_PSN + 1, b"evil"));
    let cause = rung.host.causes.pop().unwrap();
    assert_eq!(
        cause.to_string(),
        "dropped a packet at PSN 0x000101 from UDP port 40000: the peer sends from 4791; another program on \
        its host \
         may have sent it"
    );
    assert!(!cause.is_fatal());
    assert_eq!(rung.target()[..4], *b"peer");
}

#[test]
fn a_peer_with_the_roce_port_keeps_it_even_against_exact_packets() {
    let mut rung = known(ROCE_PORT);
    for wait_ns in [0, 1_000_000_000, 200_000_000_000] {
        rung.now_ns += wait_ns;
        from(&mut rung, STRANGER, &write(RQ_PSN + 1, b"evil"));
        assert_eq!((rung.responses(), rung.qp.query().rq_psn), (vec![], RQ_PSN + 1));
    }
    assert_eq!(rung.target()[..4], *b"peer");
}

#[test]
fn a_nic_may_change_its_port_between_packets() {
    let mut rung = known(NIC);
    from(&mut rung, NIC + 1, &write(RQ_PSN + 1, b"one!"));
    assert_eq!(rung.responses(), [ack(RQ_PSN + 1, 2)]);
    // The answer is lost on the way of the old flow: the repetition from the new one is answered again.
    from(&mut rung, NIC + 2, &write(RQ_PSN + 1, b"one!"));
    assert_eq!(rung.responses(), [ack(RQ_PSN + 1, 2)]);
    // The first packet of the newest flow is lost: the second is not believed, the repetition is.
    from(&mut rung, NIC + 2, &write(RQ_PSN + 3, b"3333"));
    assert_eq!(rung.responses(), []);
    rung.now_ns += 67_000_000;
    from(&mut rung, NIC + 2, &write(RQ_PSN + 2, b"2222"));
    from(&mut rung, NIC + 2, &write(RQ_PSN + 3, b"3333"));
    assert_eq!(rung.responses(), [ack(RQ_PSN + 3, 4)]);
    assert_eq!(rung.host.counter(Counter::RxWrongPort), 1);
}

#[test]
fn forged_answers_complete_nothing_and_kill_nothing() {
    for peer in [ROCE_PORT, NIC] {
        let mut rung = known(peer);
        (0..3).for_each(|k| rung.post_send(k, 4));
        rung.post_read(3, 8);
        rung.requests();
        from(&mut rung, STRANGER, &ack(SQ_PSN + 1, 2));
        for syndrome in [0x60, 0x61, ACCESS_NAK, 0x63, 0x64] {
            from(&mut rung, STRANGER, &nak(syndrome, SQ_PSN + 1, 2));
        }
        from(&mut rung, STRANGER, &rnr(1, SQ_PSN + 2, 1));
        from(&mut rung, STRANGER, &read_response(op::READ_ONLY, SQ_PSN + 3, 1, b"forgery!"));
        assert_eq!((rung.state(), rung.host.take_sends()), (QpState::Rts, vec![]));
        assert_eq!(rung.requests(), []);
        assert_eq!(rung.host.counter(Counter::RxWrongPort), 8);
        from(&mut rung, peer, &ack(SQ_PSN + 2, 3));
        from(&mut rung, peer, &read_response(op::READ_ONLY, SQ_PSN + 3, 1, b"the data"));
        assert_eq!(rung.host.take_sends(), successes(&[0, 1, 2, 3]));
        assert_eq!(rung.buffer()[..8], *b"the data");
    }
}

#[test]
fn a_nics_answers_may_come_from_a_new_port_once_they_say_all_there_is_to_say() {
    let mut rung = known(NIC);
    (0..3).for_each(|k| rung.post_send(k, 4));
    rung.requests();
    from(&mut rung, NIC + 1, &ack(SQ_PSN + 1, 2));
    assert_eq!(rung.host.take_sends(), [], "it might be a guess within the window");
    // It was not: our requests are sent again, and answered again.
    assert_eq!(rung.wait_for_deadline().map(|ns| ns > 60_000_000), Some(true));
    assert_eq!(rung.requests().len(), 3);
    from(&mut rung, NIC + 1, &ack(SQ_PSN + 2, 3));
    assert_eq!(rung.host.take_sends(), successes(&[0, 1, 2]));
    rung.post_read(3, 8);
    rung.requests();
    from(&mut rung, NIC + 2, &read_response(op::READ_ONLY, SQ_PSN + 3, 4, b"the data"));
    assert_eq!(rung.host.take_sends(), successes(&[3]));
    rung.post_send(4, 4);
    rung.requests();
    from(&mut rung, NIC + 3, &rnr(1, SQ_PSN + 4, 4));
    assert_eq!(rung.host.counter(Counter::RxRnrNak), 1);
}

#[test]
fn the_first_answer_tells_the_port_of_a_peer_that_only_answers() {
    let mut rung = Rung::rc();
    rung.post_send(1, 4);
    rung.requests();
    from(&mut rung, NIC, &ack(SQ_PSN, 1));
    assert_eq!(rung.host.take_sends(), successes(&[1]));
    rung.post_send(2, 4);
    rung.requests();
    from(&mut rung, STRANGER, &nak(ACCESS_NAK, SQ_PSN + 1, 1));
    assert_eq!((rung.state(), rung.host.counter(Counter::RxWrongPort)), (QpState::Rts, 1));
}

#[test]
fn before_a_port_is_known_a_gap_is_answered_as_ever() {
    let mut rung = Rung::rc();
    from(&mut rung, NIC, &write(RQ_PSN + 1, b"late"));
    assert_eq!(rung.responses(), [nak(0x60, RQ_PSN, 0)]);
    from(&mut rung, NIC, &write(RQ_PSN, b"frst"));
    assert_eq!(rung.responses(), [ack(RQ_PSN, 1)]);
    assert_eq!(rung.host.counter(Counter::RxWrongPort), 0);
}

#[test]
fn a_connection_that_never_began_is_not_begun_by_guessing() {
    let mut rung = Rung::rc();
    for psn in (0..0x1_0000).rev() {
        let psn = RQ_PSN.wrapping_add(psn) & 0xff_ffff;
        from(&mut rung, STRANGER, &write(psn, b"evil"));
        rung.now_ns += 2_000;
    }
    assert_eq!((rung.state(), rung.qp.query().rq_psn), (QpState::Rts, RQ_PSN));
    assert_eq!(rung.host.counter(Counter::RxWrongPort), 1);
    // A peer with a likely port can begin all the same.
    rung.responses();
    from(&mut rung, ROCE_PORT, &write(RQ_PSN, b"peer"));
    assert_eq!(rung.responses(), [ack(RQ_PSN, 1)]);
    assert_eq!(rung.target()[..4], *b"peer");
}

#[test]
fn reset_forgets_the_port() {
    let mut rung = known(ROCE_PORT);
    rung.enter(QpState::Reset).unwrap();
    rung.climb();
    from(&mut rung, NIC, &write(RQ_PSN, b"rxe!"));
    assert_eq!(rung.responses(), [ack(RQ_PSN, 1)]);
    from(&mut rung, ROCE_PORT, &write(RQ_PSN + 1, b"back"));
    assert_eq!(rung.responses(), [ack(RQ_PSN + 1, 2)]);
}

#[test]
fn uc_and_xrc_peers_have_one_port_too_and_datagrams_have_any() {
    let mut rung = Setup::new(QpType::Uc).build();
    let message = |psn| uc(op::WRITE_ONLY).psn(psn).reth(TARGET_BASE, RKEY, 4);
    // The first message is taken, although packets before it were lost.
    from(&mut rung, NIC, &message(RQ_PSN + 5000).payload(b"peer"));
    for psn in [RQ_PSN, RQ_PSN + 4999, RQ_PSN + 9000] {
        from(&mut rung, STRANGER, &message(psn).payload(b"evil"));
    }
    assert_eq!(rung.target()[..4], *b"peer");
    assert_eq!(rung.host.counter(Counter::RxWrongPort), 3);
    rung.now_ns += 20_000_000;
    from(&mut rung, NIC + 1, &message(RQ_PSN + 5003).payload(b"next"));
    assert_eq!(rung.target()[..4], *b"next");

    let mut rung = Setup::new(QpType::XrcInitiator).build();
    rung.post_send(1, 4);
    rung.post_send(2, 4);
    rung.requests();
    from(&mut rung, ROCE_PORT, &ack(SQ_PSN, 1).over_xrc());
    from(&mut rung, STRANGER, &ack(SQ_PSN + 1, 2).over_xrc());
    assert_eq!(rung.host.take_sends(), successes(&[1]));

    let mut rung = Setup::new(QpType::Ud).build();
    for (wr_id, port) in [(1, NIC), (2, STRANGER), (3, ROCE_PORT)] {
        rung.post_recv(wr_id, 64);
        from(&mut rung, port, &ud(op::SEND_ONLY, QKEY, PEER).psn(7).payload(b"ud"));
    }
    assert_eq!(rung.host.recvs_done.len(), 3);
}
