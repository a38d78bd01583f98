//! The formats of reports about findings.

use std::path::Path;

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReportFormat {
    /// Text for people.
    #[default]
    Text,
    /// A JSON object with all findings.
    Json,
    /// SARIF 2.1.0, which code hosts and editors show.
    Sarif,
    /// JUnit XML, which CI servers show.
    Junit,
    /// Markdown, for comments and summaries of CI runs.
    Markdown,
    /// Annotations, which GitHub Actions takes from what a step prints.
    Github,
}

impl ReportFormat {
    /// The names of all formats, as a sentence lists them.
    pub const NAMES: &str = "text, json, sarif, junit, markdown and github";

    /// Returns the format of a name; `None`: no format has this name.
    pub fn named(name: &str) -> Option<ReportFormat> {
        match name {
            "text" => Some(ReportFormat::Text),
            "json" => Some(ReportFormat::Json),
            "sarif" => Some(ReportFormat::Sarif),
            "junit" => Some(ReportFormat::Junit),
            "markdown" => Some(ReportFormat::Markdown),
            "github" => Some(ReportFormat::Github),
            _ => None,
        }
    }

    /// Returns the format of a file by its extension: a format's name, or `xml` for JUnit and `md` for
    /// Markdown; text for any other extension.
    pub fn of_file(file: &Path) -> ReportFormat {
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("xml") => ReportFormat::Junit,
            Some("md") => ReportFormat::Markdown,
            extension => extension.and_then(ReportFormat::named).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_has_a_name_and_files_have_a_format() {
        for name in ReportFormat::NAMES.replace(" and ", ", ").split(", ") {
            assert!(ReportFormat::named(name).is_some(), "{name}");
        }
        assert_eq!(ReportFormat::named("yaml"), None);
        for (file, format) in [
            ("a/report.sarif", ReportFormat::Sarif),
            ("report.%p.json", ReportFormat::Json),
            ("report.xml", ReportFormat::Junit),
            ("report.md", ReportFormat::Markdown),
            ("report.markdown", ReportFormat::Markdown),
            ("report", ReportFormat::Text),
            ("report.log", ReportFormat::Text),
        ] {
            assert_eq!(ReportFormat::of_file(Path::new(file)), format, "{file}");
        }
    }
}
