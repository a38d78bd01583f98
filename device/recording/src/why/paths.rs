//! The causes of a run with all of their effects, and what each plane of MRC queue pairs has cost.

use std::cmp::Reverse;
use std::fmt;

use pumice_model::findings::Fields;
use serde::Serialize;

use super::cause::time;
use super::fact_index::FactIndex;
use super::group::{CauseGroup, CauseGroupBuilder, MAX_CAUSES, add};
use super::judge::Judge;
use super::loss::MessageIndex;
use super::story::MessageStory;
use super::timeline_index::TimelineIndex;
use super::times::duration_ns;
use super::{FLUSHED, run_causes};
use crate::timeline::{Message, Timeline, TimelineProcess, TracedPath, TracedPaths, TracedQueuePair};

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

/// What a plane of an MRC queue pair has cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaneCost {
    /// Number of the process.
    pub process: u32,
    /// Name of its program.
    pub program: String,
    /// Number of the queue pair.
    pub qpn: u32,
    /// Number of the plane, from 0.
    pub plane: u8,
    /// Number of paths in it.
    pub paths: u32,
    /// Largest number of paths that were left at one time.
    pub left: u32,
    /// Time at which the first path was left, in ns.
    pub left_ns: Option<u64>,
    /// Number of data packets that left by it.
    pub packets: u64,
    /// Number of these that had to leave again.
    pub repeated: u64,
    /// Time in ns from these packets until they left again, all together.
    pub waited_ns: u64,
    /// Number of times that a path was skipped, because of congestion.
    pub skips: u64,
    /// UDP source port of the path with most packets that had to leave again, and their number.
    pub worst: Option<(u16, u64)>,
}

impl PlaneCost {
    /// Returns the planes of all queue pairs that have cost something, the dearest first.
    pub fn all(timeline: &Timeline) -> Vec<PlaneCost> {
        let mut costs = Vec::new();
        for process in &timeline.processes {
            for qp in &process.queue_pairs {
                let Some(paths) = &qp.multipath else { continue };
                costs.extend(paths.planes.keys().map(|plane| cost_of(process, qp, paths, *plane)));
            }
        }
        costs.retain(|cost| cost.repeated > 0 || cost.left > 0 || cost.skips > 0);
        costs.sort_by_key(|cost| std::cmp::Reverse((cost.waited_ns, cost.left)));
        costs
    }

    /// Returns the cost as fields of a JSON object.
    pub fn to_fields(&self) -> Fields {
        let worst = self.worst.unwrap_or_default();
        Fields::default()
            .with("process", self.process)
            .with("program", self.program.as_str())
            .with("qpn", self.qpn)
            .with("plane", u32::from(self.plane))
            .with("paths", self.paths)
            .with("left", self.left)
            .with("packets", self.packets)
            .with("repeated", self.repeated)
            .with("waited_ns", self.waited_ns)
            .with("skips", self.skips)
            .with("worst_source_port", u32::from(worst.0))
            .with("worst_repeated", worst.1)
    }
}

fn cost_of(process: &TimelineProcess, qp: &TracedQueuePair, all: &TracedPaths, plane: u8) -> PlaneCost {
    let of_plane = || all.paths.iter().filter(move |(_, path)| path.plane == plane);
    let sum = |value: fn(&TracedPath) -> u64| of_plane().map(|(_, path)| value(path)).sum();
    let (mut left, mut left_ns, mut paths) = (0, None, 0);
    if let Some(found) = all.planes.get(&plane) {
        paths = found.paths;
        left = paths - found.good.iter().map(|(_, good)| *good).min().unwrap_or(paths).min(paths);
        left_ns = found.good.iter().find(|(_, good)| *good < paths).map(|(at_ns, _)| *at_ns);
    }
    let worst = of_plane().max_by_key(|(port, path)| (path.repeated, std::cmp::Reverse(**port)));
    PlaneCost {
        process: process.header.process,
        program: process.header.program.clone(),
        qpn: qp.qpn,
        plane,
        paths,
        left,
        left_ns,
        packets: sum(|path| path.packets),
        repeated: sum(|path| path.repeated),
        waited_ns: sum(|path| path.waited_ns),
        skips: sum(|path| path.skips),
        worst: worst.map(|(port, path)| (*port, path.repeated)).filter(|(_, repeated)| *repeated > 0),
    }
}

impl fmt::Display for PlaneCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlaneCost { process, program, qpn, plane, packets, repeated, paths, left, .. } = self;
        write!(f, "Plane {plane} of QP {qpn:#x} ({program} {process}): ")?;
        match repeated {
            0 => write!(f, "none of its {packets} data packets had to leave again")?,
            _ => write!(f, "{repeated} of its {packets} data packets had to leave again")?,
        }
        if let Some(each_ns) = self.waited_ns.checked_div(*repeated) {
            write!(f, ", {} later on average", time(each_ns))?;
        }
        match self.left_ns {
            Some(at_ns) => {
                write!(f, "; {left} of its {paths} paths were left, the first at {}", time(at_ns))?
            }
            None => write!(f, "; none of its {paths} paths was left")?,
        }
        match self.skips {
            0 => {}
            1 => f.write_str("; one was skipped once, because of congestion")?,
            times => write!(f, "; they were skipped {times} times, because of congestion")?,
        }
        match self.worst {
            Some((port, worst)) => write!(f, ". Most of them took UDP source port {port}: {worst}."),
            None => f.write_str("."),
        }
    }
}
