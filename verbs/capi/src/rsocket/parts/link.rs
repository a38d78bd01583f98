//! A queue pair with its completion queue and its memory, to which a stream's transfers are posted.

use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use pumice_device::hca::Hca;
use pumice_device::objects::completion_channel::CompletionChannel;
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::outside;
use pumice_transport::types::{
    RecvRequest, RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge, WcOpcode, WcStatus, WorkCompletion,
};
use pumice_transport::wire::Qpn;

use super::buffers::{BIG_ENDIAN, BufferRegion, Buffers, LOCAL, WRITTEN_BY_PEERS};
use super::identifier::SocketId;
use crate::abi::ibv_qp_init_attr;
use crate::abi::plain::zeroed;
use crate::platform::Errno;
use crate::rdma_cm::calls::queue_pair::create;
use crate::rdma_cm::constants::QPT_RC;
use crate::rdma_cm::id::objects::{CompletionObjects, queue_pair_number};
use crate::rdma_cm::id::queue_pair::destroy;
use crate::rsocket::protocol::TABLE_ENTRIES;
use crate::rsocket::protocol::halves::Transfer;
use crate::rsocket::protocol::headers::ConnectionData;
use crate::rsocket::protocol::ring::{Mapping, RemoteBuffer, RsMessage};
use crate::rsocket::protocol::stream::{ControlMessage, StreamSizes};

/// Largest number of bytes that are copied into a request, even if the program asks for more.
pub(crate) const MAX_INLINE: u32 = 512;
/// Number of completions that are taken at a time.
const BATCH: usize = 16;

/// Kind of a request, in its number, together with the length of the ring's part that it frees.
const DATA: u64 = 1 << 32;
const CONTROL: u64 = 2 << 32;
const DISCONNECT: u64 = 3 << 32;

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkCompletion {
    /// The peer has sent a word, with a message that wrote this many bytes.
    RsMessage(RsMessage, u32),
    /// Data has arrived at the peer, and this many bytes of the ring are free.
    Data(u32),
    /// A word of the protocol has arrived at the peer; true if it was the last one.
    ControlMessage(bool),
    /// A request failed, with this errno.
    Failed(i32),
    /// A receive request was flushed.
    Flushed,
}

/// Parameters of a queue pair.
pub(crate) struct LinkParameters {
    /// Type of the queue pair (`IBV_QPT_*`).
    pub(crate) kind: u32,
    pub(crate) sends: u16,
    pub(crate) receives: u16,
    pub(crate) receive_elements: u32,
    pub(crate) inline: u32,
}

/// Completion queue and channel, which are destroyed after the queue pair.
struct OwnedCompletions(CompletionObjects);

impl Drop for OwnedCompletions {
    fn drop(&mut self) {
        self.0.acknowledge_all();
        self.0.destroy();
    }
}

/// The queue pair of an identifier.
struct OwnedQueuePair(Arc<SocketId>);

impl Drop for OwnedQueuePair {
    fn drop(&mut self) {
        destroy(self.0.id());
    }
}

/// A queue pair with its completion queue and channel. The fields are dropped from the first to the last.
pub(crate) struct LinkQueuePair {
    _own: OwnedQueuePair,
    _completions: OwnedCompletions,
    pub(crate) hca: &'static Hca,
    pub(crate) queue: Arc<CompletionQueue>,
    pub(crate) events: Arc<CompletionChannel>,
    pub(crate) number: Qpn,
}

impl LinkQueuePair {
    /// Creates the queue pair of an identifier that is on the device, with one completion queue and its
    /// channel.
    ///
    /// # Errors
    /// Fails with the errors of making the objects.
    pub(crate) fn new(id: &Arc<SocketId>, parameters: &LinkParameters) -> Result<LinkQueuePair, Errno> {
        let shared = id.id().shared()?;
        let depth = i32::from(parameters.sends) + i32::from(parameters.receives);
        let completions = CompletionObjects::create(shared.context(), depth, ptr::null_mut())?;
        let guard = OwnedCompletions(completions);
        let mut attributes = ibv_qp_init_attr {
            send_cq: completions.cq(),
            recv_cq: completions.cq(),
            qp_type: parameters.kind,
            sq_sig_all: 1,
            ..zeroed()
        };
        attributes.cap.max_send_wr = parameters.sends.into();
        attributes.cap.max_recv_wr = parameters.receives.into();
        attributes.cap.max_send_sge = 2;
        attributes.cap.max_recv_sge = parameters.receive_elements;
        attributes.cap.max_inline_data = parameters.inline;
        create(id.id(), shared.pd(), &mut attributes)?;
        let own = OwnedQueuePair(Arc::clone(id));
        let (number, _) = queue_pair_number(id.id().c.qp())?;
        let (queue, events) = completions.objects()?;
        let hca = shared.hca();
        Ok(LinkQueuePair { _own: own, _completions: guard, hca, queue, events, number: Qpn::new(number) })
    }

    /// Returns its descriptor, which is readable when a requested event has come.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.events.as_fd().as_raw_fd()
    }

    /// Requests an event with the next completion.
    pub(crate) fn arm(&self) {
        self.hca.req_notify_cq(&self.queue, false);
    }

    /// Takes the event, if it has come; returns whether it had.
    pub(crate) fn take_event(&self) -> bool {
        let has_event = self.events.try_event().is_some();
        if has_event {
            self.queue.ack_events(1);
        }
        has_event
    }
}

/// A link. Its fields are dropped from the first to the last.
pub(crate) struct StreamLink {
    pub(crate) queue_pair: LinkQueuePair,
    /// Largest number of data bytes that are copied into a request.
    pub(crate) inline: u32,
    pub(crate) outgoing: BufferRegion,
    pub(crate) incoming: BufferRegion,
    /// Tables that the peer writes: buffers, then mappings.
    pub(crate) tables: BufferRegion,
    sizes: StreamSizes,
    maps: u16,
}

impl StreamLink {
    /// Creates the link of an identifier that is on the device: its queue pair, and the memory for it.
    ///
    /// # Errors
    /// Fails with the errors of making the objects.
    pub(crate) fn new(
        id: &Arc<SocketId>,
        sizes: &StreamSizes,
        inline: u32,
        maps: u16,
    ) -> Result<StreamLink, Errno> {
        let shared = id.id().shared()?;
        let inline = inline.min(MAX_INLINE).min(shared.hca().limits().max_inline_data);
        let parameters = LinkParameters {
            kind: QPT_RC,
            sends: sizes.send_queue,
            receives: sizes.receive_queue,
            receive_elements: 1,
            // Entries of tables are always copied.
            inline: inline.max(Mapping::LEN as u32),
        };
        let queue_pair = LinkQueuePair::new(id, &parameters)?;
        let tables = TABLE_ENTRIES * RemoteBuffer::LEN + usize::from(maps) * Mapping::LEN;
        let link = StreamLink {
            queue_pair,
            inline,
            outgoing: BufferRegion::new(shared, sizes.send_buffer as usize, LOCAL)?,
            incoming: BufferRegion::new(shared, sizes.receive_buffer as usize, WRITTEN_BY_PEERS)?,
            tables: BufferRegion::new(shared, tables, WRITTEN_BY_PEERS)?,
            sizes: *sizes,
            maps,
        };
        link.post_receives(sizes.receive_queue.into())?;
        Ok(link)
    }

    /// Returns the private data that the peer gets when the connection is made.
    pub(crate) fn connection_data(&self) -> ConnectionData {
        let ring = self.incoming.remote_buffer();
        ConnectionData {
            big_endian: BIG_ENDIAN,
            credits: self.sizes.receive_queue,
            maps: self.maps,
            table: RemoteBuffer { length: TABLE_ENTRIES as u32, ..self.tables.remote_buffer() },
            first: RemoteBuffer { length: ring.length / 2, ..ring },
        }
    }

    /// Returns the entry of a mapping of the peer's; `None` if there is none of that number.
    pub(crate) fn mapping(&self, index: u16) -> Option<Mapping> {
        if index >= self.maps {
            return None;
        }
        let offset = TABLE_ENTRIES * RemoteBuffer::LEN + usize::from(index) * Mapping::LEN;
        Some(Mapping::parse(&self.tables.read(offset)?, BIG_ENDIAN))
    }

    /// Posts receives for this number of words; they need no memory.
    pub(crate) fn post_receives(&self, count: usize) -> Result<(), Errno> {
        const REQUESTS: [RecvRequest<'static>; BATCH] = [RecvRequest { wr_id: 0, sges: &[] }; BATCH];
        let mut left = count;
        while left > 0 {
            let batch = REQUESTS.get(..left.min(BATCH)).unwrap_or_default();
            self.queue_pair
                .hca
                .post_recvs(self.queue_pair.number, batch)
                .map_err(|(_, error)| Errno::from(error))?;
            left -= batch.len();
        }
        Ok(())
    }

    /// Posts a transfer: gathers its data into the ring, or into the request if it is short.
    pub(crate) fn post(&self, transfer: &Transfer, buffers: &mut Buffers<'_>) -> Result<(), Errno> {
        let mut inline = [0; MAX_INLINE as usize];
        if transfer.piece.length() == 0 {
            let length = transfer.length.min(MAX_INLINE) as usize;
            let inline = inline.get_mut(..length).unwrap_or_default();
            buffers.gather_into(inline);
            return self.post_bytes(transfer, inline);
        }
        // This part of the ring is not in use until its request is done.
        self.outgoing.runs(&transfer.piece).into_iter().for_each(|run| buffers.gather(run));
        let piece = transfer.piece;
        let lkey = self.outgoing.lkey();
        let sges = [(piece.offset, piece.first), (0, piece.second)].map(|(offset, length)| Sge {
            address: self.outgoing.address(offset),
            length,
            lkey,
        });
        let count = if piece.second == 0 { 1 } else { 2 };
        let mut request = request(DATA | u64::from(piece.length()), transfer.word);
        request.sges = sges.get(..count).unwrap_or_default();
        request.remote = RemoteTarget { address: transfer.address, rkey: transfer.key };
        Ok(self.queue_pair.hca.post_send(self.queue_pair.number, &request)?)
    }

    /// Posts a transfer of a few bytes, which are copied.
    pub(crate) fn post_bytes(&self, transfer: &Transfer, bytes: &[u8]) -> Result<(), Errno> {
        let mut request = request(DATA, transfer.word);
        request.flags |= SendFlags::INLINE;
        request.inline_data = bytes;
        request.remote = RemoteTarget { address: transfer.address, rkey: transfer.key };
        Ok(self.queue_pair.hca.post_send(self.queue_pair.number, &request)?)
    }

    /// Posts a word of the protocol.
    pub(crate) fn post_control(&self, control: &ControlMessage) -> Result<(), Errno> {
        let kind = if control.word == RsMessage::Disconnect { DISCONNECT } else { CONTROL };
        let mut request = request(kind, Some(control.word));
        if let Some((to, bytes)) = &control.entry {
            request.flags |= SendFlags::INLINE;
            request.inline_data = bytes;
            request.remote = RemoteTarget { address: to.address, rkey: to.key };
        }
        Ok(self.queue_pair.hca.post_send(self.queue_pair.number, &request)?)
    }

    /// Posts a WRITE of no bytes.
    pub(crate) fn post_probe(&self) -> Result<(), Errno> {
        Ok(self.queue_pair.hca.post_send(self.queue_pair.number, &request(CONTROL, None))?)
    }

    /// Takes completions, oldest first; if there is none, the device is driven if `drives` is true. Returns
    /// whether there may be more.
    pub(crate) fn poll(&self, drives: bool, mut each: impl FnMut(LinkCompletion)) -> bool {
        let mut batch = [WorkCompletion::default(); BATCH];
        let count = if drives {
            self.queue_pair.hca.poll_cq(&self.queue_pair.queue, &mut batch)
        } else {
            self.queue_pair.queue.poll(&mut batch)
        };
        for completion in batch.iter().take(count) {
            each(done(completion));
        }
        count == BATCH
    }

    /// Waits for a requested event, driving the device, at most for this time or until a signal; returns
    /// whether it came.
    pub(crate) fn wait(&self, max_wait: Duration) -> bool {
        let has_event =
            self.queue_pair.hca.wait_cq_event_or_signal(&self.queue_pair.events, Some(max_wait)).is_some();
        outside::world::waits_without_end(None);
        if has_event {
            self.queue_pair.queue.ack_events(1);
        }
        has_event
    }
}

/// Builds a WRITE, with a word if the peer is to be notified of it.
fn request(wr_id: u64, word: Option<RsMessage>) -> SendRequest<'static> {
    match word {
        Some(word) => SendRequest {
            imm_data: word.bits().to_be_bytes(),
            ..SendRequest::new(wr_id, SendOpcode::RdmaWriteWithImm)
        },
        None => SendRequest::new(wr_id, SendOpcode::RdmaWrite),
    }
}

fn done(completion: &WorkCompletion) -> LinkCompletion {
    let kind = completion.wr_id & !u64::from(u32::MAX);
    match (kind, completion.status) {
        (0, WcStatus::Success) if completion.opcode == WcOpcode::RecvRdmaWithImm => {
            LinkCompletion::RsMessage(
                RsMessage::from_bits(u32::from_be_bytes(completion.imm_data)),
                completion.byte_len,
            )
        }
        // A peer that sends requests other than WRITEs does not speak the protocol.
        (0, WcStatus::Success) => LinkCompletion::Failed(libc::EPROTO),
        (0, _) => LinkCompletion::Flushed,
        (DATA, WcStatus::Success) => LinkCompletion::Data(completion.wr_id as u32),
        (_, WcStatus::Success) => LinkCompletion::ControlMessage(kind == DISCONNECT),
        (_, WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr) => LinkCompletion::Failed(libc::ETIMEDOUT),
        (_, WcStatus::WrFlushErr) => LinkCompletion::Flushed,
        _ => LinkCompletion::Failed(libc::ECONNRESET),
    }
}
