//! What an application does with XRC domains and targets, where other processes may have a part in it.

use pumice_ground::error::ResourceError;
use pumice_ground::table::Handle;
use pumice_objects::memory::MappingCheck;
use pumice_share::xrc::{Sharing, Unavailable};
use pumice_transport::qp::QueuePair;
use pumice_transport::wire::Qpn;

use super::drive::Engine;
use super::entries::Entries;

impl Engine {
    /// How a new queue pair is shared: not at all, unless it receives for a shared XRC domain.
    ///
    /// # Errors
    /// The domain is full, or its file cannot be written.
    pub(crate) fn share(&mut self, qp: &QueuePair) -> Result<Sharing, ResourceError> {
        self.targets.share(qp, &mut self.resources.host(MappingCheck::Assumed))
    }

    /// A queue pair is being destroyed: it is not shared any more.
    pub(crate) fn unshare(&mut self, qpn: Qpn) {
        let Engine { queue_pairs, resources, targets, .. } = self;
        if let Some((_, entry)) = queue_pairs.by_number(qpn) {
            targets.unshare(&mut entry.qp, &mut entry.sharing, &mut resources.host(MappingCheck::Assumed));
        }
    }

    /// Makes the queue pair of a target known here, if another process made it.
    pub(crate) fn meet_target(&mut self, qpn: Qpn) {
        let Engine { queue_pairs, budget, resources, targets, .. } = self;
        targets.find(qpn, &mut Entries { queue_pairs, budget }, &mut resources.host(MappingCheck::Assumed));
    }

    /// A registration of this process for a target was made, the first or another.
    ///
    /// # Errors
    /// The target cannot be had.
    pub(crate) fn register_process(&mut self, qpn: Qpn) -> Result<(), Unavailable> {
        let Engine { queue_pairs, budget, resources, port, targets, .. } = self;
        targets.register_process(
            qpn,
            &mut Entries { queue_pairs, budget },
            &mut resources.host(MappingCheck::Assumed),
            &mut **port,
        )
    }

    /// The last registration of this process for a target was closed: the target is destroyed, unless it is
    /// open in another process.
    pub(crate) fn unregister_process(&mut self, qpn: Qpn) {
        let Engine { queue_pairs, budget, resources, port, targets, .. } = self;
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
        let Engine { queue_pairs, budget, resources, targets, .. } = self;
        let domain = resources.xrc.domain_of(xrcd)?;
        resources.close_xrcd(xrcd)?;
        targets.domain_closed(
            domain,
            &mut Entries { queue_pairs, budget },
            &mut resources.host(MappingCheck::Assumed),
        );
        Ok(())
    }
}
