//! Counters of a timeline as tracks.

use std::io;

use pumice_device::trace::{QueuePair, TimelineProcess};

use super::super::counters::{self, Unit};
use super::sink::{CounterTrack, Sink};

/// What a queue pair has under way, what it has sent again, and what it measured.
pub(super) fn of_queue_pair(out: &mut dyn Sink, qp: &QueuePair, process: u64) -> io::Result<()> {
    for counter in counters::of_queue_pair(qp) {
        let name = format!("QP {:#x}: {}", qp.qpn, counter.name);
        out.counter(CounterTrack { process, name: &name, unit: counter.unit }, &counter.values)?;
    }
    Ok(())
}

/// Completions that wait for the program.
pub(super) fn of_completion_queues(
    out: &mut dyn Sink,
    process: &TimelineProcess,
    pid: u64,
) -> io::Result<()> {
    for waiting in counters::of_completion_queues(process) {
        let name = format!("CQ {}: completions that wait", waiting.cq);
        let track = CounterTrack { process: pid, name: &name, unit: Unit::Completions };
        out.counter(track, &waiting.values)?;
    }
    Ok(())
}
