//! The incidents of a device that are due, happen at a time, or wait until their queue pair is halted.

use pumice_model::fates::incident::Incident;
use pumice_transport::wire::Qpn;

/// The incidents that are to happen to the device; some of them wait until a queue pair is halted.
#[derive(Debug, Default)]
pub(crate) struct Incidents {
    /// Incidents of the packet that is being decided.
    fresh: Vec<Incident>,
    /// Incidents whose queue pair is not halted yet.
    waiting: Vec<(Qpn, Incident)>,
    due: Vec<(Qpn, Incident)>,
}

impl Incidents {
    pub(crate) fn begin(&mut self, happened: Vec<Incident>) {
        self.fresh = happened;
    }

    /// Assigns the incidents of the packet just decided to its queue pair, which is halted before them or
    /// continues.
    pub(crate) fn belong_to(&mut self, qpn: Qpn, is_halted: bool) {
        let list = if is_halted { &mut self.waiting } else { &mut self.due };
        list.extend(self.fresh.drain(..).map(|incident| (qpn, incident)));
    }

    /// Makes an incident due now, at no queue pair.
    pub(crate) fn happen_now(&mut self, incident: Incident) {
        self.due.push((Qpn::new(0), incident));
    }

    /// Makes the incidents of a queue pair due that was halted for them.
    pub(crate) fn halted(&mut self, qpn: Qpn) {
        self.due.extend(self.waiting.extract_if(.., |(of, _)| *of == qpn));
    }

    /// Drops the waiting incidents of a queue pair that was destroyed.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.waiting.retain(|(of, _)| *of != qpn);
    }

    /// Reports whether an incident is due now.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Takes the incidents that are due now, each with its queue pair.
    pub(crate) fn take(&mut self) -> Vec<(Qpn, Incident)> {
        std::mem::take(&mut self.due)
    }
}

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

#[cfg(test)]
mod tests {
    use pumice_model::fates::details::DetailField;
    use pumice_platform::link_settings::LinkSettings;

    /// Checks that `pumice fault kinds` has a line for each field, and that the line names the kinds that
    /// have it.
    #[test]
    fn each_field_is_described_with_the_kinds_that_have_it() {
        let event = crate::KINDS.iter().find(|kind| kind.name == "event").unwrap().meanings();
        for word in DetailField::ALL.into_iter().flat_map(DetailField::words) {
            assert!(event.iter().any(|(name, _)| name == word), "{word} has no line in text/kinds.rs");
        }
        let (_, of_srq) = event.iter().find(|(name, _)| *name == "srq").unwrap();
        assert!(of_srq.starts_with("of srq-limit and srq-error: "), "{of_srq}");
        assert_eq!(DetailField::Link.words()[1..], LinkSettings::WORDS);
    }
}
