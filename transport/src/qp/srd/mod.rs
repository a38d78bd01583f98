//! SRD: reliable datagrams without order. A queue pair sends to many; each message arrives once, and in
//! no order. What one message meets does not touch the others, and the queue pair stays in RTS.
//!
//! Messages travel in parts, each a datagram of UD with a header of its own behind the DETH (`header`).
//! `send` repeats parts until they are answered; `receive` puts messages together, remembers which have
//! ended, and answers. A message has a number between two queue pairs, and ends there once, though packets
//! are lost, repeated or overtaken on the way: the side that receives remembers how each ended until the
//! side that sends says that it knows.

mod answers;
mod header;
mod packet;
mod receive;
mod send;
#[cfg(test)]
pub(super) mod tests;
mod window;

use super::outbound::Progress;
use super::response::Urgency;
use super::settings::Settings;
use crate::event::QpEvent;
use crate::host::{Counter, Host, Transmit};
use crate::path::Arrival;
use crate::types::{SendRequest, WcStatus};
use crate::wire::{Packet, Psn, Qpn};

use answers::Answers;
use header::Header;
use receive::Receiver;
use send::Sender;

pub use send::SrdOrder;

pub(super) use header::{described, parts_of, take};
pub(super) use packet::{To, send_packet};
pub(super) use window::{Parts, WINDOW_PARTS};

/// The state of SRD of one queue pair.
#[derive(Debug)]
pub(crate) struct Srd {
    sender: Sender,
    receiver: Receiver,
    answers: Answers,
    next_psn: Psn,
}

impl Srd {
    pub(crate) fn new(max_send_wr: u32, order: SrdOrder, takes_unsolicited: bool) -> Srd {
        Srd {
            sender: Sender::new(max_send_wr, order),
            receiver: Receiver::new(takes_unsolicited),
            answers: Answers::default(),
            next_psn: Psn::new(0),
        }
    }

    /// In which order messages leave.
    pub(crate) fn order(&self) -> SrdOrder {
        self.sender.order()
    }

    /// WRITEs with immediate data that arrive take no receive request.
    pub(crate) fn takes_unsolicited(&self) -> bool {
        self.receiver.takes_unsolicited()
    }

    /// The send queue takes no further request.
    pub(crate) fn is_full(&self) -> bool {
        self.sender.is_full()
    }

    /// Requests that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.sender.count()
    }

    /// Nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.sender.is_idle()
    }

    /// Takes a request, which was checked, of this length.
    pub(crate) fn post(&mut self, request: &SendRequest<'_>, length_bytes: u32, fault: Option<WcStatus>) {
        self.sender.post(request, length_bytes, fault);
    }

    /// The address that the newest message from a queue pair came from.
    pub(crate) fn source_of(&self, qpn: Qpn) -> Option<core::net::IpAddr> {
        self.receiver.source_of(qpn)
    }

    /// A datagram came.
    pub(crate) fn handle<H: Host>(
        &mut self,
        settings: &Settings,
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
        let parsed = Header::parse(packet.payload());
        let Some((header, data)) = parsed.filter(|_| !arrival.flow.destination.is_multicast()) else {
            // Of a queue pair of UD, or of another device: there is nothing to answer.
            host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxBadLength));
            return;
        };
        let from = (arrival.flow.source, deth.source);
        if header.kind.is_request() {
            let came = receive::Came { from, arrival, header, data, now_ns };
            self.receiver.handle(settings, &came, &mut self.answers, host);
        } else {
            self.sender.handle(settings, from, &header, data, now_ns, host);
        }
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.sender.deadline_ns()
    }

    pub(crate) fn handle_timeout<H: Host>(&mut self, settings: &Settings, now_ns: u64, host: &mut H) {
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
        settings: &Settings,
        draining: bool,
        now_ns: u64,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        self.sender.transmit(settings, draining, now_ns, &mut self.next_psn, host, sink)
    }

    pub(crate) fn transmit_answers<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        self.answers.transmit(settings, &mut self.next_psn, host, sink)
    }

    /// Everything that was posted ends as flushed; what has half arrived is forgotten.
    pub(crate) fn flush<H: Host>(&mut self, settings: &Settings, host: &mut H) {
        self.sender.flush(settings, host);
        self.receiver = Receiver::new(self.receiver.takes_unsolicited());
        self.answers = Answers::default();
    }
}
