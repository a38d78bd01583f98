use pumice_transport::wire::{Opcode, OpcodeInfo};
use serde_json::Value;

use super::*;
use crate::capture::plan::sides::DatagramInfo;

const UD_SEND_ONLY: u8 = 0x64;
const MS_NS: u64 = 1_000_000;

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

/// Returns the n-th datagram of a queue pair of the first process, to one of the process with this address.
fn datagram(from_qpn: u32, number: u32, to: (u8, u32)) -> Sighting {
    let info: &'static OpcodeInfo = Opcode::from_byte(UD_SEND_ONLY).info().expect("an opcode");
    Sighting {
        capture: 0,
        time_ns: u64::from(number) * MS_NS,
        source: address(1),
        destination: address(to.0),
        qpn: to.1,
        psn: number,
        info,
        payload_bytes: 8,
        memory: None,
        answer: None,
        is_damaged: false,
        is_lost: false,
        is_planned: false,
        is_outbound: Some(true),
        datagram: Some(DatagramInfo { from_qpn, numbered: None, digest: u64::from(number), message: None }),
    }
}

fn arrives(one: &Sighting) -> Sighting {
    Sighting { is_outbound: Some(false), ..one.clone() }
}

/// Returns the rules for what was sent, given what arrived.
fn lines(sent: &[Sighting], arrived: &[Sighting], noted: &str) -> Vec<Value> {
    let network = Datagrams::of(sent.iter().chain(arrived), arrived);
    let mut rules = FaultRules::default();
    network.walk(sent, &QpOrdinals::of(sent, noted), &mut rules);
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
fn datagrams_are_counted_for_each_destination_of_a_queue_pair() {
    let sent: Vec<Sighting> = [(2, 30), (2, 31), (2, 30), (2, 31), (2, 31), (3, 30)]
        .into_iter()
        .zip(0..)
        .map(|(to, number)| datagram(17, number, to))
        .collect();
    // The second datagram to queue pair 31 is lost, and the last one to it is duplicated.
    let arrived: Vec<Sighting> = [0, 1, 2, 4, 4, 5].iter().map(|index| arrives(&sent[*index])).collect();
    let found = lines(&sent, &arrived, "made 4 17\n");
    let names = ["service", "qp", "peer", "destination", "message", "lost", "copies"];
    let found: Vec<Vec<Value>> = found.iter().map(|line| fields(line, &names)).collect();
    let line = |message: u32, lost: Value, copies: Value| {
        vec!["ud".into(), 4.into(), "10.0.0.2".into(), 1.into(), message.into(), lost, copies]
    };
    assert_eq!(found, [line(1, true.into(), Value::Null), line(2, Value::Null, 1.into())]);
}

#[test]
fn what_went_to_others_or_was_lost_by_a_plan_is_not_the_networks() {
    let mut sent = vec![datagram(17, 0, (2, 30)), datagram(17, 1, (2, 30)), datagram(17, 2, (9, 30))];
    let group = Sighting { destination: IpAddr::from([239, 0, 0, 1]), ..datagram(17, 3, (2, 30)) };
    (sent[1].is_lost, sent[1].is_planned) = (true, true);
    let arrived = [arrives(&sent[0]), arrives(&group)];
    sent.push(Sighting { psn: 4, ..group });
    assert_eq!(lines(&sent, &arrived, ""), Vec::<Value>::new());
}

#[test]
fn queue_pairs_that_were_not_noted_are_counted_as_they_are_seen() {
    let mut connected = datagram(0, 0, (2, 30));
    connected.datagram = None;
    let sent = [datagram(1, 0, (2, 1)), connected, datagram(18, 0, (2, 31))];
    let ordinals = QpOrdinals::of(&sent, "");
    assert_eq!(ordinals.of_connected(address(2), 30), 0);
    assert_eq!(ordinals.known.get(&LocalQp::From(18)), Some(&1), "queue pair 1 is of no program");
    let noted = QpOrdinals::of(&sent, "made 2 40\nconnected 2 10.0.0.2 30\nmade x\nmade 4294967295 7\n");
    assert_eq!(noted.of_connected(address(2), 30), 2);
    assert_eq!(noted.known.get(&LocalQp::From(18)), Some(&3), "4294967295 is no ordinal");
}
