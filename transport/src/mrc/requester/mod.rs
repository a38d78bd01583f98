//! The requester of a queue pair. It cuts WRITE messages into packets, assigns paths to them, and retransmits
//! what is lost.

mod answers;
mod probes;
mod timers;
mod transmit;

use alloc::boxed::Box;

use self::probes::Probes;
use super::congestion::{CongestionControl, LossSample};
use super::constants::{HOLE_AGE_SHARE, MIN_HOLE_LAG, MPR_UNIT};
use super::paths::{PathReport, PathSet};
use super::reliability::{Flight, RetryTimer, SentPacket};
use super::semantics::{MrcSendQueue, PostedMessage};
use super::{MrcCallContext, MrcSettings, RequesterAttributes};
use crate::event::QpEvent;
use crate::host::Host;
use crate::types::{
    Cause, FailedSend, IgnoredAnswers, MrcLossProof, RemoteRange, RemoteTarget, SendRequest, WcStatus,
};
use crate::wire::Psn;

/// A failure of the queue pair: the message of a packet completes with a status, and all later ones are
/// flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MrcFailure {
    pub(crate) number: u64,
    pub(crate) status: WcStatus,
}

/// The packets that leave in a row by one path.
#[derive(Debug)]
pub(crate) struct PathRow {
    /// The path by which packets leave in a row, and how many more may.
    path: Option<(u16, u8)>,
    packets_in_a_row: u8,
}

/// The window of a requester, and what is in flight.
#[derive(Debug)]
pub(crate) struct FlightWindow {
    /// Largest width of the window in PSNs, as agreed. `width` is the current one.
    most_width: u64,
    width: u64,
    /// Number of bytes in flight, as congestion control counts them.
    inflight_bytes: i64,
    received_units: u32,
}

/// The features of the network that a requester relies on.
#[derive(Debug)]
pub(crate) struct PathFeatures {
    has_trimming: bool,
    has_timestamps: bool,
}

/// The round trip as a requester has measured it.
#[derive(Debug)]
pub(crate) struct RoundTrip {
    smooth_ns: u64,
    is_measured: bool,
}

/// The state of a requester whose peer is silent.
#[derive(Debug)]
pub(crate) struct Silence {
    /// Time of the last packet from the peer or to it.
    active_ns: u64,
    /// Time at which the acknowledgement timer last began again: the peer told of arrivals, or it expired.
    heard_ns: u64,
    /// The timer has expired, and a lost packet may leave whatever the congestion window is.
    is_overdue: bool,
    /// Time since which the timer waits for a peer whose process has no processor.
    starved_since_ns: Option<u64>,
    /// Time at which the oldest hole counts as lost.
    hole_ns: Option<u64>,
}

/// The transport ACK that a requester asks for.
#[derive(Debug)]
pub(crate) struct MissingAck {
    /// Time since which a transport ACK is missing. `ack_rounds` is the number of requests for it.
    unacknowledged_ns: u64,
    ack_rounds: u32,
    asks_for_ack: bool,
}

/// The retries of a requester.
#[derive(Debug)]
pub(crate) struct MrcRetries {
    retry: RetryTimer,
    /// Numbers of linear and of exponential retries, and the exponent of the timeout, for reports.
    retry_attributes: (u8, u8, u8),
}

/// The reports of a requester that have been made.
#[derive(Debug)]
pub(crate) struct MrcReports {
    /// Time of the last report of measurements.
    reported_ns: u64,
    /// Differences between the limits of both sides that were reported.
    reported: ReportedLimits,
}

#[derive(Debug)]
pub(crate) struct MrcRequester {
    queue: MrcSendQueue,
    flight: Flight,
    /// The retries.
    retries: MrcRetries,
    paths: PathSet,
    /// The packets that leave in a row.
    row: PathRow,
    probes: Probes,
    congestion: Box<dyn CongestionControl>,
    first_psn: Psn,
    /// The window.
    window: FlightWindow,
    /// The features of the network.
    features: PathFeatures,
    /// The measured round trip.
    rtt: RoundTrip,
    /// The state while the peer is silent.
    silence: Silence,
    /// The reports that have been made.
    reports: MrcReports,
    /// The transport ACK that is missing.
    missing_ack: MissingAck,
}

/// Differences between the limits of both sides that were reported.
#[derive(Debug, Default)]
struct ReportedLimits {
    window: bool,
    dynamic: bool,
}

impl MrcRequester {
    pub(crate) fn new(settings: &MrcSettings, attributes: RequesterAttributes) -> MrcRequester {
        let width = u64::from(attributes.mpr.max(1)) * u64::from(MPR_UNIT);
        let mut probes = Probes::default();
        // The first probe measures the round trip.
        probes.ask();
        MrcRequester {
            queue: MrcSendQueue::new(settings.max_send_wr, settings.mtu_bytes(), attributes.max_wimm),
            flight: Flight::default(),
            retries: MrcRetries {
                retry: RetryTimer::new(attributes.timeout, attributes.linear_cnt, attributes.exp_cnt),
                retry_attributes: (attributes.linear_cnt, attributes.exp_cnt, attributes.timeout),
            },
            paths: PathSet::new(&attributes.profile, attributes.seed),
            row: PathRow { path: None, packets_in_a_row: attributes.packets_in_a_row },
            probes,
            congestion: attributes.congestion,
            first_psn: attributes.first_psn,
            window: FlightWindow { most_width: width, width, inflight_bytes: 0, received_units: 0 },
            features: PathFeatures {
                has_trimming: attributes.has_trimming,
                has_timestamps: attributes.has_timestamps,
            },
            rtt: RoundTrip { smooth_ns: attributes.base_rtt_ns.max(1), is_measured: false },
            silence: Silence {
                active_ns: 0,
                heard_ns: 0,
                is_overdue: false,
                starved_since_ns: None,
                hole_ns: None,
            },
            reports: MrcReports { reported_ns: 0, reported: ReportedLimits::default() },
            missing_ack: MissingAck { unacknowledged_ns: 0, ack_rounds: 0, asks_for_ack: false },
        }
    }

    pub(crate) fn queue(&self) -> &MrcSendQueue {
        &self.queue
    }

    pub(crate) fn paths(&self) -> &PathSet {
        &self.paths
    }

    pub(crate) fn paths_mut(&mut self) -> &mut PathSet {
        &mut self.paths
    }

    pub(crate) fn congestion_window_bytes(&self) -> u64 {
        self.congestion.window_bytes()
    }

    /// Returns the smoothed round trip; `None` until one is measured.
    pub(crate) fn rtt_ns(&self) -> Option<u64> {
        self.rtt.is_measured.then_some(self.rtt.smooth_ns)
    }

    /// Returns the number of data packets in flight, and that of PSNs that the peer's window has.
    pub(crate) fn flight_packets(&self) -> (u32, u32) {
        (self.flight.flying() as u32, self.window.width as u32)
    }

    pub(crate) fn smooth_rtt_ns(&self) -> u64 {
        self.rtt.smooth_ns
    }

    /// Reports whether no data of this side is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.flight.is_empty()
    }

    pub(crate) fn post(
        &mut self,
        request: &SendRequest<'_>,
        length: u32,
        imm: Option<[u8; 4]>,
    ) -> PostedMessage {
        self.queue.post(request, length, imm)
    }

    /// Counts a request that is flushed at once.
    pub(crate) fn count(&mut self, length: u32) -> PostedMessage {
        self.queue.count(length)
    }

    /// Returns the PSN of the packet with this number.
    pub(crate) fn psn_of(&self, number: u64) -> Psn {
        // Only the low 24 bits count.
        self.first_psn.plus(number as u32)
    }

    /// Returns the number of a PSN near those in flight, which may be below them; `None` if it was never
    /// sent.
    fn number_of(&self, psn: Psn) -> Option<i64> {
        let base = i64::try_from(self.flight.base()).ok()?;
        let number = base + i64::from(psn.since(self.psn_of(self.flight.base())));
        let is_sent = number < i64::try_from(self.flight.next()).ok()?;
        is_sent.then_some(number)
    }

    /// Returns the first number beyond the peer's window.
    fn limit(&self) -> u64 {
        self.flight.base() + self.window.width
    }

    fn inflight_now(&self) -> u64 {
        self.window.inflight_bytes.max(0) as u64
    }

    /// Notes that the peer has told of packets that have arrived.
    fn note_arrivals(&mut self, now_ns: u64) {
        (self.silence.heard_ns, self.silence.starved_since_ns) = (now_ns, None);
    }

    /// Returns the age at which a hole counts as lost: a round trip and a fraction of it.
    fn hole_age_ns(&self) -> u64 {
        self.rtt.smooth_ns + self.rtt.smooth_ns / HOLE_AGE_SHARE
    }

    fn measured(&mut self, rtt_ns: u64) {
        self.rtt.smooth_ns = match core::mem::replace(&mut self.rtt.is_measured, true) {
            true => (self.rtt.smooth_ns / 8 * 7 + self.rtt.smooth_ns % 8 * 7 / 8 + rtt_ns / 8).max(1),
            false => rtt_ns.max(1),
        };
    }

    /// Marks a packet as lost, so that it is retransmitted.
    fn lose<H: Host>(&mut self, turn: &mut MrcCallContext<'_, H>, number: u64, proof: MrcLossProof) {
        let Some(sent) = self.flight.lose(number) else { return };
        self.window.inflight_bytes -= i64::from(sent.size_bytes);
        let report = match proof {
            MrcLossProof::Timeout => PathReport::Lost,
            // A switch may drop packets that it cannot trim, because of congestion.
            _ if self.features.has_trimming => PathReport::Lost,
            _ => PathReport::Congested,
        };
        match proof {
            MrcLossProof::Overtaken => turn.statistics.holes += 1,
            MrcLossProof::Probe => turn.statistics.probed_losses += 1,
            _ => {}
        }
        self.paths.count_lost(sent.path);
        self.report_loss(turn, number, &sent, proof);
        self.paths.report_path(turn.now_ns, sent.path, report);
        self.congestion.handle_loss(&LossSample {
            now_ns: turn.now_ns,
            size_bytes: sent.size_bytes.into(),
            rtt_ns: None,
            inflight_bytes: self.inflight_now(),
        });
        self.settle();
    }

    /// Reports that a packet counts as lost, with the path of its last copy.
    fn report_loss<H: Host>(
        &self,
        turn: &mut MrcCallContext<'_, H>,
        number: u64,
        sent: &SentPacket,
        proof: MrcLossProof,
    ) {
        let source_port = self.paths.ev(sent.path).map_or(0, |ev| ev.entropy.source_port());
        let (psn, age_ns) = (self.psn_of(number), turn.now_ns.saturating_sub(sent.sent_ns));
        turn.host.emit(&turn.settings.context, QpEvent::PacketLost { psn, source_port, age_ns, proof });
    }

    /// Resets the count of bytes in flight if no packet is, even if the peer's byte count differs.
    fn settle(&mut self) {
        if self.flight.flying() == 0 {
            self.window.inflight_bytes = 0;
        }
    }

    /// Marks packets as lost that are old enough and were overtaken by enough later packets.
    fn find_holes<H: Host>(&mut self, turn: &mut MrcCallContext<'_, H>) {
        self.silence.hole_ns = None;
        let mtu_bytes = u64::from(turn.settings.mtu_bytes().max(1));
        loop {
            let Some((number, sent)) = self.flight.oldest() else { return };
            let window = self.congestion.window_bytes() / mtu_bytes;
            let lag = window.min(self.flight.flying() as u64).max(MIN_HOLE_LAG);
            if self.flight.arrived_order().saturating_sub(sent.order) <= lag {
                return;
            }
            let lost_ns = sent.sent_ns.saturating_add(self.hole_age_ns());
            if turn.now_ns < lost_ns {
                self.silence.hole_ns = Some(lost_ns);
                return;
            }
            self.lose(turn, number, MrcLossProof::Overtaken);
        }
    }

    /// Completes all requests: that of a packet with a status, the others as flushed.
    pub(crate) fn fail<H: Host>(
        &mut self,
        settings: &MrcSettings,
        failure: Option<MrcFailure>,
        host: &mut H,
    ) {
        if let Some(failed) = failure.and_then(|failure| self.failed_send(settings, failure)) {
            host.log(&settings.context, Cause::SendFailed(failed));
        }
        let number = failure.map(|failure| failure.number);
        let status = failure.map_or(WcStatus::WrFlushErr, |failure| failure.status);
        self.queue.fail(&settings.context, number, status, host);
        self.flight = Flight::default();
        self.missing_ack.asks_for_ack = false;
    }

    /// Describes a request that failed, for the operator.
    fn failed_send(&self, settings: &MrcSettings, failure: MrcFailure) -> Option<FailedSend> {
        let request = self.queue.failed(failure.number)?;
        let (linear_cnt, exp_cnt, timeout) = self.retries.retry_attributes;
        let peer = settings.peer();
        let RemoteTarget { address, rkey } = request.remote;
        Some(FailedSend {
            status: failure.status,
            wr_id: request.wr_id,
            opcode: request.opcode,
            length_bytes: request.length,
            psn: self.psn_of(failure.number),
            mtu_bytes: settings.mtu_bytes(),
            retry_count: linear_cnt,
            rnr_retry: 0,
            timeout,
            exponential_retries: Some(exp_cnt),
            adaptive_ns: None,
            peer,
            remote: Some(RemoteRange { rkey, address, length_bytes: request.length.into() }),
            fault: None,
            misfit: None,
            ignored_answers: IgnoredAnswers::default(),
            was_acknowledged: self.queue.has_completed(),
            peer_is_absent: false,
            peer_is_itself: false,
        })
    }
}

pub(crate) use transmit::{SendProgress, nominal_bytes};
