//! Tests of timelines, with traces that the tests write.

use std::net::IpAddr;

use super::*;
use crate::format::Encoder;
use crate::format::{Record, TraceHeader};

const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1));
const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

fn trace(process: u32, base_ns: u64, records: &[(u64, Record<'_>)]) -> Vec<u8> {
    let header = TraceHeader {
        process,
        monotonic_base_ns: base_ns,
        boot: "boot".to_owned(),
        program: "prog".to_owned(),
        ..TraceHeader::default()
    };
    let mut bytes = header.emit();
    let mut encoder = Encoder::default();
    for (at_ns, record) in records {
        encoder.put(*at_ns, record, &mut bytes);
    }
    bytes
}

fn sent(message: u64, psn: u32, transmission: u32) -> Record<'static> {
    let (side, opcode, length, destination) = (0, 4, 100, 0x22);
    Record::PacketSent { qp: 0, side, message, psn, transmission, opcode, length, destination }
}

fn posted(message: u64, psn: u32, signaled: bool) -> Record<'static> {
    Record::SendPosted { qp: 0, message, wr_id: 9, opcode: 2, length: 100, psn, packets: 1, signaled }
}

fn sender() -> Vec<u8> {
    trace(
        1,
        1_000_000,
        &[
            (5, Record::QpCreated { qp: 0, qpn: 0x11, send_cq: 3, recv_cq: 3, service: "RC" }),
            (10, posted(0, 0xff_ffff, false)),
            (11, posted(1, 0, true)),
            (20, Record::SendsTo { qp: 0, from: A, to: B }),
            (20, sent(0, 0xff_ffff, 1)),
            (21, sent(1, 0, 1)),
            (
                21,
                Record::FaultApplied {
                    rule: "drop",
                    deed: "loses",
                    qp: Some(0),
                    class: "send",
                    side: 0,
                    message: 1,
                    packet: 1,
                    transmission: 1,
                    lost: true,
                },
            ),
            (40, Record::Acknowledged { qp: 0, before: 0 }),
            (1000, Record::TimedOut { qp: 0, psn: 0, retries_left: 7, timeout: 14 }),
            (1001, Record::SentAgain { qp: 0, psn: 0, packets: 1, why: 0 }),
            (1002, sent(1, 0, 2)),
            (1030, Record::Acknowledged { qp: 0, before: 1 }),
            (
                1031,
                Record::Completed { qp: 0, cq: 3, wr_id: 9, status: 0, opcode: 0, bytes: 100, released: 2 },
            ),
            (1050, Record::Polled { cq: 3, qpn: 0x11, wr_id: 9, status: 0, opcode: 0 }),
        ],
    )
}

fn receiver() -> Vec<u8> {
    let arrives = |psn| Record::PacketReceived { qp: 4, psn, opcode: 4, length: 100, source: None };
    trace(
        2,
        900_000,
        &[
            (1, Record::QpCreated { qp: 4, qpn: 0x22, send_cq: 1, recv_cq: 1, service: "RC" }),
            (2, Record::RecvPosted { qp: 4, wr_id: 77, bytes: 4096 }),
            (100_030, Record::ReceivesFrom { qp: 4, from: A, to: B }),
            (100_030, arrives(0xff_ffff)),
            (101_010, arrives(0)),
            (
                101_011,
                Record::Completed {
                    qp: 4,
                    cq: 1,
                    wr_id: 77,
                    status: 0,
                    opcode: 128,
                    bytes: 100,
                    released: 0,
                },
            ),
        ],
    )
}

fn both() -> Timeline {
    let (a, b) = (sender(), receiver());
    Timeline::read([("a".to_owned(), &a[..]), ("b".to_owned(), &b[..])]).unwrap()
}

#[test]
fn a_message_has_its_moments() {
    let timeline = both();
    // The time 0 is the one at which the trace of the receiver began, as `pumice trace list` prints it of it.
    let origin = 100_000;
    let messages = &timeline.processes[0].queue_pairs[0].messages;
    let second = &messages[1];
    assert_eq!(second.posted_ns, 11 + origin);
    assert_eq!((second.first_packet_ns, second.last_packet_ns), (Some(21 + origin), Some(1002 + origin)));
    assert_eq!((second.packets_sent, second.transmissions), (2, 2));
    assert_eq!((second.acknowledged_ns, second.polled_ns), (Some(1030 + origin), Some(1050 + origin)));
    assert_eq!(second.end, Some(RequestEnd { at_ns: 1031 + origin, status: 0, cq: 3, has_completion: true }));
    let kind = SetbackKind::TimedOut { timeout: 14, retries_left: 7 };
    let silent_since_ns = 21 + origin;
    assert_eq!(second.setbacks, [Setback { at_ns: 1000 + origin, kind, is_own: true, silent_since_ns }]);
    let first = &messages[0];
    assert_eq!((first.acknowledged_ns, first.polled_ns), (Some(40 + origin), None));
    assert_eq!(first.end.map(|end| end.has_completion), Some(false));
    assert!(first.setbacks.is_empty());
}

#[test]
fn packets_are_matched_and_the_lost_one_is_not() {
    let timeline = both();
    let about = |arrow: &Arrow| {
        let packet = |index: PacketIndex| {
            timeline.processes[index.process].queue_pairs[index.queue_pair].packets[index.packet]
        };
        (packet(arrow.from).psn, packet(arrow.from).transmission, packet(arrow.to).at_ns)
    };
    let arrows: Vec<_> = timeline.arrows.iter().map(about).collect();
    assert_eq!(arrows, [(0xff_ffff, 1, 100_030), (0, 2, 101_010)]);
    assert!(timeline.processes[0].queue_pairs[0].packets[1].is_lost);
    assert!(timeline.remarks.is_empty(), "{:?}", timeline.remarks);
    let receive = &timeline.processes[1].queue_pairs[0].receives[0];
    assert_eq!((receive.wr_id, receive.posted_ns, receive.bytes), (77, Some(2), 100));
}

#[test]
fn traces_that_do_not_belong_together_are_named() {
    let (a, b) = (sender(), trace(3, 0, &[(1, sent(0, 5, 1))]));
    let timeline = Timeline::read([("a".to_owned(), &a[..]), ("b".to_owned(), &b[..])]).unwrap();
    let [remark] = timeline.remarks.as_slice() else { panic!("{:?}", timeline.remarks) };
    assert!(remark.contains(" and of 3 (prog) was sent or received"), "{remark}");
}

#[test]
fn a_trace_that_is_cut_tells_what_it_has() {
    let whole = sender();
    let timeline = Timeline::read([("a".to_owned(), &whole[..whole.len() - 3])]).unwrap();
    assert_eq!(timeline.processes[0].queue_pairs[0].messages.len(), 2);
    assert!(timeline.remarks[0].starts_with("a: it ends inside of a record"), "{:?}", timeline.remarks);
    let (name, error) = Timeline::read([("x".to_owned(), &b"nothing"[..])]).unwrap_err();
    assert_eq!((name.as_str(), error.to_string().as_str()), ("x", "it is no trace"));
}

#[test]
fn measures_and_rnr_naks_are_kept_in_their_order() {
    let measured = |rtt_ns, window_packets, in_flight_packets| Record::Measured {
        qp: 0,
        rtt_ns,
        window_packets,
        in_flight_packets,
    };
    let bytes = trace(
        1,
        500,
        &[
            (10, measured(0, 64, 1)),
            (20, Record::NakReceived { qp: 0, syndrome: 0x2c, psn: 7 }),
            (30, Record::NakReceived { qp: 0, syndrome: 0x60, psn: 7 }),
            (1_000_010, measured(21_000, 80, 17)),
        ],
    );
    let timeline = Timeline::read([("a".to_owned(), &bytes[..])]).unwrap();
    let qp = &timeline.processes[0].queue_pairs[0];
    let measure = |at_ns, rtt_ns, window_packets, in_flight_packets| Measure {
        at_ns,
        rtt_ns,
        window_packets,
        in_flight_packets,
    };
    assert_eq!(qp.measures, [measure(10, None, 64, 1), measure(1_000_010, Some(21_000), 80, 17)]);
    assert_eq!(qp.rnr_naks_ns, [20]);
}

#[test]
fn an_ack_that_a_plan_lost_has_a_packet_of_its_own_and_the_later_one_arrives() {
    let lost = Record::FaultApplied {
        rule: "drop",
        deed: "loses",
        qp: Some(4),
        class: "ack",
        side: 1,
        message: 0,
        packet: 0,
        transmission: 1,
        lost: true,
    };
    let arrives = |qp, opcode| Record::PacketReceived { qp, psn: 5, opcode, length: 20, source: None };
    let sent = |qp, side, opcode, destination, transmission| Record::PacketSent {
        qp,
        side,
        message: 0,
        psn: 5,
        transmission,
        opcode,
        length: 20,
        destination,
    };
    let ack = 0x11;
    let a = trace(
        1,
        0,
        &[
            (5, Record::QpCreated { qp: 0, qpn: 0x11, send_cq: 3, recv_cq: 3, service: "RC" }),
            (20, Record::SendsTo { qp: 0, from: A, to: B }),
            (20, Record::ReceivesFrom { qp: 0, from: B, to: A }),
            (20, sent(0, 0, 4, 0x22, 1)),
            (1000, sent(0, 0, 4, 0x22, 2)),
            (1040, arrives(0, ack)),
        ],
    );
    let b = trace(
        2,
        0,
        &[
            (5, Record::QpCreated { qp: 4, qpn: 0x22, send_cq: 1, recv_cq: 1, service: "RC" }),
            (20, Record::SendsTo { qp: 4, from: B, to: A }),
            (20, Record::ReceivesFrom { qp: 4, from: A, to: B }),
            (30, arrives(4, 4)),
            (31, lost),
            (1010, arrives(4, 4)),
            (1020, sent(4, 1, ack, 0x11, 1)),
        ],
    );
    let timeline = Timeline::read([("a".to_owned(), &a[..]), ("b".to_owned(), &b[..])]).unwrap();
    let packets = &timeline.processes[1].queue_pairs[0].packets;
    let acks: Vec<_> = packets.iter().filter(|packet| packet.is_sent).collect();
    let told: Vec<_> = acks.iter().map(|one| (one.opcode, one.psn, one.is_lost)).collect();
    assert_eq!(told, [(ack, 5, true), (ack, 5, false)]);
    assert_eq!(acks[1].at_ns - acks[0].at_ns, 1020 - 31);
    let is_arrow_of = |index: &PacketIndex| index.process == 1 && packets[index.packet].is_sent;
    let arrows: Vec<_> = timeline.arrows.iter().filter(|arrow| is_arrow_of(&arrow.from)).collect();
    assert_eq!(arrows.len(), 1);
    assert!(!packets[arrows[0].from.packet].is_lost);
}
