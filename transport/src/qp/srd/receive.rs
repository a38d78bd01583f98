//! The side that receives messages: puts them together from parts in any order, carries each out once, and
//! remembers how it ended until the sender says that it knows.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::answers::{Answer, Answers};
use super::header::{HEADER_BYTES, Header, Kind, MAX_RDMA_BYTES, MAX_SEND_BYTES, Reason};
use super::window::{Parts, SPAN};
use crate::host::{Host, NoRecv, RecvWqe, RemoteKey};
use crate::path::{Arrival, Flow, Path};
use crate::qp::settings::Settings;
use crate::types::{Access, WcFlags, WcOpcode, WcStatus, WorkCompletion};
use crate::wire::Qpn;

/// Queue pairs that are remembered; the one that was silent longest makes room.
const MOST_PEERS: usize = 1024;
/// Messages of all peers that are remembered.
const MOST_MESSAGES: usize = 1 << 16;
/// Bytes of SENDs that have half arrived, of all peers.
const MOST_BYTES: usize = 1 << 22;
/// Least bytes of a part: a message has few enough of them.
const LEAST_PART_BYTES: u16 = 64;
/// `slid` of a completion whose sender has no address handle here.
const NO_HANDLE: u16 = 0xffff;

/// A packet that came.
pub(super) struct Came<'a> {
    pub(super) from: (IpAddr, Qpn),
    pub(super) arrival: &'a Arrival<'a>,
    pub(super) header: Header,
    pub(super) data: &'a [u8],
    pub(super) now_ns: u64,
}

/// What is known of a message.
#[derive(Debug)]
enum Message {
    /// Some of it has arrived, or all and no receive request was there.
    Partly {
        kind: Kind,
        total: u32,
        part_bytes: u16,
        parts: Parts,
        /// Of a SEND: it goes into its receive request as a whole.
        data: Vec<u8>,
    },
    Ended(Reason),
}

/// A queue pair that sends messages to this one.
#[derive(Debug)]
struct Peer {
    epoch: u64,
    /// Messages below have ended, and the peer knows.
    floor: u64,
    messages: BTreeMap<u64, Message>,
    heard_ns: u64,
}

/// What is known of all that send messages.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    peers: BTreeMap<(IpAddr, Qpn), Peer>,
    /// Messages that are remembered, of all peers.
    messages: usize,
    /// Bytes in their `data`.
    bytes: usize,
    /// Taken from the queue for a message that is about to end; kept for its memory.
    receive: RecvWqe,
    /// WRITEs with immediate data take no receive request.
    takes_unsolicited: bool,
}

/// What to do after a packet.
enum Outcome {
    /// Say which parts are there.
    Progress(Parts),
    /// Say that a receive request is missing.
    NotReady(Parts),
    Ended(Reason),
}

impl Message {
    fn bytes(&self) -> usize {
        if let Message::Partly { data, .. } = self { data.len() } else { 0 }
    }
}

impl Receiver {
    pub(super) fn new(takes_unsolicited: bool) -> Receiver {
        Receiver { takes_unsolicited, ..Receiver::default() }
    }

    pub(super) const fn takes_unsolicited(&self) -> bool {
        self.takes_unsolicited
    }

    /// The address that the queue pair of this number sent from last.
    pub(super) fn source_of(&self, qpn: Qpn) -> Option<IpAddr> {
        let named = self.peers.iter().filter(|((_, of), _)| *of == qpn);
        named.max_by_key(|(_, peer)| peer.heard_ns).map(|((address, _), _)| *address)
    }

    /// A part of a message, or a question for a part of memory.
    pub(super) fn handle<H: Host>(
        &mut self,
        settings: &Settings,
        came: &Came<'_>,
        answers: &mut Answers,
        host: &mut H,
    ) {
        let Some(length) = well_formed(settings, came) else { return };
        let handle = host.address_handle(settings.context.pd, came.from.0);
        let header = &came.header;
        if header.kind == Kind::Read {
            let (kind, reason) = match check_rdma(settings, header, handle, Access::REMOTE_READ, host) {
                Reason::None => (Kind::Data, Reason::None),
                refused => (Kind::Done, refused),
            };
            answers.push(answer(settings, came, Header { kind, reason: reason as u8, ..*header }));
            return;
        }
        let Some(outcome) = self.take(settings, came, length, handle, host) else { return };
        let (kind, reason, parts) = match outcome {
            Outcome::Progress(parts) => (Kind::Progress, Reason::None, parts),
            Outcome::NotReady(parts) => (Kind::NotReady, Reason::NotReady, parts),
            Outcome::Ended(reason) => (Kind::Done, reason, Parts::default()),
        };
        let reason = reason as u8;
        let said = Header { kind, reason, part: parts.first_missing, floor: parts.beyond, ..*header };
        answers.push(answer(settings, came, said));
    }

    /// What becomes of a part; `None`: it is dropped without an answer.
    fn take<H: Host>(
        &mut self,
        settings: &Settings,
        came: &Came<'_>,
        length: usize,
        handle: Option<u16>,
        host: &mut H,
    ) -> Option<Outcome> {
        let header = &came.header;
        self.meet(came)?;
        let peer = self.peers.get(&came.from)?;
        if header.message < peer.floor || header.message >= peer.floor.saturating_add(SPAN) {
            return None;
        }
        let is_new = !peer.messages.contains_key(&header.message);
        if is_new {
            self.begin(settings, came, handle, host)?;
        }
        let peer = self.peers.get_mut(&came.from)?;
        let message = peer.messages.get_mut(&header.message)?;
        let Message::Partly { kind, total, part_bytes, parts, data } = message else {
            let Message::Ended(reason) = message else { return None };
            return Some(Outcome::Ended(*reason));
        };
        if (*kind, *total, *part_bytes) != (header.kind, header.total, header.part_bytes) {
            return None;
        }
        let mut failed = Reason::None;
        if parts.awaits(header.part) {
            if kind.is_send() {
                let start = header.offset() as usize;
                data.get_mut(start..start + length)?.copy_from_slice(came.data);
            } else if length > 0 {
                let address = header.address.wrapping_add(header.offset());
                let key = key_of(settings, header);
                if host.remote_write(key, address, came.data).is_err() {
                    failed = Reason::RemoteKey;
                }
            }
            parts.add(header.part);
        }
        let reason = if failed != Reason::None {
            failed
        } else if parts.first_missing < header.parts() {
            return Some(Outcome::Progress(*parts));
        } else if kind.takes_receive() {
            let receive = Some(&mut self.receive).filter(|_| kind.is_send() || !self.takes_unsolicited);
            match end(settings, came, handle.unwrap_or(NO_HANDLE), data, receive, host) {
                Ok(reason) => reason,
                // The sender ends it now: what comes of it later must not be taken for a new message.
                Err(_) if header.reason == Reason::NotReady as u8 => Reason::NotReady,
                Err(NoRecv::Empty | NoRecv::NoSuchSrq) => return Some(Outcome::NotReady(*parts)),
            }
        } else {
            Reason::None
        };
        self.bytes -= message.bytes();
        *message = Message::Ended(reason);
        Some(Outcome::Ended(reason))
    }

    /// Remembers a message of which nothing has arrived. `None`: there is no room for it now.
    fn begin<H: Host>(
        &mut self,
        settings: &Settings,
        came: &Came<'_>,
        handle: Option<u16>,
        host: &mut H,
    ) -> Option<()> {
        let header = &came.header;
        let (kind, total, part_bytes) = (header.kind, header.total, header.part_bytes);
        let buffer_bytes = if kind.is_send() { total as usize } else { 0 };
        if self.messages >= MOST_MESSAGES || self.bytes + buffer_bytes > MOST_BYTES {
            return None;
        }
        let refused = match kind.is_send() {
            true => Reason::None,
            false => check_rdma(settings, header, handle, Access::REMOTE_WRITE, host),
        };
        let message = match refused {
            Reason::None => {
                let (parts, data) = (Parts::default(), alloc::vec![0; buffer_bytes]);
                Message::Partly { kind, total, part_bytes, parts, data }
            }
            refused => Message::Ended(refused),
        };
        let bytes = message.bytes();
        self.peers.get_mut(&came.from)?.messages.insert(header.message, message);
        self.messages += 1;
        self.bytes += bytes;
        Some(())
    }

    /// Makes sure that the sender is known as it is now, and forgets what it knows the end of. `None`: the
    /// packet is of an earlier queue pair of its number.
    fn meet(&mut self, came: &Came<'_>) -> Option<()> {
        let Came { from, header, now_ns, .. } = *came;
        if !self.peers.contains_key(&from) && self.peers.len() >= MOST_PEERS {
            let silent = self.peers.iter().min_by_key(|(_, peer)| peer.heard_ns).map(|(from, _)| *from);
            silent.into_iter().for_each(|silent| self.forget(silent));
        }
        if self.peers.get(&from).is_some_and(|peer| peer.epoch < header.epoch) {
            self.forget(from);
        }
        let new = || Peer { epoch: header.epoch, floor: 0, messages: BTreeMap::new(), heard_ns: now_ns };
        let peer = self.peers.entry(from).or_insert_with(new);
        if peer.epoch != header.epoch {
            return None;
        }
        peer.heard_ns = now_ns;
        if header.floor > peer.floor && header.floor <= header.message {
            peer.floor = header.floor;
            let kept = peer.messages.split_off(&header.floor);
            let ended = core::mem::replace(&mut peer.messages, kept);
            self.messages -= ended.len();
            self.bytes -= ended.values().map(Message::bytes).sum::<usize>();
        }
        Some(())
    }

    fn forget(&mut self, from: (IpAddr, Qpn)) {
        if let Some(peer) = self.peers.remove(&from) {
            self.messages -= peer.messages.len();
            self.bytes -= peer.messages.values().map(Message::bytes).sum::<usize>();
        }
    }
}

/// The bytes of a packet's part, if the packet is as one must be.
fn well_formed(settings: &Settings, came: &Came<'_>) -> Option<usize> {
    let Came { header, data, .. } = came;
    let most = if header.kind.is_send() { MAX_SEND_BYTES } else { MAX_RDMA_BYTES };
    let length = header.length()?;
    let carried = if header.kind.carries_data() { length } else { 0 };
    let fits = header.kind != Kind::Read || length + HEADER_BYTES <= settings.mtu_bytes;
    let is_so =
        header.total <= most && header.part_bytes >= LEAST_PART_BYTES && data.len() == carried && fits;
    is_so.then_some(length)
}

fn key_of(settings: &Settings, header: &Header) -> RemoteKey {
    RemoteKey { rkey: header.rkey, pd: settings.context.pd, qpn: settings.context.qpn }
}

/// Whether memory may be reached: the sender is known, and the whole range is open to it.
fn check_rdma<H: Host>(
    settings: &Settings,
    header: &Header,
    handle: Option<u16>,
    access: Access,
    host: &mut H,
) -> Reason {
    if handle.is_none() {
        return Reason::UnknownPeer;
    }
    if header.total == 0 {
        return Reason::None;
    }
    let checked = host.check_remote(key_of(settings, header), header.address, header.total.into(), access);
    checked.map_or(Reason::RemoteKey, |()| Reason::None)
}

/// A message is there: it takes its receive request into `receive`. None: it needs none.
///
/// # Errors
/// There is none.
fn end<H: Host>(
    settings: &Settings,
    came: &Came<'_>,
    slid: u16,
    data: &[u8],
    receive: Option<&mut RecvWqe>,
    host: &mut H,
) -> Result<Reason, NoRecv> {
    let header = &came.header;
    let mut unsolicited = RecvWqe { cq: settings.context.recv_cq, ..RecvWqe::default() };
    let receive = match receive {
        Some(receive) => {
            host.take_recv(&settings.context, None, receive)?;
            receive
        }
        None => &mut unsolicited,
    };
    let mut completion = WorkCompletion {
        wr_id: receive.wr_id,
        opcode: if header.kind.is_send() { WcOpcode::Recv } else { WcOpcode::RecvRdmaWithImm },
        byte_len: header.total,
        qp_num: settings.context.qpn.value(),
        src_qp: came.from.1.value(),
        slid,
        ..WorkCompletion::default()
    };
    if header.kind.has_imm() {
        completion.flags |= WcFlags::WITH_IMM;
        completion.imm_data = header.imm;
    }
    let (status, own, reason) = if !header.kind.is_send() {
        (WcStatus::Success, Reason::None, Reason::None)
    } else if data.len() as u64 > receive.length_bytes {
        (WcStatus::LocLenErr, Reason::Length, Reason::RemoteLength)
    } else if host.scatter(receive.pd, &receive.sges, 0, data).is_err() {
        (WcStatus::LocProtErr, Reason::LocalKey, Reason::RemoteAbort)
    } else {
        (WcStatus::Success, Reason::None, Reason::None)
    };
    (completion.status, completion.vendor_err) = (status, own as u32);
    host.complete_recv(&settings.context, receive.cq, completion, false);
    Ok(reason)
}

/// The answer to a packet, back the way that it came.
fn answer(settings: &Settings, came: &Came<'_>, header: Header) -> Answer {
    let Flow { source, destination, source_port, destination_port } = *came.arrival.flow;
    let flow = Flow { source: destination, destination: source, source_port, destination_port };
    let path = Arc::new(Path { flow, traffic_class: 0, hop_limit: u8::MAX, flow_label: 0 });
    let qkey = header.qkey;
    Answer { path, to: came.from.1, qkey, header: Header { qkey: settings.qkey, ..header } }
}
