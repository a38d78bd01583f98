//! Completion queues and shared receive queues as other processes of the same user see them.

use super::tables::{Receives, Resources};
use crate::inspect::{CqView, SrqView};

impl Resources {
    /// The completion queues from a number on.
    pub(crate) fn cqs_from(&self, number: u32) -> impl Iterator<Item = CqView> {
        let view = |(handle, entry): (crate::ground::table::Handle, &super::tables::CqEntry)| CqView {
            number: handle.index,
            depth: entry.cq.depth(),
            filled: entry.cq.len() as u32,
            armed: entry.cq.is_armed(),
            failed: entry.cq.is_failed(),
            users: entry.users,
        };
        self.cqs.iter().skip_while(move |(handle, _)| handle.index < number).map(view)
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
