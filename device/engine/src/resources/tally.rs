//! The counts of each queue pair: rare events only, so that packets cost nothing.

use pumice_transport::host::Counter;
use pumice_transport::types::Cause;

/// The counts of a queue pair since it was created.
#[derive(Debug, Clone, Default)]
pub(crate) struct QpTally {
    /// Number of packets sent again.
    pub(crate) repeated_packets: u64,
    /// Number of acknowledgement timers that expired.
    pub(crate) timeouts: u64,
    pub(crate) rnr_naks_sent: u64,
    pub(crate) rnr_naks_received: u64,
    /// Number of other NAKs.
    pub(crate) naks_sent: u64,
    pub(crate) naks_received: u64,
    /// Number of packets for the queue pair that were dropped.
    pub(crate) dropped: u64,
    /// The cause of the last problem.
    pub(crate) last_error: Option<Box<Cause>>,
}

impl QpTally {
    pub(super) fn note(&mut self, counter: Counter, amount: u64) {
        let count = match counter {
            Counter::RetransmittedPackets => &mut self.repeated_packets,
            Counter::Timeout => &mut self.timeouts,
            Counter::TxRnrNak => &mut self.rnr_naks_sent,
            Counter::RxRnrNak => &mut self.rnr_naks_received,
            Counter::TxNakSequence
            | Counter::TxNakInvalid
            | Counter::TxNakAccess
            | Counter::TxNakOperation => &mut self.naks_sent,
            Counter::RxNakSequence | Counter::RxNakFatal => &mut self.naks_received,
            Counter::RxWrongService
            | Counter::RxWrongState
            | Counter::RxBadPkey
            | Counter::RxBadQkey
            | Counter::RxWrongAddress
            | Counter::RxWrongPort
            | Counter::RxNoReceive
            | Counter::RxMessageDropped
            | Counter::RxUnexpectedResponse => &mut self.dropped,
            _ => return,
        };
        *count = count.saturating_add(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_device_are_sorted_into_those_of_a_queue_pair() {
        let mut tally = QpTally::default();
        for (counter, amount) in [
            (Counter::RetransmittedPackets, 5),
            (Counter::Timeout, 1),
            (Counter::TxRnrNak, 2),
            (Counter::RxRnrNak, 3),
            (Counter::TxNakAccess, 1),
            (Counter::RxNakSequence, 4),
            (Counter::RxBadQkey, 6),
            (Counter::RxCnp, 9),
        ] {
            tally.note(counter, amount);
        }
        let QpTally { repeated_packets, timeouts, rnr_naks_sent, rnr_naks_received, .. } = tally;
        assert_eq!((repeated_packets, timeouts, rnr_naks_sent, rnr_naks_received), (5, 1, 2, 3));
        assert_eq!((tally.naks_sent, tally.naks_received, tally.dropped), (1, 4, 6));
    }
}
