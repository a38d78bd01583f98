//! A device whose memory takes and gives bytes without looking at them: what is measured is the protocol.

use pumice_transport::event::QpEvent;
use pumice_transport::host::{Host, MemoryError, NoRecv, QpContext, RecvWqe, RemoteKey};
use pumice_transport::types::{
    Access, AsyncEventType, AtomicOperation, Sge, WcStatus, WindowBind, WorkCompletion,
};
use pumice_transport::wire::Qpn;

/// The device of one end of a flow.
#[derive(Default)]
pub(crate) struct Device {
    /// Bytes that the peer has written: each once, for a packet that comes again is not written again.
    pub(crate) written_bytes: u64,
    /// Requests that ended with success.
    pub(crate) completed: u64,
    /// Requests that ended with an error.
    pub(crate) failed: u64,
}

impl Host for Device {
    fn gather(&mut self, _: u32, _: &[Sge], _: u64, _: &mut [u8]) -> Result<(), MemoryError> {
        Ok(())
    }
    fn scatter(&mut self, _: u32, _: &[Sge], _: u64, _: &[u8]) -> Result<(), MemoryError> {
        Ok(())
    }
    fn check_remote(&mut self, _: RemoteKey, _: u64, _: u64, _: Access) -> Result<(), MemoryError> {
        Ok(())
    }
    fn remote_write(&mut self, _: RemoteKey, _: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.written_bytes += data.len() as u64;
        Ok(())
    }
    fn remote_read(&mut self, _: RemoteKey, _: u64, _: &mut [u8]) -> Result<(), MemoryError> {
        Err(MemoryError::UnknownKey)
    }
    fn remote_atomic(&mut self, _: RemoteKey, _: u64, _: AtomicOperation) -> Result<u64, MemoryError> {
        Err(MemoryError::UnknownKey)
    }
    fn remote_flush(&mut self, _: RemoteKey, _: Option<(u64, u64)>, _: Access) -> Result<(), MemoryError> {
        Err(MemoryError::UnknownKey)
    }
    fn invalidate(&mut self, _: RemoteKey) -> Result<(), MemoryError> {
        Err(MemoryError::UnknownKey)
    }
    fn bind_window(&mut self, _: &QpContext, _: &WindowBind) -> Result<(), MemoryError> {
        Err(MemoryError::UnknownKey)
    }
    fn take_recv(&mut self, _: &QpContext, _: Option<u32>, _: &mut RecvWqe) -> Result<(), NoRecv> {
        Err(NoRecv::Empty)
    }
    fn srq_protection_domain(&mut self, _: &QpContext, _: u32) -> Result<u32, NoRecv> {
        Err(NoRecv::NoSuchSrq)
    }
    fn flush_recv_queue(&mut self, _: &QpContext) {}
    fn complete_send(&mut self, _: &QpContext, completion: WorkCompletion, _: u32) {
        match completion.status {
            WcStatus::Success => self.completed += 1,
            _ => self.failed += 1,
        }
    }
    fn complete_recv(&mut self, _: &QpContext, _: u32, _: WorkCompletion, _: bool) {}
    fn event(&mut self, _: &QpContext, _: AsyncEventType) {}
    fn emit(&mut self, _: &QpContext, _: QpEvent<'_>) {}
}

/// The objects of a queue pair with this number.
pub(crate) fn context(qpn: Qpn) -> QpContext {
    QpContext { qpn, pd: 0, send_cq: 0, recv_cq: 0, recv_queue: 0, xrcd: 0, ordinal: 0, out_of_order: false }
}
