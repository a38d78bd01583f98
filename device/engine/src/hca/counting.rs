//! Completion counters of queue pairs.

use std::sync::Arc;

use crate::objects::completion_counter::CompletionCounter;
use pumice_platform::error::ResourceError;
use pumice_transport::types::QpState;
use pumice_transport::wire::Qpn;

use super::{Hca, HcaError};

impl Hca {
    /// Has operations of a queue pair (bits of
    /// [`CountedOperation::bit`](pumice_transport::host::CountedOperation::bit)) count in a counter until the
    /// queue pair is destroyed.
    ///
    /// # Errors
    /// `Invalid`: it is in another state than RESET and INIT, or a target of XRC. `Busy`: one of the
    /// operations counts in another counter. Unknown number.
    pub fn attach_counter(
        &self,
        qpn: Qpn,
        counter: Arc<CompletionCounter>,
        operations: u32,
    ) -> Result<(), HcaError> {
        let mut engine = self.core.lock();
        let (_, entry) = engine.queue_pairs.by_number(qpn).ok_or(HcaError::UnknownQueuePair { qpn })?;
        let state = entry.qp.state();
        if !matches!(state, QpState::Reset | QpState::Init) {
            return Err(ResourceError::invalid(format!(
                "queue pair {qpn} is in {state:?}: attach completion counters in RESET or INIT"
            ))
            .into());
        }
        engine.resources.attach_counter(qpn, counter, operations)?;
        Ok(())
    }
}
