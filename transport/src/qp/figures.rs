//! What a queue pair does now, in numbers, for people who watch it.

use core::net::IpAddr;

use super::{QueuePair, Receiver};

/// The numbers of a queue pair at a moment. What is counted begins at 0 when the queue pair is made, and
/// again when it goes to RESET.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Send requests posted.
    pub posted: u64,
    /// Send requests that ended, well or badly.
    pub ended: u64,
    /// Of the newest send requests, how many in sequence make no completion if they succeed.
    pub unsignaled: u64,
    /// Messages of the peer that arrived whole: SEND, WRITE, READ and atomic requests.
    pub received: u64,
    /// Request PSNs sent and not acknowledged.
    pub in_flight_packets: u32,
    /// Request PSNs that may be unacknowledged now.
    pub window_packets: u32,
    /// Rate of its packets in bit/s, if congestion control is by rate.
    pub rate_bits_per_second: Option<u64>,
    /// Round trip time, smoothed, in ns; none before the first acknowledgement that was timed.
    pub rtt_ns: Option<u64>,
    /// An RNR NAK came, and the time that it asked for is not over.
    pub waits_for_receiver: bool,
    /// The multicast group that the last datagram went to which has ended, if it went to one.
    pub group: Option<IpAddr>,
}

impl QueuePair {
    /// How often it was reset.
    pub fn connection(&self) -> u32 {
        self.settings.connection
    }

    /// READs and atomics that it may have under way.
    pub fn max_rd_atomic(&self) -> u8 {
        self.settings.max_rd_atomic
    }

    /// Send requests that were posted, and whose end no completion has told yet.
    pub fn untold_sends(&self) -> u64 {
        let numbered = self.numbered.as_ref().map_or(0, |numbered| numbered.count() as u64);
        self.requester.untold() + numbered
    }

    /// Its numbers now. Everything is there already: nothing is counted for this.
    pub fn figures(&self) -> Figures {
        let inbound = match &self.receiver {
            Receiver::Reliable(responder) => &responder.inbound,
            Receiver::Unreliable(receiver) => &receiver.inbound,
            Receiver::Datagram(inbound) => inbound,
        };
        let reliable = self.settings.qp_type.is_reliable();
        Figures {
            posted: self.requester.queue.tail(),
            ended: self.requester.queue.head(),
            unsignaled: self.requester.queue.unsignaled(),
            received: inbound.messages,
            in_flight_packets: self.in_flight(),
            window_packets: if reliable { self.requester.window.packets() } else { 0 },
            rate_bits_per_second: self.requester.pacer.as_ref().map(|pacer| pacer.rate()),
            rtt_ns: self.requester.window.rtt_ns(),
            waits_for_receiver: self.requester.rnr_until_ns.is_some(),
            group: self.requester.queue.group(),
        }
    }
}
