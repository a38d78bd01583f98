//! The counters of queue pairs, and other objects as processes of the same user see them.

use pumice_memory::{RegionInfo, RegionKeys};
use pumice_model::inspect::{CqView, SrqView};
use pumice_model::recording::RegionSnapshot;
use pumice_transport::host::Counter;
use pumice_transport::types::{Access, Cause};
use pumice_transport::wire::Qpn;

use super::tables::{ObjectTables, Receives};
use super::tally::QpTally;

impl ObjectTables {
    /// Returns the completion queues from a number on.
    pub(crate) fn cqs_from(&self, number: u32) -> impl Iterator<Item = CqView> {
        let view = |(handle, entry): (pumice_platform::table::Handle, &super::tables::CqEntry)| CqView {
            number: handle.index,
            ordinal: entry.ordinal,
            depth: entry.cq.depth(),
            filled: entry.cq.len() as u32,
            armed: entry.cq.is_armed(),
            failed: entry.cq.is_failed(),
            users: entry.users,
        };
        self.cqs.iter().skip_while(move |(handle, _)| handle.index < number).map(view)
    }

    /// Calls `visit` with each registration of memory.
    pub(crate) fn for_each_region(&self, visit: &mut dyn FnMut(&RegionSnapshot)) {
        for (RegionKeys { lkey, rkey, .. }, region) in self.memory.regions() {
            let RegionInfo { address, length, iova, stays_mapped, access, .. } = region;
            let relaxed = access.contains(Access::RELAXED_ORDERING);
            visit(&RegionSnapshot { lkey, rkey, address, length, iova, stays_mapped, relaxed });
        }
    }

    /// Calls `visit` with each completion queue and the number of its completions, while no thread polls it.
    pub(crate) fn for_each_cq(&self, visit: &mut dyn FnMut(u32, u32)) {
        for (handle, entry) in self.cqs.iter() {
            entry.cq.look(|waiting| visit(handle.index, u32::try_from(waiting).unwrap_or(u32::MAX)));
        }
    }

    /// Returns the shared receive queues from a number on.
    pub(crate) fn srqs_from(&self, number: u32) -> impl Iterator<Item = SrqView> {
        self.receives.iter().filter_map(move |(handle, receives)| match receives {
            Receives::Shared(srq) if handle.index >= number => Some(SrqView {
                number: handle.index,
                ordinal: srq.ordinal(),
                depth: srq.attributes().max_wr,
                posted: srq.len(),
                limit: srq.attributes().limit,
                xrc: srq.xrc().is_some(),
                cq: srq.xrc().map(|xrc| xrc.cq),
            }),
            _ => None,
        })
    }

    /// Returns the number of receive requests in the receive queue of this number, if it is a queue pair's
    /// own.
    pub(crate) fn own_receives(&self, number: u32) -> Option<u32> {
        match self.receives.at(number)? {
            Receives::Own(queue) => Some(queue.len()),
            Receives::Shared(_) => None,
        }
    }
}

impl ObjectTables {
    /// Counts for a queue pair what the device has counted.
    #[cold]
    pub(super) fn note(&mut self, qpn: Qpn, counter: Counter, amount: u64) {
        if let Some(attachment) = self.attachment_mut(qpn) {
            attachment.tally.note(counter, amount);
            if let Some(counters) = &attachment.port_counters {
                counters.add(counter, amount);
            }
        }
    }

    /// Remembers why something went wrong with a queue pair.
    #[cold]
    pub(super) fn note_error(&mut self, qpn: Qpn, cause: &Cause) {
        if let Some(attachment) = self.attachment_mut(qpn) {
            attachment.tally.last_error = Some(Box::new(*cause));
        }
    }

    /// Returns the counts of a queue pair; `None` for an XRC target, which several processes may share.
    pub(crate) fn tally(&self, qpn: Qpn) -> Option<&QpTally> {
        self.attachment(qpn).map(|attachment| &attachment.tally)
    }
}
