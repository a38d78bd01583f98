//! The responder's answers: a queue of what is to be sent, and a memory of what was answered.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::convert::Infallible;

use super::dcqcn::{Paced, Pacer};
use super::outbound::{self, Emitted, Progress, Written};
use super::settings::Settings;
use crate::event::{PacketIdentity, Side, Topic, Transmissions};
use crate::host::{Host, RemoteKey, Transmit};
use crate::path::Path;
use crate::types::{Cause, Detail, Fate, RemoteRange};
use crate::wire::{
    Aeth, AtomicAckEth, Bth, Extensions, NakCode, Operation, Packets, Position, Psn, Syndrome,
};

/// Slots of the response queue beyond those for READs and atomics: acknowledgements between them.
const ACKNOWLEDGE_SLOTS: usize = 8;

/// A READ, atomic, FLUSH or ATOMIC WRITE that was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replay {
    pub(crate) first_psn: Psn,
    pub(crate) count: u32,
    /// The ordinal of the request.
    pub(crate) message: u32,
    pub(crate) kind: ReplayKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplayKind {
    /// Is executed again: memory may have changed. The key's domain is found anew: it is that of the SRQ
    /// which the repetition names.
    //= linux:rxe_resp.c#rxe_recheck_mr
    //| The key of a repeated READ is looked up again.
    Read { rkey: u32, address: u64, length_bytes: u32 },
    /// Is answered with the first original value.
    Atomic { original: u64 },
    /// FLUSH and ATOMIC WRITE.
    Empty,
}

/// What a READ asks for, from its first response packet on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadRequest {
    pub(crate) key: RemoteKey,
    pub(crate) first_psn: Psn,
    pub(crate) address: u64,
    pub(crate) length_bytes: u32,
    /// Response packets.
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
enum Response {
    Acknowledge {
        syndrome: Syndrome,
        psn: Psn,
        msn: u32,
        /// What happens to it, if it is an ACK.
        fate: Fate,
    },
    Read(ReadStream),
    Atomic {
        psn: Psn,
        original: u64,
        message: u32,
        msn: u32,
        is_repeat: bool,
    },
    /// READ RESPONSE ONLY without payload.
    Empty {
        psn: Psn,
        message: u32,
        msn: u32,
        is_repeat: bool,
    },
}

impl Response {
    fn first_psn(&self) -> Psn {
        match self {
            Response::Read(stream) => stream.first_psn,
            _ => self.last_psn(),
        }
    }

    /// The ordinal of the request that it answers or refuses.
    fn message(&self) -> u32 {
        match self {
            Response::Acknowledge { syndrome: Syndrome::Ack { .. }, msn, .. } => before(*msn),
            Response::Acknowledge { msn, .. } => *msn,
            Response::Atomic { message, .. }
            | Response::Empty { message, .. }
            | Response::Read(ReadStream { message, .. }) => *message,
        }
    }

    /// It is the first answer to a READ, atomic, FLUSH or ATOMIC WRITE, which the peer counts as under way. A
    /// packet that was doubled on its way may be answered again although the peer knows the answer.
    fn is_first_answer(&self) -> bool {
        match self {
            Response::Acknowledge { .. } => false,
            Response::Atomic { is_repeat, .. }
            | Response::Empty { is_repeat, .. }
            | Response::Read(ReadStream { is_repeat, .. }) => !is_repeat,
        }
    }

    fn last_psn(&self) -> Psn {
        match self {
            Response::Acknowledge { psn, .. }
            | Response::Atomic { psn, .. }
            | Response::Empty { psn, .. } => *psn,
            Response::Read(stream) => stream.first_psn.plus(stream.count - 1),
        }
    }
}

/// The ordinal of the last request among so many that were executed.
const fn before(msn: u32) -> u32 {
    msn.wrapping_sub(1) & 0xff_ffff
}

/// How urgently responses want to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Nothing is queued.
    None,
    /// Acknowledgements only: they may wait until the application has had its completions.
    Acknowledgement,
    /// The peer waits for data.
    Data,
}

/// Queue of responses and ring of replays of one responder.
#[derive(Debug)]
pub(crate) struct Responses {
    queue: VecDeque<Response>,
    /// How often each PSN was answered; noted only if the host listens to packets.
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

    /// `held`: the rate holds data back.
    #[inline]
    pub(crate) fn urgency(&self, held: bool) -> Urgency {
        match self.queue.front() {
            None => Urgency::None,
            Some(Response::Read(_)) if held => Urgency::None,
            Some(Response::Acknowledge { .. }) if self.queue.len() == 1 => Urgency::Acknowledgement,
            Some(_) => Urgency::Data,
        }
    }

    /// Another READ or atomic is more than the peer was granted: so many wait for their first answer.
    pub(crate) fn exceeds(&self, max_dest_rd_atomic: u8) -> bool {
        //= statement:27
        //| A peer may have as many READs and atomic operations under way as it was granted.
        let granted = usize::from(max_dest_rd_atomic);
        // The answers of most requests leave before the next request comes.
        self.queue.len() >= granted
            && self.queue.iter().filter(|response| response.is_first_answer()).count() >= granted
    }

    /// No slot for another answer: repeated ones must leave first.
    pub(crate) fn is_full(&self, max_dest_rd_atomic: u8) -> bool {
        self.queue.len() >= usize::from(max_dest_rd_atomic) + ACKNOWLEDGE_SLOTS
    }

    /// Queues an ACK or NAK. It takes the place of an ACK, or of a NAK of the same packet, that has
    /// not left yet.
    pub(crate) fn push_acknowledge(&mut self, syndrome: Syndrome, psn: Psn, msn: u32) {
        self.push_fated(syndrome, psn, msn, Fate::default());
    }

    /// Queues the ACK of a message that was just executed, unless the host loses it. So what leaves later
    /// acknowledges the messages whose ACKs are not lost, however many of them one packet speaks for.
    pub(crate) fn acknowledge_message<H: Host>(
        &mut self,
        settings: &Settings,
        psn: Psn,
        msn: u32,
        host: &mut H,
    ) {
        let syndrome = Syndrome::ACK_UNLIMITED;
        let fate = match settings.path.as_deref() {
            Some(path) if host.listens(Topic::Answers) && host.decides() => {
                ack_fate(settings, path, psn, msn, host)
            }
            _ => Fate::default(),
        };
        if !fate.lost {
            self.push_fated(syndrome, psn, msn, fate);
        }
    }

    fn push_fated(&mut self, syndrome: Syndrome, psn: Psn, msn: u32, fate: Fate) {
        let new = Response::Acknowledge { syndrome, psn, msn, fate };
        let is_ack = matches!(syndrome, Syndrome::Ack { .. });
        match self.queue.back_mut() {
            Some(back @ Response::Acknowledge { syndrome: Syndrome::Ack { .. }, .. }) => *back = new,
            Some(Response::Acknowledge { psn: nak_psn, .. }) if is_ack && psn.is_before(*nak_psn) => {
                // A duplicate's ACK says nothing that the waiting NAK does not say.
            }
            Some(back @ Response::Acknowledge { .. }) if !is_ack && back.last_psn() == psn => *back = new,
            _ => {
                // ACK and NAK alternate only while the expected PSN moves, which READs and atomics
                // cannot do beyond their slots; this is the last resort.
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
        self.queue.push_back(Response::Read(request.stream(before(msn), msn, false)));
    }

    pub(crate) fn push_atomic(&mut self, psn: Psn, original: u64, msn: u32) {
        self.queue.push_back(Response::Atomic { psn, original, message: before(msn), msn, is_repeat: false });
    }

    pub(crate) fn push_empty(&mut self, psn: Psn, msn: u32) {
        self.queue.push_back(Response::Empty { psn, message: before(msn), msn, is_repeat: false });
    }

    /// Answers a repeated READ: request number `message`.
    pub(crate) fn replay_read(&mut self, request: ReadRequest, message: u32, msn: u32) {
        self.insert(Response::Read(request.stream(message, msn, true)));
    }

    /// Answers a repeated atomic, FLUSH or ATOMIC WRITE with what was answered before.
    pub(crate) fn replay_saved(&mut self, psn: Psn, original: Option<u64>, message: u32, msn: u32) {
        self.insert(match original {
            Some(original) => Response::Atomic { psn, original, message, msn, is_repeat: true },
            None => Response::Empty { psn, message, msn, is_repeat: true },
        });
    }

    /// Queues the answer to a repeated request in the place of what still waits for it, and before
    /// the answers to later requests: a peer that goes back asks for those again, but one whose
    /// packet was doubled on the way does not.
    fn insert(&mut self, new: Response) {
        let (first, last) = (new.first_psn(), new.last_psn());
        self.queue.retain(|queued| {
            matches!(queued, Response::Acknowledge { .. })
                || queued.last_psn().is_before(first)
                || queued.first_psn().is_after(last)
        });
        let index = self.queue.iter().position(|queued| !queued.last_psn().is_before(first));
        self.queue.insert(index.unwrap_or(self.queue.len()), new);
    }

    /// Remembers an executed operation; the oldest is forgotten beyond the granted number.
    pub(crate) fn remember(&mut self, replay: Replay, max_dest_rd_atomic: u8) {
        //= linux:rxe_resp.c#rxe_prepare_res
        //| The oldest operation is forgotten when a new one needs its place.
        while self.replays.len() >= usize::from(max_dest_rd_atomic.max(1)) {
            self.replays.pop_front();
        }
        self.replays.push_back(replay);
    }

    /// The remembered operation that `psn` belongs to.
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

    /// Drops READ streams that have not left: the queue pair fails.
    pub(crate) fn drop_data(&mut self) {
        self.queue.retain(|response| !matches!(response, Response::Read(_)));
    }

    /// Drops everything that has not left.
    pub(crate) fn drop_all(&mut self) {
        self.queue.clear();
    }

    /// Sends queued responses in order.
    ///
    /// # Errors
    /// Memory being read for the peer went away; the PSN at which that happened.
    #[inline]
    pub(crate) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
        now_ns: u64,
        pacer: Option<&mut Pacer>,
        host: &mut H,
        sink: &mut T,
    ) -> Result<Progress, Psn> {
        match (self.queue.front(), &settings.path) {
            (Some(response @ Response::Acknowledge { syndrome, psn, msn, fate }), Some(path))
                if self.queue.len() == 1
                    && !(host.listens(Topic::Answers) && (host.decides() || !fate.is_ordinary())) =>
            {
                let answer = Answer::new(settings, Operation::Acknowledge, *psn, *syndrome, *msn);
                let progress = answer.acknowledge(path, sink);
                if progress == Progress::Idle {
                    if host.listens(Topic::Answers) {
                        tell_acknowledged(settings, path, response, &mut self.transmissions, host);
                    }
                    self.queue.clear();
                }
                Ok(progress)
            }
            _ => self.transmit_all(settings, now_ns, pacer, host, sink),
        }
    }

    /// As [`transmit`](Self::transmit), which does by itself what is all that there is after most messages.
    fn transmit_all<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
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
            let is_data = matches!(response, Response::Read(_));
            let mut pacer = pacer.as_deref_mut().filter(|_| is_data);
            if pacer.as_mut().is_some_and(|pacer| !pacer.admits(Paced::Answers, now_ns)) {
                return Ok(Progress::Idle);
            }
            let Answer { mut bth, aeth, original, payload_bytes } = response.next_packet(settings);
            let psn = bth.psn;
            let extend = |extensions: &mut Extensions<'_>| {
                extensions.put(|| aeth);
                extensions.put(|| AtomicAckEth { original });
            };
            let fill = |payload: &mut [u8]| match &*response {
                Response::Read(stream) => stream.load(settings, psn, payload, host),
                _ => Ok(()),
            };
            let emitted = outbound::emit(path, &mut bth, payload_bytes, sink, extend, fill)?;
            if emitted == Emitted::NoRoom {
                return Ok(Progress::Blocked);
            }
            if let Some(pacer) = pacer {
                let sent = (&**path, outbound::packet_bytes(bth.opcode, payload_bytes));
                pacer.handle_sent(Paced::Answers, sent, now_ns, &settings.context, host);
            }
            if host.listens(Topic::Answers) {
                let transmission = self.transmissions.note(psn, 1);
                let identity = identity(settings, psn, response.message(), transmission);
                let written =
                    Written { identity, bth: &bth, aeth: Some(aeth), payload_bytes, psn_count: 1, path };
                match response {
                    Response::Acknowledge { syndrome: Syndrome::Ack { .. }, fate, .. } => {
                        written.emit(settings, host);
                        outbound::harm(fate.of_packet(), sink);
                    }
                    _ => {
                        let _ = outbound::emit_sent(settings, &written, host, sink);
                    }
                }
            }
            let finished = match response {
                Response::Read(stream) => {
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

/// An answer as those who listen know it.
fn identity(settings: &Settings, psn: Psn, message: u32, transmission: u32) -> PacketIdentity {
    PacketIdentity {
        side: Side::Responder,
        message: message.into(),
        relative_psn: PacketIdentity::relative(psn, settings.rq_psn),
        transmission,
    }
}

/// Tells of an ACK, which is in the sink, and about which no one decides.
#[cold]
#[inline(never)]
fn tell_acknowledged<H: Host>(
    settings: &Settings,
    path: &Path,
    response: &Response,
    transmissions: &mut Transmissions,
    host: &mut H,
) {
    let Response::Acknowledge { syndrome, psn, msn, .. } = response else { return };
    let answer = Answer::new(settings, Operation::Acknowledge, *psn, *syndrome, *msn);
    let identity = identity(settings, *psn, response.message(), transmissions.note(*psn, 1));
    let (bth, aeth) = (&answer.bth, Some(answer.aeth));
    Written { identity, bth, aeth, payload_bytes: 0, psn_count: 1, path }.emit(settings, host);
}

/// What happens to the ACK of a message.
#[cold]
fn ack_fate<H: Host>(settings: &Settings, path: &Path, psn: Psn, msn: u32, host: &mut H) -> Fate {
    let answer = Answer::new(settings, Operation::Acknowledge, psn, Syndrome::ACK_UNLIMITED, msn);
    let identity = identity(settings, psn, before(msn), 1);
    let (bth, aeth) = (&answer.bth, Some(answer.aeth));
    let written = Written { identity, bth, aeth, payload_bytes: 0, psn_count: 1, path };
    host.fate(&settings.context, &written.departure(settings))
}

/// What an answer carries: the row of its opcode says which of the headers.
struct Answer {
    bth: Bth,
    aeth: Aeth,
    /// Of an atomic operation: what was there before.
    original: u64,
    payload_bytes: usize,
}

impl Answer {
    /// Without payload.
    #[inline]
    fn new(settings: &Settings, operation: Operation, psn: Psn, syndrome: Syndrome, msn: u32) -> Answer {
        let aeth = Aeth { syndrome: syndrome.byte(), msn };
        Answer { bth: settings.bth(operation, psn), aeth, original: 0, payload_bytes: 0 }
    }

    /// Sends it, an acknowledgement.
    #[inline]
    fn acknowledge<T: Transmit>(mut self, path: &Arc<Path>, sink: &mut T) -> Progress {
        let extend = |extensions: &mut Extensions<'_>| extensions.put(|| self.aeth);
        let fill = |_: &mut [u8]| Ok::<(), Infallible>(());
        match outbound::emit(path, &mut self.bth, 0, sink, extend, fill) {
            Ok(Emitted::Packet) => Progress::Idle,
            Ok(Emitted::NoRoom) => Progress::Blocked,
        }
    }
}

impl Response {
    /// Its next packet.
    #[inline]
    fn next_packet(&self, settings: &Settings) -> Answer {
        let answer = |operation, psn, syndrome, msn| Answer::new(settings, operation, psn, syndrome, msn);
        match *self {
            Response::Acknowledge { syndrome, psn, msn, .. } => {
                answer(Operation::Acknowledge, psn, syndrome, msn)
            }
            Response::Atomic { psn, original, msn, .. } => {
                //= linux:rxe_resp.c#send_atomic_ack
                //| An atomic operation is answered by one packet with the original value.
                let answer = answer(Operation::AtomicAcknowledge, psn, Syndrome::ACK_UNLIMITED, msn);
                Answer { original, ..answer }
            }
            Response::Empty { psn, msn, .. } => {
                //= linux:rxe_resp.c#send_read_response_ack
                //| FLUSH and ATOMIC WRITE are answered by a READ RESPONSE ONLY without payload.
                answer(Operation::ReadResponseOnly, psn, Syndrome::ACK_UNLIMITED, msn)
            }
            Response::Read(ref stream) => stream.next_packet(settings),
        }
    }
}

impl ReadStream {
    /// Bytes before its next packet.
    fn offset(&self, settings: &Settings) -> u64 {
        u64::from(self.sent) * settings.mtu_bytes as u64
    }

    /// The next response packet.
    #[inline]
    fn next_packet(&self, settings: &Settings) -> Answer {
        let position = Position::of(self.sent == 0, self.sent + 1 >= self.count);
        //= statement:17
        //| Middle responses of a READ have no AETH, and the others have one.
        let operation = Packets::READ_RESPONSE.at(position).unwrap_or(Operation::ReadResponseOnly);
        let psn = self.first_psn.plus(self.sent);
        let left = u64::from(self.length_bytes).saturating_sub(self.offset(settings));
        let payload_bytes = left.min(settings.mtu_bytes as u64) as usize;
        let answer = Answer::new(settings, operation, psn, Syndrome::ACK_UNLIMITED, self.msn);
        Answer { payload_bytes, ..answer }
    }

    /// Copies the memory that the next packet carries.
    ///
    /// # Errors
    /// It went away, which has been explained.
    fn load<H: Host>(
        &self,
        settings: &Settings,
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
                detail: Detail::Remote(RemoteRange { rkey, address, length_bytes }),
            };
            host.log(&settings.context, cause);
            psn
        })
    }
}
