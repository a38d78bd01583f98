//! The text forms of plans: TOML files, single lines, and reports, which are plans as well.
//!
//! All forms have the same fields. A file has a `[[rule]]` table for each rule; a line has the kind of fault
//! first and then `field=value`; a report has a JSON object for each thing that a rule applied to.

mod compare;
mod completion;
mod fields;
mod kinds;
mod report;
mod rule;
mod units;

pub use compare::{Comparison, Difference, compare};
pub use completion::{CompletionEventLine, CompletionLine};
pub use fields::{NthField, OrdinalField, TextError};
pub use kinds::{
    CALLS_SELECTOR, COMPLETION_EVENTS_SELECTOR, COMPLETIONS_SELECTOR, FaultKind, KINDS, SELECTOR, WHEN,
};
pub use report::{ReportLine, Summary, summaries};
pub(super) use rule::rule_of_line;

/// The longest text of a plan, in bytes. A report of a long run is a plan, too.
pub const MAX_PLAN_BYTES: u64 = 256 << 20;

#[cfg(test)]
mod tests;
