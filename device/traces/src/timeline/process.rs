//! One process of a timeline, record by record.

use std::collections::{HashMap, VecDeque};

use super::evidence::{FaultFact, Refusal};
use super::model::{Moment, TimelineProcess};
use super::queue_pair::QpBuilder;
use super::room::Room;
use super::words::about_process;
use crate::format::FaultWhat;
use crate::format::Record;
use crate::format::TraceHeader;

/// Completion queues of a process that are known to have been there before, at most.
const MAX_FOUND: usize = 1 << 16;

/// A completion that was made and not polled yet.
#[derive(Debug, Clone, Copy)]
struct Unpolled {
    wr_id: u64,
    qp: usize,
    /// Its index among the messages, or the receives, of the queue pair.
    index: usize,
}

/// The completion queue, the number of the queue pair, and whether it is of a receive request.
type Polls = (u32, u32, bool);

/// A process that is being put together.
#[derive(Debug)]
pub(super) struct ProcessBuilder {
    process: TimelineProcess,
    queue_pairs: Vec<QpBuilder>,
    by_ordinal: HashMap<u32, usize>,
    unpolled: HashMap<Polls, VecDeque<Unpolled>>,
    /// Completions of each queue that were there before the recording, and were not polled yet.
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

    /// What a record tells.
    pub(super) fn take(&mut self, at_ns: u64, record: &Record<'_>, room: &mut Room) {
        let span = &mut self.process.span_ns;
        *span = (span.0.min(at_ns), span.1.max(at_ns));
        if let Record::Polled { cq, qpn, wr_id, opcode, .. } = *record {
            return self.polled(at_ns, (cq, qpn, opcode & 0x80 != 0), wr_id);
        }
        if let Some(ordinal) = queue_pair_of(record) {
            let Some(index) = self.index_of(ordinal, room) else { return };
            let Some(qp) = self.queue_pairs.get_mut(index) else { return };
            let ended = qp.take(at_ns, record, room);
            if let (Some(ended), Record::Completed { cq, wr_id, opcode, .. }) = (ended, *record) {
                let polls = (cq, qp.qpn(), opcode & 0x80 != 0);
                let unpolled = Unpolled { wr_id, qp: index, index: ended };
                self.unpolled.entry(polls).or_default().push_back(unpolled);
            }
            return;
        }
        self.note_evidence(at_ns, record);
        let Some((kind, text)) = about_process(record) else { return };
        if room.take() {
            self.process.moments.push(Moment { at_ns, kind, text });
        }
    }

    /// Keeps what may be the cause of something.
    fn note_evidence(&mut self, at_ns: u64, record: &Record<'_>) {
        let evidence = &mut self.process.evidence;
        match *record {
            Record::FaultDetail { rule, what, qp, side, message, subject, ordinal, delay_ns, lasts_ns } => {
                let Some(what) = FaultWhat::of(what) else { return };
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
                evidence.refused(Refusal { at_ns, call, errno, why });
            }
            Record::Began {} => self.process.began_ns = Some(at_ns),
            Record::CqFound { cq, waiting } if self.unseen.len() < MAX_FOUND => {
                self.unseen.insert(cq, waiting);
            }
            Record::Stalled { late_ns } => evidence.stalled(at_ns, late_ns),
            Record::Network { link, switches } => {
                evidence.network = (link.to_owned(), switches.to_owned());
            }
            _ => {}
        }
    }

    fn index_of(&mut self, ordinal: u32, room: &mut Room) -> Option<usize> {
        if let Some(index) = self.by_ordinal.get(&ordinal) {
            return Some(*index);
        }
        if !room.take_queue_pair() {
            return None;
        }
        let index = self.queue_pairs.len();
        self.queue_pairs.push(QpBuilder::new(ordinal));
        self.by_ordinal.insert(ordinal, index);
        Some(index)
    }

    /// The program polled a completion: of one queue pair's queue, they come in the order in which they were
    /// made.
    fn polled(&mut self, at_ns: u64, polls: Polls, wr_id: u64) {
        if let Some(unseen) = self.unseen.get_mut(&polls.0).filter(|unseen| **unseen > 0) {
            *unseen -= 1;
            return;
        }
        let Some(waiting) = self.unpolled.get_mut(&polls) else { return };
        let Some(found) = waiting.iter().position(|one| one.wr_id == wr_id) else { return };
        // Completions before it were cleaned away with their queue pair.
        let Some(one) = waiting.drain(..=found).next_back() else { return };
        if let Some(qp) = self.queue_pairs.get_mut(one.qp) {
            qp.polled(at_ns, polls.2, one.index);
        }
    }
}

/// The queue pair that a record is about.
fn queue_pair_of(record: &Record<'_>) -> Option<u32> {
    match *record {
        Record::QpCreated { qp, .. }
        | Record::QpFound { qp, .. }
        | Record::QpDestroyed { qp }
        | Record::StateChanged { qp, .. }
        | Record::SendLimits { qp, .. }
        | Record::SendPosted { qp, .. }
        | Record::RecvPosted { qp, .. }
        | Record::PacketSent { qp, .. }
        | Record::PacketReceived { qp, .. }
        | Record::SendsTo { qp, .. }
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
