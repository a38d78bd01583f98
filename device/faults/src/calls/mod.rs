//! Calls that fail or take longer because a fault plan says so.
//!
//! A call is named by its name and its ordinal: the n-th call of that name in this process. **Invariant**: no
//! rule depends on a time or a thread. Threads that make calls of one name race for its ordinals; ordinals on
//! one object do not have that race.

mod decide;
mod rule;

pub use decide::{CallFaults, CallRules};
pub use pumice_calls::{CALLS, CallInfo, Errnos};
pub use pumice_model::fates::fired::{CallFired, errno_from, errno_name, errno_text};
pub use pumice_model::fates::identity::{CallFate, CallKey};
pub(super) use pumice_model::fates::trigger::matches as matches_tag;
pub use rule::{CallFault, CallRule, CallSelector};
