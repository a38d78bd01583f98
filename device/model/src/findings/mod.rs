//! Findings: the one type in which pumice reports problems, and the printers of its formats.
//!
//! Checks, sweeps, the doctor, traces and the log each make a [`Finding`] from their data. There is one
//! printer for each format, and all of them use it: [`text`], [`json`], [`junit`], and [`sarif`], which has
//! Markdown, too. A command passes its own parts to the printer: the columns of a table, the fields of an
//! object, the names of test cases.

pub mod checks;
mod fields;
mod finding;
pub mod json;
pub mod junit;
pub mod sarif;
#[cfg(test)]
mod tests;
pub mod text;

pub use fields::{Fields, Value};
pub use finding::{
    CallSite, Finding, FindingFamily, FindingKind, Frame, Level, finding_of_cause, kind_of_cause,
};
pub use json::{ReportFormat, print};
pub use sarif::{FindingsReport, ReportHeader};
