//! What decides about the device's objects, which may change while the program runs.

use pumice_events::Topics;
use pumice_faults::Moment;
use pumice_faults::calls::CallKey;
use pumice_faults::live::{LiveAnswer, LiveOrder};

use super::tables::Resources;
use crate::decisions::Decisions;

impl Resources {
    /// From now on these decide what happens. Before objects are made.
    pub(crate) fn set_decisions(&mut self, decisions: Decisions) {
        self.cq_common.shuffle = decisions.shuffle();
        self.decisions = decisions;
        self.follow_decisions();
    }

    /// Others may listen now than before.
    pub(crate) fn follow_subscribers(&mut self) {
        self.topics = self.events.topics();
        // What is sent is described to those who decide.
        if self.decisions.asks_about_packets() {
            self.topics |= Topics::PACKETS | Topics::ANSWERS;
        }
    }

    /// What is asked about now may be something else than before.
    fn follow_decisions(&mut self) {
        self.follow_subscribers();
        self.cq_common.pacer = self.decisions.pacer();
        let Some(pacer) = &self.cq_common.pacer else { return };
        for (_, entry) in self.cqs.iter() {
            if let Some(ordinal) = entry.ordinal {
                entry.cq.pace(pacer, ordinal);
            }
        }
    }

    /// Another process of this user wants the plan to change.
    pub(crate) fn change_plan(&mut self, order: &LiveOrder, moment: Moment) -> LiveAnswer {
        let answer = self.decisions.obey(order, moment, &self.events);
        self.follow_decisions();
        answer
    }

    /// A time has come for which something waits.
    #[cold]
    pub(crate) fn time_came(&mut self, now_ns: u64) {
        self.decisions.time_came(now_ns, &self.events);
    }

    /// A call has returned: whether something is to befall the device.
    pub fn called(&mut self, key: &CallKey<'_>) -> bool {
        self.decisions.called(key, &self.events)
    }
}
