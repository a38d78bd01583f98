//! Reports: findings with their symbols, as text, as JSON and as SARIF.

mod json;
mod sarif;
#[cfg(test)]
mod tests;
mod text;

pub use pumice_events::ReportFormat as Format;

use super::finding::Finding;

pub use json::json;
pub use sarif::sarif;
pub use text::{entry as text_entry, summary as text_summary};

/// A frame of a call stack, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// Name of the function.
    pub function: Option<String>,
    /// Its source file.
    pub file: Option<String>,
    /// The line of the call.
    pub line: Option<u32>,
    /// The program or library that has it.
    pub object: String,
    /// Where in that object.
    pub offset: u64,
}

/// A place with its symbols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelatedPlace {
    /// What happened there.
    pub what: String,
    /// Its frames, the innermost first.
    pub frames: Vec<Frame>,
}

/// A finding with its symbols.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What was found.
    pub finding: Finding,
    /// Frames of its place, the innermost first.
    pub frames: Vec<Frame>,
    /// Other places.
    pub related: Vec<RelatedPlace>,
}

impl Entry {
    /// A finding with the symbols that `symbols` finds for return addresses.
    pub fn new(finding: Finding, mut symbols: impl FnMut(&[u64]) -> Vec<Frame>) -> Entry {
        let frames = symbols(finding.place.addresses());
        let places = finding.related.iter();
        let related = places
            .map(|one| RelatedPlace { what: one.what.clone(), frames: symbols(one.place.addresses()) })
            .collect();
        Entry { finding, frames, related }
    }
}

/// What a report is about.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The program.
    pub program: String,
    /// Its process number.
    pub process: u32,
    /// The process has ended: there will be no more.
    pub is_whole: bool,
    /// Findings that suppressions have kept out.
    pub suppressed: u64,
    /// Findings for which there was no room.
    pub left_out: u64,
}
