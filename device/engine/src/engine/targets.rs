//! The application's operations on XRC domains and targets that other processes may share.

use pumice_fabric::xrc::{TargetSharing, Unavailable};
use pumice_memory::MappingCheck;
use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::qp::QueuePair;
use pumice_transport::wire::Qpn;

use super::drive::Engine;
use super::queue_pairs::Entries;
use super::transmission::Transmission;

impl Engine {
    /// Returns how a new queue pair is shared: not at all, unless it receives for a shared XRC domain.
    ///
    /// # Errors
    /// The domain is full, or its file cannot be written.
    pub(crate) fn share(&mut self, qp: &QueuePair) -> Result<TargetSharing, ResourceError> {
        self.targets.share(qp, &mut self.resources.host(MappingCheck::Assumed))
    }

    /// Ends the sharing of a queue pair that is being destroyed.
    pub(crate) fn end_sharing(&mut self, qpn: Qpn) {
        let Engine { queue_pairs, resources, targets, .. } = self;
        if let Some((_, entry)) = queue_pairs.by_number(qpn) {
            targets.end_sharing(
                &mut entry.qp,
                &mut entry.sharing,
                &mut resources.host(MappingCheck::Assumed),
            );
        }
    }

    /// Makes the queue pair of a target known here, if another process created it.
    pub(crate) fn adopt_target(&mut self, qpn: Qpn) {
        let Engine { queue_pairs, transmission: Transmission { budget, .. }, resources, targets, .. } = self;
        targets.find(qpn, &mut Entries { queue_pairs, budget }, &mut resources.host(MappingCheck::Assumed));
    }

    /// Records a registration of this process for a target, the first or another.
    ///
    /// # Errors
    /// The target is not available.
    pub(crate) fn register_process(&mut self, qpn: Qpn) -> Result<(), Unavailable> {
        let Engine {
            queue_pairs, transmission: Transmission { budget, .. }, resources, port, targets, ..
        } = self;
        targets.register_process(
            qpn,
            &mut Entries { queue_pairs, budget },
            &mut resources.host(MappingCheck::Assumed),
            &mut **port,
        )
    }

    /// Records that the last registration of this process for a target was closed: the target is destroyed,
    /// unless it is open in another process.
    pub(crate) fn unregister_process(&mut self, qpn: Qpn) {
        let Engine {
            queue_pairs, transmission: Transmission { budget, .. }, resources, port, targets, ..
        } = self;
        targets.unregister_process(
            qpn,
            &mut Entries { queue_pairs, budget },
            &mut resources.host(MappingCheck::Assumed),
            &mut **port,
        );
    }

    /// Closes an XRC domain.
    ///
    /// # Errors
    /// As [`Resources::close_xrcd`](crate::resources::Resources::close_xrcd).
    pub(crate) fn close_xrcd(&mut self, xrcd: Handle) -> Result<(), ResourceError> {
        let Engine { queue_pairs, transmission: Transmission { budget, .. }, resources, targets, .. } = self;
        let domain = resources.objects.xrc.domain_of(xrcd)?;
        resources.close_xrcd(xrcd)?;
        targets.domain_closed(
            domain,
            &mut Entries { queue_pairs, budget },
            &mut resources.host(MappingCheck::Assumed),
        );
        Ok(())
    }
}
