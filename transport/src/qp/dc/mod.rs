//! DC: reliable messages in order, from an initiator (DCI) to any target (DCT) that each request names by an
//! address handle, a number and an access key.
//!
//! Messages travel in parts, each a datagram of UD with a header of its own behind the DETH (`header`). Each
//! stream of an initiator keeps an order of its own: a message to another target waits until those before
//! it are answered (`stream`, `message`). A target carries out the messages of a stream in the order of
//! their numbers and takes each part once; what it misses it asks for, and what comes again it answers again
//! (`target`).

mod answers;
mod header;
mod initiator;
mod message;
mod stream;
mod target;
#[cfg(test)]
pub(super) mod tests;

use super::outbound::Progress;
use super::response::Urgency;
use super::settings::Settings;
use crate::event::QpEvent;
use crate::host::{Counter, Host, Transmit};
use crate::path::Arrival;
use crate::types::{DcStreams, SendRequest, WcStatus};
use crate::wire::Packet;

pub(super) use header::described;

use header::Header;
use initiator::Initiator;
use target::{Came, Target};

/// The state of DC of one queue pair.
#[derive(Debug)]
pub(super) enum Dc {
    Initiator(Initiator),
    Target(Target),
}

impl Dc {
    pub(super) fn initiator(max_send_wr: u32, streams: Option<DcStreams>) -> Dc {
        Dc::Initiator(Initiator::new(max_send_wr, streams))
    }

    pub(super) fn target(access_key: u64) -> Dc {
        Dc::Target(Target::new(access_key))
    }

    /// A queue pair that was made as this one was.
    pub(super) fn anew(&self, max_send_wr: u32) -> Dc {
        match self {
            Dc::Initiator(initiator) => Dc::initiator(max_send_wr, initiator.made_with()),
            Dc::Target(target) => Dc::target(target.access_key()),
        }
    }

    /// The streams that an initiator was made with; none: it is a target, or has no streams.
    pub(super) fn streams(&self) -> Option<DcStreams> {
        match self {
            Dc::Initiator(initiator) => initiator.made_with(),
            Dc::Target(_) => None,
        }
    }

    /// A stream that has failed works again.
    pub(super) fn reset_stream(&mut self, id: u16) {
        if let Dc::Initiator(initiator) = self {
            initiator.reset_stream(id);
        }
    }

    /// The send queue takes no further request.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Dc::Initiator(initiator) => initiator.is_full(),
            Dc::Target(_) => true,
        }
    }

    /// Requests whose end no completion has told yet.
    pub(super) fn count(&self) -> usize {
        match self {
            Dc::Initiator(initiator) => initiator.count(),
            Dc::Target(_) => 0,
        }
    }

    /// Nothing is on its way.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Dc::Initiator(initiator) => initiator.is_idle(),
            Dc::Target(_) => true,
        }
    }

    /// An error has come that the queue pair goes to ERR by.
    pub(super) fn has_failed(&self) -> bool {
        match self {
            Dc::Initiator(initiator) => initiator.has_failed(),
            Dc::Target(_) => false,
        }
    }

    pub(super) fn post<H: Host>(
        &mut self,
        settings: &Settings,
        request: &SendRequest<'_>,
        length_bytes: u32,
        fault: Option<WcStatus>,
        host: &mut H,
    ) {
        if let Dc::Initiator(initiator) = self {
            initiator.post(settings, request, length_bytes, fault, host);
        }
    }

    /// A datagram came.
    pub(super) fn handle<H: Host>(
        &mut self,
        settings: &Settings,
        now_ns: u64,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        let parsed = Header::parse(packet.payload()).filter(|_| !arrival.flow.destination.is_multicast());
        let (Some(deth), Some((header, data))) = (packet.deth(), parsed) else {
            // Of a queue pair of another service: there is nothing to answer.
            host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxWrongService));
            return;
        };
        let from = (arrival.flow.source, deth.source);
        match self {
            Dc::Initiator(initiator) if !header.kind.is_request() => {
                initiator.handle(settings, from, (&header, data), now_ns, host);
            }
            Dc::Target(target) if header.kind.is_request() => {
                target.handle(settings, &Came { from, arrival, header, data, now_ns }, host);
            }
            _ => host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxWrongService)),
        }
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        match self {
            Dc::Initiator(initiator) => initiator.deadline_ns(),
            Dc::Target(_) => None,
        }
    }

    pub(super) fn handle_timeout<H: Host>(&mut self, settings: &Settings, now_ns: u64, host: &mut H) {
        if let Dc::Initiator(initiator) = self {
            initiator.handle_timeout(settings, now_ns, host);
        }
    }

    pub(super) fn wants_to_send(&self) -> bool {
        match self {
            Dc::Initiator(initiator) => initiator.wants_to_send(),
            Dc::Target(_) => false,
        }
    }

    pub(super) fn urgency(&self) -> Urgency {
        match self {
            Dc::Target(target) if target.has_answers() => Urgency::Data,
            _ => Urgency::None,
        }
    }

    pub(super) fn transmit_requests<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
        draining: bool,
        now_ns: u64,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        match self {
            Dc::Initiator(initiator) => initiator.transmit(settings, draining, now_ns, host, sink),
            Dc::Target(_) => Progress::Idle,
        }
    }

    pub(super) fn transmit_answers<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        match self {
            Dc::Initiator(_) => Progress::Idle,
            Dc::Target(target) => target.transmit(settings, host, sink),
        }
    }

    /// Everything that was posted ends as flushed; what has half arrived is given up.
    pub(super) fn flush<H: Host>(&mut self, settings: &Settings, host: &mut H) {
        match self {
            Dc::Initiator(initiator) => initiator.flush(settings, host),
            Dc::Target(target) => target.flush(settings, host),
        }
    }
}
