//! When stores and completions go through the store buffer, and when it is drained.

use pumice_objects::memory::MappingCheck;
use pumice_transport::host::{MemoryError, QpContext};
use pumice_transport::types::{Sge, WcStatus};

use super::tables::Resources;
use crate::decisions::{Cut, Item, Made, Target, local_ranges};

impl Resources {
    /// Whether stores wait. Then no response leaves.
    #[inline]
    pub(crate) fn has_buffered(&self) -> bool {
        self.decisions.has_stores()
    }

    /// When something that waits is due, in ns.
    #[inline]
    pub(crate) fn waits_due_ns(&self) -> Option<u64> {
        self.decisions.due_ns()
    }

    /// Whether a seed decides what waits.
    #[inline]
    pub(crate) const fn is_shuffled(&self) -> bool {
        self.decisions.is_shuffled()
    }

    /// How long what was just posted to the queue pair with this ordinal is kept back, if at all.
    #[cold]
    pub(crate) fn departure_delay_ns(&mut self, ordinal: u32) -> Option<u64> {
        self.decisions.stores.as_mut().and_then(|stores| stores.departure(ordinal))
    }

    /// A program that is told of an event of a queue pair finds the completions that came before it.
    #[cold]
    pub(super) fn release_before_event(&mut self, qp: &QpContext) {
        self.drain_stores();
        for cq in [qp.send_cq, qp.recv_cq] {
            if let Some(entry) = self.cqs.at(cq) {
                entry.cq.release_held();
            }
        }
    }

    /// A program that is told of an event of a connection finds the completions that came before it: when its
    /// peer disconnects, the peer's last message is there.
    #[inline]
    pub(crate) fn release_before_messages(&mut self) {
        if self.is_shuffled() {
            self.release_all();
        }
    }

    #[cold]
    fn release_all(&mut self) {
        self.drain_stores();
        for (_, entry) in self.cqs.iter() {
            entry.cq.release_held();
        }
    }

    /// Whose packet is handled from now on. `None`: nothing of it waits.
    #[inline]
    pub(crate) fn handles_packet_of(&mut self, ordinal: Option<u32>) {
        if let Some(stores) = &mut self.decisions.stores {
            stores.current = ordinal;
        }
    }

    /// A turn of the engine ends: from now on time passes for what waits.
    #[inline]
    pub(crate) fn time_stores(&mut self, now_ns: u64) {
        if let Some(stores) = &mut self.decisions.stores {
            stores.time(now_ns);
        }
    }

    /// Does what waits, if its time has come.
    pub(crate) fn expire_waits(&mut self, now_ns: u64) {
        let due_ns = self.decisions.stores.as_ref().and_then(|stores| stores.due_ns);
        if due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            self.moment.end();
            self.drain_stores();
        }
        if self.decisions.delays() {
            self.expire_delayed(now_ns);
        }
    }

    /// Stores what waits to be stored, and makes the completions behind it.
    #[inline]
    pub(crate) fn drain_stores(&mut self) {
        if self.has_buffered() {
            self.drain_items();
        }
    }

    #[cold]
    fn drain_items(&mut self) {
        let Some(stores) = &mut self.decisions.stores else { return };
        for item in stores.take() {
            match item {
                Item::Store { target, data, .. } => {
                    // The key was right when the packet came. If it has gone since, so has the memory.
                    let _ = target.store(&self.memory, &data, MappingCheck::Asked);
                }
                Item::Completion { qp, made } => self.complete_now(&qp, &made),
                Item::Pause => {}
            }
        }
    }

    /// Stores the payload of a packet now or later.
    ///
    /// # Errors
    /// The key, its domain, its right or the range is wrong, now.
    #[cold]
    pub(super) fn store_buffered(
        &mut self,
        target: &Target<'_>,
        data: &[u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        if data.is_empty() {
            return target.store(&self.memory, data, check);
        }
        let ranges = target.ranges(&self.memory, data.len())?;
        if self.decisions.stores.as_ref().is_some_and(|stores| stores.is_full() || stores.meets(&ranges)) {
            self.drain_stores();
        }
        let memory = &self.memory;
        let Some(stores) = &mut self.decisions.stores else { return target.store(memory, data, check) };
        let sure = check == MappingCheck::Assumed && target.stays_mapped(memory);
        let cut = stores.current.filter(|_| sure).and_then(|ordinal| stores.cut(ordinal, data.len()));
        let Some(Cut { from, to, delay_ns }) = cut else { return target.store(memory, data, check) };
        let (Some(before), Some(part), Some(after)) = (data.get(..from), data.get(from..to), data.get(to..))
        else {
            return target.store(memory, data, check);
        };
        target.store_at(memory, to, after, check)?;
        target.store(memory, before, check)?;
        stores.push(target.advanced(from), ranges, part, delay_ns);
        Ok(())
    }

    /// The device is about to read local buffers: what waits to be stored there is stored.
    #[cold]
    pub(super) fn drain_before_gather(&mut self, pd: u32, sges: &[Sge], offset: u64, length: usize) {
        let Some(stores) = &self.decisions.stores else { return };
        let ranges = local_ranges(&self.memory, pd, sges, offset, length as u64, false);
        if ranges.is_ok_and(|ranges| stores.meets(&ranges)) {
            self.drain_stores();
        }
    }

    /// Puts a completion behind what waits, if anything does; else gives it back. A failure waits for
    /// nothing.
    #[cold]
    pub(super) fn complete_buffered(&mut self, qp: &QpContext, made: Made) -> Option<Made> {
        let is_full = self.decisions.stores.as_ref().is_some_and(|stores| stores.is_full());
        if made.completion.status != WcStatus::Success || is_full {
            self.drain_stores();
        }
        let Some(stores) = self.decisions.stores.as_mut().filter(|stores| !stores.items.is_empty()) else {
            return Some(made);
        };
        stores.items.push(Item::Completion { qp: *qp, made });
        None
    }
}
