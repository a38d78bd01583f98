//! Recipes: files of the tree whose contents change, and the counters of the device that their numbers are
//! made of. The preload reads these recipes, and what the processes have counted, whenever a program opens
//! such a file.

use pumice_transport::host::Counter;

/// A number of the tree: the sum of counters, divided.
pub(super) struct CounterFormula {
    pub(super) name: &'static str,
    divisor: u64,
    counters: &'static [Counter],
}

const fn counter_formula(name: &'static str, divisor: u64, counters: &'static [Counter]) -> CounterFormula {
    CounterFormula { name, divisor, counters }
}

/// Files of `counters/`, as InfiniBand names them. Data is counted in words of four bytes.
pub(super) const PORT: [CounterFormula; 7] = [
    counter_formula("port_xmit_data", 4, &[Counter::TxBytes]),
    counter_formula("port_rcv_data", 4, &[Counter::RxBytes]),
    counter_formula("port_xmit_packets", 1, &[Counter::TxPackets]),
    counter_formula("port_rcv_packets", 1, &[Counter::RxPackets]),
    counter_formula("port_xmit_discards", 1, &[Counter::TxDropped]),
    counter_formula(
        "port_rcv_errors",
        1,
        &[
            Counter::RxTooShort,
            Counter::RxBadVersion,
            Counter::RxBadOpcode,
            Counter::RxBadPad,
            Counter::RxBadLength,
            Counter::RxBadIcrc,
            Counter::RxTruncated,
        ],
    ),
    counter_formula("port_rcv_constraint_errors", 1, &[Counter::RxBadPkey]),
];

/// Files of `hw_counters/`, and counters that `rdma statistic` shows: rdma_rxe's names, then those of
/// ConnectX adapters, some of which count the same, then pumice's own of its links, which no adapter counts.
pub(super) const HARDWARE: [CounterFormula; 25] = [
    counter_formula("sent_pkts", 1, &[Counter::TxPackets]),
    counter_formula("rcvd_pkts", 1, &[Counter::RxPackets]),
    counter_formula("duplicate_request", 1, &[Counter::RxDuplicateRequest]),
    counter_formula("out_of_seq_request", 1, &[Counter::RxOutOfSequence]),
    counter_formula("rcvd_rnr_err", 1, &[Counter::RxRnrNak]),
    counter_formula("send_rnr_err", 1, &[Counter::TxRnrNak]),
    counter_formula("rcvd_seq_err", 1, &[Counter::RxNakSequence]),
    counter_formula("completer_retry_err", 1, &[Counter::Timeout, Counter::EarlyRetransmit]),
    counter_formula("send_err", 1, &[Counter::TxDropped]),
    counter_formula("local_ack_timeout_err", 1, &[Counter::Timeout]),
    counter_formula("out_of_sequence", 1, &[Counter::RxOutOfSequence]),
    counter_formula("packet_seq_err", 1, &[Counter::RxNakSequence]),
    counter_formula("rnr_nak_retry_err", 1, &[Counter::RxRnrNak]),
    counter_formula("out_of_buffer", 1, &[Counter::RxNoReceive]),
    counter_formula("implied_nak_seq_err", 1, &[Counter::RxImpliedNak]),
    counter_formula("req_remote_access_errors", 1, &[Counter::RxNakFatal]),
    counter_formula("resp_remote_access_errors", 1, &[Counter::TxNakAccess]),
    counter_formula("rx_icrc_encapsulated", 1, &[Counter::RxBadIcrc]),
    counter_formula("np_ecn_marked_roce_packets", 1, &[Counter::RxCongestionMarked]),
    counter_formula("np_cnp_sent", 1, &[Counter::TxCnp]),
    counter_formula("rp_cnp_handled", 1, &[Counter::RxCnp]),
    counter_formula("link_queued", 1, &[Counter::LinkQueued]),
    counter_formula("link_dropped", 1, &[Counter::LinkDropped]),
    counter_formula("link_marked", 1, &[Counter::LinkMarked]),
    counter_formula("link_busy", 1, &[Counter::LinkBusy]),
];

impl CounterFormula {
    /// Returns the text that the preload reads: the divisor and the indices of the counters, in decimal.
    pub(super) fn text(&self) -> String {
        let indices = self.counters.iter().map(|counter| (*counter as usize).to_string());
        std::iter::once(self.divisor.to_string()).chain(indices).collect::<Vec<_>>().join(" ")
    }

    /// Returns the mark that the preload replaces by a number of eight bytes: an index and one per byte, 0
    /// for none. Only for recipes without a divisor.
    pub(super) fn marks(&self) -> u64 {
        self.counters.iter().rev().fold(0, |marks, counter| marks << 8 | (*counter as u64 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_fit_their_forms() {
        assert_eq!(PORT[0].text(), format!("4 {}", Counter::TxBytes as usize));
        for counter_formula in PORT.iter().chain(&HARDWARE) {
            assert!(
                counter_formula.text().len() < 64 && counter_formula.counters.len() <= 8,
                "{}",
                counter_formula.name
            );
        }
        assert!(HARDWARE.iter().all(|counter_formula| counter_formula.divisor == 1));
        let timeouts =
            HARDWARE.iter().find(|counter_formula| counter_formula.name == "completer_retry_err").unwrap();
        let bytes = timeouts.marks().to_le_bytes();
        assert_eq!(bytes[..3], [Counter::Timeout as u8 + 1, Counter::EarlyRetransmit as u8 + 1, 0]);
    }
}
