//! A device and a network for tests of services that number their messages.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use crate::event::QpEvent;
use crate::host::{Host, MemoryError, NoRecv, QpContext, RecvWqe, RemoteKey, Transmit};
use crate::path::{Flow, Path, ROCE_PORT};
use crate::types::{Access, AsyncEventType, AtomicOperation, Sge, WindowBind, WorkCompletion};
use crate::wire::Qpn;

pub(super) const MEMORY: usize = 1 << 20;
/// Key of all memory, and a key of none.
pub(super) const KEY: u32 = 7;
pub(super) const WRONG_KEY: u32 = 8;

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }
}

pub(super) struct TestHost {
    pub(super) memory: Vec<u8>,
    pub(super) receives: VecDeque<(u64, Sge)>,
    pub(super) sent: Vec<WorkCompletion>,
    pub(super) received: Vec<WorkCompletion>,
    pub(super) knows: BTreeSet<IpAddr>,
    /// Number of send queue entries that completions have freed.
    pub(super) released: u32,
    pub(super) events: Vec<AsyncEventType>,
}

impl TestHost {
    pub(super) fn new(knows: impl Iterator<Item = IpAddr>) -> TestHost {
        TestHost {
            memory: vec![0; MEMORY],
            receives: VecDeque::new(),
            sent: Vec::new(),
            received: Vec::new(),
            knows: knows.collect(),
            released: 0,
            events: Vec::new(),
        }
    }
}

impl TestHost {
    fn range(&mut self, key: u32, address: u64, length: usize) -> Result<&mut [u8], MemoryError> {
        let start = usize::try_from(address).map_err(|_| MemoryError::OutOfRange)?;
        if key != KEY {
            return Err(MemoryError::UnknownKey);
        }
        self.memory.get_mut(start..start.saturating_add(length)).ok_or(MemoryError::OutOfRange)
    }
}

impl Host for TestHost {
    fn gather(&mut self, _: u32, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        let sge = sges.first().copied().unwrap_or_default();
        out.copy_from_slice(self.range(sge.lkey, sge.address + offset, out.len())?);
        Ok(())
    }
    fn scatter(&mut self, _: u32, sges: &[Sge], offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        if data.is_empty() {
            return Ok(());
        }
        let sge = sges.first().copied().unwrap_or_default();
        self.range(sge.lkey, sge.address + offset, data.len())?.copy_from_slice(data);
        Ok(())
    }
    fn check_remote(
        &mut self,
        key: RemoteKey,
        address: u64,
        length_bytes: u64,
        _: Access,
    ) -> Result<(), MemoryError> {
        self.range(key.rkey, address, length_bytes as usize).map(|_| ())
    }
    fn remote_write(&mut self, key: RemoteKey, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.range(key.rkey, address, data.len())?.copy_from_slice(data);
        Ok(())
    }
    fn remote_read(&mut self, key: RemoteKey, address: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        out.copy_from_slice(self.range(key.rkey, address, out.len())?);
        Ok(())
    }
    fn remote_atomic(
        &mut self,
        key: RemoteKey,
        address: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        let word = self.range(key.rkey, address, 8)?;
        let before = u64::from_ne_bytes(word.try_into().unwrap());
        word.copy_from_slice(&operation.applied_to(before).to_ne_bytes());
        Ok(before)
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
    fn take_recv(&mut self, _: &QpContext, _: Option<u32>, into: &mut RecvWqe) -> Result<(), NoRecv> {
        let (wr_id, sge) = self.receives.pop_front().ok_or(NoRecv::Empty)?;
        *into = RecvWqe {
            wr_id,
            pd: 0,
            cq: 0,
            sges: vec![sge],
            length_bytes: sge.length.into(),
            ..RecvWqe::default()
        };
        Ok(())
    }
    fn srq_protection_domain(&mut self, _: &QpContext, _: u32) -> Result<u32, NoRecv> {
        Err(NoRecv::NoSuchSrq)
    }
    fn address_handle(&mut self, _: u32, peer: IpAddr) -> Option<u16> {
        self.knows.contains(&peer).then_some(3)
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
    fn emit(&mut self, _: &QpContext, _: QpEvent<'_>) {}
}

/// Packets that leave, with their flows.
#[derive(Default)]
pub(super) struct SentPackets {
    pub(super) packets: Vec<(Flow, Vec<u8>)>,
    pub(super) room: usize,
}

impl Transmit for SentPackets {
    fn begin(&mut self, path: &Arc<Path>, _: Qpn, length_bytes: usize) -> Option<&mut [u8]> {
        if self.packets.len() >= self.room {
            return None;
        }
        self.packets.push((path.flow, vec![0; length_bytes]));
        self.packets.last_mut().map(|(_, bytes)| &mut bytes[..])
    }
    fn seal(&mut self) {}
    fn abandon(&mut self) {
        self.packets.pop();
    }
}

pub(super) fn address_of(index: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + index as u8))
}

pub(super) fn path(from: usize, to: usize) -> Arc<Path> {
    let flow = Flow {
        source: address_of(from),
        destination: address_of(to),
        source_port: 50_000,
        destination_port: ROCE_PORT,
    };
    Arc::new(Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 })
}

/// Faults that the network injects into packets, in thousandths.
#[derive(Clone, Copy)]
pub(super) struct Weather {
    pub(super) lost: u64,
    pub(super) twice: u64,
    pub(super) longest_ns: u64,
}
