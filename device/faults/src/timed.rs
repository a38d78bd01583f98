//! Incidents that happen to the device at a time, also if it sends nothing.

use pumice_model::fates::incident::Incident;

/// The pending timed incidents, ordered by time.
#[derive(Debug, Default)]
pub(crate) struct TimedIncidents(Vec<TimedIncident>);

/// An incident that happens at a time.
#[derive(Debug)]
pub(crate) struct TimedIncident {
    pub(super) at_ns: u64,
    /// Time from the beginning to the incident, in ns.
    pub(super) after_ns: u64,
    pub(super) incident: Incident,
    /// The number of the rule.
    pub(super) id: usize,
}

impl TimedIncidents {
    /// Adds an incident.
    pub(crate) fn add(&mut self, due: TimedIncident) {
        self.0.push(due);
        self.0.sort_by_key(|due| (due.at_ns, due.id));
    }

    /// Returns when the next incident is due, in ns.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.0.first().map(|due| due.at_ns)
    }

    /// Takes the incidents that are due.
    pub(crate) fn take(&mut self, now_ns: u64) -> Vec<TimedIncident> {
        self.0.extract_if(.., |due| due.at_ns <= now_ns).collect()
    }
}
