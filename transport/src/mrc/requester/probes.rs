//! Reliability probes of a requester: those that are requested, and those that were sent.

use alloc::collections::VecDeque;

use crate::mrc::constants::MAX_PROBES;

/// A probe that was sent, with what its answer is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) id: u16,
    pub(super) sent_ns: u64,
    pub(super) path: u16,
    /// Position before which all transmissions left earlier than the probe.
    pub(super) order: u64,
    /// True if the probe tests a bad path.
    pub(super) is_test: bool,
}

#[derive(Debug, Default)]
pub(super) struct Probes {
    sent: VecDeque<Probe>,
    next_id: u16,
    /// Bad paths that are to be tested.
    tests: VecDeque<u16>,
    is_requested: bool,
    /// Number of probes sent since the last packet from the peer.
    unanswered_probes: u32,
}

impl Probes {
    /// Requests a probe that asks for a SACK.
    pub(super) fn ask(&mut self) {
        self.is_requested = true;
    }

    pub(super) fn test(&mut self, path: u16) {
        if self.tests.len() < MAX_PROBES && !self.tests.contains(&path) {
            self.tests.push_back(path);
        }
    }

    pub(super) fn is_requested(&self) -> bool {
        self.is_requested
    }

    pub(super) fn next_test(&self) -> Option<u16> {
        self.tests.front().copied()
    }

    pub(super) fn next_id(&self) -> u16 {
        self.next_id
    }

    /// Records that a probe was sent.
    pub(super) fn sent(&mut self, sent_ns: u64, path: u16, order: u64, is_test: bool) {
        if is_test {
            self.tests.pop_front();
        } else {
            self.is_requested = false;
            self.unanswered_probes = self.unanswered_probes.saturating_add(1);
        }
        if self.sent.len() >= MAX_PROBES {
            self.sent.pop_front();
        }
        self.sent.push_back(Probe { id: self.next_id, sent_ns, path, order, is_test });
        self.next_id = self.next_id.wrapping_add(1);
    }

    /// Returns the probe of this number, if it is known. A probe stays known after the first SACK of its
    /// answer, because others may follow; a test does not.
    pub(super) fn find(&self, id: u16) -> Option<Probe> {
        self.sent.iter().find(|probe| probe.id == id).copied()
    }

    /// Removes a test, whose answer counts only once.
    pub(super) fn forget(&mut self, id: u16) {
        self.sent.retain(|probe| probe.id != id);
    }

    /// Records that a packet arrived from the peer.
    pub(super) fn note_received(&mut self) {
        self.unanswered_probes = 0;
    }

    pub(super) fn unanswered_probes(&self) -> u32 {
        self.unanswered_probes
    }
}
