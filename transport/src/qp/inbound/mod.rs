//! Incoming messages: the packets of a SEND go into a receive request, those of a WRITE into the memory that
//! the message names. Messages of all services are assembled here; each service decides about the effect of a
//! fault.

mod lane;

use crate::event::{QpEvent, Topic};
use crate::host::{
    CountedOperation, Ended, Host, MemoryError, NoRecv, RecvWqe, RemoteKey, Tagged, TaggedStart, fault_of,
};
use crate::qp::settings::QpSettings;
use crate::types::{Access, FailureDetail, RemoteRange, WcFlags, WcOpcode, WcStatus, WorkCompletion};
use crate::wire::{OperationClass, Packet, Reth};

/// A message of which some packets have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartialMessage {
    None,
    /// A SEND into the receive request taken at its first packet.
    Send {
        offset: u64,
    },
    /// A WRITE: the address of the next byte, and the number of bytes to come.
    Write {
        rkey: u32,
        address: u64,
        remaining: u64,
        total: u32,
    },
    /// A SEND to an XRC target whose receive request belongs to another process, which alone can continue it.
    Elsewhere {
        offset: u64,
    },
}

/// Reason why a packet's message cannot continue. Unless the variant says otherwise, the packet changed
/// nothing.
#[derive(Debug)]
pub(crate) enum InboundFault {
    /// No receive request is posted.
    NoReceive,
    /// The packet names an XRC SRQ that the target's domain does not have.
    NoSuchSrq,
    /// The packet continues a message whose first packet has not arrived.
    Headless,
    /// The packet does not continue the message in progress.
    OutOfTurn,
    /// Another process has the message in progress.
    Elsewhere,
    /// The payloads of a WRITE do not add up to the length in its first packet.
    Length,
    /// The receive request in use is too short, by these numbers.
    TooLong(FailureDetail),
    /// The receive request in use names memory that cannot be used.
    ReceiveMemory(FailureDetail),
    /// The memory that a WRITE names cannot be written.
    RemoteMemory(MemoryError),
    /// The key that a SEND invalidates cannot be invalidated. The SEND's data has arrived.
    Key(MemoryError),
    /// The host gives the receive request in use this status. The message's data has arrived.
    Judged(WcStatus),
}

impl InboundFault {
    /// Describes the fault, for messages.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            InboundFault::NoReceive => "no receive request is posted",
            InboundFault::NoSuchSrq => "no such XRC SRQ in the target's domain",
            InboundFault::Headless => "the message's first packet was lost",
            InboundFault::OutOfTurn => "the opcode does not continue the message in progress",
            InboundFault::Elsewhere => "another process has the message in progress",
            InboundFault::Length => "the payloads do not add up to the RETH length",
            InboundFault::TooLong(_) => "the message is longer than its receive request",
            InboundFault::ReceiveMemory(_) => "its receive request names memory that cannot be used",
            InboundFault::RemoteMemory(error) | InboundFault::Key(error) => error.reason(),
            InboundFault::Judged(_) => "a rule of the fault plan ends its receive request",
        }
    }
}

/// Error of a receive request of an unreliable service that cannot hold its message: the queue pair goes to
/// ERR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferFailure {
    pub(crate) status: WcStatus,
    pub(crate) detail: FailureDetail,
}

impl InboundFault {
    /// Returns the fault as one of the receive request in use, if it is one.
    pub(crate) const fn buffer_failure(&self) -> Option<BufferFailure> {
        match *self {
            InboundFault::TooLong(detail) => Some(BufferFailure { status: WcStatus::LocLenErr, detail }),
            InboundFault::ReceiveMemory(detail) => {
                Some(BufferFailure { status: WcStatus::LocProtErr, detail })
            }
            InboundFault::Judged(status) => Some(BufferFailure { status, detail: FailureDetail::None }),
            _ => None,
        }
    }
}

impl From<NoRecv> for InboundFault {
    fn from(error: NoRecv) -> InboundFault {
        match error {
            NoRecv::Empty => InboundFault::NoReceive,
            NoRecv::NoSuchSrq => InboundFault::NoSuchSrq,
        }
    }
}

/// The message in progress, and the receive request in use.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) message: PartialMessage,
    recv: RecvWqe,
    /// True if `recv` was taken and not yet completed. On UC it may outlive its message: the next message
    /// uses it.
    pub(crate) holds_recv: bool,
    /// Number of receive requests that were carried out.
    received: u64,
    /// Number of complete messages, WRITEs without a receive request included.
    pub(crate) messages: u64,
}

impl Inbound {
    pub(crate) fn new() -> Inbound {
        let recv = RecvWqe::default();
        Inbound { message: PartialMessage::None, recv, holds_recv: false, received: 0, messages: 0 }
    }

    /// Checks that the packet begins a message when none is in progress, or else continues the one in
    /// progress.
    ///
    /// # Errors
    /// Fails if it does not.
    pub(crate) fn expects(&self, packet: &Packet<'_>) -> Result<(), InboundFault> {
        let begins = packet.info().position.begins();
        match (self.message, packet.info().class) {
            //= linux:rxe_resp.c#check_op_seq
            //| A message begins with a First or an Only packet.
            (PartialMessage::None, _) if begins => Ok(()),
            (PartialMessage::None, _) => Err(InboundFault::Headless),
            (PartialMessage::Send { .. }, OperationClass::Send)
            | (PartialMessage::Write { .. }, OperationClass::Write)
                if !begins =>
            {
                Ok(())
            }
            (PartialMessage::Elsewhere { .. }, _) => Err(InboundFault::Elsewhere),
            _ => Err(InboundFault::OutOfTurn),
        }
    }

    /// Stores the packet of a SEND or WRITE, and completes the receive request that it ends.
    ///
    /// # Errors
    /// Fails if the message cannot continue.
    pub(crate) fn accept<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), InboundFault> {
        let accepted = if packet.info().class == OperationClass::Write {
            self.accept_write(settings, packet, host)
        } else {
            self.accept_send(settings, packet, host)
        };
        if accepted.is_ok() && packet.info().position.ends() {
            self.messages += 1;
        }
        accepted
    }

    fn accept_send<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), InboundFault> {
        let offset = match self.message {
            PartialMessage::Send { offset } => offset,
            _ => {
                //= linux:rxe_resp.c#check_resource
                //| A SEND takes its receive request at its first packet.
                self.take_recv(settings, packet, host)?;
                self.message = PartialMessage::Send { offset: 0 };
                0
            }
        };
        let payload = packet.payload();
        let end = offset + payload.len() as u64;
        // Without tags there is no header.
        let header = u64::from(self.recv.tagged.header_bytes);
        //= statement:29
        //| A SEND that exceeds its receive request ends with an error.
        if end > self.recv.length_bytes + header {
            return Err(InboundFault::TooLong(self.room(end, packet, 0)));
        }
        //= linux:rxe_resp.c#send_data_in
        //| The payload of a SEND goes into the buffers of the receive request.
        let skipped = header.saturating_sub(offset) as usize;
        self.scatter(offset.saturating_sub(header), payload.get(skipped..).unwrap_or_default(), host)?;
        if !packet.info().position.ends() {
            self.message = PartialMessage::Send { offset: end };
            return Ok(());
        }
        let stored = u32::try_from(end.saturating_sub(header)).unwrap_or(u32::MAX);
        let mut completion = self.completion(settings, packet, WcOpcode::Recv, stored);
        if let Some(ieth) = packet.ieth() {
            let key = remote_key(settings, packet, ieth.rkey, host)?;
            //= linux:rxe_resp.c#invalidate_rkey
            //| A SEND with invalidate takes the key away before its completion is made.
            host.invalidate_for_peer(key).map_err(InboundFault::Key)?;
            completion.flags |= WcFlags::WITH_INV;
            completion.invalidated_rkey = ieth.rkey;
        }
        if self.recv.matches_tags {
            self.tag(&mut completion);
        }
        self.judge(settings, &completion, host)?;
        self.complete(settings, packet, completion, host);
        Ok(())
    }

    /// Says in the completion of a SEND what has become of its tag.
    #[cold]
    fn tag(&self, completion: &mut WorkCompletion) {
        let Tagged { status, flags, tag, .. } = self.recv.tagged;
        completion.opcode = if tag.is_some() { WcOpcode::TagRecv } else { WcOpcode::TagNoTag };
        completion.status = status;
        completion.flags |= flags;
        let (tag, context) = tag.unwrap_or_default();
        completion.set_tag(tag, context);
    }

    fn accept_write<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), InboundFault> {
        let reth = packet.reth();
        let (rkey, address, remaining, total) = match (self.message, reth) {
            (PartialMessage::Write { rkey, address, remaining, total }, _) => {
                (rkey, address, remaining, total)
            }
            (_, Some(reth)) => (reth.rkey, reth.address, u64::from(reth.length), reth.length),
            (_, None) => return Err(InboundFault::Headless),
        };
        let (payload, ends) = (packet.payload(), packet.info().position.ends());
        let bytes = payload.len() as u64;
        //= linux:rxe_resp.c#check_rkey
        //| The payloads of a WRITE add up to the length of its RETH.
        let adds_up = if ends { bytes == remaining } else { bytes < remaining };
        if !adds_up {
            return Err(InboundFault::Length);
        }
        let has_imm = packet.imm().is_some();
        let key = remote_key(settings, packet, rkey, host)?;
        // The first packet has the whole range; the last one needs it before it takes a receive request.
        let range_bytes = match (reth.is_some(), has_imm) {
            (true, _) => u64::from(total),
            (false, true) => remaining,
            (false, false) => 0,
        };
        if range_bytes > 0 {
            //= linux:rxe_resp.c#check_rkey
            //| The first packet of a WRITE is checked against the whole range.
            host.check_remote(key, address, range_bytes, Access::REMOTE_WRITE)
                .map_err(InboundFault::RemoteMemory)?;
        }
        //= statement:25
        //| A missing receive request stops the last packet of a WRITE before its data is stored.
        if has_imm && settings.qp_type.is_reliable() {
            self.take_recv(settings, packet, host)?;
        }
        //= linux:rxe_resp.c#write_data_in
        //| A WRITE without payload touches no memory.
        if !payload.is_empty() {
            host.remote_write(key, address, payload).map_err(InboundFault::RemoteMemory)?;
        }
        reth.into_iter().for_each(|reth| report_access(settings, reth, ends, host));
        if !ends {
            let (address, remaining) = (address.wrapping_add(bytes), remaining - bytes);
            self.message = PartialMessage::Write { rkey, address, remaining, total };
            return Ok(());
        }
        self.message = PartialMessage::None;
        if host.listens(Topic::Accesses) {
            host.emit(&settings.context, QpEvent::RemoteWriteEnded { has_imm });
        }
        if host.counts() {
            host.ended(&settings.context, CountedOperation::RemoteWrite, true);
        }
        //= statement:26
        //| A WRITE with immediate takes its receive request at its last packet only.
        if has_imm {
            self.take_recv(settings, packet, host)?;
            let completion = self.completion(settings, packet, WcOpcode::RecvRdmaWithImm, total);
            self.judge(settings, &completion, host)?;
            self.complete(settings, packet, completion, host);
        }
        Ok(())
    }

    /// Takes a receive request for the packet's message, unless one is held.
    ///
    /// # Errors
    /// Fails if no request is posted, or if the packet names an SRQ that does not exist.
    pub(crate) fn take_recv<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), InboundFault> {
        let was_held = self.holds_recv;
        self.take_recv_from(settings, packet.xrceth().map(|xrceth| xrceth.srqn), host)?;
        if self.recv.matches_tags && !was_held {
            return self.match_tag(settings, packet, host);
        }
        Ok(())
    }

    /// Has the host choose the buffers of a message whose queue matches tags.
    #[cold]
    fn match_tag<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), InboundFault> {
        let is_send = packet.info().class == OperationClass::Send;
        let payload = if is_send { packet.payload() } else { &[] };
        let start = TaggedStart { payload, is_whole: packet.info().position.ends() };
        let matched = host.match_tag(&settings.context, start, &mut self.recv);
        self.holds_recv = matched.is_ok();
        Ok(matched?)
    }

    /// Takes a receive request of the queue pair, or of the XRC SRQ with a number, unless one is held.
    ///
    /// # Errors
    /// Fails as [`Inbound::take_recv`].
    #[inline]
    pub(crate) fn take_recv_from<H: Host>(
        &mut self,
        settings: &QpSettings,
        xrc_srqn: Option<u32>,
        host: &mut H,
    ) -> Result<(), InboundFault> {
        //= statement:43
        //| A receive request that an earlier message began is used again.
        if self.holds_recv {
            return Ok(());
        }
        host.take_recv(&settings.context, xrc_srqn, &mut self.recv)?;
        self.holds_recv = true;
        Ok(())
    }

    /// Returns the number of bytes that the receive request in use has room for.
    pub(crate) const fn room_bytes(&self) -> u64 {
        self.recv.length_bytes
    }

    /// Describes the lack of room in the receive request for the `arrived_bytes` of a message up to this
    /// packet.
    #[cold]
    pub(crate) fn room(&self, arrived_bytes: u64, packet: &Packet<'_>, grh_bytes: u64) -> FailureDetail {
        let (wr_id, room_bytes) = (self.recv.wr_id, self.recv.length_bytes);
        let more = !packet.info().position.ends();
        FailureDetail::Room { wr_id, room_bytes, arrived_bytes, more, grh_bytes }
    }

    /// Describes the lack of room in the receive request for a message of one piece.
    #[cold]
    pub(crate) fn room_for(&self, arrived_bytes: u64) -> FailureDetail {
        let (wr_id, room_bytes) = (self.recv.wr_id, self.recv.length_bytes);
        FailureDetail::Room { wr_id, room_bytes, arrived_bytes, more: false, grh_bytes: 0 }
    }

    /// Stores bytes of the message in the receive request in use.
    ///
    /// # Errors
    /// Fails if the request names memory that cannot be used.
    #[inline]
    pub(crate) fn scatter<H: Host>(
        &self,
        offset: u64,
        data: &[u8],
        host: &mut H,
    ) -> Result<(), InboundFault> {
        host.scatter(self.recv.pd, &self.recv.sges, offset, data)
            .map_err(|error| self.unusable_memory(error, host))
    }

    #[cold]
    fn unusable_memory<H: Host>(&self, error: MemoryError, host: &mut H) -> InboundFault {
        let fault = fault_of(self.recv.pd, &self.recv.sges, error, true, host);
        InboundFault::ReceiveMemory(FailureDetail::Receive { wr_id: self.recv.wr_id, fault })
    }

    /// Returns the completion of the receive request in use for a message that this packet ends.
    pub(crate) fn completion(
        &self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        opcode: WcOpcode,
        byte_len: u32,
    ) -> WorkCompletion {
        let mut completion = self.plain_completion(settings, opcode, byte_len);
        if let Some(imm) = packet.imm() {
            //= man:ibv_poll_cq
            //| The flag WITH_IMM says that the completion has immediate data.
            completion.flags |= WcFlags::WITH_IMM;
            completion.imm_data = imm.0;
        }
        completion
    }

    /// Returns the completion of the receive request in use, without the fields that only packets carry.
    #[inline]
    pub(crate) fn plain_completion(
        &self,
        settings: &QpSettings,
        opcode: WcOpcode,
        byte_len: u32,
    ) -> WorkCompletion {
        WorkCompletion {
            wr_id: self.recv.wr_id,
            opcode,
            byte_len,
            //= linux:rxe_resp.c#do_complete
            //| The completion of a receive has the number of the local queue pair.
            qp_num: settings.context.qpn.value(),
            src_qp: settings.destination.value(),
            ..WorkCompletion::default()
        }
    }

    /// Asks the host about the receive request in use, which this completion is about to end.
    ///
    /// # Errors
    /// Fails if the host gives it another status.
    #[inline]
    pub(crate) fn judge<H: Host>(
        &self,
        settings: &QpSettings,
        completion: &WorkCompletion,
        host: &mut H,
    ) -> Result<(), InboundFault> {
        if !host.judges() {
            return Ok(());
        }
        let ended = Ended {
            before: self.received,
            connection: settings.connection,
            qp_type: settings.qp_type,
            opcode: completion.opcode,
            length_bytes: completion.byte_len,
            reports: true,
        };
        host.judge(&settings.context, &ended).map_or(Ok(()), |status| Err(InboundFault::Judged(status)))
    }

    /// Ends the message in progress and its receive request.
    pub(crate) fn complete<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        completion: WorkCompletion,
        host: &mut H,
    ) {
        self.finish(settings, completion, packet.bth().solicited, host);
    }

    /// Ends the message in progress as [`Inbound::complete`] does, with the solicited-event bit instead of
    /// the packet that has it.
    #[inline]
    pub(crate) fn finish<H: Host>(
        &mut self,
        settings: &QpSettings,
        completion: WorkCompletion,
        solicited: bool,
        host: &mut H,
    ) {
        self.message = PartialMessage::None;
        self.holds_recv = false;
        self.received = self.received.wrapping_add(1);
        host.complete_recv(&settings.context, self.recv.cq, completion, solicited);
    }

    /// Ends the receive request in use, and its message, with an error status. Returns false if none is in
    /// use.
    pub(crate) fn fail<H: Host>(&mut self, settings: &QpSettings, status: WcStatus, host: &mut H) -> bool {
        if !core::mem::take(&mut self.holds_recv) {
            return false;
        }
        self.message = PartialMessage::None;
        let completion = WorkCompletion {
            wr_id: self.recv.wr_id,
            status,
            opcode: WcOpcode::Recv,
            qp_num: settings.context.qpn.value(),
            src_qp: settings.destination.value(),
            ..WorkCompletion::default()
        };
        host.complete_recv(&settings.context, self.recv.cq, completion, false);
        true
    }
}

/// Reports that the first packet of a WRITE was executed.
fn report_access<H: Host>(settings: &QpSettings, reth: Reth, ends: bool, host: &mut H) {
    if host.listens(Topic::Accesses) {
        let range = RemoteRange { rkey: reth.rkey, address: reth.address, length_bytes: reth.length.into() };
        let class = OperationClass::Write;
        host.emit(&settings.context, QpEvent::RemoteAccess { class, range, ends });
    }
}

/// Returns the key for remote memory that a packet uses, in the right protection domain.
///
/// # Errors
/// Fails if the packet names an XRC SRQ that does not exist.
pub(crate) fn remote_key<H: Host>(
    settings: &QpSettings,
    packet: &Packet<'_>,
    rkey: u32,
    host: &mut H,
) -> Result<RemoteKey, InboundFault> {
    let pd = match packet.xrceth() {
        Some(xrceth) => host.srq_protection_domain(&settings.context, xrceth.srqn)?,
        None => settings.context.pd,
    };
    Ok(RemoteKey { rkey, pd, qpn: settings.context.qpn })
}
