//! Calls that fail, or take their time, on purpose.
//!
//! A call is named by its name and its ordinal: the n-th call of that name in this process. **Invariant**: no
//! rule asks for a time or a thread. Threads that make calls of one name race for its ordinals; ordinals on
//! one object do not have that race.

mod decide;
mod errno;
mod fate;
mod rule;

pub use decide::{CallFaults, CallFired, CallRules};
pub use errno::{errno_from, errno_name, errno_text};
pub(super) use fate::TIME;
pub use fate::{CallFate, CallKey};
pub use pumice_calls::{CALLS, CallInfo, Errnos};
pub(super) use rule::matches as matches_tag;
pub use rule::{CallFault, CallRule, CallSelector};
