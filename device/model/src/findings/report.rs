//! Findings that are printed together.

use super::finding::Finding;
use super::kind::FindingKind;

/// The subject of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportHeader {
    /// The checked program; empty if there was none.
    pub program: String,
    /// The process number of the program; 0 if it has none.
    pub process: u32,
    /// True if the process has ended, so that there will be no more findings.
    pub is_whole: bool,
    /// The name of the signal by which the process has crashed; empty if it has not.
    pub ended_by: &'static str,
    /// Number of findings that were suppressed.
    pub suppressed: u64,
    /// Number of findings for which there was no room.
    pub left_out: u64,
}

/// Findings that are printed together.
#[derive(Debug, Clone, Copy)]
pub struct FindingsReport<'a> {
    /// The command that made the findings, as in "check".
    pub command: &'static str,
    /// The subject of the report.
    pub about: &'a ReportHeader,
    /// All kinds that the command may find.
    pub kinds: &'a [&'static FindingKind],
    /// The findings, the oldest first.
    pub findings: &'a [Finding],
}

impl FindingsReport<'_> {
    /// Returns the number of findings in words: "nothing was found", "1 finding" or "2 findings"; and other
    /// problems of the run.
    pub(super) fn counted(&self) -> String {
        let found = match self.findings.len() {
            0 => "nothing was found".to_owned(),
            1 => "1 finding".to_owned(),
            count => format!("{count} findings"),
        };
        match self.about.ended_by {
            "" => found,
            signal => format!("{found}, and {signal} ended the program"),
        }
    }
}
