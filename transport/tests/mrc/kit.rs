//! A queue pair with its device, for tests that know each packet.

use pumice_transport::host::PeerProgress;
use pumice_transport::mrc::entropy::{Entropy, MrcArrival, MrcOutgoingPacket, Plane};
use pumice_transport::mrc::paths::{Ev, EvProfile};
use pumice_transport::mrc::wire::{MrcBody, MrcHeaders, MrcPacket};
use pumice_transport::mrc::{MrcQueuePair, MrcSettings, RequesterAttributes, ResponderAttributes};
use pumice_transport::types::{Mtu, RemoteTarget, SendOpcode, SendRequest, Sge, WcStatus};
use pumice_transport::wire::{Psn, Qpn};

use crate::device::{Device, KEY, Out, context};

pub(crate) const FIRST_PSN: u32 = 0xff_fff0;

/// Sixteen paths on two planes, four of them to replace others.
pub(crate) fn profile() -> EvProfile {
    let ev = |index: u32| Ev { entropy: Entropy(0x0001_c000 + index), plane: Plane(index as u8 % 2) };
    EvProfile { evs: (0..16).map(ev).collect(), active_count: 12, min_active: 4 }
}

/// A queue pair with its device.
pub(crate) struct End {
    pub(crate) qp: MrcQueuePair,
    pub(crate) device: Device,
    pub(crate) now_ns: u64,
}

impl End {
    /// In RTS; number 0x12, the peer's is 0x11; both directions begin with the same PSN.
    pub(crate) fn new() -> End {
        End::with(|_, _, _| {})
    }

    pub(crate) fn with(
        change: impl FnOnce(&mut MrcSettings, &mut ResponderAttributes, &mut RequesterAttributes),
    ) -> End {
        let mut settings = MrcSettings::new(context(0x12), Qpn::new(0x11), Mtu::Mtu256);
        let mut responder = ResponderAttributes::new(Psn::new(FIRST_PSN));
        let mut requester = RequesterAttributes::new(Psn::new(FIRST_PSN), profile(), 1);
        change(&mut settings, &mut responder, &mut requester);
        let mut qp = MrcQueuePair::new(settings);
        qp.to_rtr(&responder);
        qp.to_rts(requester);
        let mut end = End { qp, device: Device::new(), now_ns: 1_000_000 };
        // The first probe, which measures the round trip.
        let first = end.sent();
        assert!(matches!(first[0].1.body, MrcBody::Probe(_)) && first.len() == 1);
        end
    }

    /// What has completed, with its status.
    pub(crate) fn statuses(&mut self) -> Vec<(u64, WcStatus)> {
        self.device.sent.drain(..).map(|done| (done.wr_id, done.status)).collect()
    }

    /// What leaves now.
    pub(crate) fn sent(&mut self) -> Vec<(MrcOutgoingPacket, MrcHeaders)> {
        let mut out = Out { packets: Vec::new(), room: usize::MAX };
        self.qp.transmit(self.now_ns, &mut self.device, &mut out);
        assert!(!self.qp.wants_to_send());
        let headers = |bytes: &[u8]| MrcPacket::parse(bytes).unwrap().headers;
        out.packets.iter().map(|(departure, bytes)| (*departure, headers(bytes))).collect()
    }

    pub(crate) fn post(&mut self, wr_id: u64, opcode: SendOpcode, length: u32) {
        let list = [Sge { address: 4096, length, lkey: KEY }];
        let request = SendRequest {
            sges: &list,
            imm_data: (wr_id as u32).to_be_bytes(),
            remote: RemoteTarget { address: 8192, rkey: KEY },
            ..SendRequest::new(wr_id, opcode)
        };
        self.qp.post_send(&request, &mut self.device).unwrap();
    }

    /// A packet comes, by this path.
    pub(crate) fn take_from(&mut self, arrival: &MrcArrival, headers: &MrcHeaders, payload: &[u8]) {
        let mut bytes = vec![0; headers.packet_len(payload.len())];
        headers.emit(payload.len(), &mut bytes).unwrap().copy_from_slice(payload);
        self.qp.handle_datagram(self.now_ns, arrival, &bytes, &mut self.device).unwrap();
    }

    pub(crate) fn take(&mut self, headers: &MrcHeaders, payload: &[u8]) {
        self.take_from(&arrival(), headers, payload);
    }

    /// Until the next deadline.
    pub(crate) fn wait(&mut self) {
        self.now_ns = self.qp.deadline_ns().expect("the queue pair waits for something").max(self.now_ns);
        self.qp.handle_timeout(self.now_ns, PeerProgress::Unknown, &mut self.device);
    }
}

pub(crate) fn arrival() -> MrcArrival {
    MrcArrival { entropy: Entropy(0x0002_d00d), plane: Plane(1), congested: false, trim: None }
}
