//! Judges which packet or answer was lost, and by whom.

use pumice_transport::types::MrcLossProof;

use super::super::cause::{CauseKind, MessageCause, time};
use super::super::fact_index::cause_of;
use super::super::loss::PacketFate;
use super::super::times::{PartKind, TimeSpan};
use super::{Judge, JudgedMessage, REACH, needs_response};
use crate::format::TracedFaultAction;
use crate::timeline::{Setback, SetbackKind, TimelineEventKind, loss_in_words};

impl<'a> Judge<'a> {
    pub(super) fn of_loss(&mut self, case: &JudgedMessage<'a>, span: &TimeSpan, depth: u8) -> MessageCause {
        let setback = span.setback.and_then(|number| case.message.setbacks.get(number)).copied();
        let Some(setback) = setback else { return self.unknown_loss(case, span) };
        if !setback.is_own {
            return self.of_other(case, &setback, depth).unwrap_or_else(|| self.unknown_loss(case, span));
        }
        let process = case.index.0;
        let at_ns = setback.at_ns;
        if let SetbackKind::Lost { psn, proof } = setback.kind {
            return self.of_lost_packet(case, (psn, proof), at_ns);
        }
        let key = (process, case.qp.ordinal, 0, case.message.number);
        let fate = case.owner.fate(case.message, at_ns);
        let harmed = [
            TracedFaultAction::Lost,
            TracedFaultAction::Corrupted,
            TracedFaultAction::Truncated,
            TracedFaultAction::Delayed,
            TracedFaultAction::Reordered,
        ];
        match fate {
            Some(PacketFate::AnswerLostByPlan { .. } | PacketFate::AnswerLost { .. }) => {}
            _ => {
                if let Some(fact) = self.fact_index.of_message(key, &harmed, at_ns) {
                    return cause_of(fact, process);
                }
            }
        }
        self.of_fate(case, fate, at_ns)
    }

    /// Returns why a packet of an MRC queue pair counted as lost at a time.
    fn of_lost_packet(
        &self,
        case: &JudgedMessage<'a>,
        (psn, proof): (u32, MrcLossProof),
        at_ns: u64,
    ) -> MessageCause {
        let process = case.index.0;
        let harmed = [
            TracedFaultAction::Lost,
            TracedFaultAction::Trimmed,
            TracedFaultAction::Corrupted,
            TracedFaultAction::Truncated,
            TracedFaultAction::Delayed,
            TracedFaultAction::Reordered,
        ];
        let key = (process, case.qp.ordinal, 0, case.message.number);
        if let Some(fact) = self.fact_index.of_message(key, &harmed, at_ns) {
            return cause_of(fact, process);
        }
        let sentence = format!("its packet with PSN {psn} {}", loss_in_words(proof));
        match proof {
            MrcLossProof::Trimmed | MrcLossProof::TrimmedAtLastHop => {
                MessageCause::new(CauseKind::Trimmed, process, sentence)
            }
            MrcLossProof::Refused => MessageCause::new(CauseKind::PeerDevice, process, sentence),
            _ if case.owner.peer().is_some() => self.lost_in_transit(case, psn, at_ns),
            _ => MessageCause::new(CauseKind::RequestLost, process, sentence),
        }
    }

    pub(super) fn of_fate(
        &self,
        case: &JudgedMessage<'a>,
        fate: Option<PacketFate>,
        at_ns: u64,
    ) -> MessageCause {
        let process = case.index.0;
        let plan = |kind, sentence: &str| MessageCause::new(kind, process, sentence);
        match fate {
            Some(PacketFate::PacketLostByPlan { psn }) => {
                plan(CauseKind::RequestLost, &format!("a fault plan lost its packet with PSN {psn}"))
            }
            Some(PacketFate::PacketLost { psn }) => self.lost_in_transit(case, psn, at_ns),
            Some(PacketFate::PacketDropped { psn }) => plan(
                CauseKind::RequestLost,
                &format!("its packet with PSN {psn} arrived, and the peer's device dropped it"),
            ),
            Some(
                PacketFate::AnswerLostByPlan { is_response, psn }
                | PacketFate::AnswerLost { is_response, psn },
            ) => self.lost_answer(case, is_response, psn, at_ns),
            Some(PacketFate::OnTheWay { psn }) => self.slow_path(case, at_ns).unwrap_or_else(|| {
                let sentence =
                    format!("its packet with PSN {psn} was on its way for longer than the timer waits");
                MessageCause::new(CauseKind::Network, process, sentence)
            }),
            Some(PacketFate::NoAnswer) => match self.of_answers(case, at_ns) {
                Some(cause) if matches!(cause.kind, CauseKind::AckLost | CauseKind::ResponseLost) => {
                    let is_response = cause.kind == CauseKind::ResponseLost;
                    self.lost_answer(case, is_response, case.message.psn, at_ns)
                }
                known => known.or_else(|| self.slow_path(case, at_ns)).unwrap_or_else(|| {
                    plan(CauseKind::PeerSilent, "its packets had arrived, and the peer had not answered")
                }),
            },
            Some(PacketFate::Unknown) | None => plan(
                CauseKind::LossUnknown,
                "a packet or its answer was lost or late; the peer's trace would tell which",
            ),
        }
    }

    /// Returns the rate of the link, or congestion, as the cause if it explains why no answer came before a
    /// time.
    fn slow_path(&self, case: &JudgedMessage<'a>, at_ns: u64) -> Option<MessageCause> {
        let from_ns = case.message.first_packet_ns.unwrap_or(case.message.posted_ns);
        let span = TimeSpan { kind: PartKind::Network, from_ns, to_ns: at_ns.max(from_ns), setback: None };
        self.congestion(case, &span).or_else(|| self.rate(case, &span))
    }

    /// Returns the effect of a fault plan on answers of the peer before a time.
    pub(super) fn of_answers(&self, case: &JudgedMessage<'a>, at_ns: u64) -> Option<MessageCause> {
        let peer = case.owner.peer()?;
        // Fault plans know the answers of MRC as notifications.
        let side = (peer.qp()?.ordinal, if peer.qp()?.multipath.is_some() { 2 } else { 1 });
        let from_ns = case.message.first_packet_ns.unwrap_or(case.message.posted_ns);
        let kinds = [
            TracedFaultAction::Lost,
            TracedFaultAction::Delayed,
            TracedFaultAction::Corrupted,
            TracedFaultAction::Truncated,
            TracedFaultAction::Reordered,
        ];
        let fact = self.fact_index.of_side(peer.process, side, &kinds, (from_ns, at_ns))?;
        let mut cause = cause_of(fact, peer.process);
        if cause.kind == CauseKind::AckLost && needs_response(case.message.opcode) {
            cause.kind = CauseKind::ResponseLost;
        }
        Some(cause)
    }

    pub(super) fn lost_answer(
        &self,
        case: &JudgedMessage<'a>,
        is_response: bool,
        psn: u32,
        at_ns: u64,
    ) -> MessageCause {
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
            return MessageCause::by_rule(kind, case.index.0, planned, &did);
        }
        let sentence = format!(
            "its packets had arrived, and the peer's {what} with PSN {psn} was sent and lost{}",
            self.loss_location(case)
        );
        MessageCause::new(kind, case.index.0, sentence)
    }

    pub(super) fn of_answers_kind(&self, case: &JudgedMessage<'a>, at_ns: u64) -> Option<CauseKind> {
        self.of_answers(case, at_ns).map(|cause| cause.kind)
    }

    /// Returns the cause for a request packet that did not arrive and that no plan is known to have lost.
    pub(super) fn lost_in_transit(&self, case: &JudgedMessage<'a>, psn: u32, at_ns: u64) -> MessageCause {
        let from_ns = case.message.posted_ns;
        let peer = case.owner.peer().and_then(|peer| self.timeline.processes.get(peer.process));
        let icrc = peer.and_then(|peer| {
            let first = peer.moments.partition_point(|moment| moment.at_ns < from_ns);
            let mut later = peer.moments.iter().skip(first).take_while(|moment| moment.at_ns <= at_ns);
            later.find(|moment| moment.kind == TimelineEventKind::Drop && moment.text.contains("icrc"))
        });
        if icrc.is_some() {
            let sentence = format!("its packet with PSN {psn} arrived corrupted: its ICRC was wrong");
            return MessageCause::new(CauseKind::Corrupted, case.index.0, sentence);
        }
        let has_queue =
            self.network(case).is_some_and(|(link, switches)| link.contains("queue") || !switches.is_empty());
        let kind = if has_queue { CauseKind::SwitchQueue } else { CauseKind::RequestLost };
        let sentence = format!(
            "its packet with PSN {psn} was sent and lost: it did not arrive at the peer{}",
            self.loss_location(case)
        );
        MessageCause::new(kind, case.index.0, sentence)
    }

    /// Says how the link or the switches relate to a loss.
    pub(super) fn loss_location(&self, case: &JudgedMessage<'a>) -> String {
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

    /// Returns the link and the switches of this process, or of the peer's.
    pub(super) fn network(&self, case: &JudgedMessage<'a>) -> Option<(&'a str, &'a str)> {
        let peer = case.owner.peer().and_then(|peer| self.timeline.processes.get(peer.process));
        let words = [Some(case.process), peer].into_iter().flatten().map(|one| &one.evidence.network);
        let mut said = words.filter(|(link, switches)| !link.is_empty() || !switches.is_empty());
        said.next().map(|(link, switches)| (link.as_str(), switches.as_str()))
    }

    pub(super) fn unknown_loss(&self, case: &JudgedMessage<'a>, span: &TimeSpan) -> MessageCause {
        let sentence = format!("nothing was heard of the peer for {}", time(span.ns()));
        MessageCause::new(CauseKind::LossUnknown, case.index.0, sentence)
    }

    /// Returns the cause of the earlier message that a setback was about.
    pub(super) fn of_other(
        &mut self,
        case: &JudgedMessage<'a>,
        setback: &Setback,
        depth: u8,
    ) -> Option<MessageCause> {
        let (process, queue_pair, number) = case.index;
        let first = number.saturating_sub(REACH);
        let other = case.found.held_back(number, setback.at_ns).filter(|other| *other >= first)?;
        let other = (process, queue_pair, other);
        let depth = depth.checked_sub(1)?;
        self.judge_within(other, depth).map(|judged| judged.cause)
    }

    /// Returns the cause for a loss that an answer showed, without a wait.
    pub(super) fn of_noticed(&self, case: &JudgedMessage<'a>, setback: &Setback) -> MessageCause {
        let (process, at_ns) = (case.index.0, setback.at_ns);
        if setback.kind == SetbackKind::MissingAnswer {
            let is_response = needs_response(case.message.opcode);
            return self.lost_answer(case, is_response, case.message.psn, at_ns);
        }
        let key = (process, case.qp.ordinal, 0, case.message.number);
        let harmed = [
            TracedFaultAction::Lost,
            TracedFaultAction::Corrupted,
            TracedFaultAction::Truncated,
            TracedFaultAction::Delayed,
            TracedFaultAction::Reordered,
        ];
        match self.fact_index.of_message(key, &harmed, at_ns) {
            Some(fact) => cause_of(fact, process),
            None => self.of_fate(case, case.owner.fate(case.message, at_ns), at_ns),
        }
    }
}
