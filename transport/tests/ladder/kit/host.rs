//! A device made of vectors.

use std::collections::{BTreeMap, VecDeque};

use pumice_transport::event::{PacketIdentity, QpEvent, Topic};
use pumice_transport::host::{
    Counter, FrameData, FrameError, Host, MemoryError, NoRecv, QpContext, RecvWqe, RemoteKey,
};
use pumice_transport::types::{
    Access, AsyncEventType, AtomicOperation, Cause, Sge, WcOpcode, WcStatus, WindowBind, WorkCompletion,
};

use super::memory::{Memory, Region, aligned};
use super::{PD, RECV_CQ};

/// A send completion as it was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendDone {
    pub(crate) wc: WorkCompletion,
    pub(crate) released: u32,
}

/// A receive completion as it was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecvDone {
    pub(crate) cq: u32,
    pub(crate) wc: WorkCompletion,
    pub(crate) solicited: bool,
}

/// A FLUSH as it was asked for; `range` is address and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flushed {
    pub(crate) rkey: u32,
    pub(crate) range: Option<(u64, u64)>,
    pub(crate) access: Access,
}

/// A packet as the event of its sending describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SentEvent {
    pub(crate) identity: PacketIdentity,
    pub(crate) opcode: u8,
    pub(crate) psn: u32,
    pub(crate) length_bytes: u32,
}

/// An XRC shared receive queue.
#[derive(Debug, Default)]
pub(crate) struct XrcSrq {
    pub(crate) xrcd: u32,
    pub(crate) pd: u32,
    pub(crate) cq: u32,
    pub(crate) receives: VecDeque<RecvWqe>,
}

/// The device of a ladder test. Give it regions and receives, run the protocol, read the records.
#[derive(Debug, Default)]
pub(crate) struct FakeHost {
    pub(crate) memory: Memory,
    /// The receive queue.
    pub(crate) receives: VecDeque<RecvWqe>,
    /// Whether the receive queue is an SRQ: then the death of a queue pair leaves it alone.
    pub(crate) shared: bool,
    /// XRC SRQs by number.
    pub(crate) xrc_srqs: BTreeMap<u32, XrcSrq>,
    pub(crate) sends_done: Vec<SendDone>,
    pub(crate) recvs_done: Vec<RecvDone>,
    pub(crate) events: Vec<AsyncEventType>,
    pub(crate) causes: Vec<Cause>,
    /// Whether it listens to everything but packets and the log.
    pub(crate) listens_to_steps: bool,
    /// The line of each event of those, while it listens.
    pub(crate) told: Vec<String>,
    /// Each Ethernet frame sent.
    pub(crate) frames: Vec<Vec<u8>>,
    /// Each FLUSH executed.
    pub(crate) flushes: Vec<Flushed>,
    /// L_Keys whose data does not fit its signatures.
    pub(crate) bad_signatures: Vec<u32>,
    /// Whether it listens to packets.
    pub(crate) listens_to_packets: bool,
    /// Events of packets that were sent, whether it listens or not.
    pub(crate) packets_sent: Vec<SentEvent>,
    counters: BTreeMap<u8, u64>,
}

impl FakeHost {
    /// Registers `size` zero bytes at `base` in the usual domain. The R_Key is the L_Key + 0x1000.
    pub(crate) fn region(&mut self, lkey: u32, base: u64, size: usize, access: Access) -> &mut Region {
        let (rkey, bytes) = (lkey + 0x1000, vec![0; size]);
        self.memory.regions.push(Region { lkey, rkey, pd: PD, access, base, bytes });
        self.memory.region(lkey)
    }

    /// Posts a receive of one buffer.
    pub(crate) fn post_recv(&mut self, wr_id: u64, address: u64, length: u32, lkey: u32) {
        self.receives.push_back(recv_wqe(wr_id, PD, RECV_CQ, &[Sge { address, length, lkey }]));
    }

    /// Posts a receive of one buffer to an XRC SRQ that exists.
    pub(crate) fn post_xrc_recv(&mut self, srqn: u32, wr_id: u64, address: u64, length: u32, lkey: u32) {
        let srq = self.xrc_srqs.get_mut(&srqn).expect("an XRC SRQ");
        srq.receives.push_back(recv_wqe(wr_id, srq.pd, srq.cq, &[Sge { address, length, lkey }]));
    }

    /// What a counter stands at.
    pub(crate) fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(&(counter as u8)).copied().unwrap_or(0)
    }

    /// Takes `(wr_id, status)` of the sends completed since the last call.
    pub(crate) fn take_sends(&mut self) -> Vec<(u64, WcStatus)> {
        self.sends_done.drain(..).map(|done| (done.wc.wr_id, done.wc.status)).collect()
    }

    /// Takes `(wr_id, status)` of the receives completed since the last call.
    pub(crate) fn take_recvs(&mut self) -> Vec<(u64, WcStatus)> {
        self.recvs_done.drain(..).map(|done| (done.wc.wr_id, done.wc.status)).collect()
    }
}

fn recv_wqe(wr_id: u64, pd: u32, cq: u32, sges: &[Sge]) -> RecvWqe {
    let length_bytes = sges.iter().map(|sge| u64::from(sge.length)).sum();
    RecvWqe { wr_id, pd, cq, sges: sges.to_vec(), length_bytes, ..RecvWqe::default() }
}

impl Host for FakeHost {
    fn gather(&mut self, pd: u32, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        self.memory.load(pd, sges, offset, out)
    }

    fn scatter(&mut self, pd: u32, sges: &[Sge], offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.memory.store(pd, sges, offset, data)
    }

    fn has_bad_signature(&mut self, sges: &[Sge]) -> bool {
        sges.iter().any(|sge| self.bad_signatures.contains(&sge.lkey))
    }

    fn check_remote(
        &mut self,
        key: RemoteKey,
        address: u64,
        length_bytes: u64,
        access: Access,
    ) -> Result<(), MemoryError> {
        assert_ne!(length_bytes, 0, "the caller skips the check of an empty range");
        self.memory.remote(key, Some((address, length_bytes)), access).map(drop)
    }

    fn remote_write(&mut self, key: RemoteKey, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        let range = Some((address, data.len() as u64));
        let (region, range) = self.memory.remote(key, range, Access::REMOTE_WRITE)?;
        self.memory.regions[region].bytes[range].copy_from_slice(data);
        Ok(())
    }

    fn remote_read(&mut self, key: RemoteKey, address: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        let range = Some((address, out.len() as u64));
        let (region, range) = self.memory.remote(key, range, Access::REMOTE_READ)?;
        out.copy_from_slice(&self.memory.regions[region].bytes[range]);
        Ok(())
    }

    fn remote_atomic(
        &mut self,
        key: RemoteKey,
        address: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        self.memory.atomic(key, address, operation)
    }

    fn remote_flush(
        &mut self,
        key: RemoteKey,
        range: Option<(u64, u64)>,
        access: Access,
    ) -> Result<(), MemoryError> {
        self.memory.remote(key, range, access)?;
        self.flushes.push(Flushed { rkey: key.rkey, range, access });
        Ok(())
    }

    fn invalidate(&mut self, key: RemoteKey) -> Result<(), MemoryError> {
        self.memory.invalidate(key)
    }

    fn bind_window(&mut self, qp: &QpContext, bind: &WindowBind) -> Result<(), MemoryError> {
        self.memory.bind(qp, bind)
    }

    fn send_frame(&mut self, qp: &QpContext, data: FrameData<'_>, bytes: u32) -> Result<(), FrameError> {
        if !(14..=1514).contains(&bytes) {
            return Err(FrameError::Length);
        }
        let mut frame = vec![0; bytes as usize];
        match data {
            FrameData::Inline(bytes) => frame.copy_from_slice(bytes),
            FrameData::Buffers(sges) => {
                self.gather(qp.pd, sges, 0, &mut frame).map_err(FrameError::Memory)?;
            }
        }
        self.frames.push(frame);
        Ok(())
    }

    fn take_recv(&mut self, qp: &QpContext, xrc_srqn: Option<u32>, into: &mut RecvWqe) -> Result<(), NoRecv> {
        let queue = match xrc_srqn {
            None => &mut self.receives,
            Some(srqn) => match self.xrc_srqs.get_mut(&srqn) {
                Some(srq) if srq.xrcd == qp.xrcd => &mut srq.receives,
                _ => return Err(NoRecv::NoSuchSrq),
            },
        };
        *into = queue.pop_front().ok_or(NoRecv::Empty)?;
        Ok(())
    }

    fn srq_protection_domain(&mut self, qp: &QpContext, xrc_srqn: u32) -> Result<u32, NoRecv> {
        match self.xrc_srqs.get(&xrc_srqn) {
            Some(srq) if srq.xrcd == qp.xrcd => Ok(srq.pd),
            _ => Err(NoRecv::NoSuchSrq),
        }
    }

    fn flush_recv_queue(&mut self, qp: &QpContext) {
        if self.shared {
            return;
        }
        for wqe in std::mem::take(&mut self.receives) {
            let wc = WorkCompletion {
                wr_id: wqe.wr_id,
                status: WcStatus::WrFlushErr,
                opcode: WcOpcode::Recv,
                qp_num: qp.qpn.value(),
                ..WorkCompletion::default()
            };
            self.recvs_done.push(RecvDone { cq: wqe.cq, wc, solicited: false });
        }
    }

    fn complete_send(&mut self, qp: &QpContext, completion: WorkCompletion, released: u32) {
        assert_eq!(completion.qp_num, qp.qpn.value(), "completion of another queue pair");
        assert!(!completion.opcode.is_recv(), "receive opcode in a send completion");
        self.sends_done.push(SendDone { wc: completion, released });
    }

    fn complete_recv(&mut self, qp: &QpContext, cq: u32, completion: WorkCompletion, solicited: bool) {
        assert_eq!(completion.qp_num, qp.qpn.value(), "completion of another queue pair");
        assert!(completion.opcode.is_recv(), "send opcode in a receive completion");
        self.recvs_done.push(RecvDone { cq, wc: completion, solicited });
    }

    fn event(&mut self, _qp: &QpContext, event: AsyncEventType) {
        self.events.push(event);
    }

    fn listens(&self, topic: Topic) -> bool {
        if matches!(topic, Topic::Packets | Topic::Answers) {
            self.listens_to_packets
        } else {
            self.listens_to_steps
        }
    }

    fn emit(&mut self, _qp: &QpContext, event: QpEvent<'_>) {
        match event {
            QpEvent::Logged(cause) => self.causes.push(*cause),
            QpEvent::PacketSent { identity, opcode, psn, length_bytes, .. } => self
                .packets_sent
                .push(SentEvent { identity, opcode: opcode.byte(), psn: psn.value(), length_bytes }),
            _ if self.listens_to_steps => self.told.push(event.to_string()),
            _ => {}
        }
        if let Some((counter, amount)) = event.counter() {
            *self.counters.entry(counter as u8).or_default() += amount;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Window;
    use super::super::{CONTEXT, LOCAL, PEER, XRCD, pattern};
    use super::*;

    const ALL: Access = Access::LOCAL_WRITE
        .union(Access::REMOTE_WRITE)
        .union(Access::REMOTE_READ)
        .union(Access::REMOTE_ATOMIC)
        .union(Access::MW_BIND);

    fn key(rkey: u32) -> RemoteKey {
        RemoteKey { rkey, pd: PD, qpn: LOCAL }
    }

    #[test]
    fn lists_of_buffers_are_one_run_of_bytes() {
        let mut host = FakeHost::default();
        host.region(1, 0x1000, 8, ALL);
        host.region(2, 0x2000, 8, ALL);
        let sges = [
            Sge { address: 0x1005, length: 3, lkey: 1 },
            Sge { address: 0, length: 0, lkey: 99 },
            Sge { address: 0x2000, length: 4, lkey: 2 },
        ];
        host.scatter(PD, &sges, 1, &pattern(5)).unwrap();
        let mut back = [0; 7];
        host.gather(PD, &sges, 0, &mut back).unwrap();
        assert_eq!(back[1..6], pattern(5));
        assert_eq!((back[0], back[6]), (0, 0));
        assert_eq!(host.memory.region(1).bytes[6..], pattern(2));
    }

    #[test]
    fn each_memory_error_has_its_cause() {
        let mut host = FakeHost::default();
        host.region(1, 0x1000, 16, Access::REMOTE_READ);
        let remote = |host: &mut FakeHost, key, address, access| host.check_remote(key, address, 8, access);
        let read = Access::REMOTE_READ;
        assert_eq!(remote(&mut host, key(0x1001), 0x1008, read), Ok(()));
        assert_eq!(remote(&mut host, key(1), 0x1008, read), Err(MemoryError::UnknownKey));
        assert_eq!(remote(&mut host, key(0x1001), 0x1009, read), Err(MemoryError::OutOfRange));
        assert_eq!(remote(&mut host, key(0x1001), u64::MAX - 3, read), Err(MemoryError::OutOfRange));
        assert_eq!(
            remote(&mut host, key(0x1001), 0x1008, Access::REMOTE_WRITE),
            Err(MemoryError::AccessDenied)
        );
        let foreign = RemoteKey { pd: 9, ..key(0x1001) };
        assert_eq!(remote(&mut host, foreign, 0x1008, read), Err(MemoryError::WrongDomain));
        let sge = [Sge { address: 0x1000, length: 4, lkey: 1 }];
        assert_eq!(host.scatter(PD, &sge, 0, &[1]), Err(MemoryError::AccessDenied));
        assert_eq!(host.gather(PD, &sge, 0, &mut [0; 4]), Ok(()));
        host.memory.deregister(1);
        assert_eq!(remote(&mut host, key(0x1001), 0x1008, read), Err(MemoryError::UnknownKey));
    }

    #[test]
    fn atomics_work_on_host_order() {
        let mut host = FakeHost::default();
        host.region(1, 0x1000, 16, ALL).bytes[8..].copy_from_slice(&5u64.to_ne_bytes());
        let add = AtomicOperation::FetchAdd { add: u64::MAX };
        assert_eq!(host.remote_atomic(key(0x1001), 0x1008, add), Ok(5));
        let swap = AtomicOperation::CompareSwap { compare: 4, swap: 77 };
        assert_eq!(host.remote_atomic(key(0x1001), 0x1008, swap), Ok(4));
        assert_eq!(host.remote_atomic(key(0x1001), 0x1008, swap), Ok(77));
        assert_eq!(host.remote_atomic(key(0x1001), 0x1004, add), Err(MemoryError::Misaligned));
        let write = AtomicOperation::Write { bytes: [3; 8] };
        assert_eq!(host.remote_atomic(key(0x1001), 0x1000, write), Ok(0));
        assert_eq!(host.memory.region(1).bytes[..8], [3; 8]);
    }

    #[test]
    fn a_window_opens_its_range_to_its_queue_pair_until_it_is_invalidated() {
        let mut host = FakeHost::default();
        host.region(1, 0x1000, 64, ALL);
        host.memory.windows.push(Window { rkey: 0x500, pd: PD, bound: None });
        let bind = WindowBind {
            window_rkey: 0x500,
            new_rkey: 0x501,
            region_lkey: 1,
            address: 0x1010,
            length: 16,
            access: Access::REMOTE_WRITE,
        };
        host.bind_window(&CONTEXT, &bind).unwrap();
        assert_eq!(host.remote_write(key(0x501), 0x1010, &[7; 16]), Ok(()));
        assert_eq!(host.memory.region(1).bytes[16..32], [7; 16]);
        assert_eq!(host.remote_write(key(0x501), 0x1011, &[7; 16]), Err(MemoryError::OutOfRange));
        assert_eq!(host.remote_write(key(0x500), 0x1010, &[7]), Err(MemoryError::UnknownKey));
        assert_eq!(host.remote_read(key(0x501), 0x1010, &mut [0]), Err(MemoryError::AccessDenied));
        let other = RemoteKey { qpn: PEER, ..key(0x501) };
        assert_eq!(host.remote_write(other, 0x1010, &[7]), Err(MemoryError::WrongDomain));
        assert_eq!(host.invalidate(key(0x501)), Ok(()));
        assert_eq!(host.remote_write(key(0x501), 0x1010, &[7]), Err(MemoryError::UnknownKey));
    }

    #[test]
    fn receives_come_from_the_queue_that_the_packet_names() {
        let mut host = FakeHost::default();
        host.post_recv(1, 0x1000, 64, 1);
        host.xrc_srqs.insert(5, XrcSrq { xrcd: XRCD, pd: 8, cq: 9, ..XrcSrq::default() });
        host.xrc_srqs.insert(6, XrcSrq::default());
        host.post_xrc_recv(5, 2, 0x1000, 32, 1);
        let mut wqe = RecvWqe::default();
        assert_eq!(host.take_recv(&CONTEXT, Some(5), &mut wqe), Ok(()));
        assert_eq!((wqe.wr_id, wqe.pd, wqe.cq, wqe.length_bytes), (2, 8, 9, 32));
        assert_eq!(host.take_recv(&CONTEXT, Some(5), &mut wqe), Err(NoRecv::Empty));
        assert_eq!(host.take_recv(&CONTEXT, Some(6), &mut wqe), Err(NoRecv::NoSuchSrq));
        assert_eq!(host.srq_protection_domain(&CONTEXT, 5), Ok(8));
        assert_eq!(host.take_recv(&CONTEXT, None, &mut wqe), Ok(()));
        assert_eq!((wqe.wr_id, wqe.pd, wqe.cq), (1, PD, RECV_CQ));
        host.post_recv(3, 0x1000, 64, 1);
        host.flush_recv_queue(&CONTEXT);
        assert_eq!(host.take_recvs(), [(3, WcStatus::WrFlushErr)]);
    }
}
