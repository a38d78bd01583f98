//! Two HCAs on a network without faults, and a connected pair of queue pairs between them.

use std::sync::Arc;

use pumice_device::event::async_event::AsyncElement;
use pumice_device::hca::{CqSetup, QpInit};
use pumice_device::objects::completion_channel::CompletionChannel;
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use super::{Connection, Node, address_vector, connect};

/// Long enough for anything that does not wait for a timer.
pub const A_WHILE_NS: u64 = 10_000_000;

pub struct Scene {
    pub world: World,
    pub a: Node,
    pub b: Node,
    pub qa: Qpn,
    pub qb: Qpn,
}

impl Scene {
    /// An RC pair.
    pub fn new() -> Scene {
        Scene::of(QpType::Rc)
    }

    /// A pair of queue pairs of this type; UD ones have Q_Key 0x11111111.
    pub fn of(qp_type: QpType) -> Scene {
        Scene::with(qp_type, |_| {}, |_| {})
    }

    /// A pair whose ends are made of changed setups.
    pub fn with(qp_type: QpType, of_a: impl FnOnce(&mut QpInit), of_b: impl FnOnce(&mut QpInit)) -> Scene {
        Scene::on(["10.0.0.1", "10.0.0.2"], qp_type, of_a, of_b)
    }

    /// As [`Scene::with`], with these addresses.
    pub fn on(
        addresses: [&str; 2],
        qp_type: QpType,
        of_a: impl FnOnce(&mut QpInit),
        of_b: impl FnOnce(&mut QpInit),
    ) -> Scene {
        let mut world = World::new(FabricConfig::default());
        let a = Node::new(&mut world, addresses[0], 1 << 20, 256);
        let b = Node::new(&mut world, addresses[1], 1 << 20, 256);
        let (mut init_a, mut init_b) = (a.qp_init(qp_type), b.qp_init(qp_type));
        of_a(&mut init_a);
        of_b(&mut init_b);
        let (qa, qb) = (a.hca.create_qp(&init_a).unwrap().0, b.hca.create_qp(&init_b).unwrap().0);
        let scene = Scene { world, a, b, qa, qb };
        scene.connect_pair(qp_type, qa, qb, Connection::default());
        scene
    }

    /// Takes both ends, RC, from RESET to RTS.
    pub fn connect(&self, numbers: Connection) {
        connect(&self.a, self.qa, &self.b, self.qb, true, numbers);
    }

    /// Takes a pair of queue pairs from RESET to RTS.
    pub fn connect_pair(&self, qp_type: QpType, qa: Qpn, qb: Qpn, numbers: Connection) {
        if qp_type.is_connected() {
            return connect(&self.a, qa, &self.b, qb, qp_type.is_reliable(), numbers);
        }
        self.a.to_rts_datagram(qa, 0);
        self.b.to_rts_datagram(qb, 0);
    }

    /// A second pair of the same type, connected.
    pub fn another_pair(&self, qp_type: QpType) -> (Qpn, Qpn) {
        let (qa, qb) = (self.a.create_qp(qp_type), self.b.create_qp(qp_type));
        self.connect_pair(qp_type, qa, qb, Connection::default());
        (qa, qb)
    }

    pub fn run(&mut self, ns: u64) {
        self.world.run_until(ns, || false);
    }

    /// Lets everything happen that does not wait for a timer.
    pub fn settle(&mut self) {
        self.run(A_WHILE_NS);
    }

    /// A SEND request of `a`'s memory.
    pub fn post(&self, request: &SendRequest<'_>) {
        self.a.hca.post_send(self.qa, request).unwrap();
    }

    /// `length` bytes from `a` to `b`.
    pub fn send(&self, wr_id: u64, length: u32) {
        self.a.send(self.qa, wr_id, 0, length);
    }

    pub fn write(&self, wr_id: u64, length: u32) {
        let request = SendRequest {
            sges: &[self.a.sge(0, length)],
            remote: self.b.target(0),
            ..SendRequest::new(wr_id, SendOpcode::RdmaWrite)
        };
        self.post(&request);
    }

    pub fn states(&self) -> (QpState, QpState) {
        (self.a.state(self.qa), self.b.state(self.qb))
    }

    /// Where `a` sends datagrams for `b`.
    pub fn destination(&self, qkey: u32) -> UdDestination {
        let (_, path) = self.a.hca.create_ah(self.a.pd, &address_vector(self.b.ip)).unwrap();
        UdDestination { path, qpn: self.qb, qkey }
    }
}

impl Node {
    /// A completion queue that reports to a new channel.
    pub fn cq_with_channel(&self, depth: u32) -> (Arc<CompletionQueue>, Arc<CompletionChannel>) {
        let channel = Arc::new(CompletionChannel::new().unwrap());
        let setup = CqSetup {
            depth,
            cookie: 7,
            channel: Some(Arc::clone(&channel)),
            comp_vector: 0,
            ..CqSetup::default()
        };
        (self.hca.create_cq(setup).unwrap(), channel)
    }

    /// Asynchronous events so far, acknowledged.
    pub fn events(&self) -> Vec<(AsyncEventType, AsyncElement)> {
        let next = || {
            let event = self.hca.async_events().try_event()?;
            let seen = (event.event, event.element);
            event.ack();
            Some(seen)
        };
        std::iter::from_fn(next).collect()
    }

    /// Kinds of the asynchronous events so far, acknowledged.
    pub fn event_types(&self) -> Vec<AsyncEventType> {
        self.events().into_iter().map(|(event, _)| event).collect()
    }

    /// `wr_id` and status of everything in the completion queue.
    pub fn outcomes(&self) -> Vec<(u64, WcStatus)> {
        outcomes(&self.cq)
    }
}

/// `wr_id` and status of everything in a completion queue.
pub fn outcomes(cq: &CompletionQueue) -> Vec<(u64, WcStatus)> {
    super::drain(cq).iter().map(|completion| (completion.wr_id, completion.status)).collect()
}
