//! Attributes of a queue pair as `modify_qp` sets them and `query_qp` reports them.

use core::fmt;

use crate::types::{AddressVector, Mtu, QpCapacity};

bitflags::bitflags! {
    /// Mask of the attributes that a `modify_qp` call sets (`IBV_QP_*`). Keep bits that have no name here
    /// (`from_bits_retain`): the check refuses them by their bit.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct AttributeMask: u32 {
        /// `qp_state`: the state to move to.
        const STATE = 1;
        /// `cur_qp_state`: the state the caller believes the QP to be in.
        const CUR_STATE = 2;
        /// `en_sqd_async_notify`: raise SQ_DRAINED.
        const EN_SQD_ASYNC_NOTIFY = 4;
        /// `qp_access_flags`.
        const ACCESS_FLAGS = 8;
        /// `pkey_index`.
        const PKEY_INDEX = 0x10;
        /// `port_num`.
        const PORT = 0x20;
        /// `qkey`.
        const QKEY = 0x40;
        /// `ah_attr`.
        const AV = 0x80;
        /// `path_mtu`.
        const PATH_MTU = 0x100;
        /// `timeout`.
        const TIMEOUT = 0x200;
        /// `retry_cnt`.
        const RETRY_CNT = 0x400;
        /// `rnr_retry`.
        const RNR_RETRY = 0x800;
        /// `rq_psn`.
        const RQ_PSN = 0x1000;
        /// `max_rd_atomic`: as requester.
        const MAX_QP_RD_ATOMIC = 0x2000;
        /// `alt_ah_attr`, `alt_pkey_index`, `alt_port_num`, `alt_timeout`.
        const ALT_PATH = 0x4000;
        /// `min_rnr_timer`.
        const MIN_RNR_TIMER = 0x8000;
        /// `sq_psn`.
        const SQ_PSN = 0x1_0000;
        /// `max_dest_rd_atomic`: as responder.
        const MAX_DEST_RD_ATOMIC = 0x2_0000;
        /// `path_mig_state`.
        const PATH_MIG_STATE = 0x4_0000;
        /// `cap`: resizing of the queues; no transition allows it.
        const CAP = 0x8_0000;
        /// `dest_qp_num`.
        const DEST_QPN = 0x10_0000;
        /// `rate_limit`: for raw packets.
        const RATE_LIMIT = 0x200_0000;
    }
}

/// The bit of each attribute and the verbs name of its field, ascending.
const NAMES: [(AttributeMask, &str); 22] = [
    (AttributeMask::STATE, "qp_state"),
    (AttributeMask::CUR_STATE, "cur_qp_state"),
    (AttributeMask::EN_SQD_ASYNC_NOTIFY, "en_sqd_async_notify"),
    (AttributeMask::ACCESS_FLAGS, "qp_access_flags"),
    (AttributeMask::PKEY_INDEX, "pkey_index"),
    (AttributeMask::PORT, "port_num"),
    (AttributeMask::QKEY, "qkey"),
    (AttributeMask::AV, "ah_attr"),
    (AttributeMask::PATH_MTU, "path_mtu"),
    (AttributeMask::TIMEOUT, "timeout"),
    (AttributeMask::RETRY_CNT, "retry_cnt"),
    (AttributeMask::RNR_RETRY, "rnr_retry"),
    (AttributeMask::RQ_PSN, "rq_psn"),
    (AttributeMask::MAX_QP_RD_ATOMIC, "max_rd_atomic"),
    (AttributeMask::ALT_PATH, "alt_ah_attr"),
    (AttributeMask::MIN_RNR_TIMER, "min_rnr_timer"),
    (AttributeMask::SQ_PSN, "sq_psn"),
    (AttributeMask::MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic"),
    (AttributeMask::PATH_MIG_STATE, "path_mig_state"),
    (AttributeMask::CAP, "cap"),
    (AttributeMask::DEST_QPN, "dest_qp_num"),
    (AttributeMask::RATE_LIMIT, "rate_limit"),
];

/// Prints the field names of verbs, joined by commas; nameless bits in hex.
impl fmt::Display for AttributeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (bit, name) in NAMES {
            if self.contains(bit) {
                write!(f, "{separator}{name}")?;
                separator = ", ";
            }
        }
        let nameless = self.bits() & !AttributeMask::all().bits();
        if nameless != 0 {
            write!(f, "{separator}{nameless:#x}")?;
        }
        Ok(())
    }
}

/// Attributes of a queue pair (`struct ibv_qp_attr`). Enumerations are raw integers, because C
/// programs can put any number there and the refusal names it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QpAttributes {
    /// State to move to (`IBV_QPS_*`, 0…6).
    pub qp_state: u32,
    /// State the caller believes the QP to be in.
    pub cur_qp_state: u32,
    /// Path MTU (`IBV_MTU_*`, 1…5).
    pub path_mtu: u32,
    /// Path migration state (`IBV_MIG_*`, 0…2); 1 and 2 need an alternate path.
    pub path_mig_state: u32,
    /// Q_Key of datagrams. With the top bit set it is for privileged processes.
    pub qkey: u32,
    /// First PSN expected; the low 24 bits count.
    pub rq_psn: u32,
    /// First PSN sent; the low 24 bits count.
    pub sq_psn: u32,
    /// Number of the peer's queue pair; the low 24 bits count.
    pub dest_qp_num: u32,
    /// Operations that the peer may ask for (`IBV_ACCESS_*`); other bits are ignored.
    pub access: u32,
    /// Sizes of the queues: reported, never changed.
    pub cap: QpCapacity,
    /// Primary path.
    pub address_vector: AddressVector,
    /// Alternate path: the primary one after a migration.
    pub alt_address_vector: AddressVector,
    /// Index into the P_Key table.
    pub pkey_index: u16,
    /// P_Key index of the alternate path.
    pub alt_pkey_index: u16,
    /// True to raise SQ_DRAINED when the send queue has drained.
    pub en_sqd_async_notify: bool,
    /// True, when reported, if the send queue is draining.
    pub sq_draining: bool,
    /// READs and atomics outstanding as requester.
    pub max_rd_atomic: u8,
    /// READs and atomics accepted as responder.
    pub max_dest_rd_atomic: u8,
    /// Delay that RNR NAKs ask for: a code of the RNR timer table, 0…31.
    pub min_rnr_timer: u8,
    /// Primary port, counted from 1.
    pub port_num: u8,
    /// ACK timeout: 4.096 µs · 2^timeout, 0…31; 0 waits for ever.
    pub timeout: u8,
    /// Retries after timeouts and sequence NAKs, 0…7.
    pub retry_cnt: u8,
    /// Retries after RNR NAKs, 0…7; 7 is for ever.
    pub rnr_retry: u8,
    /// Port of the alternate path.
    pub alt_port_num: u8,
    /// ACK timeout of the alternate path, 0…31.
    pub alt_timeout: u8,
    /// Rate limit in kbit/s: not supported.
    pub rate_limit: u32,
}

/// Limits that the device and its port set for `modify_qp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModifyLimits {
    /// Active MTU of the port: the largest path MTU.
    pub active_mtu: Mtu,
    /// Largest `max_rd_atomic` (device attribute `max_qp_init_rd_atom`).
    pub max_rd_atomic_initiator: u8,
    /// Largest `max_dest_rd_atomic` (device attribute `max_qp_rd_atom`).
    pub max_rd_atomic_target: u8,
    /// Entries of the P_Key table.
    pub pkey_table_len: u16,
    /// Entries of the GID table, empty ones included.
    pub gid_table_len: u32,
    /// Ports of the device, counted from 1.
    pub port_count: u8,
    /// True if the caller may use Q_Keys with the top bit set.
    pub privileged_qkey: bool,
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn every_attribute_has_a_name_and_nameless_bits_print_as_numbers() {
        let named = NAMES.iter().fold(AttributeMask::empty(), |all, (bit, _)| all | *bit);
        assert_eq!(named, AttributeMask::all());
        assert!(NAMES.windows(2).all(|pair| pair[0].0.bits() < pair[1].0.bits()));
        assert_eq!((AttributeMask::PORT | AttributeMask::STATE).to_string(), "qp_state, port_num");
        assert_eq!(AttributeMask::from_bits_retain(1 << 30 | 8).to_string(), "qp_access_flags, 0x40000000");
    }
}
