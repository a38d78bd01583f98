//! Services that number and answer their messages in datagrams of their own: SRD, and the two ends of DC.

use alloc::collections::TryReserveError;
use core::net::IpAddr;

use super::dc::{self, Dc};
use super::numbered_part::NumberedPart;
use super::outbound::Progress;
use super::response::Urgency;
use super::settings::QpSettings;
use super::srd::{self, Srd, SrdOrder};
use crate::host::{Host, Transmit};
use crate::path::Arrival;
use crate::types::{DcStreams, QpType, SendRequest, VendorService, WcStatus};
use crate::wire::{Packet, Qpn};

/// The state of a queue pair of such a service, used instead of requester and receiver.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is boxed as a whole, once for a queue pair")]
pub(super) enum Numbered {
    Srd(Srd),
    Dc(Dc),
}

/// Calls a method that each of the services has.
macro_rules! each {
    ($self:ident, $one:ident => $call:expr) => {
        match $self {
            Numbered::Srd($one) => $call,
            Numbered::Dc($one) => $call,
        }
    };
}

impl Numbered {
    /// Creates the state of a type with the simplest parameters; `None` if the type has none.
    pub(super) fn of_type(qp_type: QpType, max_send_wr: u32) -> Option<Numbered> {
        VendorService::plain(qp_type).map(|own| Numbered::of(own, SrdOrder::InOrder, max_send_wr))
    }

    pub(super) fn of(own: VendorService, order: SrdOrder, max_send_wr: u32) -> Numbered {
        match own {
            VendorService::Srd { takes_unsolicited } => {
                Numbered::Srd(Srd::new(max_send_wr, order, takes_unsolicited))
            }
            VendorService::DcInitiator { streams } => Numbered::Dc(Dc::initiator(max_send_wr, streams)),
            VendorService::DcTarget { access_key } => Numbered::Dc(Dc::target(access_key)),
        }
    }

    /// Creates a state with the same parameters, without outstanding messages.
    pub(super) fn with_same_parameters(&self, max_send_wr: u32) -> Numbered {
        match self {
            Numbered::Srd(srd) => Numbered::Srd(Srd::new(max_send_wr, srd.order(), srd.takes_unsolicited())),
            Numbered::Dc(dc) => Numbered::Dc(dc.with_same_parameters(max_send_wr)),
        }
    }

    /// Reports whether WRITEs with immediate data that arrive take no receive request.
    pub(super) fn takes_unsolicited(&self) -> bool {
        matches!(self, Numbered::Srd(srd) if srd.takes_unsolicited())
    }

    /// Returns the source address of the newest message from a queue pair.
    pub(super) fn source_of(&self, qpn: Qpn) -> Option<IpAddr> {
        if let Numbered::Srd(srd) = self { srd.source_of(qpn) } else { None }
    }

    /// Returns the streams that an initiator of DC was made with.
    pub(super) fn streams(&self) -> Option<DcStreams> {
        if let Numbered::Dc(dc) = self { dc.streams() } else { None }
    }

    /// Makes a failed stream of an initiator of DC work again.
    pub(super) fn reset_stream(&mut self, id: u16) {
        if let Numbered::Dc(dc) = self {
            dc.reset_stream(id);
        }
    }

    /// Counts the requests whose end no completion has reported yet.
    pub(super) fn count(&self) -> usize {
        each!(self, one => one.count())
    }

    /// Reports whether an error has happened that moves the queue pair to ERR.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self, Numbered::Dc(dc) if dc.has_failed())
    }

    /// Reports whether the send queue has no room for a further request.
    pub(super) fn is_full(&self) -> bool {
        each!(self, one => one.is_full())
    }

    /// Reports whether no message is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        each!(self, one => one.is_idle())
    }

    /// Posts a request of this length, which was checked.
    ///
    /// # Errors
    /// Fails if there is no memory for it; nothing is posted.
    pub(super) fn post<H: Host>(
        &mut self,
        settings: &QpSettings,
        request: &SendRequest<'_>,
        length_bytes: u32,
        fault: Option<WcStatus>,
        host: &mut H,
    ) -> Result<(), TryReserveError> {
        match self {
            Numbered::Srd(srd) => srd.post(request, length_bytes, fault),
            Numbered::Dc(dc) => dc.post(settings, request, length_bytes, fault, host),
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
        each!(self, one => one.handle(settings, now_ns, arrival, packet, host));
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        each!(self, one => one.deadline_ns())
    }

    pub(super) fn handle_timeout<H: Host>(&mut self, settings: &QpSettings, now_ns: u64, host: &mut H) {
        each!(self, one => one.handle_timeout(settings, now_ns, host));
    }

    pub(super) fn wants_to_send(&self) -> bool {
        each!(self, one => one.wants_to_send())
    }

    pub(super) fn urgency(&self) -> Urgency {
        each!(self, one => one.urgency())
    }

    pub(super) fn transmit_requests<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        draining: bool,
        now_ns: u64,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        each!(self, one => one.transmit_requests(settings, draining, now_ns, host, sink))
    }

    pub(super) fn transmit_answers<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        each!(self, one => one.transmit_answers(settings, host, sink))
    }

    /// Completes all posted requests as flushed; partly received messages are dropped.
    pub(super) fn flush<H: Host>(&mut self, settings: &QpSettings, host: &mut H) {
        each!(self, one => one.flush(settings, host));
    }
}

impl NumberedPart {
    /// Describes the payload of a datagram, if it is of such a service.
    pub fn of(payload: &[u8]) -> Option<NumberedPart> {
        srd::described(payload).or_else(|| dc::described(payload))
    }
}
