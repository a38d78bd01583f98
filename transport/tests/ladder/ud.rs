//! Datagrams.

use std::sync::Arc;

use pumice_transport::path::{Flow, Path};
use pumice_transport::types::FailureDetail;
use pumice_transport::wire::Qpn;

use crate::prelude::*;

const SOURCE: Qpn = Qpn::new(0x99);

fn rung() -> Rung {
    Setup { mtu: Mtu::Mtu1024, ..Setup::new(QpType::Ud) }.build()
}

fn datagram(payload: &[u8]) -> Literal {
    ud(op::SEND_ONLY, QKEY, SOURCE).payload(payload)
}

fn to(qpn: u32, qkey: u32) -> Option<UdDestination> {
    let path = Path { traffic_class: 0x20, ..path_to_peer() };
    Some(UdDestination { path: Arc::new(path), qpn: Qpn::new(qpn), qkey })
}

fn ud_request<'a>(wr_id: u64, sges: &'a [Sge], ud: Option<UdDestination>) -> SendRequest<'a> {
    SendRequest { ud, ..request(wr_id, SendOpcode::Send, sges) }
}

#[test]
fn a_datagram_arrives_behind_forty_bytes_of_header() {
    let mut rung = rung();
    rung.post_recv(1, 100);
    rung.receive_marked(&datagram(b"hello").psn(0xabcdef).solicited(), 0x68);
    let done = rung.host.recvs_done[0];
    assert_eq!((done.wc.byte_len, done.wc.flags), (45, WcFlags::GRH));
    assert_eq!(done.wc.sl, 10, "UDP over IPv4");
    assert_eq!((done.wc.src_qp, done.wc.opcode, done.solicited), (SOURCE.value(), WcOpcode::Recv, true));
    let buffer = rung.buffer()[..45].to_vec();
    assert_eq!(buffer[40..], *b"hello");
    let header = &buffer[20..40];
    assert_eq!((header[0], header[1], header[8], header[9]), (0x45, 0x68, 64, 17));
    assert_eq!(header[12..], [10, 0, 0, 2, 10, 0, 0, 1]);
    let total = u16::from_be_bytes([header[2], header[3]]);
    assert_eq!(usize::from(total), 20 + 8 + 12 + 8 + 8 + 4);
    let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "IP checksum");
}

#[test]
fn ipv6_datagrams_carry_the_whole_header() {
    let mut rung = rung();
    rung.post_recv(1, 100);
    let flow = Flow {
        source: "fe80::2".parse().unwrap(),
        destination: "fe80::1".parse().unwrap(),
        ..flow_from_peer()
    };
    assert!(rung.receive_bytes(&datagram(b"hi").bytes(LOCAL), &flow, 0));
    assert_eq!(rung.host.recvs_done[0].wc.sl, 9, "UDP over IPv6");
    let header = rung.buffer()[..40].to_vec();
    assert_eq!((header[0] >> 4, header[6], header[7]), (6, 17, 64));
    assert_eq!((header[23], header[39]), (2, 1));
    assert_eq!(u16::from_be_bytes([header[4], header[5]]), 8 + 12 + 8 + 4 + 4);
}

#[test]
fn statement_41_a_wrong_qkey_is_dropped_and_counted() {
    let mut rung = rung();
    rung.post_recv(1, 100);
    rung.receive(&ud(op::SEND_ONLY, QKEY + 1, SOURCE).payload(b"no"));
    assert_eq!(rung.host.recvs_done, []);
    assert_eq!(rung.host.receives.len(), 1);
    assert_eq!(rung.host.counter(Counter::RxBadQkey), 1);
    rung.receive(&datagram(b"yes"));
    assert_eq!(rung.host.take_recvs(), successes(&[1]));
}

#[test]
fn statement_41_a_remote_qkey_with_its_top_bit_set_means_the_own_one() {
    let mut rung = rung();
    rung.post(&ud_request(1, &[], to(5, 0x7000_0001)));
    rung.post(&ud_request(2, &[], to(5, 0x8000_0000)));
    let sent = rung.requests();
    assert_eq!(sent[0].deth, Some((0x7000_0001, LOCAL.value())));
    assert_eq!(sent[1].deth, Some((QKEY, LOCAL.value())));
    assert_eq!((sent[0].psn, sent[1].psn, sent[0].destination), (SQ_PSN, SQ_PSN + 1, Some(5)));
    assert_eq!(rung.host.take_sends(), successes(&[1, 2]));
}

#[test]
fn statement_42_each_member_of_a_group_gets_its_own_copy_and_checks_it() {
    let packet = datagram(b"all").to(Qpn::MULTICAST.value());
    let mut members = [rung(), rung(), Setup { qkey: 1, ..Setup::new(QpType::Ud) }.build(), rung()];
    for member in &mut members[..3] {
        member.post_recv(1, 100);
    }
    members.iter_mut().for_each(|member| member.receive(&packet));
    let received: Vec<_> = members.iter().map(|member| member.host.recvs_done.len()).collect();
    assert_eq!(received, [1, 1, 0, 0], "one has another Q_Key, one no receive");
    assert_eq!(members[1].buffer()[40..43], *b"all");
    assert_eq!(members[3].host.counter(Counter::RxNoReceive), 1);
}

#[test]
fn datagrams_go_where_each_request_says() {
    let mut rung = rung();
    let sges = [Sge { address: BUFFER_BASE, length: 5, lkey: BUFFER }];
    let imm = SendRequest {
        opcode: SendOpcode::SendWithImm,
        imm_data: [4; 4],
        ..ud_request(1, &sges, to(0x77, QKEY))
    };
    rung.post(&imm);
    rung.qp.transmit_requests(rung.now_ns, &mut rung.host, &mut rung.sink);
    assert_eq!(rung.sink.sent[0].path.traffic_class, 0x20);
    let expected = ud(op::SEND_ONLY_IMM, QKEY, LOCAL).psn(SQ_PSN).to(0x77).imm([4; 4]);
    assert_eq!(rung.sink.take_one(), expected.payload(&pattern(5)));
}

#[test]
fn a_datagram_beyond_the_mtu_is_a_length_error_and_stops_the_send_side() {
    let mut rung = rung();
    let fits = [Sge { address: BUFFER_BASE, length: 1024, lkey: BUFFER }];
    let long = [Sge { length: 1025, ..fits[0] }];
    rung.post(&ud_request(1, &fits, to(5, QKEY)));
    rung.post(&ud_request(2, &long, to(5, QKEY)));
    rung.post(&ud_request(3, &fits, to(5, QKEY)));
    assert_eq!(rung.requests().len(), 1);
    let expected = [(1, WcStatus::Success), (2, WcStatus::LocLenErr), (3, WcStatus::WrFlushErr)];
    assert_eq!(rung.host.take_sends(), expected);
    assert_eq!(rung.state(), QpState::Sqe);
    rung.post_recv(9, 100);
    rung.receive(&datagram(b"heard"));
    assert_eq!(rung.host.take_recvs(), successes(&[9]));
    rung.enter(QpState::Rts).unwrap();
    rung.post(&ud_request(4, &fits, to(5, QKEY)));
    assert_eq!(rung.requests()[0].psn, SQ_PSN + 3);
    assert_eq!(rung.host.take_sends(), successes(&[4]));
}

#[test]
fn a_wrong_local_key_is_a_protection_error() {
    let mut rung = rung();
    rung.post(&ud_request(1, &[Sge { address: BUFFER_BASE, length: 4, lkey: 99 }], to(5, QKEY)));
    assert_eq!(rung.requests(), []);
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::LocProtErr)]);
    assert_eq!((rung.state(), rung.sink.abandoned), (QpState::Sqe, 1));
}

/// A fault of class D: silent for both sides, without effect on the receive queue.
#[test]
fn a_datagram_that_its_receive_cannot_hold_is_dropped_and_the_receive_waits_for_the_next() {
    let mut rung = rung();
    rung.post_recv(1, 44);
    rung.post_recv(2, 100);
    rung.receive(&datagram(b"hello"));
    rung.receive(&datagram(b"hello"));
    assert_eq!((rung.host.take_recvs(), rung.state()), (vec![], QpState::Rts));
    assert_eq!(rung.buffer()[..64], pattern(64));
    assert_eq!(rung.host.counter(Counter::RxMessageDropped), 2);
    assert!(matches!(
        rung.host.causes[0],
        Cause::MessageDropped { detail: FailureDetail::Room { wr_id: 1, room_bytes: 44, .. }, .. }
    ));
    rung.receive(&datagram(b"four"));
    rung.receive(&datagram(b"hello"));
    assert_eq!(rung.host.take_recvs(), successes(&[1, 2]));
    // What waits is flushed like all others.
    rung.post_recv(3, 44);
    rung.receive(&datagram(b"hello"));
    rung.enter(QpState::Err).unwrap();
    assert_eq!(rung.host.take_recvs(), [(3, WcStatus::WrFlushErr)]);
}

/// A fault of class E: a request that was taken of a shared queue does not go back.
#[test]
fn a_shared_receive_that_cannot_hold_its_datagram_completes_and_the_queue_pair_goes_on() {
    let mut rung = Setup { has_srq: true, mtu: Mtu::Mtu1024, ..Setup::new(QpType::Ud) }.build();
    rung.post_recv(1, 44);
    rung.post_recv(2, 100);
    rung.receive(&datagram(b"hello"));
    assert_eq!((rung.host.take_recvs(), rung.state()), (vec![(1, WcStatus::LocLenErr)], QpState::Rts));
    rung.receive(&datagram(b"hello"));
    assert_eq!(rung.host.take_recvs(), successes(&[2]));
}

#[test]
fn other_services_and_states_are_not_heard() {
    let mut rung = rung();
    rung.post_recv(1, 100);
    rung.receive(&rc(op::SEND_ONLY));
    rung.receive(&uc(op::SEND_ONLY));
    rung.receive(&xrc(op::SEND_ONLY, 5));
    assert_eq!(rung.host.counter(Counter::RxWrongService), 3);
    rung.enter(QpState::Err).unwrap();
    rung.receive(&datagram(b"late"));
    assert_eq!(rung.host.take_recvs(), [(1, WcStatus::WrFlushErr)]);
    assert_eq!(rung.host.counter(Counter::RxWrongState), 1);
}

#[test]
fn datagram_requests_need_a_destination_and_no_remote_memory() {
    let mut rung = rung();
    let missing = PostError::Incomplete { missing: "the address handle of the datagram" };
    assert_eq!(rung.try_post(&ud_request(1, &[], None)), Err(missing));
    let opcode = SendOpcode::RdmaWrite;
    let refused = PostError::WrongOpcode { opcode, qp_type: QpType::Ud };
    assert_eq!(rung.try_post(&request(1, opcode, &[])), Err(refused));
}

#[test]
fn what_ud_does_not_have_ends_as_an_operation_error_for_programs_that_expect_it_there() {
    use SendOpcode::*;
    for opcode in
        [RdmaWrite, RdmaRead, CompareSwap, FetchAdd, LocalInvalidate, BindWindow, SendWithInvalidate]
    {
        let mut rung = rung();
        rung.post(&SendRequest { faults_complete: true, ..request(1, opcode, &[]) });
        rung.post(&SendRequest { faults_complete: true, ..ud_request(2, &[], None) });
        assert_eq!(rung.requests(), []);
        let expected = [(1, WcStatus::LocQpOpErr), (2, WcStatus::WrFlushErr)];
        assert_eq!(rung.host.take_sends(), expected, "{}", opcode.name());
        assert_eq!(rung.state(), QpState::Sqe);
    }
}

#[test]
fn a_datagram_through_an_address_handle_of_another_domain_is_an_operation_error() {
    let mut rung = rung();
    // The caller, who knows the domains, gives no destination.
    rung.post(&SendRequest { faults_complete: true, ..ud_request(1, &[], None) });
    rung.requests();
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::LocQpOpErr)]);
    let error = PostError::ForeignAddressHandle;
    assert!(
        matches!(rung.host.causes[0], Cause::RequestFaulty { wr_id: 1, error: given, .. } if given == error)
    );
    // The failure has the cause as well.
    assert!(rung.host.causes[1].to_string().ends_with(&error.to_string()), "{:?}", rung.host.causes);
}
