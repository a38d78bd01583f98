//! Questions for datagram queue pairs, and MADs that are no connection management.

use pumice_transport::cm::{
    BacklogOverflow, CmError, CmEvent, CmState, IgnoredMad, ListenParams, ResolveParams, Served, SidrReply,
    UnansweredMessage,
};
use pumice_transport::mad::{
    CmMessage, CommId, MAD_BYTES, MadError, MadHeader, PortSpace, PrivateData, ServiceId, SidrRep, SidrReq,
    SidrStatus, attribute, class, method,
};
use pumice_transport::wire::Qpn;

use crate::kit::*;

const DATAGRAMS: ServiceId = ServiceId::rdma_cm(PortSpace::Udp, 7174);

fn question() -> SidrReq {
    SidrReq {
        request_id: THEIRS,
        pkey: 0xffff,
        service_id: DATAGRAMS,
        private_data: PrivateData::new(&ip_header(PEER, US)).unwrap(),
    }
}

fn answer(status: SidrStatus, qpn: u32) -> SidrRep {
    SidrRep {
        request_id: OURS,
        status,
        info_length: 0,
        qpn: Qpn::new(qpn),
        service_id: DATAGRAMS,
        q_key: 0x0123_4567,
        info: PrivateData::NONE,
        private_data: PrivateData::new(b"hello").unwrap(),
    }
}

fn resolving() -> Bench {
    let mut bench = Bench::new();
    let header = ip_header(US, PEER);
    let params = ResolveParams::new(DATAGRAMS, route(), &header);
    assert_eq!(bench.cm.resolve(&params, bench.now_ns), Ok(OURS));
    let private_data = PrivateData::new(&header).unwrap();
    let expected = SidrReq { request_id: OURS, private_data, ..question() };
    assert_eq!(bench.sent_one(), CmMessage::SidrReq(expected));
    bench
}

fn asked(backlog: usize, overflow: BacklogOverflow) -> Bench {
    let mut bench = Bench::new();
    let listener =
        bench.cm.listen(&ListenParams { overflow, ..ListenParams::new(DATAGRAMS, backlog) }).unwrap();
    bench.receive(CmMessage::SidrReq(question())).unwrap();
    let request = Box::new(question());
    assert_eq!(bench.event(), CmEvent::SidrRequest { listener, id: OURS, route: route(), request });
    bench
}

#[test]
fn resolves() {
    for reply in [answer(SidrStatus::SUCCESS, 0x39), answer(SidrStatus::REJECT, 0)] {
        let mut bench = resolving();
        bench.receive(CmMessage::SidrRep(reply)).unwrap();
        assert_eq!(bench.event(), CmEvent::SidrResolved { id: OURS, reply: Box::new(reply) });
        assert_eq!(bench.receive(CmMessage::SidrRep(reply)), Err(IgnoredMad::WrongState(CmState::Idle)));
        bench.cm.destroy(OURS, bench.now_ns).unwrap();
        bench.quiet();
        bench.assert_gone();
    }
}

#[test]
fn a_question_to_a_listener_for_connections_is_rejected() {
    let of_one = Served::Connections(pumice_transport::mad::TransportType::Rc);
    for served in [of_one, Served::AnyConnection] {
        let mut bench = Bench::new();
        bench.cm.listen(&ListenParams { served, ..ListenParams::new(DATAGRAMS, 8) }).unwrap();
        assert_eq!(bench.receive(CmMessage::SidrReq(question())), Err(IgnoredMad::Refused));
        let CmMessage::SidrRep(rep) = bench.sent_one() else { panic!("a SIDR_REP") };
        assert_eq!(rep.status, SidrStatus::REJECT);
        bench.quiet();
        bench.assert_gone();
    }
}

#[test]
fn an_unanswered_question_is_asked_16_times() {
    let mut bench = resolving();
    for _ in 0..15 {
        bench.wait_exactly(RESPONSE_NS);
        assert!(matches!(bench.sent_one(), CmMessage::SidrReq(_)));
    }
    bench.wait_exactly(RESPONSE_NS);
    assert_eq!(bench.event(), CmEvent::Unreachable { id: OURS, unanswered: UnansweredMessage::SidrReq });
    bench.quiet();
}

#[test]
fn a_question_given_up_says_nothing() {
    let mut bench = resolving();
    bench.cm.destroy(OURS, bench.now_ns).unwrap();
    bench.quiet();
    bench.assert_gone();
    assert_eq!(bench.receive(CmMessage::SidrRep(answer(SidrStatus::SUCCESS, 1))), Err(IgnoredMad::UnknownId));
}

#[test]
fn answers() {
    let mut bench = asked(1, BacklogOverflow::Reject);
    assert_eq!(bench.receive(CmMessage::SidrReq(question())), Err(IgnoredMad::Duplicate));
    bench.quiet();
    assert!(matches!(
        bench.cm.sidr_reply(OURS, &SidrReply::queue_pair(OUR_QPN, 1, &[0; 137])),
        Err(CmError::PrivateData(_))
    ));
    bench.cm.sidr_reply(OURS, &SidrReply::queue_pair(OUR_QPN, 0x0123_4567, b"hello")).unwrap();
    let expected = SidrRep { request_id: THEIRS, ..answer(SidrStatus::SUCCESS, OUR_QPN.value()) };
    assert_eq!(bench.sent_one(), CmMessage::SidrRep(expected));
    let again = bench.cm.sidr_reply(OURS, &SidrReply::refused(SidrStatus::REJECT, &[]));
    assert!(matches!(again, Err(CmError::WrongState { state: CmState::Idle, .. })));
    // The answer was lost.
    bench.receive(CmMessage::SidrReq(question())).unwrap();
    let CmEvent::SidrRequest { id, .. } = bench.event() else { panic!("the question again") };
    for id in [OURS, id] {
        bench.cm.destroy(id, bench.now_ns).unwrap();
    }
    let refused = SidrRep {
        request_id: THEIRS,
        q_key: 0,
        private_data: PrivateData::NONE,
        ..answer(SidrStatus::REJECT, 0)
    };
    assert_eq!(bench.sent_one(), CmMessage::SidrRep(refused));
    bench.assert_gone();
}

#[test]
fn questions_that_cannot_be_answered() {
    let mut bench = asked(1, BacklogOverflow::Reject);
    let second = SidrReq { request_id: CommId(8), ..question() };
    let cases = [
        (SidrReq { service_id: SERVICE, ..second }, SidrStatus::UNSUPPORTED, IgnoredMad::NoListener),
        (
            SidrReq { private_data: PrivateData::new(&[1]).unwrap(), ..second },
            SidrStatus::REJECT,
            IgnoredMad::Refused,
        ),
        (second, SidrStatus::NO_QP, IgnoredMad::Full),
    ];
    for (question, status, ignored) in cases {
        assert_eq!(bench.receive(CmMessage::SidrReq(question)), Err(ignored));
        let CmMessage::SidrRep(reply) = bench.sent_one() else { panic!("an answer") };
        assert_eq!(
            (reply.request_id, reply.status, reply.service_id),
            (CommId(8), status, question.service_id)
        );
    }
    let mut bench = asked(1, BacklogOverflow::Ignore);
    assert_eq!(bench.receive(CmMessage::SidrReq(second)), Err(IgnoredMad::Full));
    bench.quiet();
    bench.cm.take_request(OURS);
    bench.receive(CmMessage::SidrReq(second)).unwrap();
}

#[test]
fn strange_mads_are_ignored_or_refused() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.cm.handle_mad(&route(), &[1; 255], 0),
        Err(IgnoredMad::Mad(MadError::Length { length_bytes: 255 }))
    );
    let mut bytes = [0; MAD_BYTES];
    assert_eq!(bench.cm.handle_mad(&route(), &bytes, 0), Err(IgnoredMad::Mad(MadError::BaseVersion(0))));
    let header = MadHeader::communication(attribute::LAP, 1, 0);
    header.emit(&mut bytes);
    assert_eq!(bench.cm.handle_mad(&route(), &bytes, 0), Err(IgnoredMad::Mad(MadError::AlternatePath)));
    bench.quiet();
    // A query for performance counters.
    MadHeader { class: class::PERFORMANCE, class_version: 1, method: method::GET, ..header }.emit(&mut bytes);
    assert_eq!(bench.cm.handle_mad(&route(), &bytes, 0), Err(IgnoredMad::Mad(MadError::Class(4))));
    let out = bench.cm.poll_transmit().unwrap();
    assert_eq!(out.route, route());
    assert_eq!(out.mad[..8], [1, 4, 1, 0x81, 0, 0x0c, 0, 0]);
}
