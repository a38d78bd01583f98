//! Queue pairs that send and receive datagrams.

use pumice_calls::Call;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{Gid, QpState};

use super::{MODIFY, QueuePair};
use crate::device::calls::CallContext;
use crate::error::{Result, VerbsError};
use crate::objects::address::UdEndpoint;
use crate::transport::Ud;

impl QueuePair<Ud> {
    /// Makes the queue pair receive datagrams with this Q_Key, and send.
    ///
    /// # Errors
    /// `Refused`: it is active already ([`QueuePair::reset`] it).
    pub fn activate(&self, qkey: u32) -> Result<()> {
        self.call(MODIFY, || self.make_active(qkey))
    }

    fn make_active(&self, qkey: u32) -> Result<()> {
        if self.current_state()? == QpState::Reset {
            self.initialise()?;
        }
        let mut attributes = QpAttributes {
            qp_state: QpState::Rtr as u32,
            qkey,
            sq_psn: self.local().psn,
            ..QpAttributes::default()
        };
        self.change(&attributes, AttributeMask::STATE | AttributeMask::QKEY)?;
        attributes.qp_state = QpState::Rts as u32;
        self.change(&attributes, AttributeMask::STATE | AttributeMask::SQ_PSN)
    }

    /// Returns the data that others need to send to this queue pair, once it is active.
    ///
    /// # Errors
    /// The errors of [`QueuePair::state`].
    pub fn endpoint(&self) -> Result<UdEndpoint> {
        Ok(UdEndpoint { gid: self.local().gid, qpn: self.qpn(), qkey: self.query()?.qkey })
    }

    /// Also receives datagrams to a multicast group (224.0.0.0/4 or ff00::/8).
    ///
    /// # Errors
    /// `Refused`: not a multicast address, too many members, or the network refuses.
    pub fn attach_multicast(&self, group: Gid) -> Result<()> {
        let inner = self.inner();
        self.call(CallContext::new(Call::ibv_attach_mcast), || {
            inner.hca.attach_mcast(inner.qpn, group).map_err(VerbsError::refused("multicast group"))
        })?;
        inner.groups().push(group);
        Ok(())
    }

    /// Leaves a multicast group. Dropping the queue pair does so too.
    ///
    /// # Errors
    /// `Refused`: not attached.
    pub fn detach_multicast(&self, group: Gid) -> Result<()> {
        let inner = self.inner();
        self.call(CallContext::new(Call::ibv_detach_mcast), || {
            inner.hca.detach_mcast(inner.qpn, group).map_err(VerbsError::refused("multicast group"))
        })?;
        let mut groups = inner.groups();
        if let Some(index) = groups.iter().position(|known| *known == group) {
            groups.swap_remove(index);
        }
        Ok(())
    }
}
