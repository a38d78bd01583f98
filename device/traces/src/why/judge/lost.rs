//! Which packet or answer was lost, and by whom.

use super::super::cause::{Cause, CauseKind};
use super::super::clues::cause_of;
use super::super::loss::Fate;
use super::super::times::{PartKind, Span};
use super::super::words::time;
use super::{Case, Judge, REACH, needs_response};
use crate::format::FaultWhat;
use crate::timeline::{Message, MomentKind, Setback, SetbackKind};

impl<'a> Judge<'a> {
    pub(super) fn of_loss(&mut self, case: &Case<'a>, span: &Span, depth: u8) -> Cause {
        let setback = span.setback.and_then(|number| case.message.setbacks.get(number)).copied();
        let Some(setback) = setback else { return self.unknown_loss(case, span) };
        if !setback.is_own {
            return self.of_other(case, &setback, depth).unwrap_or_else(|| self.unknown_loss(case, span));
        }
        let process = case.index.0;
        let at_ns = setback.at_ns;
        let key = (process, case.qp.ordinal, 0, case.message.number);
        let fate = case.owner.fate(case.message, at_ns);
        let harmed = [
            FaultWhat::Lost,
            FaultWhat::Corrupted,
            FaultWhat::Truncated,
            FaultWhat::Delayed,
            FaultWhat::Reordered,
        ];
        match fate {
            Some(Fate::AnswerLostByPlan { .. } | Fate::AnswerLost { .. }) => {}
            _ => {
                if let Some(fact) = self.clues.of_message(key, &harmed, at_ns) {
                    return cause_of(fact, process);
                }
            }
        }
        self.of_fate(case, fate, at_ns)
    }

    pub(super) fn of_fate(&self, case: &Case<'a>, fate: Option<Fate>, at_ns: u64) -> Cause {
        let process = case.index.0;
        let plan = |kind, sentence: &str| Cause::new(kind, process, sentence);
        match fate {
            Some(Fate::PacketLostByPlan { psn }) => {
                plan(CauseKind::RequestLost, &format!("a fault plan lost its packet with PSN {psn}"))
            }
            Some(Fate::PacketLost { psn }) => self.lost_on_the_way(case, psn, at_ns),
            Some(Fate::PacketDropped { psn }) => plan(
                CauseKind::RequestLost,
                &format!("its packet with PSN {psn} arrived, and the peer's device dropped it"),
            ),
            Some(Fate::AnswerLostByPlan { is_response, psn } | Fate::AnswerLost { is_response, psn }) => {
                self.lost_answer(case, is_response, psn, at_ns)
            }
            Some(Fate::OnTheWay { psn }) => self.slow_path(case, at_ns).unwrap_or_else(|| {
                let sentence =
                    format!("its packet with PSN {psn} was on its way for longer than the timer waits");
                Cause::new(CauseKind::Network, process, sentence)
            }),
            Some(Fate::NoAnswer) => match self.of_answers(case, at_ns) {
                Some(cause) if matches!(cause.kind, CauseKind::AckLost | CauseKind::ResponseLost) => {
                    let is_response = cause.kind == CauseKind::ResponseLost;
                    self.lost_answer(case, is_response, case.message.psn, at_ns)
                }
                known => known.or_else(|| self.slow_path(case, at_ns)).unwrap_or_else(|| {
                    plan(CauseKind::PeerSilent, "its packets had arrived, and the peer had not answered")
                }),
            },
            Some(Fate::Unknown) | None => plan(
                CauseKind::LossUnknown,
                "a packet or its answer was lost or late; the peer's trace would tell which",
            ),
        }
    }

    /// The rate of the link, or congestion, is why no answer has come before a time.
    fn slow_path(&self, case: &Case<'a>, at_ns: u64) -> Option<Cause> {
        let from_ns = case.message.first_packet_ns.unwrap_or(case.message.posted_ns);
        let span = Span { kind: PartKind::Network, from_ns, to_ns: at_ns.max(from_ns), setback: None };
        self.congestion(case, &span).or_else(|| self.rate(case, &span))
    }

    /// What a plan did to answers of the peer's before a time.
    pub(super) fn of_answers(&self, case: &Case<'a>, at_ns: u64) -> Option<Cause> {
        let peer = case.owner.peer()?;
        let side = (peer.qp()?.ordinal, 1);
        let from_ns = case.message.first_packet_ns.unwrap_or(case.message.posted_ns);
        let kinds = [
            FaultWhat::Lost,
            FaultWhat::Delayed,
            FaultWhat::Corrupted,
            FaultWhat::Truncated,
            FaultWhat::Reordered,
        ];
        let fact = self.clues.of_side(peer.process, side, &kinds, (from_ns, at_ns))?;
        let mut cause = cause_of(fact, peer.process);
        if cause.kind == CauseKind::AckLost && needs_response(case.message.opcode) {
            cause.kind = CauseKind::ResponseLost;
        }
        Some(cause)
    }

    pub(super) fn lost_answer(&self, case: &Case<'a>, is_response: bool, psn: u32, at_ns: u64) -> Cause {
        let (kind, what) = match is_response {
            true => (CauseKind::ResponseLost, "response"),
            false => (CauseKind::AckLost, "acknowledgement (ACK)"),
        };
        let planned = self.of_answers(case, at_ns);
        if let Some(planned) = planned.as_ref().and_then(|cause| cause.rule.as_deref()) {
            let did =
                format!("lost the peer's {what} with PSN {psn}: the packets of the request had arrived");
            let did = match self.of_answers_kind(case, at_ns) {
                Some(CauseKind::Corrupted) => did.replacen("lost", "corrupted", 1),
                _ => did,
            };
            return Cause::by_rule(kind, case.index.0, planned, &did);
        }
        let sentence = format!(
            "its packets had arrived, and the peer's {what} with PSN {psn} was sent and lost{}",
            self.where_lost(case)
        );
        Cause::new(kind, case.index.0, sentence)
    }

    pub(super) fn of_answers_kind(&self, case: &Case<'a>, at_ns: u64) -> Option<CauseKind> {
        self.of_answers(case, at_ns).map(|cause| cause.kind)
    }

    /// A request packet did not arrive, and no plan is known to have lost it.
    pub(super) fn lost_on_the_way(&self, case: &Case<'a>, psn: u32, at_ns: u64) -> Cause {
        let from_ns = case.message.posted_ns;
        let peer = case.owner.peer().and_then(|peer| self.timeline.processes.get(peer.process));
        let icrc = peer.and_then(|peer| {
            peer.moments.iter().find(|moment| {
                let in_time = (from_ns..=at_ns).contains(&moment.at_ns);
                moment.kind == MomentKind::Drop && in_time && moment.text.contains("icrc")
            })
        });
        if icrc.is_some() {
            let sentence = format!("its packet with PSN {psn} arrived corrupted: its ICRC was wrong");
            return Cause::new(CauseKind::Corrupted, case.index.0, sentence);
        }
        let has_queue =
            self.network(case).is_some_and(|(link, switches)| link.contains("queue") || !switches.is_empty());
        let kind = if has_queue { CauseKind::SwitchQueue } else { CauseKind::RequestLost };
        let sentence = format!(
            "its packet with PSN {psn} was sent and lost: it did not arrive at the peer{}",
            self.where_lost(case)
        );
        Cause::new(kind, case.index.0, sentence)
    }

    /// What the link or the switches have to do with a loss.
    pub(super) fn where_lost(&self, case: &Case<'a>) -> String {
        match self.network(case) {
            Some((link, "")) if link.contains("queue") => {
                format!("; the queue of the link ({link}) loses what does not fit")
            }
            Some((_, switches)) if !switches.is_empty() => {
                format!("; queues of the switches ({switches}) lose what does not fit")
            }
            _ => String::new(),
        }
    }

    /// The link and the switches of this process, or of the peer's.
    pub(super) fn network(&self, case: &Case<'a>) -> Option<(&'a str, &'a str)> {
        let peer = case.owner.peer().and_then(|peer| self.timeline.processes.get(peer.process));
        let words = [Some(case.process), peer].into_iter().flatten().map(|one| &one.evidence.network);
        let mut said = words.filter(|(link, switches)| !link.is_empty() || !switches.is_empty());
        said.next().map(|(link, switches)| (link.as_str(), switches.as_str()))
    }

    pub(super) fn unknown_loss(&self, case: &Case<'a>, span: &Span) -> Cause {
        let sentence = format!("nothing was heard of the peer for {}", time(span.ns()));
        Cause::new(CauseKind::LossUnknown, case.index.0, sentence)
    }

    /// The cause of the message before this one that a setback was about.
    pub(super) fn of_other(&mut self, case: &Case<'a>, setback: &Setback, depth: u8) -> Option<Cause> {
        let (process, queue_pair, number) = case.index;
        let first = number.saturating_sub(REACH);
        let earlier = case.qp.messages.get(first..number)?.iter().enumerate().rev();
        let is_about =
            |one: &Message| one.setbacks.iter().any(|own| own.is_own && own.at_ns == setback.at_ns);
        let (other, _) = earlier.into_iter().find(|(_, one)| is_about(one))?;
        let other = (process, queue_pair, first + other);
        let depth = depth.checked_sub(1)?;
        self.judge_within(other, depth).map(|judged| judged.cause)
    }

    /// A loss that an answer showed, without a wait.
    pub(super) fn of_noticed(&self, case: &Case<'a>, setback: &Setback) -> Cause {
        let (process, at_ns) = (case.index.0, setback.at_ns);
        if setback.kind == SetbackKind::MissingAnswer {
            let is_response = needs_response(case.message.opcode);
            return self.lost_answer(case, is_response, case.message.psn, at_ns);
        }
        let key = (process, case.qp.ordinal, 0, case.message.number);
        let harmed = [
            FaultWhat::Lost,
            FaultWhat::Corrupted,
            FaultWhat::Truncated,
            FaultWhat::Delayed,
            FaultWhat::Reordered,
        ];
        match self.clues.of_message(key, &harmed, at_ns) {
            Some(fact) => cause_of(fact, process),
            None => self.of_fate(case, case.owner.fate(case.message, at_ns), at_ns),
        }
    }
}
