//! DC: reliable messages in order, from an initiator (DCI) to any target (DCT) that each request names by an
//! address handle, a number and an access key.
//!
//! Messages travel in parts, each a datagram of UD with a header of its own behind the DETH (`header`). Each
//! stream of an initiator has an order of its own: a message to another target waits until those before it
//! are answered (`stream`, `message`). A target executes the messages of a stream in the order of their
//! numbers and accepts each part once; it asks for parts that are missing, and answers repeated parts again
//! (`target`).

mod answers;
mod header;
mod initiator;
mod message;
mod stream;
mod target;
#[cfg(test)]
pub(super) mod tests;

use alloc::collections::TryReserveError;

use super::outbound::Progress;
use super::response::Urgency;
use super::settings::QpSettings;
use crate::event::QpEvent;
use crate::host::{Counter, Host, Transmit};
use crate::path::Arrival;
use crate::types::{DcStreams, SendRequest, WcStatus};
use crate::wire::Packet;

pub(super) use header::described;

use header::DcHeader;
use initiator::Initiator;
use target::{DcArrival, Target};

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

    /// Creates the state of a queue pair with the same parameters.
    pub(super) fn with_same_parameters(&self, max_send_wr: u32) -> Dc {
        match self {
            Dc::Initiator(initiator) => Dc::initiator(max_send_wr, initiator.made_with()),
            Dc::Target(target) => Dc::target(target.access_key()),
        }
    }

    /// Returns the streams that an initiator was made with; `None` for a target, or without streams.
    pub(super) fn streams(&self) -> Option<DcStreams> {
        match self {
            Dc::Initiator(initiator) => initiator.made_with(),
            Dc::Target(_) => None,
        }
    }

    /// Makes a failed stream work again.
    pub(super) fn reset_stream(&mut self, id: u16) {
        if let Dc::Initiator(initiator) = self {
            initiator.reset_stream(id);
        }
    }

    /// Reports whether the send queue has no room for a further request.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Dc::Initiator(initiator) => initiator.is_full(),
            Dc::Target(_) => true,
        }
    }

    /// Counts the requests whose end no completion has reported yet.
    pub(super) fn count(&self) -> usize {
        match self {
            Dc::Initiator(initiator) => initiator.count(),
            Dc::Target(_) => 0,
        }
    }

    /// Reports whether no message is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Dc::Initiator(initiator) => initiator.is_idle(),
            Dc::Target(_) => true,
        }
    }

    /// Reports whether an error has happened that moves the queue pair to ERR.
    pub(super) fn has_failed(&self) -> bool {
        match self {
            Dc::Initiator(initiator) => initiator.has_failed(),
            Dc::Target(_) => false,
        }
    }

    pub(super) fn post<H: Host>(
        &mut self,
        settings: &QpSettings,
        request: &SendRequest<'_>,
        length_bytes: u32,
        fault: Option<WcStatus>,
        host: &mut H,
    ) -> Result<(), TryReserveError> {
        match self {
            Dc::Initiator(initiator) => initiator.post(settings, request, length_bytes, fault, host),
            Dc::Target(_) => Ok(()),
        }
    }

    /// Handles a datagram.
    pub(super) fn handle<H: Host>(
        &mut self,
        settings: &QpSettings,
        now_ns: u64,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        let parsed = DcHeader::parse(packet.payload()).filter(|_| !arrival.flow.destination.is_multicast());
        let (Some(deth), Some((header, data))) = (packet.deth(), parsed) else {
            // The datagram is of a queue pair of another service: no answer is possible.
            host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxWrongService));
            return;
        };
        let from = (arrival.flow.source, deth.source);
        match self {
            Dc::Initiator(initiator) if !header.kind.is_request() => {
                initiator.handle(settings, from, (&header, data), now_ns, host);
            }
            Dc::Target(target) if header.kind.is_request() => {
                target.handle(settings, &DcArrival { from, arrival, header, data, now_ns }, host);
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

    pub(super) fn handle_timeout<H: Host>(&mut self, settings: &QpSettings, now_ns: u64, host: &mut H) {
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
        settings: &QpSettings,
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
        settings: &QpSettings,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        match self {
            Dc::Initiator(_) => Progress::Idle,
            Dc::Target(target) => target.transmit(settings, host, sink),
        }
    }

    /// Completes all posted requests as flushed; partly received messages are given up.
    pub(super) fn flush<H: Host>(&mut self, settings: &QpSettings, host: &mut H) {
        match self {
            Dc::Initiator(initiator) => initiator.flush(settings, host),
            Dc::Target(target) => target.flush(settings, host),
        }
    }
}
