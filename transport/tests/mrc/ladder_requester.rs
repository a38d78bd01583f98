//! A requester against literal packets.

use pumice_transport::mrc::MrcPostError;
use pumice_transport::mrc::entropy::{Entropy, TrafficClass};
use pumice_transport::mrc::paths::PathState;
use pumice_transport::mrc::wire::{MrcBody, MrcOpcode, NackReason, PathMark, SackTrigger};
use pumice_transport::types::{Cause, QpState, SendFlags, SendOpcode, SendRequest, WcStatus};
use pumice_transport::wire::Psn;

use crate::kit::{End, FIRST_PSN};

use crate::packets::{MTU, ack, nack, psn, sack};

#[test]
fn only_writes_are_posted() {
    let mut end = End::with(|settings, _, _| settings.max_send_wr = 1);
    for opcode in [SendOpcode::Send, SendOpcode::RdmaRead, SendOpcode::FetchAdd, SendOpcode::SendWithImm] {
        let posted = end.qp.post_send(&SendRequest::new(1, opcode), &mut end.device);
        assert_eq!(posted, Err(MrcPostError::WrongOpcode { opcode }));
    }
    let unsignaled = SendRequest { flags: SendFlags::empty(), ..SendRequest::new(1, SendOpcode::RdmaWrite) };
    end.qp.post_send(&unsignaled, &mut end.device).unwrap();
    let full = MrcPostError::QueueFull { depth: 1, all_unsignaled: true };
    assert_eq!(end.qp.post_send(&unsignaled, &mut end.device), Err(full));
    end.qp.to_error(Some(Cause::Modified), &mut end.device);
    end.qp.post_send(&unsignaled, &mut end.device).unwrap();
    assert_eq!(end.statuses(), [(1, WcStatus::WrFlushErr); 2]);
}

/// PSN, entropy value, and whether it is a retransmission, of each packet of data.
fn data(end: &mut End) -> Vec<(u32, Entropy, bool)> {
    let packets = end.sent();
    let data = packets.iter().filter(|(_, headers)| headers.bth.opcode.is_write());
    data.map(|(departure, headers)| {
        let number = headers.bth.psn.since(Psn::new(FIRST_PSN)) as u32;
        (number, departure.entropy, headers.bth.retransmission)
    })
    .collect()
}

#[test]
fn a_message_is_sprayed_and_completes_by_its_ack() {
    let mut end = End::new();
    end.post(1, SendOpcode::RdmaWriteWithImm, 300);
    end.post(2, SendOpcode::RdmaWrite, 0);
    let sent = end.sent();
    let opcodes: Vec<MrcOpcode> = sent.iter().map(|(_, headers)| headers.bth.opcode).collect();
    assert_eq!(opcodes, [MrcOpcode::WriteFirst, MrcOpcode::WriteLastImm, MrcOpcode::WriteOnly]);
    let asks: Vec<bool> = sent.iter().map(|(_, headers)| headers.bth.ack_request).collect();
    assert_eq!(asks, [false, false, true], "the last one asks for a SACK");
    assert!(sent[0].0.entropy != sent[1].0.entropy && sent[0].0.class == TrafficClass::NoTrim);
    end.take(&sack(2, 2, 0, sent[2].0.entropy), &[]);
    assert_eq!(end.statuses(), [], "a SACK completes nothing");
    end.take(&ack(1, 0x1f, 1), &[]);
    assert_eq!(end.statuses(), [(1, WcStatus::Success)]);
    // The other ACK was lost: the peer is asked again, by a packet that it has.
    end.wait();
    assert_eq!(
        data(&mut end).iter().map(|(number, _, again)| (*number, *again)).collect::<Vec<_>>(),
        [(2, true)]
    );
    end.take(&ack(2, 0x1f, 2), &[]);
    assert_eq!(end.statuses(), [(2, WcStatus::Success)]);
    assert_eq!(end.qp.deadline_ns(), None);
}

#[test]
fn full_packets_leave_by_one_path_in_a_row_as_long_as_it_is_good() {
    let mut end = End::with(|_, _, requester| requester.packets_in_a_row = 4);
    end.post(1, SendOpcode::RdmaWrite, 6 * MTU - 1);
    end.post(2, SendOpcode::RdmaWrite, 2 * MTU);
    let ways: Vec<Entropy> = data(&mut end).iter().map(|(_, entropy, _)| *entropy).collect();
    let rows: Vec<usize> = ways.chunk_by(|one, other| one == other).map(<[Entropy]>::len).collect();
    assert_eq!(rows, [4, 2, 2], "a shorter packet ends a row");
    end.post(3, SendOpcode::RdmaWrite, MTU);
    assert_eq!(data(&mut end)[0].1, ways[7], "the row goes on");
    let mut leave = sack(8, 8, 0, ways[7]);
    if let MrcBody::Sack(seth, _) = &mut leave.body {
        seth.mark = PathMark::SkipOnce;
    }
    end.take(&leave, &[]);
    end.post(4, SendOpcode::RdmaWrite, MTU);
    assert_ne!(data(&mut end)[0].1, ways[7]);
}

#[test]
fn the_window_and_immediates_in_flight_are_limited() {
    let mut end = End::with(|_, _, requester| (requester.mpr, requester.max_wimm) = (1, 2));
    end.post(1, SendOpcode::RdmaWrite, 200 * MTU);
    assert_eq!(data(&mut end).len(), 128);
    end.take(&sack(9, 9, 0, Entropy(0)), &[]);
    assert_eq!(data(&mut end).first().map(|first| first.0), Some(128));
    for number in [137, 199] {
        end.take(&sack(number, number, 0, Entropy(0)), &[]);
        let _ = data(&mut end);
    }
    end.take(&ack(199, 0x1f, 1), &[]);
    (0..3).for_each(|wr_id| end.post(wr_id, SendOpcode::RdmaWriteWithImm, 8));
    assert_eq!(data(&mut end).len(), 2);
    end.take(&ack(200, 0x1f, 2), &[]);
    assert_eq!(data(&mut end).len(), 1);
}

#[test]
fn a_dynamic_window_stops_what_is_new_and_what_is_sent_again() {
    let mut end = End::with(|settings, _, requester| {
        (settings.has_dynamic_mpr, requester.mpr) = (true, 2);
    });
    end.post(1, SendOpcode::RdmaWrite, 400 * MTU);
    let sent = data(&mut end);
    assert_eq!(sent.len(), 256);
    let mut narrow = sack(9, 9, 0, Entropy(0));
    if let MrcBody::Sack(seth, _) = &mut narrow.body {
        seth.mpr = 1;
    }
    end.take(&narrow, &[]);
    for number in [20, 200] {
        end.take(&nack(number, NackReason::NoPacketBuffer, sent[number as usize].1), &[]);
    }
    assert_eq!(data(&mut end).iter().map(|one| one.0).collect::<Vec<_>>(), [20]);
    end.take(&sack(100, 100, 0, Entropy(0)), &[]);
    assert_eq!(data(&mut end).iter().map(|one| one.0).collect::<Vec<_>>(), [200]);
}

#[test]
fn a_nack_sends_the_packet_again_by_another_path() {
    let mut end = End::with(|_, _, requester| requester.has_trimming = true);
    end.post(1, SendOpcode::RdmaWrite, 3 * MTU);
    let sent = data(&mut end);
    let path = end.qp.paths().unwrap().find(sent[1].1).unwrap();
    end.take(&nack(1, NackReason::Trimmed, sent[1].1), &[]);
    assert_eq!(end.qp.paths().unwrap().state(path), Some(PathState::Skip));
    let again = end.sent();
    let (departure, headers) = again[0];
    assert_eq!((headers.bth.psn, headers.bth.retransmission, again.len()), (psn(1), true, 1));
    assert_eq!(departure.class, TrafficClass::TrimmableRetransmission);
    assert_ne!(departure.entropy, sent[1].1);
    // A copy of the NACK is about a packet that has left again.
    end.take(&nack(1, NackReason::Trimmed, sent[1].1), &[]);
    assert!(data(&mut end).is_empty());
    let last_hop = end.qp.paths().unwrap().find(departure.entropy).unwrap();
    end.take(&nack(1, NackReason::TrimmedLastHop, departure.entropy), &[]);
    assert_eq!(end.qp.paths().unwrap().state(last_hop), Some(PathState::Good));
    assert_eq!((data(&mut end).len(), end.qp.statistics().trims), (1, 3));
    let last = sent[2].1;
    end.take(&nack(2, NackReason::UnexpectedEvent, last), &[]);
    assert_eq!(end.statuses(), [(1, WcStatus::RemOpErr)]);
    assert_eq!(end.qp.state(), QpState::Err);
}

#[test]
fn a_hole_that_is_old_and_far_behind_is_lost() {
    let mut end = End::new();
    end.post(1, SendOpcode::RdmaWrite, 8 * MTU);
    let sent = data(&mut end);
    let round_trip_ns = 20_000;
    end.now_ns += round_trip_ns;
    // All but the first one have arrived, within one round trip: it may still be on its way.
    end.take(&sack(u32::MAX, 7, 0xfe, sent[7].1), &[]);
    assert!(data(&mut end).is_empty());
    let due_ns = end.qp.deadline_ns().unwrap();
    assert_eq!(due_ns, end.now_ns + round_trip_ns / 4);
    end.wait();
    let again = data(&mut end);
    assert_eq!((again[0].0, again[0].2, again.len(), end.qp.statistics().holes), (0, true, 1, 1));
    assert_ne!(again[0].1, sent[0].1);
}

#[test]
fn timeouts_are_linear_then_exponential_and_then_the_end() {
    const TIMEOUT_NS: u64 = 1 << 20;
    let mut end = End::with(|_, _, requester| {
        (requester.timeout, requester.linear_cnt, requester.exp_cnt) = (10, 2, 3);
    });
    end.post(1, SendOpcode::RdmaWrite, 8);
    end.post(2, SendOpcode::RdmaWrite, 8);
    let mut left_ns = vec![end.now_ns];
    let first = data(&mut end);
    let path = end.qp.paths().unwrap().find(first[0].1).unwrap();
    while end.qp.state() == QpState::Rts {
        end.wait();
        if !data(&mut end).is_empty() {
            left_ns.push(end.now_ns);
        }
    }
    let waits: Vec<u64> = left_ns.windows(2).map(|two| (two[1] - two[0]) / TIMEOUT_NS).collect();
    assert_eq!(waits, [1, 1, 2, 4, 8]);
    assert_eq!(end.now_ns - left_ns[5], 8 * TIMEOUT_NS);
    assert_eq!(end.statuses(), [(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(end.qp.paths().unwrap().state(path), Some(PathState::AssumedBad));
}

#[test]
fn naks_end_their_message_and_flush_the_others() {
    let cases = [(0x61, WcStatus::RemInvReqErr), (0x62, WcStatus::RemAccessErr), (0x63, WcStatus::RemOpErr)];
    for (syndrome, status) in cases {
        let mut end = End::new();
        (1..=4).for_each(|wr_id| end.post(wr_id, SendOpcode::RdmaWrite, 2 * MTU));
        assert_eq!(data(&mut end).len(), 8);
        // RNR and credits do not exist.
        end.take(&ack(3, 0x21, 0), &[]);
        end.take(&ack(5, syndrome, 1), &[]);
        let expected =
            [(1, WcStatus::Success), (2, WcStatus::WrFlushErr), (3, status), (4, WcStatus::WrFlushErr)];
        assert_eq!((end.statuses(), end.qp.state()), (expected.to_vec(), QpState::Err));
    }
}

#[test]
fn a_buffer_that_cannot_be_read_fails_its_request() {
    let mut end = End::new();
    end.post(1, SendOpcode::RdmaWrite, 8);
    let request = SendRequest {
        sges: &[pumice_transport::types::Sge { address: 0, length: 8, lkey: 99 }],
        ..SendRequest::new(2, SendOpcode::RdmaWrite)
    };
    end.qp.post_send(&request, &mut end.device).unwrap();
    assert_eq!(data(&mut end).len(), 1);
    assert_eq!(end.statuses(), [(1, WcStatus::WrFlushErr), (2, WcStatus::LocProtErr)]);
}

#[test]
fn bad_paths_are_probed_until_they_answer() {
    let mut end = End::new();
    end.post(1, SendOpcode::RdmaWrite, MTU);
    let lost = data(&mut end)[0];
    let path = end.qp.paths().unwrap().find(lost.1).unwrap();
    let mut leave = sack(0, 0, 0, lost.1);
    if let MrcBody::Sack(seth, _) = &mut leave.body {
        seth.mark = PathMark::AlwaysSkip;
    }
    end.take(&leave, &[]);
    end.take(&ack(0, 0x1f, 1), &[]);
    assert_eq!(end.qp.paths().unwrap().state(path), Some(PathState::AssumedBad));
    for answered in 1..=3 {
        end.wait();
        let (departure, headers) = end.sent().remove(0);
        let MrcBody::Probe(peth) = headers.body else { panic!("{headers:?}") };
        assert_eq!(departure.entropy, lost.1);
        let mut answer = sack(0, 0, 0, lost.1);
        if let MrcBody::Sack(seth, _) = &mut answer.body {
            seth.trigger = SackTrigger::Probe { probe_id: peth.probe_id };
        }
        end.take(&answer, &[]);
        let expected = if answered == 3 { PathState::Good } else { PathState::AssumedBad };
        assert_eq!(end.qp.paths().unwrap().state(path), Some(expected));
    }
    let changes = std::iter::from_fn(|| end.qp.paths_mut().unwrap().poll_change());
    let states: Vec<PathState> = changes.map(|change| change.state).collect();
    assert_eq!(states, [PathState::AssumedBad, PathState::Good]);
}
