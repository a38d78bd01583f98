//! Why messages failed.

use super::super::FLUSHED;
use super::super::cause::{Cause, CauseKind};
use super::super::clues::{Lasting, cause_of};
use super::super::words::time;
use super::{Case, Judge, Judgement};
use crate::format::FaultWhat;
use crate::timeline::{FaultFact, MomentKind, QueuePair};

/// The status of a request to which no answer came.
const RETRIES_USED_UP: u8 = 12;
/// The status of a request for which the peer had no receive request.
const RECEIVER_NOT_READY: u8 = 13;

impl<'a> Judge<'a> {
    /// Why a message failed, or was flushed; nothing if it did not.
    pub(super) fn of_failure(&mut self, case: &Case<'a>, all: &[Judgement]) -> Option<Cause> {
        let status = case.message.end.map(|end| end.status).filter(|status| *status != 0)?;
        let (process, ordinal) = (case.index.0, case.qp.ordinal);
        let (number, end_ns) = (case.message.number, case.message.last_ns());
        let key = (process, ordinal, 0, number);
        if let Some(fact) = self.clues.of_message(key, &[FaultWhat::Status], end_ns) {
            return Some(cause_of(fact, process));
        }
        let refused = self.clues.of_message(key, &[FaultWhat::Refused, FaultWhat::Rejected], end_ns);
        if let Some(fact) = refused {
            return Some(cause_of(fact, process));
        }
        if let Some(cause) = self.of_incident(case, (case.message.posted_ns, end_ns), Some(status)) {
            return Some(cause);
        }
        if let Some(planned) = all.iter().filter(|one| one.cause.rule.is_some()).max_by_key(|one| one.ns) {
            return Some(planned.cause.clone());
        }
        if status == FLUSHED {
            return Some(Cause::new(CauseKind::Flushed, process, flushed(case.qp, end_ns)));
        }
        if status == RETRIES_USED_UP
            && let Some(gone) = self.peer_gone(case, end_ns)
        {
            return Some(gone);
        }
        let lost = all.iter().filter(|one| !one.cause.kind.is_ordinary()).max_by_key(|one| one.ns);
        if let (RETRIES_USED_UP | RECEIVER_NOT_READY, Some(lost)) = (status, lost) {
            return Some(lost.cause.clone());
        }
        let mut logged = case.qp.moments.iter().rev().filter(|one| one.kind == MomentKind::Log);
        let said = logged.find(|one| (case.message.posted_ns..=end_ns).contains(&one.at_ns));
        let sentence = said.map_or_else(
            || "the trace has its status, and no reason".to_owned(),
            |moment| moment.text.trim_end_matches('.').to_owned(),
        );
        Some(Cause::new(CauseKind::Failed, process, sentence))
    }

    /// The peer had gone before the message failed.
    pub(super) fn peer_gone(&self, case: &Case<'a>, end_ns: u64) -> Option<Cause> {
        let peer = case.owner.peer()?;
        let destroyed = peer.qp()?.moments.iter().rev().find(|moment| {
            moment.kind == MomentKind::State && moment.text == "destroyed" && moment.at_ns < end_ns
        });
        let process = self.timeline.processes.get(peer.process)?;
        let name = format!("{} {}", process.header.program, process.header.process);
        if let Some(destroyed) = destroyed {
            let before = time(end_ns.saturating_sub(destroyed.at_ns));
            let sentence =
                format!("the peer ({name}) had destroyed its queue pair {before} before it failed");
            return Some(Cause::new(CauseKind::PeerGone, case.index.0, sentence));
        }
        let silent_ns = end_ns.saturating_sub(process.span_ns.1);
        // The last record of a process that lives is half a second old at most.
        let goes_on = process.began_ns.is_some();
        (peer.process != case.index.0 && !goes_on && silent_ns > 1_000_000_000).then(|| {
            let sentence = format!("the process of the peer ({name}) had ended {} before", time(silent_ns));
            Cause::new(CauseKind::PeerGone, case.index.0, sentence)
        })
    }

    /// What a plan had happen to the device or to the peer's in a stretch of time that held the message up,
    /// or ended it with a status.
    pub(super) fn of_incident(&self, case: &Case<'a>, span: (u64, u64), status: Option<u8>) -> Option<Cause> {
        let touches = |fact: &FaultFact| match fact.what {
            FaultWhat::Partition => status.is_none_or(|status| status == RETRIES_USED_UP),
            FaultWhat::Incident => {
                let effect = Effect::of(fact);
                let is_own = fact.qp.is_none_or(|qp| qp == case.qp.ordinal);
                match status {
                    None => effect == Effect::Holds,
                    Some(RETRIES_USED_UP) => effect == Effect::Holds,
                    Some(_) => effect == Effect::Ends || (effect == Effect::EndsOne && is_own),
                }
            }
            _ => false,
        };
        let peer = case.owner.peer().map(|peer| peer.process);
        let processes = [Some(case.index.0), peer.filter(|peer| *peer != case.index.0)];
        let found = processes
            .into_iter()
            .flatten()
            .filter_map(|process| self.clues.lasting(process, span, |fact| touches(fact)));
        let Lasting { fact, process, .. } = found.max_by_key(|one| one.ns)?;
        Some(cause_of(fact, process))
    }
}

/// What something that happens to a device does to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// It holds them up, or loses their packets.
    Holds,
    /// It flushes those of all queue pairs, or of those of an object.
    Ends,
    /// It flushes those of the queue pair that it happens to.
    EndsOne,
    /// It does nothing to them.
    Nothing,
}

impl Effect {
    fn of(fact: &FaultFact) -> Effect {
        match fact.subject.split(' ').next() {
            Some("freeze" | "port-down" | "cable-pull" | "link") => Effect::Holds,
            Some("cq-error" | "srq-error" | "device-fatal" | "unplug") => Effect::Ends,
            Some("qp-fatal" | "qp-access-error" | "disconnect") => Effect::EndsOne,
            _ => Effect::Nothing,
        }
    }
}

/// Why requests of a queue pair were flushed: what moved it to ERR.
fn flushed(qp: &QueuePair, end_ns: u64) -> String {
    let mut states = qp.moments.iter().filter(|one| one.kind == MomentKind::State && one.at_ns <= end_ns);
    let last = states.rfind(|one| one.text.contains("to ERR") || one.text.contains("to SQE"));
    last.map_or_else(
        || "its queue pair was in the error state".to_owned(),
        |moment| format!("its queue pair went from {}", moment.text),
    )
}
