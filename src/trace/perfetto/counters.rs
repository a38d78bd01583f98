//! Writes counters of a timeline as tracks.

use std::io;

use pumice_device::trace::{TimelineProcess, TracedQueuePair};

use super::super::counters::{self, CounterUnit};
use super::sink::{CounterTrack, TraceSink};

/// Writes the counters of a queue pair: what is under way, what was sent again, and what was measured.
pub(super) fn of_queue_pair(out: &mut dyn TraceSink, qp: &TracedQueuePair, process: u64) -> io::Result<()> {
    for counter in counters::of_queue_pair(qp) {
        let name = format!("QP {:#x}: {}", qp.qpn, counter.name);
        out.counter(CounterTrack { process, name: &name, unit: counter.unit }, &counter.values)?;
    }
    for (plane, unit, values) in counters::of_planes(qp) {
        let name = format!("QP {:#x}: {plane}", qp.qpn);
        out.counter(CounterTrack { process, name: &name, unit }, &values)?;
    }
    Ok(())
}

/// Writes the completions that wait for the program.
pub(super) fn of_completion_queues(
    out: &mut dyn TraceSink,
    process: &TimelineProcess,
    pid: u64,
) -> io::Result<()> {
    for waiting in counters::of_completion_queues(process) {
        let name = format!("CQ {}: completions that wait", waiting.cq);
        let track = CounterTrack { process: pid, name: &name, unit: CounterUnit::Completions };
        out.counter(track, &waiting.values)?;
    }
    Ok(())
}
