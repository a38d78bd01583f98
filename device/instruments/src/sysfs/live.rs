//! Files of the tree whose contents change: which counters of the device their numbers are made of. The
//! preload reads these recipes, and what the processes have counted, whenever a program opens such a file.

use pumice_transport::host::Counter;

/// A number of the tree: the sum of counters, divided.
pub(super) struct Recipe {
    pub(super) name: &'static str,
    divisor: u64,
    counters: &'static [Counter],
}

const fn recipe(name: &'static str, divisor: u64, counters: &'static [Counter]) -> Recipe {
    Recipe { name, divisor, counters }
}

/// `counters/`, as InfiniBand names them. Data is counted in words of four bytes.
pub(super) const PORT: [Recipe; 7] = [
    recipe("port_xmit_data", 4, &[Counter::TxBytes]),
    recipe("port_rcv_data", 4, &[Counter::RxBytes]),
    recipe("port_xmit_packets", 1, &[Counter::TxPackets]),
    recipe("port_rcv_packets", 1, &[Counter::RxPackets]),
    recipe("port_xmit_discards", 1, &[Counter::TxDropped]),
    recipe(
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
    recipe("port_rcv_constraint_errors", 1, &[Counter::RxBadPkey]),
];

/// `hw_counters/`, and what `rdma statistic` shows: rdma_rxe's names, then those of ConnectX adapters, some
/// of which count the same, then pumice's own of its links, which no adapter counts.
pub(super) const HARDWARE: [Recipe; 25] = [
    recipe("sent_pkts", 1, &[Counter::TxPackets]),
    recipe("rcvd_pkts", 1, &[Counter::RxPackets]),
    recipe("duplicate_request", 1, &[Counter::RxDuplicateRequest]),
    recipe("out_of_seq_request", 1, &[Counter::RxOutOfSequence]),
    recipe("rcvd_rnr_err", 1, &[Counter::RxRnrNak]),
    recipe("send_rnr_err", 1, &[Counter::TxRnrNak]),
    recipe("rcvd_seq_err", 1, &[Counter::RxNakSequence]),
    recipe("completer_retry_err", 1, &[Counter::Timeout, Counter::EarlyRetransmit]),
    recipe("send_err", 1, &[Counter::TxDropped]),
    recipe("local_ack_timeout_err", 1, &[Counter::Timeout]),
    recipe("out_of_sequence", 1, &[Counter::RxOutOfSequence]),
    recipe("packet_seq_err", 1, &[Counter::RxNakSequence]),
    recipe("rnr_nak_retry_err", 1, &[Counter::RxRnrNak]),
    recipe("out_of_buffer", 1, &[Counter::RxNoReceive]),
    recipe("implied_nak_seq_err", 1, &[Counter::RxImpliedNak]),
    recipe("req_remote_access_errors", 1, &[Counter::RxNakFatal]),
    recipe("resp_remote_access_errors", 1, &[Counter::TxNakAccess]),
    recipe("rx_icrc_encapsulated", 1, &[Counter::RxBadIcrc]),
    recipe("np_ecn_marked_roce_packets", 1, &[Counter::RxCongestionMarked]),
    recipe("np_cnp_sent", 1, &[Counter::TxCnp]),
    recipe("rp_cnp_handled", 1, &[Counter::RxCnp]),
    recipe("link_queued", 1, &[Counter::LinkQueued]),
    recipe("link_dropped", 1, &[Counter::LinkDropped]),
    recipe("link_marked", 1, &[Counter::LinkMarked]),
    recipe("link_busy", 1, &[Counter::LinkBusy]),
];

impl Recipe {
    /// As the preload reads it: the divisor and the indices of the counters, in decimal.
    pub(super) fn text(&self) -> String {
        let indices = self.counters.iter().map(|counter| (*counter as usize).to_string());
        std::iter::once(self.divisor.to_string()).chain(indices).collect::<Vec<_>>().join(" ")
    }

    /// As the preload finds it where a number of eight bytes is to be: an index and one per byte, 0 for none.
    /// Only for what is not divided.
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
        for recipe in PORT.iter().chain(&HARDWARE) {
            assert!(recipe.text().len() < 64 && recipe.counters.len() <= 8, "{}", recipe.name);
        }
        assert!(HARDWARE.iter().all(|recipe| recipe.divisor == 1));
        let timeouts = HARDWARE.iter().find(|recipe| recipe.name == "completer_retry_err").unwrap();
        let bytes = timeouts.marks().to_le_bytes();
        assert_eq!(bytes[..3], [Counter::Timeout as u8 + 1, Counter::EarlyRetransmit as u8 + 1, 0]);
    }
}
