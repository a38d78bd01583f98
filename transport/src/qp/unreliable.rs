//! The receiving side of UC: accept what is in sequence, drop the rest of a broken message silently.

use super::inbound::{BufferFailure, Fault, Inbound, Message};
use super::responder::{check_payload, check_range_length};
use super::settings::Settings;
use crate::event::QpEvent;
use crate::host::{Counter, Host};
use crate::types::{Access, Cause, Detail};
use crate::wire::{OperationClass, Packet, Psn};

#[derive(Debug)]
pub(crate) struct UnreliableReceiver {
    pub(crate) expected: Psn,
    pub(crate) inbound: Inbound,
    /// The rest of the message is dropped, until a First or Only.
    dropping: bool,
    pub(crate) communication_established: bool,
}

/// Why the rest of a message is dropped.
struct Dropped {
    counter: Counter,
    reason: &'static str,
    detail: Detail,
}

impl Dropped {
    const fn message(reason: &'static str) -> Dropped {
        Dropped { counter: Counter::RxMessageDropped, reason, detail: Detail::None }
    }
}

/// How the processing of a packet ends when the packet is not executed.
enum Stop {
    Drop(Dropped),
    Fail(BufferFailure),
}

impl From<Dropped> for Stop {
    fn from(dropped: Dropped) -> Stop {
        Stop::Drop(dropped)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        if let Some(failure) = fault.buffer_failure() {
            return Stop::Fail(failure);
        }
        let dropped = Dropped::message(fault.reason());
        Stop::Drop(match fault {
            Fault::NoReceive | Fault::NoSuchSrq => Dropped { counter: Counter::RxNoReceive, ..dropped },
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

    /// A request packet.
    ///
    /// # Errors
    /// The message does not fit its receive buffers; nothing has been completed yet.
    pub(crate) fn handle_request<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), BufferFailure> {
        let psn = packet.bth().psn;
        if packet.info().position.begins() {
            // Resynchronise at any PSN; a message in progress is given up, its receive request kept.
            //= statement:43
            //| UC begins anew at each First or Only packet, with every PSN.
            self.dropping = false;
            self.inbound.message = Message::None;
        } else if psn != self.expected || self.dropping {
            if !self.dropping {
                host.emit(&settings.context, QpEvent::OutOfSequence { psn, expected: self.expected });
                //= statement:43
                //| A lost packet of UC costs its message only.
                let reason = "a packet of it was lost, or overtaken by another";
                self.drop_message(settings, packet, self.expected, Dropped::message(reason), host);
            }
            return Ok(());
        }
        self.expected = psn.next();
        match self.accept(settings, packet, host) {
            Ok(()) => Ok(()),
            Err(Stop::Drop(dropped)) => {
                self.drop_message(settings, packet, psn, dropped, host);
                Ok(())
            }
            Err(Stop::Fail(failure)) => Err(failure),
        }
    }

    /// Drops the rest of the packet's message, whose fault is at a PSN.
    #[cold]
    fn drop_message<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        psn: Psn,
        dropped: Dropped,
        host: &mut H,
    ) {
        let Dropped { counter, reason, detail } = dropped;
        self.dropping = true;
        self.inbound.message = Message::None;
        host.emit(&settings.context, QpEvent::dropped(packet, counter));
        host.log(&settings.context, Cause::MessageDropped { psn, reason, detail });
    }

    fn accept<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Stop> {
        check_payload(settings, packet).map_err(|(reason, detail)| Dropped {
            counter: Counter::RxBadLength,
            reason,
            detail,
        })?;
        self.inbound.expects(packet)?;
        let is_write = packet.info().class == OperationClass::Write;
        //= linux:rxe_resp.c#check_op_valid
        //| A WRITE on UC without the right of the queue pair is dropped silently.
        if is_write && !settings.access.contains(Access::REMOTE_WRITE) {
            return Err(Dropped::message("the queue pair's access flags do not allow RDMA WRITE").into());
        }
        check_range_length(packet).map_err(Dropped::message)?;
        Ok(self.inbound.accept(settings, packet, host)?)
    }
}
