//! Partitions: a P_Key table with more than the default entry, and who hears whom.

mod kit;

use kit::{Connection, Node, address_vector, connect};
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::{CqSetup, HcaConfig};
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::host::Counter;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

/// Default, a partition as full member, the same as limited member, another one as full member.
const TABLE: [u16; 4] = [0xffff, 0x8123, 0x0123, 0x8777];

fn node(world: &mut World, ip: &str) -> Node {
    let mut config =
        HcaConfig::new("pumice", vec![GidEntry::new(ip.parse().unwrap(), "sim", 0, Mtu::Mtu4096)]);
    config.pkeys = TABLE.to_vec();
    config.limits.pkey_table_len = 16;
    let hca = world.add_hca_with(config, |port| Box::new(port)).unwrap();
    let pd = hca.alloc_pd().unwrap();
    let cq = hca.create_cq(CqSetup { depth: 64, ..CqSetup::default() }).unwrap();
    let memory = kit::Memory::new(4096);
    let keys = memory.register(&hca, pd, kit::ALL_ACCESS);
    Node {
        hca,
        ip: ip.parse().unwrap(),
        pd,
        cq,
        memory,
        region: keys.handle,
        lkey: keys.lkey,
        rkey: keys.rkey,
    }
}

/// RESET to INIT in a partition.
fn to_init(node: &Node, qpn: Qpn, pkey_index: u16, datagram: bool) -> Result<(), i32> {
    use AttributeMask as M;
    let attributes = QpAttributes {
        qp_state: QpState::Init as u32,
        port_num: 1,
        access: 15,
        qkey: 0x1111_1111,
        pkey_index,
        ..QpAttributes::default()
    };
    let third = if datagram { M::QKEY } else { M::ACCESS_FLAGS };
    let modified = node.hca.modify_qp(qpn, &attributes, M::STATE | M::PKEY_INDEX | M::PORT | third);
    modified.map_err(|error| error.errno())
}

/// Whether a message from partition `here` at one device reaches partition `there` at another.
fn hears(here: u16, there: u16, qp_type: QpType) -> bool {
    let mut world = World::new(FabricConfig::default());
    let (a, b) = (node(&mut world, "10.0.0.1"), node(&mut world, "10.0.0.2"));
    let (qa, qb) = (a.create_qp(qp_type), b.create_qp(qp_type));
    if qp_type.is_datagram() {
        a.to_rts_datagram(qa, 0);
        b.to_rts_datagram(qb, 0);
    } else {
        connect(&a, qa, &b, qb, qp_type.is_reliable(), Connection::default());
    }
    // To other partitions: SQD lets a connected queue pair and a datagram one change theirs.
    for (node, qpn, pkey_index) in [(&a, qa, here), (&b, qb, there)] {
        node.move_to(qpn, QpState::Sqd);
        let attributes = QpAttributes { pkey_index, ..QpAttributes::default() };
        node.hca.modify_qp(qpn, &attributes, AttributeMask::PKEY_INDEX).unwrap();
        node.move_to(qpn, QpState::Rts);
        assert_eq!(node.hca.query_qp(qpn).unwrap().pkey_index, pkey_index);
    }
    b.post_recv(qb, 1, 0, 256);
    let sges = [a.sge(0, 8)];
    let ud = qp_type.is_datagram().then(|| {
        let (_, path) = a.hca.create_ah(a.pd, &address_vector(b.ip)).unwrap();
        UdDestination { path, qpn: qb, qkey: 0x1111_1111 }
    });
    let request = SendRequest { sges: &sges, ud, ..SendRequest::new(2, SendOpcode::Send) };
    a.hca.post_send(qa, &request).unwrap();
    world.run_until(1_000_000, || false);
    let received = b.drain().len() == 1;
    assert_eq!(received, b.counter(Counter::RxBadPkey) == 0, "what is not heard is counted");
    received
}

#[test]
fn partitions_hear_their_own_and_two_limited_members_do_not() {
    const DEFAULT: u16 = 0;
    const FULL: u16 = 1;
    const LIMITED: u16 = 2;
    const OTHER: u16 = 3;
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        for (here, there, expected) in [
            (DEFAULT, DEFAULT, true),
            (FULL, FULL, true),
            (FULL, LIMITED, true),
            (LIMITED, FULL, true),
            (LIMITED, LIMITED, false),
            (FULL, OTHER, false),
            (DEFAULT, FULL, false),
        ] {
            assert_eq!(hears(here, there, qp_type), expected, "{here} to {there} on {}", qp_type.name());
        }
    }
}

#[test]
fn indices_without_a_key_and_beyond_the_table_are_refused() {
    let mut world = World::new(FabricConfig::default());
    let a = node(&mut world, "10.0.0.1");
    for (qp_type, datagram) in [(QpType::Rc, false), (QpType::Ud, true)] {
        for pkey_index in [4, 15, 16, u16::MAX] {
            let qpn = a.create_qp(qp_type);
            assert_eq!(to_init(&a, qpn, pkey_index, datagram), Err(libc::EINVAL), "{pkey_index}");
            assert_eq!(a.state(qpn), QpState::Reset);
            assert_eq!(to_init(&a, qpn, 3, datagram), Ok(()));
        }
    }
    let table = a.hca.port(1).unwrap().pkeys;
    let keys: Vec<u16> = (0..16).map(|index| table.pkey(index).unwrap()).collect();
    assert_eq!(&keys[..4], TABLE);
    assert_eq!(&keys[4..], [0; 12]);
    assert_eq!(table.pkey(16).unwrap_err().errno(), libc::EINVAL);
}
