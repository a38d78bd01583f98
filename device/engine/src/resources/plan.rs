//! The decisions about the device's objects, which may change while the program runs.

use pumice_faults::ProcessProgress;
use pumice_model::event::Topics;
use pumice_model::fates::CallKey;
use pumice_model::fates::live::{FaultCommand, FaultReply};

use super::tables::Resources;
use crate::decisions::Decisions;

impl Resources {
    /// Sets the decisions, before objects are created.
    pub(crate) fn set_decisions(&mut self, decisions: Decisions) {
        self.completions.cq_common.shuffle = decisions.shuffle();
        self.decisions = decisions;
        self.follow_decisions();
    }

    /// Updates the topics to the present subscribers.
    pub(crate) fn follow_subscribers(&mut self) {
        self.listeners.topics = self.listeners.subscribers.topics();
        // The arbiter gets a description of every packet that is sent.
        if self.decisions.decides_packets() {
            self.listeners.topics |= Topics::PACKETS | Topics::ANSWERS;
        }
    }

    /// Updates what the decisions have to be asked about.
    fn follow_decisions(&mut self) {
        self.follow_subscribers();
        self.completions.cq_common.pacer = self.decisions.pacer();
        let Some(pacer) = &self.completions.cq_common.pacer else { return };
        for (_, entry) in self.objects.cqs.iter() {
            if let Some(ordinal) = entry.ordinal {
                entry.cq.pace(pacer, ordinal);
            }
        }
    }

    /// Applies an order of another process of this user to the fault plan.
    pub(crate) fn change_plan(&mut self, order: &FaultCommand, progress: ProcessProgress) -> FaultReply {
        let answer = self.decisions.apply_command(order, progress, &self.listeners.subscribers);
        self.follow_decisions();
        answer
    }

    /// Makes the incidents due whose time has come.
    #[cold]
    pub(crate) fn advance_to_time(&mut self, now_ns: u64) {
        self.decisions.advance_to_time(now_ns, &self.listeners.subscribers);
    }

    /// Records that a call has returned. Returns whether an incident is due for the device.
    pub fn called(&mut self, key: &CallKey<'_>) -> bool {
        self.decisions.called(key, &self.listeners.subscribers)
    }
}
