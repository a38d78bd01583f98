//! The responder of a queue pair. It places packets in memory on arrival, and completes messages in order.

mod answers;

use self::answers::MrcAnswers;
use super::entropy::{MrcArrival, Trim};
use super::paths::Ev;
use super::reliability::{Placement, ReceiveReliability, SackCause};
use super::semantics::{Delivered, HeaderSlot, ReceiveOrder, check_packet};
use super::wire::{MrcBth, NackReason, Neth, PathMark, Peth, TrimmedPacket, WriteHeaders};
use super::{MrcCallContext, MrcSettings, ResponderAttributes};
use crate::event::QpEvent;
use crate::host::{Host, NoRecv, RecvWqe, RemoteKey};
use crate::types::{
    Access, AsyncEventType, Cause, FailureDetail, MrcBreach, RemoteRange, WcFlags, WcOpcode, WcStatus,
    WorkCompletion,
};
use crate::wire::{NakCode, Opcode, Psn, Reth, Syndrome};

/// A refused message. The queue pair goes to the state ERROR and raises this event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MrcRefusal {
    pub(crate) event: AsyncEventType,
}

#[derive(Debug)]
pub(crate) struct MrcResponder {
    reliability: ReceiveReliability,
    order: ReceiveOrder,
    answers: MrcAnswers,
    /// Receive request of the message that completes, reused to avoid an allocation for each.
    recv: RecvWqe,
    data_ns: u64,
    /// A packet beyond the window was reported.
    is_window_reported: bool,
}

/// A data packet that arrived.
#[derive(Clone, Copy)]
pub(crate) struct DataArrival<'a> {
    pub(crate) arrival: &'a MrcArrival,
    pub(crate) bth: &'a MrcBth,
    pub(crate) write: &'a WriteHeaders,
    pub(crate) payload: &'a [u8],
    /// Size for congestion control, in bytes.
    pub(crate) nominal_bytes: u32,
}

const fn ev_of(arrival: &MrcArrival) -> Ev {
    Ev { entropy: arrival.entropy, plane: arrival.plane }
}

impl MrcResponder {
    pub(crate) fn new(settings: &MrcSettings, attributes: &ResponderAttributes) -> MrcResponder {
        let mtu_bytes = settings.mtu_bytes();
        let is_dynamic = settings.has_dynamic_mpr;
        let sizes = (mtu_bytes, attributes.sack_threshold_bytes);
        let reliability =
            ReceiveReliability::new(attributes.first_psn, attributes.mpr_dest, is_dynamic, sizes);
        let order = ReceiveOrder::new(reliability.slots(), mtu_bytes, attributes.max_wimm_dest);
        MrcResponder {
            reliability,
            order,
            answers: MrcAnswers::default(),
            recv: RecvWqe::default(),
            data_ns: 0,
            is_window_reported: false,
        }
    }

    pub(crate) fn answers(&self) -> &MrcAnswers {
        &self.answers
    }

    pub(crate) fn answers_mut(&mut self) -> (&mut MrcAnswers, Psn, u32) {
        (&mut self.answers, self.reliability.cack_psn(), self.order.completed())
    }

    pub(crate) fn set_window(&mut self, units: u8) {
        self.reliability.set_units(units);
    }

    pub(crate) fn set_penalty(&mut self, penalty: u8, restores: bool) {
        self.reliability.set_penalty(penalty, restores);
    }

    /// Returns the time at which the last data packet arrived; 0 for never.
    pub(crate) fn data_ns(&self) -> u64 {
        self.data_ns
    }

    /// Handles a data packet, with the checks in their specified order.
    ///
    /// # Errors
    /// The message is refused by a transport NAK.
    pub(crate) fn handle_write<H: Host>(
        &mut self,
        turn: &mut MrcCallContext<'_, H>,
        incoming: &DataArrival<'_>,
    ) -> Result<(), MrcRefusal> {
        self.data_ns = turn.now_ns;
        let psn = incoming.bth.psn;
        if incoming.arrival.congested {
            turn.host.emit(&turn.settings.context, QpEvent::CongestionMarked { psn });
        }
        match self.reliability.place(psn) {
            Placement::New(number) => self.place(turn, incoming, number),
            Placement::DuplicateBelow => {
                report_duplicate(turn, incoming);
                self.answers.acknowledge(ev_of(incoming.arrival));
                self.sack_data(turn.settings, incoming);
                Ok(())
            }
            Placement::DuplicateAbove => {
                report_duplicate(turn, incoming);
                self.sack_data(turn.settings, incoming);
                Ok(())
            }
            Placement::Beyond => {
                self.report_beyond(turn);
                let stamp = timestamp_of(incoming.write);
                self.nack(turn, incoming.arrival, psn, stamp, NackReason::PsnOutOfWindow);
                Ok(())
            }
            Placement::TooOld => {
                turn.statistics.dropped += 1;
                Ok(())
            }
        }
    }

    /// Places a new packet of the window, and completes the messages that it finishes.
    fn place<H: Host>(
        &mut self,
        turn: &mut MrcCallContext<'_, H>,
        incoming: &DataArrival<'_>,
        number: u64,
    ) -> Result<(), MrcRefusal> {
        self.write(turn, incoming).map_err(|code| self.refuse(turn, incoming, code))?;
        turn.statistics.data_placed += 1;
        self.order.stash(number, HeaderSlot::of(incoming.bth.opcode, incoming.bth.solicited, incoming.write));
        let payload_bytes = u32::try_from(incoming.payload.len()).unwrap_or(u32::MAX);
        let is_due = self.reliability.accept(number, incoming.nominal_bytes, payload_bytes);
        while let Some(next) = self.reliability.advance() {
            let ended = self.order.deliver(next);
            let ended = ended.and_then(|delivered| self.end(turn, delivered));
            if ended.map_err(|code| self.refuse(turn, incoming, code))? {
                self.answers.acknowledge(ev_of(incoming.arrival));
            }
        }
        if is_due || incoming.bth.ack_request || incoming.bth.retransmission || incoming.arrival.congested {
            self.sack_data(turn.settings, incoming);
        }
        Ok(())
    }

    /// Checks a packet and writes its data.
    fn write<H: Host>(
        &self,
        turn: &mut MrcCallContext<'_, H>,
        incoming: &DataArrival<'_>,
    ) -> Result<(), NakCode> {
        let (settings, reth) = (turn.settings, &incoming.write.reth);
        check_packet(incoming.bth.opcode, reth.length, incoming.payload.len(), settings.mtu_bytes())?;
        self.order.check_stash(incoming.bth.opcode).inspect_err(|_| {
            let granted = self.order.max_wimm();
            breach(turn, MrcBreach::Immediates { granted });
        })?;
        if !settings.access.contains(Access::REMOTE_WRITE) {
            return Err(NakCode::RemoteAccess);
        }
        // An empty message accesses no memory, so its key is not checked.
        if incoming.payload.is_empty() {
            return Ok(());
        }
        let context = &settings.context;
        let key = RemoteKey { rkey: reth.rkey, pd: context.pd, qpn: context.qpn };
        turn.host.remote_write(key, reth.address, incoming.payload).map_err(|_| NakCode::RemoteAccess)
    }

    /// Completes a message. Reports whether the peer is to be notified.
    fn end<H: Host>(
        &mut self,
        turn: &mut MrcCallContext<'_, H>,
        delivered: Delivered,
    ) -> Result<bool, NakCode> {
        let Delivered::WriteImm { imm, length, solicited } = delivered else {
            return Ok(delivered == Delivered::Write);
        };
        let context = &turn.settings.context;
        if let Err(reason) = turn.host.take_recv(context, None, &mut self.recv) {
            if reason == NoRecv::Empty {
                breach(turn, MrcBreach::NoReceive);
            }
            return Err(NakCode::RemoteOperation);
        }
        let completion = WorkCompletion {
            wr_id: self.recv.wr_id,
            status: WcStatus::Success,
            opcode: WcOpcode::RecvRdmaWithImm,
            byte_len: length,
            imm_data: imm,
            qp_num: context.qpn.value(),
            src_qp: turn.settings.peer.value(),
            flags: WcFlags::WITH_IMM,
            ..WorkCompletion::default()
        };
        turn.host.complete_recv(context, self.recv.cq, completion, solicited);
        Ok(true)
    }

    /// Reports the first packet beyond the window, if others have come that were within it: otherwise the
    /// first PSN of a side may be wrong.
    fn report_beyond<H: Host>(&mut self, turn: &mut MrcCallContext<'_, H>) {
        if self.reliability.has_received() && !core::mem::replace(&mut self.is_window_reported, true) {
            breach(turn, MrcBreach::BeyondWindow { granted: self.reliability.max_units() });
        }
    }

    fn refuse<H: Host>(
        &mut self,
        turn: &mut MrcCallContext<'_, H>,
        incoming: &DataArrival<'_>,
        code: NakCode,
    ) -> MrcRefusal {
        report_refusal(turn, incoming, code);
        self.answers.refuse(code, incoming.bth.psn, ev_of(incoming.arrival));
        let event = match code {
            NakCode::RemoteAccess => AsyncEventType::QpAccessErr,
            _ => AsyncEventType::QpReqErr,
        };
        MrcRefusal { event }
    }

    /// Repeats the NAK to the peer in the state ERROR, if this side has refused a message.
    pub(crate) fn repeat_refusal(&mut self, arrival: &MrcArrival) {
        self.answers.repeat_refusal(ev_of(arrival));
    }

    fn sack_data(&mut self, settings: &MrcSettings, incoming: &DataArrival<'_>) {
        let stamp = timestamp_of(incoming.write);
        let cause = cause_of(settings, incoming.arrival, Ok(incoming.bth.psn), stamp);
        self.sack(&cause, incoming.arrival, incoming.bth.retransmission);
    }

    fn sack(&mut self, cause: &SackCause, arrival: &MrcArrival, is_retransmission: bool) {
        let answers = &mut self.answers;
        self.reliability.sacks(cause, |seth, state| {
            answers.sack(seth, state, is_retransmission, ev_of(arrival));
        });
    }

    /// Answers a probe, even if nothing is outstanding.
    pub(crate) fn handle_probe(&mut self, settings: &MrcSettings, arrival: &MrcArrival, peth: &Peth) {
        let cause = cause_of(settings, arrival, Err(peth.probe_id), peth.tseth.timestamp);
        self.sack(&cause, arrival, false);
    }

    /// Handles a packet that was trimmed. Its PSN is refused, unless it has arrived.
    pub(crate) fn handle_trimmed<H: Host>(
        &mut self,
        turn: &mut MrcCallContext<'_, H>,
        arrival: &MrcArrival,
        trim: Trim,
        trimmed: &TrimmedPacket,
    ) {
        let (psn, stamp) = (trimmed.bth.psn, trimmed.tseth.map_or(0, |tseth| tseth.timestamp));
        match self.reliability.place(psn) {
            Placement::New(_) if !turn.settings.sends_trim_nack => turn.statistics.dropped += 1,
            Placement::New(_) => {
                let reason = match trim {
                    Trim::EarlierHop => NackReason::Trimmed,
                    Trim::LastHop => NackReason::TrimmedLastHop,
                };
                self.nack(turn, arrival, psn, stamp, reason);
            }
            Placement::Beyond => self.nack(turn, arrival, psn, stamp, NackReason::PsnOutOfWindow),
            Placement::DuplicateBelow | Placement::DuplicateAbove => {
                turn.statistics.duplicates += 1;
                let cause = cause_of(turn.settings, arrival, Ok(psn), stamp);
                self.sack(&cause, arrival, trimmed.bth.retransmission);
            }
            Placement::TooOld => turn.statistics.dropped += 1,
        }
    }

    fn nack<H>(
        &mut self,
        turn: &mut MrcCallContext<'_, H>,
        arrival: &MrcArrival,
        psn: Psn,
        timestamp: u16,
        reason: NackReason,
    ) {
        if reason == NackReason::PsnOutOfWindow && !self.reliability.may_nack(turn.now_ns) {
            turn.statistics.dropped += 1;
            return;
        }
        let neth = Neth {
            reason,
            vendor_info: 0,
            entropy: arrival.entropy,
            spdcid: turn.settings.context.qpn.value() as u16,
            dpdcid: turn.settings.peer.value() as u16,
            nack_psn: psn,
            cc_flags: 0,
            timestamp,
        };
        self.answers.nack(neth, ev_of(arrival));
    }
}

/// Counts and reports data that had arrived before.
fn report_duplicate<H: Host>(turn: &mut MrcCallContext<'_, H>, incoming: &DataArrival<'_>) {
    turn.statistics.duplicates += 1;
    let (opcode, psn) = (Opcode::from_byte(incoming.bth.opcode.byte()), incoming.bth.psn);
    turn.host.emit(&turn.settings.context, QpEvent::DuplicateRequest { opcode, psn });
}

/// Reports a message that is refused, and says why to the operator.
fn report_refusal<H: Host>(turn: &mut MrcCallContext<'_, H>, incoming: &DataArrival<'_>, code: NakCode) {
    let MrcCallContext { settings, host, .. } = turn;
    let (psn, syndrome) = (incoming.bth.psn, Syndrome::Nak(code));
    host.emit(&settings.context, QpEvent::NakSent { syndrome, psn });
    let Reth { address, rkey, length } = incoming.write.reth;
    let remote = FailureDetail::Remote(RemoteRange { rkey, address, length_bytes: length.into() });
    let (reason, detail) = match code {
        NakCode::RemoteAccess if !settings.access.contains(Access::REMOTE_WRITE) => (
            "the queue pair lets its peer write nothing",
            FailureDetail::Access { missing: "IBV_ACCESS_REMOTE_WRITE" },
        ),
        NakCode::RemoteAccess => ("its key does not let the peer write there", remote),
        NakCode::RemoteOperation => ("no receive request was posted for its immediate", FailureDetail::None),
        _ => (
            "its length or opcode is wrong, or more WRITEs with immediate are in flight than were granted",
            remote,
        ),
    };
    host.log(
        &settings.context,
        Cause::RequestRefused { syndrome: Some(syndrome.byte()), psn, reason, detail },
    );
}

/// Emits a breach of a rule.
fn breach<H: Host>(turn: &mut MrcCallContext<'_, H>, breach: MrcBreach) {
    turn.host.emit(&turn.settings.context, QpEvent::RuleBroken(breach));
}

fn timestamp_of(write: &WriteHeaders) -> u16 {
    write.tseth.map_or(0, |tseth| tseth.timestamp)
}

fn cause_of(
    settings: &MrcSettings,
    arrival: &MrcArrival,
    trigger: Result<Psn, u16>,
    timestamp: u16,
) -> SackCause {
    SackCause {
        trigger,
        mark: if arrival.congested { PathMark::SkipOnce } else { PathMark::None },
        entropy: arrival.entropy,
        timestamp,
        ids: (settings.context.qpn.value() as u16, settings.peer.value() as u16),
    }
}
