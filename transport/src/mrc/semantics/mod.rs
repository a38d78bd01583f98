//! Messages: how they are cut into packets, in which order they complete, and with which result.
//!
//! Messages of a requester, which are posted, cut into packets, and completed in order.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::host::{Host, MemoryError, QpContext};
use crate::mrc::constants::FIRST_MSN;
use crate::mrc::wire::{Meth, MrcOpcode, WriteHeaders};
use crate::types::{
    RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge, WcOpcode, WcStatus, WorkCompletion,
};
use crate::wire::{ImmDt, Reth};

#[derive(Debug, Clone)]
enum PayloadSource {
    Inline(Vec<u8>),
    Buffers(Vec<Sge>),
}

#[derive(Debug)]
struct SendMessage {
    wr_id: u64,
    is_signaled: bool,
    solicited: bool,
    imm: Option<[u8; 4]>,
    source: PayloadSource,
    remote: RemoteTarget,
    length: u32,
    /// Ordinal of the request, from 0.
    ordinal: u64,
    opcode: SendOpcode,
    /// Number of the first packet.
    first: u64,
    packets: u64,
    msn: u16,
    rqmsn: u16,
}

/// A packet of a message, ready to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planned {
    pub(crate) opcode: MrcOpcode,
    pub(crate) solicited: bool,
    /// Headers of the packet, without a time stamp.
    pub(crate) write: WriteHeaders,
    pub(crate) payload_bytes: usize,
    /// Ordinal of the message.
    pub(crate) ordinal: u64,
    message: usize,
    offset: u64,
}

/// A request that was posted: its place among the requests and packets of the queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PostedMessage {
    pub(crate) ordinal: u64,
    /// Number of its first packet.
    pub(crate) first: u64,
    pub(crate) packets: u64,
}

/// A request that failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailedMessage {
    pub(crate) wr_id: u64,
    pub(crate) opcode: SendOpcode,
    pub(crate) length: u32,
    pub(crate) remote: RemoteTarget,
}

#[derive(Debug)]
pub(crate) struct MrcSendQueue {
    messages: VecDeque<SendMessage>,
    capacity: usize,
    mtu_bytes: u32,
    /// Index of the message that is being cut. `cut` is the number of its packets that were cut.
    cutting: usize,
    cut: u64,
    /// Number of the next packet.
    next: u64,
    next_msn: u16,
    next_rqmsn: u16,
    /// Ordinal of the next request, and the number of its first packet.
    next_ordinal: u64,
    next_first: u64,
    max_wimm: u16,
    /// Number of WRITEs with immediate that were begun and have not completed.
    wimm_in_flight: u16,
    /// Number of requests that ended unsignaled since the last completion.
    unsignaled: u32,
    /// Number of messages that have ended, modulo 2^24.
    completed: u32,
}

impl MrcSendQueue {
    pub(crate) fn new(capacity: u32, mtu_bytes: u32, max_wimm: u16) -> MrcSendQueue {
        MrcSendQueue {
            messages: VecDeque::new(),
            capacity: capacity as usize,
            mtu_bytes,
            cutting: 0,
            cut: 0,
            next: 0,
            next_msn: FIRST_MSN,
            next_rqmsn: FIRST_MSN,
            next_ordinal: 0,
            next_first: 0,
            max_wimm: max_wimm.max(1),
            wimm_in_flight: 0,
            unsignaled: 0,
            completed: 0,
        }
    }

    /// Reports whether no further request fits.
    pub(crate) fn is_full(&self) -> bool {
        self.messages.len() + self.unsignaled as usize >= self.capacity
    }

    /// Reports whether every request in the queue is unsignaled, so that no completion will free one.
    pub(crate) fn all_unsignaled(&self) -> bool {
        self.messages.iter().all(|message| !message.is_signaled)
    }

    /// Returns the number of requests that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Adds a request of this length.
    pub(crate) fn post(
        &mut self,
        request: &SendRequest<'_>,
        length: u32,
        imm: Option<[u8; 4]>,
    ) -> PostedMessage {
        let posted = self.count(length);
        let source = if request.flags.contains(SendFlags::INLINE) {
            PayloadSource::Inline(request.inline_data.to_vec())
        } else {
            PayloadSource::Buffers(request.sges.to_vec())
        };
        let msn = self.next_msn;
        self.next_msn = msn.wrapping_add(1);
        let mut rqmsn = 0;
        if imm.is_some() {
            rqmsn = self.next_rqmsn;
            self.next_rqmsn = rqmsn.wrapping_add(1);
        }
        self.messages.push_back(SendMessage {
            wr_id: request.wr_id,
            is_signaled: request.flags.contains(SendFlags::SIGNALED),
            solicited: request.flags.contains(SendFlags::SOLICITED),
            imm,
            source,
            remote: request.remote,
            length,
            ordinal: posted.ordinal,
            opcode: request.opcode,
            first: posted.first,
            packets: posted.packets,
            msn,
            rqmsn,
        });
        posted
    }

    /// Counts a request of this length, which takes an ordinal and PSNs.
    pub(crate) fn count(&mut self, length: u32) -> PostedMessage {
        let packets = u64::from(length.div_ceil(self.mtu_bytes).max(1));
        let posted = PostedMessage { ordinal: self.next_ordinal, first: self.next_first, packets };
        self.next_ordinal += 1;
        self.next_first += packets;
        posted
    }

    /// Returns the number of requests that were posted.
    pub(crate) fn posted(&self) -> u64 {
        self.next_ordinal
    }

    /// Returns the number of requests that no completion has ended.
    pub(crate) fn unreported(&self) -> u64 {
        self.messages.len() as u64 + u64::from(self.unsignaled)
    }

    /// Reports whether the peer has completed a message.
    pub(crate) fn has_completed(&self) -> bool {
        self.completed > 0
    }

    /// Returns the request of a packet, or the one that is being cut.
    pub(crate) fn failed(&self, number: u64) -> Option<FailedMessage> {
        let message = self.messages.get(self.failed_index(number)?)?;
        let SendMessage { wr_id, opcode, length, remote, .. } = *message;
        Some(FailedMessage { wr_id, opcode, length, remote })
    }

    fn failed_index(&self, number: u64) -> Option<usize> {
        self.find(number).or((number == self.next).then_some(self.cutting))
    }

    /// Reports whether a new packet may be cut: there is one, and its message may be in flight.
    pub(crate) fn can_cut(&self) -> bool {
        let message = self.messages.get(self.cutting);
        message.is_some_and(|message| {
            self.cut > 0 || message.imm.is_none() || self.wimm_in_flight < self.max_wimm
        })
    }

    /// Reports whether the next packet is the last one of all posted messages.
    pub(crate) fn is_last_cut(&self) -> bool {
        let message = self.messages.get(self.cutting);
        message.is_none_or(|message| self.cut + 1 >= message.packets)
            && self.cutting + 1 >= self.messages.len()
    }

    /// Returns the next new packet.
    pub(crate) fn peek(&self) -> Option<Planned> {
        if self.can_cut() { self.plan(self.cutting, self.cut) } else { None }
    }

    /// Records that the packet returned by [`MrcSendQueue::peek`] was sent.
    pub(crate) fn advance(&mut self) {
        let Some(message) = self.messages.get_mut(self.cutting) else { return };
        if self.cut == 0 {
            self.wimm_in_flight += u16::from(message.imm.is_some());
        }
        self.next += 1;
        self.cut += 1;
        if self.cut == message.packets {
            (self.cutting, self.cut) = (self.cutting + 1, 0);
        }
    }

    /// Returns the index of the message of a packet that was cut.
    fn find(&self, number: u64) -> Option<usize> {
        let begun = self.cutting + usize::from(self.cut > 0);
        if number >= self.next {
            return None;
        }
        let (mut low, mut high) = (0, begun);
        while low < high {
            let middle = low.midpoint(high);
            match self.messages.get(middle) {
                Some(message) if message.first <= number => low = middle + 1,
                _ => high = middle,
            }
        }
        low.checked_sub(1)
    }

    /// Returns a packet that was cut before.
    pub(crate) fn again(&self, number: u64) -> Option<Planned> {
        let index = self.find(number)?;
        self.plan(index, number - self.messages.get(index)?.first)
    }

    /// Returns the number of the last packet of the oldest message, if that packet was cut.
    pub(crate) fn last_of_oldest(&self) -> Option<u64> {
        let oldest = self.messages.front().filter(|_| self.cutting > 0)?;
        Some(oldest.first + oldest.packets - 1)
    }

    fn plan(&self, index: usize, packet: u64) -> Option<Planned> {
        let message = self.messages.get(index)?;
        let mtu = u64::from(self.mtu_bytes);
        let offset = packet * mtu;
        let is_last = packet + 1 == message.packets;
        let opcode = MrcOpcode::of_write(packet == 0, is_last, message.imm.is_some());
        let left = u64::from(message.length).saturating_sub(offset);
        let reth = Reth {
            address: message.remote.address.wrapping_add(offset),
            rkey: message.remote.rkey,
            length: message.length,
        };
        let imm = message.imm.filter(|_| is_last).map(ImmDt);
        let meth = Meth { rqmsn: message.rqmsn, msn: message.msn };
        Some(Planned {
            opcode,
            solicited: message.solicited && is_last,
            write: WriteHeaders { meth, tseth: None, reth, imm },
            payload_bytes: left.min(mtu) as usize,
            ordinal: message.ordinal,
            message: index,
            offset,
        })
    }

    /// Copies the data of a packet.
    pub(crate) fn gather<H: Host>(
        &self,
        context: &QpContext,
        planned: &Planned,
        out: &mut [u8],
        host: &mut H,
    ) -> Result<(), MemoryError> {
        let message = self.messages.get(planned.message).ok_or(MemoryError::OutOfRange)?;
        match &message.source {
            _ if out.is_empty() => Ok(()),
            PayloadSource::Buffers(sges) => host.gather(context.pd, sges, planned.offset, out),
            PayloadSource::Inline(bytes) => {
                let start = usize::try_from(planned.offset).unwrap_or(usize::MAX);
                let data = bytes.get(start..start.saturating_add(out.len()));
                out.copy_from_slice(data.ok_or(MemoryError::OutOfRange)?);
                Ok(())
            }
        }
    }

    /// Reports whether all packets of the oldest message are below this number.
    pub(crate) fn covers(&self, below: u64) -> bool {
        let is_covered = |message: &SendMessage| message.first + message.packets <= below;
        self.cutting > 0 && self.messages.front().is_some_and(is_covered)
    }

    /// Completes the messages whose packets are all below this number, which the peer has acknowledged.
    /// Reports whether there are any.
    pub(crate) fn acknowledge<H: Host>(&mut self, context: &QpContext, below: u64, host: &mut H) -> bool {
        let mut ended = false;
        while self.covers(below) {
            self.end_oldest(context, WcStatus::Success, host);
            ended = true;
        }
        ended
    }

    /// Completes the messages before that of a packet which the peer has completed, if its count agrees with
    /// this side's.
    pub(crate) fn acknowledge_count<H: Host>(
        &mut self,
        context: &QpContext,
        completed: u32,
        number: u64,
        host: &mut H,
    ) {
        let ahead = completed.wrapping_sub(self.completed) & 0xff_ffff;
        if self.find(number).is_none_or(|before| ahead as usize > before) {
            return;
        }
        (0..ahead).for_each(|_| self.end_oldest(context, WcStatus::Success, host));
    }

    fn end_oldest<H: Host>(&mut self, context: &QpContext, status: WcStatus, host: &mut H) {
        let Some(message) = self.messages.pop_front() else { return };
        if self.cutting > 0 {
            self.cutting -= 1;
            self.wimm_in_flight = self.wimm_in_flight.saturating_sub(u16::from(message.imm.is_some()));
        } else {
            self.cut = 0;
        }
        self.completed = (self.completed + 1) & 0xff_ffff;
        if !message.is_signaled && status == WcStatus::Success {
            self.unsignaled += 1;
            return;
        }
        let released = core::mem::take(&mut self.unsignaled) + 1;
        let completion = WorkCompletion {
            wr_id: message.wr_id,
            status,
            opcode: WcOpcode::RdmaWrite,
            byte_len: message.length,
            qp_num: context.qpn.value(),
            ..WorkCompletion::default()
        };
        host.complete_send(context, completion, released);
    }

    /// Completes all messages: that of a packet with a status, all others as flushed.
    pub(crate) fn fail<H: Host>(
        &mut self,
        context: &QpContext,
        number: Option<u64>,
        status: WcStatus,
        host: &mut H,
    ) {
        let failed = number.and_then(|number| self.failed_index(number));
        for index in 0..self.messages.len() {
            let status = if failed == Some(index) { status } else { WcStatus::WrFlushErr };
            self.end_oldest(context, status, host);
        }
    }
}

mod receive;

pub(super) use receive::{Delivered, HeaderSlot, ReceiveOrder, check_packet};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mrc::semantics::receive::check_packet;
    use crate::proofs::check;

    /// Checks that the packets of a message of any length pass the responder's checks and have consecutive
    /// addresses.
    #[test]
    fn packets_of_any_message_are_right() {
        check(|from| {
            let mtu = from.one_of(&[256, 1024, 4096]);
            let magnitude = from.between(1, 32);
            let length = from.up_to(1 << magnitude).min(u32::MAX.into()) as u32;
            let address = from.u64();
            let mut queue = MrcSendQueue::new(4, mtu, 1);
            let request = SendRequest {
                remote: RemoteTarget { address, rkey: 7 },
                ..SendRequest::new(1, SendOpcode::RdmaWriteWithImm)
            };
            queue.post(&request, length, Some([1; 4]));
            let count = u64::from(length.div_ceil(mtu).max(1));
            let packet = from.up_to(count - 1);
            let planned = queue.plan(0, packet).unwrap();
            assert_eq!(check_packet(planned.opcode, length, planned.payload_bytes, mtu), Ok(()));
            assert_eq!(planned.write.reth.address, address.wrapping_add(packet * u64::from(mtu)));
            let info = planned.opcode.info();
            assert_eq!((info.is_first, info.is_last), (packet == 0, packet + 1 == count));
            assert_eq!(planned.write.imm.is_some(), info.is_last);
            assert!(queue.plan(1, 0).is_none());
        });
    }

    #[test]
    fn numbers_lead_to_their_messages() {
        let mut queue = MrcSendQueue::new(8, 256, 8);
        for length in [0, 300, 1000, 256] {
            queue.post(&SendRequest::new(u64::from(length), SendOpcode::RdmaWrite), length, None);
        }
        let mut cut = 0;
        while queue.peek().is_some() {
            queue.advance();
            cut += 1;
        }
        let found: Vec<Option<usize>> = (0..cut + 1).map(|number| queue.find(number)).collect();
        let expected = [0, 1, 1, 2, 2, 2, 2, 3].map(Some);
        assert_eq!((&found[..8], found[8], cut), (&expected[..], None, 8));
    }
}
