//! Listeners: who gets a request, and how many may wait.

use pumice_transport::cm::{
    AcceptParams, BacklogOverflow, CmConfig, CmError, CmEvent, CmState, IgnoredMad, ListenParams,
    ListenScope, ListenerId, MadRoute,
};
use pumice_transport::mad::{CmMessage, CommId, PathFields, PortSpace, RejectReason, Req, ServiceId};
use pumice_transport::wire::{Psn, Qpn};

use crate::kit::*;

/// The n-th request.
fn nth(n: u32) -> Req {
    Req { local_id: CommId(0x100 + n), local_qpn: Qpn::new(0x1000 + n), ..req() }
}

fn asked_whom(bench: &mut Bench) -> ListenerId {
    let CmEvent::ConnectRequest { listener, .. } = bench.event() else { panic!("a request") };
    listener
}

#[test]
fn an_address_goes_before_all_addresses_and_masks_match_many() {
    let mut bench = Bench::new();
    let any = bench.cm.listen(&ListenParams::new(SERVICE, 9)).unwrap();
    let at = |scope| ListenParams { scope, ..ListenParams::new(SERVICE, 9) };
    bench.cm.listen(&at(ListenScope::Ipv6)).unwrap();
    bench.receive(CmMessage::Req(nth(1))).unwrap();
    assert_eq!(asked_whom(&mut bench), any);
    let family = bench.cm.listen(&at(ListenScope::Ipv4)).unwrap();
    bench.receive(CmMessage::Req(nth(5))).unwrap();
    assert_eq!(asked_whom(&mut bench), family);
    let here = bench.cm.listen(&at(ListenScope::At(gid(US)))).unwrap();
    bench.cm.listen(&at(ListenScope::At(gid([9; 4])))).unwrap();
    bench.receive(CmMessage::Req(nth(2))).unwrap();
    assert_eq!(asked_whom(&mut bench), here);
    bench.cm.unlisten(here, bench.now_ns).unwrap();
    bench.cm.unlisten(family, bench.now_ns).unwrap();
    bench.sent();
    bench.receive(CmMessage::Req(nth(3))).unwrap();
    assert_eq!(asked_whom(&mut bench), any);

    let space = ServiceId::rdma_cm(PortSpace::Ib, 0);
    let mask = ServiceId::PORT_SPACE_MASK;
    let all = bench.cm.listen(&ListenParams { mask, ..ListenParams::new(space, 9) }).unwrap();
    let service_id = ServiceId::rdma_cm(PortSpace::Ib, 4711);
    bench.receive(CmMessage::Req(Req { service_id, ..nth(4) })).unwrap();
    assert_eq!(asked_whom(&mut bench), all);
}

/// A host's connection to 127.0.0.1 travels between addresses of its device; RDMA-CM's header says what was
/// asked for.
#[test]
fn a_request_of_this_host_for_loopback_is_served_at_loopback() {
    let mut bench = Bench::new();
    let at = |address| ListenParams { scope: ListenScope::At(gid(address)), ..ListenParams::new(SERVICE, 9) };
    let here = bench.cm.listen(&at(US)).unwrap();
    let localhost = [127, 0, 0, 1];
    let asks = |n, destination| {
        let mut req = nth(n);
        req.private_data.0[..36].copy_from_slice(&ip_header(localhost, destination));
        req.primary.local_gid = gid(US);
        req.primary.remote_gid = gid(US);
        CmMessage::Req(req)
    };
    let own = MadRoute { remote: gid(US), ..route() };
    assert_eq!(
        bench.receive_from(&own, asks(1, localhost)),
        Err(IgnoredMad::NoListener),
        "only at the address"
    );
    let loopback = bench.cm.listen(&at(localhost)).unwrap();
    bench.receive_from(&own, asks(2, localhost)).unwrap();
    assert_eq!(asked_whom(&mut bench), loopback);
    bench.receive_from(&own, asks(3, US)).unwrap();
    assert_eq!(asked_whom(&mut bench), here);
    // What another host says of 127.0.0.1 is not believed.
    let CmMessage::Req(foreign) = asks(4, localhost) else { unreachable!() };
    let primary = PathFields { local_gid: gid(PEER), ..foreign.primary };
    bench.receive(CmMessage::Req(Req { primary, ..foreign })).unwrap();
    assert_eq!(asked_whom(&mut bench), here);
    // A listener at all addresses serves both.
    bench.cm.unlisten(loopback, bench.now_ns).unwrap();
    let any = bench.cm.listen(&ListenParams::new(SERVICE, 9)).unwrap();
    bench.receive_from(&own, asks(5, localhost)).unwrap();
    assert_eq!(asked_whom(&mut bench), any);
}

#[test]
fn a_service_is_listened_for_once() {
    let (mut bench, listener) = Bench::listening();
    assert_eq!(bench.cm.listen(&ListenParams::new(SERVICE, 1)), Err(CmError::ServiceInUse(SERVICE)));
    let mask = ServiceId::PORT_SPACE_MASK;
    let space = ListenParams { mask, ..ListenParams::new(ServiceId::rdma_cm(PortSpace::Tcp, 0), 1) };
    assert!(matches!(bench.cm.listen(&space), Err(CmError::ServiceInUse(_))));
    bench.cm.unlisten(listener, 0).unwrap();
    assert_eq!(bench.cm.unlisten(listener, 0), Err(CmError::UnknownListener));
    bench.cm.listen(&ListenParams::new(SERVICE, 1)).unwrap();
}

#[test]
fn listeners_and_connections_are_limited() {
    let config = CmConfig { max_connections: 2, max_listeners: 1, ..CmConfig::new(OUR_GUID) };
    let mut bench = Bench::with(config);
    bench.cm.listen(&ListenParams::new(SERVICE, 100)).unwrap();
    let second = bench.cm.listen(&ListenParams::new(ServiceId(1), 1));
    assert_eq!(second, Err(CmError::TooManyListeners { limit: 1 }));
    bench.cm.connect(&connect(b""), 0).unwrap();
    bench.receive(CmMessage::Req(nth(1))).unwrap();
    bench.sent();
    assert_eq!(bench.cm.connect(&connect(b""), 0), Err(CmError::TooManyConnections { limit: 2 }));
    assert_eq!(bench.receive(CmMessage::Req(nth(2))), Err(IgnoredMad::Full));
    let CmMessage::Rej(rej) = bench.sent_one() else { panic!("a REJ") };
    assert_eq!(rej.reason, RejectReason::NO_RESOURCES);
    assert_eq!(bench.cm.connection_count(), 2);
}

#[test]
fn a_full_backlog_rejects_or_ignores() {
    for overflow in [BacklogOverflow::Reject, BacklogOverflow::Ignore] {
        let mut bench = Bench::new();
        bench.cm.listen(&ListenParams { overflow, ..ListenParams::new(SERVICE, 2) }).unwrap();
        bench.receive(CmMessage::Req(nth(1))).unwrap();
        bench.receive(CmMessage::Req(nth(2))).unwrap();
        let first = bench.events()[0].id();
        assert_eq!(bench.receive(CmMessage::Req(nth(3))), Err(IgnoredMad::Full));
        match overflow {
            BacklogOverflow::Reject => {
                let CmMessage::Rej(rej) = bench.sent_one() else { panic!("a REJ") };
                assert_eq!((rej.reason, rej.remote_id), (RejectReason::NO_RESOURCES, nth(3).local_id));
            }
            BacklogOverflow::Ignore => assert_eq!(bench.sent(), []),
        }
        // Taken by the consumer: there is room for one, once.
        bench.cm.take_request(first);
        bench.cm.take_request(first);
        bench.receive(CmMessage::Req(nth(4))).unwrap();
        assert_eq!(bench.receive(CmMessage::Req(nth(5))), Err(IgnoredMad::Full));
        bench.sent();
        // Answered: as well.
        let fourth = bench.event().id();
        bench.cm.accept(fourth, &AcceptParams::new(OUR_QPN, Psn::new(1)), 0).unwrap();
        bench.receive(CmMessage::Req(nth(6))).unwrap();
        // Given up: as well.
        let sixth = bench.event().id();
        bench.cm.destroy(sixth, 0).unwrap();
        bench.receive(CmMessage::Req(nth(7))).unwrap();
    }
}

#[test]
fn closing_a_listener_rejects_what_waits_and_keeps_what_was_taken() {
    let (mut bench, listener) = Bench::listening();
    bench.receive(CmMessage::Req(nth(1))).unwrap();
    bench.receive(CmMessage::Req(nth(2))).unwrap();
    let taken = bench.cm.poll_event().unwrap().id();
    bench.cm.take_request(taken);
    bench.cm.unlisten(listener, bench.now_ns).unwrap();
    let CmMessage::Rej(rej) = bench.sent_one() else { panic!("a REJ") };
    assert_eq!((rej.reason, rej.remote_id), (RejectReason::CONSUMER, nth(2).local_id));
    assert_eq!(bench.events(), []);
    assert_eq!(bench.state(taken), Some(CmState::ReqReceived));
    bench.cm.accept(taken, &AcceptParams::new(OUR_QPN, Psn::new(1)), 0).unwrap();
    assert_eq!(bench.receive(CmMessage::Req(nth(3))), Err(IgnoredMad::NoListener));
}
