//! Requests that this process sends to services on its own host.
//!
//! A request names a service and not a process: it goes to the process that listens, or else to the one that
//! serves packets which name no process. If that process is stopped, the request would lie in its socket
//! until the sender's timer ends, seconds later. So a stopped process is bypassed at once, and a request
//! whose receiver has still not polled its socket after [`PATIENCE_NS`] is handed to a process that runs. The
//! request may then arrive twice, which the connection manager tolerates.

use std::collections::VecDeque;

use pumice_transport::mad::{ServiceId, attribute};
use pumice_transport::path::Path;
use pumice_transport::wire::{Qpn, peek};

/// Time that the receiver of a request has to poll its socket, in nanoseconds.
const PATIENCE_NS: u64 = 50_000_000;
/// Number of requests that are watched at a time. Others are left to their timers.
const MAX_WAITING: usize = 64;

/// Requests whose receivers may not have polled their sockets yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Requests {
    waiting: VecDeque<UnseenRequest>,
}

/// A request whose receiver may not have polled its socket yet.
#[derive(Debug)]
pub(super) struct UnseenRequest {
    pub(super) sent_ns: u64,
    pub(super) path: Path,
    pub(super) packet: Vec<u8>,
}

impl Requests {
    /// Returns the time by which the receiver of the oldest request should have polled its socket.
    #[inline]
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.waiting.front().map(|waiting| waiting.sent_ns.saturating_add(PATIENCE_NS))
    }

    /// Adds a request that was sent.
    pub(super) fn push(&mut self, sent_ns: u64, path: &Path, packet: &[u8]) {
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(UnseenRequest { sent_ns, path: path.clone(), packet: packet.to_vec() });
        }
    }

    /// Removes the oldest request.
    pub(super) fn pop(&mut self) -> Option<UnseenRequest> {
        self.waiting.pop_front()
    }
}

/// Reports whether the first packet of a batch is for queue pair 1 of no process in particular.
#[inline]
pub(super) fn is_for_all(batch: &[u8]) -> bool {
    peek::destination(batch) == Some(Qpn::GSI)
}

/// Returns the service that a packet asks for, if it is a request to queue pair 1.
pub(super) fn service(packet: &[u8]) -> Option<ServiceId> {
    let is_request =
        is_for_all(packet) && matches!(peek::attribute(packet), Some(attribute::REQ | attribute::SIDR_REQ));
    peek::service_id(packet).filter(|_| is_request).map(ServiceId)
}
