//! The two ends of a flow: queue pairs of MRC, or of RC, whose requester sends WRITEs to the other one.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use pumice_transport::host::{PeerProgress, Transmit};
use pumice_transport::mrc::congestion::{Nscc, NsccParameters};
use pumice_transport::mrc::entropy::{MrcArrival, MrcNetwork, MrcOutgoingPacket, Plane, TrafficClass};
use pumice_transport::mrc::paths::{EvProfile, PathState};
use pumice_transport::mrc::{MrcQueuePair, MrcSettings, RequesterAttributes, ResponderAttributes};
use pumice_transport::path::{Flow as Route, Path, ROCE_PORT};
use pumice_transport::qp::transition::transition;
use pumice_transport::qp::{
    Arrival, AttributeMask, Congestion, DcqcnParameters, ModifyLimits, NotificationParameters, QpAttributes,
    QpConfig, QueuePair, ResolvedPath,
};
use pumice_transport::types::{
    Access, AddressVector, Gid, Mtu, QpCapacity, QpState, QpType, RemoteTarget, SendOpcode, SendRequest, Sge,
};
use pumice_transport::wire::{Packet as RocePacket, Psn, Qpn};

use crate::device::{Device, context};
use crate::fabric::{Fabric, OVERHEAD_BYTES, Packet, Shape};

pub(crate) const MTU: Mtu = Mtu::Mtu4096;
const BASE_RTT_NS: u64 = 12_000;
/// Window in units of 128 PSNs.
const MPR: u8 = 32;
/// Packets that RC may have in flight: twice what a plane holds.
const RC_WINDOW: u32 = 96;
/// ECN bits.
const ECN_CAPABLE: u8 = 2;
const MARKED: u8 = 3;
const LIMITS: ModifyLimits = ModifyLimits {
    active_mtu: MTU,
    max_rd_atomic_initiator: 16,
    max_rd_atomic_target: 16,
    pkey_table_len: 1,
    gid_table_len: 4,
    port_count: 1,
    privileged_qkey: true,
};

pub(crate) enum QueuePairs {
    Mrc(Box<MrcQueuePair>),
    Rc(Box<QueuePair>),
}

/// One end of a flow.
pub(crate) struct End {
    pub(crate) qp: QueuePairs,
    pub(crate) device: Device,
    pub(crate) host: usize,
    pub(crate) posted: u64,
    /// Time of the timer that was scheduled.
    pub(crate) timer_ns: Option<u64>,
}

/// What two ends agree on.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) number: u32,
    pub(crate) hosts: [usize; 2],
    /// The plane of RC's only path.
    pub(crate) plane: u8,
}

fn address(host: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, (host >> 8) as u8, host as u8))
}

impl End {
    fn new(qp: QueuePairs, host: usize) -> End {
        End { qp, device: Device::default(), host, posted: 0, timer_ns: None }
    }

    /// The end of MRC with this index; only end 0 sends.
    pub(crate) fn mrc(index: usize, terms: Terms, shape: Shape) -> End {
        let qpn = |index: usize| Qpn::new(0x100 + terms.number * 2 + index as u32);
        let settings = MrcSettings {
            max_send_wr: 256,
            sends_trim_nack: shape.trims,
            ..MrcSettings::new(context(qpn(index)), qpn(1 - index), MTU)
        };
        let mut qp = MrcQueuePair::new(settings);
        qp.to_rtr(&ResponderAttributes { mpr_dest: MPR, ..ResponderAttributes::new(Psn::new(7)) });
        if index == 0 {
            let seed = u64::from(terms.number) + 1;
            let rate = shape.rate * f64::from(shape.planes);
            let nscc = NsccParameters::new(MTU.bytes() as u32, rate, BASE_RTT_NS, shape.trims);
            qp.to_rts(RequesterAttributes {
                mpr: MPR,
                has_trimming: shape.trims,
                base_rtt_ns: BASE_RTT_NS,
                congestion: Box::new(Nscc::new(nscc)),
                ..RequesterAttributes::new(Psn::new(7), EvProfile::automatic(seed, shape.planes, false), seed)
            });
        }
        End::new(QueuePairs::Mrc(Box::new(qp)), terms.hosts[index])
    }

    /// The end of RC with this index, with DCQCN as adapters have it.
    pub(crate) fn rc(index: usize, terms: Terms, shape: Shape) -> End {
        let qpn = |index: usize| Qpn::new(0x100 + terms.number * 2 + index as u32);
        let line_rate = (shape.rate * 8000.0) as u32;
        let parameters = DcqcnParameters { line_rate, ..DcqcnParameters::CONNECTX };
        let mut qp = QueuePair::new(QpConfig {
            context: context(qpn(index)),
            qp_type: QpType::Rc,
            capacity: QpCapacity { max_send_wr: 256, max_send_sge: 1, ..QpCapacity::default() },
            signal_all: true,
            has_srq: false,
            port_mtu_bytes: MTU.bytes(),
            congestion: Congestion::dcqcn(parameters, NotificationParameters::default()),
            adaptive_timeout: None,
        });
        let (own, peer) = (terms.hosts[index], terms.hosts[1 - index]);
        let attributes = QpAttributes {
            path_mtu: MTU as u32,
            rq_psn: 7,
            sq_psn: 7,
            dest_qp_num: qpn(1 - index).value(),
            access: (Access::LOCAL_WRITE | Access::REMOTE_WRITE).bits(),
            address_vector: AddressVector {
                is_global: true,
                dgid: Gid::from(address(peer)),
                port_num: 1,
                ..AddressVector::default()
            },
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 3,
            port_num: 1,
            // 67 µs: the shortest that is common, in favour of RC.
            timeout: 4,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttributes::default()
        };
        let flow = Route {
            source: address(own),
            destination: address(peer),
            source_port: 0xc000 | terms.number as u16,
            destination_port: ROCE_PORT,
        };
        let path = Arc::new(Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 });
        let mut device = Device::default();
        for next in [QpState::Init, QpState::Rtr, QpState::Rts] {
            let row = transition(QpType::Rc, qp.state(), next).expect("a way up");
            let attributes = QpAttributes { qp_state: next as u32, ..attributes.clone() };
            let resolved =
                ResolvedPath { path: path.clone(), window_limit_packets: RC_WINDOW, read_limit_packets: 1 };
            let mask = row.required | AttributeMask::STATE;
            qp.modify(&attributes, mask, &LIMITS, Some(resolved), &mut device).expect("a legal step");
        }
        End::new(QueuePairs::Rc(Box::new(qp)), own)
    }

    /// Posts a WRITE.
    pub(crate) fn post(&mut self, length: u32) {
        let list = [Sge { address: 0, length, lkey: 1 }];
        let request = SendRequest {
            sges: &list,
            remote: RemoteTarget { address: 0, rkey: 1 },
            flags: pumice_transport::types::SendFlags::SIGNALED,
            ..SendRequest::new(self.posted, SendOpcode::RdmaWrite)
        };
        match &mut self.qp {
            QueuePairs::Mrc(qp) => qp.post_send(&request, &mut self.device).expect("there is room"),
            QueuePairs::Rc(qp) => qp.post_send(&request, &mut self.device).expect("there is room"),
        }
        self.posted += 1;
    }

    /// Requests that have not ended.
    pub(crate) fn outstanding(&self) -> u64 {
        self.posted - self.device.completed - self.device.failed
    }

    pub(crate) fn has_failed(&self) -> bool {
        match &self.qp {
            QueuePairs::Mrc(qp) => qp.state() == QpState::Err,
            QueuePairs::Rc(qp) => qp.state() == QpState::Err,
        }
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        match &self.qp {
            QueuePairs::Mrc(qp) => qp.deadline_ns(),
            QueuePairs::Rc(qp) => qp.deadline_ns(),
        }
    }

    pub(crate) fn timeout(&mut self, now_ns: u64) {
        match &mut self.qp {
            QueuePairs::Mrc(qp) => qp.handle_timeout(now_ns, PeerProgress::Unknown, &mut self.device),
            QueuePairs::Rc(qp) => qp.handle_timeout(now_ns, PeerProgress::Unknown, &mut self.device),
        }
    }

    pub(crate) fn wants_to_send(&self) -> bool {
        match &self.qp {
            QueuePairs::Mrc(qp) => qp.wants_to_send(),
            QueuePairs::Rc(qp) => qp.wants_to_send(),
        }
    }

    /// Packets sent again, and paths that are assumed to be bad.
    pub(crate) fn repeated(&self) -> u64 {
        match &self.qp {
            QueuePairs::Mrc(qp) => qp.statistics().retransmitted,
            QueuePairs::Rc(_) => 0,
        }
    }

    /// Paths that are assumed to be bad, by plane.
    pub(crate) fn bad_paths(&self, plane: u8) -> usize {
        let QueuePairs::Mrc(qp) = &self.qp else { return 0 };
        let is_bad = |status: &pumice_transport::mrc::paths::PathStatus| {
            status.state == PathState::AssumedBad && status.ev.plane == Plane(plane)
        };
        qp.paths().map_or(0, |paths| paths.statuses().filter(is_bad).count())
    }

    pub(crate) fn receive(&mut self, now_ns: u64, packet: &Packet, route: &Route) {
        match &mut self.qp {
            QueuePairs::Mrc(qp) => {
                let arrival = MrcArrival {
                    entropy: pumice_transport::mrc::entropy::Entropy(packet.entropy),
                    plane: Plane(packet.plane),
                    congested: packet.congested,
                    trim: packet.trim,
                };
                qp.handle_datagram(now_ns, &arrival, &packet.bytes, &mut self.device).expect("a packet");
            }
            QueuePairs::Rc(qp) => {
                let ecn = if packet.congested { MARKED } else { ECN_CAPABLE };
                let arrival = Arrival { flow: route, traffic_class: ecn, hop_limit: 60 };
                let parsed = RocePacket::parse(&packet.bytes).expect("a packet");
                qp.handle_packet(now_ns, &arrival, &parsed, &mut self.device);
            }
        }
    }

    /// The addresses of what comes to this end.
    pub(crate) fn route_to(&self, peer: usize) -> Route {
        Route {
            source: address(peer),
            destination: address(self.host),
            source_port: 0xc000,
            destination_port: ROCE_PORT,
        }
    }
}

/// The network of one turn of an end: room for one packet of data, and for answers.
pub(crate) struct Outlet<'a> {
    pub(crate) fabric: &'a mut Fabric,
    pub(crate) terms: Terms,
    /// The end that sends.
    pub(crate) end: usize,
    pub(crate) data_left: usize,
    pub(crate) sent_data: usize,
    pub(crate) open: Option<Packet>,
}

impl Outlet<'_> {
    fn packet(&self, plane: u8, entropy: u32, length_bytes: usize) -> Packet {
        let Terms { number, hosts, .. } = self.terms;
        Packet {
            flow: number,
            to: 1 - self.end,
            from_host: hosts[self.end] as u16,
            to_host: hosts[1 - self.end] as u16,
            plane,
            entropy,
            is_urgent: false,
            is_ecn_capable: true,
            is_trimmable: false,
            congested: false,
            trim: None,
            overhead_bytes: OVERHEAD_BYTES,
            bytes: vec![0; length_bytes],
        }
    }

    /// Opens a packet, if its port has room.
    fn open(&mut self, packet: Packet, is_data: bool) -> Option<&mut [u8]> {
        if is_data {
            let host = usize::from(packet.from_host);
            if self.data_left == 0 || !self.fabric.has_room(host, packet.plane) {
                return None;
            }
        }
        self.open = Some(packet);
        self.open.as_mut().map(|packet| &mut packet.bytes[..])
    }

    fn close(&mut self) {
        let Some(packet) = self.open.take() else { return };
        if !packet.is_urgent {
            self.data_left -= 1;
            self.sent_data += 1;
        }
        self.fabric.send(packet);
    }
}

impl MrcNetwork for Outlet<'_> {
    fn begin(&mut self, departure: &MrcOutgoingPacket, length_bytes: usize) -> Option<&mut [u8]> {
        let mut packet = self.packet(departure.plane.0, departure.entropy.0, length_bytes);
        packet.is_urgent = departure.class == TrafficClass::Control;
        packet.is_trimmable =
            matches!(departure.class, TrafficClass::Trimmable | TrafficClass::TrimmableRetransmission)
                && length_bytes > 256;
        let is_data = !packet.is_urgent;
        self.open(packet, is_data)
    }

    fn seal(&mut self) {
        self.close();
    }

    fn abandon(&mut self) {
        self.open = None;
    }
}

impl Transmit for Outlet<'_> {
    fn begin(&mut self, path: &Arc<Path>, _: Qpn, length_bytes: usize) -> Option<&mut [u8]> {
        let mut packet = self.packet(self.terms.plane, path.flow.source_port.into(), length_bytes);
        // Acknowledgements and CNPs overtake data, in favour of RC.
        packet.is_urgent = length_bytes < 256;
        let is_data = !packet.is_urgent;
        self.open(packet, is_data)
    }

    fn seal(&mut self) {
        self.close();
    }

    fn abandon(&mut self) {
        self.open = None;
    }
}
