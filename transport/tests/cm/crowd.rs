//! Many connections, and floods of requests: memory is bounded, and nothing stays.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pumice_transport::cm::{
    AcceptParams, BacklogOverflow, Cm, CmConfig, CmError, CmEvent, CmPath, ConnectParams, IdSource,
    ListenParams, ListenScope, MadRoute,
};
use pumice_transport::mad::{CmMessage, CommId, PortSpace, PrivateData, Req, ServiceId, SidrReq};
use pumice_transport::types::Mtu;
use pumice_transport::wire::{ProcessIndex, Psn, Qpn};

use crate::kit::*;

/// Counts the bytes that this thread holds.
struct Counting;

thread_local! {
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // Nothing is counted while the thread ends.
    let _ = HELD_BYTES.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn held_bytes() -> isize {
    HELD_BYTES.with(Cell::get)
}

const CROWD: u32 = 10_000;

/// Hands every MAD of one to the other.
fn deliver(from: &mut Cm, to: &mut Cm, now_ns: u64) {
    while let Some(out) = from.poll_transmit() {
        let mut route = out.route;
        std::mem::swap(&mut route.local, &mut route.remote);
        let _ = to.handle_mad(&route, &out.mad, now_ns);
    }
}

#[test]
fn ten_thousand_connections_at_once() {
    let before = held_bytes();
    let mut client = Cm::new(CmConfig::new(1), IdSource::new(ProcessIndex::new(1), 0xfffff0));
    let mut server = Cm::new(CmConfig::new(2), IdSource::new(ProcessIndex::new(2), 7));
    server.listen(&ListenParams::new(SERVICE, 4)).unwrap();
    let header = ip_header(US, PEER);
    let mut peak = 0;
    for n in 0..CROWD {
        let path = CmPath::new(route(), Mtu::Mtu1024);
        let params = ConnectParams {
            private_data: &header,
            ..ConnectParams::new(SERVICE, path, Qpn::new(n + 2), Psn::new(n))
        };
        client.connect(&params, 0).unwrap();
        deliver(&mut client, &mut server, 0);
        let Some(CmEvent::ConnectRequest { id, .. }) = server.poll_event() else { panic!("request {n}") };
        server.accept(id, &AcceptParams::new(Qpn::new(n + 2), Psn::new(n)), 0).unwrap();
        // The replies are under way for a while.
        if n % 100 == 99 {
            peak = peak.max(held_bytes() - before);
            deliver(&mut server, &mut client, 0);
            while let Some(CmEvent::ConnectResponse { id, .. }) = client.poll_event() {
                client.send_rtu(id, &[]).unwrap();
            }
            deliver(&mut client, &mut server, 0);
            while server.poll_event().is_some() {}
        }
    }
    assert_eq!((client.connection_count(), server.connection_count()), (10_000, 10_000));
    let each = (held_bytes() - before) / (2 * CROWD as isize);
    assert!(each < 1024, "{each} bytes");
    assert_eq!((client.poll_timeout(), server.poll_timeout()), (None, None));

    // All at once: the client has gone.
    let ids: Vec<CommId> = (0..CROWD).map(|n| CommId(1 << 24 | (0xfffff0 + n) & 0xff_ffff)).collect();
    for id in &ids {
        client.destroy(*id, 0).unwrap();
        deliver(&mut client, &mut server, 0);
        let Some(CmEvent::DisconnectRequest { id, .. }) = server.poll_event() else { panic!("{id}") };
        server.destroy(id, 0).unwrap();
        deliver(&mut server, &mut client, 0);
    }
    for _ in 0..=CROWD as usize / Cm::TIMEOUTS_PER_CALL {
        client.handle_timeout(10 * SECOND_NS);
        server.handle_timeout(10 * SECOND_NS);
    }
    assert!(client.is_empty());
    assert_eq!(server.connection_count(), 0);
    drop((client, server, ids));
    assert_eq!(held_bytes(), before, "memory is given back");
    eprintln!("{each} bytes for each end of an established connection; {} KiB at the peak", peak / 1024);
}

/// Every request has its own id and queue pair, as a flood has.
#[test]
fn a_flood_of_requests_fills_the_backlog_and_no_more() {
    for overflow in [BacklogOverflow::Reject, BacklogOverflow::Ignore] {
        let mut bench = Bench::new();
        let listener =
            bench.cm.listen(&ListenParams { overflow, ..ListenParams::new(SERVICE, 128) }).unwrap();
        let mut rejected = 0;
        let mut at_the_limit = 0;
        for n in 0..100_000 {
            let flood =
                Req { local_id: CommId(n + 1), local_qpn: Qpn::new(n), local_ca_guid: n.into(), ..req() };
            let _ = bench.receive(CmMessage::Req(flood));
            rejected += bench.sent().len();
            match n {
                1_000 => at_the_limit = held_bytes(),
                1_001.. => assert_eq!(held_bytes(), at_the_limit, "request {n}"),
                _ => {}
            }
        }
        assert_eq!(bench.cm.connection_count(), 128);
        assert_eq!(rejected, if overflow == BacklogOverflow::Reject { 100_000 - 128 } else { 0 });
        assert_eq!(bench.events().len(), 128);
        bench.cm.unlisten(listener, bench.now_ns).unwrap();
        assert_eq!(bench.sent().len(), 128);
        bench.assert_gone();
    }
}

/// The caller does not drain the outputs: what is not sent is lost.
#[test]
fn outputs_that_are_not_drained_are_bounded() {
    let mut bench = Bench::new();
    for n in 0..10 * Cm::MAX_QUEUED_TRANSMITS as u32 {
        let _ = bench.receive(CmMessage::Req(Req { local_id: CommId(n + 1), ..req() }));
    }
    assert_eq!(bench.sent().len(), Cm::MAX_QUEUED_TRANSMITS);
}

/// A listener for every port there is, and one for all of them at an address.
#[test]
fn sixty_thousand_listeners_are_told_apart() {
    let mut bench = Bench::new();
    let service = |port| ServiceId::rdma_cm(PortSpace::Udp, port);
    let ids: Vec<_> =
        (0..60_000).map(|port| bench.cm.listen(&ListenParams::new(service(port), 1)).unwrap()).collect();
    let all = ListenParams {
        mask: ServiceId::PORT_SPACE_MASK,
        scope: ListenScope::At(gid(PEER)),
        ..ListenParams::new(service(0), 8)
    };
    let all = bench.cm.listen(&all).unwrap();
    for port in [0, 1, 59_999] {
        let taken = bench.cm.listen(&ListenParams::new(service(port), 1));
        assert!(matches!(taken, Err(CmError::ServiceInUse(_))), "{taken:?}");
    }
    let ask = |bench: &mut Bench, port: u16, local| {
        let header = PrivateData::new(&ip_header(PEER, US)).unwrap();
        let question = SidrReq {
            request_id: CommId(port.into()),
            pkey: 0xffff,
            service_id: service(port),
            private_data: header,
        };
        let _ = bench.receive_from(&MadRoute { local: gid(local), ..route() }, CmMessage::SidrReq(question));
        let event = bench.cm.poll_event();
        let Some(CmEvent::SidrRequest { listener, .. }) = event else { panic!("{event:?}") };
        listener
    };
    assert_eq!(ask(&mut bench, 777, US), ids[777]);
    assert_eq!(ask(&mut bench, 778, PEER), all, "the one with an address goes before");
    assert_eq!(ask(&mut bench, 60_001, PEER), all);
    for id in ids.into_iter().chain([all]) {
        bench.cm.unlisten(id, bench.now_ns).unwrap();
    }
    while bench.cm.poll_transmit().is_some() {}
    assert!(bench.cm.is_empty());
}
