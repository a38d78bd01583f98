//! Numbers that describe what a queue pair does now, for people who watch it.

use core::net::IpAddr;

use super::{QueuePair, ReceivingSide};

/// The numbers of a queue pair at a moment. Counts begin at 0 when the queue pair is made, and again when it
/// goes to RESET.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QpStatistics {
    /// Number of send requests posted.
    pub posted: u64,
    /// Number of send requests that ended, with or without success.
    pub ended: u64,
    /// Number of newest send requests in sequence that make no completion if they succeed.
    pub unsignaled: u64,
    /// Number of complete messages of the peer: SEND, WRITE, READ and atomic requests.
    pub received: u64,
    /// Number of request PSNs sent and not acknowledged.
    pub in_flight_packets: u32,
    /// Number of request PSNs that may be unacknowledged now.
    pub window_packets: u32,
    /// Rate of the packets in bit/s, if congestion control is by rate.
    pub rate_bits_per_second: Option<u64>,
    /// Round trip time, smoothed, in ns; `None` before the first acknowledgement that was timed.
    pub rtt_ns: Option<u64>,
    /// True if an RNR NAK came, and its delay is not over.
    pub waits_for_receiver: bool,
    /// Multicast group of the last datagram that has ended, if it went to one.
    pub group: Option<IpAddr>,
}

impl QueuePair {
    /// Returns the number of resets.
    pub fn connection(&self) -> u32 {
        self.settings.connection
    }

    /// Returns the number of READs and atomics that may be outstanding.
    pub fn max_rd_atomic(&self) -> u8 {
        self.settings.max_rd_atomic
    }

    /// Counts the send requests that were posted and whose end no completion has reported yet.
    pub fn unreported_sends(&self) -> u64 {
        let numbered = self.numbered.as_ref().map_or(0, |numbered| numbered.count() as u64);
        self.requester.unreported_count() + numbered
    }

    /// Returns the numbers now, all from existing state: no counting happens for them.
    pub fn statistics(&self) -> QpStatistics {
        let inbound = match &self.receiver {
            ReceivingSide::Reliable(responder) => &responder.inbound,
            ReceivingSide::Unreliable(receiver) => &receiver.inbound,
            ReceivingSide::Datagram(inbound) => inbound,
        };
        let reliable = self.settings.qp_type.is_reliable();
        QpStatistics {
            posted: self.requester.queue.tail(),
            ended: self.requester.queue.head(),
            unsignaled: self.requester.queue.unsignaled(),
            received: inbound.messages,
            in_flight_packets: self.in_flight(),
            window_packets: if reliable { self.requester.window.packets() } else { 0 },
            rate_bits_per_second: self.requester.pacer.as_ref().map(|pacer| pacer.rate()),
            rtt_ns: self.requester.window.rtt_ns(),
            waits_for_receiver: self.requester.retries.rnr_until_ns.is_some(),
            group: self.requester.queue.group(),
        }
    }
}
