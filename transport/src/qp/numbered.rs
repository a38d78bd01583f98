//! Services that number and answer their messages in datagrams of their own: SRD, and the two ends of DC.

use core::net::IpAddr;

use super::dc::{self, Dc};
use super::numbered_part::NumberedPart;
use super::outbound::Progress;
use super::response::Urgency;
use super::settings::Settings;
use super::srd::{self, Srd, SrdOrder};
use crate::host::{Host, Transmit};
use crate::path::Arrival;
use crate::types::{DcStreams, OwnService, QpType, SendRequest, WcStatus};
use crate::wire::{Packet, Qpn};

/// The state of such a queue pair, in place of requester and receiver.
#[derive(Debug)]
pub(super) enum Numbered {
    Srd(Srd),
    Dc(Dc),
}

/// A method that each of them has.
macro_rules! each {
    ($self:ident, $one:ident => $call:expr) => {
        match $self {
            Numbered::Srd($one) => $call,
            Numbered::Dc($one) => $call,
        }
    };
}

impl Numbered {
    /// That of a type; `None`: the type has none. What is not said of it is the plainest.
    pub(super) fn of_type(qp_type: QpType, max_send_wr: u32) -> Option<Numbered> {
        OwnService::plain(qp_type).map(|own| Numbered::of(own, SrdOrder::InOrder, max_send_wr))
    }

    pub(super) fn of(own: OwnService, order: SrdOrder, max_send_wr: u32) -> Numbered {
        match own {
            OwnService::Srd { takes_unsolicited } => {
                Numbered::Srd(Srd::new(max_send_wr, order, takes_unsolicited))
            }
            OwnService::DcInitiator { streams } => Numbered::Dc(Dc::initiator(max_send_wr, streams)),
            OwnService::DcTarget { access_key } => Numbered::Dc(Dc::target(access_key)),
        }
    }

    /// One that was made as this one was, with nothing on its way.
    pub(super) fn anew(&self, max_send_wr: u32) -> Numbered {
        match self {
            Numbered::Srd(srd) => Numbered::Srd(Srd::new(max_send_wr, srd.order(), srd.takes_unsolicited())),
            Numbered::Dc(dc) => Numbered::Dc(dc.anew(max_send_wr)),
        }
    }

    /// WRITEs with immediate data that arrive take no receive request.
    pub(super) fn takes_unsolicited(&self) -> bool {
        matches!(self, Numbered::Srd(srd) if srd.takes_unsolicited())
    }

    /// The address that the newest message from a queue pair came from.
    pub(super) fn source_of(&self, qpn: Qpn) -> Option<IpAddr> {
        if let Numbered::Srd(srd) = self { srd.source_of(qpn) } else { None }
    }

    /// The streams that an initiator of DC was made with.
    pub(super) fn streams(&self) -> Option<DcStreams> {
        if let Numbered::Dc(dc) = self { dc.streams() } else { None }
    }

    /// A stream of an initiator of DC that has failed works again.
    pub(super) fn reset_stream(&mut self, id: u16) {
        if let Numbered::Dc(dc) = self {
            dc.reset_stream(id);
        }
    }

    /// Requests whose end no completion has told yet.
    pub(super) fn count(&self) -> usize {
        each!(self, one => one.count())
    }

    /// An error has come that the queue pair goes to ERR by.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self, Numbered::Dc(dc) if dc.has_failed())
    }

    /// The send queue takes no further request.
    pub(super) fn is_full(&self) -> bool {
        each!(self, one => one.is_full())
    }

    /// Nothing is on its way.
    pub(super) fn is_idle(&self) -> bool {
        each!(self, one => one.is_idle())
    }

    /// Takes a request, which was checked, of this length.
    pub(super) fn post<H: Host>(
        &mut self,
        settings: &Settings,
        request: &SendRequest<'_>,
        length_bytes: u32,
        fault: Option<WcStatus>,
        host: &mut H,
    ) {
        match self {
            Numbered::Srd(srd) => srd.post(request, length_bytes, fault),
            Numbered::Dc(dc) => dc.post(settings, request, length_bytes, fault, host),
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
        each!(self, one => one.handle(settings, now_ns, arrival, packet, host));
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        each!(self, one => one.deadline_ns())
    }

    pub(super) fn handle_timeout<H: Host>(&mut self, settings: &Settings, now_ns: u64, host: &mut H) {
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
        settings: &Settings,
        draining: bool,
        now_ns: u64,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        each!(self, one => one.transmit_requests(settings, draining, now_ns, host, sink))
    }

    pub(super) fn transmit_answers<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        each!(self, one => one.transmit_answers(settings, host, sink))
    }

    /// Everything that was posted ends as flushed; what has half arrived is forgotten.
    pub(super) fn flush<H: Host>(&mut self, settings: &Settings, host: &mut H) {
        each!(self, one => one.flush(settings, host));
    }
}

impl NumberedPart {
    /// What the payload of a datagram says, if it is of such a service.
    pub fn of(payload: &[u8]) -> Option<NumberedPart> {
        srd::described(payload).or_else(|| dc::described(payload))
    }
}
