//! Events of packets that are sent: which packet of which message it is, and which transmission of it.

use crate::prelude::*;

fn listening() -> Rung {
    let mut rung = Rung::rc();
    rung.host.listens_to_packets = true;
    rung
}

fn request_identity(message: u64, relative_psn: u32, transmission: u32) -> PacketIdentity {
    PacketIdentity { side: PacketSide::Requester, message, relative_psn, transmission }
}

fn answer_identity(message: u64, relative_psn: u32, transmission: u32) -> PacketIdentity {
    PacketIdentity { side: PacketSide::Responder, message, relative_psn, transmission }
}

/// Takes the events since the last call, of which each must describe one of these packets.
#[track_caller]
fn take_identities(rung: &mut Rung, packets: &[Literal]) -> Vec<PacketIdentity> {
    let events = std::mem::take(&mut rung.host.packets_sent);
    let seen: Vec<_> = events.iter().map(|event| (event.opcode, event.psn, event.length_bytes)).collect();
    let sent = packets.iter().map(|literal| (literal.opcode, literal.psn, literal.bytes(PEER).len() as u32));
    assert_eq!(seen, sent.collect::<Vec<_>>(), "one event for each packet");
    events.iter().map(|event| event.identity).collect()
}

#[test]
fn requests_count_their_transmissions() {
    let mut rung = listening();
    rung.post_op(1, SendOpcode::RdmaWrite, 500);
    rung.post_send(2, 5);
    let packets = rung.requests();
    let first = [request_identity(0, 0, 1), request_identity(0, 1, 1), request_identity(1, 2, 1)];
    assert_eq!(take_identities(&mut rung, &packets), first);

    rung.receive(&nak(NAK_SEQUENCE, SQ_PSN + 1, 0));
    let packets = rung.requests();
    let second = [request_identity(0, 1, 2), request_identity(1, 2, 2)];
    assert_eq!(take_identities(&mut rung, &packets), second, "after a NAK");

    rung.wait_for_deadline().expect("a timer runs");
    rung.post_send(3, 4);
    let packets = rung.requests();
    let third = [request_identity(0, 1, 3), request_identity(1, 2, 3), request_identity(2, 3, 1)];
    assert_eq!(take_identities(&mut rung, &packets), third, "after a timeout");
}

#[test]
fn a_read_takes_the_psns_of_its_answers() {
    let mut rung = listening();
    rung.post_read(1, 600);
    rung.post_send(2, 4);
    let packets = rung.requests();
    let first = [request_identity(0, 0, 1), request_identity(1, 3, 1)];
    assert_eq!(take_identities(&mut rung, &packets), first);
    // The first of three answers came, the others did not.
    rung.receive(&read_response(op::READ_FIRST, SQ_PSN, 1, &[1; 256]));
    rung.receive(&ack(SQ_PSN + 3, 2));
    let packets = rung.requests();
    let second = [request_identity(0, 1, 2), request_identity(1, 3, 2)];
    assert_eq!(take_identities(&mut rung, &packets), second);
}

#[test]
fn answers_count_their_transmissions() {
    let mut rung = listening();
    rung.post_recv(1, 64);
    let read = rc(op::READ_REQUEST).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 300).ack_req();
    let packets = rung.answers(&read);
    let first = [answer_identity(0, 0, 1), answer_identity(0, 1, 1)];
    assert_eq!(take_identities(&mut rung, &packets), first);
    let packets = rung.answers(&rc(op::SEND_ONLY).psn(RQ_PSN + 2).ack_req());
    assert_eq!(packets, [ack(RQ_PSN + 2, 2)]);
    assert_eq!(take_identities(&mut rung, &packets), [answer_identity(1, 2, 1)]);

    let packets = rung.answers(&read);
    let second = [answer_identity(0, 0, 2), answer_identity(0, 1, 2)];
    assert_eq!(take_identities(&mut rung, &packets), second, "the READ came again");
    let packets = rung.answers(&rc(op::SEND_ONLY).psn(RQ_PSN + 2).ack_req());
    assert_eq!(take_identities(&mut rung, &packets), [answer_identity(1, 2, 2)], "the SEND came again");
}

#[test]
fn a_congestion_notification_takes_no_psn() {
    let mut rung = listening();
    rung.post_recv(1, 64);
    rung.receive_marked(&rc(op::SEND_ONLY).psn(RQ_PSN), 0b11);
    let packets = rung.responses();
    assert_eq!(packets, [cnp()]);
    let notification =
        PacketIdentity { side: PacketSide::Notification, message: 0, relative_psn: 0, transmission: 1 };
    assert_eq!(take_identities(&mut rung, &packets), [notification]);
}

#[test]
fn a_packet_without_room_is_not_sent_and_a_new_connection_counts_anew() {
    let mut rung = listening();
    rung.post_send(1, 4);
    rung.sink.room = Some(0);
    assert_eq!(rung.requests(), []);
    assert_eq!(take_identities(&mut rung, &[]), []);
    rung.sink.room = None;
    for connection in 0..2 {
        let packets = rung.requests();
        assert_eq!(
            take_identities(&mut rung, &packets),
            [request_identity(0, 0, 1)],
            "connection {connection}"
        );
        rung.enter(QpState::Reset).expect("a legal step");
        rung.climb();
        rung.post_send(2, 4);
    }
}

#[test]
fn a_host_that_does_not_listen_hears_of_no_packet() {
    let mut rung = Rung::rc();
    rung.post_recv(1, 64);
    rung.post_send(1, 4);
    assert_eq!(rung.requests().len(), 1);
    rung.receive(&nak(NAK_SEQUENCE, SQ_PSN, 0));
    assert_eq!(rung.requests().len(), 1);
    rung.receive_marked(&rc(op::SEND_ONLY).psn(RQ_PSN).ack_req(), 0b11);
    assert_eq!(rung.responses(), [cnp(), ack(RQ_PSN, 1)]);
    assert_eq!(rung.host.packets_sent, []);
}
