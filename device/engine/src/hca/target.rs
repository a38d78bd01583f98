//! XRC targets that several have open (`ibv_open_qp`, `ibv_reg_xrc_rcv_qp`).

use pumice_ground::table::Handle;
use pumice_share::xrc::CREATOR;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::wire::Qpn;

use super::{Hca, HcaError};

/// Names a hold on an XRC target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetRegistration {
    /// The target.
    pub qpn: Qpn,
    id: u32,
}

impl TargetRegistration {
    /// The hold of the one who made the target with [`Hca::create_qp`].
    pub const fn of_creator(qpn: Qpn) -> TargetRegistration {
        TargetRegistration { qpn, id: CREATOR }
    }
}

impl Hca {
    /// Opens an XRC target that exists: it lives at least until [`Hca::close_target`], and its asynchronous
    /// events come with `cookie` as well.
    ///
    /// # Errors
    /// Invalid: there is no such target in this XRC domain.
    pub fn open_target(&self, xrcd: Handle, qpn: Qpn, cookie: u64) -> Result<TargetRegistration, HcaError> {
        let mut engine = self.core.lock();
        engine.meet_target(qpn);
        let id = engine.resources.register_target(xrcd, qpn, cookie)?.id;
        if let Err(why) = engine.register_process(qpn) {
            let closed = engine.resources.unregister_target(qpn, id)?;
            if closed.last {
                engine.unregister_process(qpn);
            }
            return Err(why.error(qpn).into());
        }
        Ok(TargetRegistration { qpn, id })
    }

    /// Closes an XRC target; the last one of all who have it open destroys it. Blocks until the
    /// registration's asynchronous events are acknowledged.
    ///
    /// # Errors
    /// Invalid: it was closed before.
    pub fn close_target(&self, registration: TargetRegistration) -> Result<(), HcaError> {
        let account = {
            let mut engine = self.core.lock_own()?;
            let closed = engine.resources.unregister_target(registration.qpn, registration.id)?;
            if closed.last {
                engine.unregister_process(registration.qpn);
            }
            closed.account
        };
        account.wait_all_acked();
        Ok(())
    }

    /// Changes state and attributes of an XRC target that need not be open here: its number and domain do.
    ///
    /// # Errors
    /// As [`Hca::modify_qp`]; there is no such target in this XRC domain.
    pub fn modify_target(
        &self,
        xrcd: Handle,
        qpn: Qpn,
        attributes: &QpAttributes,
        mask: AttributeMask,
    ) -> Result<(), HcaError> {
        self.meet(xrcd, qpn)?;
        self.modify_qp(qpn, attributes, mask)
    }

    /// All attributes of an XRC target, as [`Hca::modify_target`].
    ///
    /// # Errors
    /// There is no such target in this XRC domain.
    pub fn query_target(&self, xrcd: Handle, qpn: Qpn) -> Result<QpAttributes, HcaError> {
        self.meet(xrcd, qpn)?;
        self.query_qp(qpn)
    }

    fn meet(&self, xrcd: Handle, qpn: Qpn) -> Result<(), HcaError> {
        let mut engine = self.core.lock();
        engine.meet_target(qpn);
        Ok(engine.resources.check_target(xrcd, qpn)?)
    }
}
