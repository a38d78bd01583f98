//! EV probes and port status updates between two hosts.

use std::net::{IpAddr, Ipv4Addr};

use pumice_transport::mrc::endpoint::{ENDPOINT_QPN, Endpoint, EndpointEvent, EndpointPacket};
use pumice_transport::mrc::entropy::{Entropy, Plane, Planes, TrafficClass};
use pumice_transport::mrc::paths::Ev;
use pumice_transport::mrc::wire::{MrcBody, MrcOpcode, MrcPacket};
use pumice_transport::types::SendOpcode;
use pumice_transport::wire::Qpn;

use crate::kit::{End, arrival};

const EV: Ev = Ev { entropy: Entropy(0x0001_c123), plane: Plane(2) };

fn host(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

/// What leaves an endpoint now.
fn sent(endpoint: &mut Endpoint, now_ns: u64) -> Vec<EndpointPacket> {
    let packets = std::iter::from_fn(|| endpoint.poll_transmit(now_ns)).collect();
    assert!(!endpoint.wants_to_send());
    packets
}

fn take(endpoint: &mut Endpoint, now_ns: u64, from: IpAddr, packet: &EndpointPacket) {
    let mut bytes = vec![0; packet.headers.packet_len(0)];
    packet.headers.emit(0, &mut bytes).unwrap();
    endpoint.handle_packet(now_ns, from, &arrival(), &MrcPacket::parse(&bytes).unwrap());
}

#[test]
fn an_ev_probe_is_answered_by_its_number() {
    let [mut asks, mut answers] = [Endpoint::new(0xffff), Endpoint::new(0xffff)];
    let owner = Qpn::new(0x12);
    let request_id = asks.probe(host(2), owner, EV);
    let probe = sent(&mut asks, 1_000)[0];
    assert_eq!((probe.departure.entropy, probe.departure.plane, probe.peer), (EV.entropy, EV.plane, host(2)));
    assert_eq!(probe.headers.bth.destination, ENDPOINT_QPN);
    take(&mut answers, 2_000, host(1), &probe);
    let answer = sent(&mut answers, 2_000)[0];
    assert_eq!(answer.headers.bth.opcode, MrcOpcode::EndpointResponse);
    assert_eq!(
        (answer.departure.class, answer.headers.bth.psn),
        (TrafficClass::Control, probe.headers.bth.psn)
    );
    // Another host cannot answer, and one answer counts.
    take(&mut asks, 3_000, host(3), &answer);
    assert_eq!(asks.poll_event(), None);
    (0..2).for_each(|_| take(&mut asks, 3_000, host(2), &answer));
    let event = EndpointEvent::Answered { request_id, owner, ev: EV, rtt_ns: 2_000 };
    assert_eq!((asks.poll_event(), asks.poll_event()), (Some(event), None));
    assert_eq!((asks.deadline_ns(), answers.poll_event()), (None, None));
}

#[test]
fn an_ev_probe_is_not_sent_again() {
    let mut asks = Endpoint::new(0xffff);
    let request_id = asks.probe(host(2), Qpn::new(0x12), EV);
    let _ = sent(&mut asks, 0);
    let due_ns = asks.deadline_ns().unwrap();
    asks.handle_timeout(due_ns - 1);
    assert!(asks.poll_event().is_none());
    asks.handle_timeout(due_ns);
    let event = EndpointEvent::Unanswered { request_id, owner: Qpn::new(0x12), ev: EV };
    assert_eq!((asks.poll_event(), asks.wants_to_send(), asks.deadline_ns()), (Some(event), false, None));
}

#[test]
fn a_port_status_update_is_sent_until_it_is_answered() {
    let [mut asks, mut answers] = [Endpoint::new(0xffff), Endpoint::new(0xffff)];
    asks.update_ports(host(2), EV, Planes(0b1111));
    let planes = Planes(0b1011);
    asks.update_ports(host(2), EV, planes);
    let (mut now_ns, mut waits) = (0, Vec::new());
    for _ in 0..4 {
        assert_eq!(sent(&mut asks, now_ns).len(), 1, "the newest one only");
        let due_ns = asks.deadline_ns().unwrap();
        waits.push((due_ns - now_ns) / 1_000_000);
        now_ns = due_ns;
        asks.handle_timeout(now_ns);
    }
    assert_eq!(waits, [1, 2, 4, 8]);
    let update = sent(&mut asks, now_ns)[0];
    take(&mut answers, now_ns, host(1), &update);
    assert_eq!(answers.poll_event(), Some(EndpointEvent::PortStatus { peer: host(1), planes }));
    take(&mut asks, now_ns, host(2), &sent(&mut answers, now_ns)[0]);
    let answered = EndpointEvent::PortsAnswered { request_id: 1, ev: EV, rtt_ns: 0 };
    assert_eq!((asks.deadline_ns(), asks.poll_event()), (None, Some(answered)));
    assert_eq!(asks.poll_event(), None);
    // A peer that never answers.
    asks.update_ports(host(3), EV, planes);
    while asks.poll_event() != Some(EndpointEvent::PeerSilent { peer: host(3) }) {
        let _ = sent(&mut asks, now_ns);
        now_ns = asks.deadline_ns().unwrap();
        asks.handle_timeout(now_ns);
    }
    assert_eq!(asks.deadline_ns(), None);
}

#[test]
fn who_only_receives_asks_for_a_way_back() {
    let mut end = End::new();
    assert_eq!(end.qp.poll_ev_probe(end.now_ns), None, "nothing has come");
    let mut peer = End::with(|settings, _, _| {
        (settings.context, settings.peer) = (crate::device::context(0x11), Qpn::new(0x12));
    });
    peer.post(1, SendOpcode::RdmaWrite, 8);
    let (_, headers) = peer.sent()[0];
    end.take(&headers, &[0; 8]);
    let ev = end.qp.poll_ev_probe(end.now_ns).expect("data has come");
    assert_eq!(end.qp.poll_ev_probe(end.now_ns), None, "once a round trip");
    let answers = end.sent();
    assert!(answers.iter().all(|(departure, _)| departure.entropy == arrival().entropy));
    let way = Ev { plane: arrival().plane, ..ev };
    end.qp.confirm_reverse(end.now_ns, way);
    end.take(&headers, &[0; 8]);
    let answers = end.sent();
    assert!(answers.iter().any(|(_, headers)| matches!(headers.body, MrcBody::Sack(..))));
    assert!(answers.iter().all(|(departure, _)| departure.entropy == way.entropy));
}
