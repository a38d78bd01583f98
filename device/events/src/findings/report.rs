//! Findings that are printed together.

use super::finding::Finding;
use super::kind::FindingKind;

/// What a report is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// The program that was looked at; empty if it was none.
    pub program: String,
    /// Its process number; 0 if it has none.
    pub process: u32,
    /// The process has ended: there will be no more.
    pub is_whole: bool,
    /// Findings that suppressions have kept out.
    pub suppressed: u64,
    /// Findings for which there was no room.
    pub left_out: u64,
}

/// Findings that are printed together.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The command that found them, as in "check".
    pub command: &'static str,
    /// What it is about.
    pub about: &'a About,
    /// All kinds that the command may find.
    pub kinds: &'a [&'static FindingKind],
    /// What was found, the oldest first.
    pub findings: &'a [Finding],
}

impl Report<'_> {
    /// How many findings there are, in words: "nothing was found", "1 finding" or "2 findings".
    pub(super) fn counted(&self) -> String {
        match self.findings.len() {
            0 => "nothing was found".to_owned(),
            1 => "1 finding".to_owned(),
            count => format!("{count} findings"),
        }
    }
}
