//! Queue pairs.

mod attributes;
pub mod transition;

pub use attributes::{AttributeMask, ModifyLimits, QpAttributes};
pub use transition::{ErrorClass, ModifyError};
