//! The application's operations on XRC domains and targets that other processes may share.

use pumice_fabric::xrc::{SharedTargets, TargetSharing, Unavailable};
use pumice_memory::MappingCheck;
use pumice_model::port::Port;
use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::qp::QueuePair;
use pumice_transport::wire::Qpn;

use super::queue_pairs::Entries;
use crate::resources::Resources;

/// The parts of an engine that the application's operations on targets need.
pub(crate) struct TargetOperations<'a> {
    pub(super) entries: Entries<'a>,
    pub(super) resources: &'a mut Resources,
    pub(super) port: &'a mut dyn Port,
    pub(super) targets: &'a mut SharedTargets,
}

impl TargetOperations<'_> {
    /// Returns how a new queue pair is shared: not at all, unless it receives for a shared XRC domain.
    ///
    /// # Errors
    /// The domain is full, or its file cannot be written.
    pub(crate) fn share(self, qp: &QueuePair) -> Result<TargetSharing, ResourceError> {
        self.targets.share(qp, &mut self.resources.host(MappingCheck::Assumed))
    }

    /// Ends the sharing of a queue pair that is being destroyed.
    pub(crate) fn end_sharing(self, qpn: Qpn) {
        if let Some((_, entry)) = self.entries.queue_pairs.by_number(qpn) {
            let host = &mut self.resources.host(MappingCheck::Assumed);
            self.targets.end_sharing(&mut entry.qp, &mut entry.sharing, host);
        }
    }

    /// Makes the queue pair of a target known here, if another process created it.
    pub(crate) fn adopt(mut self, qpn: Qpn) {
        let host = &mut self.resources.host(MappingCheck::Assumed);
        self.targets.find(qpn, &mut self.entries, host);
    }

    /// Records a registration of this process for a target, the first or another.
    ///
    /// # Errors
    /// The target is not available.
    pub(crate) fn register_process(mut self, qpn: Qpn) -> Result<(), Unavailable> {
        let host = &mut self.resources.host(MappingCheck::Assumed);
        self.targets.register_process(qpn, &mut self.entries, host, self.port)
    }

    /// Records that the last registration of this process for a target was closed: the target is destroyed,
    /// unless it is open in another process.
    pub(crate) fn unregister_process(mut self, qpn: Qpn) {
        let host = &mut self.resources.host(MappingCheck::Assumed);
        self.targets.unregister_process(qpn, &mut self.entries, host, self.port);
    }

    /// Closes an XRC domain.
    ///
    /// # Errors
    /// As [`Resources::close_xrcd`].
    pub(crate) fn close_xrcd(mut self, xrcd: Handle) -> Result<(), ResourceError> {
        let domain = self.resources.objects.xrc.domain_of(xrcd)?;
        self.resources.close_xrcd(xrcd)?;
        let host = &mut self.resources.host(MappingCheck::Assumed);
        self.targets.domain_closed(domain, &mut self.entries, host);
        Ok(())
    }
}
