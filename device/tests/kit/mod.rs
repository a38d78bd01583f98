//! What the tests in virtual time share: memory, nodes, connections, requests.
//!
//! Each test binary uses its own part of it.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs)]

pub mod forger;
pub mod memory;
pub mod planned;
pub mod random;
pub mod scene;

use std::net::IpAddr;
use std::sync::Arc;

use pumice_device::hca::{CqSetup, Hca, QpInit};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::platform::table::Handle;
use pumice_device::world::World;
use pumice_transport::host::Counter;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

pub use memory::Memory;
#[allow(unused_imports)] // the kit serves several test programs, and not all of them draw
pub use random::Random;
pub use scene::Scene;

/// All rights that a region can give.
pub const ALL_ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND);

/// An HCA with one PD, one CQ and one region.
pub struct Node {
    pub hca: Arc<Hca>,
    pub ip: IpAddr,
    pub pd: Handle,
    pub cq: Arc<CompletionQueue>,
    pub memory: Memory,
    pub region: Handle,
    pub lkey: u32,
    pub rkey: u32,
}

/// The numbers of a connection; each side's own first PSN is chosen by the caller.
#[derive(Debug, Clone, Copy)]
pub struct Connection {
    pub mtu: Mtu,
    pub psn_here: u32,
    pub psn_there: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub rd_atomic: u8,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection {
            mtu: Mtu::Mtu1024,
            psn_here: 0x10,
            psn_there: 0x10,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            rd_atomic: 4,
        }
    }
}

impl Connection {
    /// The same connection seen from the other side.
    pub fn reversed(self) -> Connection {
        Connection { psn_here: self.psn_there, psn_there: self.psn_here, ..self }
    }
}

impl Node {
    /// A node with `memory_bytes` of registered memory and a CQ of `cq_depth`.
    pub fn new(world: &mut World, ip: &str, memory_bytes: usize, cq_depth: u32) -> Node {
        let ip: IpAddr = ip.parse().unwrap();
        Node::on(world.add_hca(ip).unwrap(), ip, memory_bytes, cq_depth)
    }

    /// A node on an HCA that is there.
    pub fn on(hca: Arc<Hca>, ip: IpAddr, memory_bytes: usize, cq_depth: u32) -> Node {
        let pd = hca.alloc_pd().unwrap();
        let cq = hca.create_cq(CqSetup { depth: cq_depth, ..CqSetup::default() }).unwrap();
        let memory = Memory::new(memory_bytes);
        let keys = memory.register(&hca, pd, ALL_ACCESS);
        Node { hca, ip, pd, cq, memory, region: keys.handle, lkey: keys.lkey, rkey: keys.rkey }
    }

    /// What to make a queue pair of this node of.
    pub fn qp_init(&self, qp_type: QpType) -> QpInit {
        QpInit {
            qp_type,
            pd: Some(self.pd),
            send_cq: Some(self.cq.handle()),
            recv_cq: Some(self.cq.handle()),
            srq: None,
            xrcd: None,
            capacity: QpCapacity {
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline_data: 64,
            },
            signal_all: false,
            cookie: 0,
        }
    }

    pub fn create_qp(&self, qp_type: QpType) -> Qpn {
        self.hca.create_qp(&self.qp_init(qp_type)).unwrap().0
    }

    /// One element of this node's region.
    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        assert!(offset + length as usize <= self.memory.len());
        Sge { address: self.memory.address() + offset as u64, length, lkey: self.lkey }
    }

    /// This node's region as peers name it.
    pub fn target(&self, offset: usize) -> RemoteTarget {
        RemoteTarget { address: self.memory.address() + offset as u64, rkey: self.rkey }
    }

    pub fn post_recv(&self, qpn: Qpn, wr_id: u64, offset: usize, length: u32) {
        self.hca.post_recv(qpn, &RecvRequest { wr_id, sges: &[self.sge(offset, length)] }).unwrap();
    }

    pub fn send(&self, qpn: Qpn, wr_id: u64, offset: usize, length: u32) {
        let request =
            SendRequest { sges: &[self.sge(offset, length)], ..SendRequest::new(wr_id, SendOpcode::Send) };
        self.hca.post_send(qpn, &request).unwrap();
    }

    pub fn counter(&self, counter: Counter) -> u64 {
        self.hca.counters().value(counter)
    }

    /// Takes everything from the CQ.
    pub fn drain(&self) -> Vec<WorkCompletion> {
        drain(&self.cq)
    }

    pub fn state(&self, qpn: Qpn) -> QpState {
        QpState::from_verbs(self.hca.query_qp(qpn).unwrap().qp_state).unwrap()
    }

    /// Moves a queue pair to a state without further attributes.
    pub fn move_to(&self, qpn: Qpn, state: QpState) {
        let attributes = QpAttributes { qp_state: state as u32, ..QpAttributes::default() };
        self.hca.modify_qp(qpn, &attributes, AttributeMask::STATE).unwrap();
    }

    pub fn to_init(&self, qpn: Qpn) {
        use AttributeMask as M;
        let attributes = QpAttributes {
            qp_state: QpState::Init as u32,
            port_num: 1,
            access: 15,
            qkey: 0x1111_1111,
            ..QpAttributes::default()
        };
        let init = M::STATE | M::PKEY_INDEX | M::PORT;
        let qp_type_mask = match self.hca.modify_qp(qpn, &attributes, init | M::ACCESS_FLAGS) {
            Ok(()) => return,
            Err(_) => init | M::QKEY,
        };
        self.hca.modify_qp(qpn, &attributes, qp_type_mask).unwrap();
    }

    /// RESET → INIT → RTR of a connected queue pair.
    pub fn to_rtr(&self, qpn: Qpn, reliable: bool, peer: IpAddr, peer_qpn: Qpn, c: Connection) {
        use AttributeMask as M;
        self.to_init(qpn);
        let attributes = QpAttributes {
            qp_state: QpState::Rtr as u32,
            address_vector: address_vector(peer),
            path_mtu: c.mtu as u32,
            dest_qp_num: peer_qpn.value(),
            rq_psn: c.psn_there,
            max_dest_rd_atomic: c.rd_atomic,
            min_rnr_timer: c.min_rnr_timer,
            ..QpAttributes::default()
        };
        let mut mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        if reliable {
            mask |= M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        }
        self.hca.modify_qp(qpn, &attributes, mask).unwrap();
    }

    /// RTR → RTS of a connected queue pair.
    pub fn to_rts(&self, qpn: Qpn, reliable: bool, c: Connection) {
        use AttributeMask as M;
        let attributes = QpAttributes {
            qp_state: QpState::Rts as u32,
            sq_psn: c.psn_here,
            timeout: c.timeout,
            retry_cnt: c.retry_cnt,
            rnr_retry: c.rnr_retry,
            max_rd_atomic: c.rd_atomic,
            ..QpAttributes::default()
        };
        let mut mask = M::STATE | M::SQ_PSN;
        if reliable {
            mask |= M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
        }
        self.hca.modify_qp(qpn, &attributes, mask).unwrap();
    }

    /// RESET → RTS of a datagram queue pair with Q_Key 0x11111111.
    pub fn to_rts_datagram(&self, qpn: Qpn, psn: u32) {
        use AttributeMask as M;
        self.to_init(qpn);
        self.move_to(qpn, QpState::Rtr);
        let attributes =
            QpAttributes { qp_state: QpState::Rts as u32, sq_psn: psn, ..QpAttributes::default() };
        self.hca.modify_qp(qpn, &attributes, M::STATE | M::SQ_PSN).unwrap();
    }
}

pub fn address_vector(peer: IpAddr) -> AddressVector {
    AddressVector { is_global: true, dgid: Gid::from(peer), port_num: 1, ..AddressVector::default() }
}

/// Connects two queue pairs, `c` as seen from `a`.
pub fn connect(a: &Node, a_qpn: Qpn, b: &Node, b_qpn: Qpn, reliable: bool, c: Connection) {
    a.to_rtr(a_qpn, reliable, b.ip, b_qpn, c);
    b.to_rtr(b_qpn, reliable, a.ip, a_qpn, c.reversed());
    a.to_rts(a_qpn, reliable, c);
    b.to_rts(b_qpn, reliable, c.reversed());
}

/// Takes everything from a CQ.
pub fn drain(cq: &CompletionQueue) -> Vec<WorkCompletion> {
    let mut all = Vec::new();
    let mut some = [WorkCompletion::default(); 16];
    loop {
        let count = cq.poll(&mut some);
        if count == 0 {
            return all;
        }
        all.extend_from_slice(&some[..count]);
    }
}
