//! Findings: the one type in which pumice reports problems, and the printers of its formats.
//!
//! Checks, sweeps, the doctor, traces and the log each make a [`Finding`] from their data. There is one
//! printer for each format, and all of them use it: [`text`], [`json`], [`sarif`], [`junit`] and
//! [`markdown`]. A command passes its own parts to the printer: the columns of a table, the fields of an
//! object, the names of test cases.

mod call_site;
mod cause;
pub mod checks;
mod fields;
mod finding;
mod format;
mod github;
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
pub use kind::{FindingFamily, FindingKind, Level};
pub use print::print;
pub use report::{FindingsReport, ReportHeader};
