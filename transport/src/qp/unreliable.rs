//! The receiving side of UC: accepts packets in sequence, and drops the rest of a broken message silently.

use super::inbound::{BufferFailure, Inbound, InboundFault, PartialMessage};
use super::responder::{check_payload, check_range_length};
use super::settings::QpSettings;
use crate::event::QpEvent;
use crate::host::{Counter, Host};
use crate::types::{Access, Cause, FailureDetail};
use crate::wire::{OperationClass, Packet, Psn};

#[derive(Debug)]
pub(crate) struct UnreliableReceiver {
    pub(crate) expected: Psn,
    pub(crate) inbound: Inbound,
    /// True if the rest of the message is dropped, until a First or Only.
    dropping: bool,
    pub(crate) communication_established: bool,
}

/// Reason why the rest of a message is dropped.
struct DroppedMessage {
    counter: Counter,
    reason: &'static str,
    detail: FailureDetail,
}

impl DroppedMessage {
    const fn message(reason: &'static str) -> DroppedMessage {
        DroppedMessage { counter: Counter::RxMessageDropped, reason, detail: FailureDetail::None }
    }
}

/// Reason why the processing of a packet stops before it is executed.
enum ReceiveStopReason {
    Drop(DroppedMessage),
    Fail(BufferFailure),
}

impl From<DroppedMessage> for ReceiveStopReason {
    fn from(dropped: DroppedMessage) -> ReceiveStopReason {
        ReceiveStopReason::Drop(dropped)
    }
}

impl From<InboundFault> for ReceiveStopReason {
    fn from(fault: InboundFault) -> ReceiveStopReason {
        if let Some(failure) = fault.buffer_failure() {
            return ReceiveStopReason::Fail(failure);
        }
        let dropped = DroppedMessage::message(fault.reason());
        ReceiveStopReason::Drop(match fault {
            InboundFault::NoReceive | InboundFault::NoSuchSrq => {
                DroppedMessage { counter: Counter::RxNoReceive, ..dropped }
            }
            _ => dropped,
        })
    }
}

impl UnreliableReceiver {
    pub(crate) fn new() -> UnreliableReceiver {
        UnreliableReceiver {
            expected: Psn::new(0),
            inbound: Inbound::new(),
            dropping: false,
            communication_established: false,
        }
    }

    pub(crate) fn start(&mut self, rq_psn: Psn) {
        self.expected = rq_psn;
    }

    /// Handles a request packet.
    ///
    /// # Errors
    /// Fails if the message does not fit its receive buffers; no request has been completed yet.
    pub(crate) fn handle_request<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), BufferFailure> {
        let psn = packet.bth().psn;
        if packet.info().position.begins() {
            // Resynchronise at any PSN; a message in progress is given up, and its receive request is used
            // again.
            //= statement:43
            //| UC begins anew at each First or Only packet, with every PSN.
            self.dropping = false;
            self.inbound.message = PartialMessage::None;
        } else if psn != self.expected || self.dropping {
            if !self.dropping {
                host.emit(&settings.context, QpEvent::OutOfSequence { psn, expected: self.expected });
                //= statement:43
                //| A lost packet of UC costs its message only.
                let reason = "a packet of it was lost, or overtaken by another";
                self.drop_message(settings, packet, self.expected, DroppedMessage::message(reason), host);
            }
            return Ok(());
        }
        self.expected = psn.next();
        match self.accept(settings, packet, host) {
            Ok(()) => Ok(()),
            Err(ReceiveStopReason::Drop(dropped)) => {
                self.drop_message(settings, packet, psn, dropped, host);
                Ok(())
            }
            Err(ReceiveStopReason::Fail(failure)) => Err(failure),
        }
    }

    /// Drops the rest of the packet's message, whose fault is at a PSN.
    #[cold]
    fn drop_message<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        psn: Psn,
        dropped: DroppedMessage,
        host: &mut H,
    ) {
        let DroppedMessage { counter, reason, detail } = dropped;
        self.dropping = true;
        self.inbound.message = PartialMessage::None;
        host.emit(&settings.context, QpEvent::dropped(packet, counter));
        host.log(&settings.context, Cause::MessageDropped { psn, reason, detail });
    }

    fn accept<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), ReceiveStopReason> {
        check_payload(settings, packet).map_err(|(reason, detail)| DroppedMessage {
            counter: Counter::RxBadLength,
            reason,
            detail,
        })?;
        self.inbound.expects(packet)?;
        let is_write = packet.info().class == OperationClass::Write;
        //= linux:rxe_resp.c#check_op_valid
        //| A WRITE on UC without the right of the queue pair is dropped silently.
        if is_write && !settings.access.contains(Access::REMOTE_WRITE) {
            return Err(
                DroppedMessage::message("the queue pair's access flags do not allow RDMA WRITE").into()
            );
        }
        check_range_length(packet).map_err(DroppedMessage::message)?;
        Ok(self.inbound.accept(settings, packet, host)?)
    }
}
