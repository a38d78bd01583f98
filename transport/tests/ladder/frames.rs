//! Raw packet queue pairs: Ethernet frames instead of packets.

use pumice_transport::qp::FrameDropped;

use crate::prelude::*;

fn rung() -> Rung {
    Setup { signal_all: true, ..Setup::new(QpType::RawPacket) }.build()
}

#[test]
fn frames_leave_whole_and_in_order_without_a_packet() {
    let mut rung = rung();
    // Longer than any path MTU.
    rung.post_send(1, 1500);
    let inline = SendRequest { inline_data: &[7; 60], ..request(2, SendOpcode::Send, &[]) };
    rung.post(&SendRequest { flags: SendFlags::INLINE, ..inline });
    assert!(rung.requests().is_empty(), "no packet of RoCE");
    assert_eq!(rung.host.frames, [pattern(1500), vec![7; 60]]);
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!((rung.qp.in_flight(), rung.qp.deadline_ns()), (0, None));
}

#[test]
fn what_is_no_frame_stops_the_send_queue_only() {
    let mut rung = rung();
    rung.post_send(1, 60);
    rung.post_send(2, 13);
    rung.post_send(3, 60);
    rung.requests();
    rung.requests();
    let statuses = [(1, WcStatus::Success), (2, WcStatus::LocLenErr), (3, WcStatus::WrFlushErr)];
    assert_eq!(rung.host.take_sends(), statuses);
    let said = rung.host.causes.last().expect("a cause").to_string();
    assert!(
        said.ends_with("a frame has 14 bytes or more, and no more than the network interface carries"),
        "{said}"
    );
    assert_eq!(rung.state(), QpState::Sqe);
    rung.post_recv(4, 100);
    assert_eq!(rung.qp.handle_frame(&[1; 60], &mut rung.host), Ok(()));
    rung.enter(QpState::Rts).unwrap();
    let sges = [Sge { address: 1, length: 60, lkey: 0xdead }];
    rung.post(&request(5, SendOpcode::Send, &sges));
    rung.requests();
    rung.requests();
    assert_eq!(rung.host.take_sends(), [(5, WcStatus::LocProtErr)]);
}

#[test]
fn only_sends_are_posted() {
    let mut rung = rung();
    for opcode in [SendOpcode::SendWithImm, SendOpcode::RdmaWrite, SendOpcode::RdmaRead, SendOpcode::Flush] {
        let refused = rung.try_post(&request(1, opcode, &[]));
        assert_eq!(refused, Err(PostError::WrongOpcode { opcode, qp_type: QpType::RawPacket }));
    }
}

#[test]
fn a_frame_fills_the_next_receive_request_from_its_beginning() {
    let mut rung = rung();
    rung.post_recv(1, 100);
    assert_eq!(rung.qp.handle_frame(&[9; 64], &mut rung.host), Ok(()));
    let done = rung.host.recvs_done[0];
    assert_eq!((done.wc.wr_id, done.wc.byte_len, done.wc.opcode), (1, 64, WcOpcode::Recv));
    assert_eq!((done.wc.flags, done.cq, done.solicited), (WcFlags::empty(), RECV_CQ, false));
    assert_eq!(rung.buffer()[..65], [&[9; 64][..], &pattern(65)[64..]].concat());
}

#[test]
fn a_frame_without_a_receive_request_is_lost_and_a_longer_one_ends_the_queue_pair() {
    let mut rung = rung();
    let lost = Err(FrameDropped(Counter::RxNoReceive));
    assert_eq!(rung.qp.handle_frame(&[1; 60], &mut rung.host), lost);
    rung.post_recv(1, 59);
    rung.post_recv(2, 100);
    assert_eq!(rung.qp.handle_frame(&[2; 60], &mut rung.host), Ok(()));
    assert_eq!(rung.host.take_recvs(), [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(rung.state(), QpState::Err);
    let early = Err(FrameDropped(Counter::RxWrongState));
    assert_eq!(rung.qp.handle_frame(&[1; 60], &mut rung.host), early);
}

#[test]
fn frames_and_packets_are_not_each_others() {
    let mut rung = rung();
    rung.post_recv(1, 500);
    for packet in [rc(op::SEND_ONLY), ud(op::SEND_ONLY, 0, PEER)] {
        rung.receive(&packet.payload(b"no frame"));
    }
    assert_eq!((rung.host.counter(Counter::RxWrongService), rung.host.recvs_done.len()), (2, 0));
    for qp_type in [QpType::Ud, QpType::Rc, QpType::Uc] {
        let mut other = Setup::new(qp_type).build();
        other.post_recv(1, 100);
        assert!(
            other.qp.handle_frame(&[1; 60], &mut other.host).is_err() && other.host.recvs_done.is_empty()
        );
    }
}
