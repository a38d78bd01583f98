//! Completion counters of queue pairs.

use std::sync::Arc;

use crate::objects::completion_counter::CompletionCounter;
use pumice_platform::error::ResourceError;
use pumice_transport::host::{CountedOperation, QpContext};
use pumice_transport::wire::Qpn;

use super::tables::{AttachedCounter, Resources};

impl Resources {
    /// Has operations of a queue pair (bits of [`CountedOperation::bit`]) count in a counter until the queue
    /// pair is destroyed.
    ///
    /// # Errors
    /// `Invalid`: it is not attached. `Busy`: one of them counts in another counter.
    pub(crate) fn attach_counter(
        &mut self,
        qpn: Qpn,
        counter: Arc<CompletionCounter>,
        operations: u32,
    ) -> Result<(), ResourceError> {
        let Some(attachment) = self.objects.attachment_mut(qpn) else {
            return Err(ResourceError::invalid(format!("queue pair {qpn} does not exist")));
        };
        if attachment.counters.iter().any(|attached| attached.operations & operations != 0) {
            return Err(ResourceError::busy(format!(
                "one of these operations of queue pair {qpn} counts in a completion counter already: each \
                 operation has one counter, until the queue pair is destroyed"
            )));
        }
        attachment.counters.push(AttachedCounter { counter, operations });
        self.completions.counts_completions = true;
        Ok(())
    }

    /// A request of a queue pair ended, or what its peer did in memory.
    #[cold]
    pub(super) fn count_ended(&mut self, qp: &QpContext, operation: CountedOperation, succeeded: bool) {
        // Who reads the number finds the data.
        self.drain_stores();
        let Some(attachment) = self.objects.attachment(qp.qpn) else { return };
        let counts = |attached: &&AttachedCounter| attached.operations & operation.bit() != 0;
        attachment.counters.iter().filter(counts).for_each(|attached| attached.counter.count(succeeded));
    }
}
