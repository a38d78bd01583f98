//! What goes wrong on purpose: one vocabulary for real ports and for the simulated network.
//!
//! A [`FaultPlan`] is a value: rules, each of which says when and what. At work it decides a [`Fate`] for
//! each packet. **Invariant**: each rule of chance draws from a generator of its own, and draws alike for
//! every packet, so that a rule more, or less, changes no other rule's choices.

mod fate;
mod plan;

pub use fate::Fate;
pub(crate) use fate::{Faults, damage};
pub use plan::{Fault, FaultPlan, FaultRule, Trigger};
