//! Findings for people.

use std::fmt::Write as _;
use std::io;

use super::call_site::CallSite;
use super::finding::Finding;
use super::report::Report;

/// A finding as a paragraph: a line that says what it is, the sites, why it matters, what to do. The last
/// line has no end.
pub fn paragraph(finding: &Finding) -> String {
    let Finding { kind, sentence, site, related, remedy, .. } = finding;
    let mut out = format!("{}: {sentence}\n", kind.name);
    stack(&mut out, site);
    for other in related {
        let _ = writeln!(out, "  {}:", other.what);
        stack(&mut out, other);
    }
    let _ = write!(out, "  what: {}", kind.what);
    if !kind.why.is_empty() {
        let _ = write!(out, "\n  why it matters: {}", kind.why);
    }
    if let Some(remedy) = remedy {
        let _ = write!(out, "\n  remedy: {remedy}");
    }
    out
}

/// The end of a report: where and how often each finding was made. The last line has no end.
pub fn summary(report: &Report<'_>) -> String {
    let mut out = format!("{}: {}", report.command, report.counted());
    for finding in report.findings {
        let at = finding.innermost().map(|frame| format!(" at {frame}")).unwrap_or_default();
        let times = times(finding.count);
        let _ = write!(out, "\n  {}: {}{at}, {times}", finding.kind.name, finding.subject);
    }
    if report.about.suppressed > 0 {
        let _ = write!(out, "\n  {} more are suppressed", report.about.suppressed);
    }
    if report.about.left_out > 0 {
        let _ = write!(out, "\n  {} more had no room", report.about.left_out);
    }
    out
}

/// All findings as paragraphs, and the summary.
pub(super) fn document(report: &Report<'_>) -> String {
    let paragraphs = report.findings.iter().map(|finding| paragraph(finding) + "\n");
    paragraphs.chain([summary(report) + "\n"]).collect()
}

/// A finding in one sentence, about its subject: for the log.
pub fn sentence(finding: &Finding) -> String {
    let Finding { subject, sentence, .. } = finding;
    if subject.is_empty() { sentence.clone() } else { format!("{subject} {sentence}") }
}

/// As in "once" and "3 times".
pub(super) fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

fn stack(out: &mut String, site: &CallSite) {
    if site.is_unknown() {
        out.push_str("    (the call stack is not known)\n");
    }
    for frame in &site.frames {
        let _ = writeln!(out, "    {frame}");
    }
}

/// What a cell says of a finding, which is the n-th of the table, from 0.
type Cell<'a> = Box<dyn Fn(usize, &Finding) -> String + 'a>;

/// A column of a table.
pub struct Column<'a> {
    title: &'static str,
    width: usize,
    is_right: bool,
    cell: Cell<'a>,
}

impl<'a> Column<'a> {
    /// A column with this title, which has at least so many characters; 0 for the last one. `cell`: what it
    /// says of a finding, which is the n-th of the table, from 0.
    pub fn new(
        title: &'static str,
        width: usize,
        cell: impl Fn(usize, &Finding) -> String + 'a,
    ) -> Column<'a> {
        Column { title, width, is_right: false, cell: Box::new(cell) }
    }

    /// The same, whose cells end at the right.
    pub fn at_right(mut self) -> Column<'a> {
        self.is_right = true;
        self
    }
}

/// A table: a row for each finding.
pub struct Table<'a> {
    /// Its columns, from the left.
    pub columns: &'a [Column<'a>],
    /// Spaces between columns.
    pub gap: usize,
    /// The first row has the titles.
    pub has_titles: bool,
    /// An empty line is before each row.
    pub is_spaced: bool,
    /// Remedies are below, in the last column.
    pub has_remedies: bool,
}

impl Table<'_> {
    /// Writes these findings as rows; nothing if there are none.
    ///
    /// # Errors
    /// What `out` says.
    pub fn write(&self, findings: &[Finding], out: &mut dyn io::Write) -> io::Result<()> {
        if self.has_titles && !findings.is_empty() {
            writeln!(out, "{}", self.row(self.columns.iter().map(|column| column.title.to_owned())))?;
        }
        let last = self.columns.split_last().map(|(_, before)| before).unwrap_or_default();
        let indent: usize = last.iter().map(|column| column.width + self.gap).sum();
        for (number, finding) in findings.iter().enumerate() {
            let before = if self.is_spaced { "\n" } else { "" };
            let cells = self.columns.iter().map(|column| (column.cell)(number, finding));
            writeln!(out, "{before}{}", self.row(cells))?;
            if let Some(remedy) = finding.remedy.as_ref().filter(|_| self.has_remedies) {
                writeln!(out, "{:indent$}→ {remedy}", "")?;
            }
        }
        Ok(())
    }

    fn row(&self, cells: impl Iterator<Item = String>) -> String {
        let padded = self.columns.iter().zip(cells).map(|(column, cell)| {
            let width = column.width;
            if column.is_right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        padded.collect::<Vec<_>>().join(&" ".repeat(self.gap))
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::About;
    use super::super::tests::{TOO_SMALL, a_report, all_found};
    use super::*;

    #[test]
    fn a_paragraph_says_what_where_why_and_the_remedy() {
        let text = paragraph(&all_found()[0]);
        let wanted = format!(
            "cq-too-small: completion queue 0 has room for 1 completion\n    post (server+0x40)\n    main \
             (/src/a b.c:7)\n  it was made here:\n    post (server+0x40)\n    main (/src/a b.c:7)\n  what: \
             {}\n  why it matters: {}\n  remedy: {}",
            TOO_SMALL.what, TOO_SMALL.why, TOO_SMALL.remedy
        );
        assert_eq!(text, wanted);
        let text = paragraph(&all_found()[1]);
        assert!(text.contains("(the call stack is not known)\n  what: ") && !text.contains("why"), "{text}");
    }

    #[test]
    fn a_document_ends_with_a_summary() {
        let found = all_found();
        let report = a_report(&found);
        let end = "check: 2 findings\n  cq-too-small: completion queue 0 at post (server+0x40), 3 times\n  \
                   odd: a | b, once\n  2 more are suppressed\n";
        let text = document(&report);
        assert!(text.starts_with("cq-too-small: ") && text.ends_with(end), "{text}");
        let about = About { left_out: 1, ..About::default() };
        let nothing = Report { about: &about, findings: &[], ..report };
        assert_eq!(summary(&nothing), "check: nothing was found\n  1 more had no room");
    }

    #[test]
    fn a_sentence_is_about_its_subject() {
        let finding = Finding::new(&TOO_SMALL, "QP 0x12", "goes to the error state");
        assert_eq!(sentence(&finding), "QP 0x12 goes to the error state");
        assert_eq!(sentence(&Finding { subject: String::new(), ..finding }), "goes to the error state");
    }

    #[test]
    fn a_table_has_columns_and_remedies_below_the_last() {
        let columns = [
            Column::new("no", 4, |number, _| number.to_string()).at_right(),
            Column::new("kind", 14, |_, finding| finding.kind.name.to_owned()),
            Column::new("found", 0, |_, finding| finding.subject.clone()),
        ];
        let table =
            Table { columns: &columns, gap: 2, has_titles: true, is_spaced: false, has_remedies: true };
        let printed = |table: &Table<'_>, findings: &[Finding]| {
            let mut out = Vec::new();
            table.write(findings, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let wanted = format!(
            "  no  kind            found\n   0  cq-too-small    completion queue 0\n{:22}→ {}\n\
             \x20  1  odd             a | b\n",
            "", TOO_SMALL.remedy
        );
        assert_eq!(printed(&table, &all_found()), wanted);
        assert_eq!(printed(&table, &[]), "");
        let spaced = Table { has_titles: false, is_spaced: true, has_remedies: false, ..table };
        let wanted = "\n   0  cq-too-small    completion queue 0\n\n   1  odd             a | b\n";
        assert_eq!(printed(&spaced, &all_found()), wanted);
    }
}
