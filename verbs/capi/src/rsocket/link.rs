//! A queue pair with its completion queue and its memory: what a stream's transfers are posted to.

use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use pumice_device::hca::Hca;
use pumice_device::objects::completion_channel::CompletionChannel;
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_transport::types::{
    RecvRequest, RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge, WcOpcode, WcStatus, WorkCompletion,
};
use pumice_transport::wire::Qpn;

use super::identifier::Identifier;
use super::protocol::TABLE_ENTRIES;
use super::protocol::greeting::Greeting;
use super::protocol::place::{Mapping, Place};
use super::protocol::sending::Transfer;
use super::protocol::stream::{Control, Sizes};
use super::protocol::word::Word;
use super::region::{BIG_ENDIAN, Buffers, LOCAL, Region, WRITTEN_BY_PEERS};
use crate::calls::completion_channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::calls::completion_queue::{ibv_create_cq, ibv_destroy_cq};
use crate::ground::abi::{ibv_comp_channel, ibv_cq, ibv_qp_init_attr};
use crate::ground::arguments::Trusted;
use crate::ground::errno::{Errno, errno};
use crate::ground::handles::{held, zeroed};
use crate::objects::completion_channel::Channel;
use crate::objects::completion_queue::Cq;
use crate::rdma_cm::id::QPT_RC;
use crate::rdma_cm::queue_pair::{rdma_create_qp, rdma_destroy_qp};
use crate::rdma_cm::shared::shared;

/// Most bytes that are copied into a request, whatever the program asks for.
pub(crate) const MOST_INLINE: u32 = 512;
/// Completions that are taken at a time.
const BATCH: usize = 16;

/// What a completed request was, in its number: the kind, and the part of the ring that is free.
const DATA: u64 = 1 << 32;
const CONTROL: u64 = 2 << 32;
const DISCONNECT: u64 = 3 << 32;

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// The peer has sent a word.
    Word(Word),
    /// Data has arrived at the peer, and so much of the ring is free.
    Data(u32),
    /// A word of the protocol has arrived at the peer; whether it was the last.
    Control(bool),
    /// A request failed, with this errno.
    Failed(i32),
    /// A receive was given back.
    Flushed,
}

/// Completion queue and channel, to be destroyed after the queue pair.
pub(crate) struct Completions {
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
}

// SAFETY: the pointers are to objects of our own that nobody else has, and that are only destroyed by them.
unsafe impl Send for Completions {}
// SAFETY: as above.
unsafe impl Sync for Completions {}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: our own objects, the queue pair is gone.
        unsafe {
            if !self.cq.is_null() {
                crate::calls::completion_channel::ibv_ack_cq_events(Trusted::new(self.cq), u32::MAX);
                ibv_destroy_cq(self.cq);
            }
            if !self.channel.is_null() {
                ibv_destroy_comp_channel(self.channel);
            }
        }
    }
}

/// The queue pair of an identifier.
pub(crate) struct QueuePair(Arc<Identifier>);

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: a live identifier with its queue pair.
        unsafe { rdma_destroy_qp(self.0.raw()) };
    }
}

/// How a queue pair is made.
pub(crate) struct Wanted {
    /// `IBV_QPT_*`.
    pub(crate) kind: u32,
    pub(crate) sends: u16,
    pub(crate) receives: u16,
    pub(crate) receive_elements: u32,
    pub(crate) inline: u32,
}

type Made = (QueuePair, Completions, Arc<CompletionQueue>, Arc<CompletionChannel>, Qpn);

/// The queue pair of an identifier that is on the device, with one completion queue and its channel.
///
/// # Errors
/// Those of making the objects.
pub(crate) fn create_queue_pair(id: &Arc<Identifier>, wanted: &Wanted) -> Result<Made, Errno> {
    let shared = shared()?;
    let depth = i32::from(wanted.sends) + i32::from(wanted.receives);
    let mut made = Completions { channel: ptr::null_mut(), cq: ptr::null_mut() };
    // SAFETY: the shared context, which is open; live objects; our own structure of numbers and pointers.
    unsafe {
        made.channel = ibv_create_comp_channel(shared.context);
        if made.channel.is_null() {
            return Err(Errno(errno()));
        }
        made.cq = ibv_create_cq(shared.context, depth, ptr::null_mut(), made.channel, 0);
        if made.cq.is_null() {
            return Err(Errno(errno()));
        }
        let mut attributes: ibv_qp_init_attr = zeroed();
        attributes.send_cq = made.cq;
        attributes.recv_cq = made.cq;
        attributes.qp_type = wanted.kind;
        attributes.sq_sig_all = 1;
        attributes.cap.max_send_wr = wanted.sends.into();
        attributes.cap.max_recv_wr = wanted.receives.into();
        attributes.cap.max_send_sge = 2;
        attributes.cap.max_recv_sge = wanted.receive_elements;
        attributes.cap.max_inline_data = wanted.inline;
        if rdma_create_qp(id.raw(), shared.pd, &mut attributes) != 0 {
            return Err(Errno(errno()));
        }
        let queue_pair = QueuePair(Arc::clone(id));
        let queue = Arc::clone(held::<Cq>(made.cq)?.queue());
        let events = Arc::clone(held::<Channel>(made.channel)?.channel());
        let number = Qpn::new((*(*id.raw()).qp).qp_num);
        Ok((queue_pair, made, queue, events, number))
    }
}

/// A link. Its fields are dropped from the first to the last.
pub(crate) struct Link {
    _queue_pair: QueuePair,
    _completions: Completions,
    hca: &'static Hca,
    queue: Arc<CompletionQueue>,
    events: Arc<CompletionChannel>,
    number: Qpn,
    /// Most bytes of data that are copied into a request.
    pub(crate) inline: u32,
    pub(crate) outgoing: Region,
    pub(crate) incoming: Region,
    /// The tables that the peer writes: places, then mappings.
    pub(crate) tables: Region,
    sizes: Sizes,
    maps: u16,
}

impl Link {
    /// The queue pair of an identifier that is on the device, and everything that goes with it.
    ///
    /// # Errors
    /// Those of making the objects.
    pub(crate) fn new(id: &Arc<Identifier>, sizes: &Sizes, inline: u32, maps: u16) -> Result<Link, Errno> {
        let shared = shared()?;
        let inline = inline.min(MOST_INLINE).min(shared.hca().limits().max_inline_data);
        let wanted = Wanted {
            kind: QPT_RC,
            sends: sizes.send_queue,
            receives: sizes.receive_queue,
            receive_elements: 1,
            // Entries of tables are always copied.
            inline: inline.max(Mapping::LEN as u32),
        };
        let (queue_pair, completions, queue, events, number) = create_queue_pair(id, &wanted)?;
        let tables = TABLE_ENTRIES * Place::LEN + usize::from(maps) * Mapping::LEN;
        // SAFETY: the shared domain, which is never freed.
        let (outgoing, incoming, tables) = unsafe {
            (
                Region::new(shared.pd, sizes.send_buffer as usize, LOCAL)?,
                Region::new(shared.pd, sizes.receive_buffer as usize, WRITTEN_BY_PEERS)?,
                Region::new(shared.pd, tables, WRITTEN_BY_PEERS)?,
            )
        };
        let link = Link {
            _queue_pair: queue_pair,
            _completions: completions,
            hca: shared.hca(),
            queue,
            events,
            number,
            inline,
            outgoing,
            incoming,
            tables,
            sizes: *sizes,
            maps,
        };
        link.post_receives(sizes.receive_queue.into())?;
        Ok(link)
    }

    /// What the peer is told when the connection is made.
    pub(crate) fn greeting(&self) -> Greeting {
        let ring = self.incoming.place();
        Greeting {
            big_endian: BIG_ENDIAN,
            credits: self.sizes.receive_queue,
            maps: self.maps,
            table: Place { length: TABLE_ENTRIES as u32, ..self.tables.place() },
            first: Place { length: ring.length / 2, ..ring },
        }
    }

    /// Where a mapping of the peer's is kept; none, if there is none of that number.
    pub(crate) fn mapping(&self, index: u16) -> Option<Mapping> {
        if index >= self.maps {
            return None;
        }
        let offset = TABLE_ENTRIES * Place::LEN + usize::from(index) * Mapping::LEN;
        Some(Mapping::parse(&self.tables.read(offset)?, BIG_ENDIAN))
    }

    /// Receives for so many words; they need no memory.
    pub(crate) fn post_receives(&self, count: usize) -> Result<(), Errno> {
        const REQUESTS: [RecvRequest<'static>; BATCH] = [RecvRequest { wr_id: 0, sges: &[] }; BATCH];
        let mut left = count;
        while left > 0 {
            let batch = REQUESTS.get(..left.min(BATCH)).unwrap_or_default();
            self.hca.post_recvs(self.number, batch).map_err(|(_, error)| Errno::from(error))?;
            left -= batch.len();
        }
        Ok(())
    }

    /// Posts data that waits in the ring, or takes it from `buffers` if it is short.
    ///
    /// # Safety
    /// The buffers have so many bytes.
    pub(crate) unsafe fn post(&self, transfer: &Transfer, buffers: &mut Buffers<'_>) -> Result<(), Errno> {
        let mut inline = [0; MOST_INLINE as usize];
        if transfer.piece.length() == 0 {
            let length = transfer.length.min(MOST_INLINE) as usize;
            // SAFETY: not more than there is room for; the caller's promise.
            unsafe { buffers.gather(inline.as_mut_ptr(), length) };
            return self.post_bytes(transfer, inline.get(..length).unwrap_or_default());
        }
        for (run, length) in self.outgoing.runs(&transfer.piece) {
            // SAFETY: a part of the ring that nobody else uses until its request is done; the caller's promise.
            unsafe { buffers.gather(run, length) };
        }
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
        Ok(self.hca.post_send(self.number, &request)?)
    }

    /// Posts a transfer of a few bytes, which are copied.
    pub(crate) fn post_bytes(&self, transfer: &Transfer, bytes: &[u8]) -> Result<(), Errno> {
        let mut request = request(DATA, transfer.word);
        request.flags |= SendFlags::INLINE;
        request.inline_data = bytes;
        request.remote = RemoteTarget { address: transfer.address, rkey: transfer.key };
        Ok(self.hca.post_send(self.number, &request)?)
    }

    /// Posts a word of the protocol.
    pub(crate) fn post_control(&self, control: &Control) -> Result<(), Errno> {
        let kind = if control.word == Word::Disconnect { DISCONNECT } else { CONTROL };
        let mut request = request(kind, Some(control.word));
        if let Some((place, bytes)) = &control.entry {
            request.flags |= SendFlags::INLINE;
            request.inline_data = bytes;
            request.remote = RemoteTarget { address: place.address, rkey: place.key };
        }
        Ok(self.hca.post_send(self.number, &request)?)
    }

    /// Posts a WRITE of nothing.
    pub(crate) fn post_probe(&self) -> Result<(), Errno> {
        Ok(self.hca.post_send(self.number, &request(CONTROL, None))?)
    }

    /// Takes completions, oldest first; if there is none and `drives`, the device is driven. Whether there may be more.
    pub(crate) fn poll(&self, drives: bool, mut each: impl FnMut(Done)) -> bool {
        let mut batch = [WorkCompletion::default(); BATCH];
        let count =
            if drives { self.hca.poll_cq(&self.queue, &mut batch) } else { self.queue.poll(&mut batch) };
        for completion in batch.iter().take(count) {
            each(done(completion));
        }
        count == BATCH
    }

    /// Asks for an event with the next completion.
    pub(crate) fn arm(&self) {
        self.hca.req_notify_cq(&self.queue, false);
    }

    /// Readable when an event that was asked for has come.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.events.as_fd().as_raw_fd()
    }

    /// Takes the event, if it has come.
    pub(crate) fn take_event(&self) -> bool {
        let came = self.events.try_event().is_some();
        if came {
            self.queue.ack_events(1);
        }
        came
    }

    /// Waits for an event that was asked for, driving the device, at most so long or until a signal: whether it came.
    pub(crate) fn wait(&self, at_most: Duration) -> bool {
        let came = self.hca.wait_cq_event_or_signal(&self.events, Some(at_most)).is_some();
        if came {
            self.queue.ack_events(1);
        }
        came
    }
}

/// A WRITE, with a word if the peer is to hear of it.
fn request(wr_id: u64, word: Option<Word>) -> SendRequest<'static> {
    match word {
        Some(word) => SendRequest {
            imm_data: word.bits().to_be_bytes(),
            ..SendRequest::new(wr_id, SendOpcode::RdmaWriteWithImm)
        },
        None => SendRequest::new(wr_id, SendOpcode::RdmaWrite),
    }
}

fn done(completion: &WorkCompletion) -> Done {
    let kind = completion.wr_id & !u64::from(u32::MAX);
    match (kind, completion.status) {
        (0, WcStatus::Success) if completion.opcode == WcOpcode::RecvRdmaWithImm => {
            Done::Word(Word::from_bits(u32::from_be_bytes(completion.imm_data)))
        }
        // Somebody who sends what is no WRITE does not speak the protocol.
        (0, WcStatus::Success) => Done::Failed(libc::EPROTO),
        (0, _) => Done::Flushed,
        (DATA, WcStatus::Success) => Done::Data(completion.wr_id as u32),
        (_, WcStatus::Success) => Done::Control(kind == DISCONNECT),
        (_, WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr) => Done::Failed(libc::ETIMEDOUT),
        (_, WcStatus::WrFlushErr) => Done::Flushed,
        _ => Done::Failed(libc::ECONNRESET),
    }
}
