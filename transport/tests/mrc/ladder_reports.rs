//! What a queue pair reports, and how long its requester waits for a peer that is slow.

use pumice_transport::host::PeerProgress;
use pumice_transport::mrc::wire::NackReason;
use pumice_transport::types::{QpState, SendOpcode, WcStatus};

use crate::kit::End;
use crate::packets::{MTU, ack, nack, sack};

/// Timeout of 1.05 ms, and no retries.
const TIMEOUT_NS: u64 = 1 << 20;

fn impatient() -> End {
    End::with(|_, _, requester| (requester.timeout, requester.linear_cnt, requester.exp_cnt) = (10, 0, 0))
}

#[test]
fn what_is_posted_lost_acknowledged_and_refused_is_reported() {
    let mut end = End::with(|_, _, requester| requester.has_trimming = true);
    end.device.listens = true;
    end.post(1, SendOpcode::RdmaWrite, 3 * MTU);
    end.post(2, SendOpcode::RdmaWriteWithImm, 8);
    let sent = end.sent();
    end.now_ns += 5_000;
    end.take(&nack(1, NackReason::Trimmed, sent[1].0.entropy), &[]);
    assert_eq!(end.sent().len(), 1);
    end.take(&ack(2, 0x1f, 1), &[]);
    end.take(&ack(3, 0x61, 1), &[]);
    assert_eq!(end.statuses(), [(1, WcStatus::Success), (2, WcStatus::RemInvReqErr)]);
    let port = sent[1].0.entropy.source_port();
    let expected = [
        "post RDMA_WRITE  wr_id 0x1  psn 16777200  3 packets  768 B".to_owned(),
        "post RDMA_WRITE_WITH_IMM  wr_id 0x2  psn 16777203  1 packets  8 B".to_owned(),
        format!("lost  psn 16777201  path {port}  Trimmed"),
        "acknowledged before psn 16777203".to_owned(),
        "receive Nak(InvalidRequest)  psn 16777203".to_owned(),
        "state RTS to ERR".to_owned(),
    ];
    let (last, first) = end.device.said.split_last().expect("it says something");
    assert_eq!(first, expected);
    assert!(last.starts_with("send request 0x2 (RDMA_WRITE_WITH_IMM, 8 bytes) failed with REM_INV_REQ_ERR"));
}

#[test]
fn the_timer_begins_again_when_the_peer_tells_of_arrivals() {
    let mut end = impatient();
    end.post(1, SendOpcode::RdmaWrite, 64 * MTU);
    let sent = end.sent();
    assert_eq!(sent.len(), 64);
    // The last of these arrives after 25 times the timeout.
    for number in 0..50_u32 {
        end.now_ns += TIMEOUT_NS / 2;
        // The packet that the SACK answers has been told of before, so there is no longer round trip.
        let answered = number.wrapping_sub(1);
        end.take(&sack(number, answered, 0, sent[number as usize].0.entropy), &[]);
        end.qp.handle_timeout(end.now_ns, PeerProgress::Unknown, &mut end.device);
        let _ = end.sent();
    }
    let seen = end.qp.statistics();
    assert_eq!((seen.timeouts, seen.retransmitted, end.qp.state()), (0, 0, QpState::Rts));
    end.now_ns += TIMEOUT_NS - 1;
    end.qp.handle_timeout(end.now_ns, PeerProgress::Unknown, &mut end.device);
    assert_eq!(end.qp.state(), QpState::Rts);
    end.now_ns += 1;
    end.qp.handle_timeout(end.now_ns, PeerProgress::Unknown, &mut end.device);
    assert_eq!(end.statuses(), [(1, WcStatus::RetryExcErr)]);
}

#[test]
fn a_peer_without_a_processor_costs_no_retry() {
    let mut end = impatient();
    end.device.listens = true;
    end.post(1, SendOpcode::RdmaWrite, 8);
    assert_eq!(end.sent().len(), 1);
    let sent_ns = end.now_ns;
    for _ in 0..3 {
        assert_eq!(end.qp.peer_silent_since_ns(end.now_ns), None);
        while end.qp.peer_silent_since_ns(end.now_ns).is_none() {
            end.now_ns = end.qp.deadline_ns().expect("a timer runs").max(end.now_ns + 1);
            if end.qp.peer_silent_since_ns(end.now_ns).is_none() {
                end.qp.handle_timeout(end.now_ns, PeerProgress::Unknown, &mut end.device);
                let _ = end.sent();
            }
        }
        end.qp.handle_timeout(end.now_ns, PeerProgress::Starved, &mut end.device);
        assert_eq!(end.qp.state(), QpState::Rts);
    }
    assert!(end.now_ns - sent_ns > 20_000_000, "it looks again after 10 ms");
    assert!(end.device.said.iter().filter(|said| said.starts_with("peer without a processor")).count() == 3);
    while end.qp.state() == QpState::Rts {
        end.wait();
        let _ = end.sent();
    }
    assert_eq!(end.statuses(), [(1, WcStatus::RetryExcErr)]);
}
