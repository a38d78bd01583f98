//! Indices of queue pairs in the page, and the peer of each.

use pumice_device::trace::{Timeline, TracedQueuePair};

/// The indices in the page of the queue pairs of all processes, one process after the other.
#[derive(Debug)]
pub(super) struct QpNumbering {
    /// Index of each process's first queue pair.
    firsts: Vec<usize>,
}

impl QpNumbering {
    pub(super) fn of(timeline: &Timeline) -> QpNumbering {
        let mut next = 0;
        let firsts = timeline.processes.iter().map(|process| {
            next += process.queue_pairs.len();
            next - process.queue_pairs.len()
        });
        QpNumbering { firsts: firsts.collect() }
    }

    /// Returns the index of a queue pair of a process.
    pub(super) fn index(&self, process: usize, queue_pair: usize) -> usize {
        self.firsts.get(process).map_or(queue_pair, |first| first + queue_pair)
    }
}

/// Returns the process and the queue pair of the peer, if its trace is among these.
pub(super) fn peer(timeline: &Timeline, qp: &TracedQueuePair) -> Option<(usize, usize)> {
    let (address, qpn) = qp.peer?;
    timeline.processes.iter().enumerate().find_map(|(process, one)| {
        let queue_pair = one.queue_pairs.iter().position(|other| other.qpn == qpn)?;
        one.header.addresses.contains(&address).then_some((process, queue_pair))
    })
}
