//! What queue pairs count beside the device, and other objects as processes of the same user see them.

use pumice_events::inspect::{CqView, SrqView};
use pumice_events::recording::RegionNow;
use pumice_objects::memory::RegionInfo;
use pumice_transport::host::Counter;
use pumice_transport::types::Cause;
use pumice_transport::wire::Qpn;

use super::tables::{Receives, Resources};
use super::tally::Tally;

impl Resources {
    /// The completion queues from a number on.
    pub(crate) fn cqs_from(&self, number: u32) -> impl Iterator<Item = CqView> {
        let view = |(handle, entry): (pumice_ground::table::Handle, &super::tables::CqEntry)| CqView {
            number: handle.index,
            depth: entry.cq.depth(),
            filled: entry.cq.len() as u32,
            armed: entry.cq.is_armed(),
            failed: entry.cq.is_failed(),
            users: entry.users,
        };
        self.cqs.iter().skip_while(move |(handle, _)| handle.index < number).map(view)
    }

    /// Tells each registration of memory.
    pub(crate) fn look_at_regions(&self, tell: &mut dyn FnMut(&RegionNow)) {
        for (key, RegionInfo { address, length, iova, stays_mapped, .. }) in self.memory.regions() {
            tell(&RegionNow { key, address, length, iova, stays_mapped });
        }
    }

    /// Tells each completion queue, and how many completions wait there, while no thread polls it.
    pub(crate) fn look_at_cqs(&self, tell: &mut dyn FnMut(u32, u32)) {
        for (handle, entry) in self.cqs.iter() {
            entry.cq.look(|waiting| tell(handle.index, u32::try_from(waiting).unwrap_or(u32::MAX)));
        }
    }

    /// The shared receive queues from a number on.
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

    /// Receive requests in the receive queue of this number, if it is a queue pair's own.
    pub(crate) fn own_receives(&self, number: u32) -> Option<u32> {
        match self.receives.at(number)? {
            Receives::Own(queue) => Some(queue.len()),
            Receives::Shared(_) => None,
        }
    }
}

impl Resources {
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

    /// What a queue pair has counted; nothing for an XRC target, which may be several processes.
    pub(crate) fn tally(&self, qpn: Qpn) -> Option<&Tally> {
        self.attachment(qpn).map(|attachment| &attachment.tally)
    }
}
