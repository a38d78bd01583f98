//! What held packets up that were not lost.

use pumice_ground::link_words::LinkSettings;

use super::super::cause::{Cause, CauseKind};
use super::super::clues::cause_of;
use super::super::times::Span;
use super::super::words::time;
use super::waits::window;
use super::{Case, Judge, REACH};
use crate::format::FaultWhat;
use crate::timeline::{CongestionKind, FaultFact, Message, SetbackKind};

/// Congestion is remembered for so long.
const CONGESTED_NS: u64 = 20_000_000;
/// Bytes that a packet has beside its payload, on a link, at least.
const HEADER_BYTES: u64 = 70;

impl<'a> Judge<'a> {
    pub(super) fn of_network(&self, case: &Case<'a>, span: &Span) -> Cause {
        let process = case.index.0;
        let key = (process, case.qp.ordinal, 0, case.message.number);
        let changed = [FaultWhat::Delayed, FaultWhat::Reordered];
        if let Some(fact) = self.clues.of_message(key, &changed, span.to_ns) {
            return cause_of(fact, process);
        }
        let stretch = (span.from_ns, span.to_ns);
        if let Some(peer) = case.owner.peer()
            && let Some(qp) = peer.qp()
        {
            let fits = |fact: &FaultFact| {
                changed.contains(&fact.what) && fact.side == 1 && fact.qp == Some(qp.ordinal)
            };
            let held = self.clues.lasting(peer.process, stretch, fits);
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

    /// Packets go and come: on the network, or at the peer's device.
    pub(super) fn of_ordinary(&self, case: &Case<'a>, span: &Span) -> Cause {
        let process = case.index.0;
        let Some(way_ns) = case.owner.on_the_way_ns(case.message) else {
            let sentence = format!("its packets were on the network or at the peer for {}", time(span.ns()));
            return Cause::new(CauseKind::Beyond, process, sentence);
        };
        let peer_ns = span.ns().saturating_sub(way_ns);
        if peer_ns > way_ns {
            let sentence = format!("its packets were at the peer's device for {}", time(peer_ns));
            return Cause::new(CauseKind::PeerDevice, process, sentence);
        }
        let sentence = format!("its packets were on their way for {}", time(way_ns.min(span.ns())));
        Cause::new(CauseKind::Network, process, sentence)
    }

    pub(super) fn congestion(&self, case: &Case<'a>, span: &Span) -> Option<Cause> {
        let from_ns = span.from_ns.saturating_sub(CONGESTED_NS);
        let in_time = |at_ns: u64| (from_ns..=span.to_ns).contains(&at_ns);
        let heard = case.qp.congestion.iter().filter(|one| in_time(one.at_ns));
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
        let marks = [FaultWhat::Marked, FaultWhat::Notified];
        let sides = [(case.index.0, case.qp.ordinal, 0)];
        let planned = sides.into_iter().find_map(|(process, ordinal, side)| {
            self.clues.of_side(process, (ordinal, side), &marks, (from_ns, span.to_ns))
        });
        let process = case.index.0;
        Some(match planned {
            Some(fact) => cause_of(fact, process),
            None => Cause::new(
                CauseKind::Congestion,
                process,
                format!(
                    "congestion: {cnps} notifications (CNP) came, because a switch had marked packets (ECN), \
                 and {slowed}"
                ),
            ),
        })
    }

    /// The bits of the message alone take a good part of the time at the rate of the link.
    pub(super) fn rate(&self, case: &Case<'a>, span: &Span) -> Option<Cause> {
        let (link, switches) = self.network(case)?;
        let settings = LinkSettings::parse(link).ok();
        let ways = settings.iter().flat_map(|one| [one.egress, one.ingress]);
        let rate = ways.filter_map(|way| way.rate_bits_per_second).min();
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
            return Some(Cause::new(
                CauseKind::LinkRate,
                process,
                format!("its {bytes} bytes alone take {} at the rate of {name}", time(own_ns)),
            ));
        }
        // Packets before it, of this queue pair or of others, were in the queue.
        let ahead_ns = u128::from(ahead_bytes(case)) * 8_000_000_000 / u128::from(rate.max(1));
        let ahead_ns = u64::try_from(ahead_ns).unwrap_or(u64::MAX);
        let way_ns = case.owner.on_the_way_ns(message).unwrap_or(0);
        let is_long = way_ns >= span.ns() / 2 && way_ns > own_ns.saturating_mul(4) && way_ns > 50_000;
        (is_long || ahead_ns.saturating_mul(3) >= span.ns()).then(|| {
            let what = if switches.is_empty() { "the queue of" } else { "a queue of" };
            let sentence = format!(
                "its packets waited behind others in {what} {name}: they need {} alone, and those of its \
                 queue pair before them {}",
                time(own_ns),
                time(ahead_ns)
            );
            Cause::new(CauseKind::SwitchQueue, process, sentence)
        })
    }
}

/// Bytes of earlier requests of the queue pair that were under way when this one was posted.
fn ahead_bytes(case: &Case<'_>) -> u64 {
    let number = case.index.2;
    let earlier = case.qp.messages.get(number.saturating_sub(REACH)..number).unwrap_or_default();
    let over_ns = |one: &Message| one.acknowledged_ns.or(one.end.map(|end| end.at_ns)).unwrap_or(u64::MAX);
    let open = earlier.iter().filter(|one| over_ns(one) > case.message.posted_ns);
    open.map(|one| u64::from(one.bytes) + u64::from(one.packets.max(1)) * HEADER_BYTES).sum()
}
