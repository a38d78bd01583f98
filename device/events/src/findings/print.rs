//! A report as a document in one of the formats.

use super::format::ReportFormat;
use super::report::Report;
use super::{json, junit, markdown, sarif, text};

/// The whole document; it ends with the end of a line.
pub fn print(report: &Report<'_>, format: ReportFormat) -> String {
    match format {
        ReportFormat::Text => text::document(report),
        ReportFormat::Json => json::document(report),
        ReportFormat::Sarif => sarif::document(report),
        ReportFormat::Junit => junit::document(report),
        ReportFormat::Markdown => markdown::document(report),
    }
}
