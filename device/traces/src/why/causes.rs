//! The causes of a run: the effects of each together, the first one first.

use std::cmp::Reverse;

use serde::Serialize;

use super::FLUSHED;
use super::beside;
use super::clues::Clues;
use super::group::{Builder, Group, MOST_CAUSES, add};
use super::judge::Judge;
use super::loss::{Arrows, MessageIndex};
use super::story::Story;
use super::times::duration_ns;
use crate::timeline::{Message, Timeline};

/// Messages that are judged at most: those that failed or have not ended, and the slowest others.
const MOST_JUDGED: usize = 1 << 13;

/// All causes of a run, the most telling first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Causes {
    /// What failed first, then what a plan did, then by the time that they took.
    pub groups: Vec<Group>,
    /// Messages that failed, without those that were flushed.
    pub failed: u64,
    /// Messages that were flushed.
    pub flushed: u64,
    /// Messages that had not ended.
    pub unfinished: u64,
    /// All messages.
    pub messages: u64,
    /// Some messages were not judged: there are too many. Their causes may have more effects.
    pub is_cut: bool,
}

impl Causes {
    /// Of a timeline; so many groups of effects that did not fail.
    pub fn of(timeline: &Timeline, most: usize) -> Causes {
        let (arrows, clues) = (Arrows::of(timeline), Clues::of(timeline));
        let mut judge = Judge::new(timeline, &arrows, &clues);
        let mut causes = Causes::default();
        let mut builders: Vec<Builder> = Vec::new();
        for (index, has_failed) in causes.choose(timeline) {
            let Some(judged) = judge.judge(index) else { continue };
            let Some(message) = message(timeline, index) else { continue };
            add(&mut builders, judged, message.posted_ns, Some(index), has_failed);
        }
        beside::of_the_run(timeline, &mut builders);
        let mut groups: Vec<Group> = builders
            .into_iter()
            .map(|builder| {
                let story = builder.first.and_then(|index| Story::of(timeline, &mut judge, index));
                builder.finish(story)
            })
            .collect();
        let rank = |group: &Group| {
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
        kept.truncate(MOST_CAUSES);
        causes.groups = kept;
        causes
    }

    /// Counts the messages, and chooses those that are judged, in the order in which they were posted; and
    /// whether each has failed.
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
                            // The first one that was flushed after no failure is told.
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
        self.is_cut = certain.len() + others.len() > MOST_JUDGED;
        certain.truncate(MOST_JUDGED / 2);
        let room = MOST_JUDGED - certain.len();
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
