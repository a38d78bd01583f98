//! The use of the store buffer by stores and completions, and the times at which it is drained.

use pumice_memory::MappingCheck;
use pumice_transport::host::{MemoryError, QpContext, RemoteKey};
use pumice_transport::types::{Access, Sge, StoreEvidence, WcStatus};

use super::tables::Resources;
use crate::decisions::{
    BufferedPart, DeferredStore, Item, MemoryRange, PendingCompletion, StoreBuffer, StoreSource, Target,
    local_ranges,
};

impl Resources {
    /// Reports whether stores are buffered. Then no response leaves.
    #[inline]
    pub(crate) fn has_buffered(&self) -> bool {
        self.decisions.has_stores()
    }

    /// Reports whether stores are buffered or deferred.
    #[inline]
    pub(crate) fn has_any_stores(&self) -> bool {
        self.decisions.has_any_stores()
    }

    /// Returns when the next delayed completion, event or store is due, in ns.
    #[inline]
    pub(crate) fn waits_due_ns(&self) -> Option<u64> {
        self.decisions.due_ns()
    }

    /// Reports whether a seed decides what is delayed.
    #[inline]
    pub(crate) const fn is_shuffled(&self) -> bool {
        self.decisions.is_shuffled()
    }

    /// Returns how long what was just posted to the queue pair with this ordinal is delayed, in ns, if at
    /// all.
    #[cold]
    pub(crate) fn departure_delay_ns(&mut self, ordinal: u32) -> Option<u64> {
        self.decisions.stores.as_mut().and_then(|stores| stores.departure(ordinal))
    }

    /// Makes the completions that precede an event of a queue pair, so that a program that gets the event
    /// finds them.
    #[cold]
    pub(super) fn release_before_event(&mut self, qp: &QpContext) {
        self.drain_stores();
        for cq in [qp.send_cq, qp.recv_cq] {
            if let Some(entry) = self.objects.cqs.at(cq) {
                entry.cq.release_held();
            }
        }
    }

    /// Makes all delayed completions before an event of a connection, so that a program that gets the event
    /// finds them: when its peer disconnects, the peer's last message is there.
    #[inline]
    pub(crate) fn release_before_messages(&mut self) {
        if self.is_shuffled() {
            self.release_all();
        }
    }

    #[cold]
    fn release_all(&mut self) {
        self.drain_stores();
        for (_, entry) in self.objects.cqs.iter() {
            entry.cq.release_held();
        }
    }

    /// Sets the queue pair whose packet is handled from now on. `None`: none of its stores are buffered.
    #[inline]
    pub(crate) fn handles_packet_of(&mut self, qp: Option<&QpContext>) {
        if let Some(stores) = &mut self.decisions.stores {
            stores.current = qp.copied();
        }
    }

    /// Ends a turn of the engine: sets the due times of what was buffered in it.
    #[inline]
    pub(crate) fn time_stores(&mut self, now_ns: u64) {
        if let Some(stores) = &mut self.decisions.stores {
            stores.time(now_ns);
        }
    }

    /// Carries out the buffered stores and delayed completions that are due.
    pub(crate) fn expire_waits(&mut self, now_ns: u64) {
        let due_ns = self.decisions.stores.as_ref().and_then(|stores| stores.due_ns);
        if due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            self.listeners.batch_time.end();
            self.drain_items();
        }
        if self.decisions.has_deferred_stores() {
            self.do_deferred(|stores| stores.deferred.take_due(now_ns));
        }
        if self.decisions.delays() {
            self.expire_delayed(now_ns);
        }
    }

    /// Carries out all buffered stores, and makes the completions behind them.
    #[inline]
    pub(crate) fn drain_stores(&mut self) {
        if self.has_any_stores() {
            self.drain_all();
        }
    }

    #[cold]
    fn drain_all(&mut self) {
        self.do_deferred(|stores| stores.deferred.take());
        self.drain_items();
    }

    /// Carries out the stores that `take` takes out of those that completions overtake.
    #[cold]
    fn do_deferred(&mut self, take: impl FnOnce(&mut StoreBuffer) -> Vec<DeferredStore>) {
        let Some(stores) = &mut self.decisions.stores else { return };
        for DeferredStore { target, data, .. } in take(stores) {
            // An error is ignored: memory that has been unmapped has taken its data with it.
            let _ = target.store(&self.objects.memory, &data, MappingCheck::ByKernel);
        }
    }

    /// Records that acknowledgements leave: senders may learn now that their WRITEs have completed.
    #[inline]
    pub(crate) fn acknowledges(&mut self) {
        if self.decisions.has_deferred_stores() {
            self.acknowledge_late();
        }
    }

    #[cold]
    fn acknowledge_late(&mut self) {
        if let Some(stores) = &mut self.decisions.stores {
            stores.deferred.acknowledge();
        }
    }

    /// Stores the data that a completion of a queue pair, which is about to be made, reports.
    #[cold]
    pub(super) fn store_before_completion(&mut self, qp: &QpContext, made: &PendingCompletion) {
        let qpn = qp.qpn;
        if made.completion.status != WcStatus::Success {
            self.do_deferred(|stores| stores.deferred.take_for_qp(qpn));
        } else if made.completion.opcode.is_recv() {
            self.do_deferred(|stores| {
                stores.deferred.take_shown(StoreEvidence::ReceiveCompletion, qpn, None)
            });
        }
    }

    /// Stores the data that a READ, an atomic or a FLUSH of a peer, which is about to be executed, needs or
    /// shows.
    #[cold]
    pub(super) fn store_before_answer(&mut self, key: RemoteKey, address: u64, length: u64) {
        self.drain_items();
        self.do_deferred(|stores| stores.deferred.take_shown(StoreEvidence::Answer, key.qpn, None));
        let mut ranges = Vec::new();
        let visit = |start, length| ranges.push(MemoryRange::new(start, length));
        // The access itself refuses what the peer may not name.
        let _ = self.objects.memory.for_each_remote_range(key, (address, length), Access::empty(), visit);
        self.do_deferred(|stores| stores.deferred.take_shown(StoreEvidence::Use, key.qpn, Some(&ranges)));
    }

    /// Decides which of the posted receives a message of a queue pair takes that places data out of order.
    #[cold]
    pub(super) fn receive_to_take(&mut self, qp: &QpContext, posted: u32) -> u32 {
        self.decisions.stores.as_mut().map_or(0, |stores| stores.receive_to_take(qp.ordinal, posted))
    }

    #[cold]
    fn drain_items(&mut self) {
        let Some(stores) = &mut self.decisions.stores else { return };
        for item in stores.take() {
            match item {
                Item::Store { target, data, .. } => {
                    // The key was valid when the packet came. If it has been removed since, so has the
                    // memory.
                    let _ = target.store(&self.objects.memory, &data, MappingCheck::ByKernel);
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
            return target.store(&self.objects.memory, data, check);
        }
        let ranges = target.ranges(&self.objects.memory, data.len())?;
        let source = self.source_of(target);
        self.store_before_store(source, &ranges);
        let memory = &self.objects.memory;
        let Some(stores) = &mut self.decisions.stores else { return target.store(memory, data, check) };
        let sure = check == MappingCheck::Assumed && target.stays_mapped(memory);
        let cut = source.filter(|_| sure).and_then(|source| Some((source, stores.cut(source, data.len())?)));
        let Some((source, BufferedPart { from, to, delay_ns, deferred })) = cut else {
            return target.store(memory, data, check);
        };
        let (Some(before), Some(part), Some(after)) = (data.get(..from), data.get(from..to), data.get(to..))
        else {
            return target.store(memory, data, check);
        };
        target.store_at(memory, to, after, check)?;
        target.store(memory, before, check)?;
        let target = target.advanced(from);
        if deferred {
            let (qpn, order, data) = (source.qpn, source.order, part.to_vec());
            stores.deferred.push(DeferredStore { qpn, order, target, ranges, data, delay_ns });
        } else {
            stores.push(source, target, ranges, (part, delay_ns));
        }
        Ok(())
    }

    /// Returns the origin of payload that comes now; `None` if nothing of it is buffered.
    fn source_of(&self, target: &Target<'_>) -> Option<StoreSource> {
        let stores = self.decisions.stores.as_ref()?;
        let QpContext { qpn, ordinal, out_of_order, .. } = stores.current?;
        let (is_write, relaxed) = match target {
            Target::Remote { key, .. } => (true, self.objects.memory.has_relaxed_order(key.rkey)),
            Target::Local { sges, .. } => {
                (false, sges.iter().any(|sge| self.objects.memory.has_relaxed_order(sge.lkey)))
            }
        };
        Some(StoreSource { qpn, ordinal, is_write, order: stores.order_of(out_of_order, relaxed) })
    }

    /// Carries out the buffered stores that a store to these bytes must not pass.
    fn store_before_store(&mut self, source: Option<StoreSource>, ranges: &[MemoryRange]) {
        let Some(stores) = &self.decisions.stores else { return };
        if stores.is_full() || stores.blocks(source, ranges) {
            self.drain_items();
        }
        if !self.decisions.has_deferred_stores() {
            return;
        }
        match source.filter(|source| source.is_write) {
            Some(StoreSource { qpn, .. }) => {
                self.do_deferred(|stores| {
                    stores.deferred.take_shown(StoreEvidence::Replacement, qpn, Some(ranges))
                });
            }
            None => self.do_deferred(|stores| stores.deferred.take_overlapping(ranges)),
        }
    }

    /// Carries out the buffered stores to local buffers that the device is about to read.
    #[cold]
    pub(super) fn drain_before_gather(&mut self, pd: u32, sges: &[Sge], offset: u64, length: usize) {
        let Some(stores) = &self.decisions.stores else { return };
        let ranges = local_ranges(&self.objects.memory, pd, sges, offset, length as u64, false);
        let Ok(ranges) = ranges else { return };
        if stores.overlaps(&ranges) {
            self.drain_stores();
        } else if self.decisions.has_deferred_stores() {
            self.do_deferred(|stores| stores.deferred.take_overlapping(&ranges));
        }
    }

    /// Puts a completion behind the buffered stores, if there are any; else returns it. A failure waits for
    /// nothing.
    #[cold]
    pub(super) fn complete_buffered(
        &mut self,
        qp: &QpContext,
        made: PendingCompletion,
    ) -> Option<PendingCompletion> {
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
