//! State transitions of a queue pair: which exist, which attributes each needs and allows, and which values
//! are legal. One table is the source of the check, its error text and its test.
//!
//! A check changes nothing: an attribute is applied only after all of them have passed.

mod error;
#[cfg(any(test, kani))]
mod proofs;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod value_tests;

pub use error::{ErrorClass, ModifyError, Step};
pub use table::{TRANSITIONS, Transition, transition};

use super::attributes::{AttributeMask, ModifyLimits, QpAttributes};
use crate::types::{Access, AddressVector, Mtu, QpState, QpType};

/// Mask of the rights that exist, without the optional ones.
const KNOWN_RIGHTS: u32 = Access::all().bits() & !Access::OPTIONAL_RANGE;
/// Largest code of the ACK timeout and of the RNR timer: 5 bits.
const MAX_TIMER_CODE: u32 = 31;
/// Largest retry count: 3 bits.
const MAX_RETRIES: u32 = 7;
/// Largest `IBV_MIG_*` (ARMED).
const MAX_MIGRATION_STATE: u32 = 2;
/// Bit that makes a Q_Key a privileged one.
//= linux:uverbs_cmd.c#modify_qp
//| A Q_Key with its highest bit set is for privileged programs only.
const PRIVILEGED_QKEY: u32 = 1 << 31;

/// Returns the attributes that count for this type. Attributes of the half that an XRC queue pair lacks are
/// dropped without an error, as in the kernel, so that masks made for RC work for both halves.
pub const fn effective_mask(qp_type: QpType, mask: AttributeMask) -> AttributeMask {
    //= linux:uverbs_cmd.c#modify_qp_mask
    //| Attributes that an XRC queue pair lacks are left out without an error.
    let meaningless = if !qp_type.is_xrc() {
        AttributeMask::empty()
    } else if !qp_type.is_responder() {
        AttributeMask::MAX_DEST_RD_ATOMIC.union(AttributeMask::MIN_RNR_TIMER)
    } else if qp_type.is_target() {
        AttributeMask::MAX_QP_RD_ATOMIC.union(AttributeMask::RETRY_CNT).union(AttributeMask::RNR_RETRY)
    } else {
        AttributeMask::empty()
    };
    mask.difference(meaningless)
}

/// Checks a whole `modify_qp` call and returns the state it leads to. Only attributes in [`effective_mask`]
/// are checked, and only those may be applied. Without `STATE` the queue pair stays in its state and the row
/// from the state to itself decides.
///
/// The caller, who has the tables, makes two further checks: that the GID at `sgid_index` is not empty and of
/// the destination's family, and, on a device with several ports, that the path's port is the queue pair's.
///
/// # Errors
/// Fails with the first error in this order: the mask, `cur_qp_state`, the transition, missing attributes,
/// attributes in excess, then values.
pub fn check(
    qp_type: QpType,
    current: QpState,
    attributes: &QpAttributes,
    mask: AttributeMask,
    limits: &ModifyLimits,
) -> Result<QpState, ModifyError> {
    let mask = effective_mask(qp_type, mask);
    let named = if mask.contains(AttributeMask::STATE) {
        QpState::from_verbs(attributes.qp_state)
    } else {
        Some(current)
    };
    // An unsupported attribute is the first error that is reported, so that programs find out what they may
    // use.
    let known = match qp_type.is_raw() {
        true => AttributeMask::all(),
        // Only adapters limit the rate of raw packets, and rdma_rxe knows no such attribute.
        false => AttributeMask::all().difference(AttributeMask::RATE_LIMIT),
    };
    let unsupported = mask.difference(known);
    if !unsupported.is_empty() {
        let step = Step { qp_type, from: current, to: named.unwrap_or(current) };
        return Err(ModifyError::NotSupported { step, attributes: unsupported });
    }
    let to = named.ok_or(ModifyError::UnknownState { value: attributes.qp_state })?;
    let step = Step { qp_type, from: current, to };
    check_mask(step, attributes, mask)?;
    Values { step, attributes, limits }.check(mask)?;
    Ok(to)
}

fn check_mask(step: Step, attributes: &QpAttributes, mask: AttributeMask) -> Result<(), ModifyError> {
    if mask.contains(AttributeMask::CUR_STATE) {
        let claimed = attributes.cur_qp_state;
        let claimable = matches!(step.from, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe);
        if !claimable || QpState::from_verbs(claimed) != Some(step.from) {
            return Err(ModifyError::WrongCurrentState { step, claimed });
        }
    }
    let Some(row) = transition(step.qp_type, step.from, step.to) else {
        return Err(ModifyError::NoTransition { step });
    };
    //= linux:verbs.c#ib_modify_qp_is_ok
    //| A transition is refused if a required attribute is missing.
    let missing = row.required.difference(mask);
    if !missing.is_empty() {
        return Err(ModifyError::Missing { step, attributes: missing });
    }
    //= linux:verbs.c#ib_modify_qp_is_ok
    //| A transition is refused if an attribute is neither required nor optional.
    let excess = mask.difference(row.required.union(row.optional).union(AttributeMask::STATE));
    if !excess.is_empty() {
        return Err(ModifyError::NotAllowed { step, attributes: excess });
    }
    Ok(())
}

/// Checks of the values that a legal mask selects.
struct Values<'a> {
    step: Step,
    attributes: &'a QpAttributes,
    limits: &'a ModifyLimits,
}

impl Values<'_> {
    fn check(&self, mask: AttributeMask) -> Result<(), ModifyError> {
        let attributes = self.attributes;
        let limits = self.limits;
        let given = |bit| mask.contains(bit);
        if given(AttributeMask::PORT) {
            self.port("port_num", attributes.port_num)?;
        }
        if given(AttributeMask::PKEY_INDEX) {
            self.entry("pkey_index", attributes.pkey_index.into(), limits.pkey_table_len.into())?;
        }
        if given(AttributeMask::QKEY) {
            self.qkey()?;
        }
        if given(AttributeMask::ACCESS_FLAGS) {
            // Linux 6.12 refuses rights that do not exist (tests/golden/6.12/probes.txt).
            self.range("qp_access_flags", attributes.access & !Access::OPTIONAL_RANGE, 0, KNOWN_RIGHTS)?;
        }
        if given(AttributeMask::PATH_MTU) {
            self.path_mtu()?;
        }
        if given(AttributeMask::AV) {
            self.path("ah_attr", "ah_attr.port_num", "ah_attr.grh.sgid_index", &attributes.address_vector)?;
            if given(AttributeMask::PORT) {
                self.same_port("ah_attr", attributes.address_vector.port_num, attributes.port_num)?;
            }
        }
        if given(AttributeMask::ALT_PATH) {
            self.alternate_path()?;
        }
        for (bit, name, value, highest) in [
            (AttributeMask::TIMEOUT, "timeout", attributes.timeout, MAX_TIMER_CODE),
            (AttributeMask::RETRY_CNT, "retry_cnt", attributes.retry_cnt, MAX_RETRIES),
            (AttributeMask::RNR_RETRY, "rnr_retry", attributes.rnr_retry, MAX_RETRIES),
            (AttributeMask::MIN_RNR_TIMER, "min_rnr_timer", attributes.min_rnr_timer, MAX_TIMER_CODE),
            (
                AttributeMask::MAX_QP_RD_ATOMIC,
                "max_rd_atomic",
                attributes.max_rd_atomic,
                limits.max_rd_atomic_initiator.into(),
            ),
            (
                AttributeMask::MAX_DEST_RD_ATOMIC,
                "max_dest_rd_atomic",
                attributes.max_dest_rd_atomic,
                limits.max_rd_atomic_target.into(),
            ),
        ] {
            if given(bit) {
                self.range(name, value.into(), 0, highest)?;
            }
        }
        if given(AttributeMask::PATH_MIG_STATE) {
            self.range("path_mig_state", attributes.path_mig_state, 0, MAX_MIGRATION_STATE)?;
        }
        Ok(())
    }

    fn qkey(&self) -> Result<(), ModifyError> {
        let qkey = self.attributes.qkey;
        // QP1's own key is a privileged one, and only the device makes a QP1.
        let privileged = self.limits.privileged_qkey || !self.step.qp_type.is_made_by_programs();
        if qkey & PRIVILEGED_QKEY != 0 && !privileged {
            return Err(ModifyError::PrivilegedQkey { step: self.step, qkey });
        }
        Ok(())
    }

    fn path_mtu(&self) -> Result<(), ModifyError> {
        let step = self.step;
        let active_mtu = self.limits.active_mtu;
        let (lowest, highest) = (Mtu::Mtu256 as u32, Mtu::Mtu4096 as u32);
        self.range("path_mtu", self.attributes.path_mtu, lowest, highest)?;
        match Mtu::from_verbs(self.attributes.path_mtu) {
            //= linux:rxe_qp.c#rxe_qp_chk_attr
            //| The path MTU of a connection is at most the active MTU of the port.
            Some(path_mtu) if path_mtu > active_mtu => {
                Err(ModifyError::PathMtuTooLarge { step, path_mtu, active_mtu })
            }
            _ => Ok(()),
        }
    }

    fn alternate_path(&self) -> Result<(), ModifyError> {
        let attributes = self.attributes;
        let vector = &attributes.alt_address_vector;
        self.port("alt_port_num", attributes.alt_port_num)?;
        self.entry("alt_pkey_index", attributes.alt_pkey_index.into(), self.limits.pkey_table_len.into())?;
        self.range("alt_timeout", attributes.alt_timeout.into(), 0, MAX_TIMER_CODE)?;
        self.path("alt_ah_attr", "alt_ah_attr.port_num", "alt_ah_attr.grh.sgid_index", vector)?;
        self.same_port("alt_ah_attr", vector.port_num, attributes.alt_port_num)
    }

    fn path(
        &self,
        attribute: &'static str,
        port_name: &'static str,
        index_name: &'static str,
        vector: &AddressVector,
    ) -> Result<(), ModifyError> {
        let step = self.step;
        //= linux:verbs.c#rdma_check_ah_attr
        //| An address vector of RoCE has a GRH.
        if !vector.is_global {
            return Err(ModifyError::NotGlobal { step, attribute });
        }
        self.port(port_name, vector.port_num)?;
        self.entry(index_name, vector.sgid_index, self.limits.gid_table_len)?;
        if vector.dgid.is_zero() {
            return Err(ModifyError::BadDestination { step, attribute, dgid: vector.dgid });
        }
        Ok(())
    }

    fn same_port(&self, attribute: &'static str, path_port: u8, port_num: u8) -> Result<(), ModifyError> {
        if path_port == port_num {
            return Ok(());
        }
        Err(ModifyError::PortMismatch { step: self.step, attribute, path_port, port_num })
    }

    fn port(&self, attribute: &'static str, value: u8) -> Result<(), ModifyError> {
        self.range(attribute, value.into(), 1, self.limits.port_count.into())
    }

    fn entry(&self, attribute: &'static str, index: u32, table_len: u32) -> Result<(), ModifyError> {
        if index < table_len {
            return Ok(());
        }
        Err(ModifyError::NoSuchEntry { step: self.step, attribute, index, table_len })
    }

    fn range(
        &self,
        attribute: &'static str,
        value: u32,
        lowest: u32,
        highest: u32,
    ) -> Result<(), ModifyError> {
        if (lowest..=highest).contains(&value) {
            return Ok(());
        }
        Err(ModifyError::OutOfRange { step: self.step, attribute, value, lowest, highest })
    }
}
