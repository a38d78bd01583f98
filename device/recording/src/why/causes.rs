//! The causes of a run, each with all of its effects, the most important first.

use std::cmp::Reverse;

use serde::Serialize;

use super::FLUSHED;
use super::fact_index::FactIndex;
use super::group::{CauseGroup, CauseGroupBuilder, MAX_CAUSES, add};
use super::judge::Judge;
use super::loss::MessageIndex;
use super::run_causes;
use super::story::MessageStory;
use super::timeline_index::TimelineIndex;
use super::times::duration_ns;
use crate::timeline::{Message, Timeline};

/// Maximum number of messages that are judged: those that failed or have not ended, and the slowest others.
const MAX_JUDGED: usize = 1 << 13;

/// All causes of a run, the most important first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Causes {
    /// Causes with their effects: first those with failures, then those of a fault plan, then by the time
    /// that they took.
    pub groups: Vec<CauseGroup>,
    /// Number of messages that failed, without those that were flushed.
    pub failed: u64,
    /// Number of messages that were flushed.
    pub flushed: u64,
    /// Number of messages that had not ended.
    pub unfinished: u64,
    /// Number of all messages.
    pub messages: u64,
    /// Some messages were not judged, because there are too many. Their causes may have more effects.
    pub is_cut: bool,
}

impl Causes {
    /// Finds the causes of a timeline, with at most `most` groups whose effects did not fail.
    pub fn of(timeline: &Timeline, most: usize) -> Causes {
        let (timeline_index, fact_index) = (TimelineIndex::of(timeline), FactIndex::of(timeline));
        let mut judge = Judge::new(timeline, &timeline_index, &fact_index);
        let mut causes = Causes::default();
        let mut builders: Vec<CauseGroupBuilder> = Vec::new();
        for (index, has_failed) in causes.choose(timeline) {
            let Some(judged) = judge.judge(index) else { continue };
            let Some(message) = message(timeline, index) else { continue };
            add(&mut builders, judged, message.posted_ns, Some(index), has_failed);
        }
        run_causes::of_the_run(timeline, &mut builders);
        let mut groups: Vec<CauseGroup> = builders
            .into_iter()
            .map(|builder| {
                let story = builder.first.and_then(|index| MessageStory::of(timeline, &mut judge, index));
                builder.finish(story)
            })
            .collect();
        let rank = |group: &CauseGroup| {
            let planned = group.cause.rule.is_some();
            let first_failure = if group.failed > 0 { group.at_ns } else { 0 };
            (group.failed == 0, first_failure, !planned, Reverse(group.weight_ns()), group.at_ns)
        };
        groups.sort_by_key(rank);
        let (mut kept, mut others) = (Vec::new(), 0);
        for group in groups {
            others += usize::from(group.failed == 0);
            if group.failed > 0 || others <= most {
                kept.push(group);
            }
        }
        kept.truncate(MAX_CAUSES);
        causes.groups = kept;
        causes
    }

    /// Counts the messages, and chooses those to judge, in the order in which they were posted, with whether
    /// each has failed.
    fn choose(&mut self, timeline: &Timeline) -> Vec<(MessageIndex, bool)> {
        let (mut certain, mut others) = (Vec::new(), Vec::new());
        for (process, one) in timeline.processes.iter().enumerate() {
            for (queue_pair, qp) in one.queue_pairs.iter().enumerate() {
                let mut had_failure = false;
                for (number, message) in qp.messages.iter().enumerate() {
                    self.messages += 1;
                    let index = (process, queue_pair, number);
                    match message.end.map(|end| end.status) {
                        Some(0) => others.push((Reverse(duration_ns(one, message)), index)),
                        Some(FLUSHED) => {
                            self.flushed += 1;
                            // The first message that was flushed without a failure before it is judged.
                            if !std::mem::replace(&mut had_failure, true) {
                                certain.push((index, true));
                            }
                        }
                        Some(_) => {
                            self.failed += 1;
                            had_failure = true;
                            certain.push((index, true));
                        }
                        None => {
                            self.unfinished += 1;
                            others.push((Reverse(duration_ns(one, message)), index));
                        }
                    }
                }
            }
        }
        self.is_cut = certain.len() + others.len() > MAX_JUDGED;
        certain.truncate(MAX_JUDGED / 2);
        let room = MAX_JUDGED - certain.len();
        if others.len() > room {
            others.sort_by_key(|(duration_ns, index)| (*duration_ns, *index));
            others.truncate(room);
        }
        certain.extend(others.into_iter().map(|(_, index)| (index, false)));
        certain.sort_by_key(|(index, _)| (message(timeline, *index).map_or(0, |one| one.posted_ns), *index));
        certain
    }
}

fn message(timeline: &Timeline, index: MessageIndex) -> Option<&Message> {
    timeline.processes.get(index.0)?.queue_pairs.get(index.1)?.messages.get(index.2)
}
