//! The addresses between which packets of queue pairs go: recorded when they change.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::net::IpAddr;

use fnv::FnvHasher;

use pumice_traces::format::Record;

/// The way of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    /// Ordinal of the queue pair.
    pub(super) qp: u32,
    /// The queue pair sent it.
    pub(super) is_out: bool,
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
}

/// The ways that packets went last.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Those of the last packets sent and received: most packets follow one that went the same way.
    last: [Option<Way>; 2],
    known: HashMap<(u32, bool), Way, BuildHasherDefault<FnvHasher>>,
}

impl Ways {
    /// Whether the last packet of this direction went another way. If it did, [`Ways::note`] has to be asked.
    #[inline(always)]
    pub(super) fn is_new(&self, way: &Way) -> bool {
        let [arrives, leaves] = &self.last;
        (if way.is_out { leaves } else { arrives }).as_ref() != Some(way)
    }

    /// What is to be recorded before a packet that goes this way, if the last one of its queue pair went
    /// another.
    pub(super) fn note(&mut self, way: Way) -> Option<Record<'static>> {
        let last = self.last.get_mut(usize::from(way.is_out))?;
        if *last == Some(way) {
            return None;
        }
        *last = Some(way);
        let Way { qp, is_out, from, to } = way;
        let is_new = self.known.insert((qp, is_out), way) != Some(way);
        let record =
            if is_out { Record::SendsTo { qp, from, to } } else { Record::ReceivesFrom { qp, from, to } };
        is_new.then_some(record)
    }

    /// A queue pair was destroyed.
    pub(super) fn forget(&mut self, qp: u32) {
        self.last = [None; 2];
        for is_out in [false, true] {
            self.known.remove(&(qp, is_out));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_recorded_when_it_is_new() {
        let mut ways = Ways::default();
        let way = |qp, is_out, to: u8| {
            let [from, to] = [1, to].map(|last| IpAddr::from([10, 0, 0, last]));
            Way { qp, is_out, from, to }
        };
        assert!(matches!(ways.note(way(1, true, 2)), Some(Record::SendsTo { qp: 1, .. })));
        assert!(ways.note(way(1, true, 2)).is_none());
        assert!(matches!(ways.note(way(1, false, 2)), Some(Record::ReceivesFrom { qp: 1, .. })));
        assert!(ways.note(way(2, true, 2)).is_some());
        assert!(ways.note(way(1, true, 2)).is_none(), "another queue pair's packet was between them");
        assert!(ways.note(way(1, true, 3)).is_some());
        ways.forget(1);
        assert!(ways.note(way(1, true, 3)).is_some());
        assert!(ways.note(way(2, true, 2)).is_none());
    }
}
