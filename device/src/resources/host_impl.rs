//! The device as a queue pair's protocol sees it.

use pumice_transport::host::{Counter, Host, MemoryError, NoRecv, QpContext, RecvWqe, RemoteKey};
use pumice_transport::types::{
    Access, AsyncEventType, AtomicOperation, Cause, Sge, WcOpcode, WcStatus, WindowBind, WorkCompletion,
};

use super::{Receives, Resources};
use crate::async_event::AsyncElement;
use crate::completion_queue::Pushed;
use crate::srq::{Srq, Taken};

impl Host for Resources {
    #[inline]
    fn gather(&mut self, pd: u32, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        self.memory.gather(pd, sges, offset, out)
    }

    #[inline]
    fn scatter(&mut self, pd: u32, sges: &[Sge], offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.memory.scatter(pd, sges, offset, data)
    }

    #[inline]
    fn check_remote(
        &mut self,
        key: RemoteKey,
        address: u64,
        length_bytes: u64,
        access: Access,
    ) -> Result<(), MemoryError> {
        self.memory.locate_remote(key, address, length_bytes, access).map(|_| ())
    }

    #[inline]
    fn remote_write(&mut self, key: RemoteKey, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.memory.remote_write(key, address, data)
    }

    #[inline]
    fn remote_read(&mut self, key: RemoteKey, address: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        self.memory.remote_read(key, address, out)
    }

    fn remote_atomic(
        &mut self,
        key: RemoteKey,
        address: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        self.memory.remote_atomic(key, address, operation)
    }

    fn remote_atomic_write(
        &mut self,
        key: RemoteKey,
        address: u64,
        data: [u8; 8],
    ) -> Result<(), MemoryError> {
        self.memory.remote_atomic_write(key, address, data)
    }

    fn remote_flush(
        &mut self,
        key: RemoteKey,
        range: Option<(u64, u64)>,
        access: Access,
    ) -> Result<(), MemoryError> {
        self.memory.remote_flush(key, range, access)
    }

    fn invalidate(&mut self, key: RemoteKey) -> Result<(), MemoryError> {
        self.memory.invalidate(key)
    }

    fn bind_window(&mut self, qp: &QpContext, bind: &WindowBind) -> Result<(), MemoryError> {
        self.memory.bind_window(qp.pd, qp.qpn, bind)
    }

    fn take_recv(&mut self, qp: &QpContext, xrc_srqn: Option<u32>, into: &mut RecvWqe) -> Result<(), NoRecv> {
        let place = match xrc_srqn {
            Some(number) => self.xrc_srq_place(qp, number)?,
            None => qp.recv_queue,
        };
        let taken = match self.receives.at_mut(place).ok_or(NoRecv::Empty)? {
            Receives::Own(queue) => {
                into.pd = qp.pd;
                into.cq = qp.recv_cq;
                if queue.take(into) { Taken::Request } else { Taken::Empty }
            }
            Receives::Shared(srq) => {
                into.cq = srq.xrc().map_or(qp.recv_cq, |xrc| xrc.cq);
                let taken = srq.take(into);
                if taken == Taken::BelowLimit {
                    let element = AsyncElement::Srq { cookie: srq.cookie() };
                    self.async_events.raise_for(AsyncEventType::SrqLimitReached, element, srq.account());
                }
                taken
            }
        };
        if taken == Taken::Empty { Err(NoRecv::Empty) } else { Ok(()) }
    }

    fn xrc_domain(&mut self, qp: &QpContext, xrc_srqn: u32) -> Result<u32, NoRecv> {
        let place = self.xrc_srq_place(qp, xrc_srqn)?;
        self.shared(place).map(Srq::pd).ok_or(NoRecv::NoSuchSrq)
    }

    fn flush_recv_queue(&mut self, qp: &QpContext) {
        while let Some(Receives::Own(queue)) = self.receives.at_mut(qp.recv_queue) {
            let Some(wr_id) = queue.take_id() else { break };
            let completion = WorkCompletion {
                wr_id,
                status: WcStatus::WrFlushErr,
                opcode: WcOpcode::Recv,
                qp_num: qp.qpn.value(),
                ..WorkCompletion::default()
            };
            self.complete(qp, qp.recv_cq, completion, 0, false);
        }
    }

    #[inline]
    fn complete_send(&mut self, qp: &QpContext, completion: WorkCompletion, released: u32) {
        self.complete(qp, qp.send_cq, completion, released, false);
    }

    #[inline]
    fn complete_recv(&mut self, qp: &QpContext, cq: u32, completion: WorkCompletion, solicited: bool) {
        self.complete(qp, cq, completion, 0, solicited);
    }

    fn event(&mut self, qp: &QpContext, event: AsyncEventType) {
        self.raise_qp_event(qp.qpn, event);
    }

    fn explain(&mut self, qp: &QpContext, cause: Cause) {
        if let Some(hook) = &self.explain {
            hook(qp, &cause);
        }
    }

    #[inline]
    fn count(&mut self, counter: Counter, amount: u64) {
        self.counters.add_under_lock(counter, amount);
    }
}

impl Resources {
    #[inline]
    fn complete(
        &mut self,
        qp: &QpContext,
        cq: u32,
        completion: WorkCompletion,
        released: u32,
        solicited: bool,
    ) {
        let Some(slot) = self.cqs.at(cq) else { return };
        match slot.cq.push(completion, released, solicited) {
            Pushed::Stored => {}
            Pushed::Overrun => self.cq_overran(cq, qp.qpn),
            Pushed::InError => self.qp_ruined(qp.qpn),
        }
    }

    /// Place of the XRC SRQ with this number, if it is of the queue pair's XRC domain.
    fn xrc_srq_place(&self, qp: &QpContext, number: u32) -> Result<u32, NoRecv> {
        let index = (number & 0xffff).wrapping_sub(1);
        let place = *self.xrc_srqs.at(index).ok_or(NoRecv::NoSuchSrq)?;
        let xrc = self.shared(place).and_then(Srq::xrc).ok_or(NoRecv::NoSuchSrq)?;
        if xrc.number == number && xrc.xrcd == qp.xrcd { Ok(place) } else { Err(NoRecv::NoSuchSrq) }
    }

    fn shared(&self, place: u32) -> Option<&Srq> {
        match self.receives.at(place)? {
            Receives::Shared(srq) => Some(srq),
            Receives::Own(_) => None,
        }
    }
}
