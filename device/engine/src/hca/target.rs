//! XRC targets that several owners have open (`ibv_open_qp`, `ibv_reg_xrc_rcv_qp`).

use pumice_fabric::xrc::CREATOR;
use pumice_platform::table::Handle;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::wire::Qpn;

use super::{Hca, HcaError};

/// A registration for an XRC target, which keeps the target open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetRegistration {
    /// The target.
    pub qpn: Qpn,
    id: u32,
}

impl TargetRegistration {
    /// Returns the registration of the one who created the target with [`Hca::create_qp`].
    pub const fn of_creator(qpn: Qpn) -> TargetRegistration {
        TargetRegistration { qpn, id: CREATOR }
    }
}

impl Hca {
    /// Opens an XRC target that exists: it lives at least until [`Hca::close_target`], and its asynchronous
    /// events come with `cookie` as well.
    ///
    /// # Errors
    /// Invalid: no such target exists in this XRC domain.
    pub fn open_target(&self, xrcd: Handle, qpn: Qpn, cookie: u64) -> Result<TargetRegistration, HcaError> {
        let mut engine = self.core.lock();
        engine.target_operations().adopt(qpn);
        let id = engine.resources.register_target(xrcd, qpn, cookie)?.id;
        if let Err(why) = engine.target_operations().register_process(qpn) {
            let closed = engine.resources.unregister_target(qpn, id)?;
            if closed.last {
                engine.target_operations().unregister_process(qpn);
            }
            return Err(why.error(qpn).into());
        }
        Ok(TargetRegistration { qpn, id })
    }

    /// Closes an XRC target; the last one of all who have it open destroys it. Blocks until the
    /// registration's asynchronous events are acknowledged.
    ///
    /// # Errors
    /// Invalid: the registration was closed before.
    pub fn close_target(&self, registration: TargetRegistration) -> Result<(), HcaError> {
        let account = {
            let mut engine = self.core.lock_own()?;
            let closed = engine.resources.unregister_target(registration.qpn, registration.id)?;
            if closed.last {
                engine.target_operations().unregister_process(registration.qpn);
            }
            closed.account
        };
        account.wait_all_acked();
        Ok(())
    }

    /// Changes state and attributes of an XRC target by its number and domain; it need not be open here.
    ///
    /// # Errors
    /// As [`Hca::modify_qp`]; no such target exists in this XRC domain.
    pub fn modify_target(
        &self,
        xrcd: Handle,
        qpn: Qpn,
        attributes: &QpAttributes,
        mask: AttributeMask,
    ) -> Result<(), HcaError> {
        self.adopt(xrcd, qpn)?;
        self.modify_qp(qpn, attributes, mask)
    }

    /// Returns all attributes of an XRC target, which is named as in [`Hca::modify_target`].
    ///
    /// # Errors
    /// No such target exists in this XRC domain.
    pub fn query_target(&self, xrcd: Handle, qpn: Qpn) -> Result<QpAttributes, HcaError> {
        self.adopt(xrcd, qpn)?;
        self.query_qp(qpn)
    }

    fn adopt(&self, xrcd: Handle, qpn: Qpn) -> Result<(), HcaError> {
        let mut engine = self.core.lock();
        engine.target_operations().adopt(qpn);
        Ok(engine.resources.check_target(xrcd, qpn)?)
    }
}
