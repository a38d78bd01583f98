//! Finds where the time of a message went, and what to change: derived from the events of a timeline.
//!
//! [`CauseKind`] is the table of causes, with the records that each needs. The judge decides for each stretch
//! of a message's time; effects of a fault plan go before what is only observed, and nothing is claimed that
//! one side alone cannot know. [`Causes`] collects the effects of each cause.

mod bounds;
mod cause;
mod fact_index;
mod group;
mod judge;
mod loss;
mod paths;
mod run_causes;
#[cfg(test)]
mod storm_tests;
mod story;
#[cfg(test)]
mod tests;
mod timeline_index;
mod times;

use std::cmp::Reverse;

use super::timeline::Timeline;
use times::duration_ns;

pub use bounds::RunBounds;
pub(super) use cause::time;
pub use cause::{CauseKind, MessageCause, Responsible};
pub use group::CauseGroup;
use loss::MessageIndex;
pub use loss::PacketFate;
pub use paths::{Causes, PlaneCost};
pub use story::{MessageStory, TimeShare};
pub use times::{PartKind, TimePart};

/// Maximum number of failed messages that are reported; the oldest ones.
const MAX_FAILED: usize = 100;
/// Status of a request that was not executed because one before it failed.
const FLUSHED: u8 = 5;

/// The messages that failed, oldest first, and the slowest of the others, slowest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageStories {
    /// Stories of messages that failed, without those that were flushed after one that failed; at most 100.
    pub failed: Vec<MessageStory>,
    /// Number of messages that failed beyond those.
    pub more_failed: u64,
    /// Number of messages that were flushed.
    pub flushed: u64,
    /// Number of messages that had not ended when the traces ended.
    pub unfinished: u64,
    /// Stories of the slowest messages that did not fail.
    pub slowest: Vec<MessageStory>,
    /// Number of all messages of the traces.
    pub messages: u64,
}

impl MessageStories {
    /// Judges the failed messages of a timeline, and the `slowest` slowest others.
    pub fn of(timeline: &Timeline, slowest: usize) -> MessageStories {
        let (mut failed, mut others) = (Vec::new(), Vec::new());
        let (mut flushed, mut unfinished, mut messages) = (0, 0, 0);
        for (process, one) in timeline.processes.iter().enumerate() {
            for (queue_pair, qp) in one.queue_pairs.iter().enumerate() {
                for (number, message) in qp.messages.iter().enumerate() {
                    messages += 1;
                    let index = (process, queue_pair, number);
                    match message.end.map(|end| end.status) {
                        Some(0) => others.push((Reverse(duration_ns(one, message)), number, index)),
                        Some(FLUSHED) => flushed += 1,
                        Some(_) => failed.push((message.posted_ns, index)),
                        None => {
                            unfinished += 1;
                            others.push((Reverse(duration_ns(one, message)), number, index));
                        }
                    }
                }
            }
        }
        failed.sort_by_key(|(posted_ns, _)| *posted_ns);
        others.sort_by_key(|(duration_ns, number, _)| (*duration_ns, *number));
        let (timeline_index, fact_index) =
            (timeline_index::TimelineIndex::of(timeline), fact_index::FactIndex::of(timeline));
        let mut judge = judge::Judge::new(timeline, &timeline_index, &fact_index);
        let mut story = |index: &MessageIndex| MessageStory::of(timeline, &mut judge, *index);
        MessageStories {
            more_failed: failed.len().saturating_sub(MAX_FAILED) as u64,
            failed: failed.iter().take(MAX_FAILED).filter_map(|(_, index)| story(index)).collect(),
            flushed,
            unfinished,
            slowest: others.iter().take(slowest).filter_map(|(.., index)| story(index)).collect(),
            messages,
        }
    }
}
