//! A responder against literal packets.

use pumice_transport::mrc::entropy::{Entropy, MrcArrival, TrafficClass, Trim};
use pumice_transport::mrc::wire::{
    MrcBody, MrcBth, MrcHeaders, MrcOpcode, NackReason, PathMark, Peth, SackTrigger, Tseth, WriteHeaders,
};
use pumice_transport::mrc::{MrcPostError, MrcQueuePair, MrcSettings, ResponderAttributes};
use pumice_transport::types::{Access, AsyncEventType, Mtu, QpState, SendOpcode, SendRequest};
use pumice_transport::wire::{Psn, Qpn, Reth};

use crate::device::{Device, context};
use crate::kit::{End, FIRST_PSN, arrival};

use crate::packets::{ack, acks, control, nack, psn, sack, sacks, take, write};

#[test]
fn packets_are_placed_as_they_come_and_messages_end_in_order() {
    let mut end = End::new();
    end.device.receives.extend([70, 71]);
    let sent = take(&mut end, write(2, 0, 6, Some(5)));
    assert!(sent.is_empty() && end.device.received.is_empty(), "its immediate waits");
    assert_eq!(end.device.memory[8192..8198], [3; 6], "its data does not");
    assert!(take(&mut end, write(1, 1, 300, None)).is_empty());
    let sent = take(&mut end, write(0, 0, 300, None));
    assert_eq!(acks(&sent), [(psn(2).value(), 0x1f, 2)], "one ACK for both messages");
    let done = end.device.received[0];
    assert_eq!((done.wr_id, done.imm_data, done.byte_len), (70, [0, 0, 0, 5], 6));
    assert!(end.device.events.is_empty());
}

#[test]
fn the_first_packet_in_rtr_is_an_event() {
    let mut qp = MrcQueuePair::new(MrcSettings::new(context(0x12), Qpn::new(0x11), Mtu::Mtu256));
    let mut device = Device::new();
    let (headers, payload) = write(0, 0, 8, None);
    let mut bytes = vec![0; headers.packet_len(payload.len())];
    headers.emit(payload.len(), &mut bytes).unwrap().copy_from_slice(&payload);
    qp.handle_datagram(1, &arrival(), &bytes, &mut device).unwrap();
    assert!(device.written_bytes == 0 && device.events.is_empty(), "in INIT it means nothing");
    qp.to_rtr(&ResponderAttributes::new(Psn::new(FIRST_PSN)));
    (0..2).for_each(|_| qp.handle_datagram(1, &arrival(), &bytes, &mut device).unwrap());
    assert_eq!((device.written_bytes, &device.events[..]), (8, &[AsyncEventType::CommEst][..]));
    let posted = qp.post_send(&SendRequest::new(1, SendOpcode::RdmaWrite), &mut device);
    assert_eq!(posted, Err(MrcPostError::WrongState { state: QpState::Rtr }));
}

#[test]
fn a_sack_tells_what_has_arrived() {
    let mut end = End::new();
    for number in [1, 3] {
        assert!(take(&mut end, write(number, number, 2000, None)).is_empty());
    }
    let (mut headers, payload) = write(5, 5, 2000, None);
    headers.bth.ack_request = true;
    let by = MrcArrival { congested: true, ..arrival() };
    end.take_from(&by, &headers, &payload);
    let (departure, sent) = end.sent().remove(0);
    assert_eq!((departure.class, departure.entropy), (TrafficClass::Control, by.entropy));
    let (seth, state) = sacks(&[sent])[0];
    assert_eq!((seth.cack_psn, seth.ack_psn()), (psn(0).minus(1), Some(psn(5))));
    assert_eq!((seth.bitmap_base(), seth.bitmap), (psn(0), 0b10_1010));
    assert_eq!((seth.mark, seth.entropy), (PathMark::SkipOnce, by.entropy));
    assert_eq!((seth.spdcid, seth.dpdcid, seth.mpr), (0x12, 0x11, 0));
    // 256 bytes, 32 of headers, ICRC, UDP and 40 more.
    assert_eq!((state.ooo_count, state.rcvd_bytes), (3, (3_u32 * (256 + 32 + 4 + 8 + 40)).div_ceil(256)));
}

#[test]
fn sixteen_kib_cause_a_sack_and_a_far_packet_several() {
    let mut end = End::new();
    let mut found = Vec::new();
    for number in 0..40 {
        found.extend(sacks(&take(&mut end, write(number, number, 1 << 20, None))));
    }
    assert_eq!(found.iter().map(|(seth, _)| seth.cack_psn).collect::<Vec<_>>(), [psn(15), psn(31)]);
    // Every other packet of the next 200: one SACK has not room for all.
    for number in (41..240).step_by(2) {
        let (headers, payload) = write(number, number, 1 << 20, None);
        end.take(&headers, &payload);
    }
    let _ = end.sent();
    let probe = Peth { vendor_info: 0, probe_id: 9, spdcid: 0, dpdcid: 0, tseth: Tseth::at(128) };
    end.take(&control(MrcOpcode::ProbeRequest, Psn::new(0), MrcBody::Probe(probe)), &[]);
    let sent: Vec<MrcHeaders> = end.sent().into_iter().map(|(_, headers)| headers).collect();
    let answer = sacks(&sent);
    assert_eq!(answer.len(), 4);
    assert!(answer.iter().all(|(seth, _)| seth.trigger == SackTrigger::Probe { probe_id: 9 }));
    let bits = answer.iter().flat_map(|(seth, _)| {
        let base = seth.bitmap_base().since(psn(0));
        (0..64).filter(move |bit| seth.bitmap >> bit & 1 == 1).map(move |bit| base + bit)
    });
    let told = bits.collect::<std::collections::BTreeSet<i32>>().len();
    assert_eq!((told, answer[0].1.ooo_count, answer[0].1.timestamp), (100, 100, 1));
}

#[test]
fn duplicates_write_nothing_and_are_answered_by_where_they_lie() {
    let mut end = End::new();
    let _ = take(&mut end, write(0, 0, 8, None));
    let _ = take(&mut end, write(2, 0, 8, None));
    let bytes = end.device.written_bytes;
    let below = take(&mut end, write(0, 0, 8, None));
    assert_eq!((sacks(&below).len(), acks(&below)), (1, vec![(psn(0).value(), 0x1f, 1)]));
    let above = take(&mut end, write(2, 0, 8, None));
    assert_eq!((sacks(&above).len(), acks(&above).len()), (1, 0));
    assert_eq!((end.device.written_bytes, end.qp.statistics().duplicates), (bytes, 2));
    assert!(take(&mut end, write((1 << 23) + 1, 0, 8, None)).is_empty(), "half a circle away");
}

fn only_nack(packets: &[MrcHeaders]) -> (NackReason, u32, Entropy) {
    match packets {
        [MrcHeaders { body: MrcBody::Nack(neth), .. }] => (neth.reason, neth.nack_psn.value(), neth.entropy),
        other => panic!("{other:?}"),
    }
}

#[test]
fn packets_beyond_the_window_are_refused_now_and_then() {
    let mut end = End::new();
    let nacked = take(&mut end, write(1024, 0, 8, None));
    let entropy = arrival().entropy;
    assert_eq!(only_nack(&nacked), (NackReason::PsnOutOfWindow, psn(1024).value(), entropy));
    assert!(take(&mut end, write(1025, 0, 8, None)).is_empty());
    end.now_ns += 10_000;
    assert_eq!(take(&mut end, write(1025, 0, 8, None)).len(), 1);
    let _ = take(&mut end, write(0, 0, 8, None));
    assert!(take(&mut end, write(1024, 0, 8, None)).is_empty(), "it is in the window now");
}

#[test]
fn trimmed_packets_are_refused_unless_they_have_arrived() {
    let mut end = End::new();
    let (headers, payload) = write(0, 0, 200, None);
    let mut bytes = vec![0; headers.packet_len(payload.len())];
    headers.emit(payload.len(), &mut bytes).unwrap().copy_from_slice(&payload);
    for (trim, reason) in
        [(Trim::EarlierHop, NackReason::Trimmed), (Trim::LastHop, NackReason::TrimmedLastHop)]
    {
        let by = MrcArrival { trim: Some(trim), ..arrival() };
        end.qp.handle_datagram(end.now_ns, &by, &bytes[..12], &mut end.device).unwrap();
        let sent: Vec<MrcHeaders> = end.sent().into_iter().map(|(_, headers)| headers).collect();
        assert_eq!(only_nack(&sent), (reason, psn(0).value(), by.entropy));
    }
    assert_eq!(acks(&take(&mut end, (headers, payload))).len(), 1);
    let by = MrcArrival { trim: Some(Trim::EarlierHop), ..arrival() };
    end.qp.handle_datagram(end.now_ns, &by, &bytes[..40], &mut end.device).unwrap();
    let sent: Vec<MrcHeaders> = end.sent().into_iter().map(|(_, headers)| headers).collect();
    assert_eq!((sacks(&sent).len(), sent.len()), (1, 1));
}

/// The packet is refused by this NAK, and so is what is sent again; the queue pair is in ERROR.
fn refused(mut end: End, packet: (MrcHeaders, Vec<u8>), syndrome: u8, event: AsyncEventType) {
    let sent = take(&mut end, packet.clone());
    let nak = acks(&sent).pop().expect("a NAK");
    assert_eq!((nak.0, nak.1), (packet.0.bth.psn.value(), syndrome));
    assert_eq!((end.qp.state(), end.device.events.last()), (QpState::Err, Some(&event)));
    assert_eq!(acks(&take(&mut end, packet)), [nak]);
    assert_eq!(end.device.received.len(), 0);
}

#[test]
fn what_is_not_allowed_is_refused() {
    let change = |packet: (MrcHeaders, Vec<u8>), change: fn(&mut WriteHeaders)| {
        let (mut headers, payload) = packet;
        if let MrcBody::Write(write) = &mut headers.body {
            change(write);
        }
        (headers, payload)
    };
    use AsyncEventType::{QpAccessErr, QpReqErr};
    let wrong_key = change(write(0, 0, 8, None), |write| write.reth.rkey = 8);
    refused(End::new(), wrong_key, 0x62, QpAccessErr);
    let beyond = change(write(0, 0, 8, None), |write| write.reth.address = (1 << 20) - 7);
    refused(End::new(), beyond, 0x62, QpAccessErr);
    let closed = End::with(|settings: &mut MrcSettings, _, _| settings.access = Access::empty());
    refused(closed, write(0, 0, 8, None), 0x62, QpAccessErr);
    let short = change(write(0, 0, 8, None), |write| write.reth.length = 9);
    refused(End::new(), short, 0x61, QpReqErr);
    refused(End::new(), write(0, 1, 2000, None), 0x61, QpReqErr);
    refused(End::new(), write(0, 0, 8, Some(1)), 0x63, QpReqErr);
    // A packet in the middle that is of another message than the one before it.
    let others: [fn(&mut WriteHeaders); 3] =
        [|write| write.meth.msn = 9, |write| write.reth.length = 2001, |write| write.reth.address += 256];
    for other in others {
        let mut begun = End::new();
        let _ = take(&mut begun, write(0, 0, 2000, None));
        refused(begun, change(write(1, 1, 2000, None), other), 0x61, QpReqErr);
    }
    let mut full = End::with(|_, responder, _| responder.max_wimm_dest = 2);
    (1..3).for_each(|number| assert!(take(&mut full, write(number, 0, 8, Some(1))).is_empty()));
    refused(full, write(3, 0, 8, Some(1)), 0x61, QpReqErr);
}

#[test]
fn an_empty_write_with_immediate_needs_no_key() {
    let mut end = End::new();
    end.device.receives.push_back(70);
    let (mut headers, payload) = write(0, 0, 0, Some(9));
    if let MrcBody::Write(write) = &mut headers.body {
        write.reth = Reth { address: 0, rkey: 0, length: 0 };
    }
    assert_eq!(acks(&take(&mut end, (headers, payload))).len(), 1);
    assert_eq!((end.device.received[0].byte_len, end.device.received[0].imm_data), (0, [0, 0, 0, 9]));
}

#[test]
fn packets_of_others_mean_nothing() {
    let mut end = End::new();
    let (headers, payload) = write(0, 0, 8, None);
    let stranger = MrcBth { destination: Qpn::new(0x13), ..headers.bth };
    assert!(take(&mut end, (MrcHeaders { bth: stranger, ..headers }, payload.clone())).is_empty());
    let partition = MrcBth { pkey: 0x8001, ..headers.bth };
    assert!(take(&mut end, (MrcHeaders { bth: partition, ..headers }, payload)).is_empty());
    // About packets that were never sent.
    for forged in
        [sack(5, 5, u64::MAX, Entropy(0)), ack(5, 0x1f, 3), nack(5, NackReason::Trimmed, Entropy(0))]
    {
        assert!(take(&mut end, (forged, Vec::new())).is_empty());
    }
    assert_eq!(end.qp.statistics().dropped, 5);
}
