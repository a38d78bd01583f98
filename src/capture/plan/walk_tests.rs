use std::net::IpAddr;

use pumice_transport::wire::{Opcode, OpcodeInfo};
use serde_json::{Value, json};

use super::*;
use crate::capture::plan::sides::streams;

const SEND_ONLY: u8 = 0x04;
const ACK: u8 = 0x11;
const MS_NS: u64 = 1_000_000;
/// Syndrome of an ACK.
const ACKNOWLEDGED: u8 = 0x1f;
const NOT_READY: u8 = 0x2c;
/// First PSN of the requester.
const FIRST: u32 = 100;

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn packet(opcode: u8, at_ms: u64, psn: u32) -> Sighting {
    let info: &'static OpcodeInfo = Opcode::from_byte(opcode).info().expect("an opcode");
    let (source, destination) = if info.is_request { (1, 2) } else { (2, 1) };
    Sighting {
        capture: 0,
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

/// Returns a SEND of one packet.
fn send(at_ms: u64, psn: u32) -> Sighting {
    packet(SEND_ONLY, at_ms, psn)
}

/// Returns the answer to the request with this PSN, after this many messages.
fn answer(at_ms: u64, psn: u32, syndrome: u8, messages: u32) -> Sighting {
    Sighting { answer: Some((syndrome, messages)), payload_bytes: 0, ..packet(ACK, at_ms, psn) }
}

/// Returns what the network did, as lines of a report. Each packet has the time at which it arrived, if it
/// did.
fn lines(packets: &[(Sighting, Option<u64>)], source: u8) -> Vec<Value> {
    let sent = packets.iter().map(|(one, _)| Sighting { is_outbound: Some(true), ..one.clone() }).collect();
    let arrived = packets.iter().filter_map(|(one, at_ms)| {
        let time_ns = (*at_ms)? * MS_NS;
        Some(Sighting { is_outbound: Some(false), time_ns, ..one.clone() })
    });
    let captures = [sent, arrived.collect()];
    report_of(&captures, source, |_| None)
}

/// Returns what the network did to the packets of an address. `own_qpn` gives the noted sender for each
/// destination queue pair.
fn report_of(captures: &[Vec<Sighting>], source: u8, own_qpn: impl Fn(u32) -> Option<u32>) -> Vec<Value> {
    let sides = CaptureSides::of(captures);
    let mut rules = FaultRules::default();
    for mut stream in streams(&sides, address(source)) {
        stream.own_qpn = own_qpn(stream.qpn);
        walk(&sides, &stream, &mut rules);
    }
    rules
        .lines("network", "a", None)
        .iter()
        .map(|fault| serde_json::from_str(&fault.line).expect("JSON"))
        .collect()
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
fn a_loss_is_presumed_where_only_the_senders_packets_were_seen() {
    let packets = [send(0, 0), send(1, 1), send(9, 0), send(10, 1)];
    let sent = packets.map(|one| Sighting { is_outbound: Some(true), ..one });
    let arrived = [1, 2, 3].map(|index| Sighting { is_outbound: Some(false), ..sent[index].clone() });
    for (captures, presumed) in [(vec![sent.to_vec()], true), (vec![sent.to_vec(), arrived.to_vec()], false)]
    {
        let sides = CaptureSides::of(&captures);
        let mut rules = FaultRules::default();
        for stream in streams(&sides, address(1)) {
            walk(&sides, &stream, &mut rules);
        }
        let found = rules.lines("network", "a", None);
        let lost: Vec<bool> = found.iter().map(|fault| fault.is_presumed).collect();
        assert!(!lost.is_empty() && lost.iter().all(|is_presumed| *is_presumed == presumed), "{found:?}");
    }
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

/// The two processes have one address and have sent each other three messages with the same PSNs.
#[test]
fn processes_with_one_address_are_distinguished_by_their_queue_pairs() {
    let here = |one: Sighting, qpn| Sighting { qpn, source: address(1), destination: address(1), ..one };
    // Queue pair 1 of this process is connected to queue pair 2 of the other one.
    let sent: Vec<Sighting> = (0..3)
        .flat_map(|psn| {
            let at_ms = u64::from(psn);
            [here(send(at_ms, psn), 2), here(answer(at_ms, psn, ACKNOWLEDGED, psn + 1), 2)]
        })
        .collect();
    // Everything that it sent arrives there, except the last ACK; the other process sends more.
    let mut arrived = sent.clone();
    let lost = arrived.pop();
    assert!(lost.is_some_and(|lost| !lost.info.is_request));

    arrived.extend((0..9).map(|psn| here(send(psn.into(), psn), 1)));
    let marked = |all: &[Sighting], outbound| -> Vec<Sighting> {
        all.iter().map(|one| Sighting { is_outbound: Some(outbound), ..one.clone() }).collect()
    };
    let captures = [marked(&sent, true), marked(&arrived, false)];
    let found = report_of(&captures, 1, |to| (to == 2).then_some(1));
    let names = ["side", "opcode", "message", "lost"];
    let expected = vec![json!("responder"), json!("ack"), json!(2), json!(true)];
    assert_eq!(found.iter().map(|line| fields(line, &names)).collect::<Vec<_>>(), [expected]);
}
