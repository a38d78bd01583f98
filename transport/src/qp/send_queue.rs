//! The send queue: a ring of work queue entries, which live from post to completion.

use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::lane::{LaneData, LaneSend};
use crate::types::{
    AtomicOperation, FlushRange, KeyConfiguration, Operand, QpType, RemoteRange, RemoteTarget, SendFlags,
    SendOpcode, SendRequest, Sge, UdDestination, WcOpcode, WcStatus, WindowBind, WrClass, WrInfo,
};
use crate::wire::{Psn, Qpn};

/// The PSNs and bytes of a request.
#[derive(Debug, Clone)]
pub(crate) struct SendSpan {
    /// PSN of its first packet.
    pub(crate) first_psn: Psn,
    /// PSNs that it takes; 0 for local operations.
    pub(crate) packet_count: u32,
    pub(crate) length_bytes: u32,
}

/// A posted send request.
#[derive(Debug, Clone)]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    pub(crate) opcode: SendOpcode,
    /// Properties of the operation.
    info: &'static WrInfo,
    pub(crate) flags: SendFlags,
    /// True if success makes a completion.
    pub(crate) signaled: bool,
    /// True if a local operation (LOCAL_INV, BIND_MW) was executed.
    pub(crate) executed: bool,
    completes_as: Option<WcOpcode>,
    pub(crate) span: SendSpan,
    pub(crate) imm_data: [u8; 4],
    pub(crate) invalidate_rkey: u32,
    pub(crate) xrc_srqn: u32,
    pub(crate) remote: RemoteTarget,
    data: SendData,
    operands: Operands,
}

/// Data that a request sends, or the buffers for its answer. Short data and single buffers are in the entry
/// itself: with thousands of queue pairs, every cache line touched per request counts.
#[derive(Debug, Clone)]
enum SendData {
    Nothing,
    Buffer(Sge),
    Buffers(Box<[Sge]>),
    Inline { length_bytes: u8, bytes: [u8; INLINE_BYTES] },
    LongInline(Box<[u8]>),
}

/// Longest inline data that fits an entry, in bytes.
const INLINE_BYTES: usize = 30;

/// Parameters that only some operations have.
#[derive(Debug, Clone)]
enum Operands {
    None,
    Atomic(AtomicOperation),
    Flush(FlushRange),
    Datagram(UdDestination),
    /// The parameters of one BIND_MW, in a slice because only slices can be allocated fallibly.
    Bind(Box<[WindowBind]>),
    Key(Arc<KeyConfiguration>),
    CopyTo(Sge),
    /// The request cannot be executed: it completes with this status when its turn comes.
    Fault(WcStatus),
}

/// Copies elements into memory of their own.
#[cold]
fn boxed<T: Clone>(elements: &[T]) -> Result<Box<[T]>, TryReserveError> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(elements.len())?;
    copy.extend_from_slice(elements);
    Ok(copy.into_boxed_slice())
}

impl SendData {
    /// Stores the data of a request here, in place, because a message must not pay for copies.
    #[inline]
    fn set(&mut self, request: &SendRequest<'_>) -> Result<(), TryReserveError> {
        if request.flags.contains(SendFlags::INLINE) {
            let data = request.inline_data;
            let mut bytes = [0; INLINE_BYTES];
            *self = match bytes.get_mut(..data.len()) {
                Some(room) => {
                    room.copy_from_slice(data);
                    SendData::Inline { length_bytes: data.len() as u8, bytes }
                }
                None => SendData::LongInline(boxed(data)?),
            };
            return Ok(());
        }
        *self = match request.sges {
            [] => SendData::Nothing,
            [only] => SendData::Buffer(*only),
            several => SendData::Buffers(boxed(several)?),
        };
        Ok(())
    }
}

impl SendData {
    /// Stores the message of a lane here. Returns false, and changes nothing, if it needs memory of its own.
    #[inline]
    fn set_by_lane(&mut self, data: &LaneData<'_>) -> bool {
        *self = match data {
            LaneData::Nothing => SendData::Nothing,
            LaneData::Buffer(sge) => SendData::Buffer(*sge),
            LaneData::Inline(data) => {
                let mut bytes = [0; INLINE_BYTES];
                let Some(room) = bytes.get_mut(..data.len()) else { return false };
                room.copy_from_slice(data);
                SendData::Inline { length_bytes: data.len() as u8, bytes }
            }
        };
        true
    }
}

impl Operands {
    /// Stores the operands of a request here, in place.
    #[inline]
    fn set(&mut self, request: &SendRequest<'_>) -> Result<(), TryReserveError> {
        let info = request.opcode.info();
        *self = match info.operand {
            Operand::Atomic => request.atomic.map_or(Operands::None, Operands::Atomic),
            Operand::FlushRange => request.flush.map_or(Operands::None, Operands::Flush),
            Operand::Window => match request.bind {
                Some(bind) => Operands::Bind(boxed(&[bind])?),
                None => Operands::None,
            },
            Operand::KeyConfiguration => request.key.clone().map_or(Operands::None, Operands::Key),
            Operand::CopyTarget => request.copy_to.map_or(Operands::None, Operands::CopyTo),
            Operand::LocalKey => Operands::None,
            Operand::None => match &request.ud {
                Some(ud) if info.qp_types.contains(QpType::Srd) => Operands::Datagram(ud.clone()),
                _ => Operands::None,
            },
        };
        Ok(())
    }
}

impl SendWqe {
    fn empty() -> SendWqe {
        SendWqe {
            wr_id: 0,
            opcode: SendOpcode::Send,
            info: SendOpcode::Send.info(),
            flags: SendFlags::empty(),
            signaled: false,
            executed: false,
            completes_as: None,
            span: SendSpan { first_psn: Psn::new(0), packet_count: 0, length_bytes: 0 },
            imm_data: [0; 4],
            invalidate_rkey: 0,
            xrc_srqn: 0,
            remote: RemoteTarget::default(),
            data: SendData::Nothing,
            operands: Operands::None,
        }
    }

    /// Creates the entry of a request without PSNs.
    ///
    /// # Errors
    /// Fails if there is no memory for its buffers or data.
    pub(crate) fn of(
        request: &SendRequest<'_>,
        signaled: bool,
        length_bytes: u32,
    ) -> Result<SendWqe, TryReserveError> {
        let mut wqe = SendWqe::empty();
        wqe.fill(request, signaled, length_bytes, Psn::new(0), 0)?;
        Ok(wqe)
    }

    fn fill(
        &mut self,
        request: &SendRequest<'_>,
        signaled: bool,
        length_bytes: u32,
        first_psn: Psn,
        packet_count: u32,
    ) -> Result<(), TryReserveError> {
        self.data.set(request)?;
        self.operands.set(request)?;
        self.wr_id = request.wr_id;
        self.opcode = request.opcode;
        self.info = request.opcode.info();
        self.flags = request.flags;
        self.signaled = signaled;
        self.executed = false;
        self.completes_as = request.completes_as;
        self.span.first_psn = first_psn;
        self.span.packet_count = packet_count;
        self.span.length_bytes = length_bytes;
        self.imm_data = request.imm_data;
        self.invalidate_rkey = request.invalidate_rkey;
        self.xrc_srqn = request.xrc_srqn;
        self.remote = request.remote;
        Ok(())
    }

    /// Returns the local buffers; none with inline data.
    pub(crate) fn sges(&self) -> &[Sge] {
        match &self.data {
            SendData::Buffer(sge) => core::slice::from_ref(sge),
            SendData::Buffers(sges) => sges,
            _ => &[],
        }
    }

    /// Returns the remote memory that the request names.
    pub(crate) fn remote_range(&self) -> Option<RemoteRange> {
        let RemoteTarget { address, rkey } = self.remote;
        let length_bytes = self.span.length_bytes.into();
        self.info().names_remote_memory().then_some(RemoteRange { rkey, address, length_bytes })
    }

    /// Returns the inline data.
    pub(crate) fn inline_data(&self) -> &[u8] {
        match &self.data {
            SendData::Inline { length_bytes, bytes } => {
                bytes.get(..usize::from(*length_bytes)).unwrap_or_default()
            }
            SendData::LongInline(bytes) => bytes,
            _ => &[],
        }
    }

    /// Returns the operands of CmpSwap and FetchAdd.
    pub(crate) fn atomic(&self) -> Option<AtomicOperation> {
        if let Operands::Atomic(atomic) = self.operands { Some(atomic) } else { None }
    }

    /// Returns the range of FLUSH.
    pub(crate) fn flush(&self) -> Option<FlushRange> {
        if let Operands::Flush(flush) = self.operands { Some(flush) } else { None }
    }

    /// Returns the destination of a datagram.
    pub(crate) fn ud(&self) -> Option<&UdDestination> {
        if let Operands::Datagram(ud) = &self.operands { Some(ud) } else { None }
    }

    /// Returns the parameters of BIND_MW.
    pub(crate) fn bind(&self) -> Option<WindowBind> {
        if let Operands::Bind(bind) = &self.operands { bind.first().copied() } else { None }
    }

    /// Returns the configuration of CONFIGURE_KEY.
    pub(crate) fn key(&self) -> Option<&KeyConfiguration> {
        if let Operands::Key(key) = &self.operands { Some(key) } else { None }
    }

    /// Returns the target of COPY_MEMORY, as a buffer of the same length.
    pub(crate) fn copy_to(&self) -> Option<Sge> {
        if let Operands::CopyTo(to) = self.operands {
            Some(Sge { length: self.span.length_bytes, ..to })
        } else {
            None
        }
    }

    /// Cancels the request: it becomes a copy of no bytes, and completes with the same opcode as before.
    #[cold]
    pub(crate) fn cancel(&mut self) {
        self.completes_as = Some(self.completion());
        (self.opcode, self.info) = (SendOpcode::CopyMemory, SendOpcode::CopyMemory.info());
        self.flags.remove(SendFlags::INLINE);
        (self.span.packet_count, self.span.length_bytes) = (0, 0);
        self.data = SendData::Nothing;
        self.operands = Operands::CopyTo(Sge { address: 0, length: 0, lkey: 0 });
    }

    /// Returns the opcode of the completion.
    #[inline]
    pub(crate) fn completion(&self) -> WcOpcode {
        self.completes_as.unwrap_or(self.info().completion)
    }

    /// Returns the status of a request that cannot be executed.
    pub(crate) fn fault(&self) -> Option<WcStatus> {
        if let Operands::Fault(status) = self.operands { Some(status) } else { None }
    }

    /// Returns the PSN after its last packet.
    pub(crate) fn end_psn(&self) -> Psn {
        self.span.first_psn.plus(self.span.packet_count)
    }

    pub(crate) fn is_inline(&self) -> bool {
        self.flags.contains(SendFlags::INLINE)
    }

    /// Returns the properties of the operation.
    #[inline]
    pub(crate) fn info(&self) -> &'static WrInfo {
        self.info
    }

    /// Reports whether it is executed locally, without a packet.
    #[inline]
    pub(crate) fn is_local(&self) -> bool {
        self.info().class == WrClass::Local
    }

    /// Reports whether it is answered by a response of its own.
    #[inline]
    pub(crate) fn needs_response(&self) -> bool {
        self.info().needs_response()
    }
}

/// Ring of send WQEs. Entries are numbered from 0 for the life of the queue pair; their memory is reused.
/// Posting one buffer or short inline data allocates nothing after [`SendQueue::make_room`].
#[derive(Debug)]
pub(crate) struct SendQueue {
    entries: Vec<SendWqe>,
    capacity: u32,
    head: u64,
    tail: u64,
    /// Index in `entries` of the oldest entry, or of the next one if the queue is empty.
    head_position: usize,
    /// Number after that of the newest signaled entry.
    signaled_end: u64,
    /// Multicast group of the last datagram that has ended, if it went to one.
    group: Option<IpAddr>,
}

impl SendQueue {
    pub(crate) fn new(capacity: u32) -> SendQueue {
        SendQueue {
            entries: Vec::new(),
            capacity,
            head: 0,
            tail: 0,
            head_position: 0,
            signaled_end: 0,
            group: None,
        }
    }

    /// Allocates memory for all entries.
    ///
    /// # Errors
    /// Fails if there is no memory for them.
    pub(crate) fn make_room(&mut self) -> Result<(), TryReserveError> {
        self.entries.try_reserve_exact((self.capacity as usize).saturating_sub(self.entries.len()))
    }

    /// Takes over the capacity and the memory, but no entry, of a queue that ends.
    pub(crate) fn take_room_of(&mut self, ended: &mut SendQueue) {
        self.capacity = ended.capacity;
        self.entries = core::mem::take(&mut ended.entries);
        self.entries.clear();
    }

    /// Returns the number of the oldest entry.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Returns the number that the next posted entry gets.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    pub(crate) fn is_full(&self) -> bool {
        self.tail - self.head >= u64::from(self.capacity)
    }

    /// Returns the index in `entries` of an entry whose number is at most that of the newest one plus one. It
    /// avoids a division, because it is called some ten times for each request.
    #[inline]
    fn position(&self, number: u64) -> usize {
        let position = self.head_position + number.wrapping_sub(self.head) as usize;
        let capacity = self.capacity as usize;
        if position >= capacity { position - capacity } else { position }
    }

    /// Counts the newest requests in sequence that make no completion if they succeed.
    #[cold]
    pub(crate) fn unsignaled(&self) -> u64 {
        self.tail.saturating_sub(self.signaled_end)
    }

    /// Reports whether all of the newest `count` requests make no completion if they succeed.
    #[cold]
    pub(crate) fn is_unsignaled(&self, count: u32) -> bool {
        self.unsignaled() >= u64::from(count)
    }

    /// Returns the multicast group of the last datagram that has ended, if it went to one.
    #[cold]
    pub(crate) fn group(&self) -> Option<IpAddr> {
        self.group
    }

    /// Returns entry `number`, if it is in the queue.
    #[inline]
    pub(crate) fn entry(&self, number: u64) -> Option<&SendWqe> {
        if number < self.head || number >= self.tail {
            return None;
        }
        self.entries.get(self.position(number))
    }

    pub(crate) fn entry_mut(&mut self, number: u64) -> Option<&mut SendWqe> {
        if number < self.head || number >= self.tail {
            return None;
        }
        let position = self.position(number);
        self.entries.get_mut(position)
    }

    /// Copies a request into the next entry. The caller has checked that the queue is not full.
    ///
    /// # Errors
    /// Fails if there is no memory for its buffers or data; the queue is as before.
    pub(crate) fn push(
        &mut self,
        request: &SendRequest<'_>,
        signaled: bool,
        length_bytes: u32,
        first_psn: Psn,
        packet_count: u32,
    ) -> Result<(), TryReserveError> {
        let position = self.position(self.tail);
        while self.entries.len() <= position {
            self.entries.push(SendWqe::empty());
        }
        if let Some(wqe) = self.entries.get_mut(position) {
            wqe.fill(request, signaled, length_bytes, first_psn, packet_count)?;
            self.tail += 1;
            if signaled {
                self.signaled_end = self.tail;
            }
        }
        Ok(())
    }

    /// Copies a request of one packet that leaves by a lane into the next entry, as [`SendQueue::push`] does.
    /// Returns false, and changes nothing, if its data would need memory of its own. The caller has checked
    /// that the queue is not full.
    #[inline]
    pub(crate) fn push_by_lane(&mut self, send: &LaneSend<'_>, signaled: bool, first_psn: Psn) -> bool {
        let position = self.position(self.tail);
        while self.entries.len() <= position {
            self.entries.push(SendWqe::empty());
        }
        let Some(wqe) = self.entries.get_mut(position) else { return false };
        if !wqe.data.set_by_lane(&send.data) {
            return false;
        }
        wqe.operands = Operands::None;
        wqe.wr_id = send.wr_id;
        wqe.opcode = send.opcode;
        wqe.info = send.opcode.info();
        wqe.flags = send.flags;
        wqe.signaled = signaled;
        wqe.executed = false;
        wqe.completes_as = None;
        wqe.span = SendSpan { first_psn, packet_count: 1, length_bytes: send.data.length_bytes() as u32 };
        wqe.imm_data = send.imm_data;
        wqe.invalidate_rkey = 0;
        wqe.xrc_srqn = 0;
        wqe.remote = send.remote;
        self.tail += 1;
        if signaled {
            self.signaled_end = self.tail;
        }
        true
    }

    /// Marks the newest entry as one that cannot be executed.
    pub(crate) fn fault_newest(&mut self, status: WcStatus) {
        if let Some(wqe) = self.tail.checked_sub(1).and_then(|newest| self.entry_mut(newest)) {
            wqe.operands = Operands::Fault(status);
        }
    }

    /// Removes the oldest entry.
    pub(crate) fn pop(&mut self) {
        if self.head < self.tail {
            if let Some(wqe) = self.entries.get_mut(self.head_position)
                && !matches!(wqe.operands, Operands::None)
                && let Operands::Datagram(ud) = core::mem::replace(&mut wqe.operands, Operands::None)
            {
                let to = ud.path.flow.destination;
                self.group = (ud.qpn == Qpn::MULTICAST && to.is_multicast()).then_some(to);
            }
            self.head_position = self.position(self.head + 1);
            self.head += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_two_lines_of_cache() {
        assert!(size_of::<SendWqe>() <= 128, "{}", size_of::<SendWqe>());
    }
}
