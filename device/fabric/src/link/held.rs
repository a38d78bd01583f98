//! Packets of a batch that wait.

use std::ops::Range;

use pumice_transport::path::Flow;
use pumice_transport::wire::icrc;

use pumice_model::port::batch;

/// Packets of one batch that wait, one after the other, with their common properties.
#[derive(Debug)]
pub(crate) struct HeldBatch<C> {
    /// Common properties of the packets, besides their size.
    pub(crate) common: C,
    pub(crate) segment_bytes: usize,
    /// The ICRC of each packet was made for its index in the batch that it came in.
    pub(crate) has_icrc: bool,
    bytes: Vec<u8>,
    /// Index of the first packet in the batch that it came in.
    first_index: usize,
    /// Time at which each packet may go on, not before those in front of it.
    times_ns: Vec<u64>,
    /// Number of packets in front that have gone on.
    sent_count: usize,
    /// Number of packets behind them that are ready to go on together.
    ready: usize,
    /// Time up to which packets that are due go on without waiting for others.
    released_ns: u64,
}

impl<C> HeldBatch<C> {
    /// Creates a batch without packets yet, the first of which had this index in the batch that it comes
    /// from.
    pub(crate) fn new(common: C, segment_bytes: usize, has_icrc: bool, first_index: usize) -> HeldBatch<C> {
        let (bytes, times_ns) = (Vec::new(), Vec::new());
        HeldBatch {
            common,
            segment_bytes,
            has_icrc,
            bytes,
            first_index,
            times_ns,
            sent_count: 0,
            ready: 0,
            released_ns: 0,
        }
    }

    pub(crate) fn push(&mut self, packet: &[u8], at_ns: u64) {
        self.bytes.extend_from_slice(packet);
        self.times_ns.push(at_ns);
    }

    /// Returns the length of all packets that came, in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn packets(&self) -> usize {
        self.times_ns.len()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.sent_count >= self.times_ns.len()
    }

    /// Returns when the first packets may go on: with all others, or else at most `grain_ns` late, so that
    /// packets that are due one soon after the other go together.
    pub(crate) fn due_ns(&self, grain_ns: u64) -> u64 {
        let first_ns = self.times_ns.get(self.sent_count).copied().unwrap_or(u64::MAX);
        if first_ns <= self.released_ns {
            return first_ns;
        }
        let last_ns = self.times_ns.last().copied().unwrap_or(u64::MAX);
        first_ns.saturating_add(grain_ns).min(last_ns)
    }

    /// Returns how many packets may go on now.
    pub(crate) fn due(&mut self, now_ns: u64, grain_ns: u64) -> usize {
        if self.due_ns(grain_ns) > now_ns {
            return 0;
        }
        self.released_ns = now_ns;
        self.times_ns.iter().skip(self.sent_count).take_while(|at_ns| **at_ns <= now_ns).count()
    }

    /// Returns the next packets as a batch of their own. Their ICRC is made for their new indices, if there
    /// is one, and is made at all if the port `needs_icrc`. If they do not go on, the next call gives as
    /// many.
    pub(crate) fn next(&mut self, packets: usize, flow: &Flow, needs_icrc: bool) -> &[u8] {
        let is_made = self.ready > 0;
        if !is_made {
            self.ready = packets.min(self.times_ns.len() - self.sent_count.min(self.times_ns.len()));
        }
        let range = self.range();
        let (first_index, sent_count, size) = (self.first_index, self.sent_count, self.segment_bytes.max(1));
        let Some(bytes) = self.bytes.get_mut(range) else { return &[] };
        if !is_made {
            for (index, packet) in bytes.chunks_mut(size).enumerate() {
                if self.has_icrc {
                    let from = batch::ip_id(first_index + sent_count + index);
                    batch::renumber(flow, from, batch::ip_id(index), packet);
                } else if needs_icrc {
                    icrc::seal_for_peers(flow, batch::ip_id(index), packet);
                }
            }
        }
        bytes
    }

    /// Returns all packets that have not gone on, as they came.
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.range().start..).unwrap_or_default()
    }

    /// Removes the packets of the last [`next`](HeldBatch::next), which have gone on, and returns their
    /// number.
    pub(crate) fn go_on(&mut self) -> usize {
        let sent_count = std::mem::take(&mut self.ready);
        self.sent_count += sent_count;
        sent_count
    }

    fn range(&self) -> Range<usize> {
        let end = |packets: usize| (packets * self.segment_bytes.max(1)).min(self.bytes.len());
        end(self.sent_count)..end(self.sent_count + self.ready)
    }
}
