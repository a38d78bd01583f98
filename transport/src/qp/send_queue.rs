//! The send queue: a ring of work queue entries, kept from post to completion.

use alloc::vec::Vec;

use crate::types::{
    AtomicOperation, FlushRange, RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge, UdDestination,
    WcOpcode, WindowBind,
};
use crate::wire::Psn;

/// One posted send request.
#[derive(Debug, Clone)]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    pub(crate) opcode: SendOpcode,
    pub(crate) flags: SendFlags,
    /// A completion is made on success.
    pub(crate) signaled: bool,
    /// A local operation (LOCAL_INV, BIND_MW) was executed.
    pub(crate) executed: bool,
    /// PSN of its first packet.
    pub(crate) first_psn: Psn,
    /// PSNs it takes; 0 for local operations.
    pub(crate) packet_count: u32,
    pub(crate) length_bytes: u32,
    pub(crate) sges: Vec<Sge>,
    pub(crate) inline_data: Vec<u8>,
    pub(crate) imm_data: [u8; 4],
    pub(crate) invalidate_rkey: u32,
    pub(crate) remote: RemoteTarget,
    pub(crate) atomic: Option<AtomicOperation>,
    pub(crate) flush: Option<FlushRange>,
    pub(crate) ud: Option<UdDestination>,
    pub(crate) xrc_srqn: u32,
    pub(crate) bind: Option<WindowBind>,
}

impl SendWqe {
    fn empty() -> SendWqe {
        SendWqe {
            wr_id: 0,
            opcode: SendOpcode::Send,
            flags: SendFlags::empty(),
            signaled: false,
            executed: false,
            first_psn: Psn::new(0),
            packet_count: 0,
            length_bytes: 0,
            sges: Vec::new(),
            inline_data: Vec::new(),
            imm_data: [0; 4],
            invalidate_rkey: 0,
            remote: RemoteTarget::default(),
            atomic: None,
            flush: None,
            ud: None,
            xrc_srqn: 0,
            bind: None,
        }
    }

    /// The PSN after its last packet.
    pub(crate) fn end_psn(&self) -> Psn {
        self.first_psn.plus(self.packet_count)
    }

    pub(crate) fn is_inline(&self) -> bool {
        self.flags.contains(SendFlags::INLINE)
    }

    /// Opcode that its completion shows.
    pub(crate) fn wc_opcode(&self) -> WcOpcode {
        match self.opcode {
            SendOpcode::RdmaWrite | SendOpcode::RdmaWriteWithImm => WcOpcode::RdmaWrite,
            SendOpcode::Send | SendOpcode::SendWithImm | SendOpcode::SendWithInvalidate => WcOpcode::Send,
            SendOpcode::RdmaRead => WcOpcode::RdmaRead,
            SendOpcode::CompareSwap => WcOpcode::CompareSwap,
            SendOpcode::FetchAdd => WcOpcode::FetchAdd,
            SendOpcode::LocalInvalidate => WcOpcode::LocalInvalidate,
            SendOpcode::BindWindow => WcOpcode::BindWindow,
            SendOpcode::Flush => WcOpcode::Flush,
            SendOpcode::AtomicWrite => WcOpcode::AtomicWrite,
        }
    }
}

/// Ring of send WQEs. Entries are numbered from 0 for the life of the queue pair; slots are reused
/// with their allocations, so posting allocates only while the queue first fills.
#[derive(Debug)]
pub(crate) struct SendQueue {
    slots: Vec<SendWqe>,
    capacity: u32,
    head: u64,
    tail: u64,
}

impl SendQueue {
    pub(crate) fn new(capacity: u32) -> SendQueue {
        SendQueue { slots: Vec::new(), capacity, head: 0, tail: 0 }
    }

    /// Number of the oldest entry.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Number that the next posted entry gets.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    pub(crate) fn is_full(&self) -> bool {
        self.tail - self.head >= u64::from(self.capacity)
    }

    fn slot(&self, number: u64) -> usize {
        (number % u64::from(self.capacity.max(1))) as usize
    }

    /// Entry `number`, if it is in the queue.
    pub(crate) fn entry(&self, number: u64) -> Option<&SendWqe> {
        if number < self.head || number >= self.tail {
            return None;
        }
        self.slots.get(self.slot(number))
    }

    pub(crate) fn entry_mut(&mut self, number: u64) -> Option<&mut SendWqe> {
        if number < self.head || number >= self.tail {
            return None;
        }
        let slot = self.slot(number);
        self.slots.get_mut(slot)
    }

    /// Copies a request into the next slot. The caller has checked that the queue is not full.
    pub(crate) fn push(
        &mut self,
        request: &SendRequest<'_>,
        signaled: bool,
        length_bytes: u32,
        first_psn: Psn,
        packet_count: u32,
    ) {
        let slot = self.slot(self.tail);
        while self.slots.len() <= slot {
            self.slots.push(SendWqe::empty());
        }
        let Some(wqe) = self.slots.get_mut(slot) else { return };
        wqe.wr_id = request.wr_id;
        wqe.opcode = request.opcode;
        wqe.flags = request.flags;
        wqe.signaled = signaled;
        wqe.executed = false;
        wqe.first_psn = first_psn;
        wqe.packet_count = packet_count;
        wqe.length_bytes = length_bytes;
        wqe.sges.clear();
        wqe.inline_data.clear();
        if request.flags.contains(SendFlags::INLINE) {
            wqe.inline_data.extend_from_slice(request.inline_data);
        } else {
            wqe.sges.extend_from_slice(request.sges);
        }
        wqe.imm_data = request.imm_data;
        wqe.invalidate_rkey = request.invalidate_rkey;
        wqe.remote = request.remote;
        wqe.atomic = request.atomic;
        wqe.flush = request.flush;
        wqe.ud.clone_from(&request.ud);
        wqe.xrc_srqn = request.xrc_srqn;
        wqe.bind = request.bind;
        self.tail += 1;
    }

    /// Forgets the oldest entry.
    pub(crate) fn pop(&mut self) {
        if self.head < self.tail {
            let slot = self.slot(self.head);
            if let Some(wqe) = self.slots.get_mut(slot) {
                wqe.ud = None;
            }
            self.head += 1;
        }
    }
}
