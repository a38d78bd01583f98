//! The responder's answers: a queue of those to be sent, and a record of those given.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::convert::Infallible;

use super::dcqcn::{Paced, Pacer};
use super::outbound::{self, EmitOutcome, Progress, WrittenPacket};
use super::settings::QpSettings;
use crate::event::{PacketIdentity, PacketSide, Topic, Transmissions};
use crate::host::{Host, RemoteKey, Transmit};
use crate::path::Path;
use crate::types::{Cause, FailureDetail, Fate, RemoteRange};
use crate::wire::{
    Aeth, AtomicAckEth, Bth, Extensions, NakCode, Operation, Packets, Position, Psn, Syndrome,
};

/// Number of response queue slots beyond those for READs and atomics: acknowledgements between them.
const ACKNOWLEDGE_SLOTS: usize = 8;

/// A READ, atomic, FLUSH or ATOMIC WRITE that was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replay {
    pub(crate) first_psn: Psn,
    pub(crate) count: u32,
    /// Ordinal of the request.
    pub(crate) message: u32,
    pub(crate) kind: ReplayKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplayKind {
    /// A READ is executed again: memory may have changed. The key's domain is found anew: it is that of the
    /// SRQ which the repetition names.
    //= linux:rxe_resp.c#rxe_recheck_mr
    //| The key of a repeated READ is looked up again.
    Read { rkey: u32, address: u64, length_bytes: u32 },
    /// An atomic is answered with the first original value.
    Atomic { original: u64 },
    /// A FLUSH or ATOMIC WRITE.
    Empty,
}

/// Parameters of a READ from its first response packet on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadRequest {
    pub(crate) key: RemoteKey,
    pub(crate) first_psn: Psn,
    pub(crate) address: u64,
    pub(crate) length_bytes: u32,
    /// Number of response packets.
    pub(crate) count: u32,
}

impl ReadRequest {
    fn stream(self, message: u32, msn: u32, is_repeat: bool) -> ReadStream {
        let ReadRequest { key, first_psn, address, length_bytes, count } = self;
        ReadStream { key, first_psn, address, length_bytes, count, sent: 0, message, msn, is_repeat }
    }
}

#[derive(Debug, Clone, Copy)]
struct ReadStream {
    key: RemoteKey,
    first_psn: Psn,
    address: u64,
    length_bytes: u32,
    count: u32,
    sent: u32,
    message: u32,
    msn: u32,
    is_repeat: bool,
}

#[derive(Debug, Clone, Copy)]
enum QueuedResponse {
    Acknowledge {
        syndrome: Syndrome,
        psn: Psn,
        msn: u32,
        /// Fate of the packet, if it is an ACK and a plan gave it one.
        fate: Option<Fate>,
    },
    Read(ReadStream),
    Atomic {
        psn: Psn,
        original: u64,
        message: u32,
        msn: u32,
        is_repeat: bool,
    },
    /// A READ RESPONSE ONLY without payload.
    Empty {
        psn: Psn,
        message: u32,
        msn: u32,
        is_repeat: bool,
    },
}

impl QueuedResponse {
    fn first_psn(&self) -> Psn {
        match self {
            QueuedResponse::Read(stream) => stream.first_psn,
            _ => self.last_psn(),
        }
    }

    /// Returns the ordinal of the request that it answers or refuses.
    fn message(&self) -> u32 {
        match self {
            QueuedResponse::Acknowledge { syndrome: Syndrome::Ack { .. }, msn, .. } => before(*msn),
            QueuedResponse::Acknowledge { msn, .. } => *msn,
            QueuedResponse::Atomic { message, .. }
            | QueuedResponse::Empty { message, .. }
            | QueuedResponse::Read(ReadStream { message, .. }) => *message,
        }
    }

    /// Reports whether it is the first answer to a READ, atomic, FLUSH or ATOMIC WRITE, which the peer counts
    /// as outstanding. A packet that was duplicated on its way may be answered again although the peer has
    /// the answer.
    fn is_first_answer(&self) -> bool {
        match self {
            QueuedResponse::Acknowledge { .. } => false,
            QueuedResponse::Atomic { is_repeat, .. }
            | QueuedResponse::Empty { is_repeat, .. }
            | QueuedResponse::Read(ReadStream { is_repeat, .. }) => !is_repeat,
        }
    }

    fn last_psn(&self) -> Psn {
        match self {
            QueuedResponse::Acknowledge { psn, .. }
            | QueuedResponse::Atomic { psn, .. }
            | QueuedResponse::Empty { psn, .. } => *psn,
            QueuedResponse::Read(stream) => stream.first_psn.plus(stream.count - 1),
        }
    }
}

/// Returns the ordinal of the last of `msn` executed requests.
const fn before(msn: u32) -> u32 {
    msn.wrapping_sub(1) & 0xff_ffff
}

/// Urgency of the responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// No response is queued.
    None,
    /// Acknowledgements alone are queued: they may wait until the application has had its completions.
    Acknowledgement,
    /// The peer waits for data.
    Data,
}

/// Queue of responses and ring of replays of one responder.
#[derive(Debug)]
pub(crate) struct Responses {
    queue: VecDeque<QueuedResponse>,
    /// Number of answers to each PSN; recorded only if the host subscribes to packets.
    transmissions: Transmissions,
    pub(super) replays: VecDeque<Replay>,
}

impl Responses {
    pub(crate) fn new() -> Responses {
        Responses {
            queue: VecDeque::new(),
            transmissions: Transmissions::default(),
            replays: VecDeque::new(),
        }
    }

    /// Returns the urgency of the queued responses; `held` says that the rate holds data back.
    #[inline]
    pub(crate) fn urgency(&self, held: impl FnOnce() -> bool) -> Urgency {
        match self.queue.front() {
            None => Urgency::None,
            Some(QueuedResponse::Read(_)) if held() => Urgency::None,
            Some(QueuedResponse::Acknowledge { .. }) if self.queue.len() == 1 => Urgency::Acknowledgement,
            Some(_) => Urgency::Data,
        }
    }

    /// Reports whether another READ or atomic would exceed the number that the peer was granted: that many
    /// wait for their first answer.
    pub(crate) fn exceeds(&self, max_dest_rd_atomic: u8) -> bool {
        //= statement:27
        //| A peer may have as many READs and atomic operations under way as it was granted.
        let granted = usize::from(max_dest_rd_atomic);
        // The answers of most requests leave before the next request arrives.
        self.queue.len() >= granted
            && self.queue.iter().filter(|response| response.is_first_answer()).count() >= granted
    }

    /// Reports whether there is no slot for another answer: repeated ones must leave first.
    pub(crate) fn is_full(&self, max_dest_rd_atomic: u8) -> bool {
        self.queue.len() >= usize::from(max_dest_rd_atomic) + ACKNOWLEDGE_SLOTS
    }

    /// Returns the number of queued responses.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns PSN and AETH of the next response, if it is an acknowledgement whose packet has no fate of its
    /// own, and the only response.
    #[inline]
    pub(crate) fn only_acknowledgement(&self) -> Option<(Psn, Aeth)> {
        match self.queue.front() {
            Some(QueuedResponse::Acknowledge { syndrome, psn, msn, fate })
                if self.queue.len() == 1 && fate.is_none() =>
            {
                Some((*psn, Aeth { syndrome: syndrome.byte(), msn: *msn }))
            }
            _ => None,
        }
    }

    /// Queues an ACK or NAK. It replaces an ACK, or a NAK of the same packet, that has not left yet.
    pub(crate) fn push_acknowledge(&mut self, syndrome: Syndrome, psn: Psn, msn: u32) {
        self.push_fated(syndrome, psn, msn, None);
    }

    /// Queues the ACK of a message that was just executed, unless the host loses it. An ACK that leaves later
    /// therefore acknowledges the messages whose ACKs are not lost, however many of them one packet covers.
    pub(crate) fn acknowledge_message<H: Host>(
        &mut self,
        settings: &QpSettings,
        psn: Psn,
        msn: u32,
        host: &mut H,
    ) {
        let syndrome = Syndrome::ACK_UNLIMITED;
        let fate = match settings.path.as_deref() {
            Some(path) if host.listens(Topic::Answers) && host.decides() => {
                Some(ack_fate(settings, path, psn, msn, host)).filter(|fate| !fate.is_ordinary())
            }
            _ => None,
        };
        if !fate.is_some_and(|fate| fate.lost) {
            self.push_fated(syndrome, psn, msn, fate);
        }
    }

    fn push_fated(&mut self, syndrome: Syndrome, psn: Psn, msn: u32, fate: Option<Fate>) {
        let new = QueuedResponse::Acknowledge { syndrome, psn, msn, fate };
        let is_ack = matches!(syndrome, Syndrome::Ack { .. });
        match self.queue.back_mut() {
            Some(back @ QueuedResponse::Acknowledge { syndrome: Syndrome::Ack { .. }, .. }) => *back = new,
            Some(QueuedResponse::Acknowledge { psn: nak_psn, .. }) if is_ack && psn.is_before(*nak_psn) => {
                // A duplicate's ACK adds no information to the waiting NAK.
            }
            Some(back @ QueuedResponse::Acknowledge { .. }) if !is_ack && back.last_psn() == psn => {
                *back = new
            }
            _ => {
                // ACK and NAK alternate only while the expected PSN moves, which READs and atomics cannot do
                // beyond their slots; this bound is the last resort.
                if self.queue.len() >= 2 * ACKNOWLEDGE_SLOTS + usize::from(u8::MAX) {
                    self.queue.pop_front();
                }
                self.queue.push_back(new);
            }
        }
    }

    pub(crate) fn push_read(&mut self, request: ReadRequest, msn: u32) {
        //= statement:17
        //| The MSN in the responses counts the READ that they answer.
        self.queue.push_back(QueuedResponse::Read(request.stream(before(msn), msn, false)));
    }

    pub(crate) fn push_atomic(&mut self, psn: Psn, original: u64, msn: u32) {
        self.queue.push_back(QueuedResponse::Atomic {
            psn,
            original,
            message: before(msn),
            msn,
            is_repeat: false,
        });
    }

    pub(crate) fn push_empty(&mut self, psn: Psn, msn: u32) {
        self.queue.push_back(QueuedResponse::Empty { psn, message: before(msn), msn, is_repeat: false });
    }

    /// Answers a repeated READ: request number `message`.
    pub(crate) fn replay_read(&mut self, request: ReadRequest, message: u32, msn: u32) {
        self.insert(QueuedResponse::Read(request.stream(message, msn, true)));
    }

    /// Answers a repeated atomic, FLUSH or ATOMIC WRITE with the first answer.
    pub(crate) fn replay_saved(&mut self, psn: Psn, original: Option<u64>, message: u32, msn: u32) {
        self.insert(match original {
            Some(original) => QueuedResponse::Atomic { psn, original, message, msn, is_repeat: true },
            None => QueuedResponse::Empty { psn, message, msn, is_repeat: true },
        });
    }

    /// Queues the answer to a repeated request in place of the responses to it that still wait, and before
    /// the answers to later requests: a peer that goes back asks for those again, but one whose packet was
    /// duplicated on the way does not.
    fn insert(&mut self, new: QueuedResponse) {
        let (first, last) = (new.first_psn(), new.last_psn());
        self.queue.retain(|queued| {
            matches!(queued, QueuedResponse::Acknowledge { .. })
                || queued.last_psn().is_before(first)
                || queued.first_psn().is_after(last)
        });
        let index = self.queue.iter().position(|queued| !queued.last_psn().is_before(first));
        self.queue.insert(index.unwrap_or(self.queue.len()), new);
    }

    /// Records an executed operation; the oldest is dropped beyond the granted number.
    pub(crate) fn remember(&mut self, replay: Replay, max_dest_rd_atomic: u8) {
        //= linux:rxe_resp.c#rxe_prepare_res
        //| The oldest operation is forgotten when a new one needs its place.
        while self.replays.len() >= usize::from(max_dest_rd_atomic.max(1)) {
            self.replays.pop_front();
        }
        self.replays.push_back(replay);
    }

    /// Returns the recorded operation that `psn` belongs to.
    pub(crate) fn replay_of(&self, psn: Psn) -> Option<Replay> {
        self.replays
            .iter()
            .rev()
            .find(|replay| {
                //= linux:rxe_resp.c#find_resource
                //| A repeated request belongs to the operation whose range of PSNs contains its PSN.
                let position = psn.since(replay.first_psn);
                position >= 0 && (position as u32) < replay.count
            })
            .copied()
    }

    /// Drops READ responses that have not left: the queue pair fails.
    pub(crate) fn drop_data(&mut self) {
        self.queue.retain(|response| !matches!(response, QueuedResponse::Read(_)));
    }

    /// Drops all responses that have not left.
    pub(crate) fn drop_all(&mut self) {
        self.queue.clear();
    }

    /// Sends queued responses in order.
    ///
    /// # Errors
    /// Fails if memory being read for the peer was unregistered; the error is the PSN at which that happened.
    #[inline]
    pub(crate) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        now_ns: u64,
        pacer: Option<&mut Pacer>,
        host: &mut H,
        sink: &mut T,
    ) -> Result<Progress, Psn> {
        match (self.queue.front(), &settings.path) {
            (Some(response @ QueuedResponse::Acknowledge { syndrome, psn, msn, fate }), Some(path))
                if self.queue.len() == 1
                    && !(host.listens(Topic::Answers) && (host.decides() || fate.is_some())) =>
            {
                let answer = ResponsePacket::new(settings, Operation::Acknowledge, *psn, *syndrome, *msn);
                let progress = answer.acknowledge(path, sink);
                if progress == Progress::Idle {
                    if host.listens(Topic::Answers) {
                        report_acknowledged(settings, path, response, &mut self.transmissions, host);
                    }
                    self.queue.clear();
                }
                Ok(progress)
            }
            _ => self.transmit_all(settings, now_ns, pacer, host, sink),
        }
    }

    /// Sends queued responses as [`transmit`](Self::transmit) does, which handles the most frequent case, a
    /// single acknowledgement, itself.
    fn transmit_all<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        now_ns: u64,
        mut pacer: Option<&mut Pacer>,
        host: &mut H,
        sink: &mut T,
    ) -> Result<Progress, Psn> {
        let Some(path) = settings.path.as_ref() else {
            self.queue.clear();
            return Ok(Progress::Idle);
        };
        while let Some(response) = self.queue.front_mut() {
            let is_data = matches!(response, QueuedResponse::Read(_));
            let mut pacer = pacer.as_deref_mut().filter(|_| is_data);
            if pacer.as_mut().is_some_and(|pacer| !pacer.admits(Paced::Answers, now_ns)) {
                return Ok(Progress::Idle);
            }
            let ResponsePacket { mut bth, aeth, original, payload_bytes } = response.next_packet(settings);
            let psn = bth.psn;
            let extend = |extensions: &mut Extensions<'_>| {
                extensions.put(|| aeth);
                extensions.put(|| AtomicAckEth { original });
            };
            let fill = |payload: &mut [u8]| match &*response {
                QueuedResponse::Read(stream) => stream.load(settings, psn, payload, host),
                _ => Ok(()),
            };
            let emitted = outbound::emit(path, &mut bth, payload_bytes, sink, extend, fill)?;
            if emitted == EmitOutcome::NoRoom {
                return Ok(Progress::Blocked);
            }
            if let Some(pacer) = pacer {
                let sent = (&**path, outbound::packet_bytes(bth.opcode, payload_bytes));
                pacer.handle_sent(Paced::Answers, sent, now_ns, &settings.context, host);
            }
            if host.listens(Topic::Answers) {
                let transmission = self.transmissions.note(psn, 1);
                let identity = identity(settings, psn, response.message(), transmission);
                let written = WrittenPacket {
                    identity,
                    bth: &bth,
                    aeth: Some(aeth),
                    payload_bytes,
                    psn_count: 1,
                    path,
                };
                match response {
                    QueuedResponse::Acknowledge { syndrome: Syndrome::Ack { .. }, fate, .. } => {
                        written.emit(settings, host);
                        outbound::apply_fate(fate.unwrap_or_default().of_packet(), sink);
                    }
                    _ => {
                        let _ = outbound::emit_sent(settings, &written, host, sink);
                    }
                }
            }
            let finished = match response {
                QueuedResponse::Read(stream) => {
                    stream.sent += 1;
                    stream.sent >= stream.count
                }
                _ => true,
            };
            if finished {
                self.queue.pop_front();
            }
        }
        Ok(Progress::Idle)
    }
}

/// Returns the identity of an answer for subscribers.
fn identity(settings: &QpSettings, psn: Psn, message: u32, transmission: u32) -> PacketIdentity {
    PacketIdentity {
        side: PacketSide::Responder,
        message: message.into(),
        relative_psn: PacketIdentity::relative(psn, settings.rq_psn),
        transmission,
    }
}

/// Reports an ACK that is in the sink and for which no fate is decided.
#[cold]
#[inline(never)]
fn report_acknowledged<H: Host>(
    settings: &QpSettings,
    path: &Path,
    response: &QueuedResponse,
    transmissions: &mut Transmissions,
    host: &mut H,
) {
    let QueuedResponse::Acknowledge { syndrome, psn, msn, .. } = response else { return };
    let answer = ResponsePacket::new(settings, Operation::Acknowledge, *psn, *syndrome, *msn);
    let identity = identity(settings, *psn, response.message(), transmissions.note(*psn, 1));
    let (bth, aeth) = (&answer.bth, Some(answer.aeth));
    WrittenPacket { identity, bth, aeth, payload_bytes: 0, psn_count: 1, path }.emit(settings, host);
}

/// Returns the fate of a message's ACK.
#[cold]
fn ack_fate<H: Host>(settings: &QpSettings, path: &Path, psn: Psn, msn: u32, host: &mut H) -> Fate {
    let answer = ResponsePacket::new(settings, Operation::Acknowledge, psn, Syndrome::ACK_UNLIMITED, msn);
    let identity = identity(settings, psn, before(msn), 1);
    let (bth, aeth) = (&answer.bth, Some(answer.aeth));
    let written = WrittenPacket { identity, bth, aeth, payload_bytes: 0, psn_count: 1, path };
    host.fate(&settings.context, &written.departure(settings))
}

/// Contents of an answer: the row of its opcode says which of the headers it has.
struct ResponsePacket {
    bth: Bth,
    aeth: Aeth,
    /// Original value of an atomic operation.
    original: u64,
    payload_bytes: usize,
}

impl ResponsePacket {
    /// Creates an answer without payload.
    #[inline]
    fn new(
        settings: &QpSettings,
        operation: Operation,
        psn: Psn,
        syndrome: Syndrome,
        msn: u32,
    ) -> ResponsePacket {
        let aeth = Aeth { syndrome: syndrome.byte(), msn };
        ResponsePacket { bth: settings.bth(operation, psn), aeth, original: 0, payload_bytes: 0 }
    }

    /// Sends the answer, an acknowledgement.
    #[inline]
    fn acknowledge<T: Transmit>(mut self, path: &Arc<Path>, sink: &mut T) -> Progress {
        let extend = |extensions: &mut Extensions<'_>| extensions.put(|| self.aeth);
        let fill = |_: &mut [u8]| Ok::<(), Infallible>(());
        match outbound::emit(path, &mut self.bth, 0, sink, extend, fill) {
            Ok(EmitOutcome::Packet) => Progress::Idle,
            Ok(EmitOutcome::NoRoom) => Progress::Blocked,
        }
    }
}

impl QueuedResponse {
    /// Returns its next packet.
    #[inline]
    fn next_packet(&self, settings: &QpSettings) -> ResponsePacket {
        let answer =
            |operation, psn, syndrome, msn| ResponsePacket::new(settings, operation, psn, syndrome, msn);
        match *self {
            QueuedResponse::Acknowledge { syndrome, psn, msn, .. } => {
                answer(Operation::Acknowledge, psn, syndrome, msn)
            }
            QueuedResponse::Atomic { psn, original, msn, .. } => {
                //= linux:rxe_resp.c#send_atomic_ack
                //| An atomic operation is answered by one packet with the original value.
                let answer = answer(Operation::AtomicAcknowledge, psn, Syndrome::ACK_UNLIMITED, msn);
                ResponsePacket { original, ..answer }
            }
            QueuedResponse::Empty { psn, msn, .. } => {
                //= linux:rxe_resp.c#send_read_response_ack
                //| FLUSH and ATOMIC WRITE are answered by a READ RESPONSE ONLY without payload.
                answer(Operation::ReadResponseOnly, psn, Syndrome::ACK_UNLIMITED, msn)
            }
            QueuedResponse::Read(ref stream) => stream.next_packet(settings),
        }
    }
}

impl ReadStream {
    /// Returns the number of bytes before its next packet.
    fn offset(&self, settings: &QpSettings) -> u64 {
        u64::from(self.sent) * settings.mtu_bytes as u64
    }

    /// Returns the next response packet.
    #[inline]
    fn next_packet(&self, settings: &QpSettings) -> ResponsePacket {
        let position = Position::of(self.sent == 0, self.sent + 1 >= self.count);
        //= statement:17
        //| Middle responses of a READ have no AETH, and the others have one.
        let operation = Packets::READ_RESPONSE.at(position).unwrap_or(Operation::ReadResponseOnly);
        let psn = self.first_psn.plus(self.sent);
        let left = u64::from(self.length_bytes).saturating_sub(self.offset(settings));
        let payload_bytes = left.min(settings.mtu_bytes as u64) as usize;
        let answer = ResponsePacket::new(settings, operation, psn, Syndrome::ACK_UNLIMITED, self.msn);
        ResponsePacket { payload_bytes, ..answer }
    }

    /// Copies the memory that the next packet carries.
    ///
    /// # Errors
    /// Fails if the memory was unregistered, which has been logged.
    fn load<H: Host>(
        &self,
        settings: &QpSettings,
        psn: Psn,
        payload: &mut [u8],
        host: &mut H,
    ) -> Result<(), Psn> {
        let address = self.address.wrapping_add(self.offset(settings));
        let length_bytes = payload.len() as u64;
        //= linux:rxe_resp.c#read_reply
        //| Each response packet reads the memory when the packet is made.
        host.remote_read(self.key, address, payload).map_err(|error| {
            let rkey = self.key.rkey;
            let cause = Cause::RequestRefused {
                syndrome: Some(Syndrome::Nak(NakCode::RemoteAccess).byte()),
                psn,
                reason: error.reason(),
                detail: FailureDetail::Remote(RemoteRange { rkey, address, length_bytes }),
            };
            host.log(&settings.context, cause);
            psn
        })
    }
}
