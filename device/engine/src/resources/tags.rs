//! Matching of tags: operations on the lists of shared receive queues, the buffers of messages, and what
//! queue pairs read for a rendezvous.
//!
//! The send queue of a queue pair whose shared receive queue matches tags is the device's: it reads the
//! payload of a rendezvous, and then tells the sender. Its requests complete on no completion queue.

use pumice_platform::error::ResourceError;
use pumice_platform::table::Handle;
use pumice_transport::host::{NoRecv, QpContext, RecvWqe, Tagged, TaggedStart};
use pumice_transport::types::{
    QpCapacity, QpType, RemoteTarget, WcFlags, WcOpcode, WcStatus, WorkCompletion,
};
use pumice_transport::wire::Qpn;

use super::rendezvous::{AllRendezvous, DeviceRequest, FINISHED, Rendezvous, Step};
use super::tables::{ObjectTables, Receives, Resources};
use crate::decisions::PendingCompletion;
use crate::objects::srq::SrqTake;
use crate::objects::tag_list::{
    MAX_TAG_SGE, MAX_TAGS, RENDEZVOUS_HEADER_BYTES, TAG_HEADER_BYTES, TagBuffer, TagChange, TagHeader,
    TagList, TagMessage, TagOperation, TagSetup,
};
use pumice_memory::MappingCheck;

/// Number of requests that a queue pair has under way for its shared receive queue: each rendezvous is a READ
/// and a message.
pub(crate) const TAG_REQUESTS: u32 = 64;
/// Number of rendezvous of all queue pairs that are not over; further ones are left to the program.
const MAX_RENDEZVOUS: usize = 4096;
impl Resources {
    /// Checks the list of tags of a shared receive queue that is being made. Returns its parameters.
    pub(super) fn check_tags(&self, cq: Handle, max_tags: u32) -> Result<TagSetup, ResourceError> {
        self.objects.cqs.require(cq)?;
        super::tables::check_size("number of tags", max_tags, 1, MAX_TAGS)?;
        Ok(TagSetup { cq: cq.index, max_tags })
    }

    /// Executes an operation on the list of tags of a shared receive queue. Returns the handle of a buffer
    /// that it added.
    ///
    /// # Errors
    /// `Invalid`: a stale handle, no list, too many elements. `NoMemory`: the list is full. Nothing is
    /// changed.
    pub fn change_tags(&mut self, srq: Handle, operation: TagOperation) -> Result<u32, ResourceError> {
        let tags = self.objects.srq_mut(srq)?.tags_mut().ok_or_else(|| {
            ResourceError::invalid("the shared receive queue matches no tags (IBV_SRQT_TM)")
        })?;
        let TagOperation { wr_id, signaled, handled, change } = operation;
        if let Some(handled) = handled {
            tags.sync(handled);
        }
        let (mut handle, mut status) = (0, WcStatus::Success);
        let opcode = match change {
            TagChange::Add(buffer) => {
                handle = tags.add(buffer)?;
                WcOpcode::TagAdd
            }
            TagChange::Delete(which) => {
                if !tags.delete(which) {
                    status = WcStatus::TmErr;
                }
                WcOpcode::TagDelete
            }
            TagChange::None => WcOpcode::TagSync,
        };
        let flags = if tags.wants_sync() { WcFlags::TAG_SYNC_WANTED } else { WcFlags::empty() };
        let cq = tags.cq();
        if signaled || status != WcStatus::Success {
            self.push_note(cq, WorkCompletion { wr_id, status, opcode, flags, ..WorkCompletion::default() });
        }
        Ok(handle)
    }

    /// Chooses the buffers of a message whose shared receive queue matches tags.
    #[cold]
    pub(super) fn match_message(
        &mut self,
        qp: &QpContext,
        start: TaggedStart<'_>,
        into: &mut RecvWqe,
    ) -> Result<(), NoRecv> {
        let header = TagHeader::parse(start.payload);
        let tags = self.tags_at(qp.recv_queue).ok_or(NoRecv::Empty)?;
        into.cq = tags.cq();
        let matched = match header.message {
            TagMessage::Untagged => None,
            _ => tags.take(header.tag),
        };
        let Some(buffer) = matched else {
            let is_tagged = header.message != TagMessage::Untagged;
            if self.take_shared(qp.recv_queue, into) == SrqTake::Empty {
                return Err(NoRecv::Empty);
            }
            if let Some(tags) = self.tags_at(qp.recv_queue).filter(|_| is_tagged) {
                tags.is_unexpected();
            }
            // The program reads the tag in the message.
            into.tagged = Tagged { tag: is_tagged.then_some((0, 0)), ..Tagged::default() };
            return Ok(());
        };
        let pd = self.shared(qp.recv_queue).map_or(qp.pd, |srq| srq.pd());
        (into.wr_id, into.pd) = (buffer.wr_id, pd);
        let mut tagged = Tagged { tag: Some((header.tag, header.context)), ..Tagged::default() };
        match header.message {
            TagMessage::Rendezvous(source, length) => {
                let wanted = WcFlags::TAG_MATCH;
                (tagged.flags, tagged.header_bytes) = (wanted, u32::MAX);
                if !self.begin_rendezvous(qp, (source, length), &buffer, start.payload, into.cq) {
                    tagged.status = WcStatus::TmRndvIncomplete;
                    let headers = start.payload.get(..RENDEZVOUS_HEADER_BYTES).unwrap_or_default();
                    // What does not fit is not stored: the status says that the program goes on.
                    let _ = self.objects.memory.scatter(pd, &buffer.sges, 0, headers, MappingCheck::ByKernel);
                }
                into.sges.clear();
                into.length_bytes = 0;
            }
            _ => {
                tagged.header_bytes = TAG_HEADER_BYTES as u32;
                tagged.flags = WcFlags::TAG_DATA_VALID;
                if start.is_whole {
                    tagged.flags |= WcFlags::TAG_MATCH;
                } else {
                    self.report_match(qp, &buffer, &header, into.cq);
                }
                into.length_bytes = buffer.length_bytes();
                into.sges = buffer.sges;
            }
        }
        into.tagged = tagged;
        Ok(())
    }

    /// Makes the completion that tells of the match of a message that has more packets.
    fn report_match(&mut self, qp: &QpContext, buffer: &TagBuffer, header: &TagHeader, cq: u32) {
        let mut completion = completion_of(qp, buffer.wr_id);
        completion.flags = WcFlags::TAG_MATCH;
        completion.set_tag(header.tag, header.context);
        self.complete_in_turn(qp, PendingCompletion { cq, completion, released: 0, solicited: false });
    }

    /// Notes a rendezvous whose payload the queue pair shall read. Returns false if the buffer is too short
    /// for it, or too many are under way.
    fn begin_rendezvous(
        &mut self,
        qp: &QpContext,
        (source, length_bytes): (RemoteTarget, u32),
        buffer: &TagBuffer,
        message: &[u8],
        cq: u32,
    ) -> bool {
        let headers = message.get(..RENDEZVOUS_HEADER_BYTES).and_then(|bytes| bytes.try_into().ok());
        let Some(mut headers): Option<[u8; RENDEZVOUS_HEADER_BYTES]> = headers else { return false };
        if u64::from(length_bytes) > buffer.length_bytes() || self.rendezvous.all.len() >= MAX_RENDEZVOUS {
            return false;
        }
        headers[0] = FINISHED;
        let mut left = length_bytes;
        let mut sges = buffer.sges.clone();
        sges.iter_mut().for_each(|sge| {
            sge.length = sge.length.min(left);
            left -= sge.length;
        });
        // The tag was in the completion of the match, as adapters have it.
        let mut completion = completion_of(qp, buffer.wr_id);
        (completion.flags, completion.byte_len) = (WcFlags::TAG_DATA_VALID, length_bytes);
        let AllRendezvous { all, made, is_due } = &mut self.rendezvous;
        (*made, *is_due) = (made.wrapping_add(1), true);
        let (qpn, number, step) = (qp.qpn, *made, Step::Begins);
        all.push(Rendezvous { qpn, number, step, source, sges, headers, completion, cq });
        true
    }

    /// Returns the first request that has to be posted of the rendezvous from an index on, with the index
    /// behind it.
    pub(crate) fn device_request(&self, from: usize) -> Option<(usize, DeviceRequest)> {
        let mut rest = self.rendezvous.all.iter().enumerate().skip(from);
        let (index, one) = rest.find(|(_, one)| one.step != Step::Reads)?;
        let answer = (one.step == Step::Answers).then_some(one.headers);
        let (qpn, number, remote) = (one.qpn, one.number, one.source);
        Some((index + 1, DeviceRequest { qpn, number, remote, sges: one.sges.clone(), answer }))
    }

    /// Notes that a request of the device was posted; the rendezvous is over with its answer.
    pub(crate) fn device_request_posted(&mut self, request: &DeviceRequest) {
        let all = &mut self.rendezvous.all;
        if request.answer.is_some() {
            all.retain(|one| one.number != request.number);
        } else if let Some(one) = all.iter_mut().find(|one| one.number == request.number) {
            one.step = Step::Reads;
        }
    }

    /// Ends a rendezvous with an error: its queue pair takes no request.
    pub(crate) fn device_request_refused(&mut self, qp: &QpContext, request: &DeviceRequest) {
        self.read_ended(qp, request.number, WcStatus::LocQpOpErr);
    }

    /// Handles the completion of a request of a queue pair that has no completion queue for sends.
    #[cold]
    pub(super) fn device_request_ended(&mut self, qp: &QpContext, completion: &WorkCompletion) {
        self.rendezvous.is_due = !self.rendezvous.all.is_empty();
        if completion.opcode == WcOpcode::RdmaRead {
            self.read_ended(qp, completion.wr_id, completion.status);
        }
    }

    fn read_ended(&mut self, qp: &QpContext, number: u64, status: WcStatus) {
        let all = &mut self.rendezvous.all;
        let Some(index) = all.iter().position(|one| one.number == number && one.qpn == qp.qpn) else {
            return;
        };
        let Some(one) = all.get_mut(index) else { return };
        let (mut completion, cq, was) = (one.completion, one.cq, one.step);
        one.step = Step::Answers;
        if status != WcStatus::Success {
            all.remove(index);
            completion.vendor_err = self.completions.failures.vendor_err(status, true);
        }
        if was != Step::Answers {
            completion.status = status;
            self.complete_in_turn(qp, PendingCompletion { cq, completion, released: 0, solicited: false });
        }
    }

    /// Forgets what a queue pair has to read.
    pub(super) fn forget_rendezvous(&mut self, qpn: Qpn) {
        self.rendezvous.all.retain(|one| one.qpn != qpn);
    }

    fn tags_at(&mut self, slot: u32) -> Option<&mut TagList> {
        match self.objects.receives.at_mut(slot)? {
            Receives::Shared(srq) => srq.tags_mut(),
            Receives::Own(_) => None,
        }
    }
}

/// Returns the completion of a message for which a buffer with its tag was found.
fn completion_of(qp: &QpContext, wr_id: u64) -> WorkCompletion {
    let (opcode, qp_num) = (WcOpcode::TagRecv, qp.qpn.value());
    WorkCompletion { wr_id, opcode, qp_num, ..WorkCompletion::default() }
}

impl ObjectTables {
    /// Returns the sizes of a queue pair whose shared receive queue matches tags.
    pub(super) fn check_tag_capacity(
        &self,
        qp_type: QpType,
        capacity: QpCapacity,
    ) -> Result<QpCapacity, ResourceError> {
        if qp_type != QpType::Rc || capacity.max_send_wr != 0 {
            return Err(ResourceError::invalid(
                "only RC queue pairs with max_send_wr 0 use an SRQ that matches tags: it sends on their send \
                 queues",
            ));
        }
        let max_inline_data = capacity.max_inline_data.max(RENDEZVOUS_HEADER_BYTES as u32);
        Ok(QpCapacity { max_send_sge: MAX_TAG_SGE.min(self.limits.max_sge), max_inline_data, ..capacity })
    }

    /// Reports whether a shared receive queue matches tags.
    pub(crate) fn matches_tags(&self, srq: Option<Handle>) -> bool {
        srq.and_then(|srq| self.srq(srq).ok()).is_some_and(|srq| srq.tags().is_some())
    }
}
