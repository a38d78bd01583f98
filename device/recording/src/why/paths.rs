//! What each plane of MRC queue pairs has cost: packets that had to leave again, and paths that were left.

use std::fmt;

use pumice_model::findings::Fields;

use super::words::time;
use crate::timeline::{Timeline, TimelineProcess, TracedPath, TracedPaths, TracedQueuePair};

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
