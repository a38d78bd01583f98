//! Judges what held up packets that were not lost.

use pumice_platform::link_settings::LinkSettings;

use super::super::cause::{CauseKind, MessageCause, time};
use super::super::fact_index::cause_of;
use super::super::timeline_index::{over_ns, within};
use super::super::times::TimeSpan;
use super::waits::window;
use super::{Judge, JudgedMessage, REACH};
use crate::format::TracedFaultAction;
use crate::timeline::{CongestionKind, FaultFact, SetbackKind};

/// Time for which a sign of congestion counts, in ns.
const CONGESTED_NS: u64 = 20_000_000;
/// Minimum overhead of a packet on a link, in bytes.
const HEADER_BYTES: u64 = 70;

impl<'a> Judge<'a> {
    pub(super) fn of_network(&self, case: &JudgedMessage<'a>, span: &TimeSpan) -> MessageCause {
        let process = case.index.0;
        let key = (process, case.qp.ordinal, 0, case.message.number);
        let changed = [TracedFaultAction::Delayed, TracedFaultAction::Reordered];
        if let Some(fact) = self.fact_index.of_message(key, &changed, span.to_ns) {
            return cause_of(fact, process);
        }
        let stretch = (span.from_ns, span.to_ns);
        if let Some(peer) = case.owner.peer()
            && let Some(qp) = peer.qp()
        {
            let fits = |fact: &FaultFact| {
                changed.contains(&fact.what) && fact.side == 1 && fact.qp == Some(qp.ordinal)
            };
            let held = self.fact_index.lasting(peer.process, stretch, fits);
            if let Some(held) = held.filter(|held| held.ns >= span.ns() / 2) {
                return cause_of(held.fact, peer.process);
            }
        }
        let losses = case.message.setbacks.iter().filter(|one| {
            let noticed = matches!(one.kind, SetbackKind::SequenceNak | SetbackKind::MissingAnswer);
            noticed && (span.from_ns..=span.to_ns).contains(&one.at_ns)
        });
        if let Some(setback) = losses.clone().next() {
            return self.of_noticed(case, setback);
        }
        let slow = self.congestion(case, span).or_else(|| self.rate(case, span));
        if let Some(cause) = slow.or_else(|| window(case, span)) {
            return cause;
        }
        self.of_ordinary(case, span)
    }

    /// Returns the ordinary cause of a stretch in which packets travel: the network, or the peer's device.
    pub(super) fn of_ordinary(&self, case: &JudgedMessage<'a>, span: &TimeSpan) -> MessageCause {
        let process = case.index.0;
        let Some(transit_ns) = case.owner.in_transit_ns(case.message) else {
            let sentence = format!("its packets were on the network or at the peer for {}", time(span.ns()));
            return MessageCause::new(CauseKind::Beyond, process, sentence);
        };
        let peer_ns = span.ns().saturating_sub(transit_ns);
        if peer_ns > transit_ns {
            let sentence = format!("its packets were at the peer's device for {}", time(peer_ns));
            return MessageCause::new(CauseKind::PeerDevice, process, sentence);
        }
        let sentence = format!("its packets were on their way for {}", time(transit_ns.min(span.ns())));
        MessageCause::new(CauseKind::Network, process, sentence)
    }

    pub(super) fn congestion(&self, case: &JudgedMessage<'a>, span: &TimeSpan) -> Option<MessageCause> {
        let from_ns = span.from_ns.saturating_sub(CONGESTED_NS);
        let heard = within(&case.qp.congestion, |one| one.at_ns, (from_ns, span.to_ns)).iter();
        let cnps = heard.clone().filter(|one| one.kind == CongestionKind::Notified).count();
        if cnps == 0 {
            return None;
        }
        let rate = heard.rev().find_map(|one| match one.kind {
            CongestionKind::Rate(rate) => Some(rate),
            _ => None,
        });
        let slowed = rate.map_or_else(
            || "the window shrank".to_owned(),
            |rate| format!("the rate was {:.1} Mbit/s then", rate as f64 / 1e6),
        );
        let marks = [TracedFaultAction::Marked, TracedFaultAction::Notified];
        let sides = [(case.index.0, case.qp.ordinal, 0)];
        let planned = sides.into_iter().find_map(|(process, ordinal, side)| {
            self.fact_index.of_side(process, (ordinal, side), &marks, (from_ns, span.to_ns))
        });
        let process = case.index.0;
        Some(match planned {
            Some(fact) => cause_of(fact, process),
            None => MessageCause::new(
                CauseKind::Congestion,
                process,
                format!(
                    "congestion: {cnps} notifications (CNP) came, because a switch had marked packets (ECN), \
                 and {slowed}"
                ),
            ),
        })
    }

    /// Returns the rate of the link as the cause, if the bits of the message alone take a good part of the
    /// time.
    pub(super) fn rate(&self, case: &JudgedMessage<'a>, span: &TimeSpan) -> Option<MessageCause> {
        let (link, switches) = self.network(case)?;
        let settings = LinkSettings::parse(link).ok();
        let paths = settings.iter().flat_map(|one| [one.egress, one.ingress]);
        let rate = paths.filter_map(|way| way.rate_bits_per_second).min();
        let mbps = switches.split(' ').nth(1).and_then(|number| number.parse::<u64>().ok());
        let rate = rate.into_iter().chain(mbps.map(|mbps| mbps.saturating_mul(1_000_000))).min()?;
        let message = case.message;
        let headers = u64::from(message.packets.max(1)).saturating_mul(HEADER_BYTES);
        let bytes = u64::from(message.bytes).saturating_add(headers);
        let own_ns = u128::from(bytes) * 8_000_000_000 / u128::from(rate.max(1));
        let own_ns = u64::try_from(own_ns).unwrap_or(u64::MAX);
        let name = match (link, switches) {
            ("", switches) => format!("the switches ({switches})"),
            (link, _) => format!("the link ({link})"),
        };
        let process = case.index.0;
        if own_ns.saturating_mul(3) >= span.ns() {
            return Some(MessageCause::new(
                CauseKind::LinkRate,
                process,
                format!("its {bytes} bytes alone take {} at the rate of {name}", time(own_ns)),
            ));
        }
        // Earlier packets, of this queue pair or of others, were in the queue.
        let ahead_ns = u128::from(ahead_bytes(case)) * 8_000_000_000 / u128::from(rate.max(1));
        let ahead_ns = u64::try_from(ahead_ns).unwrap_or(u64::MAX);
        let transit_ns = case.owner.in_transit_ns(message).unwrap_or(0);
        let is_long =
            transit_ns >= span.ns() / 2 && transit_ns > own_ns.saturating_mul(4) && transit_ns > 50_000;
        (is_long || ahead_ns.saturating_mul(3) >= span.ns()).then(|| {
            let what = if switches.is_empty() { "the queue of" } else { "a queue of" };
            let sentence = format!(
                "its packets waited behind others in {what} {name}: they need {} alone, and those of its \
                 queue pair before them {}",
                time(own_ns),
                time(ahead_ns)
            );
            MessageCause::new(CauseKind::SwitchQueue, process, sentence)
        })
    }
}

/// Sums the bytes of earlier requests of the queue pair that were under way when this one was posted.
fn ahead_bytes(case: &JudgedMessage<'_>) -> u64 {
    let number = case.index.2;
    let earlier = case.found.open_before(number, REACH, case.message.posted_ns);
    let open = earlier.iter().filter(|one| over_ns(one) > case.message.posted_ns);
    open.map(|one| u64::from(one.bytes) + u64::from(one.packets.max(1)) * HEADER_BYTES).sum()
}
