use std::net::IpAddr;

use pumice_transport::wire::{Opcode, OpcodeInfo};
use serde_json::{Value, json};

use super::*;
use crate::capture::plan::sides::streams;

const SEND_ONLY: u8 = 0x04;
const ACK: u8 = 0x11;
const MS_NS: u64 = 1_000_000;
/// The syndrome of an ACK, and of an RNR NAK with timer code 12.
const ACKNOWLEDGED: u8 = 0x1f;
const NOT_READY: u8 = 0x2c;
/// The first PSN of the requester.
const FIRST: u32 = 100;

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn packet(opcode: u8, at_ms: u64, psn: u32) -> Sighting {
    let info: &'static OpcodeInfo = Opcode::from_byte(opcode).info().expect("an opcode");
    let (source, destination) = if info.is_request { (1, 2) } else { (2, 1) };
    Sighting {
        time_ns: at_ms * MS_NS,
        source: address(source),
        destination: address(destination),
        qpn: u32::from(destination),
        psn: FIRST + psn,
        info,
        payload_bytes: 8,
        memory: None,
        answer: None,
        is_damaged: false,
        is_lost: false,
        is_planned: false,
        is_outbound: None,
        datagram: None,
    }
}

/// A SEND of one packet.
fn send(at_ms: u64, psn: u32) -> Sighting {
    packet(SEND_ONLY, at_ms, psn)
}

/// The answer to the request with this PSN, after so many messages.
fn answer(at_ms: u64, psn: u32, syndrome: u8, messages: u32) -> Sighting {
    Sighting { answer: Some((syndrome, messages)), payload_bytes: 0, ..packet(ACK, at_ms, psn) }
}

/// What the network did, as lines of a report. Of each packet: where it was sent, and when it arrived, if it
/// did.
fn lines(packets: &[(Sighting, Option<u64>)], source: u8) -> Vec<Value> {
    let sent = packets.iter().map(|(one, _)| Sighting { is_outbound: Some(true), ..one.clone() }).collect();
    let arrived = packets.iter().filter_map(|(one, at_ms)| {
        let time_ns = (*at_ms)? * MS_NS;
        Some(Sighting { is_outbound: Some(false), time_ns, ..one.clone() })
    });
    let captures = [sent, arrived.collect()];
    let sides = Sides::of(&captures);
    let mut rules = Rules::default();
    streams(&sides, address(source)).iter().for_each(|stream| walk(&sides, stream, &mut rules));
    rules.lines("network", "a").iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn fields(line: &Value, names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| line[name].clone()).collect()
}

#[test]
fn a_request_without_a_receive_is_refused_again_as_often() {
    let packets = [
        (send(0, 0), Some(0)),
        (answer(0, 0, NOT_READY, 0), Some(0)),
        (send(1, 0), None),
        (send(2, 0), Some(2)),
        (answer(2, 0, NOT_READY, 0), Some(2)),
        (send(3, 0), Some(3)),
        (answer(3, 0, ACKNOWLEDGED, 1), Some(3)),
        (send(4, 1), Some(4)),
    ];
    let lines = lines(&packets, 1);
    let found: Vec<_> =
        lines.iter().map(|line| fields(line, &["message", "transmission", "answered"])).collect();
    let expected = [(1, json!("rnr")), (2, Value::Null), (3, json!("rnr"))];
    let expected = expected.map(|(transmission, answered)| vec![json!(0), json!(transmission), answered]);
    assert_eq!(found, expected);
    assert!(lines.iter().all(|line| line["lost"] == true), "the request does not leave: {lines:?}");
    assert_eq!(lines[0]["timer_code"], 12);
}

#[test]
fn what_came_late_is_late_again_unless_a_plan_made_it_so() {
    let mut packets =
        [(send(0, 0), Some(0)), (send(10, 1), Some(14)), (send(20, 2), Some(26)), (send(30, 3), Some(90))];
    packets[3].0.is_planned = true;
    let found = lines(&packets, 1);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        fields(&found[0], &["message", "delay_ns", "lost"]),
        [json!(2), json!(6 * MS_NS), Value::Null]
    );
}

#[test]
fn an_ack_that_did_not_arrive_is_lost_for_each_message_that_it_spoke_for() {
    let packets = [
        (send(0, 0), Some(0)),
        (answer(0, 0, ACKNOWLEDGED, 1), Some(0)),
        (send(1, 1), Some(1)),
        (send(1, 2), Some(1)),
        (answer(1, 2, ACKNOWLEDGED, 3), None),
        (send(2, 3), Some(2)),
        (answer(2, 3, ACKNOWLEDGED, 4), Some(2)),
        (send(3, 4), Some(3)),
        (answer(3, 4, ACKNOWLEDGED, 5), Some(9)),
    ];
    let found = lines(&packets, 2);
    let names = ["side", "opcode", "message", "packet", "lost", "delay_ns"];
    let line = |message: u32, lost: Value, delay_ns: Value| {
        vec![json!("responder"), json!("ack"), json!(message), json!(message), lost, delay_ns]
    };
    let expected = [
        line(1, json!(true), Value::Null),
        line(2, json!(true), Value::Null),
        line(4, Value::Null, json!(6 * MS_NS)),
    ];
    assert_eq!(found.iter().map(|line| fields(line, &names)).collect::<Vec<_>>(), expected);
}
