//! UD, multicast and UC.

use std::net::IpAddr;

use pumice_device::faults::{Fault, WirePlan};
use pumice_transport::host::Counter;
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::kit::address_vector;
use crate::kit::scene::Scene;

const QKEY: u32 = 0x1111_1111;

fn datagram(scene: &Scene, wr_id: u64, length: u32, ud: UdDestination) {
    scene.post(&SendRequest {
        sges: &[scene.a.sge(0, length)],
        ud: Some(ud),
        ..SendRequest::new(wr_id, SendOpcode::Send)
    });
}

/// byte_len counts the 40 bytes in front; the IPv4 header is in bytes 20 to 39 with a right checksum; src_qp
/// is the sender's.
#[test]
fn statement_40_a_datagram_has_40_bytes_in_front_with_its_ip_header() {
    for length in [0, 1, 1000] {
        let mut scene = Scene::of(QpType::Ud);
        scene.b.post_recv(scene.qb, 1, 0, 2048);
        let ud = scene.destination(QKEY);
        datagram(&scene, 1, length, ud);
        scene.settle();
        let got = scene.b.drain()[0];
        assert_eq!((got.byte_len, got.src_qp), (40 + length, scene.qa.value()));
        let header = scene.b.memory.read(20, 20);
        let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum: u32 = words.sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the header's checksum");
        assert_eq!((header[0], header[9]), (0x45, 17));
        assert_eq!((&header[12..16], &header[16..]), (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..]));
    }
}

/// A wrong Q_Key is dropped and counted; a remote_qkey with its top bit set stands for the sender's own.
#[test]
fn statement_41_a_wrong_qkey_is_dropped_and_the_top_bit_means_the_own_one() {
    let mut scene = Scene::of(QpType::Ud);
    scene.b.post_recv(scene.qb, 1, 0, 256);
    let wrong = scene.destination(QKEY + 1);
    datagram(&scene, 1, 8, wrong);
    scene.settle();
    assert_eq!((scene.b.drain().len(), scene.b.counter(Counter::RxBadQkey)), (0, 1));
    let own = scene.destination(0x8000_0000);
    datagram(&scene, 2, 8, own);
    scene.settle();
    assert_eq!((scene.b.outcomes(), scene.b.counter(Counter::RxBadQkey)), (vec![(1, WcStatus::Success)], 1));
    assert_eq!(scene.a.outcomes(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
}

/// Each queue pair of a group gets one copy, of local senders too, however often it was attached.
#[test]
fn statement_42_each_member_of_a_group_gets_one_copy_also_from_a_local_sender() {
    let mut scene = Scene::of(QpType::Ud);
    let group: IpAddr = "239.5.6.7".parse().unwrap();
    let gid = Gid::from(group);
    let other = scene.a.create_qp(QpType::Ud);
    scene.a.to_rts_datagram(other, 0);
    for (node, qpn) in [(&scene.a, scene.qa), (&scene.a, other), (&scene.b, scene.qb)] {
        node.hca.attach_mcast(qpn, gid).unwrap();
        node.hca.attach_mcast(qpn, gid).unwrap();
        for wr_id in 0..3 {
            node.post_recv(qpn, 1000 + wr_id, 4096, 256);
        }
    }
    let (_, path) = scene.a.hca.create_ah(scene.a.pd, &address_vector(group)).unwrap();
    let ud = UdDestination { path, qpn: Qpn::MULTICAST, qkey: QKEY };
    datagram(&scene, 1, 8, ud.clone());
    scene.settle();
    let receivers = |node: &crate::kit::Node| {
        let mut all: Vec<u32> =
            node.drain().iter().filter(|wc| wc.opcode.is_recv()).map(|wc| wc.qp_num).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(receivers(&scene.a), [scene.qa.value(), other.value()], "the sender is a member as well");
    assert_eq!(receivers(&scene.b), [scene.qb.value()]);
    // Attached twice, detached once: out.
    scene.a.hca.detach_mcast(other, gid).unwrap();
    datagram(&scene, 2, 8, ud);
    scene.settle();
    assert_eq!((receivers(&scene.a), receivers(&scene.b)), (vec![scene.qa.value()], vec![scene.qb.value()]));
}

/// UC: a lost packet costs its message only; the receive that was being filled serves the next message,
/// without a completion in between.
#[test]
fn statement_43_a_lost_middle_costs_one_message_and_no_receive() {
    let mut scene = Scene::of(QpType::Uc);
    for wr_id in 1..=2 {
        scene.b.post_recv(scene.qb, wr_id, 8192 * wr_id as usize, 8192);
    }
    // Path MTU 1024: the second of three packets.
    scene.world.fabric().play(&WirePlan::new().at(scene.a.ip, scene.b.ip, 1, Fault::Drop));
    scene.a.memory.write(0, &[1; 3000]);
    scene.send(1, 3000);
    scene.settle();
    assert!(scene.b.drain().is_empty());
    scene.a.memory.write(0, &[2; 3000]);
    scene.send(2, 3000);
    scene.send(3, 3000);
    scene.settle();
    assert_eq!(scene.b.outcomes(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!(scene.b.memory.read(8192, 3000), [2; 3000]);
    let sent = scene.a.outcomes();
    assert_eq!(sent, [1, 2, 3].map(|wr_id| (wr_id, WcStatus::Success)), "UC does not learn of losses");
}
