//! Any bytes as packets for a queue pair of MRC and for an endpoint: nothing panics, each request ends once
//! and in order, each receive request is taken once, what waits to be sent is bounded, and time goes on.

use std::net::{IpAddr, Ipv4Addr};

use pumice_transport::host::PeerProgress;
use pumice_transport::mrc::endpoint::Endpoint;
use pumice_transport::mrc::entropy::{Entropy, MrcArrival, Plane, Trim};
use pumice_transport::mrc::paths::{Ev, EvProfile};
use pumice_transport::mrc::wire::MrcPacket;
use pumice_transport::mrc::{
    MrcProgress, MrcQueuePair, MrcSettings, RequesterAttributes, ResponderAttributes,
};
use pumice_transport::types::{Mtu, RemoteTarget, SendOpcode, SendRequest, Sge};
use pumice_transport::wire::{Psn, Qpn};

use super::device::{Device, KEY, Out, context};

/// PSN of the first packet, each way; seeds have it too.
const FIRST_PSN: u32 = 0xff_fff0;
const RECEIVES: u64 = 8;
/// Packets that one packet may cause: a window of data, and the answers that may wait.
const MAX_SENT: usize = 1024 + 80;
const MAX_PACKETS: usize = 200;
const TIMEOUTS: u32 = 40;

struct MrcTarget {
    qp: MrcQueuePair,
    device: Device,
    endpoint: Endpoint,
    now_ns: u64,
    meant: usize,
    sent: usize,
}

impl MrcTarget {
    /// Requests of several packets are on their way, and receive requests are posted.
    fn new(is_dynamic: bool, has_trimming: bool) -> MrcTarget {
        let settings = MrcSettings {
            has_dynamic_mpr: is_dynamic,
            ..MrcSettings::new(context(0x12), Qpn::new(0x11), Mtu::Mtu256)
        };
        let mut qp = MrcQueuePair::new(settings);
        let responder = ResponderAttributes::new(Psn::new(FIRST_PSN));
        qp.to_rtr(&ResponderAttributes { max_wimm_dest: 4, ..responder });
        let ev = |index: u32| Ev { entropy: Entropy(0x0001_c000 + index), plane: Plane(index as u8 % 2) };
        let profile = EvProfile { evs: (0..16).map(ev).collect(), active_count: 12, min_active: 4 };
        let requester = RequesterAttributes::new(Psn::new(FIRST_PSN), profile, 1);
        qp.to_rts(RequesterAttributes { max_wimm: 4, has_trimming, ..requester });
        let mut device = Device::new();
        device.receives.extend(0..RECEIVES);
        let mut endpoint = Endpoint::new(0xffff);
        endpoint.probe(peer(), Qpn::new(0x12), ev(0));
        let mut victim = MrcTarget { qp, device, endpoint, now_ns: 1_000_000, meant: 0, sent: 0 };
        for wr_id in 0..6 {
            let list = [Sge { address: 4096, length: 300 * wr_id as u32, lkey: KEY }];
            let opcodes = [SendOpcode::RdmaWrite, SendOpcode::RdmaWriteWithImm];
            let request = SendRequest {
                sges: &list,
                remote: RemoteTarget { address: 8192, rkey: KEY },
                ..SendRequest::new(wr_id, opcodes[wr_id as usize % 2])
            };
            victim.qp.post_send(&request, &mut victim.device).unwrap();
        }
        victim.send();
        victim.meant = 0;
        victim
    }

    /// All that can leave leaves, and is not too much.
    fn send(&mut self) {
        let mut out = Out { packets: Vec::new(), room: MAX_SENT };
        let progress = self.qp.transmit(self.now_ns, &mut self.device, &mut out);
        assert!(progress == MrcProgress::Idle && !self.qp.wants_to_send());
        self.meant += out.packets.len();
        while self.endpoint.poll_transmit(self.now_ns).is_some() {
            self.meant += 1;
        }
        while self.endpoint.poll_event().is_some() {}
        let _ = self.qp.poll_ev_probe(self.now_ns);
        let completions = self.device.sent.iter().map(|done| done.wr_id);
        assert!(completions.eq(0..self.device.sent.len() as u64) && self.device.sent.len() <= 6);
        let taken = self.device.received.iter().map(|done| done.wr_id);
        assert!(taken.eq(0..self.device.received.len() as u64));
        self.sent = self.device.sent.len();
    }

    /// A packet: its first byte says how it comes, and what time has passed.
    fn take(&mut self, packet: &[u8]) {
        let Some((&how, bytes)) = packet.split_first() else { return };
        let arrival = MrcArrival {
            entropy: Entropy(0x0001_c000 + u32::from(how & 15)),
            plane: Plane(how & 1),
            congested: how & 0x10 != 0,
            trim: match how >> 5 & 3 {
                1 => Some(Trim::EarlierHop),
                2 => Some(Trim::LastHop),
                _ => None,
            },
        };
        if how & 0x80 != 0 {
            self.now_ns += 40_000;
            self.time();
        }
        let _ = self.qp.handle_datagram(self.now_ns, &arrival, bytes, &mut self.device);
        if let Ok(packet) = MrcPacket::parse(bytes) {
            self.endpoint.handle_packet(self.now_ns, peer(), &arrival, &packet);
        }
        self.send();
    }

    /// What is due by now happens, and is not due again at once.
    fn time(&mut self) {
        if self.qp.deadline_ns().is_some_and(|due| due <= self.now_ns) {
            self.qp.handle_timeout(self.now_ns, PeerProgress::Unknown, &mut self.device);
            self.send();
            assert!(self.qp.deadline_ns().is_none_or(|due| due > self.now_ns));
        }
        self.endpoint.handle_timeout(self.now_ns);
    }
}

fn peer() -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))
}

/// Packets of an input: each has its length, two bytes, before it.
pub(crate) fn packets(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length)) % 2048;
        let (packet, behind) = behind.split_at(length.min(behind.len()));
        rest = behind;
        Some(packet)
    })
}

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let kind = bytes.len();
    let mut victim = MrcTarget::new(kind % 2 == 1, kind % 4 > 1);
    for packet in packets(bytes).take(MAX_PACKETS) {
        victim.take(packet);
    }
    let meant = victim.meant;
    for _ in 0..TIMEOUTS {
        let Some(due_ns) = victim.qp.deadline_ns() else { break };
        victim.now_ns = victim.now_ns.max(due_ns);
        victim.time();
    }
    meant + victim.sent
}
