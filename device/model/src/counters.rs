//! The counters of the device, by name.

use std::sync::atomic::{AtomicU64, Ordering};

use pumice_transport::host::Counter;

/// A counter, its stable name and its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterInfo {
    /// The counter.
    pub counter: Counter,
    /// The name in listings and files; never changes.
    pub name: &'static str,
    /// The meaning of one count.
    pub meaning: &'static str,
}

const fn info(counter: Counter, name: &'static str, meaning: &'static str) -> CounterInfo {
    CounterInfo { counter, name, meaning }
}

/// All counters, in the order of [`Counter`].
pub const COUNTERS: [CounterInfo; Counter::COUNT] = [
    info(Counter::RxTooShort, "rx_too_short", "packets shorter than their headers, dropped"),
    info(Counter::RxBadVersion, "rx_bad_version", "packets of a transport version other than 0, dropped"),
    info(Counter::RxBadOpcode, "rx_bad_opcode", "packets with an unknown opcode, dropped"),
    info(Counter::RxBadPad, "rx_bad_pad", "packets with more pad than payload, dropped"),
    info(Counter::RxBadLength, "rx_bad_length", "packets whose payload does not fit their opcode, dropped"),
    info(Counter::RxBadIcrc, "rx_bad_icrc", "packets with a wrong ICRC, dropped"),
    info(Counter::RxUnknownQpn, "rx_unknown_qpn", "packets to a queue pair that does not exist, dropped"),
    info(Counter::RxWrongService, "rx_wrong_service", "packets of another transport service, dropped"),
    info(Counter::RxWrongState, "rx_wrong_state", "packets to a queue pair not ready for them, dropped"),
    info(Counter::RxBadPkey, "rx_bad_pkey", "packets of another partition, dropped"),
    info(Counter::RxBadQkey, "rx_bad_qkey", "datagrams with a wrong Q_Key, dropped"),
    info(Counter::RxWrongAddress, "rx_wrong_address", "packets from or to an unexpected address, dropped"),
    info(Counter::RxWrongPort, "rx_wrong_port", "packets from another UDP port than the peer's, dropped"),
    info(Counter::RxUnknownGroup, "rx_unknown_group", "datagrams to a group without members, dropped"),
    info(Counter::RxTruncated, "rx_truncated", "packets longer than the receive buffer, dropped"),
    info(Counter::RxOutOfSequence, "rx_out_of_sequence", "requests after a gap in the PSNs"),
    info(Counter::RxDuplicateRequest, "rx_duplicate_request", "requests that were executed before"),
    info(Counter::RxStaleResponse, "rx_stale_response", "responses to requests already answered"),
    info(Counter::RxUnexpectedResponse, "rx_unexpected_response", "responses that fit no request"),
    info(Counter::RxReservedSyndrome, "rx_reserved_syndrome", "responses with a reserved syndrome"),
    info(Counter::RxNoReceive, "rx_no_receive", "messages that found no receive request posted"),
    info(Counter::RxMessageDropped, "rx_message_dropped", "unreliable messages dropped"),
    info(Counter::RxReplayMissed, "rx_replay_missed", "duplicate requests whose result was forgotten"),
    info(Counter::TxNakSequence, "tx_nak_sequence", "NAKs sent: PSN sequence error"),
    info(Counter::TxNakInvalid, "tx_nak_invalid", "NAKs sent: invalid request"),
    info(Counter::TxNakAccess, "tx_nak_access", "NAKs sent: remote access error"),
    info(Counter::TxNakOperation, "tx_nak_operation", "NAKs sent: remote operational error"),
    info(Counter::TxRnrNak, "tx_rnr_nak", "NAKs sent: receiver not ready"),
    info(Counter::RxNakSequence, "rx_nak_sequence", "NAKs received: PSN sequence error"),
    info(Counter::RxNakFatal, "rx_nak_fatal", "NAKs received that end the connection"),
    info(Counter::RxRnrNak, "rx_rnr_nak", "NAKs received: receiver not ready"),
    info(Counter::RxImpliedNak, "rx_implied_nak", "responses that show that an earlier one was lost"),
    info(Counter::Timeout, "timeout", "acknowledgement timers expired"),
    info(Counter::EarlyRetransmit, "early_retransmit", "retransmissions before the timer expired"),
    info(
        Counter::StarvedPeer,
        "starved_peer",
        "expired timers that cost no retry: the peer's process on this host had no processor",
    ),
    info(Counter::RetransmittedPackets, "retransmitted_packets", "packets sent again"),
    info(Counter::RxCnp, "rx_cnp", "congestion notifications received"),
    info(Counter::TxCnp, "tx_cnp", "congestion notifications sent"),
    info(Counter::RxCongestionMarked, "rx_congestion_marked", "packets received with the ECN mark CE"),
    info(Counter::RxIcrcRecovered, "rx_icrc_recovered", "packets whose ICRC told their unseen IP ID"),
    info(Counter::TxPackets, "tx_packets", "packets sent"),
    info(Counter::RxPackets, "rx_packets", "packets received"),
    info(Counter::TxBytes, "tx_bytes", "bytes sent, as UDP payload"),
    info(Counter::RxBytes, "rx_bytes", "bytes received, as UDP payload"),
    info(Counter::TxBatches, "tx_batches", "system calls that sent packets"),
    info(Counter::RxBatches, "rx_batches", "buffers of packets received"),
    info(Counter::TxDropped, "tx_dropped", "packets that the system refused to send"),
    info(Counter::LinkQueued, "link_queued", "packets that waited in a queue of the device's link"),
    info(Counter::LinkDropped, "link_dropped", "packets that found the queue of the link full, dropped"),
    info(Counter::LinkMarked, "link_marked", "packets that the queue of the link marked CE"),
    info(Counter::LinkBusy, "link_busy", "times that the device waited for room in its link's queue"),
];

/// The counters of a device: written by the engine and its ports, read by any thread.
#[derive(Debug)]
pub struct Counters {
    shared: [AtomicU64; Counter::COUNT],
    engine: [AtomicU64; Counter::COUNT],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters::new()
    }
}

#[expect(clippy::indexing_slicing, reason = "each array has an entry for every counter")]
impl Counters {
    /// Returns counters that are all zero.
    pub const fn new() -> Counters {
        Counters {
            shared: [const { AtomicU64::new(0) }; Counter::COUNT],
            engine: [const { AtomicU64::new(0) }; Counter::COUNT],
        }
    }

    /// Adds to a counter, from any thread.
    #[inline]
    pub fn add(&self, counter: Counter, amount: u64) {
        self.shared[counter as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// Adds to a counter without the cost of an atomic addition. It is only for the holder of the engine's
    /// lock: of two callers at once, one count would be lost.
    #[inline]
    pub fn add_under_lock(&self, counter: Counter, amount: u64) {
        let count = &self.engine[counter as usize];
        count.store(count.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Returns the value of one counter.
    pub fn value(&self, counter: Counter) -> u64 {
        let index = counter as usize;
        let shared = self.shared[index].load(Ordering::Relaxed);
        shared.wrapping_add(self.engine[index].load(Ordering::Relaxed))
    }

    /// Returns all counters with their values, in the order of [`COUNTERS`].
    pub fn snapshot(&self) -> [(CounterInfo, u64); Counter::COUNT] {
        COUNTERS.map(|info| (info, self.value(info.counter)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_table_names_every_counter_at_its_index() {
        let mut names = HashSet::new();
        for (index, info) in COUNTERS.iter().enumerate() {
            assert_eq!(info.counter as usize, index, "{}", info.name);
            // The name has to be the variant's, in snake case.
            let mut name = String::new();
            for letter in format!("{:?}", info.counter).chars() {
                if letter.is_uppercase() && !name.is_empty() {
                    name.push('_');
                }
                name.push(letter.to_ascii_lowercase());
            }
            assert_eq!(info.name, name);
            assert!(names.insert(info.name));
            assert!(!info.meaning.is_empty());
        }
        assert_eq!(names.len(), Counter::COUNT);
    }

    #[test]
    fn both_ways_of_adding_are_summed() {
        let counters = Counters::new();
        counters.add(Counter::RxPackets, 2);
        counters.add_under_lock(Counter::RxPackets, 3);
        counters.add_under_lock(Counter::TxDropped, 1);
        assert_eq!(counters.value(Counter::RxPackets), 5);
        let total: u64 = counters.snapshot().iter().map(|(_, value)| value).sum();
        assert_eq!(total, 6);
    }
}
