//! XRC targets that another process, or another part of the program, created.

use pumice_calls::Call;
use pumice_device::hca::TargetRegistration;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::wire::Qpn;

use crate::device::calls::gated_call;
use crate::error::{Result, VerbsError};
use crate::objects::domain::XrcDomain;

/// A reference to an XRC target that exists (`ibv_open_qp`, `ibv_reg_xrc_rcv_qp`): the target lives at least
/// as long, and its asynchronous events are delivered here as well. Another process may have created it.
#[derive(Debug)]
pub struct OpenedTarget {
    registration: TargetRegistration,
    domain: XrcDomain,
}

impl XrcDomain {
    /// Opens a target of this domain by its number; `cookie` names it in asynchronous events.
    ///
    /// # Errors
    /// `Refused`: there is no such target in this domain.
    pub fn open_target(&self, qpn: Qpn, cookie: u64) -> Result<OpenedTarget> {
        let registration = gated_call(self.device(), Call::ibv_open_qp, || {
            let opened = self.device().hca().open_target(self.handle(), qpn, cookie);
            opened.map_err(VerbsError::refused("XRC target"))
        })?;
        Ok(OpenedTarget { registration, domain: self.clone() })
    }

    /// Returns all present attributes of a target of this domain (`ibv_query_xrc_rcv_qp`).
    ///
    /// # Errors
    /// `Refused`: there is no such target in this domain.
    pub fn query_target(&self, qpn: Qpn) -> Result<QpAttributes> {
        gated_call(self.device(), Call::ibv_query_xrc_rcv_qp, || {
            self.device().hca().query_target(self.handle(), qpn).map_err(VerbsError::refused("XRC target"))
        })
    }

    /// Changes state and attributes of a target of this domain (`ibv_modify_xrc_rcv_qp`).
    ///
    /// # Errors
    /// `Refused`: there is no such target in this domain, or an attribute, which the error names, is missing,
    /// not allowed or wrong.
    pub fn modify_target(&self, qpn: Qpn, attributes: &QpAttributes, mask: AttributeMask) -> Result<()> {
        gated_call(self.device(), Call::ibv_modify_xrc_rcv_qp, || {
            let changed = self.device().hca().modify_target(self.handle(), qpn, attributes, mask);
            changed.map_err(VerbsError::refused("XRC target"))
        })
    }
}

impl OpenedTarget {
    /// Returns its number.
    pub fn qpn(&self) -> Qpn {
        self.registration.qpn
    }

    /// Returns all present attributes.
    ///
    /// # Errors
    /// The errors of [`XrcDomain::query_target`].
    pub fn query(&self) -> Result<QpAttributes> {
        self.domain.query_target(self.qpn())
    }

    /// Changes state and attributes.
    ///
    /// # Errors
    /// The errors of [`XrcDomain::modify_target`].
    pub fn modify(&self, attributes: &QpAttributes, mask: AttributeMask) -> Result<()> {
        self.domain.modify_target(self.qpn(), attributes, mask)
    }
}

impl Drop for OpenedTarget {
    fn drop(&mut self) {
        // It was opened, so it can be closed.
        let _ = self.domain.device().hca().close_target(self.registration);
    }
}
