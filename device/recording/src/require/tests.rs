//! Tests of parsing, rejecting and judging requirements.

use super::*;
use crate::timeline::{Message, RequestEnd, TimelineProcess, TracedPacket, TracedQueuePair};

fn timeline() -> Timeline {
    let peer = "10.0.0.2".parse().expect("an address");
    let own = "10.0.0.1".parse().expect("an address");
    // RC_SEND_ONLY with a payload of 100 bytes.
    let packet = |number: u32, transmission| TracedPacket {
        at_ns: u64::from(number) * 1000,
        is_sent: true,
        is_lost: false,
        is_dropped: false,
        side: 0,
        opcode: 4,
        psn: number,
        length: 116,
        transmission,
        message: u64::from(number),
        other_qpn: 9,
        path: Some(0),
    };
    let message = |number: u64| Message {
        number,
        opcode: 2,
        bytes: 100,
        posted_ns: number * 1000,
        end: Some(RequestEnd { at_ns: number * 1000 + 5, status: 0, cq: 0, has_completion: true }),
        polled_ns: Some(number * 1000 + (number + 1) * 10),
        ..Message::default()
    };
    let qp = TracedQueuePair {
        packets: vec![packet(0, 1), packet(1, 1), packet(1, 2)],
        messages: (0..100).map(message).collect(),
        paths: vec![(own, peer)],
        peer: Some((peer, 9)),
        ..TracedQueuePair::default()
    };
    let mut process =
        TimelineProcess { queue_pairs: vec![qp], span_ns: (0, 1_000_000), ..Default::default() };
    process.header.device = "pumice0".to_owned();
    Timeline { processes: vec![process], ..Timeline::default() }
}

fn judged(text: &str) -> RequirementVerdict {
    Requirement::parse(text).unwrap_or_else(|error| panic!("{error}")).judge(&timeline(), 0)
}

#[test]
fn requirements_are_judged_by_the_table() {
    for (text, is_met, measured) in [
        ("rdma.bytes > 0", true, "200 B"),
        ("rdma.bytes >= 0.2KB", true, "200 B"),
        ("rdma.bytes > 1GB", false, "200 B"),
        ("rdma.received == 0", true, "0 B"),
        ("no retransmission", false, "1"),
        ("retransmissions<=1", true, "1"),
        ("no rnr", true, "0"),
        ("no failures", true, "0"),
        ("messages == 100", true, "100"),
        ("p50(send) < 501ns", true, "500 ns"),
        ("p99(send) < 1us", true, "990 ns"),
        ("p99.9(message) == 1us", true, "1 us"),
        ("max(send) < 1us", false, "1 us"),
        ("peer 10.0.0.2 used", true, "200 B"),
        ("peer 10.0.0.3 used", false, "0 B"),
        ("device pumice0 used", true, "200 B"),
        ("rdma.packets == 3 on pumice0", true, "3"),
        ("rdma.packets > 0 with 10.0.0.3", false, "0"),
        ("duration <= 1ms", true, "1 ms"),
    ] {
        let verdict = judged(text);
        assert_eq!((verdict.is_met, verdict.measured.as_str()), (is_met, measured), "{text}: {verdict:?}");
    }
    let none = judged("p99(read) < 1s");
    assert!(!none.is_met && none.sentence.contains("no read that completed"), "{none:?}");
    let tcp = Requirement::parse("rdma.bytes > 0").expect("one").judge(&Timeline::default(), 0);
    assert!(!tcp.is_met && tcp.sentence.contains("such as TCP"), "{tcp:?}");
}

#[test]
fn what_is_missing_proves_nothing() {
    let judged = |text: &str| Requirement::parse(text).expect("one").judge(&timeline(), 7);
    assert!(judged("rdma.bytes > 0").is_met);
    let verdict = judged("no rnr");
    assert!(!verdict.is_met && verdict.sentence.contains("7 records are missing"), "{verdict:?}");
}

#[test]
fn what_is_no_requirement_is_refused_with_the_nearest() {
    for (text, part) in [
        ("", "it is empty"),
        ("rdma.byts > 0", "did you mean rdma.bytes?"),
        ("no retransmision", "did you mean retransmission"),
        ("rdma.bytes > 1Gbit", "is no value of rdma.bytes: write bytes"),
        ("p99(send) < 50", "write a time"),
        ("p98(send) < 50us", "p98 is no statistic"),
        ("p99(sent) < 50us", "did you mean send?"),
        ("p99 < 50us", "p99 of what?"),
        ("rdma.bytes", "compares rdma.bytes with nothing"),
        ("rdma.bytes !> 1", "the comparison is none of"),
        ("peer ten used", "ten is no address"),
        ("peer 10.0.0.2", "peer 10.0.0.2 used"),
        ("no rnr please", "write it as \"no retransmission\""),
        ("rdma.bytes > -1", "is no value of rdma.bytes"),
    ] {
        let error = Requirement::parse(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn names_are_each_of_one_quantity() {
    let names: Vec<&str> = QUANTITIES
        .iter()
        .flat_map(|info| std::iter::once(info.name).chain(info.aliases.iter().copied()))
        .collect();
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), names.len(), "{names:?}");
}
