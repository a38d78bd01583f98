//! The one value by which pumice says that something is wrong, and how it is printed.
//!
//! Checks, sweeps, the doctor, traces and the log each make a [`Finding`] of what they know. There is one
//! printer for each format, and all of them print by it: [`text`], [`json`], [`sarif`], [`junit`] and
//! [`markdown`]. What a command says in a form of its own, it tells the printer: the columns of a table, the
//! fields of an object, the names of test cases.

mod call_site;
mod cause;
pub mod checks;
mod fields;
mod finding;
mod format;
pub mod json;
pub mod junit;
mod kind;
pub mod markdown;
mod print;
mod report;
pub mod sarif;
#[cfg(test)]
mod tests;
pub mod text;

pub use call_site::{CallSite, Frame};
pub use cause::{finding_of_cause, kind_of_cause};
pub use fields::{Fields, Value};
pub use finding::Finding;
pub use format::ReportFormat;
pub use kind::{Family, FindingKind, Level};
pub use print::print;
pub use report::{About, Report};
