//! What is heard of the device, and kept.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use pumice_events::Event;
use pumice_events::inspect::{Awaited, ConnectView, QueueNow, Vain};
use pumice_transport::cm::Event as CmEvent;
use pumice_transport::event::QpEvent;
use pumice_transport::mad::CmMessage;
use pumice_transport::types::{Cause, DropReason};

use super::rest::Rest;

/// What is remembered of each kind; of more nothing is said.
const MOST: usize = 1024;
/// `retries_left` of a sender that waits for a receive for ever.
pub(super) const FOR_EVER: u8 = 7;
/// How much later than the peer asked for another RNR NAK may come.
const LATE_NS: u64 = 1_000_000_000;
/// Sentences that are said again when the process is ended.
const MOST_SAID: usize = 8;

#[derive(Debug, Default)]
pub(super) struct State {
    /// Messages for which the peer has no receive, by the number of the queue pair.
    pub(super) unready: BTreeMap<u32, Unready>,
    /// Completion queues with completions, by number.
    pub(super) queues: BTreeMap<u32, Unpolled>,
    /// Connections that were asked for, by the identifiers of this side.
    pub(super) asked: BTreeMap<u32, Asked>,
    /// Connections that the peer has refused, and which no other event has followed since.
    pub(super) refused: Option<Refused>,
    /// Datagrams that came for a number which no queue pair has.
    pub(super) stray: Option<Stray>,
    /// Until then nothing is looked for: what threads do was asked, and that costs them time.
    pub(super) again_ns: u64,
    /// Of these something was said.
    pub(super) told: BTreeSet<Awaited>,
    /// What was said since something has moved, and about what.
    pub(super) said: Vec<(Awaited, String)>,
    /// Since when nothing has moved.
    pub(super) rest: Rest,
}

#[derive(Debug)]
pub(super) struct Unready {
    pub(super) psn: u32,
    pub(super) naks: u64,
    pub(super) since_ns: u64,
    pub(super) last_ns: u64,
    pub(super) wait_ns: u64,
    pub(super) is_for_ever: bool,
}

#[derive(Debug)]
pub(super) struct Unpolled {
    pub(super) filled: usize,
    pub(super) since_ns: u64,
}

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) to: IpAddr,
    pub(super) port: u16,
    pub(super) since_ns: u64,
    pub(super) requests: u32,
}

#[derive(Debug)]
pub(super) struct Refused {
    pub(super) id: u32,
    pub(super) since_ns: u64,
    /// What the peer did.
    pub(super) reason: String,
    /// What the name of the program's event ends with.
    pub(super) event: &'static str,
}

#[derive(Debug)]
pub(super) struct Stray {
    pub(super) number: u32,
    pub(super) count: u64,
    pub(super) since_ns: u64,
}

impl State {
    pub(super) fn is_told(&self, about: Awaited) -> bool {
        self.told.contains(&about) || self.told.len() >= MOST
    }

    pub(super) fn hear(&mut self, at_ns: u64, event: &Event<'_>) {
        match event {
            Event::Qp { qp, event: QpEvent::ReceiverNotReady { psn, retries_left, wait_ns } } => {
                let known = self.unready.len() < MOST || self.unready.contains_key(&qp.qpn.value());
                if !known {
                    return;
                }
                let (psn, wait_ns) = (psn.value(), *wait_ns);
                let is_for_ever = *retries_left == FOR_EVER;
                let new = Unready { psn, naks: 0, since_ns: at_ns, last_ns: at_ns, wait_ns, is_for_ever };
                let one = self.unready.entry(qp.qpn.value()).or_insert(new);
                if one.psn != psn {
                    *one = Unready { psn, naks: 0, since_ns: at_ns, last_ns: at_ns, wait_ns, is_for_ever };
                }
                one.naks = one.naks.saturating_add(1);
                (one.last_ns, one.wait_ns) = (at_ns, wait_ns);
            }
            Event::Qp { qp, event: QpEvent::Logged(Cause::PacketDropped { opcode, reason, .. }) } => {
                let is_unknown =
                    matches!(reason, DropReason::UnknownQpn { destroyed: false } | DropReason::NoProcess);
                if is_unknown && opcode.service().is_datagram() {
                    let new = Stray { number: qp.qpn.value(), count: 0, since_ns: at_ns };
                    let stray = self.stray.get_or_insert(new);
                    stray.count = stray.count.saturating_add(1);
                }
            }
            Event::QpDestroyed { qp } => drop(self.unready.remove(&qp.qpn.value())),
            // What a plan does to a queue pair is no fault of the peer's.
            Event::FaultApplied { qpn: Some(qpn), .. } => drop(self.unready.remove(&qpn.value())),
            Event::CmSent { message: CmMessage::Req(request) } => {
                let id = request.local_id.0;
                if self.asked.len() >= MOST && !self.asked.contains_key(&id) {
                    return;
                }
                let to = IpAddr::from(request.primary.remote_gid);
                let port = request.service_id.0 as u16;
                let new = Asked { to, port, since_ns: at_ns, requests: 0 };
                let one = self.asked.entry(id).or_insert(new);
                one.requests = one.requests.saturating_add(1);
            }
            // The peer's device has the request, and asks for time; its program has not answered.
            Event::CmReceived { message: CmMessage::Mra(_) }
            | Event::CmEvent { event: CmEvent::MraReceived { .. }, .. } => {}
            Event::CmReceived { message } => {
                // Each other message says that the peer answers.
                if let Some(own) = message.recipient() {
                    self.asked.remove(&own.0);
                }
            }
            Event::CmEvent { event, .. } => {
                self.asked.remove(&event.id().0);
                self.refused = match event {
                    CmEvent::Rejected { id, rejection } => {
                        let reason = format!("rejected the connection ({})", rejection.reason);
                        Some(Refused { id: id.0, since_ns: at_ns, reason, event: "REJECTED" })
                    }
                    CmEvent::Unreachable { id, .. } => {
                        let reason = "did not answer a request for a connection".to_owned();
                        Some(Refused { id: id.0, since_ns: at_ns, reason, event: "UNREACHABLE" })
                    }
                    _ => None,
                };
            }
            _ => {}
        }
    }

    /// Notes since when completions wait.
    pub(super) fn see(&mut self, now_ns: u64, queues: &[QueueNow]) {
        self.queues.retain(|number, one| {
            queues.iter().any(|queue| queue.number == *number && queue.filled == one.filled)
        });
        for queue in queues.iter().filter(|queue| queue.filled > 0).take(MOST) {
            let new = Unpolled { filled: queue.filled, since_ns: now_ns };
            self.queues.entry(queue.number).or_insert(new);
        }
    }

    /// Whether something has waited for so long, of which nothing was said.
    pub(super) fn is_long(&self, now_ns: u64, patience_ns: u64) -> bool {
        // Before the patience is over for the first time, nothing can have waited for so long.
        let Some(before_ns) = now_ns.checked_sub(patience_ns).filter(|_| now_ns >= self.again_ns) else {
            return false;
        };
        let unready = self
            .unready
            .iter()
            .any(|(qpn, one)| one.is_due(now_ns, before_ns) && !self.is_told(Awaited::Request(*qpn)));
        let unpolled = self
            .queues
            .iter()
            .any(|(number, one)| one.since_ns <= before_ns && !self.is_told(Awaited::Completions(*number)));
        // A peer may take longer to answer than a thread to poll.
        let before_ns = before_ns.checked_sub(patience_ns / 2);
        let is_due = |since_ns: u64| before_ns.is_some_and(|before_ns| since_ns <= before_ns);
        let asked =
            self.asked.iter().any(|(id, one)| is_due(one.since_ns) && !self.is_told(Awaited::Answer(*id)));
        let refused = self.refused.as_ref().is_some_and(|one| is_due(one.since_ns));
        let strayed = self.stray.as_ref().is_some_and(|one| is_due(one.since_ns));
        unready || unpolled || asked || refused || strayed
    }

    /// Whether nothing is known that could wait.
    pub(super) fn is_idle(&self) -> bool {
        self.unready.is_empty()
            && self.queues.is_empty()
            && self.asked.is_empty()
            && self.refused.is_none()
            && self.stray.is_none()
    }

    /// Those of which nothing was said, which is said now.
    pub(super) fn not_told(&mut self, mut found: Vec<Vain>) -> Vec<Vain> {
        found.retain(|vain| !self.is_told(vain.about) && self.told.insert(vain.about));
        let room = MOST_SAID.saturating_sub(self.said.len());
        self.said.extend(found.iter().take(room).map(|vain| (vain.about, vain.sentence.clone())));
        found
    }

    /// Requests for connections that have no answer.
    pub(super) fn connects(&self, now_ns: u64) -> Vec<ConnectView> {
        let of = |one: &Asked| ConnectView {
            to: one.to,
            port: one.port,
            requests: one.requests,
            for_ms: now_ns.saturating_sub(one.since_ns) / 1_000_000,
        };
        self.asked.values().map(of).collect()
    }
}

impl Unready {
    pub(super) fn is_due(&self, now_ns: u64, before_ns: u64) -> bool {
        let is_live = now_ns <= self.last_ns.saturating_add(self.wait_ns).saturating_add(LATE_NS);
        self.is_for_ever && is_live && self.since_ns <= before_ns && self.naks > 1
    }
}
