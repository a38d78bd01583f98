//! Judges why messages failed.

use pumice_model::fates::incident::IncidentKind;

use super::super::FLUSHED;
use super::super::cause::{CauseKind, MessageCause, time};
use super::super::fact_index::{LastingFaultMatch, cause_of};
use super::super::timeline_index::QpIndex;
use super::{CauseVerdict, Judge, JudgedMessage};
use crate::format::TracedFaultAction;
use crate::timeline::FaultFact;

/// Status of a request that received no answer.
const RETRIES_USED_UP: u8 = 12;
/// Status of a request for which the peer had no receive request.
const RECEIVER_NOT_READY: u8 = 13;

impl<'a> Judge<'a> {
    /// Returns why a message failed, or was flushed; `None` if it did not.
    pub(super) fn of_failure(
        &mut self,
        case: &JudgedMessage<'a>,
        all: &[CauseVerdict],
    ) -> Option<MessageCause> {
        let status = case.message.end.map(|end| end.status).filter(|status| *status != 0)?;
        let (process, ordinal) = (case.index.0, case.qp.ordinal);
        let (number, end_ns) = (case.message.number, case.message.last_ns());
        let key = (process, ordinal, 0, number);
        if let Some(fact) = self.fact_index.of_message(key, &[TracedFaultAction::Status], end_ns) {
            return Some(cause_of(fact, process));
        }
        let refused = self.fact_index.of_message(
            key,
            &[TracedFaultAction::Refused, TracedFaultAction::Rejected],
            end_ns,
        );
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
            return Some(MessageCause::new(CauseKind::Flushed, process, flushed(case.found, end_ns)));
        }
        if status == RETRIES_USED_UP
            && let Some(gone) = self.peer_ended(case, end_ns)
        {
            return Some(gone);
        }
        let lost = all.iter().filter(|one| !one.cause.kind.is_ordinary()).max_by_key(|one| one.ns);
        if let (RETRIES_USED_UP | RECEIVER_NOT_READY, Some(lost)) = (status, lost) {
            return Some(lost.cause.clone());
        }
        let said = case.found.last_logged(case.message.posted_ns, end_ns);
        let sentence = said.map_or_else(
            || "the trace has its status, and no reason".to_owned(),
            |text| text.trim_end_matches('.').to_owned(),
        );
        Some(MessageCause::new(CauseKind::Failed, process, sentence))
    }

    /// Returns the cause if the peer was gone before the message failed.
    pub(super) fn peer_ended(&self, case: &JudgedMessage<'a>, end_ns: u64) -> Option<MessageCause> {
        let peer = case.owner.peer()?;
        let mut states = peer.found()?.states_before(end_ns);
        let destroyed = states.find(|(_, text)| *text == "destroyed");
        let process = self.timeline.processes.get(peer.process)?;
        let name = format!("{} {}", process.header.program, process.header.process);
        if let Some((destroyed_ns, _)) = destroyed {
            let before = time(end_ns.saturating_sub(destroyed_ns));
            let sentence =
                format!("the peer ({name}) had destroyed its queue pair {before} before it failed");
            return Some(MessageCause::new(CauseKind::PeerGone, case.index.0, sentence));
        }
        let silent_ns = end_ns.saturating_sub(process.span_ns.1);
        // The last record of a process that is alive is at most half a second old.
        let goes_on = process.began_ns.is_some();
        (peer.process != case.index.0 && !goes_on && silent_ns > 1_000_000_000).then(|| {
            let sentence = format!("the process of the peer ({name}) had ended {} before", time(silent_ns));
            MessageCause::new(CauseKind::PeerGone, case.index.0, sentence)
        })
    }

    /// Returns the incident, at this device or the peer's, that held the message up in a stretch of time, or
    /// that ended it with a status.
    pub(super) fn of_incident(
        &self,
        case: &JudgedMessage<'a>,
        span: (u64, u64),
        status: Option<u8>,
    ) -> Option<MessageCause> {
        let touches = |fact: &FaultFact| match fact.what {
            TracedFaultAction::Partition => status.is_none_or(|status| status == RETRIES_USED_UP),
            TracedFaultAction::Incident => {
                let effect = fact.incident().map_or(IncidentEffect::Nothing, IncidentEffect::of);
                let is_own = fact.qp.is_none_or(|qp| qp == case.qp.ordinal);
                match status {
                    None => effect == IncidentEffect::Holds,
                    Some(RETRIES_USED_UP) => effect == IncidentEffect::Holds,
                    Some(_) => {
                        effect == IncidentEffect::Ends || (effect == IncidentEffect::EndsOne && is_own)
                    }
                }
            }
            _ => false,
        };
        let peer = case.owner.peer().map(|peer| peer.process);
        let processes = [Some(case.index.0), peer.filter(|peer| *peer != case.index.0)];
        let found = processes
            .into_iter()
            .flatten()
            .filter_map(|process| self.fact_index.lasting(process, span, |fact| touches(fact)));
        let LastingFaultMatch { fact, process, .. } = found.max_by_key(|one| one.ns)?;
        Some(cause_of(fact, process))
    }
}

/// The effect of an incident on messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IncidentEffect {
    /// The incident holds messages up, or loses their packets.
    Holds,
    /// The incident flushes the messages of all queue pairs, or of those of an object.
    Ends,
    /// The incident flushes the messages of the queue pair that it happens to.
    EndsOne,
    /// The incident does not affect messages.
    Nothing,
}

impl IncidentEffect {
    const fn of(incident: IncidentKind) -> IncidentEffect {
        use IncidentKind as Kind;
        match incident {
            Kind::Freeze | Kind::PortDown | Kind::CablePull | Kind::Link => IncidentEffect::Holds,
            Kind::CqError | Kind::SrqError | Kind::DeviceFatal | Kind::Unplug => IncidentEffect::Ends,
            Kind::QpFatal | Kind::QpAccessError | Kind::Disconnect => IncidentEffect::EndsOne,
            Kind::SrqLimit | Kind::PathMigrationError => IncidentEffect::Nothing,
            Kind::PortUp | Kind::SpeedChange | Kind::LinkRestore => IncidentEffect::Nothing,
            Kind::GidMove | Kind::AddrChange | Kind::LidChange | Kind::PkeyChange => IncidentEffect::Nothing,
        }
    }
}

/// Says why requests of a queue pair were flushed: what moved it to ERR.
fn flushed(found: &QpIndex<'_>, end_ns: u64) -> String {
    let mut states = found.states_before(end_ns.saturating_add(1));
    let last = states.find(|(_, text)| text.contains("to ERR") || text.contains("to SQE"));
    last.map_or_else(
        || "its queue pair was in the error state".to_owned(),
        |(_, text)| format!("its queue pair went from {text}"),
    )
}
