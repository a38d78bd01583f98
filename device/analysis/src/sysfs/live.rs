//! The facts about a device that the tree shows, and the recipes of files whose contents change.
//!
//! Recipes: files of the tree whose contents change, and the counters of the device that their numbers are
//! made of. The preload reads these recipes, and what the processes have counted, whenever a program opens
//! such a file.

use std::path::Path;

use pumice_model::addresses::gid_table::GidEntry;
use pumice_model::profile::{PortProfile, Profile};
use pumice_transport::host::Counter;

/// A device as the tree shows it. The values are the same that the verbs which query it return.
#[derive(Debug, Clone)]
pub struct SysfsDevice<'a> {
    /// Index among the devices.
    pub index: usize,
    /// Name, such as "pumice0".
    pub name: &'a str,
    /// GUID of the node and of the system image, in network byte order.
    pub guid: [u8; 8],
    /// Other facts that the device reports about itself.
    pub profile: &'a Profile,
    /// GID tables of its ports.
    pub gids: &'a [GidEntry],
    /// File in which the processes count, for files whose contents change (`share::counted_file_name`).
    pub counted: Option<&'a Path>,
    /// Second port, if it has one: the profile and `counted` are of the first.
    pub second_port: Option<SysfsPort<'a>>,
    /// Network interface that is shown beside it, and its index, if that is not the one of its addresses.
    pub netdev: Option<(&'a str, u32)>,
    /// Number of the NUMA node that it is near; -1 for none in particular.
    pub numa_node: i32,
    /// Address on PCI, such as "0000:18:00.0".
    pub pci_address: Option<&'a str>,
    /// Processors that it is near, as Linux lists them ("0-3,8"), if that is known.
    pub processors: Option<&'a str>,
}

/// The second port of a device.
#[derive(Debug, Clone)]
pub struct SysfsPort<'a> {
    /// Facts that the port reports about itself.
    pub profile: &'a PortProfile,
    /// File in which the processes count, as [`SysfsDevice::counted`].
    pub counted: Option<&'a Path>,
}

impl SysfsDevice<'_> {
    /// Returns the number of its ports.
    pub(super) fn port_count(&self) -> u8 {
        if self.second_port.is_some() { 2 } else { 1 }
    }

    /// Returns the GID table of a port.
    pub(super) fn gids_of(&self, port_num: u8) -> impl Iterator<Item = &GidEntry> {
        self.gids.iter().filter(move |entry| entry.port_num == port_num)
    }

    /// Returns the network interface of one of its addresses, and its index.
    pub(super) fn interface_of<'s>(&'s self, entry: &'s GidEntry) -> (&'s str, u32) {
        let own = (entry.interface.as_str(), entry.interface_index);
        // The interface that is given for the device is that of its first port.
        if entry.port_num == 1 { self.netdev.unwrap_or(own) } else { own }
    }
}

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
