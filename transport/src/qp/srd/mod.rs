//! SRD: reliable datagrams without order. A queue pair sends to many peers; each message arrives once, and in
//! no order. An error of one message does not affect the others, and the queue pair stays in RTS.
//!
//! Messages travel in parts, each a datagram of UD with a header of its own behind the DETH (`header`).
//! `send` repeats parts until they are answered; `receive` assembles messages, remembers which have ended,
//! and answers. A message has a number between two queue pairs and is executed there once, though packets are
//! lost, repeated or reordered on the way: the receiver remembers how each message ended until the sender
//! says that it knows.

mod answers;
mod header;
mod packet;
mod receive;
mod send;
#[cfg(test)]
pub(super) mod tests;
mod window;

use alloc::collections::TryReserveError;

use super::outbound::Progress;
use super::response::Urgency;
use super::settings::QpSettings;
use crate::event::QpEvent;
use crate::host::{Counter, Host, Transmit};
use crate::path::Arrival;
use crate::types::{SendRequest, WcStatus};
use crate::wire::{Packet, Psn, Qpn};

use answers::SrdAnswers;
use header::SrdHeader;
use receive::SrdReceiver;
use send::SrdSender;

pub use send::SrdOrder;

pub(super) use header::{described, parts_of, take};
pub(super) use packet::{PacketDestination, RocePaths, return_path, send_packet};
pub(super) use window::{PartSet, WINDOW_PARTS};

/// The state of SRD of one queue pair.
#[derive(Debug)]
pub(crate) struct Srd {
    sender: SrdSender,
    receiver: SrdReceiver,
    answers: SrdAnswers,
    next_psn: Psn,
}

impl Srd {
    pub(crate) fn new(max_send_wr: u32, order: SrdOrder, takes_unsolicited: bool) -> Srd {
        Srd {
            sender: SrdSender::new(max_send_wr, order),
            receiver: SrdReceiver::new(takes_unsolicited),
            answers: SrdAnswers::default(),
            next_psn: Psn::new(0),
        }
    }

    /// Returns the order in which messages leave.
    pub(crate) fn order(&self) -> SrdOrder {
        self.sender.order()
    }

    /// Reports whether WRITEs with immediate data that arrive take no receive request.
    pub(crate) fn takes_unsolicited(&self) -> bool {
        self.receiver.takes_unsolicited()
    }

    /// Reports whether the send queue has no room for a further request.
    pub(crate) fn is_full(&self) -> bool {
        self.sender.is_full()
    }

    /// Counts the requests that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.sender.count()
    }

    /// Reports whether no message is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.sender.is_idle()
    }

    /// Posts a request of this length, which was checked.
    ///
    /// # Errors
    /// Fails if there is no memory for it; nothing is posted.
    pub(crate) fn post(
        &mut self,
        request: &SendRequest<'_>,
        length_bytes: u32,
        fault: Option<WcStatus>,
    ) -> Result<(), TryReserveError> {
        self.sender.post(request, length_bytes, fault)
    }

    /// Returns the source address of the newest message from a queue pair.
    pub(crate) fn source_of(&self, qpn: Qpn) -> Option<core::net::IpAddr> {
        self.receiver.source_of(qpn)
    }

    /// Handles a datagram.
    pub(crate) fn handle<H: Host>(
        &mut self,
        settings: &QpSettings,
        now_ns: u64,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        let Some(deth) = packet.deth() else {
            host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxWrongService));
            return;
        };
        if deth.qkey != settings.qkey {
            host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxBadQkey));
            return;
        }
        let parsed = SrdHeader::parse(packet.payload());
        let Some((header, data)) = parsed.filter(|_| !arrival.flow.destination.is_multicast()) else {
            // The datagram is of a queue pair of UD, or of another device: no answer is possible.
            host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxBadLength));
            return;
        };
        let from = (arrival.flow.source, deth.source);
        if header.kind.is_request() {
            let incoming = receive::SrdArrival { from, arrival, header, data, now_ns };
            self.receiver.handle(settings, &incoming, &mut self.answers, host);
        } else {
            self.sender.handle(settings, from, &header, data, now_ns, host);
        }
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.sender.deadline_ns()
    }

    pub(crate) fn handle_timeout<H: Host>(&mut self, settings: &QpSettings, now_ns: u64, host: &mut H) {
        self.sender.handle_timeout(settings, now_ns, host);
    }

    pub(crate) fn wants_to_send(&self) -> bool {
        self.sender.wants_to_send()
    }

    pub(crate) fn urgency(&self) -> Urgency {
        if self.answers.is_empty() { Urgency::None } else { Urgency::Data }
    }

    pub(crate) fn transmit_requests<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        draining: bool,
        now_ns: u64,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        self.sender.transmit(settings, draining, now_ns, &mut self.next_psn, host, sink)
    }

    pub(crate) fn transmit_answers<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        self.answers.transmit(settings, &mut self.next_psn, host, sink)
    }

    /// Completes all posted requests as flushed; partly received messages are dropped.
    pub(crate) fn flush<H: Host>(&mut self, settings: &QpSettings, host: &mut H) {
        self.sender.flush(settings, host);
        self.receiver = SrdReceiver::new(self.receiver.takes_unsolicited());
        self.answers = SrdAnswers::default();
    }
}
