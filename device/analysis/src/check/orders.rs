//! Records of requests, by which the checks know which of them nothing orders.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use pumice_platform::call_stack::Stack;
use pumice_platform::number_map::{Intervals, NumberMap, RangeId};
use pumice_transport::types::{RemoteRange, SendFlags, SendRequest, WrClass};
use pumice_transport::wire::ProcessIndex;

use crate::check::context::WaitCounter;

/// The process that a queue pair is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::check) struct PeerProcess {
    pub(in crate::check) address: IpAddr,
    pub(in crate::check) process: ProcessIndex,
}

/// The memory of a peer: the peer, and the R_Key.
pub(in crate::check) type PeerMemory = (PeerProcess, u32);

/// An access of a request to memory of a peer.
#[derive(Debug, Clone)]
pub(in crate::check) struct PeerMemoryAccess {
    pub(in crate::check) number: u32,
    pub(in crate::check) message: u64,
    pub(in crate::check) class: WrClass,
    pub(in crate::check) name: &'static str,
    /// Address of the first byte of its payload in this process; 0 if it has none.
    pub(in crate::check) source: u64,
    pub(in crate::check) stack: Stack,
}

/// Returns the memory of the peer that a request names.
pub(in crate::check) fn target_of(
    request: &SendRequest<'_>,
    length_bytes: u32,
) -> Option<(WrClass, RemoteRange)> {
    let info = request.opcode.info();
    let length_bytes = match info.class {
        WrClass::Write | WrClass::Read => length_bytes.into(),
        WrClass::Atomic => 8,
        // ATOMIC WRITE, with its one word; FLUSH uses no bytes.
        WrClass::Confirmed if info.data.is_sent() => 8,
        _ => return None,
    };
    let range = RemoteRange { rkey: request.remote.rkey, address: request.remote.address, length_bytes };
    let class = if info.class == WrClass::Confirmed { WrClass::Atomic } else { info.class };
    (length_bytes > 0).then_some((class, range))
}

/// Reports whether the bytes depend on which of two requests of different queue pairs is first.
pub(in crate::check) fn conflict(one: WrClass, other: WrClass) -> bool {
    one == WrClass::Write || other == WrClass::Write
}

/// Memory that a READ or an atomic fills.
#[derive(Debug, Clone)]
pub(in crate::check) struct LandingBuffer {
    pub(in crate::check) number: u32,
    pub(in crate::check) message: u64,
    pub(in crate::check) name: &'static str,
    pub(in crate::check) stack: Stack,
}

/// A WRITE of which packets are to come.
#[derive(Debug, Clone)]
pub(in crate::check) struct IncomingWrite {
    pub(in crate::check) range: RemoteRange,
    /// Access by another queue pair's peer to bytes of the range meanwhile.
    pub(in crate::check) met: Option<(u32, RemoteRange)>,
}

pub(in crate::check) fn overlap(one: &RemoteRange, other: &RemoteRange) -> bool {
    let end = |range: &RemoteRange| range.address.saturating_add(range.length_bytes);
    one.rkey == other.rkey && one.address < end(other) && other.address < end(one)
}

/// Number of times in sequence that a message follows WRITEs of another queue pair before that is reported.
/// Messages that have nothing to do with the WRITEs do not take turns with them for so long.
pub(in crate::check) const NOTICE_TURNS: u32 = 8;

/// The WRITEs and the messages to one peer.
#[derive(Debug, Default)]
pub(in crate::check) struct Notices {
    /// Newest WRITE without a message after it.
    pub(in crate::check) written: Option<LatestWrite>,
    /// Queue pairs of the WRITEs and of the messages.
    pub(in crate::check) pair: (u32, u32),
    pub(in crate::check) turns: u32,
    pub(in crate::check) is_reported: bool,
}

#[derive(Debug)]
pub(in crate::check) struct LatestWrite {
    pub(in crate::check) number: u32,
    pub(in crate::check) message: u64,
    pub(in crate::check) stack: Stack,
}

impl Notices {
    /// Notes that the peer may have told that the WRITEs have arrived.
    pub(in crate::check) fn note_peer_progress(&mut self) {
        self.written = None;
    }

    /// Handles a message on the queue pair `number`. `is_over` returns whether the program knows that the
    /// WRITE before it is over. Returns the WRITE if the message is one too many.
    pub(in crate::check) fn message_sent(
        &mut self,
        number: u32,
        is_over: impl Fn(&LatestWrite) -> bool,
    ) -> Option<LatestWrite> {
        let Some(written) = self.written.take() else {
            if self.pair.1 == number {
                self.turns = 0;
            }
            return None;
        };
        let pair = (written.number, number);
        if written.number == number || is_over(&written) {
            self.turns = 0;
            return None;
        }
        self.turns = if pair == self.pair { self.turns + 1 } else { 1 };
        self.pair = pair;
        let is_one_too_many = self.turns >= NOTICE_TURNS && !std::mem::replace(&mut self.is_reported, true);
        is_one_too_many.then_some(written)
    }
}

/// The state of one peer's WRITEs and messages.
#[derive(Debug, Default)]
pub(in crate::check) struct ArrivedWrites {
    /// Newest WRITE whose data was not yet shown to be there: its queue pair, and the key.
    written: Option<(u32, u32)>,
    /// Queue pairs of the WRITEs and of the messages.
    pair: (u32, u32),
    turns: u32,
    is_reported: bool,
}

impl ArrivedWrites {
    /// Notes that a WRITE begins to come to a relaxed region.
    pub(in crate::check) fn written(&mut self, number: u32, rkey: u32) {
        self.written = Some((number, rkey));
    }

    /// Notes that something has come on a queue pair that shows all data before it.
    pub(in crate::check) fn shown(&mut self, number: u32) {
        if self.written.is_some_and(|(own, _)| own == number) {
            self.written = None;
        }
        if self.pair.0 == number {
            self.turns = 0;
        }
    }

    /// Handles a message that the program has polled on a queue pair that does not show the data. Returns the
    /// queue pair of the WRITE and its key if the message is one too many.
    pub(in crate::check) fn message_polled(&mut self, number: u32) -> Option<(u32, u32)> {
        let Some((of, rkey)) = self.written.take() else {
            if self.pair.1 == number {
                self.turns = 0;
            }
            return None;
        };
        let pair = (of, number);
        self.turns = if pair == self.pair { self.turns + 1 } else { 1 };
        self.pair = pair;
        let is_one_too_many = self.turns >= NOTICE_TURNS && !std::mem::replace(&mut self.is_reported, true);
        is_one_too_many.then_some((of, rkey))
    }
}

/// Number of requests and completions that are remembered of a queue pair.
const MAX_RANGES: usize = 1 << 14;
/// Number of posts of a queue pair whose stacks are captured, because that costs time.
pub(in crate::check) const MAX_STACKS: u32 = 64;

/// The ranges of requests, oldest first.
#[derive(Debug)]
pub(in crate::check) struct RequestRanges<K>(VecDeque<(u64, RangeId<K>)>);

impl<K> Default for RequestRanges<K> {
    fn default() -> RequestRanges<K> {
        RequestRanges(VecDeque::new())
    }
}

impl<K: Copy> RequestRanges<K> {
    /// Adds a range of a request, and returns one that is too many.
    pub(in crate::check) fn push(&mut self, message: u64, id: RangeId<K>) -> Option<RangeId<K>> {
        self.0.push_back((message, id));
        if self.0.len() > MAX_RANGES { self.0.pop_front().map(|(_, id)| id) } else { None }
    }

    /// Takes the next range of a request before `known`.
    pub(in crate::check) fn over(&mut self, known: u64) -> Option<RangeId<K>> {
        let (message, id) = *self.0.front()?;
        if message >= known {
            return None;
        }
        self.0.pop_front();
        Some(id)
    }
}

/// A connected queue pair.
#[derive(Debug)]
pub(in crate::check) struct OrderedQp {
    pub(in crate::check) peer: PeerProcess,
    /// Number of the first request that is not over.
    ended: u64,
    /// Value of `ended` at each completion that waits to be polled.
    unpolled: VecDeque<u64>,
    /// Number of the first request that the program does not know to be over.
    pub(in crate::check) known: u64,
    /// Newest request with IBV_SEND_FENCE: READs and atomics before it are over when it begins, and when
    /// later requests begin.
    pub(in crate::check) fenced: u64,
    pub(in crate::check) remote: RequestRanges<PeerMemory>,
    pub(in crate::check) local: RequestRanges<()>,
    pub(in crate::check) stacks: u32,
    /// WRITE of the peer of which packets are to come.
    pub(in crate::check) incoming: Option<IncomingWrite>,
    pub(in crate::check) echo: Echo,
}

impl OrderedQp {
    pub(in crate::check) fn new(peer: PeerProcess) -> OrderedQp {
        OrderedQp {
            peer,
            ended: 0,
            unpolled: VecDeque::new(),
            known: 0,
            fenced: 0,
            remote: RequestRanges::default(),
            local: RequestRanges::default(),
            stacks: 0,
            incoming: None,
            echo: Echo::default(),
        }
    }

    /// Starts at the request `next`: the requests before it are over, as far as can be known.
    pub(in crate::check) fn begins_at(&mut self, next: u64) {
        (self.ended, self.known) = (next, next);
    }

    pub(in crate::check) fn fence(&mut self, message: u64, request: &SendRequest<'_>) {
        if request.flags.contains(SendFlags::FENCE) {
            self.fenced = message;
        }
    }

    pub(in crate::check) fn completed(&mut self, released: u32) {
        self.ended = self.ended.saturating_add(released.max(1).into());
        self.unpolled.push_back(self.ended);
        if self.unpolled.len() > MAX_RANGES {
            self.unpolled.pop_front();
        }
    }

    pub(in crate::check) fn polled(&mut self) {
        if let Some(ended) = self.unpolled.pop_front() {
            self.known = self.known.max(ended);
        }
    }
}

/// Number of times in sequence that an answer follows a WRITE before that is reported.
const TURNS: u32 = 64;
/// Number of turns before the check reads whether the thread waits, which costs a system call.
const FIRST_TURNS: u32 = 8;
/// Number of aligned bytes that adapters and processors write at once.
const MAX_WORD_BYTES: u64 = 8;

/// The WRITEs that come to a queue pair, and the program's posts on it in turn.
#[derive(Debug, Default)]
pub(in crate::check) struct Echo {
    /// Length of the newest WRITE, in bytes.
    pub(in crate::check) length_bytes: u64,
    /// Later WRITEs of the queue pair may be stored before the newest one of more than a word.
    lets_pass: bool,
    /// A WRITE of one word came behind a longer one that it may pass: a flag.
    is_flag: bool,
    /// A WRITE has come since the last post.
    is_written: bool,
    pub(in crate::check) turns: u32,
    /// Number of turns at which the thread has not waited in the operating system, which could have told it.
    /// The first turns are not examined.
    pub(in crate::check) calm: u32,
    /// Time mark at which the program was last told of something else.
    pub(in crate::check) notified: u64,
    /// Number of the thread's waits at the last post that was examined.
    pub(in crate::check) switches: u64,
    pub(in crate::check) is_reported: bool,
}

impl Echo {
    pub(in crate::check) fn begins(&mut self, length_bytes: u64, lets_pass: bool) {
        self.is_flag = self.is_written && self.lets_pass && length_bytes <= MAX_WORD_BYTES;
        if !self.is_flag {
            (self.length_bytes, self.lets_pass) = (length_bytes, lets_pass);
        }
    }

    /// Handles a WRITE without an immediate that has come.
    pub(in crate::check) fn written(&mut self, notified: u64) {
        if self.is_flag && self.notified == notified {
            // The flag belongs to the turn of the data before it.
            return;
        }
        let is_turn = self.length_bytes > MAX_WORD_BYTES && !self.is_written && self.notified == notified;
        if !is_turn {
            (self.turns, self.calm, self.notified) = (0, 0, notified);
        }
        self.is_written = self.length_bytes > MAX_WORD_BYTES;
    }

    /// Handles a post of the program. Returns true if posting after WRITEs has become a habit.
    pub(in crate::check) fn posted(&mut self, notified: u64, switches: WaitCounter) -> bool {
        let is_turn = std::mem::replace(&mut self.is_written, false) && self.notified == notified;
        if !is_turn {
            (self.turns, self.calm) = (0, 0);
            return false;
        }
        self.turns = self.turns.saturating_add(1);
        if self.is_reported || self.turns < FIRST_TURNS {
            return false;
        }
        let switches = switches();
        let is_calm = std::mem::replace(&mut self.switches, switches) == switches;
        self.calm = self.calm.saturating_add(is_calm.into());
        let is_habit = self.turns >= TURNS && self.calm.saturating_mul(4) >= self.turns.saturating_mul(3);
        is_habit && !std::mem::replace(&mut self.is_reported, true)
    }
}

/// The known order of requests.
#[derive(Debug, Default)]
pub(super) struct RequestOrdering {
    /// Connected queue pairs, by number.
    pub(super) qps: NumberMap<u32, OrderedQp>,
    /// Number of queue pairs that are connected to each peer.
    pub(super) peers: BTreeMap<PeerProcess, u32>,
    /// Accesses to memory of peers by requests that are not known to be over.
    pub(super) remote: Intervals<PeerMemory, PeerMemoryAccess>,
    /// Memory of the program that READs and atomics will fill.
    pub(super) landings: Intervals<(), LandingBuffer>,
    pub(super) notices: BTreeMap<PeerProcess, Notices>,
    /// WRITEs of peers to relaxed regions.
    pub(super) arrived: BTreeMap<PeerProcess, ArrivedWrites>,
    /// Regions with relaxed ordering, by key, with the call site that registered them.
    pub(super) relaxed: BTreeMap<u64, Stack>,
    /// Queue pairs that place data out of order.
    pub(super) out_of_order: BTreeSet<u32>,
    /// Counter that changes when the program may have been told of anything.
    pub(super) notified: u64,
}
