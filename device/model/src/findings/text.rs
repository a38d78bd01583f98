//! Findings as text for people.

use std::fmt::Write as _;
use std::io;

use super::finding::{CallSite, Finding, Frame};
use super::sarif::FindingsReport;

/// Maximum number of lines that call sites take in a paragraph. The sentence, the kind, the reason and the
/// remedy are four more.
const SITE_LINES: usize = 4;
/// Maximum number of related sites that are named, a line each.
const MAX_RELATED: usize = 2;
/// Maximum number of frames that are named in a line: the innermost ones.
const FRAMES_OF_LINE: usize = 6;

/// Returns a finding as a paragraph of at most eight lines: what it is, the sites, why it matters, and what
/// to do. If a call stack has more frames than lines, its last line holds several frames. The last line of
/// the paragraph has no line break.
pub fn paragraph(finding: &Finding) -> String {
    let Finding { site, related, .. } = finding;
    let named = related.iter().take(MAX_RELATED);
    let mut sites = String::new();
    stack(&mut sites, site, SITE_LINES - named.len());
    for other in named {
        let at = match other.frames.as_slice() {
            [] => "(the call stack is not known)".to_owned(),
            frames => in_line(frames),
        };
        let _ = writeln!(sites, "  {}: {at}", other.what);
    }
    with_sites(finding, &sites)
}

/// Returns a finding as a paragraph, as [`paragraph`] does, but with all sites and their whole call stacks.
fn whole_paragraph(finding: &Finding) -> String {
    let mut sites = String::new();
    stack(&mut sites, &finding.site, usize::MAX);
    for other in &finding.related {
        let _ = writeln!(sites, "  {}:", other.what);
        stack(&mut sites, other, usize::MAX);
    }
    with_sites(finding, &sites)
}

fn with_sites(finding: &Finding, sites: &str) -> String {
    let Finding { kind, sentence, remedy, .. } = finding;
    let mut out = format!("{}: {sentence}\n{sites}  what: {}", kind.name, kind.what);
    if !kind.why.is_empty() {
        let _ = write!(out, "\n  why it matters: {}", kind.why);
    }
    if let Some(remedy) = remedy {
        let _ = write!(out, "\n  remedy: {remedy}");
    }
    out
}

/// Returns the end of a report: where and how often each finding was made. The last line has no line break.
pub fn summary(report: &FindingsReport<'_>) -> String {
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

/// Returns all findings as paragraphs, with their whole call stacks, and the summary.
pub(super) fn document(report: &FindingsReport<'_>) -> String {
    let paragraphs = report.findings.iter().map(|finding| whole_paragraph(finding) + "\n");
    paragraphs.chain([summary(report) + "\n"]).collect()
}

/// Returns a finding in one sentence, with its subject: for the log.
pub fn sentence(finding: &Finding) -> String {
    let Finding { subject, sentence, .. } = finding;
    if subject.is_empty() { sentence.clone() } else { format!("{subject} {sentence}") }
}

/// Returns a count in words, as in "once" and "3 times".
pub(super) fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// Writes the frames of a site in at most `most` lines: a line for each frame, and the rest in the last one.
fn stack(out: &mut String, site: &CallSite, most: usize) {
    if site.is_unknown() {
        out.push_str("    (the call stack is not known)\n");
    }
    let own = if site.frames.len() > most { most.saturating_sub(1) } else { site.frames.len() };
    let (own, rest) = site.frames.split_at(own);
    for frame in own {
        let _ = writeln!(out, "    {frame}");
    }
    if !rest.is_empty() {
        let _ = writeln!(out, "    {}", in_line(rest));
    }
}

/// Returns the names of frames, at most [`FRAMES_OF_LINE`], separated by commas.
fn in_line(frames: &[Frame]) -> String {
    let named: Vec<String> = frames.iter().take(FRAMES_OF_LINE).map(ToString::to_string).collect();
    let more = if frames.len() > FRAMES_OF_LINE { ", …" } else { "" };
    format!("{}{more}", named.join(", "))
}

/// A function that returns the text of a cell for a finding, which is the n-th of the table, from 0.
type Cell<'a> = Box<dyn Fn(usize, &Finding) -> String + 'a>;

/// A column of a table.
pub struct Column<'a> {
    title: &'static str,
    width: usize,
    is_right: bool,
    cell: Cell<'a>,
}

impl<'a> Column<'a> {
    /// Returns a column with this title and at least this many characters; 0 for the last one. `cell` returns
    /// its text for a finding, which is the n-th of the table, from 0.
    pub fn new(
        title: &'static str,
        width: usize,
        cell: impl Fn(usize, &Finding) -> String + 'a,
    ) -> Column<'a> {
        Column { title, width, is_right: false, cell: Box::new(cell) }
    }

    /// Aligns the cells to the right.
    pub fn at_right(mut self) -> Column<'a> {
        self.is_right = true;
        self
    }
}

/// A table with a row for each finding.
pub struct Table<'a> {
    /// The columns, from the left.
    pub columns: &'a [Column<'a>],
    /// Number of spaces between columns.
    pub gap: usize,
    /// True if the first row has the titles.
    pub has_titles: bool,
    /// True if an empty line is before each row.
    pub is_spaced: bool,
    /// True if remedies are printed below, in the last column.
    pub has_remedies: bool,
}

impl Table<'_> {
    /// Writes these findings as rows; nothing if there are none.
    ///
    /// # Errors
    /// An error of `out`.
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
    use super::super::sarif::ReportHeader;
    use super::super::tests::{TOO_SMALL, a_report, all_found};
    use super::*;

    #[test]
    fn a_paragraph_says_what_where_why_and_the_remedy() {
        let text = paragraph(&all_found()[0]);
        let wanted = format!(
            "cq-too-small: completion queue 0 has room for 1 completion\n    post (server+0x40)\n    main \
             (/src/a b.c:7)\n  it was made here: post (server+0x40), main (/src/a b.c:7)\n  what: {}\n  \
             why it matters: {}\n  remedy: {}",
            TOO_SMALL.what, TOO_SMALL.why, TOO_SMALL.remedy
        );
        assert_eq!(text, wanted);
        let text = paragraph(&all_found()[1]);
        assert!(text.contains("(the call stack is not known)\n  what: ") && !text.contains("why"), "{text}");
    }

    #[test]
    fn a_paragraph_has_eight_lines_at_most_and_a_document_all_frames() {
        let mut finding = all_found().remove(0);
        let frame = |number: usize| Frame {
            function: Some(format!("f{number}")),
            object: "o".to_owned(),
            ..Frame::default()
        };
        finding.site.frames = (10..20).map(frame).collect();
        let other = CallSite { what: "it was made here".to_owned(), frames: (20..23).map(frame).collect() };
        finding.related = vec![other; 3];
        let text = paragraph(&finding);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 8, "{text}");
        assert_eq!(lines[1], "    f10 (o+0x0)");
        assert!(
            lines[2].starts_with("    f11 (o+0x0), f12") && lines[2].ends_with("f16 (o+0x0), …"),
            "{text}"
        );
        assert_eq!(lines[3], "  it was made here: f20 (o+0x0), f21 (o+0x0), f22 (o+0x0)");
        let whole = whole_paragraph(&finding);
        assert!((10..20).all(|number| whole.contains(&format!("\n    f{number} (o"))), "{whole}");
    }

    #[test]
    fn a_document_ends_with_a_summary() {
        let found = all_found();
        let report = a_report(&found);
        let end = "check: 2 findings\n  cq-too-small: completion queue 0 at post (server+0x40), 3 times\n  \
                   odd: a | b, once\n  2 more are suppressed\n";
        let text = document(&report);
        assert!(text.starts_with("cq-too-small: ") && text.ends_with(end), "{text}");
        let about = ReportHeader { left_out: 1, ..ReportHeader::default() };
        let nothing = FindingsReport { about: &about, findings: &[], ..report };
        assert_eq!(summary(&nothing), "check: nothing was found\n  1 more had no room");
        let about = ReportHeader { ended_by: "SIGSEGV", ..ReportHeader::default() };
        let crashed = FindingsReport { about: &about, ..nothing };
        assert_eq!(summary(&crashed), "check: nothing was found, and SIGSEGV ended the program");
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
