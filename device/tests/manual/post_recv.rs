//! ibv_post_recv(3).

use pumice_device::hca::{HcaError, QpInit, SrqSetup};
use pumice_transport::types::*;

use crate::kit::scene::Scene;

fn no_change(_: &mut QpInit) {}

/// A list of requests is posted to the receive queue, and messages take them in its order.
#[test]
fn post_recv_posts_a_list_in_order() {
    let mut scene = Scene::new();
    let (first, second) = (scene.b.sge(0, 64), scene.b.sge(64, 64));
    let list = [
        RecvRequest { wr_id: 11, sges: &[first] },
        RecvRequest { wr_id: 12, sges: &[second] },
        RecvRequest { wr_id: 13, sges: &[] },
    ];
    scene.b.hca.post_recvs(scene.qb, &list).unwrap();
    scene.b.hca.post_recvs(scene.qb, &[]).unwrap();
    scene.a.memory.write(0, b"one");
    scene.send(1, 3);
    scene.settle();
    scene.a.memory.write(0, b"two");
    scene.send(2, 3);
    scene.send(3, 0);
    scene.settle();
    let got: Vec<_> = scene.b.drain().iter().map(|wc| (wc.wr_id, wc.byte_len)).collect();
    assert_eq!(got, [(11, 3), (12, 3), (13, 0)]);
    assert_eq!((scene.b.memory.read(0, 3), scene.b.memory.read(64, 3)), (b"one".to_vec(), b"two".to_vec()));
}

/// The elements of a request are filled one after the other; an empty one is skipped.
#[test]
fn post_recv_scatters_over_its_elements() {
    let mut scene = Scene::with(QpType::Rc, no_change, |init| init.capacity.max_recv_sge = 3);
    let sges = [scene.b.sge(100, 2), scene.b.sge(300, 0), scene.b.sge(200, 8)];
    scene.b.hca.post_recv(scene.qb, &RecvRequest { wr_id: 1, sges: &sges }).unwrap();
    scene.a.memory.write(0, b"scatter");
    scene.send(1, 7);
    scene.settle();
    assert_eq!(scene.b.drain()[0].byte_len, 7);
    assert_eq!(scene.b.memory.read(100, 2), b"sc");
    assert_eq!(scene.b.memory.read(200, 5), b"atter");
}

/// It stops at the first request that can be refused at once and says which; what came before is posted, what
/// comes behind is not looked at.
#[test]
fn post_recv_stops_at_the_first_failure_and_names_it() {
    let mut scene = Scene::new();
    let sge = scene.b.sge(0, 64);
    let too_many = [sge, sge, sge];
    let list = [
        RecvRequest { wr_id: 1, sges: &[sge] },
        RecvRequest { wr_id: 2, sges: &[sge] },
        RecvRequest { wr_id: 3, sges: &too_many },
        RecvRequest { wr_id: 4, sges: &[sge] },
    ];
    let (position, error) = scene.b.hca.post_recvs(scene.qb, &list).unwrap_err();
    assert_eq!((position, error.errno()), (2, libc::EINVAL));
    for wr_id in 0..2 {
        scene.send(wr_id, 8);
    }
    scene.settle();
    let got: Vec<u64> = scene.b.drain().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(got, [1, 2]);
    scene.b.move_to(scene.qb, QpState::Err);
    assert!(scene.b.drain().is_empty(), "request 4 was never posted");
}

/// Only what can be seen at once is refused: a wrong key shows when a message comes.
#[test]
fn post_recv_does_not_look_at_keys() {
    let mut scene = Scene::new();
    let bad = Sge { lkey: 0xdead_0000, ..scene.b.sge(0, 64) };
    scene.b.hca.post_recv(scene.qb, &RecvRequest { wr_id: 1, sges: &[bad] }).unwrap();
    assert_eq!(scene.states().1, QpState::Rts);
    scene.send(9, 8);
    scene.settle();
    assert_eq!(scene.b.outcomes(), [(1, WcStatus::LocProtErr)]);
    assert_eq!(scene.a.outcomes(), [(9, WcStatus::RemOpErr)]);
}

/// Success is 0; otherwise the value is an errno that tells the reason.
#[test]
fn post_recv_returns_the_errno_of_the_reason() {
    let scene = Scene::with(QpType::Rc, no_change, |init| init.capacity.max_recv_wr = 4);
    let granted = scene.b.hca.query_qp(scene.qb).unwrap().cap;
    let request = RecvRequest { wr_id: 1, sges: &[] };
    let errno = |result: Result<(), HcaError>| result.map_err(|error| error.errno());
    for _ in 0..granted.max_recv_wr {
        assert_eq!(errno(scene.b.hca.post_recv(scene.qb, &request)), Ok(()));
    }
    assert_eq!(errno(scene.b.hca.post_recv(scene.qb, &request)), Err(libc::ENOMEM), "full");
    let fresh = scene.b.create_qp(QpType::Rc);
    assert_eq!(errno(scene.b.hca.post_recv(fresh, &request)), Err(libc::EINVAL), "RESET");
    scene.b.to_init(fresh);
    assert_eq!(errno(scene.b.hca.post_recv(fresh, &request)), Ok(()), "from INIT on");
    scene.b.hca.destroy_qp(fresh).unwrap();
    assert_eq!(errno(scene.b.hca.post_recv(fresh, &request)), Err(libc::EINVAL), "no such queue pair");
}

/// A queue pair in ERR takes receives and flushes them.
#[test]
fn post_recv_in_err_is_flushed() {
    let scene = Scene::new();
    scene.b.move_to(scene.qb, QpState::Err);
    for wr_id in 0..20 {
        scene.b.post_recv(scene.qb, wr_id, 0, 8);
    }
    let flushed: Vec<_> = (0..20).map(|wr_id| (wr_id, WcStatus::WrFlushErr)).collect();
    assert_eq!(scene.b.outcomes(), flushed);
}

/// A buffer is the device's until its completion was polled, and the application's afterwards.
#[test]
fn post_recv_leaves_a_buffer_alone_once_it_completed() {
    let mut scene = Scene::new();
    scene.b.post_recv(scene.qb, 1, 0, 64);
    scene.b.post_recv(scene.qb, 2, 64, 64);
    scene.a.memory.write(0, b"first");
    scene.send(1, 5);
    scene.settle();
    assert_eq!(scene.b.outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(scene.b.memory.read(0, 5), b"first", "all of the message is there when it completes");
    scene.b.memory.write(0, b"reused");
    scene.send(2, 5);
    scene.b.move_to(scene.qb, QpState::Err);
    scene.settle();
    assert_eq!(scene.b.memory.read(0, 6), b"reused");
}

/// A queue pair with an SRQ has no receive queue of its own to post to; the SRQ takes the requests.
#[test]
fn post_recv_is_refused_where_an_srq_receives() {
    let mut scene = Scene::new();
    let setup = SrqSetup { pd: scene.b.pd, max_wr: 4, max_sge: 1, cookie: 0, xrc: None, tags: None };
    let srq = scene.b.hca.create_srq(&setup).unwrap();
    let mut init = scene.b.qp_init(QpType::Rc);
    init.srq = Some(srq);
    let (qb, granted) = scene.b.hca.create_qp(&init).unwrap();
    assert_eq!((granted.max_recv_wr, granted.max_recv_sge), (0, 0));
    let qa = scene.a.create_qp(QpType::Rc);
    scene.connect_pair(QpType::Rc, qa, qb, crate::kit::Connection::default());
    let sge = scene.b.sge(0, 64);
    let request = RecvRequest { wr_id: 1, sges: &[sge] };
    let (position, error) = scene.b.hca.post_recvs(qb, &[request]).unwrap_err();
    assert_eq!((position, error.errno()), (0, libc::EINVAL));
    assert!(error.to_string().contains("SRQ"), "{error}");
    scene.b.hca.post_srq_recv(srq, &request).unwrap();
    scene.qa = qa;
    scene.send(1, 8);
    scene.settle();
    assert_eq!(scene.b.outcomes(), [(1, WcStatus::Success)]);
}

/// What has no receive queue takes no receives either.
#[test]
fn post_recv_is_refused_on_xrc_queue_pairs() {
    let scene = Scene::new();
    let mut init = scene.a.qp_init(QpType::XrcInitiator);
    init.recv_cq = None;
    let initiator = scene.a.hca.create_qp(&init).unwrap().0;
    let mut init = scene.a.qp_init(QpType::XrcTarget);
    (init.pd, init.send_cq, init.recv_cq) = (None, None, None);
    init.xrcd = Some(scene.a.hca.open_xrcd().unwrap());
    let target = scene.a.hca.create_qp(&init).unwrap().0;
    for qpn in [initiator, target] {
        scene.a.to_init(qpn);
        let error = scene.a.hca.post_recv(qpn, &RecvRequest { wr_id: 1, sges: &[] }).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL);
    }
}

/// The first 40 bytes of a datagram's buffers are for the GRH. Over IPv6 that is the IPv6 header; over IPv4
/// it is 20 bytes without meaning and the IPv4 header.
#[test]
fn post_recv_on_ud_gets_the_grh_in_the_first_40_bytes() {
    for addresses in [["10.0.0.1", "10.0.0.2"], ["2001:db8::1", "2001:db8::2"]] {
        let mut scene = Scene::on(addresses, QpType::Ud, no_change, no_change);
        let octets = [scene.a.ip, scene.b.ip].map(|ip| Gid::from(ip).0);
        scene.b.memory.write(0, &[0xee; 80]);
        scene.b.post_recv(scene.qb, 1, 0, 80);
        scene.a.memory.write(0, b"datagram");
        scene.post(&SendRequest {
            sges: &[scene.a.sge(0, 8)],
            ud: Some(scene.destination(0x1111_1111)),
            ..SendRequest::new(1, SendOpcode::Send)
        });
        scene.settle();
        let got = scene.b.drain()[0];
        assert_eq!((got.byte_len, got.flags), (48, WcFlags::GRH));
        let buffer = scene.b.memory.read(0, 80);
        assert_eq!(&buffer[40..48], b"datagram");
        assert_eq!(&buffer[48..], [0xee; 32], "nothing behind the message is touched");
        if scene.a.ip.is_ipv4() {
            let header = &buffer[20..40];
            assert_eq!(header[0], 0x45);
            assert_eq!(internet_checksum(header), 0, "a right header checksum tells IPv4 from IPv6");
            assert_eq!((&header[12..16], &header[16..20]), (&octets[0][12..], &octets[1][12..]));
        } else {
            assert_eq!(buffer[0] >> 4, 6);
            assert_eq!((&buffer[8..24], &buffer[24..40]), (&octets[0][..], &octets[1][..]));
        }
    }
}

/// The message begins at offset 40 of the buffers, for all lengths of their elements.
#[test]
fn post_recv_on_ud_puts_the_message_behind_40_bytes_across_elements() {
    let mut scene = Scene::with(QpType::Ud, no_change, |init| init.capacity.max_recv_sge = 3);
    let sges = [scene.b.sge(0, 39), scene.b.sge(100, 3), scene.b.sge(200, 20)];
    scene.b.hca.post_recv(scene.qb, &RecvRequest { wr_id: 1, sges: &sges }).unwrap();
    scene.a.memory.write(0, b"abcdef");
    scene.post(&SendRequest {
        sges: &[scene.a.sge(0, 6)],
        ud: Some(scene.destination(0x1111_1111)),
        ..SendRequest::new(1, SendOpcode::Send)
    });
    scene.settle();
    assert_eq!(scene.b.drain()[0].byte_len, 46);
    assert_eq!(scene.b.memory.read(101, 2), b"ab");
    assert_eq!(scene.b.memory.read(200, 4), b"cdef");
}

fn internet_checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}
