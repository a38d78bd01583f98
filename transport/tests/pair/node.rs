//! One end: a queue pair, its device, its port.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use pumice_transport::host::{PeerProgress, QpContext};
use pumice_transport::path::{Flow, Path, ROCE_PORT};
use pumice_transport::qp::transition::transition;
use pumice_transport::qp::{
    Arrival, AttributeMask, Congestion, Progress, QpAttributes, QpConfig, QueuePair, ResolvedPath,
};
use pumice_transport::types::{AddressVector, Gid, Mtu, QpCapacity, QpState, QpType};
use pumice_transport::wire::{Packet, Qpn, icrc};

use crate::kit::host::FakeHost;
use crate::kit::rung::{ALL_REMOTE, LIMITS};
use crate::kit::{PD, RECV_CQ, RECV_QUEUE, SEND_CQ, XRCD};
use crate::link::{Link, Outbox, Random};

/// What both ends agree on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) qp_type: QpType,
    pub(crate) mtu: Mtu,
    /// First PSN of end 0; end 1 starts 1000 later.
    pub(crate) psn: u32,
    pub(crate) window_limit_packets: u32,
    pub(crate) read_limit_packets: u32,
    pub(crate) rd_atomic: u8,
}

/// One end.
pub(crate) struct Node {
    pub(crate) qp: QueuePair,
    pub(crate) host: FakeHost,
    pub(crate) outbox: Outbox,
}

fn qpn(end: u32) -> Qpn {
    Qpn::new(0x40 + end)
}

fn address(end: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + end as u8))
}

impl Node {
    /// End 0 or 1, in RTS.
    pub(crate) fn new(end: u32, terms: &Terms) -> Node {
        let peer = 1 - end;
        let context = QpContext {
            qpn: qpn(end),
            pd: PD,
            send_cq: SEND_CQ,
            recv_cq: RECV_CQ,
            recv_queue: RECV_QUEUE,
            xrcd: XRCD,
            ordinal: end,
            out_of_order: false,
        };
        let capacity =
            QpCapacity { max_send_wr: 24, max_send_sge: 4, max_inline_data: 64, ..QpCapacity::default() };
        let config = QpConfig {
            context,
            qp_type: terms.qp_type,
            capacity,
            signal_all: false,
            has_srq: false,
            port_mtu_bytes: terms.mtu.bytes(),
            congestion: Congestion::default(),
            adaptive_timeout: None,
        };
        let mut node =
            Node { qp: QueuePair::new(config), host: FakeHost::default(), outbox: Outbox::default() };
        let attributes = QpAttributes {
            path_mtu: terms.mtu as u32,
            rq_psn: terms.psn + peer * 1000,
            sq_psn: terms.psn + end * 1000,
            dest_qp_num: qpn(peer).value(),
            access: ALL_REMOTE.bits(),
            address_vector: AddressVector {
                is_global: true,
                dgid: Gid::from(address(peer)),
                port_num: 1,
                ..AddressVector::default()
            },
            max_rd_atomic: terms.rd_atomic,
            max_dest_rd_atomic: terms.rd_atomic,
            min_rnr_timer: 3,
            port_num: 1,
            timeout: 8,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttributes::default()
        };
        let flow = Flow {
            source: address(end),
            destination: address(peer),
            source_port: 0xc000 + end as u16,
            destination_port: ROCE_PORT,
        };
        let path = Arc::new(Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 });
        for next in [QpState::Init, QpState::Rtr, QpState::Rts] {
            let row = transition(terms.qp_type, node.qp.state(), next).expect("a way up");
            let attributes = QpAttributes { qp_state: next as u32, ..attributes.clone() };
            let mask = row.required | AttributeMask::STATE;
            let resolved = ResolvedPath {
                path: path.clone(),
                window_limit_packets: terms.window_limit_packets,
                read_limit_packets: terms.read_limit_packets,
            };
            node.qp.modify(&attributes, mask, &LIMITS, Some(resolved), &mut node.host).expect("a legal step");
        }
        node
    }

    /// Sends everything that can be sent now, in bursts of arbitrary size.
    pub(crate) fn transmit(&mut self, now_ns: u64, random: &mut Random, link: &mut Link) {
        loop {
            self.outbox.room = 1 + random.below(20) as usize;
            let (host, outbox) = (&mut self.host, &mut self.outbox);
            let responses = self.qp.transmit_responses(now_ns, host, outbox);
            let requests = self.qp.transmit_requests(now_ns, host, outbox);
            for frame in self.outbox.frames.drain(..) {
                link.send(now_ns, frame);
            }
            if (responses, requests) == (Progress::Idle, Progress::Idle) {
                return;
            }
        }
    }

    /// A packet of the other end.
    pub(crate) fn receive(&mut self, now_ns: u64, bytes: &[u8], flow: &Flow, traffic_class: u8) {
        assert_eq!(icrc::verify(flow, 0, bytes), icrc::IcrcVerdict::Exact);
        let packet = Packet::parse(bytes).expect("queue pairs send packets");
        let arrival = Arrival { flow, traffic_class, hop_limit: 63 };
        self.qp.handle_packet(now_ns, &arrival, &packet, &mut self.host);
    }

    pub(crate) fn timeout(&mut self, now_ns: u64) {
        if self.qp.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns) {
            self.qp.handle_timeout(now_ns, PeerProgress::Unknown, &mut self.host);
        }
    }

    /// The address that packets for this end go to.
    pub(crate) fn is_at(&self, flow: &Flow) -> bool {
        flow.destination == address(self.qp.context().qpn.value() - 0x40)
    }
}
