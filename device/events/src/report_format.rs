//! The formats of reports about findings.

use std::path::Path;

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReportFormat {
    /// For people.
    #[default]
    Text,
    /// One object with all findings.
    Json,
    /// SARIF 2.1.0, which code hosts and editors show.
    Sarif,
}

impl ReportFormat {
    /// The format of a name; `None`: there is none of this name.
    pub fn named(name: &str) -> Option<ReportFormat> {
        match name {
            "text" => Some(ReportFormat::Text),
            "json" => Some(ReportFormat::Json),
            "sarif" => Some(ReportFormat::Sarif),
            _ => None,
        }
    }

    /// The format of a file by its extension; text if that says nothing.
    pub fn of_file(file: &Path) -> ReportFormat {
        let extension = file.extension().and_then(|extension| extension.to_str());
        extension.and_then(ReportFormat::named).unwrap_or_default()
    }
}
