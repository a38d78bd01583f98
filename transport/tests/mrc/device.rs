//! A device with memory, and a network that keeps what is sent.

use std::collections::VecDeque;

use pumice_transport::event::{QpEvent, Topic};
use pumice_transport::host::{Host, MemoryError, NoRecv, QpContext, RecvWqe, RemoteKey};
use pumice_transport::mrc::entropy::{MrcNetwork, MrcOutgoingPacket};
use pumice_transport::types::{
    Access, AsyncEventType, AtomicOperation, MrcBreach, Sge, WindowBind, WorkCompletion,
};
use pumice_transport::wire::Qpn;

pub(crate) const MEMORY_BYTES: usize = 1 << 20;
/// The key of all memory.
pub(crate) const KEY: u32 = 7;
pub(crate) struct Device {
    pub(crate) memory: Vec<u8>,
    pub(crate) receives: VecDeque<u64>,
    pub(crate) sent: Vec<WorkCompletion>,
    pub(crate) received: Vec<WorkCompletion>,
    pub(crate) events: Vec<AsyncEventType>,
    /// Rules of MRC that were broken.
    pub(crate) breaches: Vec<MrcBreach>,
    /// Bytes that the peer has written.
    pub(crate) written_bytes: u64,
    /// Send queue entries that completions have freed.
    pub(crate) released: u32,
    /// Events are put together, and are said as text.
    pub(crate) listens: bool,
    pub(crate) said: Vec<String>,
}

impl Device {
    pub(crate) fn new() -> Device {
        Device {
            memory: vec![0; MEMORY_BYTES],
            receives: VecDeque::new(),
            sent: Vec::new(),
            received: Vec::new(),
            events: Vec::new(),
            breaches: Vec::new(),
            written_bytes: 0,
            released: 0,
            listens: false,
            said: Vec::new(),
        }
    }

    fn range(&mut self, key: u32, address: u64, length: usize) -> Result<&mut [u8], MemoryError> {
        let start = usize::try_from(address).map_err(|_| MemoryError::OutOfRange)?;
        if key != KEY {
            return Err(MemoryError::UnknownKey);
        }
        self.memory.get_mut(start..start.saturating_add(length)).ok_or(MemoryError::OutOfRange)
    }
}

impl Host for Device {
    fn gather(&mut self, _: u32, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        let sge = sges.first().copied().unwrap_or_default();
        out.copy_from_slice(self.range(sge.lkey, sge.address + offset, out.len())?);
        Ok(())
    }
    fn scatter(&mut self, _: u32, _: &[Sge], _: u64, _: &[u8]) -> Result<(), MemoryError> {
        unreachable!("nothing is received into buffers")
    }
    fn check_remote(&mut self, key: RemoteKey, at: u64, length: u64, _: Access) -> Result<(), MemoryError> {
        self.range(key.rkey, at, length as usize).map(|_| ())
    }
    fn remote_write(&mut self, key: RemoteKey, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.range(key.rkey, address, data.len())?.copy_from_slice(data);
        self.written_bytes += data.len() as u64;
        Ok(())
    }
    fn remote_read(&mut self, _: RemoteKey, _: u64, _: &mut [u8]) -> Result<(), MemoryError> {
        unreachable!("there is no READ")
    }
    fn remote_atomic(&mut self, _: RemoteKey, _: u64, _: AtomicOperation) -> Result<u64, MemoryError> {
        unreachable!("there are no atomics")
    }
    fn remote_flush(&mut self, _: RemoteKey, _: Option<(u64, u64)>, _: Access) -> Result<(), MemoryError> {
        unreachable!("there is no FLUSH")
    }
    fn invalidate(&mut self, _: RemoteKey) -> Result<(), MemoryError> {
        unreachable!("nothing is invalidated")
    }
    fn bind_window(&mut self, _: &QpContext, _: &WindowBind) -> Result<(), MemoryError> {
        unreachable!("nothing is bound")
    }
    fn take_recv(&mut self, _: &QpContext, _: Option<u32>, into: &mut RecvWqe) -> Result<(), NoRecv> {
        let wr_id = self.receives.pop_front().ok_or(NoRecv::Empty)?;
        *into = RecvWqe { wr_id, ..RecvWqe::default() };
        Ok(())
    }
    fn srq_protection_domain(&mut self, _: &QpContext, _: u32) -> Result<u32, NoRecv> {
        Err(NoRecv::NoSuchSrq)
    }
    fn flush_recv_queue(&mut self, _: &QpContext) {
        self.receives.clear();
    }
    fn complete_send(&mut self, _: &QpContext, completion: WorkCompletion, released: u32) {
        self.released += released;
        self.sent.push(completion);
    }
    fn complete_recv(&mut self, _: &QpContext, _: u32, completion: WorkCompletion, _: bool) {
        self.received.push(completion);
    }
    fn event(&mut self, _: &QpContext, event: AsyncEventType) {
        self.events.push(event);
    }
    fn listens(&self, _: Topic) -> bool {
        self.listens
    }
    fn emit(&mut self, _: &QpContext, event: QpEvent<'_>) {
        if self.listens {
            self.said.push(event.to_string());
        }
        if let QpEvent::RuleBroken(breach) = event {
            self.breaches.push(breach);
        }
    }
}

/// Packets that leave, with their ways.
#[derive(Default)]
pub(crate) struct Out {
    pub(crate) packets: Vec<(MrcOutgoingPacket, Vec<u8>)>,
    pub(crate) room: usize,
}

impl MrcNetwork for Out {
    fn begin(&mut self, departure: &MrcOutgoingPacket, length_bytes: usize) -> Option<&mut [u8]> {
        if self.packets.len() >= self.room {
            return None;
        }
        self.packets.push((*departure, vec![0; length_bytes]));
        self.packets.last_mut().map(|(_, bytes)| &mut bytes[..])
    }
    fn seal(&mut self) {}
    fn abandon(&mut self) {
        self.packets.pop();
    }
}

pub(crate) fn context(qpn: u32) -> QpContext {
    QpContext {
        qpn: Qpn::new(qpn),
        pd: 0,
        send_cq: 0,
        recv_cq: 0,
        recv_queue: 0,
        xrcd: 0,
        ordinal: 0,
        out_of_order: false,
    }
}
