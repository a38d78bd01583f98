//! Printing of a report as a document in one of the formats.

use super::format::ReportFormat;
use super::report::FindingsReport;
use super::{github, json, junit, markdown, sarif, text};

/// Returns the whole document; it ends with a line break.
pub fn print(report: &FindingsReport<'_>, format: ReportFormat) -> String {
    match format {
        ReportFormat::Text => text::document(report),
        ReportFormat::Json => json::document(report),
        ReportFormat::Sarif => sarif::document(report),
        ReportFormat::Junit => junit::document(report),
        ReportFormat::Markdown => markdown::document(report),
        ReportFormat::Github => github::document(report),
    }
}
