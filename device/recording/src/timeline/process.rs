//! Builds one process of a timeline, record by record.

use std::collections::{HashMap, VecDeque};

use super::evidence::{FaultFact, RefusedCall, TimelineBudget};
use super::queue_pair::QpBuilder;
use super::words::about_process;
use super::{TimelineEvent, TimelineProcess};
use crate::format::Record;
use crate::format::TraceHeader;
use crate::format::TracedFaultAction;

/// Maximum number of completion queues with completions from before the recording.
const MAX_FOUND: usize = 1 << 16;

/// A completion that was made and not yet polled.
#[derive(Debug, Clone, Copy)]
struct UnpolledCompletion {
    wr_id: u64,
    qp: usize,
    /// Index of its request among the messages, or the receives, of the queue pair.
    index: usize,
}

/// The completion queue, the queue pair number, and whether the completion is of a receive request.
type PollKey = (u32, u32, bool);

/// A process that is being built.
#[derive(Debug)]
pub(super) struct ProcessBuilder {
    process: TimelineProcess,
    queue_pairs: Vec<QpBuilder>,
    by_ordinal: HashMap<u32, usize>,
    unpolled: HashMap<PollKey, VecDeque<UnpolledCompletion>>,
    /// Number of completions in each queue that were there before the recording and have not been polled.
    unseen: HashMap<u32, u32>,
}

impl ProcessBuilder {
    pub(super) fn new(header: TraceHeader) -> ProcessBuilder {
        let process = TimelineProcess { header, span_ns: (u64::MAX, 0), ..TimelineProcess::default() };
        let (queue_pairs, by_ordinal, unpolled) = (Vec::new(), HashMap::new(), HashMap::new());
        ProcessBuilder { process, queue_pairs, by_ordinal, unpolled, unseen: HashMap::new() }
    }

    pub(super) fn finish(self) -> TimelineProcess {
        let queue_pairs = self.queue_pairs.into_iter().map(QpBuilder::finish).collect();
        TimelineProcess { queue_pairs, ..self.process }
    }

    /// Adds a record.
    pub(super) fn take(&mut self, at_ns: u64, record: &Record<'_>, budget: &mut TimelineBudget) {
        let span = &mut self.process.span_ns;
        *span = (span.0.min(at_ns), span.1.max(at_ns));
        if let Record::Polled { cq, qpn, wr_id, opcode, .. } = *record {
            return self.polled(at_ns, (cq, qpn, opcode & 0x80 != 0), wr_id);
        }
        if let Some(ordinal) = queue_pair_of(record) {
            let Some(index) = self.index_of(ordinal, budget) else { return };
            let Some(qp) = self.queue_pairs.get_mut(index) else { return };
            let ended = qp.take(at_ns, record, budget);
            if let (Some(ended), Record::Completed { cq, wr_id, opcode, .. }) = (ended, *record) {
                let polls = (cq, qp.qpn(), opcode & 0x80 != 0);
                let unpolled = UnpolledCompletion { wr_id, qp: index, index: ended };
                self.unpolled.entry(polls).or_default().push_back(unpolled);
            }
            return;
        }
        self.note_evidence(at_ns, record);
        let Some((kind, text)) = about_process(record) else { return };
        if budget.take() {
            self.process.moments.push(TimelineEvent { at_ns, kind, text });
        }
    }

    /// Stores a record that may be the cause of something.
    fn note_evidence(&mut self, at_ns: u64, record: &Record<'_>) {
        let evidence = &mut self.process.evidence;
        match *record {
            Record::FaultDetail { rule, what, qp, side, message, subject, ordinal, delay_ns, lasts_ns } => {
                let Some(what) = TracedFaultAction::of(what) else { return };
                let (rule, subject) = (rule.to_owned(), subject.to_owned());
                evidence.fault(FaultFact {
                    at_ns,
                    rule,
                    what,
                    qp,
                    side,
                    message,
                    subject,
                    ordinal,
                    delay_ns,
                    lasts_ns,
                });
            }
            Record::CallRefused { call, errno, why, .. } => {
                let (call, why) = (call.to_owned(), why.to_owned());
                evidence.refused(RefusedCall { at_ns, call, errno, why });
            }
            Record::Began {} => self.process.began_ns = Some(at_ns),
            Record::CqFound { cq, waiting } if self.unseen.len() < MAX_FOUND => {
                self.unseen.insert(cq, waiting);
            }
            Record::RegionRegistered { .. } => evidence.registered(at_ns),
            Record::Stalled { late_ns } => evidence.stalled(at_ns, late_ns),
            Record::Network { link, switches } => {
                evidence.network = (link.to_owned(), switches.to_owned());
            }
            _ => {}
        }
    }

    fn index_of(&mut self, ordinal: u32, budget: &mut TimelineBudget) -> Option<usize> {
        if let Some(index) = self.by_ordinal.get(&ordinal) {
            return Some(*index);
        }
        if !budget.take_queue_pair() {
            return None;
        }
        let index = self.queue_pairs.len();
        self.queue_pairs.push(QpBuilder::new(ordinal));
        self.by_ordinal.insert(ordinal, index);
        Some(index)
    }

    /// Notes that the program polled a completion. Completions of one queue pair in one completion queue are
    /// polled in the order in which they were made.
    fn polled(&mut self, at_ns: u64, polls: PollKey, wr_id: u64) {
        if let Some(unseen) = self.unseen.get_mut(&polls.0).filter(|unseen| **unseen > 0) {
            *unseen -= 1;
            return;
        }
        let Some(waiting) = self.unpolled.get_mut(&polls) else { return };
        let Some(found) = waiting.iter().position(|one| one.wr_id == wr_id) else { return };
        // Completions before it were removed with their queue pair.
        let Some(one) = waiting.drain(..=found).next_back() else { return };
        if let Some(qp) = self.queue_pairs.get_mut(one.qp) {
            qp.polled(at_ns, polls.2, one.index);
        }
    }
}

/// Returns the queue pair that a record is about.
fn queue_pair_of(record: &Record<'_>) -> Option<u32> {
    match *record {
        Record::QpCreated { qp, .. }
        | Record::QpFound { qp, .. }
        | Record::QpDestroyed { qp }
        | Record::StateChanged { qp, .. }
        | Record::SendLimits { qp, .. }
        | Record::SendPosted { qp, .. }
        | Record::PostedInline { qp, .. }
        | Record::RecvPosted { qp, .. }
        | Record::PacketSent { qp, .. }
        | Record::PacketReceived { qp, .. }
        | Record::SendsTo { qp, .. }
        | Record::PathTaken { qp, .. }
        | Record::PathsMade { qp, .. }
        | Record::PathChanged { qp, .. }
        | Record::PacketLost { qp, .. }
        | Record::ReceivesFrom { qp, .. }
        | Record::Acknowledged { qp, .. }
        | Record::Measured { qp, .. }
        | Record::RateChanged { qp, .. }
        | Record::Dropped { qp, .. }
        | Record::OutOfSequence { qp, .. }
        | Record::DuplicateRequest { qp, .. }
        | Record::NakSent { qp, .. }
        | Record::NakReceived { qp, .. }
        | Record::ImpliedNak { qp, .. }
        | Record::CongestionMarked { qp, .. }
        | Record::CnpSent { qp }
        | Record::CnpReceived { qp }
        | Record::SentAgain { qp, .. }
        | Record::TimedOut { qp, .. }
        | Record::FellSilent { qp, .. }
        | Record::PeerStarved { qp, .. }
        | Record::ReceiverNotReady { qp, .. }
        | Record::Completed { qp, .. }
        | Record::Logged { qp, .. } => Some(qp),
        Record::FaultApplied { qp, .. } => qp,
        _ => None,
    }
}
