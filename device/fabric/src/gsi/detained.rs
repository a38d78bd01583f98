//! MADs for processes that do not keep up.

use std::collections::VecDeque;

use pumice_transport::wire::ProcessIndex;

use super::envelope::InboundMad;
use pumice_model::port::Port;
use pumice_model::port::group::ForwardOutcome;

/// Number of MADs that may wait. More are lost, as on the wire.
const LIMIT: usize = 8192;
/// Time that a MAD waits for a process that does not keep up: less than its sender waits before it repeats
/// the MAD.
const PATIENCE_NS: u64 = 1_000_000_000;

/// A MAD that waits for a process.
pub(crate) struct Detained {
    process: ProcessIndex,
    until_ns: u64,
    inbound: InboundMad,
}

/// The MADs that wait for other processes, in order.
#[derive(Default)]
pub(crate) struct DetainedMads {
    waiting: VecDeque<Detained>,
}

impl DetainedMads {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Reports whether MADs wait for a process: later ones for it wait behind them.
    pub(crate) fn is_waiting(&self, process: ProcessIndex) -> bool {
        self.waiting.iter().any(|waiting| waiting.process == process)
    }

    /// Queues a MAD for a process that has no room for it.
    pub(crate) fn hold(&mut self, process: ProcessIndex, inbound: InboundMad, now_ns: u64) {
        if self.waiting.len() < LIMIT {
            let until_ns = now_ns.saturating_add(PATIENCE_NS);
            self.waiting.push_back(Detained { process, until_ns, inbound });
        }
    }

    /// Forwards the MADs that other processes had no room for.
    pub(crate) fn forward(&mut self, now_ns: u64, port: &mut dyn Port) {
        let mut full = Vec::new();
        for _ in 0..self.waiting.len() {
            let Some(waiting) = self.waiting.pop_front() else { return };
            let Detained { process, until_ns, .. } = waiting;
            // A process that does not keep up, or is stopped, does not delay the MADs of other processes. A
            // MAD that waits too long is dropped, as is one for a process that has died in the meantime: its
            // sender repeats it.
            if full.contains(&process)
                || forward(&[process], &waiting.inbound, port).0 == ForwardOutcome::Full
            {
                if !full.contains(&process) {
                    full.push(process);
                }
                if now_ns < until_ns {
                    self.waiting.push_back(waiting);
                }
            }
        }
    }
}

/// Forwards a MAD to the first of these processes that lives, and returns the result and the process.
pub(crate) fn forward(
    processes: &[ProcessIndex],
    inbound: &InboundMad,
    port: &mut dyn Port,
) -> (ForwardOutcome, ProcessIndex) {
    let none = (ForwardOutcome::NoProcess, ProcessIndex::default());
    let Some(group) = port.group() else { return none };
    let received = inbound.received();
    let tried = processes.iter().map(|process| (group.try_forward(*process, &received), *process));
    tried.into_iter().find(|(outcome, _)| *outcome != ForwardOutcome::NoProcess).unwrap_or(none)
}

#[cfg(test)]
#[path = "detained_tests.rs"]
mod tests;
