//! The paths of an MRC queue pair: what left by each, what had to leave again, and their states.

use std::collections::{BTreeMap, HashMap};

use pumice_transport::mrc::wire::MrcOpcode;

use crate::format::Record;

/// Maximum number of PSNs whose last packet is remembered. All are forgotten at once, long before PSNs
/// repeat.
const MAX_PSNS: usize = 1 << 16;
/// Maximum number of changes of paths that a queue pair stores.
const MAX_CHANGES: usize = 1 << 16;
/// The states of paths, as records have them.
const GOOD: u8 = 0;
const SKIP: u8 = 1;

/// The paths of an MRC queue pair.
#[derive(Debug, Default)]
pub struct TracedPaths {
    /// The paths that data left by or whose state changed, by their UDP source ports.
    pub paths: BTreeMap<u16, TracedPath>,
    /// The planes, by their numbers.
    pub planes: BTreeMap<u8, TracedPlane>,
    /// Number of planes of the device.
    count: u16,
    /// Path of the next packet.
    next: Option<u16>,
    /// Time and path of the last packet of each PSN.
    sent: HashMap<u32, (u64, u16)>,
    changes: usize,
}

/// A path of an MRC queue pair.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TracedPath {
    /// Plane that it is in.
    pub plane: u8,
    /// Number of data packets that left by it.
    pub packets: u64,
    /// Number of these that had to leave again, by another path.
    pub repeated: u64,
    /// Time in ns from these packets until they left again, all together.
    pub waited_ns: u64,
    /// Number of times that it was skipped, because of congestion.
    pub skips: u64,
    /// The path is neither GOOD nor SKIP.
    is_left: bool,
    is_skipped: bool,
}

/// A plane of an MRC queue pair.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TracedPlane {
    /// Number of paths that the queue pair has in it.
    pub paths: u32,
    /// Times in ns and the number of GOOD paths from then on; skipped ones count as GOOD.
    pub good: Vec<(u64, u32)>,
    /// Times in ns and the number of skipped paths from then on.
    pub skipped: Vec<(u64, u32)>,
}

impl TracedPaths {
    /// Adds a record about paths, or a packet that was sent.
    pub(super) fn take(&mut self, at_ns: u64, record: &Record<'_>) {
        match *record {
            Record::PathsMade { plane, planes, paths, .. } => {
                self.count = planes.into();
                self.planes
                    .insert(plane, TracedPlane { paths, good: vec![(at_ns, paths)], skipped: Vec::new() });
            }
            Record::PathTaken { source_port, .. } => self.next = Some(source_port),
            Record::PathChanged { source_port, plane, state, .. } => {
                self.skipped(at_ns, source_port, plane, state == SKIP);
                self.changed(at_ns, source_port, plane, ![GOOD, SKIP].contains(&state));
            }
            Record::PacketSent { psn, opcode, .. } => {
                let is_data = MrcOpcode::from_byte(opcode).is_some_and(MrcOpcode::is_write);
                if let Some(port) = self.next.take().filter(|_| is_data) {
                    self.left(at_ns, psn, port);
                }
            }
            _ => {}
        }
    }

    /// Returns a path; its plane follows from its port.
    fn path(&mut self, port: u16) -> &mut TracedPath {
        let plane = (port % self.count.max(1)) as u8;
        self.paths.entry(port).or_insert(TracedPath { plane, ..TracedPath::default() })
    }

    fn changed(&mut self, at_ns: u64, port: u16, plane: u8, is_left: bool) {
        let path = self.path(port);
        path.plane = plane;
        let before = std::mem::replace(&mut path.is_left, is_left);
        let Some(plane) = self.planes.get_mut(&plane).filter(|_| before != is_left) else { return };
        let Some((_, good)) = plane.good.last().copied() else { return };
        let good = if is_left { good.saturating_sub(1) } else { (good + 1).min(plane.paths) };
        if self.changes < MAX_CHANGES {
            self.changes += 1;
            plane.good.push((at_ns, good));
        }
    }

    fn skipped(&mut self, at_ns: u64, port: u16, plane: u8, is_skipped: bool) {
        let path = self.path(port);
        if std::mem::replace(&mut path.is_skipped, is_skipped) == is_skipped {
            return;
        }
        path.skips += u64::from(is_skipped);
        let Some(plane) = self.planes.get_mut(&plane).filter(|_| self.changes < MAX_CHANGES) else { return };
        let before = plane.skipped.last().map_or(0, |(_, count)| *count);
        self.changes += 1;
        plane.skipped.push((at_ns, if is_skipped { before + 1 } else { before.saturating_sub(1) }));
    }

    /// Returns the time at which the packet with this PSN was last sent.
    pub(super) fn sent_ns(&self, psn: u32) -> Option<u64> {
        self.sent.get(&psn).map(|(at_ns, _)| *at_ns)
    }

    /// Notes that data left by a path. If its PSN had left before, that packet was lost, or held up for so
    /// long.
    fn left(&mut self, at_ns: u64, psn: u32, port: u16) {
        self.path(port).packets += 1;
        if self.sent.len() >= MAX_PSNS {
            self.sent.clear();
        }
        if let Some((before_ns, before)) = self.sent.insert(psn, (at_ns, port)) {
            let path = self.path(before);
            path.repeated += 1;
            path.waited_ns = path.waited_ns.saturating_add(at_ns.saturating_sub(before_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_leaves_again_is_charged_to_the_path_of_its_first_copy() {
        let mut paths = TracedPaths::default();
        for plane in 0..2 {
            paths.take(1, &Record::PathsMade { qp: 0, plane, planes: 2, paths: 3 });
        }
        for (at_ns, psn, source_port) in [(10, 7, 0xc001), (11, 8, 0xc002), (60, 7, 0xc004)] {
            paths.take(at_ns, &Record::PathTaken { qp: 0, source_port });
            let (length, destination) = (1000, 9);
            let (side, message, transmission, opcode) = (0, 0, 1, 0xca);
            let sent =
                Record::PacketSent { qp: 0, side, message, psn, transmission, opcode, length, destination };
            paths.take(at_ns, &sent);
        }
        for (at_ns, state) in [(61, 2), (62, 2), (90, 0)] {
            paths.take(at_ns, &Record::PathChanged { qp: 0, source_port: 0xc001, plane: 1, state });
        }
        for (at_ns, state) in [(91, 1), (92, 0), (93, 1), (94, 2), (95, 0)] {
            paths.take(at_ns, &Record::PathChanged { qp: 0, source_port: 0xc001, plane: 1, state });
        }
        let bad = TracedPath {
            plane: 1,
            packets: 1,
            repeated: 1,
            waited_ns: 50,
            skips: 2,
            ..TracedPath::default()
        };
        assert_eq!(paths.paths[&0xc001], bad);
        assert_eq!(paths.paths[&0xc004], TracedPath { packets: 1, ..TracedPath::default() });
        assert_eq!(paths.planes[&1].good, [(1, 3), (61, 2), (90, 3), (94, 2), (95, 3)]);
        assert_eq!(paths.planes[&1].skipped, [(91, 1), (92, 0), (93, 1), (94, 0)]);
        assert_eq!(paths.planes[&0].good, [(1, 3)]);
    }
}
