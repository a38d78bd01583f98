//! Handling of the peer's answers: SACK, NACK, transport ACK and NAK.

use super::{MrcFailure, MrcRequester};
use crate::event::{QpEvent, Topic};
use crate::host::Host;
use crate::mrc::MrcCallContext;
use crate::mrc::congestion::{LossSample, SackSample};
use crate::mrc::constants::MPR_UNIT;
use crate::mrc::paths::PathReport;
use crate::mrc::wire::{CcState, MrcBth, NackReason, Neth, PathMark, SackTrigger, Seth, since_timestamp_ns};
use crate::types::{MrcBreach, MrcLossProof, WcStatus};
use crate::wire::{Aeth, NakCode, Psn, Syndrome};

/// Least time between two reports of measurements.
const MEASURE_INTERVAL_NS: u64 = 1_000_000;

const fn proof_of(reason: NackReason) -> MrcLossProof {
    match reason {
        NackReason::Trimmed => MrcLossProof::Trimmed,
        NackReason::TrimmedLastHop => MrcLossProof::TrimmedAtLastHop,
        _ => MrcLossProof::Refused,
    }
}

impl MrcRequester {
    /// Handles a SACK, which reports packets that have arrived.
    pub(crate) fn handle_sack<H: Host>(
        &mut self,
        turn: &mut MrcCallContext<'_, H>,
        bth: &MrcBth,
        seth: &Seth,
        state: &CcState,
    ) {
        let Some(cumulative) = self.number_of(seth.cack_psn) else {
            turn.statistics.dropped += 1;
            return;
        };
        self.silence.active_ns = turn.now_ns;
        self.probes.note_received();
        let below = u64::try_from(cumulative + 1).unwrap_or(0);
        let is_newest = below >= self.flight.base();
        let here = turn.settings.has_dynamic_mpr;
        if here != (seth.mpr > 0) && !core::mem::replace(&mut self.reports.reported.dynamic, true) {
            let breach = MrcBreach::DynamicWindow { here };
            turn.host.emit(&turn.settings.context, QpEvent::RuleBroken(breach));
        }
        if is_newest && seth.mpr > 0 && turn.settings.has_dynamic_mpr {
            self.window.width = (u64::from(seth.mpr) * u64::from(MPR_UNIT)).min(self.window.most_width);
        }
        // The packet that caused the SACK comes first: its round trip and path are known only while it is in
        // flight.
        let known = (self.flight.base(), self.flight.arrived());
        let rtt_ns = self.handle_trigger(turn, bth.retransmission, seth, state);
        self.arrive_bits(seth);
        if self.flight.arrive_below(below) {
            self.retries.retry.progress();
            self.missing_ack.unacknowledged_ns = turn.now_ns;
        }
        if known != (self.flight.base(), self.flight.arrived()) {
            self.note_arrivals(turn.now_ns);
        }
        self.settle();
        self.inform(turn.now_ns, seth, state, rtt_ns);
        if let SackTrigger::Probe { probe_id } = seth.trigger {
            self.handle_probe_answer(turn, probe_id, seth, state, below);
        }
        self.find_holes(turn);
        self.report_measures(turn);
    }

    /// Reports the round trip and the window, at most once a millisecond.
    fn report_measures<H: Host>(&mut self, turn: &mut MrcCallContext<'_, H>) {
        let is_due = turn.now_ns >= self.reports.reported_ns.saturating_add(MEASURE_INTERVAL_NS);
        if !is_due || !turn.host.listens(Topic::Packets) {
            return;
        }
        self.reports.reported_ns = turn.now_ns;
        let (in_flight_packets, most) = self.flight_packets();
        let packets = self.congestion.window_bytes() / u64::from(turn.settings.mtu_bytes().max(1));
        let window_packets = u32::try_from(packets).unwrap_or(u32::MAX).clamp(1, most.max(1));
        let measured = QpEvent::Measured { rtt_ns: self.rtt_ns(), window_packets, in_flight_packets };
        turn.host.emit_uncounted(&turn.settings.context, &measured);
    }

    /// Handles the packet that caused a SACK. Returns its round trip, unless it is ambiguous.
    fn handle_trigger<H: Host>(
        &mut self,
        turn: &mut MrcCallContext<'_, H>,
        is_retransmission: bool,
        seth: &Seth,
        state: &CcState,
    ) -> Option<u64> {
        let report = match seth.mark {
            PathMark::SkipOnce => Some(PathReport::Congested),
            PathMark::AlwaysSkip => Some(PathReport::AlwaysSkip),
            PathMark::None | PathMark::Reserved => None,
        };
        if let Some(report) = report {
            self.paths.report(turn.now_ns, seth.entropy, report);
        }
        let path = self.paths.find(seth.entropy);
        let SackTrigger::Packet { .. } = seth.trigger else { return None };
        if let Some(ev) = path.and_then(|path| self.paths.ev(path)) {
            turn.reverse.confirm(turn.now_ns, ev);
        }
        let number = u64::try_from(self.number_of(seth.ack_psn()?)?).ok()?;
        let is_retired = self.flight.get(number).is_none();
        let sent = self.flight.arrive(number);
        let rtt_ns = match sent {
            // The arrival was known before.
            None if !is_retired => None,
            // Only the first transmission is none again.
            Some(sent) if !is_retransmission => Some(turn.now_ns.saturating_sub(sent.first_ns)),
            Some(sent) if sent.attempts == 2 => {
                self.flight.arrived_up_to(sent.order);
                Some(turn.now_ns.saturating_sub(sent.sent_ns))
            }
            Some(_) => None,
            // All packets before it have arrived as well. The time stamp gives the round trip if the packet
            // was sent once.
            None if is_retransmission || state.timestamp == 0 || !self.features.has_timestamps => None,
            None => Some(since_timestamp_ns(turn.now_ns, state.timestamp)),
        };
        if let Some(rtt_ns) = rtt_ns.filter(|_| sent.is_some()) {
            self.measured(rtt_ns);
        }
        rtt_ns
    }

    fn arrive_bits(&mut self, seth: &Seth) {
        let base = self.psn_of(self.flight.base());
        let start = i64::from(seth.bitmap_base().since(base));
        let mut bits = seth.bitmap;
        while bits != 0 {
            let bit = bits.trailing_zeros();
            bits &= bits - 1;
            if let Ok(ahead) = u64::try_from(start + i64::from(bit)) {
                let _ = self.flight.arrive(self.flight.base() + ahead);
            }
        }
    }

    /// Passes a SACK to congestion control.
    fn inform(&mut self, now_ns: u64, seth: &Seth, state: &CcState, rtt_ns: Option<u64>) {
        if seth.cc_type != CcState::CC_TYPE {
            return;
        }
        // The upper half of the 24-bit range means that the SACK is older.
        let ahead = state.rcvd_bytes.wrapping_sub(self.window.received_units) & 0xff_ffff;
        let new_units = if ahead < 1 << 23 { ahead } else { 0 };
        if new_units > 0 {
            self.window.received_units = state.rcvd_bytes;
        }
        let new_bytes = u64::from(new_units) * 256;
        self.window.inflight_bytes = self.window.inflight_bytes.saturating_sub_unsigned(new_bytes);
        self.settle();
        self.congestion.handle_sack(&SackSample {
            now_ns,
            new_bytes,
            is_marked: seth.mark == PathMark::SkipOnce,
            rtt_ns,
            inflight_bytes: self.inflight_now(),
            penalty: state.rcv_cwnd_pen,
            restore_cwnd: state.restore_cwnd,
            is_limited_by_program: !self.queue.can_cut(),
        });
    }

    /// Handles the answer to a probe, which reports the arrival of all packets that left before the probe.
    fn handle_probe_answer<H: Host>(
        &mut self,
        turn: &mut MrcCallContext<'_, H>,
        probe_id: u16,
        seth: &Seth,
        state: &CcState,
        below: u64,
    ) {
        let Some(probe) = self.probes.find(probe_id) else { return };
        if !self.rtt.is_measured {
            self.measured(turn.now_ns.saturating_sub(probe.sent_ns));
        }
        if probe.is_test {
            self.probes.forget(probe_id);
            self.paths.probe_answered(turn.now_ns, probe.path, seth.mark == PathMark::SkipOnce);
        } else if let Some(ev) = self.paths.ev(probe.path) {
            turn.reverse.confirm(turn.now_ns, ev);
        }
        // Packets count as lost only if this side knows of all that have arrived beyond the cumulative PSN.
        let knows_all = self.flight.arrived() == usize::from(state.ooo_count);
        if below != self.flight.base() || !knows_all {
            return;
        }
        let age_ns = self.hole_age_ns();
        let is_old = |sent_ns: u64| sent_ns.saturating_add(age_ns) <= turn.now_ns;
        let before = self.flight.flying_before(probe.order);
        let lost: alloc::vec::Vec<u64> =
            before.filter(|(_, sent)| is_old(sent.sent_ns)).map(|(number, _)| number).collect();
        for number in lost {
            self.lose(turn, number, MrcLossProof::Probe);
        }
    }

    /// Handles a NACK, which refuses one packet.
    ///
    /// # Errors
    /// The peer cannot continue, or has refused the packet too often.
    pub(crate) fn handle_nack<H: Host>(
        &mut self,
        turn: &mut MrcCallContext<'_, H>,
        neth: &Neth,
    ) -> Result<(), MrcFailure> {
        let number = self.number_of(neth.nack_psn).and_then(|number| u64::try_from(number).ok());
        let Some(number) = number else {
            turn.statistics.dropped += 1;
            return Ok(());
        };
        turn.statistics.nacks += 1;
        turn.statistics.trims += u64::from(neth.reason.is_trim());
        (self.silence.active_ns, _) = (turn.now_ns, self.probes.note_received());
        if neth.reason == NackReason::Trimmed {
            self.paths.report(turn.now_ns, neth.entropy, PathReport::Congested);
        }
        // The packet may have been retransmitted since, by another path.
        let is_of = |path: u16| self.paths.ev(path).is_some_and(|ev| ev.entropy == neth.entropy);
        let Some(sent) = self.flight.get(number).copied().filter(|sent| is_of(sent.path)) else {
            return Ok(());
        };
        if neth.reason == NackReason::PsnOutOfWindow
            && !core::mem::replace(&mut self.reports.reported.window, true)
        {
            let used = u8::try_from(self.window.most_width / u64::from(MPR_UNIT)).unwrap_or(u8::MAX);
            let breach = MrcBreach::WindowRefused { used };
            turn.host.emit(&turn.settings.context, QpEvent::RuleBroken(breach));
        }
        if neth.reason == NackReason::UnexpectedEvent {
            return Err(MrcFailure { number, status: WcStatus::RemOpErr });
        }
        if self.flight.lose(number).is_none() {
            return Ok(());
        }
        self.paths.count_lost(sent.path);
        self.report_loss(turn, number, &sent, proof_of(neth.reason));
        self.window.inflight_bytes -= i64::from(sent.size_bytes);
        let rtt_ns = turn.now_ns.saturating_sub(sent.sent_ns);
        self.measured(rtt_ns);
        if neth.reason.is_trim() {
            self.congestion.handle_trim(&LossSample {
                now_ns: turn.now_ns,
                size_bytes: sent.size_bytes.into(),
                rtt_ns: Some(rtt_ns),
                inflight_bytes: self.inflight_now(),
            });
        }
        self.settle();
        if number == self.flight.base() && self.retries.retry.nack(turn.now_ns).is_err() {
            return Err(MrcFailure { number, status: WcStatus::RetryExcErr });
        }
        Ok(())
    }

    /// Handles a transport ACK or NAK, which completes messages.
    ///
    /// # Errors
    /// The peer has refused a message.
    pub(crate) fn handle_acknowledge<H: Host>(
        &mut self,
        turn: &mut MrcCallContext<'_, H>,
        psn: Psn,
        aeth: &Aeth,
    ) -> Result<(), MrcFailure> {
        let Some(number) = self.number_of(psn) else {
            turn.statistics.dropped += 1;
            return Ok(());
        };
        let status = match Syndrome::from_byte(aeth.syndrome) {
            Syndrome::Ack { .. } => {
                let below = u64::try_from(number + 1).unwrap_or(0);
                self.silence.active_ns = turn.now_ns;
                if self.flight.arrive_below(below) {
                    self.retries.retry.progress();
                    self.note_arrivals(turn.now_ns);
                }
                self.settle();
                if self.queue.covers(below) && turn.host.listens(Topic::Packets) {
                    let acknowledged = QpEvent::Acknowledged { before: psn.plus(1) };
                    turn.host.emit_uncounted(&turn.settings.context, &acknowledged);
                }
                if self.queue.acknowledge(&turn.settings.context, below, turn.host) {
                    self.retries.retry.progress();
                    (self.missing_ack.unacknowledged_ns, self.missing_ack.ack_rounds) = (turn.now_ns, 0);
                    self.missing_ack.asks_for_ack = false;
                }
                return Ok(());
            }
            Syndrome::Nak(NakCode::InvalidRequest) => WcStatus::RemInvReqErr,
            Syndrome::Nak(NakCode::RemoteAccess) => WcStatus::RemAccessErr,
            Syndrome::Nak(NakCode::RemoteOperation) => WcStatus::RemOpErr,
            // MRC has no other syndromes.
            _ => {
                turn.statistics.dropped += 1;
                return Ok(());
            }
        };
        match u64::try_from(number) {
            Ok(number) if self.queue.again(number).is_some() => {
                let syndrome = Syndrome::from_byte(aeth.syndrome);
                turn.host.emit(&turn.settings.context, QpEvent::NakReceived { syndrome, psn });
                self.queue.acknowledge_count(&turn.settings.context, aeth.msn, number, turn.host);
                Err(MrcFailure { number, status })
            }
            _ => {
                turn.statistics.dropped += 1;
                Ok(())
            }
        }
    }
}
