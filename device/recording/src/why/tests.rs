//! Tests of the stories of messages whose events are given.

use super::times::parts;
use super::*;
use crate::timeline::{
    Message, RequestEnd, Setback, SetbackKind, TimelineProcess, TracedPacket, TracedQueuePair,
};

const MS: u64 = 1_000_000;

fn part(kind: PartKind, ms: u64) -> TimePart {
    TimePart { kind, ns: ms * MS }
}

fn end(at_ms: u64, status: u8) -> Option<RequestEnd> {
    Some(RequestEnd { at_ns: at_ms * MS, status, cq: 0, has_completion: true })
}

fn slow() -> Message {
    let kind = SetbackKind::TimedOut { timeout: 14, retries_left: 7 };
    let waits = SetbackKind::ReceiverNotReady { wait_ns: 5 * MS, retries_left: 7 };
    let setback = |at_ms: u64, since_ms: u64, kind| Setback {
        at_ns: at_ms * MS,
        kind,
        is_own: true,
        silent_since_ns: since_ms * MS,
    };
    Message {
        number: 17,
        packets: 1,
        psn: 5,
        posted_ns: 10 * MS,
        first_packet_ns: Some(12 * MS),
        last_packet_ns: Some(90 * MS),
        transmissions: 3,
        acknowledged_ns: Some(91 * MS),
        end: end(91, 0),
        polled_ns: Some(111 * MS),
        setbacks: vec![setback(80, 12, kind), setback(82, 80, waits)],
        ..Message::default()
    }
}

#[test]
fn the_parts_of_the_time_add_up() {
    let message = slow();
    let parts = parts(&message, 111 * MS);
    let wanted = [
        part(PartKind::Timeout, 68),
        part(PartKind::Poll, 20),
        part(PartKind::Network, 6),
        part(PartKind::ReceiverNotReady, 5),
        part(PartKind::SendQueue, 2),
    ];
    assert_eq!(parts, wanted);
    assert_eq!(parts.iter().map(|part| part.ns).sum::<u64>(), 101 * MS);
}

fn timeline(message: Message, packet_is_lost: bool) -> Timeline {
    let packet = TracedPacket {
        at_ns: 12 * MS,
        is_sent: true,
        is_lost: packet_is_lost,
        is_dropped: false,
        side: 0,
        opcode: 4,
        psn: 5,
        length: 100,
        transmission: 1,
        message: message.number,
        other_qpn: 9,
        path: None,
    };
    let fast = Message { posted_ns: 1, end: end(1, 0), ..Message::default() };
    let qp = TracedQueuePair {
        qpn: 0x11,
        messages: vec![fast, message],
        packets: vec![packet],
        ..TracedQueuePair::default()
    };
    let process =
        TimelineProcess { queue_pairs: vec![qp], span_ns: (0, 200 * MS), ..TimelineProcess::default() };
    Timeline { processes: vec![process], ..Timeline::default() }
}

#[test]
fn the_slowest_comes_first_and_its_story_names_what_was_lost() {
    let reasons = MessageStories::of(&timeline(slow(), true), 10);
    assert_eq!((reasons.slowest.len(), reasons.failed.len(), reasons.messages), (2, 0, 2));
    let text = reasons.slowest[0].to_string();
    for part in [
        "Request 17 of QP 0x11",
        "took 101.0 ms and ended with SUCCESS",
        "68.0 ms until the acknowledgement timer expired; 20.0 ms completed, until the program polled",
        "(timeout 14) expired 68.0 ms after the last packet was sent: ",
        "the fault plan had lost its packet with PSN 5",
        "asked for 5.0 ms of patience",
        "A packet of it was sent 3 times",
        "a smaller `timeout` (now 14: 67.1 ms at least)",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // A fifth of the time is too little for a remedy.
    assert!(!text.contains("poll more often"), "{text}");
    // The story claims nothing that the traces do not show.
    let text = MessageStories::of(&timeline(slow(), false), 1).slowest[0].to_string();
    assert!(text.contains("the peer's trace would tell which"), "{text}");
}

#[test]
fn failed_and_unfinished_messages_are_told() {
    let failed = Message { end: end(91, 12), polled_ns: None, ..slow() };
    let reasons = MessageStories::of(&timeline(failed, true), 1);
    assert_eq!((reasons.failed.len(), reasons.slowest.len()), (1, 1));
    let text = reasons.failed[0].to_string();
    assert!(text.contains("RETRY_EXC_ERR") && text.contains("raise retry_cnt"), "{text}");
    let open = Message { end: None, acknowledged_ns: None, polled_ns: None, ..slow() };
    let reasons = MessageStories::of(&timeline(open, true), 1);
    assert_eq!(reasons.unfinished, 1);
    let text = reasons.slowest[0].to_string();
    assert!(text.contains("has not ended: the trace ends 190.0 ms after it was posted"), "{text}");
}
