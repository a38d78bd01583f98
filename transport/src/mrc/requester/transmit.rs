//! Transmission of a requester's packets: probes first, then retransmissions, then new packets.

use super::{MrcFailure, MrcRequester};
use crate::host::Host;
use crate::mrc::constants::{ACK_REQUEST_WINDOW_BYTES, NOMINAL_OVERHEAD_BYTES};
use crate::mrc::entropy::{MrcNetwork, MrcOutgoingPacket, MrcSent, TrafficClass};
use crate::mrc::semantics::Planned;
use crate::mrc::wire::{MrcBody, MrcBth, MrcHeaders, MrcOpcode, Peth, Tseth, WriteHeaders};
use crate::mrc::{MrcSettings, MrcStatistics};
use crate::types::WcStatus;
use crate::wire::Psn;

/// Length of a UDP header in bytes.
const UDP_BYTES: usize = 8;

/// The reason why a requester has stopped sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// The requester has nothing that may be sent now.
    Idle,
    /// The network has no room.
    Blocked,
}

/// External state and interfaces that sending needs.
struct TransmitContext<'a, H, N> {
    settings: &'a MrcSettings,
    now_ns: u64,
    statistics: &'a mut MrcStatistics,
    host: &'a mut H,
    network: &'a mut N,
}

/// Returns the size of a packet for congestion control: its UDP length plus 40.
pub(crate) fn nominal_bytes(packet_bytes: usize) -> u32 {
    u32::try_from(packet_bytes + UDP_BYTES).unwrap_or(u32::MAX).saturating_add(NOMINAL_OVERHEAD_BYTES)
}

impl MrcRequester {
    /// Reports whether [`MrcRequester::transmit`] has something to do.
    pub(crate) fn wants_to_send(&self, settings: &MrcSettings) -> bool {
        let has_work = self.probes.is_requested()
            || self.probes.next_test().is_some()
            || self.missing_ack.asks_for_ack
            || self.may_resend(settings).is_some()
            || self.may_send(settings);
        has_work && self.paths.has_any()
    }

    fn has_congestion_window(&self, settings: &MrcSettings) -> bool {
        let after = self.inflight_now().saturating_add(settings.mtu_bytes().into());
        after <= self.congestion.window_bytes() || self.inflight_now() == 0
    }

    fn may_resend(&self, settings: &MrcSettings) -> Option<u64> {
        let number = self.flight.first_lost().filter(|number| *number < self.limit())?;
        (self.silence.is_overdue || self.has_congestion_window(settings)).then_some(number)
    }

    fn may_send(&self, settings: &MrcSettings) -> bool {
        self.queue.can_cut() && self.flight.next() < self.limit() && self.has_congestion_window(settings)
    }

    /// Sends everything that may be sent.
    ///
    /// # Errors
    /// The buffers of a request cannot be read.
    pub(crate) fn transmit<H: Host, N: MrcNetwork>(
        &mut self,
        settings: &MrcSettings,
        now_ns: u64,
        statistics: &mut MrcStatistics,
        host: &mut H,
        network: &mut N,
    ) -> Result<SendProgress, MrcFailure> {
        let mut out = TransmitContext { settings, now_ns, statistics, host, network };
        if !self.paths.has_any() {
            return Ok(SendProgress::Idle);
        }
        while self.probes.is_requested() || self.probes.next_test().is_some() {
            if !self.send_probe(&mut out) {
                return Ok(SendProgress::Blocked);
            }
        }
        if self.missing_ack.asks_for_ack {
            if let Some(number) = self.queue.last_of_oldest()
                && !self.send_data(&mut out, number, self.queue.again(number), true)?
            {
                return Ok(SendProgress::Blocked);
            }
            self.missing_ack.asks_for_ack = false;
        }
        while let Some(number) = self.may_resend(settings) {
            if !self.send_data(&mut out, number, self.queue.again(number), true)? {
                return Ok(SendProgress::Blocked);
            }
            self.silence.is_overdue = false;
        }
        while self.may_send(settings) {
            if !self.send_data(&mut out, self.flight.next(), self.queue.peek(), false)? {
                return Ok(SendProgress::Blocked);
            }
        }
        Ok(SendProgress::Idle)
    }

    /// Sends a probe. Returns false if it could not be sent now.
    fn send_probe<H: Host, N: MrcNetwork>(&mut self, out: &mut TransmitContext<'_, H, N>) -> bool {
        let is_test = !self.probes.is_requested();
        let path = if is_test { self.probes.next_test() } else { self.paths.choose(None) };
        let Some((path, ev)) = path.and_then(|path| Some((path, self.paths.ev(path)?))) else {
            return false;
        };
        let context = &out.settings.context;
        let peth = Peth {
            vendor_info: 0,
            probe_id: self.probes.next_id(),
            spdcid: context.qpn.value() as u16,
            dpdcid: out.settings.peer.value() as u16,
            tseth: Tseth::at(out.now_ns),
        };
        let bth = MrcBth {
            pkey: out.settings.pkey,
            ..MrcBth::new(MrcOpcode::ProbeRequest, out.settings.peer, Psn::new(0))
        };
        let headers = MrcHeaders { bth, body: MrcBody::Probe(peth) };
        let class = self.data_class(false);
        let departure = MrcOutgoingPacket { entropy: ev.entropy, plane: ev.plane, class };
        let length_bytes = headers.packet_len(0);
        let Some(room) = out.network.begin(&departure, length_bytes) else { return false };
        let _ = headers.emit(0, room);
        out.network.seal();
        let (opcode, psn) = (bth.opcode, bth.psn);
        out.network.sent(context, &MrcSent::control(opcode, psn, length_bytes), out.host);
        out.statistics.probes_sent += 1;
        self.probes.sent(out.now_ns, path, self.flight.next_order(), is_test);
        if !is_test {
            self.silence.active_ns = out.now_ns;
        }
        true
    }

    fn data_class(&self, is_again: bool) -> TrafficClass {
        match (self.features.has_trimming, is_again) {
            (false, _) => TrafficClass::NoTrim,
            (true, false) => TrafficClass::Trimmable,
            (true, true) => TrafficClass::TrimmableRetransmission,
        }
    }

    /// Reports whether the peer is to answer this packet with a SACK.
    fn asks_for_sack(&self, settings: &MrcSettings, number: u64, size_bytes: u32, is_again: bool) -> bool {
        let window = self.congestion.window_bytes();
        let inflight = self.inflight_now().saturating_add(size_bytes.into());
        let is_full = window.saturating_sub(inflight) < settings.mtu_bytes().into();
        let is_last = !is_again && (self.queue.is_last_cut() || number + 1 >= self.limit());
        is_full || window < ACK_REQUEST_WINDOW_BYTES || is_last
    }

    /// Returns the path of a new packet: that of the last one, as long as both are in a row.
    fn path_in_a_row(&mut self, is_full: bool) -> Option<u16> {
        let row = self.row.path.take().filter(|(path, left)| *left > 0 && self.paths.is_best(*path));
        let (path, left) = match row {
            Some(row) => row,
            None => (self.paths.choose(None)?, self.row.packets_in_a_row),
        };
        // A shorter packet may end a row.
        self.row.path = is_full.then_some((path, left.saturating_sub(1)));
        Some(path)
    }

    /// Sends a data packet. Returns false if it could not be sent now.
    fn send_data<H: Host, N: MrcNetwork>(
        &mut self,
        out: &mut TransmitContext<'_, H, N>,
        number: u64,
        planned: Option<Planned>,
        is_again: bool,
    ) -> Result<bool, MrcFailure> {
        let Some(planned) = planned else { return Ok(false) };
        let before = self.flight.get(number).copied();
        let is_full = planned.payload_bytes >= out.settings.mtu.bytes();
        let chosen = match is_again {
            true => self.paths.choose(before.map(|sent| sent.path)),
            false => self.path_in_a_row(is_full),
        };
        let Some((path, ev)) = chosen.and_then(|path| Some((path, self.paths.ev(path)?))) else {
            return Ok(false);
        };
        let tseth = self.features.has_timestamps.then(|| Tseth::at(out.now_ns));
        let write = WriteHeaders { tseth, ..planned.write };
        let length = MrcHeaders::write_len(tseth.is_some(), write.imm.is_some());
        let packet_bytes = length + planned.payload_bytes.next_multiple_of(4) + crate::wire::ICRC_BYTES;
        let size_bytes = nominal_bytes(packet_bytes);
        let bth = MrcBth {
            solicited: planned.solicited,
            pkey: out.settings.pkey,
            ack_request: self.asks_for_sack(out.settings, number, size_bytes, is_again),
            retransmission: is_again,
            ..MrcBth::new(planned.opcode, out.settings.peer, self.psn_of(number))
        };
        let headers = MrcHeaders { bth, body: MrcBody::Write(write) };
        let class = self.data_class(is_again);
        let departure = MrcOutgoingPacket { entropy: ev.entropy, plane: ev.plane, class };
        let Some(room) = out.network.begin(&departure, packet_bytes) else { return Ok(false) };
        let data = headers.emit(planned.payload_bytes, room).unwrap_or_default();
        if self.queue.gather(&out.settings.context, &planned, data, out.host).is_err() {
            out.network.abandon();
            return Err(MrcFailure { number, status: WcStatus::LocProtErr });
        }
        out.network.seal();
        let sent = MrcSent {
            opcode: bth.opcode,
            psn: bth.psn,
            order: self.flight.next_order(),
            message: planned.ordinal,
            transmission: before.map_or(1, |sent| u32::from(sent.attempts) + 1),
            length_bytes: packet_bytes,
            payload_bytes: planned.payload_bytes,
        };
        out.network.sent(&out.settings.context, &sent, out.host);
        out.statistics.data_sent += 1;
        out.statistics.retransmitted += u64::from(is_again);
        self.launched(out.now_ns, number, size_bytes, path, is_again);
        Ok(true)
    }

    fn launched(&mut self, now_ns: u64, number: u64, size_bytes: u32, path: u16, is_again: bool) {
        self.paths.count_sent(path);
        self.silence.active_ns = now_ns;
        self.missing_ack.unacknowledged_ns = now_ns;
        if !is_again {
            self.queue.advance();
        }
        if self.flight.launch(number, now_ns, size_bytes, path) {
            self.window.inflight_bytes =
                self.window.inflight_bytes.saturating_add_unsigned(size_bytes.into());
        }
    }
}
