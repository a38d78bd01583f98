//! Indices of queue pairs in the page, and who is whose peer.

use pumice_device::trace::{QueuePair, Timeline};

/// Queue pairs of all processes, one after the other: their indices in the page.
#[derive(Debug)]
pub(super) struct Numbering {
    /// Index of each process's first queue pair.
    firsts: Vec<usize>,
}

impl Numbering {
    pub(super) fn of(timeline: &Timeline) -> Numbering {
        let mut next = 0;
        let firsts = timeline.processes.iter().map(|process| {
            next += process.queue_pairs.len();
            next - process.queue_pairs.len()
        });
        Numbering { firsts: firsts.collect() }
    }

    /// The index of a queue pair of a process.
    pub(super) fn index(&self, process: usize, queue_pair: usize) -> usize {
        self.firsts.get(process).map_or(queue_pair, |first| first + queue_pair)
    }
}

/// The peer's process and queue pair, if its trace is among these.
pub(super) fn peer(timeline: &Timeline, qp: &QueuePair) -> Option<(usize, usize)> {
    let (address, qpn) = qp.peer?;
    timeline.processes.iter().enumerate().find_map(|(process, one)| {
        let queue_pair = one.queue_pairs.iter().position(|other| other.qpn == qpn)?;
        one.header.addresses.contains(&address).then_some((process, queue_pair))
    })
}
