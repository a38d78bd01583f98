//! The state that events of the device build up, and the time since which nothing has moved.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use pumice_model::event::Event;
use pumice_model::inspect::{ConnectView, CqSnapshot, StalledWait, WaitTarget};
use pumice_transport::cm::CmEvent;
use pumice_transport::event::QpEvent;
use pumice_transport::mad::CmMessage;
use pumice_transport::types::{Cause, DropReason};

/// Time from a judgement to the next examination, in patiences.
pub(super) const PATIENCES: u64 = 4;
/// Largest number of times that this time is doubled while nothing moves: an idle server is examined once in
/// some minutes.
const MAX_DOUBLED: u32 = 5;

/// The time for which a device has not progressed.
#[derive(Debug, Default)]
pub(super) struct StallTimer {
    moved: u64,
    since_ns: u64,
    again_ns: u64,
    judged: u32,
}

impl StallTimer {
    /// Notes `moved`, which changes when the device progresses, and returns whether it has.
    pub(super) fn observe(&mut self, now_ns: u64, moved: u64) -> bool {
        let has_moved = self.moved != moved || self.since_ns == 0;
        if has_moved {
            *self = StallTimer { moved, since_ns: now_ns.max(1), ..StallTimer::default() };
        }
        has_moved
    }

    /// Reports whether nothing has moved for `patience_ns`.
    pub(super) fn is_long(&self, now_ns: u64, patience_ns: u64) -> bool {
        self.since_ns != 0 && now_ns.saturating_sub(self.since_ns) >= patience_ns
    }

    /// Reports whether the state has to be judged.
    pub(super) fn is_due(&self, now_ns: u64, patience_ns: u64) -> bool {
        self.is_long(now_ns, patience_ns) && now_ns >= self.again_ns
    }

    /// Notes that the state was judged.
    pub(super) fn judged(&mut self, now_ns: u64, patience_ns: u64) {
        let pause_ns = (PATIENCES << self.judged.min(MAX_DOUBLED)).saturating_mul(patience_ns);
        self.again_ns = now_ns.saturating_add(pause_ns);
        self.judged = self.judged.saturating_add(1);
    }
}

/// Number of items of each kind that are remembered; further ones are not reported.
const MOST: usize = 1024;
/// Value of `retries_left` of a sender that waits for a receive for ever.
pub(super) const FOR_EVER: u8 = 7;
/// Time after the wait that the peer asked for within which another RNR NAK may come.
const LATE_NS: u64 = 1_000_000_000;
/// Number of sentences that are repeated when the process is ended.
const MAX_REPORTS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct ObservedWaits {
    /// Messages for which the peer has no receive, by the number of the queue pair.
    pub(super) unready: BTreeMap<u32, UnreadyPeer>,
    /// Completion queues with completions, by number.
    pub(super) queues: BTreeMap<u32, UnpolledQueue>,
    /// Connections that were asked for, by the identifiers of this side.
    pub(super) pending_connects: BTreeMap<u32, PendingConnect>,
    /// Last connection that the peer has refused, if no other event has followed since.
    pub(super) refused: Option<RefusedConnect>,
    /// Datagrams that came for a number which no queue pair has.
    pub(super) stray: Option<StrayDatagrams>,
    /// Time until which nothing is examined: the threads were examined just now, and that costs them time.
    pub(super) again_ns: u64,
    /// Waits that were reported.
    pub(super) reported: BTreeSet<WaitTarget>,
    /// Waits that were reported since something last moved, with their sentences.
    pub(super) reports: Vec<(WaitTarget, String)>,
    /// Time since which nothing has moved.
    pub(super) rest: StallTimer,
}

#[derive(Debug)]
pub(super) struct UnreadyPeer {
    pub(super) psn: u32,
    pub(super) naks: u64,
    pub(super) since_ns: u64,
    last_ns: u64,
    pub(super) wait_ns: u64,
    is_for_ever: bool,
}

#[derive(Debug)]
pub(super) struct UnpolledQueue {
    pub(super) filled: usize,
    pub(super) since_ns: u64,
}

#[derive(Debug)]
pub(super) struct PendingConnect {
    pub(super) to: IpAddr,
    pub(super) port: u16,
    pub(super) since_ns: u64,
    pub(super) requests: u32,
}

#[derive(Debug)]
pub(super) struct RefusedConnect {
    pub(super) id: u32,
    pub(super) since_ns: u64,
    /// Action of the peer.
    pub(super) reason: String,
    /// Ending of the name of the program's event.
    pub(super) event: &'static str,
}

#[derive(Debug)]
pub(super) struct StrayDatagrams {
    pub(super) number: u32,
    pub(super) count: u64,
    pub(super) since_ns: u64,
}

impl ObservedWaits {
    pub(super) fn is_reported(&self, about: WaitTarget) -> bool {
        self.reported.contains(&about) || self.reported.len() >= MOST
    }

    pub(super) fn on_event(&mut self, at_ns: u64, event: &Event<'_>) {
        match event {
            Event::Qp { qp, event: QpEvent::ReceiverNotReady { psn, retries_left, wait_ns } } => {
                let known = self.unready.len() < MOST || self.unready.contains_key(&qp.qpn.value());
                if !known {
                    return;
                }
                let (psn, wait_ns) = (psn.value(), *wait_ns);
                let is_for_ever = *retries_left == FOR_EVER;
                let new = UnreadyPeer { psn, naks: 0, since_ns: at_ns, last_ns: at_ns, wait_ns, is_for_ever };
                let one = self.unready.entry(qp.qpn.value()).or_insert(new);
                if one.psn != psn {
                    *one =
                        UnreadyPeer { psn, naks: 0, since_ns: at_ns, last_ns: at_ns, wait_ns, is_for_ever };
                }
                one.naks = one.naks.saturating_add(1);
                (one.last_ns, one.wait_ns) = (at_ns, wait_ns);
            }
            Event::Qp { qp, event: QpEvent::Logged(Cause::PacketDropped { opcode, reason, .. }) } => {
                let is_unknown =
                    matches!(reason, DropReason::UnknownQpn { destroyed: false } | DropReason::NoProcess);
                if is_unknown && opcode.service().is_datagram() {
                    let new = StrayDatagrams { number: qp.qpn.value(), count: 0, since_ns: at_ns };
                    let stray = self.stray.get_or_insert(new);
                    stray.count = stray.count.saturating_add(1);
                }
            }
            Event::QpDestroyed { qp } => drop(self.unready.remove(&qp.qpn.value())),
            // The effect of a plan on a queue pair is no fault of the peer's.
            Event::FaultApplied { qpn: Some(qpn), .. } => drop(self.unready.remove(&qpn.value())),
            Event::CmSent { message: CmMessage::Req(request) } => {
                let id = request.local_id.0;
                if self.pending_connects.len() >= MOST && !self.pending_connects.contains_key(&id) {
                    return;
                }
                let to = IpAddr::from(request.primary.remote_gid);
                let port = request.service_id.0 as u16;
                let new = PendingConnect { to, port, since_ns: at_ns, requests: 0 };
                let one = self.pending_connects.entry(id).or_insert(new);
                one.requests = one.requests.saturating_add(1);
            }
            // The peer's device has the request, and asks for time; its program has not answered.
            Event::CmReceived { message: CmMessage::Mra(_) }
            | Event::CmEvent { event: CmEvent::MraReceived { .. }, .. } => {}
            Event::CmReceived { message } => {
                // Each other message shows that the peer answers.
                if let Some(own) = message.recipient() {
                    self.pending_connects.remove(&own.0);
                }
            }
            Event::CmEvent { event, .. } => {
                self.pending_connects.remove(&event.id().0);
                self.refused = match event {
                    CmEvent::Rejected { id, rejection } => {
                        let reason = format!("rejected the connection ({})", rejection.reason);
                        Some(RefusedConnect { id: id.0, since_ns: at_ns, reason, event: "REJECTED" })
                    }
                    CmEvent::Unreachable { id, .. } => {
                        let reason = "did not answer a request for a connection".to_owned();
                        Some(RefusedConnect { id: id.0, since_ns: at_ns, reason, event: "UNREACHABLE" })
                    }
                    _ => None,
                };
            }
            _ => {}
        }
    }

    /// Records since when completions wait.
    pub(super) fn observe(&mut self, now_ns: u64, queues: &[CqSnapshot]) {
        self.queues.retain(|number, one| {
            queues.iter().any(|queue| queue.number == *number && queue.filled == one.filled)
        });
        for queue in queues.iter().filter(|queue| queue.filled > 0).take(MOST) {
            let new = UnpolledQueue { filled: queue.filled, since_ns: now_ns };
            self.queues.entry(queue.number).or_insert(new);
        }
    }

    /// Reports whether something that was not reported has waited for `patience_ns`.
    pub(super) fn is_long(&self, now_ns: u64, patience_ns: u64) -> bool {
        // Before the patience is over for the first time, nothing can have waited for so long.
        let Some(before_ns) = now_ns.checked_sub(patience_ns).filter(|_| now_ns >= self.again_ns) else {
            return false;
        };
        let unready = self
            .unready
            .iter()
            .any(|(qpn, one)| one.is_due(now_ns, before_ns) && !self.is_reported(WaitTarget::Request(*qpn)));
        let unpolled = self.queues.iter().any(|(number, one)| {
            one.since_ns <= before_ns && !self.is_reported(WaitTarget::Completions(*number))
        });
        // A peer may take longer to answer than a thread to poll.
        let before_ns = before_ns.checked_sub(patience_ns / 2);
        let is_due = |since_ns: u64| before_ns.is_some_and(|before_ns| since_ns <= before_ns);
        let pending_connects = self
            .pending_connects
            .iter()
            .any(|(id, one)| is_due(one.since_ns) && !self.is_reported(WaitTarget::Answer(*id)));
        let refused = self.refused.as_ref().is_some_and(|one| is_due(one.since_ns));
        let strayed = self.stray.as_ref().is_some_and(|one| is_due(one.since_ns));
        unready || unpolled || pending_connects || refused || strayed
    }

    /// Reports whether nothing is known that could wait.
    pub(super) fn is_idle(&self) -> bool {
        self.unready.is_empty()
            && self.queues.is_empty()
            && self.pending_connects.is_empty()
            && self.refused.is_none()
            && self.stray.is_none()
    }

    /// Returns the waits that were not reported yet, and marks them as reported.
    pub(super) fn take_unreported(&mut self, mut found: Vec<StalledWait>) -> Vec<StalledWait> {
        found.retain(|vain| !self.is_reported(vain.about) && self.reported.insert(vain.about));
        let room = MAX_REPORTS.saturating_sub(self.reports.len());
        self.reports.extend(found.iter().take(room).map(|vain| (vain.about, vain.sentence.clone())));
        found
    }

    /// Returns the requests for connections that have no answer.
    pub(super) fn connects(&self, now_ns: u64) -> Vec<ConnectView> {
        let of = |one: &PendingConnect| ConnectView {
            to: one.to,
            port: one.port,
            requests: one.requests,
            for_ms: now_ns.saturating_sub(one.since_ns) / 1_000_000,
        };
        self.pending_connects.values().map(of).collect()
    }
}

impl UnreadyPeer {
    pub(super) fn is_due(&self, now_ns: u64, before_ns: u64) -> bool {
        let is_live = now_ns <= self.last_ns.saturating_add(self.wait_ns).saturating_add(LATE_NS);
        self.is_for_ever && is_live && self.since_ns <= before_ns && self.naks > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_at_rest_is_judged_less_and_less_often_until_it_moves() {
        let mut rest = StallTimer::default();
        let mut judged = Vec::new();
        for now_ns in 0..200 {
            rest.observe(now_ns, 7);
            if rest.is_due(now_ns, 2) {
                judged.push(now_ns);
                rest.judged(now_ns, 2);
            }
        }
        assert_eq!(judged, [3, 11, 27, 59, 123]);
        rest.observe(200, 8);
        assert!(!rest.is_due(201, 2) && rest.is_due(202, 2));
    }
}
