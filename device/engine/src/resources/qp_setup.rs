//! The objects that a new queue pair is attached to, and their checks.

use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::types::{QpCapacity, QpType};
use pumice_transport::wire::Qpn;

use super::tables::{ObjectTables, check_size};

/// The objects and sizes of a queue pair (`ibv_create_qp_ex`).
#[derive(Debug, Clone, Copy)]
pub struct QpSetup {
    /// The number; its low 16 bits are not used by another queue pair.
    pub qpn: Qpn,
    /// The service type.
    pub qp_type: QpType,
    /// The application's value for the queue pair.
    pub cookie: u64,
    /// Protection domain; for all but XRC targets.
    pub pd: Option<Handle>,
    /// Completion queue of sends; for all but targets of XRC and DC.
    pub send_cq: Option<Handle>,
    /// Completion queue of receives; for RC, UC, UD.
    pub recv_cq: Option<Handle>,
    /// Shared receive queue, instead of a receive queue of its own.
    pub srq: Option<Handle>,
    /// XRC domain; for XRC targets and queue pairs of OFED 1.x.
    pub xrcd: Option<Handle>,
    /// The requested sizes.
    pub capacity: QpCapacity,
}

impl ObjectTables {
    /// Checks that the objects exist that the type needs; those that it does not use are left out.
    pub(super) fn check_setup(&self, setup: &QpSetup) -> Result<QpSetup, ResourceError> {
        let kind = setup.qp_type.name();
        let mut used = *setup;
        let target = setup.qp_type.is_target();
        if setup.qp_type.is_xrc() {
            if setup.srq.is_some() {
                return Err(ResourceError::invalid(format!("{kind} queue pairs have no SRQ of their own")));
            }
            used.recv_cq = None;
        } else if !setup.qp_type.has_receives() {
            (used.recv_cq, used.srq) = (None, None);
        } else if setup.recv_cq.is_none() {
            return Err(ResourceError::invalid(format!("{kind} queue pairs need a recv_cq")));
        }
        if target {
            used.pd = None;
            used.send_cq = None;
            let xrcd = setup.xrcd.ok_or_else(|| ResourceError::invalid("XRC targets need an XRC domain"))?;
            self.xrc.domain_of(xrcd)?;
        } else {
            used.xrcd = setup.xrcd.filter(|_| setup.qp_type.is_both_halves());
            if setup.qp_type.is_both_halves() {
                let missing = || ResourceError::invalid(format!("{kind} queue pairs need an XRC domain"));
                let xrcd = used.xrcd.ok_or_else(missing)?;
                self.xrc.domain_of(xrcd)?;
            }
            let pd =
                setup.pd.ok_or_else(|| ResourceError::invalid(format!("{kind} queue pairs need a PD")))?;
            self.pds.require(pd)?;
            if !setup.qp_type.has_send_queue() {
                used.send_cq = None;
                if setup.srq.is_none() {
                    return Err(ResourceError::invalid(format!("{kind} queue pairs need an SRQ")));
                }
            } else if setup.send_cq.is_none() {
                return Err(ResourceError::invalid(format!("{kind} queue pairs need a send_cq")));
            }
        }
        for cq in used.send_cq.into_iter().chain(used.recv_cq) {
            self.cqs.require(cq)?;
        }
        if let Some(srq) = used.srq
            && self.srq(srq)?.xrc().is_some()
        {
            return Err(ResourceError::invalid(format!("{kind} queue pairs cannot use an XRC SRQ")));
        }
        if self.matches_tags(used.srq) {
            used.capacity = self.check_tag_capacity(used.qp_type, used.capacity)?;
            used.send_cq = None;
        }
        Ok(used)
    }

    /// Returns the granted sizes: the requested ones, which must be within their limits.
    pub(super) fn check_capacity(&self, setup: &QpSetup) -> Result<QpCapacity, ResourceError> {
        let limits = &self.limits;
        let mut capacity = setup.capacity;
        if setup.send_cq.is_none() && !self.matches_tags(setup.srq) {
            (capacity.max_send_wr, capacity.max_send_sge, capacity.max_inline_data) = (0, 0, 0);
        }
        if setup.recv_cq.is_none() || setup.srq.is_some() {
            //= man:ibv_create_qp
            //| The receive sizes do not count for a queue pair with a shared receive queue.
            (capacity.max_recv_wr, capacity.max_recv_sge) = (0, 0);
        }
        //= linux:rxe_qp.c#rxe_qp_chk_cap
        //| The sizes of a queue pair are within the limits of the device.
        check_size("max_send_wr", capacity.max_send_wr, 0, limits.max_qp_wr)?;
        check_size("max_recv_wr", capacity.max_recv_wr, 0, limits.max_qp_wr)?;
        check_size("max_send_sge", capacity.max_send_sge, 0, limits.max_sge)?;
        check_size("max_recv_sge", capacity.max_recv_sge, 0, limits.max_sge)?;
        check_size("max_inline_data", capacity.max_inline_data, 0, limits.max_inline_data)?;
        Ok(capacity)
    }
}
