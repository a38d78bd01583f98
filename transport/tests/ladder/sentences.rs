//! What the operator is told: each sentence names the cause and its numbers, and is true.

use crate::prelude::*;
use pumice_transport::wire::Qpn;

/// All sentences so far.
fn said(rung: &Rung) -> Vec<String> {
    rung.host.causes.iter().map(ToString::to_string).collect()
}

/// The only sentence so far.
fn only(rung: &Rung) -> String {
    let mut said = said(rung);
    assert_eq!(said.len(), 1, "{said:?}");
    said.remove(0)
}

/// Sends a request and lets `answer` come after each transmission until all retries are used up.
fn exhausted(answer: Option<&Literal>) -> String {
    let mut rung = Rung::rc();
    rung.post_send(7, 4);
    while rung.state() == QpState::Rts {
        rung.requests();
        if let Some(answer) = answer {
            rung.receive(answer);
        }
        rung.wait_for_deadline();
    }
    only(&rung)
}

#[test]
fn a_peer_that_has_gone_is_told_from_one_that_never_was() {
    let ends = |acknowledged: bool, progress| {
        let mut rung = Setup { retry_cnt: 1, ..Setup::new(QpType::Rc) }.build();
        rung.peer_progress = progress;
        if acknowledged {
            rung.post_send(1, 4);
            rung.requests();
            rung.receive(&ack(SQ_PSN, 1));
        }
        rung.post_send(2, 4);
        while rung.state() == QpState::Rts {
            rung.requests();
            rung.wait_for_deadline();
        }
        only(&rung)
    };
    use PeerProgress::{Absent, Unknown};
    for (acknowledged, progress, end) in [
        (true, Absent, "; it had acknowledged messages before, and its process has ended"),
        (true, Unknown, "was it destroyed, has its process ended, or is the way to it cut?"),
        (false, Absent, "such a number: its process has ended, or the dest_qp_num is wrong"),
        (false, Unknown, "is the queue pair there, in RTR, and are its number and address right?"),
    ] {
        let said = ends(acknowledged, progress);
        assert!(said.ends_with(end), "{said}");
    }
}

#[test]
fn silence_wrong_psns_and_loss_are_told_apart_by_the_requester() {
    let begin = "send request 0x7 (SEND, 4 bytes) failed with RETRY_EXC_ERR at PSN 0x000500: ";
    let times = "4 transmissions (retry_cnt 3, timeout 14: 68 ms each)";
    assert_eq!(
        exhausted(None),
        format!(
            "{begin}nothing came from QP 0x000022 at 10.0.0.2 after {times}; is the queue pair there, in \
            RTR, and are \
             its number and address right?"
        )
    );
    // rq_psn of the peer is 5 more: it takes our requests for old ones.
    assert_eq!(
        exhausted(Some(&ack(SQ_PSN + 4, 0))),
        format!(
            "{begin}after {times} the peer's 4 answers acknowledged nothing; the last one is for PSN \
            0x000504, which this \
             side has never sent: sq_psn here is not rq_psn of the peer"
        )
    );
    // rq_psn of the peer is 5 less: it misses what was never sent.
    let missing = exhausted(Some(&nak(NAK_SEQUENCE, SQ_PSN - 5, 0)));
    assert!(
        missing.ends_with(
            "for PSN 0x0004fb, which this side has never sent: sq_psn here is not rq_psn of the peer"
        ),
        "{missing}"
    );
}

#[test]
fn answers_that_ask_for_a_repetition_say_that_packets_are_lost() {
    let mut rung = Rung::rc();
    rung.post_send(1, 4);
    rung.requests();
    rung.receive(&ack(SQ_PSN, 1));
    rung.post_send(7, 512);
    while rung.state() == QpState::Rts {
        rung.requests();
        rung.receive(&nak(NAK_SEQUENCE, SQ_PSN + 1, 1));
    }
    let sentence = only(&rung);
    assert!(
        sentence.contains("the peer's 4 answers acknowledged nothing")
            && sentence.contains("asks for PSN 0x000501 again: packets from here to the peer are lost"),
        "{sentence}"
    );
}

#[test]
fn progress_forgets_what_was_heard_before() {
    let mut rung = Rung::rc();
    rung.post_send(1, 4);
    rung.requests();
    rung.receive(&ack(SQ_PSN + 9, 0));
    rung.receive(&ack(SQ_PSN, 1));
    rung.post_send(2, 4);
    while rung.state() == QpState::Rts {
        rung.requests();
        rung.wait_for_deadline();
    }
    assert!(only(&rung).contains("nothing came from QP"), "{}", only(&rung));
}

#[test]
fn a_first_packet_that_finds_no_receive_has_come() {
    let mut rung = Rung::rc();
    for _ in 0..4 {
        rung.receive(&rc(op::SEND_ONLY).psn(RQ_PSN).ack_req().payload(b"first"));
        rung.receive(&rc(op::SEND_ONLY).psn(RQ_PSN + 1).ack_req().payload(b"second"));
    }
    assert_eq!(said(&rung), [""; 0], "the PSNs agree: the sender is told by RNR NAKs what is missing");
}

#[test]
fn a_responder_says_once_that_the_peer_counts_from_another_psn() {
    let mut rung = Rung::rc();
    rung.post_recv(1, 64);
    for _ in 0..4 {
        rung.receive(&rc(op::SEND_ONLY).psn(RQ_PSN - 5).ack_req().payload(b"past"));
    }
    assert_eq!(
        only(&rung),
        "dropped RC_SEND_ONLY from 10.0.0.2 at PSN 0x0000fb: nothing has arrived before, and the first PSN \
        is to be \
         0x000100: rq_psn here is not sq_psn of the peer"
    );
    let mut rung = Rung::rc();
    rung.post_recv(1, 64);
    let beyond = rc(op::SEND_ONLY).psn(RQ_PSN + 5).ack_req().payload(b"next");
    rung.receive(&beyond);
    assert_eq!(said(&rung), [""; 0], "the packets before may have been lost");
    for _ in 0..3 {
        rung.receive(&beyond);
    }
    assert!(only(&rung).contains("or all packets before this one were lost"), "{}", only(&rung));
}

#[test]
fn loss_and_duplicates_of_a_running_connection_are_not_mistaken_for_wrong_psns() {
    let mut rung = Rung::rc();
    rung.post_recv(1, 64);
    rung.post_recv(2, 64);
    let first = rc(op::SEND_ONLY).psn(RQ_PSN).ack_req().payload(b"one");
    rung.receive(&first);
    rung.receive(&first);
    let late = rc(op::SEND_ONLY).psn(RQ_PSN + 3).ack_req().payload(b"two");
    rung.receive(&late);
    rung.receive(&late);
    assert_eq!(said(&rung), [""; 0]);
    // Nor is a lost first packet that comes after all.
    let mut rung = Rung::rc();
    rung.post_recv(1, 64);
    rung.receive(&rc(op::SEND_ONLY).psn(RQ_PSN + 1).ack_req().payload(b"two"));
    rung.receive(&first);
    assert_eq!(said(&rung), [""; 0]);
}

#[test]
fn lengths_come_with_their_numbers() {
    let mut rung = Rung::rc();
    rung.post_recv(9, 100);
    rung.receive(&rc(op::SEND_FIRST).psn(RQ_PSN).payload(&[1; 256]));
    assert_eq!(
        only(&rung),
        "refused the peer's request at PSN 0x000100 with NAK 0x61: the message is longer than its receive \
        request; \
         receive request 0x9 has room for 100 bytes, the message has at least 256"
    );
    let mut rung = Rung::rc();
    rung.post_recv(9, 1000);
    rung.receive(&rc(op::SEND_FIRST).psn(RQ_PSN).payload(&[1; 512]));
    assert!(
        only(&rung).ends_with("its 512 bytes show the sender's path_mtu, and this queue pair's is 256"),
        "{}",
        only(&rung)
    );
}

#[test]
fn a_datagram_without_room_for_its_grh_says_so() {
    let mut rung = Setup { mtu: Mtu::Mtu1024, ..Setup::new(QpType::Ud) }.build();
    rung.post_recv(5, 64);
    rung.receive(&ud(op::SEND_ONLY, QKEY, Qpn::new(0x99)).psn(3).payload(&[1; 64]));
    assert_eq!(
        only(&rung),
        "dropped the message at PSN 0x000003: the message is longer than its receive request; \
        receive request \
         0x5 has room for 64 bytes, a datagram of 64 needs 104: 40 for the GRH come in front"
    );
    assert!(!rung.host.causes[0].is_fatal());
}

#[test]
fn what_is_dropped_because_of_a_mistake_is_named() {
    let mut rung = Rung::rc();
    let mut flow = flow_from_peer();
    flow.source = "10.0.0.77".parse().unwrap();
    let request = rc(op::SEND_ONLY).psn(RQ_PSN).payload(b"who");
    rung.receive_bytes(&request.bytes(LOCAL), &flow, 0);
    assert_eq!(
        only(&rung),
        "dropped RC_SEND_ONLY from 10.0.0.77 at PSN 0x000100: it is connected to 10.0.0.2; does the sender \
        use the \
         address whose GID was exchanged?"
    );
    let mut rung = Setup { state: QpState::Init, ..Setup::new(QpType::Rc) }.build();
    rung.receive(&request);
    assert!(only(&rung).contains("in state INIT it receives nothing"), "{}", only(&rung));
    // After a failure late packets are no news.
    let mut rung = Rung::rc();
    rung.enter(QpState::Err).unwrap();
    rung.host.causes.clear();
    rung.receive(&request);
    assert_eq!(said(&rung), [""; 0]);
}

#[test]
fn an_operation_that_the_queue_pair_does_not_allow_names_the_flag() {
    let mut rung = Setup { access: Access::empty(), ..Setup::new(QpType::Rc) }.build();
    rung.receive(&rc(op::READ_REQUEST).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 4));
    assert!(only(&rung).ends_with("; its qp_access_flags lack IBV_ACCESS_REMOTE_READ"), "{}", only(&rung));
}
