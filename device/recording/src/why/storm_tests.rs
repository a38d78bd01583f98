//! Tests of RNR storms and plain messages: what is reported, and how the work grows with their number.

use std::net::IpAddr;

use super::Causes;
use crate::format::{Encoder, Record, TraceHeader};
use crate::steps::steps_of;
use crate::timeline::Timeline;

const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1)), IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2))];
const QPNS: [u32; 2] = [0x11, 0x22];
/// Number of messages that are under way at a time.
const UNDER_WAY: u64 = 8;
/// Syndrome of an RNR NAK that asks for 10 us.
const RNR_NAK: u8 = 0x21;
const SEND_ONLY: u8 = 4;
const ACKNOWLEDGE: u8 = 0x11;
/// IBV_WC_RECV.
const RECV: u8 = 128;

/// The trace of one end.
struct End {
    bytes: Vec<u8>,
    encoder: Encoder,
}

impl End {
    fn new(own: usize) -> End {
        let header = TraceHeader {
            process: own as u32 + 1,
            boot: "boot".to_owned(),
            program: "end".to_owned(),
            addresses: vec![ADDRESSES[own]],
            ..TraceHeader::default()
        };
        let mut end = End { bytes: header.emit(), encoder: Encoder::default() };
        let (from, to) = (ADDRESSES[own], ADDRESSES[1 - own]);
        end.put(0, &Record::QpCreated { qp: 0, qpn: QPNS[own], send_cq: 0, recv_cq: 0, service: "RC" });
        let (peer, peer_qpn) = (Some(to), QPNS[1 - own]);
        end.put(0, &Record::StateChanged { qp: 0, from: 1, to: 2, by: 0, connection: 0, peer, peer_qpn });
        end.put(0, &Record::SendLimits { qp: 0, requests: 64, reads: 4 });
        end.put(0, &Record::SendsTo { qp: 0, from, to });
        end.put(0, &Record::ReceivesFrom { qp: 0, from: to, to: from });
        end
    }

    fn put(&mut self, at_ns: u64, record: &Record<'_>) {
        self.encoder.put(at_ns, record, &mut self.bytes);
    }

    fn sends(&mut self, at_ns: u64, side: u8, message: u64, transmission: u32, destination: u32) {
        let opcode = if side == 0 { SEND_ONLY } else { ACKNOWLEDGE };
        let psn = message as u32;
        let sent =
            Record::PacketSent { qp: 0, side, message, psn, transmission, opcode, length: 20, destination };
        self.put(at_ns, &sent);
    }
}

/// Makes the traces of both ends of a run in which `messages` messages are refused `refusals` times each.
fn run(messages: u64, refusals: u32) -> Timeline {
    let (mut sender, mut receiver) = (End::new(0), End::new(1));
    let mut at_ns = 1_000;
    let mut posted = 0;
    for message in 0..messages {
        let psn = message as u32;
        while posted < messages && posted < message + UNDER_WAY {
            let (wr_id, length, opcode) = (posted, 8, 2);
            let (packets, psn, signaled) = (1, posted as u32, true);
            let request =
                Record::SendPosted { qp: 0, message: posted, wr_id, opcode, length, psn, packets, signaled };
            sender.put(at_ns, &request);
            posted += 1;
        }
        for transmission in 1..=refusals + 1 {
            at_ns += 10_000;
            sender.sends(at_ns, 0, message, transmission, QPNS[1]);
            let (opcode, length, source) = (SEND_ONLY, 20, None);
            receiver.put(at_ns + 100, &Record::PacketReceived { qp: 0, psn, opcode, length, source });
            let refuses = transmission <= refusals;
            if refuses {
                receiver.put(at_ns + 200, &Record::NakSent { qp: 0, syndrome: RNR_NAK, psn });
            } else {
                receiver.put(at_ns + 150, &Record::RecvPosted { qp: 0, wr_id: message, bytes: 8 });
                let (cq, status, bytes, released) = (0, 0, 8, 0);
                let over =
                    Record::Completed { qp: 0, cq, wr_id: message, status, opcode: RECV, bytes, released };
                receiver.put(at_ns + 160, &over);
                let polled = Record::Polled { cq, qpn: QPNS[1], wr_id: message, status, opcode: RECV };
                receiver.put(at_ns + 170, &polled);
            }
            receiver.sends(at_ns + 300, 1, message, 1, QPNS[0]);
            let (opcode, length, source) = (ACKNOWLEDGE, 20, None);
            sender.put(at_ns + 400, &Record::PacketReceived { qp: 0, psn, opcode, length, source });
            if refuses {
                sender.put(at_ns + 400, &Record::NakReceived { qp: 0, syndrome: RNR_NAK, psn });
                let (retries_left, wait_ns) = (7, 10_000);
                sender.put(at_ns + 400, &Record::ReceiverNotReady { qp: 0, psn, retries_left, wait_ns });
                sender.put(at_ns + 400, &Record::SentAgain { qp: 0, psn, packets: 1, why: 4 });
            }
        }
        sender.put(at_ns + 500, &Record::Acknowledged { qp: 0, before: psn + 1 });
        let (cq, status, opcode, bytes, released) = (0, 0, 0, 8, 1);
        let over = Record::Completed { qp: 0, cq, wr_id: message, status, opcode, bytes, released };
        sender.put(at_ns + 500, &over);
        sender.put(at_ns + 600, &Record::Polled { cq, qpn: QPNS[0], wr_id: message, status, opcode });
    }
    let traces = [("sender".to_owned(), &sender.bytes[..]), ("receiver".to_owned(), &receiver.bytes[..])];
    Timeline::read(traces).expect("two whole traces")
}

#[test]
fn a_storm_is_named_with_its_timer_and_a_short_wait_is_none() {
    let timeline = run(20, 40);
    assert_eq!(timeline.remarks, Vec::<String>::new());
    assert_eq!(timeline.arrows.len(), 20 * 41 * 2);
    let causes = Causes::of(&timeline, 10);
    let in_words = causes.groups[0].to_finding().sentence;
    assert!(in_words.contains("40 RNR NAKs"), "{in_words}");
    assert!(
        in_words.contains("a larger min_rnr_timer of the peer ends the storm of 40 RNR NAKs"),
        "{in_words}"
    );
    assert!(
        in_words.contains("asks for 10.0 us only") && !in_words.contains("a smaller min_rnr_timer"),
        "{in_words}"
    );
    let causes = Causes::of(&run(20, 2), 10);
    let in_words = causes.groups[0].to_finding().sentence;
    assert!(in_words.contains("a smaller min_rnr_timer") && !in_words.contains("storm"), "{in_words}");
}

#[test]
fn twice_the_messages_are_twice_the_work() {
    for refusals in [0, 30, 80] {
        let work = |messages: u64| {
            steps_of(|| {
                let causes = Causes::of(&run(messages, refusals), 10);
                assert_eq!(causes.messages, messages);
            })
        };
        let [few, many] = [500, 1000].map(work);
        assert!(few > 500, "{refusals} refusals: nothing was counted");
        // The trees are one level higher.
        assert!(many * 10 < few * 24, "{refusals} refusals: {few} steps, and for twice as many {many}");
    }
}
