//! The addresses between which packets of queue pairs go: recorded when they change.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::net::IpAddr;

use fnv::FnvHasher;

use crate::format::Record;

/// The way of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacketPath {
    /// Ordinal of the queue pair.
    pub(super) qp: u32,
    /// The queue pair sent the packet.
    pub(super) is_out: bool,
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
}

/// The ways that packets went last.
#[derive(Debug, Default)]
pub(super) struct LastPaths {
    /// Cached ways of the last packets sent and received: most packets go the same way as the one before.
    last: [Option<PacketPath>; 2],
    known: HashMap<(u32, bool), PacketPath, BuildHasherDefault<FnvHasher>>,
}

impl LastPaths {
    /// Reports whether the last packet of this direction went another way. If it did, [`LastPaths::note`] has
    /// to be called.
    #[inline(always)]
    pub(super) fn is_new(&self, packet_path: &PacketPath) -> bool {
        let [arrives, leaves] = &self.last;
        (if packet_path.is_out { leaves } else { arrives }).as_ref() != Some(packet_path)
    }

    /// Returns the record for the way of a packet, if the last packet of its queue pair went another way.
    pub(super) fn note(&mut self, packet_path: PacketPath) -> Option<Record<'static>> {
        let last = self.last.get_mut(usize::from(packet_path.is_out))?;
        if *last == Some(packet_path) {
            return None;
        }
        *last = Some(packet_path);
        let PacketPath { qp, is_out, from, to } = packet_path;
        let is_new = self.known.insert((qp, is_out), packet_path) != Some(packet_path);
        let record =
            if is_out { Record::SendsTo { qp, from, to } } else { Record::ReceivesFrom { qp, from, to } };
        is_new.then_some(record)
    }

    /// Handles the destruction of a queue pair.
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
        let mut last_paths = LastPaths::default();
        let packet_path = |qp, is_out, to: u8| {
            let [from, to] = [1, to].map(|last| IpAddr::from([10, 0, 0, last]));
            PacketPath { qp, is_out, from, to }
        };
        assert!(matches!(last_paths.note(packet_path(1, true, 2)), Some(Record::SendsTo { qp: 1, .. })));
        assert!(last_paths.note(packet_path(1, true, 2)).is_none());
        assert!(matches!(
            last_paths.note(packet_path(1, false, 2)),
            Some(Record::ReceivesFrom { qp: 1, .. })
        ));
        assert!(last_paths.note(packet_path(2, true, 2)).is_some());
        assert!(
            last_paths.note(packet_path(1, true, 2)).is_none(),
            "another queue pair's packet was between them"
        );
        assert!(last_paths.note(packet_path(1, true, 3)).is_some());
        last_paths.forget(1);
        assert!(last_paths.note(packet_path(1, true, 3)).is_some());
        assert!(last_paths.note(packet_path(2, true, 2)).is_none());
    }
}
