//! When what a shuffled schedule puts off is put off, and when it is done.

use pumice_objects::memory::MappingCheck;
use pumice_transport::host::{MemoryError, QpContext};
use pumice_transport::types::{Sge, WcStatus};

use super::late::{Cut, Item, Target, local_ranges};
use super::made::Made;
use super::tables::Resources;

impl Resources {
    /// Whether something was put off. Then no response leaves.
    #[inline]
    pub(crate) fn has_late(&self) -> bool {
        self.late.as_ref().is_some_and(|late| !late.items.is_empty())
    }

    /// When what was put off is done, in ns.
    #[inline]
    pub(crate) fn late_due_ns(&self) -> Option<u64> {
        let at_work = self.put_off.as_ref().filter(|_| self.puts_off);
        let put_off = at_work.and_then(|put_off| put_off.due_ns());
        match (self.late.as_ref().and_then(|late| late.due_ns), put_off) {
            (Some(late_ns), Some(put_off_ns)) => Some(late_ns.min(put_off_ns)),
            (late_ns, put_off_ns) => late_ns.or(put_off_ns),
        }
    }

    /// Whether a seed decides what is put off.
    #[inline]
    pub(crate) const fn is_shuffled(&self) -> bool {
        self.late.is_some()
    }

    /// How long what was just posted to the queue pair with this ordinal is kept back, if at all.
    #[cold]
    pub(crate) fn departure_delay_ns(&mut self, ordinal: u32) -> Option<u64> {
        self.late.as_mut().and_then(|late| late.departure(ordinal))
    }

    /// A program that is told of an event of a queue pair finds the completions that came before it.
    #[cold]
    pub(super) fn release_before_event(&mut self, qp: &QpContext) {
        self.release_late();
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
        self.release_late();
        for (_, entry) in self.cqs.iter() {
            entry.cq.release_held();
        }
    }

    /// A queue pair is destroyed.
    pub(super) fn forget_schedule_of(&mut self, ordinal: u32) {
        self.release_late();
        if let Some(late) = &mut self.late {
            late.stores.remove(&ordinal);
            late.posts.remove(&ordinal);
        }
    }

    /// Whose packet is handled from now on. `None`: nothing of it is put off.
    #[inline]
    pub(crate) fn handles_packet_of(&mut self, ordinal: Option<u32>) {
        if let Some(late) = &mut self.late {
            late.current = ordinal;
        }
    }

    /// A turn of the engine ends: from now on time passes for what it put off.
    #[inline]
    pub(crate) fn time_late(&mut self, now_ns: u64) {
        if let Some(late) = &mut self.late
            && !late.items.is_empty()
            && late.due_ns.is_none()
        {
            late.due_ns = Some(now_ns.saturating_add(late.delay_ns));
        }
    }

    /// Does what was put off, if its time has come.
    pub(crate) fn expire_late(&mut self, now_ns: u64) {
        if self.late.as_ref().and_then(|late| late.due_ns).is_some_and(|due_ns| due_ns <= now_ns) {
            self.release_late();
        }
        if self.puts_off {
            self.expire_put_off(now_ns);
        }
    }

    /// Does what was put off.
    #[inline]
    pub(crate) fn release_late(&mut self) {
        if self.has_late() {
            self.release_items();
        }
    }

    #[cold]
    fn release_items(&mut self) {
        let Some(late) = &mut self.late else { return };
        (late.bytes, late.due_ns) = (0, None);
        for item in std::mem::take(&mut late.items) {
            match item {
                Item::Store { target, data, .. } => {
                    // The key was right when the packet came. If it has gone since, so has the memory.
                    let _ = target.store(&self.memory, &data, MappingCheck::Asked);
                }
                Item::Completion { qp, made } => self.complete_now(&qp, made),
                Item::Pause => {}
            }
        }
    }

    /// Stores the payload of a packet now or later.
    ///
    /// # Errors
    /// The key, its domain, its right or the range is wrong, now.
    #[cold]
    pub(super) fn store_shuffled(
        &mut self,
        target: &Target<'_>,
        data: &[u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        if data.is_empty() {
            return target.store(&self.memory, data, check);
        }
        let ranges = target.ranges(&self.memory, data.len())?;
        if self.late.as_ref().is_some_and(|late| late.is_full() || late.meets(&ranges)) {
            self.release_late();
        }
        let memory = &self.memory;
        let Some(late) = &mut self.late else { return target.store(memory, data, check) };
        let sure = check == MappingCheck::Assumed && target.stays_mapped(memory);
        let cut = late.current.filter(|_| sure).and_then(|ordinal| late.cut(ordinal, data.len()));
        let Some(Cut { from, to, delay_ns }) = cut else { return target.store(memory, data, check) };
        let (Some(before), Some(part), Some(after)) = (data.get(..from), data.get(from..to), data.get(to..))
        else {
            return target.store(memory, data, check);
        };
        target.store_at(memory, to, after, check)?;
        target.store(memory, before, check)?;
        if late.items.is_empty() {
            late.delay_ns = delay_ns;
        }
        if part.is_empty() {
            late.items.push(Item::Pause);
        } else {
            late.bytes += part.len();
            late.items.push(Item::Store { target: target.advanced(from), ranges, data: part.to_vec() });
        }
        Ok(())
    }

    /// The device is about to read local buffers: what waits to be placed there is placed.
    #[cold]
    pub(super) fn place_before_gather(&mut self, pd: u32, sges: &[Sge], offset: u64, length: usize) {
        let Some(late) = &self.late else { return };
        let ranges = local_ranges(&self.memory, pd, sges, offset, length as u64, false);
        if ranges.is_ok_and(|ranges| late.meets(&ranges)) {
            self.release_late();
        }
    }

    /// Puts a completion behind what waits, if anything does; else gives it back. A failure waits for
    /// nothing.
    #[cold]
    pub(super) fn complete_late(&mut self, qp: &QpContext, made: Made) -> Option<Made> {
        if made.completion.status != WcStatus::Success
            || self.late.as_ref().is_some_and(|late| late.is_full())
        {
            self.release_late();
        }
        let Some(late) = self.late.as_mut().filter(|late| !late.items.is_empty()) else {
            return Some(made);
        };
        late.items.push(Item::Completion { qp: *qp, made });
        None
    }
}
