//! The Ethernet side of raw packet queue pairs.

use crate::ethernet::Ethernet;
use pumice_memory::MappingCheck;
use pumice_platform::error::ResourceError;
use pumice_transport::host::{FrameData, FrameError, QpContext};
use pumice_transport::types::QpType;
use pumice_transport::wire::Qpn;

use super::tables::Resources;

impl Resources {
    /// Sends a frame of a raw packet queue pair.
    ///
    /// # Errors
    /// The length is not that of a frame on this interface, or the buffers cannot be read.
    #[cold]
    pub(super) fn send_frame_of(
        &mut self,
        qp: &QpContext,
        data: FrameData<'_>,
        length_bytes: u32,
        check: MappingCheck,
    ) -> Result<(), FrameError> {
        if let FrameData::Buffers(sges) = data
            && self.has_any_stores()
        {
            self.drain_before_gather(qp.pd, sges, 0, length_bytes as usize);
        }
        let Resources { ethernet, objects, .. } = self;
        let Some(ethernet) = ethernet else { return Ok(()) };
        let room = ethernet.begin(length_bytes as usize).ok_or(FrameError::Length)?;
        match data {
            FrameData::Inline(bytes) if bytes.len() == room.len() => room.copy_from_slice(bytes),
            FrameData::Inline(_) => return Err(FrameError::Length),
            FrameData::Buffers(sges) => {
                objects.memory.gather(qp.pd, sges, 0, room, check).map_err(FrameError::Memory)?;
            }
        }
        if ethernet.send(qp.qpn) { Ok(()) } else { Err(FrameError::Length) }
    }

    /// Checks that a raw packet queue pair can be destroyed.
    ///
    /// # Errors
    /// `Busy`: flow rules name it.
    pub(super) fn check_no_rules(&self, qpn: Qpn) -> Result<(), ResourceError> {
        match self.ethernet.as_ref().map_or(0, |ethernet| ethernet.rules_of(qpn)) {
            0 => Ok(()),
            count => Err(ResourceError::busy(format!(
                "queue pair {qpn} has {count} flow rules; destroy them first"
            ))),
        }
    }

    /// Sets the port at which the frames of a raw packet queue pair leave and arrive. Other queue pairs have
    /// none.
    pub(crate) fn put_frames_at(&mut self, qpn: Qpn, qp_type: QpType, port_num: u8) {
        if let (true, Some(ethernet)) = (qp_type.is_raw(), &mut self.ethernet) {
            ethernet.put(qpn, port_num);
        }
    }

    /// Removes a queue pair. With the last raw packet queue pair the sockets on the interfaces are closed.
    pub(crate) fn leave_ethernet(&mut self, qpn: Qpn) {
        if self.ethernet.as_mut().is_some_and(|ethernet| ethernet.forget(qpn)) {
            self.ethernet = None;
        }
    }

    /// Returns the sockets on the interfaces, for a call about flow rules.
    ///
    /// # Errors
    /// `Invalid`: there is no raw packet queue pair.
    pub(crate) fn require_ethernet(&mut self) -> Result<&mut Ethernet, ResourceError> {
        let missing = || ResourceError::invalid("the process has no raw packet queue pair, and no flow rule");
        self.ethernet.as_deref_mut().ok_or_else(missing)
    }
}
