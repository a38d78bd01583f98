//! A device in virtual time, and a bare port beside it, which sends the packets that the input describes.

#![allow(dead_code, reason = "each target uses a part of it")]

use std::net::IpAddr;
use std::sync::Arc;

use pumice_device::hca::{CqSetup, Hca, OwnedMemory, QpInit};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::platform::table::Handle;
use pumice_device::port::{FabricConfig, GsoBatch, Port, SimPort};
use pumice_device::world::World;
use pumice_transport::path::{Flow, Path, ROCE_PORT};
use pumice_transport::qp::QpAttributes;
use pumice_transport::qp::transition::transition;
use pumice_transport::types::{
    Access, AddressVector, Gid, Mtu, QpCapacity, QpState, QpType, RecvRequest, VendorService, WorkCompletion,
};
use pumice_transport::wire::{Qpn, icrc};

/// Bytes of the memory that is registered; peers and elements call the first one [`IOVA`].
pub(crate) const MEMORY_BYTES: usize = 4096;
pub(crate) const IOVA: u64 = 0x1000;
/// Inputs name the region by this key, because the real one is not theirs to know.
const KEY_PLACEHOLDER: [u8; 4] = [0, 0, 1, 1];
/// The Q_Key of datagram queue pairs.
pub(crate) const Q_KEY: u32 = 0x1111_1111;
/// Requests that each queue takes.
const DEPTH: u32 = 16;
/// Longest packet of an input.
const MAX_PACKET_BYTES: usize = 4300;

pub(crate) struct FuzzScene {
    pub(crate) world: World,
    pub(crate) hca: Arc<Hca>,
    pub(crate) pd: Handle,
    pub(crate) cq: Arc<CompletionQueue>,
    pub(crate) memory: OwnedMemory,
    path: Path,
    peer: SimPort,
}

impl FuzzScene {
    /// `rights`: what peers may do with the memory.
    pub(crate) fn new(rights: Access) -> FuzzScene {
        let mut world = World::new(FabricConfig::default());
        let (victim, peer): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 9].into());
        let hca = world.add_hca(victim).unwrap();
        let pd = hca.alloc_pd().unwrap();
        let cq = hca.create_cq(CqSetup { depth: 256, ..CqSetup::default() }).unwrap();
        let memory =
            OwnedMemory::register(&hca, pd, MEMORY_BYTES, IOVA, Access::LOCAL_WRITE | rights).unwrap();
        let flow =
            Flow { source: peer, destination: victim, source_port: ROCE_PORT, destination_port: ROCE_PORT };
        let path = Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
        let peer = world.fabric().attach(&[peer]);
        FuzzScene { world, hca, pd, cq, memory, path, peer }
    }

    /// What to make a queue pair of.
    pub(crate) fn init(&self, qp_type: QpType) -> QpInit {
        let capacity = QpCapacity {
            max_send_wr: DEPTH,
            max_recv_wr: DEPTH,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let (pd, cq) = (Some(self.pd), Some(self.cq.handle()));
        let (srq, xrcd) = (None, None);
        QpInit { qp_type, pd, send_cq: cq, recv_cq: cq, srq, xrcd, capacity, signal_all: false, cookie: 0 }
    }

    /// A queue pair in `state` whose peer is the bare port; all PSNs begin at 0.
    pub(crate) fn queue_pair(&self, init: &QpInit, state: QpState) -> Qpn {
        self.own_queue_pair(init, None, state)
    }

    /// As [`FuzzScene::queue_pair`], of a vendor's own service.
    pub(crate) fn own_queue_pair(&self, init: &QpInit, own: Option<VendorService>, state: QpState) -> Qpn {
        let (qpn, _) = self.hca.create_vendor_qp(init, own).unwrap();
        let mut attributes = QpAttributes {
            port_num: 1,
            access: 15,
            qkey: Q_KEY,
            address_vector: AddressVector {
                is_global: true,
                dgid: self.peer_gid(),
                port_num: 1,
                ..AddressVector::default()
            },
            path_mtu: Mtu::Mtu256 as u32,
            dest_qp_num: 0x22,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1,
            timeout: 8,
            retry_cnt: 2,
            rnr_retry: 2,
            ..QpAttributes::default()
        };
        let mut from = QpState::Reset;
        for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
            if to > state {
                break;
            }
            let row = transition(init.qp_type, from, to).expect("a way up");
            attributes.qp_state = to as u32;
            let mask = row.required | pumice_transport::qp::AttributeMask::STATE;
            self.hca.modify_qp(qpn, &attributes, mask).unwrap();
            from = to;
        }
        qpn
    }

    /// A receive into `length` bytes of the memory.
    pub(crate) fn post_recv(&self, qpn: Qpn, wr_id: u64, offset: u64, length: u32) {
        let sges = [self.memory.sge(offset, length)];
        let _ = self.hca.post_recv(qpn, &RecvRequest { wr_id, sges: &sges });
    }

    /// A packet of the peer's for a queue pair: its number, the region's key where the placeholder is, and
    /// the ICRC are put right. What follows from it happens.
    pub(crate) fn inject(&mut self, qpn: Qpn, packet: &[u8]) {
        let mut packet = packet.to_vec();
        if let Some(field) = packet.get_mut(5..8) {
            field.copy_from_slice(&qpn.value().to_be_bytes()[1..]);
        }
        let key = self.memory.target(0).rkey.to_be_bytes();
        // Behind the address of a RETH, after the BTH alone or with an XRCETH; in the header of SRD or DC.
        for offset in [20, 24, 72] {
            if let Some(field) = packet.get_mut(offset..offset + 4)
                && *field == KEY_PLACEHOLDER
            {
                field.copy_from_slice(&key);
            }
        }
        packet.extend_from_slice(&[0; 4]);
        icrc::seal(&self.path.flow, 0, &mut packet);
        let batch = GsoBatch::new(&self.path, packet.len(), &packet);
        let _ = self.peer.transmit(self.world.now_ns(), &batch);
        self.world.run_until(10_000, || false);
    }

    /// The peer's address.
    pub(crate) fn peer_gid(&self) -> Gid {
        Gid::from(self.path.flow.source)
    }

    /// How many packets the victim has sent since the last call.
    pub(crate) fn answers(&mut self) -> usize {
        self.sent().len()
    }

    /// What the victim has sent since the last call.
    pub(crate) fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while self.peer.receive(self.world.now_ns(), &mut |received| {
            packets.extend(received.bytes.chunks(received.segment_bytes.max(1)).map(<[u8]>::to_vec));
        }) {}
        packets
    }

    /// Completions so far.
    pub(crate) fn completions(&self) -> Vec<WorkCompletion> {
        let mut all = Vec::new();
        let mut some = [WorkCompletion::default(); 16];
        loop {
            let count = self.cq.poll(&mut some);
            if count == 0 {
                return all;
            }
            all.extend_from_slice(&some[..count]);
        }
    }

    /// Bytes of the memory.
    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        assert!(self.memory.read(offset, &mut bytes));
        bytes
    }
}

/// The input as a list of packets, each behind its length in two bytes.
pub(crate) fn packets(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length)) % MAX_PACKET_BYTES;
        let (packet, behind) = behind.split_at(length.min(behind.len()));
        rest = behind;
        Some(packet)
    })
}
