//! The responder's answers: a queue of what is to be sent, and a memory of what was answered.

use alloc::collections::VecDeque;

use super::requester::Progress;
use super::responder::packets_of;
use super::settings::Settings;
use crate::host::{Host, RemoteKey, Transmit};
use crate::types::Cause;
use crate::wire::{Aeth, AtomicAckEth, Headers, NakCode, Operation, Psn, Syndrome};

/// Places in the response queue beyond those for READs and atomics: acknowledgements between them.
const ACKNOWLEDGE_PLACES: usize = 8;

/// A READ, atomic, FLUSH or ATOMIC WRITE that was executed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replay {
    pub(crate) first_psn: Psn,
    pub(crate) count: u32,
    pub(crate) kind: ReplayKind,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum ReplayKind {
    /// Is executed again: memory may have changed.
    Read { key: RemoteKey, address: u64, length_bytes: u32 },
    /// Is answered with the first original value.
    Atomic { original: u64 },
    /// FLUSH and ATOMIC WRITE.
    Empty,
}

#[derive(Debug, Clone, Copy)]
struct ReadStream {
    key: RemoteKey,
    first_psn: Psn,
    address: u64,
    length_bytes: u32,
    count: u32,
    sent: u32,
    msn: u32,
}

#[derive(Debug, Clone, Copy)]
enum Response {
    Acknowledge {
        syndrome: Syndrome,
        psn: Psn,
        msn: u32,
    },
    Read(ReadStream),
    Atomic {
        psn: Psn,
        original: u64,
        msn: u32,
    },
    /// READ RESPONSE ONLY without payload.
    Empty {
        psn: Psn,
        msn: u32,
    },
}

impl Response {
    fn last_psn(&self) -> Psn {
        match self {
            Response::Acknowledge { psn, .. }
            | Response::Atomic { psn, .. }
            | Response::Empty { psn, .. } => *psn,
            Response::Read(stream) => stream.first_psn.plus(stream.count - 1),
        }
    }
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
    replays: VecDeque<Replay>,
}

impl Responses {
    pub(crate) fn new() -> Responses {
        Responses { queue: VecDeque::new(), replays: VecDeque::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.replays.clear();
    }

    pub(crate) fn urgency(&self) -> Urgency {
        match self.queue.front() {
            None => Urgency::None,
            Some(Response::Acknowledge { .. }) if self.queue.len() == 1 => Urgency::Acknowledgement,
            Some(_) => Urgency::Data,
        }
    }

    /// No place for another READ or atomic: the peer exceeds what it was granted.
    pub(crate) fn is_full(&self, max_dest_rd_atomic: u8) -> bool {
        self.queue.len() >= usize::from(max_dest_rd_atomic) + ACKNOWLEDGE_PLACES
    }

    /// Queues an ACK or NAK. An ACK takes the place of one that has not left yet.
    pub(crate) fn push_acknowledge(&mut self, syndrome: Syndrome, psn: Psn, msn: u32) {
        let new = Response::Acknowledge { syndrome, psn, msn };
        match self.queue.back_mut() {
            Some(back @ Response::Acknowledge { syndrome: Syndrome::Ack { .. }, .. }) => *back = new,
            Some(Response::Acknowledge {
                syndrome: Syndrome::Nak(NakCode::Sequence) | Syndrome::RnrNak { .. },
                psn: nak_psn,
                ..
            }) if matches!(syndrome, Syndrome::Ack { .. }) && psn.is_before(*nak_psn) => {
                // A duplicate's ACK says nothing that the waiting NAK does not say.
            }
            _ => {
                // Sequence and RNR NAKs are one at a time, so only repeated ACK, NAK, ACK … can
                // lengthen the queue; the newest entry is the one that counts.
                if self.queue.len() >= 2 * ACKNOWLEDGE_PLACES + usize::from(u8::MAX) {
                    self.queue.pop_front();
                }
                self.queue.push_back(new);
            }
        }
    }

    pub(crate) fn push_read(
        &mut self,
        first_psn: Psn,
        key: RemoteKey,
        address: u64,
        length_bytes: u32,
        mtu_bytes: usize,
        msn: u32,
    ) {
        let count = packets_of(length_bytes, mtu_bytes);
        let stream = ReadStream { key, first_psn, address, length_bytes, count, sent: 0, msn };
        self.queue.push_back(Response::Read(stream));
    }

    pub(crate) fn push_atomic(&mut self, psn: Psn, original: u64, msn: u32) {
        self.queue.push_back(Response::Atomic { psn, original, msn });
    }

    pub(crate) fn push_empty(&mut self, psn: Psn, msn: u32) {
        self.queue.push_back(Response::Empty { psn, msn });
    }

    /// Remembers an executed operation; the oldest is forgotten beyond the granted number.
    pub(crate) fn remember(&mut self, replay: Replay, max_dest_rd_atomic: u8) {
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
                let position = psn.since(replay.first_psn);
                position >= 0 && (position as u32) < replay.count
            })
            .copied()
    }

    /// Drops queued responses at or after `psn`: their requests are being sent again.
    pub(crate) fn drop_from(&mut self, psn: Psn) {
        while self.queue.back().is_some_and(|response| !response.last_psn().is_before(psn)) {
            self.queue.pop_back();
        }
    }

    /// Drops READ streams that have not left: the queue pair fails.
    pub(crate) fn drop_data(&mut self) {
        self.queue.retain(|response| !matches!(response, Response::Read(_)));
    }

    /// Sends queued responses in order.
    ///
    /// # Errors
    /// Memory being read for the peer went away; the PSN at which that happened.
    pub(crate) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
        host: &mut H,
        sink: &mut T,
    ) -> Result<Progress, Psn> {
        let Some(path) = settings.path.as_deref() else {
            self.queue.clear();
            return Ok(Progress::Idle);
        };
        while let Some(response) = self.queue.front_mut() {
            let (mut headers, payload_bytes) = match response {
                Response::Acknowledge { syndrome, psn, msn } => {
                    let mut headers = Headers::new(settings.bth(Operation::Acknowledge, *psn));
                    headers.aeth = Some(Aeth { syndrome: syndrome.byte(), msn: *msn });
                    (headers, 0)
                }
                Response::Atomic { psn, original, msn } => {
                    let mut headers = Headers::new(settings.bth(Operation::AtomicAcknowledge, *psn));
                    headers.aeth = Some(Aeth { syndrome: Syndrome::ACK_UNLIMITED.byte(), msn: *msn });
                    headers.atomic_ack_eth = Some(AtomicAckEth { original: *original });
                    (headers, 0)
                }
                Response::Empty { psn, msn } => {
                    let mut headers = Headers::new(settings.bth(Operation::ReadResponseOnly, *psn));
                    headers.aeth = Some(Aeth { syndrome: Syndrome::ACK_UNLIMITED.byte(), msn: *msn });
                    (headers, 0)
                }
                Response::Read(stream) => stream.next_packet(settings),
            };
            headers.bth.pad_count = (payload_bytes.wrapping_neg() & 3) as u8;
            let pad = usize::from(headers.bth.pad_count);
            let header_bytes = headers.len();
            let length = header_bytes + payload_bytes + pad + 4;
            let Some(packet) = sink.begin(path, settings.destination, length) else {
                return Ok(Progress::Blocked);
            };
            headers.emit(packet);
            let payload_end = header_bytes + payload_bytes;
            if let Response::Read(stream) = response
                && let Some(body) = packet.get_mut(header_bytes..payload_end)
                && !body.is_empty()
            {
                let offset = u64::from(stream.sent) * settings.mtu_bytes as u64;
                let address = stream.address.wrapping_add(offset);
                if let Err(error) = host.remote_read(stream.key, address, body) {
                    sink.abandon();
                    let psn = headers.bth.psn;
                    host.explain(
                        &settings.context,
                        Cause::RequestRefused {
                            syndrome: Syndrome::Nak(NakCode::RemoteAccess).byte(),
                            psn,
                            reason: error.reason(),
                        },
                    );
                    return Err(psn);
                }
            }
            if let Some(padding) = packet.get_mut(payload_end..payload_end + pad) {
                padding.fill(0);
            }
            sink.seal();
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

impl ReadStream {
    /// Headers and payload length of the next response packet. Middle packets carry no AETH.
    fn next_packet(&self, settings: &Settings) -> (Headers, usize) {
        let last = self.sent + 1 >= self.count;
        let operation = match (self.sent == 0, last) {
            (true, true) => Operation::ReadResponseOnly,
            (true, false) => Operation::ReadResponseFirst,
            (false, false) => Operation::ReadResponseMiddle,
            (false, true) => Operation::ReadResponseLast,
        };
        let mut headers = Headers::new(settings.bth(operation, self.first_psn.plus(self.sent)));
        if operation != Operation::ReadResponseMiddle {
            headers.aeth = Some(Aeth { syndrome: Syndrome::ACK_UNLIMITED.byte(), msn: self.msn });
        }
        let offset = u64::from(self.sent) * settings.mtu_bytes as u64;
        let left = u64::from(self.length_bytes).saturating_sub(offset);
        (headers, left.min(settings.mtu_bytes as u64) as usize)
    }
}
