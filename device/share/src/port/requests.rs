//! Requests that this process sends to services on its own host.
//!
//! A request names a service and not a process: it goes to the process that listens, or else to the one that
//! serves what names no process. If that is stopped, the request would lie in its socket until the sender's
//! timer ends, seconds later. So a stopped one is gone around at once, and a request whose receiver has still
//! not looked after [`PATIENCE_NS`], for whatever reason, is handed to a process that runs. It may then
//! arrive twice, which the connection manager knows.

use std::collections::VecDeque;

use pumice_transport::mad::{ServiceId, attribute};
use pumice_transport::path::Path;
use pumice_transport::wire::{Qpn, peek};

/// How long the receiver of a request has to look at its socket.
const PATIENCE_NS: u64 = 50_000_000;
/// Requests that are looked after at a time. Others are left to their timers.
const MAX_WAITING: usize = 64;

/// Requests whose receivers may not have looked yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Requests {
    waiting: VecDeque<UnseenRequest>,
}

/// A request whose receiver may not have looked yet.
#[derive(Debug)]
pub(super) struct UnseenRequest {
    pub(super) sent_ns: u64,
    pub(super) path: Path,
    pub(super) packet: Vec<u8>,
}

impl Requests {
    /// When the oldest should have been looked at.
    #[inline]
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.waiting.front().map(|waiting| waiting.sent_ns.saturating_add(PATIENCE_NS))
    }

    /// A request was sent.
    pub(super) fn push(&mut self, sent_ns: u64, path: &Path, packet: &[u8]) {
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(UnseenRequest { sent_ns, path: path.clone(), packet: packet.to_vec() });
        }
    }

    /// Takes the oldest.
    pub(super) fn pop(&mut self) -> Option<UnseenRequest> {
        self.waiting.pop_front()
    }
}

/// Whether the first packet of a batch is for queue pair 1 of no process in particular.
#[inline]
pub(super) fn is_for_all(batch: &[u8]) -> bool {
    peek::destination(batch) == Some(Qpn::GSI)
}

/// The service that a packet asks for, if it is a request to queue pair 1.
pub(super) fn service(packet: &[u8]) -> Option<ServiceId> {
    let is_request =
        is_for_all(packet) && matches!(peek::attribute(packet), Some(attribute::REQ | attribute::SIDR_REQ));
    peek::service_id(packet).filter(|_| is_request).map(ServiceId)
}
