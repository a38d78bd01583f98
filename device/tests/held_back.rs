//! Unreliable senders wait for a port that does not admit their batches; other senders do not.

mod kit;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kit::{Connection, Node, connect};
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::HcaConfig;
use pumice_device::port::{FabricConfig, Peer, PortLayer, ProcessGroup, SimPort};
use pumice_device::world::World;
use pumice_transport::types::*;

/// A port that admits unreliable batches to one address only while it is told to.
struct Gate {
    inner: SimPort,
    closed_to: IpAddr,
    open: Arc<AtomicBool>,
}

impl PortLayer for Gate {
    type Below = SimPort;

    fn below(&self) -> &SimPort {
        &self.inner
    }
    fn below_mut(&mut self) -> &mut SimPort {
        &mut self.inner
    }
    fn group_through(&mut self) -> Option<&mut dyn ProcessGroup> {
        Some(self)
    }
}

impl ProcessGroup for Gate {
    fn admits(&mut self, _now_ns: u64, peer: Peer) -> bool {
        peer.address != self.closed_to || self.open.load(Ordering::Relaxed)
    }
}

/// A node behind a gate to 10.0.0.2, and one at 10.0.0.2.
fn gated(world: &mut World) -> (Node, Node, Arc<AtomicBool>) {
    let open = Arc::new(AtomicBool::new(false));
    let (ip, closed_to): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let config = HcaConfig::new("pumice0", vec![GidEntry::new(ip, "sim", 0, Mtu::Mtu4096)]);
    let switch = Arc::clone(&open);
    let hca = world.add_hca_with(config, |inner| Box::new(Gate { inner, closed_to, open: switch })).unwrap();
    let a = Node::on(hca, ip, 1 << 20, 64);
    (a, Node::new(world, "10.0.0.2", 1 << 20, 64), open)
}

#[test]
fn a_message_waits_until_it_is_admitted_and_arrives_whole() {
    const LENGTH: u32 = 300_000;
    let mut world = World::new(FabricConfig::default());
    let (a, b, open) = gated(&mut world);
    let [(uc_a, uc_b), (rc_a, rc_b)] = [QpType::Uc, QpType::Rc].map(|qp_type| {
        let (here, there) = (a.create_qp(qp_type), b.create_qp(qp_type));
        connect(&a, here, &b, there, qp_type == QpType::Rc, Connection::default());
        (here, there)
    });
    b.post_recv(uc_b, 1, 0, LENGTH);
    b.post_recv(rc_b, 2, 500_000, LENGTH);
    a.send(uc_a, 3, 0, LENGTH);
    a.send(rc_a, 4, 500_000, LENGTH);
    world.run_until(5_000_000, || false);
    let ids = |node: &Node| node.drain().iter().map(|wc| (wc.wr_id, wc.status)).collect::<Vec<_>>();
    assert_eq!((ids(&a), ids(&b)), (vec![(4, WcStatus::Success)], vec![(2, WcStatus::Success)]));
    open.store(true, Ordering::Relaxed);
    world.run_until(5_000_000, || false);
    assert_eq!((ids(&a), ids(&b)), (vec![(3, WcStatus::Success)], vec![(1, WcStatus::Success)]));
}

#[test]
fn what_waits_can_be_destroyed() {
    let mut world = World::new(FabricConfig::default());
    let (a, b, open) = gated(&mut world);
    let (here, there) = (a.create_qp(QpType::Uc), b.create_qp(QpType::Uc));
    connect(&a, here, &b, there, false, Connection::default());
    a.send(here, 1, 0, 5000);
    world.run_until(100_000, || false);
    a.hca.destroy_qp(here).unwrap();
    open.store(true, Ordering::Relaxed);
    world.run_until(1_000_000, || false);
    assert_eq!((a.drain().len(), b.drain().len()), (0, 0));
}
