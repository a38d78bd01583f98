//! Proofs about the table of state transitions and the check of a mask against it.

use super::{Step, TRANSITIONS, check_mask, effective_mask, transition};
use crate::proofs::{Values, check, check_all};
use crate::qp::attributes::{AttributeMask, QpAttributes};
use crate::qp::transition::ModifyError;
use crate::types::{QpState, QpType};

const TYPES: [QpType; 8] = [
    QpType::Gsi,
    QpType::Rc,
    QpType::Uc,
    QpType::Ud,
    QpType::XrcDuplex,
    QpType::RawPacket,
    QpType::XrcInitiator,
    QpType::XrcTarget,
];

fn step(from: &mut Values) -> Step {
    Step { qp_type: from.one_of(&TYPES), from: from.one_of(&QpState::ALL), to: from.one_of(&QpState::ALL) }
}

/// A type has at most one row for a pair of states, and the search finds it.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(64))]
#[cfg_attr(not(kani), test)]
fn a_transition_has_one_row() {
    check_all(|from| {
        let Step { qp_type, from: before, to } = step(from);
        let is_of =
            |row: &&super::Transition| row.from == before && row.to == to && row.types.contains(&qp_type);
        let count = TRANSITIONS.iter().filter(is_of).count();
        let found = transition(qp_type, before, to);
        assert!(count <= 1 && found.is_some() == (count == 1));
        assert!(found.is_none_or(|row| is_of(&row)));
    });
}

/// No row both requires and allows an attribute, and none names the state itself or an attribute that does
/// not exist.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(64))]
#[cfg_attr(not(kani), test)]
fn a_row_requires_or_allows_an_attribute() {
    check_all(|from| {
        let Step { qp_type, from: before, to } = step(from);
        let Some(row) = transition(qp_type, before, to) else { return };
        assert!(!row.required.intersects(row.optional));
        let both = row.required | row.optional;
        assert!(!both.intersects(AttributeMask::STATE | AttributeMask::CAP));
        // A row does not require an attribute that the type does not have.
        assert_eq!(effective_mask(qp_type, both), both);
    });
}

/// Every queue pair that is not in RESET can be reset and can fail, with the state as the only attribute; ERR
/// leads to no other state.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(64))]
#[cfg_attr(not(kani), test)]
fn every_state_leads_to_reset_and_to_error() {
    check_all(|from| {
        let Step { qp_type, from: before, to } = step(from);
        let row = transition(qp_type, before, to);
        let is_end = matches!(to, QpState::Reset | QpState::Err);
        if is_end && before != QpState::Reset {
            assert!(row.is_some_and(|row| (row.required | row.optional).is_empty()));
        }
        if before == QpState::Err {
            assert_eq!(row.is_some(), is_end);
        }
        // Only the first INIT leaves RESET, and no call leads to SQE.
        if before == QpState::Reset {
            assert_eq!(row.is_some(), matches!(to, QpState::Reset | QpState::Init));
        }
        assert!(row.is_none() || to != QpState::Sqe);
    });
}

/// The effective mask is a part of the given mask, and its own effective mask.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn the_attributes_that_count_are_some_of_those_given() {
    check(|from| {
        let (qp_type, mask) = (from.one_of(&TYPES), AttributeMask::from_bits_retain(from.u32()));
        let counts = effective_mask(qp_type, mask);
        assert!(mask.contains(counts));
        assert_eq!(effective_mask(qp_type, counts), counts);
        assert!(qp_type.is_xrc() || counts == mask);
    });
}

/// A mask passes if, and only if, it has all that the row requires and only attributes of the row.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(64))]
#[cfg_attr(not(kani), test)]
fn a_mask_passes_if_it_fits_its_row() {
    check(|from| {
        let step = step(from);
        let attributes = QpAttributes { cur_qp_state: step.from as u32, ..QpAttributes::default() };
        // The mask is any mask, or the row's own with one bit inverted.
        let mask = match transition(step.qp_type, step.from, step.to) {
            Some(row) if from.bool() => {
                let chosen = AttributeMask::from_bits_retain(from.u32());
                (row.required | row.optional & chosen | AttributeMask::STATE)
                    ^ AttributeMask::from_bits_retain(from.up_to(1 << 25) as u32 & 1 << from.up_to(25))
            }
            _ => AttributeMask::from_bits_truncate(from.u32()),
        };
        let outcome = check_mask(step, &attributes, mask);
        let claims = mask.contains(AttributeMask::CUR_STATE);
        let claimable = matches!(step.from, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe);
        let expected = match transition(step.qp_type, step.from, step.to) {
            _ if claims && !claimable => false,
            None => false,
            Some(row) => {
                let most = row.required | row.optional | AttributeMask::STATE;
                mask.contains(row.required) && most.contains(mask)
            }
        };
        assert_eq!(outcome.is_ok(), expected);
        match outcome {
            Err(ModifyError::Missing { attributes, .. }) => assert!(!mask.intersects(attributes)),
            Err(ModifyError::NotAllowed { attributes, .. }) => assert!(mask.contains(attributes)),
            _ => {}
        }
    });
}
