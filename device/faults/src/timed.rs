//! What is to happen to the device when a time has come, also if it sends nothing.

use super::incident::Incident;

/// What is to come, by time.
#[derive(Debug, Default)]
pub(crate) struct Timed(Vec<Due>);

/// Something that happens at a time.
#[derive(Debug)]
pub(crate) struct Due {
    pub(super) at_ns: u64,
    /// How long after the beginning that is.
    pub(super) after_ns: u64,
    pub(super) incident: Incident,
    /// The rule.
    pub(super) id: usize,
}

impl Timed {
    /// Also this.
    pub(crate) fn add(&mut self, due: Due) {
        self.0.push(due);
        self.0.sort_by_key(|due| (due.at_ns, due.id));
    }

    /// When the next one comes.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.0.first().map(|due| due.at_ns)
    }

    /// What happens now.
    pub(crate) fn take(&mut self, now_ns: u64) -> Vec<Due> {
        self.0.extract_if(.., |due| due.at_ns <= now_ns).collect()
    }
}
