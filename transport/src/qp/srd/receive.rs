//! The side that receives messages: assembles them from parts in any order, executes each once, and remembers
//! how it ended until the sender says that it knows.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::answers::{SrdAnswer, SrdAnswers};
use super::header::{HEADER_BYTES, MAX_RDMA_BYTES, MAX_SEND_BYTES, SrdHeader, SrdPacketKind, SrdReason};
use super::packet::return_path;
use super::window::{PartSet, SPAN};
use crate::host::{CountedOperation, Host, NoRecv, RecvWqe, RemoteKey};
use crate::path::Arrival;
use crate::qp::settings::QpSettings;
use crate::types::{Access, WcFlags, WcOpcode, WcStatus, WorkCompletion};
use crate::wire::Qpn;

/// Largest number of queue pairs that are remembered; the one that was silent longest makes room.
const MAX_PEERS: usize = 1024;
/// Largest number of messages of all peers that are remembered.
const MAX_MESSAGES: usize = 1 << 16;
/// Largest number of bytes of partly received SENDs, of all peers.
const MAX_BYTES: usize = 1 << 22;
/// Smallest part length in bytes, which bounds the number of parts of a message.
const MIN_PART_BYTES: u16 = 64;
/// Value of `slid` in a completion whose sender has no address handle here.
const NO_HANDLE: u16 = 0xffff;

/// A packet that arrived.
pub(super) struct SrdArrival<'a> {
    pub(super) from: (IpAddr, Qpn),
    pub(super) arrival: &'a Arrival<'a>,
    pub(super) header: SrdHeader,
    pub(super) data: &'a [u8],
    pub(super) now_ns: u64,
}

/// State of a message.
#[derive(Debug)]
enum InboundMessage {
    /// Some parts have arrived, or all and there was no receive request.
    Partly {
        kind: SrdPacketKind,
        total: u32,
        part_bytes: u16,
        parts: PartSet,
        /// Data of a SEND, which goes into its receive request as a whole.
        data: Vec<u8>,
    },
    Ended(SrdReason),
}

/// A queue pair that sends messages to this one.
#[derive(Debug)]
struct SendingPeer {
    epoch: u64,
    /// Number below which all messages have ended, as the peer knows.
    floor: u64,
    messages: BTreeMap<u64, InboundMessage>,
    last_received_ns: u64,
}

/// State of all peers that send messages.
#[derive(Debug, Default)]
pub(super) struct SrdReceiver {
    peers: BTreeMap<(IpAddr, Qpn), SendingPeer>,
    /// Number of messages that are remembered, of all peers.
    messages: usize,
    /// Number of bytes in their `data`.
    bytes: usize,
    /// Receive request of a message that is about to end; reused for its memory.
    receive: RecvWqe,
    /// True if WRITEs with immediate data take no receive request.
    takes_unsolicited: bool,
}

/// Answer to a packet.
enum SrdOutcome {
    /// The parts that have arrived.
    Progress(PartSet),
    /// The parts that have arrived, and that a receive request is missing.
    NotReady(PartSet),
    Ended(SrdReason),
}

impl InboundMessage {
    fn bytes(&self) -> usize {
        if let InboundMessage::Partly { data, .. } = self { data.len() } else { 0 }
    }
}

impl SrdReceiver {
    pub(super) fn new(takes_unsolicited: bool) -> SrdReceiver {
        SrdReceiver { takes_unsolicited, ..SrdReceiver::default() }
    }

    pub(super) const fn takes_unsolicited(&self) -> bool {
        self.takes_unsolicited
    }

    /// Returns the address that the queue pair of this number sent from last.
    pub(super) fn source_of(&self, qpn: Qpn) -> Option<IpAddr> {
        let named = self.peers.iter().filter(|((_, of), _)| *of == qpn);
        named.max_by_key(|(_, peer)| peer.last_received_ns).map(|((address, _), _)| *address)
    }

    /// Handles a part of a message, or a request for a part of memory.
    pub(super) fn handle<H: Host>(
        &mut self,
        settings: &QpSettings,
        incoming: &SrdArrival<'_>,
        answers: &mut SrdAnswers,
        host: &mut H,
    ) {
        let Some(length) = well_formed(settings, incoming) else { return };
        let handle = host.address_handle(settings.context.pd, incoming.from.0);
        let header = &incoming.header;
        if header.kind == SrdPacketKind::Read {
            let (kind, reason) = match check_rdma(settings, header, handle, Access::REMOTE_READ, host) {
                SrdReason::None => (SrdPacketKind::Data, SrdReason::None),
                refused => (SrdPacketKind::Done, refused),
            };
            answers.push(answer(settings, incoming, SrdHeader { kind, reason: reason as u8, ..*header }));
            return;
        }
        let Some(outcome) = self.take(settings, incoming, length, handle, host) else { return };
        let (kind, reason, parts) = match outcome {
            SrdOutcome::Progress(parts) => (SrdPacketKind::Progress, SrdReason::None, parts),
            SrdOutcome::NotReady(parts) => (SrdPacketKind::NotReady, SrdReason::NotReady, parts),
            SrdOutcome::Ended(reason) => (SrdPacketKind::Done, reason, PartSet::default()),
        };
        let reason = reason as u8;
        let said = SrdHeader { kind, reason, part: parts.first_missing, floor: parts.beyond, ..*header };
        answers.push(answer(settings, incoming, said));
    }

    /// Processes a part; `None` if it is dropped without an answer.
    fn take<H: Host>(
        &mut self,
        settings: &QpSettings,
        incoming: &SrdArrival<'_>,
        length: usize,
        handle: Option<u16>,
        host: &mut H,
    ) -> Option<SrdOutcome> {
        let header = &incoming.header;
        self.update_peer(incoming)?;
        let peer = self.peers.get(&incoming.from)?;
        if header.message < peer.floor || header.message >= peer.floor.saturating_add(SPAN) {
            return None;
        }
        let is_new = !peer.messages.contains_key(&header.message);
        if is_new {
            self.begin(settings, incoming, handle, host)?;
        }
        let peer = self.peers.get_mut(&incoming.from)?;
        let message = peer.messages.get_mut(&header.message)?;
        let InboundMessage::Partly { kind, total, part_bytes, parts, data } = message else {
            let InboundMessage::Ended(reason) = message else { return None };
            return Some(SrdOutcome::Ended(*reason));
        };
        if (*kind, *total, *part_bytes) != (header.kind, header.total, header.part_bytes) {
            return None;
        }
        let mut failed = SrdReason::None;
        if parts.awaits(header.part) {
            if kind.is_send() {
                let start = header.offset() as usize;
                data.get_mut(start..start + length)?.copy_from_slice(incoming.data);
            } else if length > 0 {
                let address = header.address.wrapping_add(header.offset());
                let key = key_of(settings, header);
                if host.remote_write(key, address, incoming.data).is_err() {
                    failed = SrdReason::RemoteKey;
                }
            }
            parts.add(header.part);
        }
        let reason = if failed != SrdReason::None {
            failed
        } else if parts.first_missing < header.parts() {
            return Some(SrdOutcome::Progress(*parts));
        } else if kind.takes_receive() {
            let receive = Some(&mut self.receive).filter(|_| kind.is_send() || !self.takes_unsolicited);
            match end(settings, incoming, handle.unwrap_or(NO_HANDLE), data, receive, host) {
                Ok(reason) => reason,
                // The sender ends the message now: later parts of it must not be taken for a new message.
                Err(_) if header.reason == SrdReason::NotReady as u8 => SrdReason::NotReady,
                Err(NoRecv::Empty | NoRecv::NoSuchSrq) => return Some(SrdOutcome::NotReady(*parts)),
            }
        } else {
            SrdReason::None
        };
        if !kind.is_send() && reason == SrdReason::None && host.counts() {
            host.ended(&settings.context, CountedOperation::RemoteWrite, true);
        }
        self.bytes -= message.bytes();
        *message = InboundMessage::Ended(reason);
        Some(SrdOutcome::Ended(reason))
    }

    /// Records a message of which no part has arrived. Returns `None` if there is no room for it now.
    fn begin<H: Host>(
        &mut self,
        settings: &QpSettings,
        incoming: &SrdArrival<'_>,
        handle: Option<u16>,
        host: &mut H,
    ) -> Option<()> {
        let header = &incoming.header;
        let (kind, total, part_bytes) = (header.kind, header.total, header.part_bytes);
        let buffer_bytes = if kind.is_send() { total as usize } else { 0 };
        if self.messages >= MAX_MESSAGES || self.bytes + buffer_bytes > MAX_BYTES {
            return None;
        }
        let refused = match kind.is_send() {
            true => SrdReason::None,
            false => check_rdma(settings, header, handle, Access::REMOTE_WRITE, host),
        };
        let message = match refused {
            SrdReason::None => {
                let (parts, data) = (PartSet::default(), alloc::vec![0; buffer_bytes]);
                InboundMessage::Partly { kind, total, part_bytes, parts, data }
            }
            refused => InboundMessage::Ended(refused),
        };
        let bytes = message.bytes();
        self.peers.get_mut(&incoming.from)?.messages.insert(header.message, message);
        self.messages += 1;
        self.bytes += bytes;
        Some(())
    }

    /// Updates the record of the sender, and drops messages whose end the sender knows. Returns `None` if the
    /// packet is of an earlier queue pair of its number.
    fn update_peer(&mut self, incoming: &SrdArrival<'_>) -> Option<()> {
        let SrdArrival { from, header, now_ns, .. } = *incoming;
        if !self.peers.contains_key(&from) && self.peers.len() >= MAX_PEERS {
            let silent =
                self.peers.iter().min_by_key(|(_, peer)| peer.last_received_ns).map(|(from, _)| *from);
            silent.into_iter().for_each(|silent| self.forget(silent));
        }
        if self.peers.get(&from).is_some_and(|peer| peer.epoch < header.epoch) {
            self.forget(from);
        }
        let new = || SendingPeer {
            epoch: header.epoch,
            floor: 0,
            messages: BTreeMap::new(),
            last_received_ns: now_ns,
        };
        let peer = self.peers.entry(from).or_insert_with(new);
        if peer.epoch != header.epoch {
            return None;
        }
        peer.last_received_ns = now_ns;
        if header.floor > peer.floor && header.floor <= header.message {
            peer.floor = header.floor;
            let kept = peer.messages.split_off(&header.floor);
            let ended = core::mem::replace(&mut peer.messages, kept);
            self.messages -= ended.len();
            self.bytes -= ended.values().map(InboundMessage::bytes).sum::<usize>();
        }
        Some(())
    }

    fn forget(&mut self, from: (IpAddr, Qpn)) {
        if let Some(peer) = self.peers.remove(&from) {
            self.messages -= peer.messages.len();
            self.bytes -= peer.messages.values().map(InboundMessage::bytes).sum::<usize>();
        }
    }
}

/// Returns the length in bytes of a packet's part, if the packet is well formed.
fn well_formed(settings: &QpSettings, incoming: &SrdArrival<'_>) -> Option<usize> {
    let SrdArrival { header, data, .. } = incoming;
    let most = if header.kind.is_send() { MAX_SEND_BYTES } else { MAX_RDMA_BYTES };
    let length = header.length()?;
    let carried = if header.kind.carries_data() { length } else { 0 };
    let fits = header.kind != SrdPacketKind::Read || length + HEADER_BYTES <= settings.mtu_bytes;
    let is_so = header.total <= most && header.part_bytes >= MIN_PART_BYTES && data.len() == carried && fits;
    is_so.then_some(length)
}

fn key_of(settings: &QpSettings, header: &SrdHeader) -> RemoteKey {
    RemoteKey { rkey: header.rkey, pd: settings.context.pd, qpn: settings.context.qpn }
}

/// Checks whether memory may be accessed: the sender is known, and may access the whole range.
fn check_rdma<H: Host>(
    settings: &QpSettings,
    header: &SrdHeader,
    handle: Option<u16>,
    access: Access,
    host: &mut H,
) -> SrdReason {
    if handle.is_none() {
        return SrdReason::UnknownPeer;
    }
    if header.total == 0 {
        return SrdReason::None;
    }
    let checked = host.check_remote(key_of(settings, header), header.address, header.total.into(), access);
    checked.map_or(SrdReason::RemoteKey, |()| SrdReason::None)
}

/// Ends a message that has arrived completely, which takes its receive request into `receive`; `None` if it
/// needs no request.
///
/// # Errors
/// Fails if there is no request.
fn end<H: Host>(
    settings: &QpSettings,
    incoming: &SrdArrival<'_>,
    slid: u16,
    data: &[u8],
    receive: Option<&mut RecvWqe>,
    host: &mut H,
) -> Result<SrdReason, NoRecv> {
    let header = &incoming.header;
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
        src_qp: incoming.from.1.value(),
        slid,
        ..WorkCompletion::default()
    };
    if header.kind.has_imm() {
        completion.flags |= WcFlags::WITH_IMM;
        completion.imm_data = header.imm;
    }
    let (status, own, reason) = if !header.kind.is_send() {
        (WcStatus::Success, SrdReason::None, SrdReason::None)
    } else if data.len() as u64 > receive.length_bytes {
        (WcStatus::LocLenErr, SrdReason::Length, SrdReason::RemoteLength)
    } else if host.scatter(receive.pd, &receive.sges, 0, data).is_err() {
        (WcStatus::LocProtErr, SrdReason::LocalKey, SrdReason::RemoteAbort)
    } else {
        (WcStatus::Success, SrdReason::None, SrdReason::None)
    };
    (completion.status, completion.vendor_err) = (status, own as u32);
    host.complete_recv(&settings.context, receive.cq, completion, false);
    Ok(reason)
}

/// Returns the answer to a packet, by the path that it came.
fn answer(settings: &QpSettings, incoming: &SrdArrival<'_>, header: SrdHeader) -> SrdAnswer {
    let (path, qkey) = (return_path(incoming.arrival.flow), header.qkey);
    SrdAnswer { path, to: incoming.from.1, qkey, header: SrdHeader { qkey: settings.qkey, ..header } }
}
