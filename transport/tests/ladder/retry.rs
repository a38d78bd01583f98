//! The transport timer, stale answers, lost answers.

use crate::prelude::*;

const TIMEOUT_14_NS: u64 = 4096 << 14;

fn psns(literals: &[Literal]) -> Vec<u32> {
    literals.iter().map(|literal| literal.psn).collect()
}

#[test]
fn statement_19_an_ack_beyond_a_pending_read_makes_it_ask_again() {
    let mut rung = Rung::rc();
    rung.post_read(1, 600);
    rung.post_send(2, 4);
    let sent = rung.requests();
    assert_eq!(psns(&sent), [SQ_PSN, SQ_PSN + 3]);
    rung.receive(&ack(SQ_PSN + 3, 2));
    assert_eq!(rung.host.take_sends(), [], "neither the READ nor what is behind it");
    assert_eq!(rung.requests(), sent);
    assert_eq!(rung.host.counter(Counter::RxImpliedNak), 1);
    // More of the same, until the expected response comes, is ignored.
    rung.receive(&ack(SQ_PSN + 3, 2));
    assert_eq!(rung.requests(), []);
    rung.receive_all(&[
        read_response(op::READ_FIRST, SQ_PSN, 1, &[1; 256]),
        read_response(op::READ_MIDDLE, SQ_PSN + 1, 1, &[2; 256]),
        read_response(op::READ_LAST, SQ_PSN + 2, 1, &[3; 88]),
        ack(SQ_PSN + 3, 2),
    ]);
    assert_eq!(rung.host.take_sends(), successes(&[1, 2]));
}

#[test]
fn statement_19_a_lost_middle_is_asked_for_from_the_gap_only() {
    let mut rung = Rung::rc();
    rung.post_read(1, 1000);
    assert_eq!(rung.requests(), [rc(op::READ_REQUEST).psn(SQ_PSN).reth(TARGET_BASE, RKEY, 1000).ack_req()]);
    rung.receive(&read_response(op::READ_FIRST, SQ_PSN, 1, &[1; 256]));
    rung.receive(&read_response(op::READ_MIDDLE, SQ_PSN + 2, 1, &[3; 256]));
    let again = rc(op::READ_REQUEST).psn(SQ_PSN + 1).reth(TARGET_BASE + 256, RKEY, 744).ack_req();
    assert_eq!(rung.requests(), [again]);
    rung.receive(&read_response(op::READ_LAST, SQ_PSN + 3, 1, &[4; 232]));
    assert_eq!(rung.requests(), [], "one gap, one request");
    rung.receive_all(&[
        read_response(op::READ_FIRST, SQ_PSN + 1, 1, &[2; 256]),
        read_response(op::READ_MIDDLE, SQ_PSN + 2, 1, &[3; 256]),
        read_response(op::READ_LAST, SQ_PSN + 3, 1, &[4; 232]),
    ]);
    assert_eq!(rung.host.take_sends(), successes(&[1]));
    let expected = [[1; 256], [2; 256], [3; 256], [4; 256]].concat();
    assert_eq!(rung.buffer()[..1000], expected[..1000]);
}

#[test]
fn answers_to_the_first_request_still_count_after_a_repeat() {
    // Packets 1 and 2 change places on the way: the READ is asked for again, and both cuts of it
    // are on the way to us.
    let mut rung = Rung::rc();
    rung.post_read(1, 1024);
    rung.requests();
    rung.receive_all(&[
        read_response(op::READ_FIRST, SQ_PSN, 1, &[1; 256]),
        read_response(op::READ_MIDDLE, SQ_PSN + 2, 1, &[3; 256]),
    ]);
    assert_eq!(rung.requests().len(), 1);
    rung.receive_all(&[
        read_response(op::READ_MIDDLE, SQ_PSN + 1, 1, &[2; 256]),
        read_response(op::READ_FIRST, SQ_PSN + 1, 1, &[2; 256]),
        read_response(op::READ_MIDDLE, SQ_PSN + 2, 1, &[3; 256]),
        read_response(op::READ_LAST, SQ_PSN + 3, 1, &[4; 256]),
    ]);
    assert_eq!(rung.host.take_sends(), successes(&[1]));
}

#[test]
fn an_ack_inside_the_running_read_is_ignored() {
    // A responder that answers a doubled SEND while it streams a READ acknowledges its newest PSN.
    let mut rung = Rung::rc();
    rung.post_send(1, 4);
    rung.post_read(2, 512);
    rung.requests();
    rung.receive(&ack(SQ_PSN + 2, 2));
    assert_eq!(rung.host.take_sends(), successes(&[1]));
    assert_eq!(rung.requests(), []);
    assert_eq!(rung.host.counter(Counter::RxImpliedNak), 0);
    assert_eq!(rung.host.counter(Counter::RxStaleResponse), 1);
    rung.receive(&read_response(op::READ_FIRST, SQ_PSN + 1, 2, &[1; 256]));
    rung.receive(&read_response(op::READ_LAST, SQ_PSN + 2, 2, &[1; 256]));
    assert_eq!(rung.host.take_sends(), successes(&[2]));
}

#[test]
fn statement_20_one_ack_completes_ten_sends_but_no_read_between_them() {
    let mut rung = Rung::rc();
    (0..10).for_each(|k| rung.post_send(k, 4));
    rung.requests();
    rung.receive(&ack(SQ_PSN + 9, 10));
    assert_eq!(rung.host.take_sends(), successes(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]));
    assert_eq!(rung.qp.deadline_ns(), None);

    let mut rung = Rung::rc();
    rung.post_send(0, 4);
    rung.post_read(1, 4);
    rung.post_send(2, 4);
    rung.requests();
    rung.receive(&ack(SQ_PSN + 2, 3));
    assert_eq!(rung.host.take_sends(), successes(&[0]));
}

#[test]
fn statement_21_old_and_early_acks_change_nothing() {
    let mut rung = Rung::rc();
    (0..3).for_each(|k| rung.post_send(k, 4));
    rung.receive(&ack(SQ_PSN, 1));
    rung.receive(&ack(SQ_PSN.wrapping_sub(1), 1));
    assert_eq!(rung.host.take_sends(), [], "nothing was sent yet");
    rung.requests();
    rung.receive(&ack(SQ_PSN + 1, 2));
    rung.host.take_sends();
    for psn in [SQ_PSN, SQ_PSN + 1, SQ_PSN - 1, SQ_PSN + 3, SQ_PSN + 4, SQ_PSN + (1 << 23)] {
        for syndrome in [ACK_SYNDROME, NAK_SEQUENCE, NAK_INVALID, NAK_ACCESS, NAK_OPERATION, 0x21] {
            rung.receive(&nak(syndrome, psn, 9));
            assert_eq!(rung.state(), QpState::Rts, "{syndrome:#x} at {psn:#x}");
        }
    }
    assert_eq!(rung.host.take_sends(), []);
    assert_eq!(rung.requests(), []);
    assert_eq!(rung.qp.in_flight(), 1);
    rung.receive(&ack(SQ_PSN + 2, 3));
    assert_eq!(rung.host.take_sends(), successes(&[2]));
}

#[test]
fn statement_24_retry_count_n_is_one_and_n_transmissions() {
    for retry_cnt in 0..=7 {
        let mut rung = Setup { retry_cnt, ..Setup::new(QpType::Rc) }.build();
        rung.post_send(1, 4);
        rung.post_send(2, 4);
        for transmission in 0..=retry_cnt {
            assert_eq!(psns(&rung.requests()), [SQ_PSN, SQ_PSN + 1], "transmission {transmission}");
            assert_eq!(rung.host.take_sends(), []);
            let waited_ns = rung.wait_for_deadline().expect("a timer runs");
            assert!((TIMEOUT_14_NS..=4 * TIMEOUT_14_NS).contains(&waited_ns), "{waited_ns} ns");
        }
        assert_eq!(rung.requests(), []);
        let expected = [(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr)];
        assert_eq!(rung.host.take_sends(), expected, "retry_cnt {retry_cnt}");
        assert_eq!(rung.state(), QpState::Err);
        assert_eq!(rung.qp.deadline_ns(), None);
    }
}

#[test]
fn adaptive_retransmission_doubles_its_waits_whatever_the_timeout_says() {
    let adaptive = AdaptiveTimeout { first_ns: 2_000_000, last_ns: 16_000_000 };
    for timeout in [1, 14, 31] {
        let setup = Setup { timeout, retry_cnt: 5, ..Setup::new(QpType::Rc) };
        let mut rung = Setup { adaptive_timeout: Some(adaptive), ..setup }.build();
        rung.post_send(1, 4);
        let mut waits = Vec::new();
        for _ in 0..6 {
            rung.requests();
            waits.push(rung.wait_for_deadline().expect("a timer runs") / 1_000_000);
        }
        assert_eq!(waits, [2, 4, 8, 16, 16, 16], "timeout {timeout}");
        assert_eq!(rung.host.take_sends(), [(1, WcStatus::RetryExcErr)]);
    }
    let mut rung = Setup { timeout: 0, adaptive_timeout: Some(adaptive), ..Setup::new(QpType::Rc) }.build();
    rung.post_send(1, 4);
    rung.requests();
    assert_eq!(rung.qp.deadline_ns(), None, "0 is for ever");
}

#[test]
fn a_peer_that_falls_silent_fails_the_request_within_the_time_of_the_timer_table() {
    for timeout in [1, 8, 14, 20] {
        for retry_cnt in [0, 1, 7] {
            let mut rung = Setup { timeout, retry_cnt, ..Setup::new(QpType::Rc) }.build();
            (0..20).for_each(|k| rung.post_send(k, 4));
            assert_eq!(rung.requests().len(), 20);
            // It has answered until here: five messages, and a NAK that makes everything go out again.
            rung.now_ns += 1000;
            rung.receive(&ack(SQ_PSN + 4, 5));
            rung.now_ns += 1000;
            if retry_cnt > 0 {
                rung.receive(&nak(NAK_SEQUENCE, SQ_PSN + 5, 5));
            }
            rung.host.take_sends();
            let silent_ns = rung.now_ns;
            let mut transmissions = 0;
            while rung.state() == QpState::Rts {
                transmissions += u32::from(!rung.requests().is_empty());
                rung.wait_for_deadline().expect("a timer runs");
                assert!(transmissions <= 100, "it goes on for ever");
            }
            let taken_ns = rung.now_ns - silent_ns;
            let most_ns = (1 + u64::from(retry_cnt)) * 4 * (4096u64 << timeout);
            assert!(taken_ns <= most_ns, "timeout {timeout}, retry_cnt {retry_cnt}: {taken_ns} ns");
            // The timer began with the last answer that was news, 1000 ns before.
            assert!(taken_ns + 1000 >= 4096u64 << timeout);
            let sends = rung.host.take_sends();
            assert_eq!((sends.len(), sends[0]), (15, (5, WcStatus::RetryExcErr)));
            assert!(sends[1..].iter().all(|(_, status)| *status == WcStatus::WrFlushErr));
        }
    }
}

#[test]
fn statement_24_progress_reloads_the_counter() {
    let mut rung = Setup { retry_cnt: 1, ..Setup::new(QpType::Rc) }.build();
    (0..4).for_each(|k| rung.post_send(k, 4));
    for k in 0..4 {
        rung.requests();
        rung.wait_for_deadline();
        rung.requests();
        rung.receive(&ack(SQ_PSN + k, k + 1));
        assert_eq!(rung.host.take_sends(), successes(&[k.into()]));
    }
}

#[test]
fn statement_24_timeout_zero_never_expires() {
    let mut rung = Setup { timeout: 0, ..Setup::new(QpType::Rc) }.build();
    rung.post_send(1, 4);
    rung.requests();
    assert_eq!(rung.qp.deadline_ns(), None);
    rung.wait(u64::MAX / 2);
    assert_eq!(rung.requests(), []);
    assert_eq!(rung.host.take_sends(), []);
}

#[test]
fn every_timer_code_expires_between_one_and_four_times_its_length() {
    for timeout in 1..32 {
        let mut rung = Setup { timeout, ..Setup::new(QpType::Rc) }.build();
        rung.post_send(1, 4);
        rung.requests();
        let length_ns = 4096u64 << timeout;
        let deadline_ns = rung.qp.deadline_ns().expect("a timer runs") - rung.now_ns;
        assert!((length_ns..=4 * length_ns).contains(&deadline_ns), "timeout {timeout}: {deadline_ns} ns");
    }
}

#[test]
fn every_response_that_makes_progress_restarts_the_timer() {
    let mut rung = Rung::rc();
    rung.post_read(1, 768);
    rung.requests();
    let start_ns = rung.now_ns;
    rung.now_ns += 1000;
    rung.receive(&read_response(op::READ_FIRST, SQ_PSN, 1, &[1; 256]));
    assert_eq!(rung.qp.deadline_ns(), Some(start_ns + 1000 + TIMEOUT_14_NS));
    rung.now_ns += 1000;
    rung.receive(&read_response(op::READ_MIDDLE, SQ_PSN + 1, 1, &[1; 256]));
    assert_eq!(rung.qp.deadline_ns(), Some(start_ns + 2000 + TIMEOUT_14_NS));
    rung.now_ns += 1000;
    rung.receive(&read_response(op::READ_MIDDLE, SQ_PSN + 1, 1, &[1; 256]));
    assert_eq!(rung.qp.deadline_ns(), Some(start_ns + 2000 + TIMEOUT_14_NS), "an old packet is no progress");
    rung.receive(&read_response(op::READ_LAST, SQ_PSN + 2, 1, &[1; 256]));
    assert_eq!(rung.qp.deadline_ns(), None);
}

#[test]
fn a_timeout_resumes_a_partly_answered_read() {
    let mut rung = Rung::rc();
    rung.post_read(1, 700);
    rung.requests();
    rung.receive(&read_response(op::READ_FIRST, SQ_PSN, 1, &[1; 256]));
    rung.wait_for_deadline();
    let rest = rc(op::READ_REQUEST).psn(SQ_PSN + 1).reth(TARGET_BASE + 256, RKEY, 444).ack_req();
    assert_eq!(rung.requests(), [rest]);
    rung.receive(&read_response(op::READ_FIRST, SQ_PSN + 1, 1, &[2; 256]));
    rung.receive(&read_response(op::READ_LAST, SQ_PSN + 2, 1, &[3; 188]));
    assert_eq!(rung.host.take_sends(), successes(&[1]));
}

#[test]
fn a_late_ack_spares_what_was_about_to_be_sent_again() {
    let mut rung = Rung::rc();
    (0..3).for_each(|k| rung.post_send(k, 4));
    let sent = rung.requests();
    rung.wait_for_deadline();
    rung.receive(&ack(SQ_PSN + 1, 2));
    assert_eq!(rung.host.take_sends(), successes(&[0, 1]));
    assert_eq!(rung.requests(), sent[2..]);
}

#[test]
fn a_local_failure_waits_for_what_is_before_it_even_if_that_is_lost() {
    let mut rung = Rung::rc();
    rung.post_send(1, 4);
    let sges = [Sge { address: BUFFER_BASE, length: 4, lkey: 99 }];
    rung.post(&request(2, SendOpcode::Send, &sges));
    rung.post_send(3, 4);
    assert_eq!(psns(&rung.requests()), [SQ_PSN]);
    assert_eq!(rung.host.take_sends(), []);
    rung.wait_for_deadline();
    assert_eq!(psns(&rung.requests()), [SQ_PSN], "the lost packet is sent again");
    rung.receive(&ack(SQ_PSN, 1));
    let expected = [(1, WcStatus::Success), (2, WcStatus::LocProtErr), (3, WcStatus::WrFlushErr)];
    assert_eq!(rung.host.take_sends(), expected);
    assert_eq!(rung.state(), QpState::Err);
}

#[test]
fn unasked_and_reserved_answers_are_ignored() {
    let mut rung = Rung::rc();
    rung.post_send(1, 4);
    rung.requests();
    for syndrome in [0x40, 0x5f, 0x65, 0x7f, 0x80, 0xff] {
        rung.receive(&nak(syndrome, SQ_PSN, 0));
    }
    assert_eq!(rung.host.counter(Counter::RxReservedSyndrome), 6);
    rung.receive(&read_response(op::READ_ONLY, SQ_PSN, 1, &[]));
    rung.receive(&atomic_ack(SQ_PSN, 1, 0));
    assert_eq!(rung.host.counter(Counter::RxUnexpectedResponse), 2);
    assert_eq!(rung.host.take_sends(), []);
    // Any credit count acknowledges.
    rung.receive(&rc(op::ACK).psn(SQ_PSN).aeth(0, 1));
    assert_eq!(rung.host.take_sends(), successes(&[1]));
}

#[test]
fn the_last_retry_is_not_spent_on_a_peer_without_a_processor() {
    for retry_cnt in 0..=7 {
        let mut rung = Setup { retry_cnt, ..Setup::new(QpType::Rc) }.build();
        rung.peer_progress = PeerProgress::Starved;
        rung.post_send(1, 4);
        let mut transmissions = 0;
        while rung.asked_about_peer.is_empty() {
            transmissions += rung.requests().len();
            rung.wait_for_deadline().expect("a timer runs");
        }
        assert_eq!(transmissions, usize::from(retry_cnt.max(1)), "the peer is looked at once, at the end");
        for _ in 0..20 {
            assert_eq!(
                (rung.requests(), rung.host.take_sends(), rung.state()),
                (vec![], vec![], QpState::Rts)
            );
            assert!(rung.wait_for_deadline().expect("a timer runs") >= TIMEOUT_14_NS);
        }
        assert_eq!(rung.host.counter(Counter::StarvedPeer), 21);
        assert_eq!(rung.host.counter(Counter::Timeout), u64::from(retry_cnt.saturating_sub(1)));
        // It ran again, and is silent all the same.
        rung.peer_progress = PeerProgress::Unknown;
        while rung.state() == QpState::Rts {
            rung.wait_for_deadline().expect("a timer runs");
            transmissions += rung.requests().len();
        }
        assert_eq!(transmissions, 1 + usize::from(retry_cnt), "not one more than to a dead peer");
        assert_eq!(rung.host.take_sends(), [(1, WcStatus::RetryExcErr)]);
    }
}

#[test]
fn a_peer_that_runs_again_answers_what_was_sent_before() {
    let mut rung = Setup { retry_cnt: 1, ..Setup::new(QpType::Rc) }.build();
    rung.peer_progress = PeerProgress::Starved;
    for wr_id in 1..=3 {
        rung.post_send(wr_id, 4);
        assert_eq!(rung.requests().len(), 1);
        (0..50).for_each(|_| assert!(rung.wait_for_deadline().is_some()));
        assert_eq!(rung.requests(), []);
        rung.receive(&ack(SQ_PSN + wr_id as u32 - 1, wr_id as u32));
        assert_eq!(rung.host.take_sends(), successes(&[wr_id]));
        assert_eq!(rung.qp.deadline_ns(), None);
    }
    assert_eq!(rung.host.counter(Counter::Timeout), 0);
}

#[test]
fn the_last_retry_is_not_spent_before_this_side_has_taken_what_came() {
    let mut rung = Setup { retry_cnt: 2, ..Setup::new(QpType::Rc) }.build();
    rung.peer_progress = PeerProgress::Unread;
    rung.post_send(1, 4);
    let mut transmissions = 0;
    for _ in 0..20 {
        transmissions += rung.requests().len();
        rung.wait_for_deadline().expect("a timer runs");
    }
    assert_eq!((transmissions, rung.state()), (2, QpState::Rts));
    assert_eq!(rung.host.counter(Counter::StarvedPeer), 0, "the peer is not to blame");
    rung.peer_progress = PeerProgress::Unknown;
    while rung.state() == QpState::Rts {
        rung.wait_for_deadline().expect("a timer runs");
        transmissions += rung.requests().len();
    }
    assert_eq!(transmissions, 3);
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::RetryExcErr)]);
}

#[test]
fn a_wrong_claim_that_the_peer_is_starved_costs_a_limited_time() {
    // Timers of 8 µs, 67 ms, and 17 s.
    for timeout in [1, 14, 22] {
        let mut rung = Setup { timeout, retry_cnt: 7, ..Setup::new(QpType::Rc) }.build();
        rung.peer_progress = PeerProgress::Starved;
        rung.post_send(1, 4);
        let (begun_ns, mut transmissions, mut looks) = (rung.now_ns, 0, 0);
        while rung.state() == QpState::Rts {
            transmissions += rung.requests().len();
            rung.wait_for_deadline().expect("a timer runs");
            looks += 1;
        }
        assert_eq!(transmissions, 8);
        assert!(looks < 2100, "{looks} looks");
        let limit_ns = 20_000_000_000 + 11 * (4096 << timeout) + 10_000_000;
        assert!(rung.now_ns - begun_ns <= limit_ns, "{} ns", rung.now_ns - begun_ns);
    }
}
