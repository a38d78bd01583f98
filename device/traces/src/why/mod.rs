//! Where the time of a message went, and what to change: derived from the events of a timeline.
//!
//! [`CauseKind`] is the table of causes, with the records that each needs. The judge decides for each stretch
//! of a message's time; a plan's faults go before what is only seen, and nothing is claimed that one side
//! alone cannot know. [`Causes`] has the effects of one cause together.

mod beside;
mod cause;
mod causes;
mod clues;
mod finding;
mod group;
mod judge;
mod loss;
mod split;
mod story;
#[cfg(test)]
mod tests;
mod times;
mod words;

use std::cmp::Reverse;

use super::timeline::Timeline;
use times::duration_ns;

pub use cause::{Cause, CauseKind, Whose};
pub use causes::Causes;
pub use group::Group;
pub use loss::Fate;
use loss::MessageIndex;
pub use split::Share;
pub use story::Story;
pub use times::{Part, PartKind};
pub(super) use words::time;

/// Failed messages that are told at most; the oldest ones.
const MAX_FAILED: usize = 100;
/// The status of a request that was not executed, because one before it failed.
const FLUSHED: u8 = 5;

/// The messages that failed, oldest first, and the slowest of the others, slowest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reasons {
    /// Messages that failed, without those that were flushed after one that failed; at most 100.
    pub failed: Vec<Story>,
    /// Messages that failed and are not told of, because there are too many.
    pub more_failed: u64,
    /// Messages that were flushed.
    pub flushed: u64,
    /// Messages that had not ended when the traces ended.
    pub unfinished: u64,
    /// The slowest messages that did not fail.
    pub slowest: Vec<Story>,
    /// All messages of the traces.
    pub messages: u64,
}

impl Reasons {
    /// Of a timeline; so many of the slowest.
    pub fn of(timeline: &Timeline, slowest: usize) -> Reasons {
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
        let (arrows, clues) = (loss::Arrows::of(timeline), clues::Clues::of(timeline));
        let mut judge = judge::Judge::new(timeline, &arrows, &clues);
        let mut story = |index: &MessageIndex| Story::of(timeline, &mut judge, *index);
        Reasons {
            more_failed: failed.len().saturating_sub(MAX_FAILED) as u64,
            failed: failed.iter().take(MAX_FAILED).filter_map(|(_, index)| story(index)).collect(),
            flushed,
            unfinished,
            slowest: others.iter().take(slowest).filter_map(|(.., index)| story(index)).collect(),
            messages,
        }
    }
}
