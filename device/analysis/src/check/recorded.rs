//! The list of findings: one entry for each kind and call site, its symbols, and suppressions.
//!
//! A suppression is a line of the words `kind=`, `function=` and `object=` with patterns in which `*` stands
//! for anything.
//! A finding is suppressed if all words of a line fit: the kind, the function of any frame of its stack, the
//! program or library that has any frame. `#` begins a comment.

use std::collections::HashMap;

use fnv::FnvBuildHasher;
use pumice_model::findings::{Finding, FindingsReport, print, text};
use pumice_model::settings::{CheckSettings, Marks, SettingError};
use pumice_platform::call_stack::Stack;

use super::kind::{FAILURE_INJECTED, FindingKind, KINDS, OBJECTS_LEFT};

/// Number of entries that are stored; further ones are counted.
pub const MAX_FINDINGS: usize = 256;
/// Number of innermost frames that make two call sites look alike.
const CALL_SITE_FRAMES: usize = 3;
/// Number of entries of call sites that look alike; a further one is counted with the last of these. A
/// library that posts from one function is called in many ways.
const MAX_CALL_PATHS: usize = 4;

/// Another call site that belongs to a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelatedCallSite {
    /// Description of what happened there, as in "completion queue 0 was made here".
    pub what: String,
    /// Call site.
    pub call_site: Stack,
}

/// A mistake of the program, as the checker records it: call stacks are return addresses.
#[derive(Debug, Clone)]
pub struct RecordedFinding {
    /// Kind of the mistake.
    pub kind: &'static FindingKind,
    /// Call site of the mistake.
    pub call_site: Stack,
    /// Object of the mistake, as in "queue pair 3 (number 0x12)".
    pub object: String,
    /// Sentence with the numbers of the first time.
    pub numbers: String,
    /// Other call sites that belong to it.
    pub related: Vec<RelatedCallSite>,
    /// Number of times that it was found.
    pub count: u64,
}

/// All findings of a process.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<RecordedFinding>,
    call_sites: HashMap<(&'static str, Stack), usize, FnvBuildHasher>,
    /// Indices of the entries of call sites whose innermost frames are these.
    call_paths: HashMap<(&'static str, Vec<u64>), Vec<usize>, FnvBuildHasher>,
    reported_count: usize,
    left_out: u64,
}

impl Findings {
    /// Adds a finding, or counts one that exists already.
    pub(super) fn add(&mut self, finding: RecordedFinding) {
        let related = || finding.related.first().map(|one| one.call_site.clone()).unwrap_or_default();
        let call_site = if finding.call_site.is_unknown() { related() } else { finding.call_site.clone() };
        let innermost = call_site.addresses().iter().take(CALL_SITE_FRAMES).copied().collect();
        let key = (finding.kind.name, call_site);
        let call_paths = self.call_paths.entry((finding.kind.name, innermost)).or_default();
        let latest = call_paths.last().copied().filter(|_| call_paths.len() >= MAX_CALL_PATHS);
        let index = self.call_sites.get(&key).copied().or(latest);
        if let Some(known) = index.and_then(|index| self.list.get_mut(index)) {
            known.count = known.count.saturating_add(1);
        } else if self.list.len() >= MAX_FINDINGS {
            self.left_out = self.left_out.saturating_add(1);
        } else {
            call_paths.push(self.list.len());
            self.call_sites.insert(key, self.list.len());
            self.list.push(finding);
        }
    }

    /// Counts the latest finding of a kind about an object once more, wherever it was.
    pub(super) fn again(&mut self, kind: &'static FindingKind, object: &str) {
        let latest =
            self.list.iter_mut().rev().find(|one| one.kind.name == kind.name && one.object == object);
        if let Some(latest) = latest {
            latest.count = latest.count.saturating_add(1);
        }
    }

    /// Returns the findings that were not returned yet.
    pub fn news(&mut self) -> Vec<RecordedFinding> {
        let news = self.list.get(self.reported_count..).unwrap_or_default().to_vec();
        self.reported_count = self.list.len();
        news
    }

    /// Returns all findings, oldest first.
    pub fn all(&self) -> &[RecordedFinding] {
        &self.list
    }

    /// Returns how many findings had no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

pub use pumice_model::findings::{CallSite, Frame, ReportFormat as Format, ReportHeader};

/// Number of objects that were left which are named beside the first.
const MAX_LEFT: usize = 6;

/// A recorded finding with its symbols.
#[derive(Debug, Clone)]
pub struct ReportEntry {
    /// Recorded finding.
    pub finding: RecordedFinding,
    /// Frames of its call site, the innermost first.
    pub frames: Vec<Frame>,
    /// Other call sites.
    pub related: Vec<CallSite>,
}

impl ReportEntry {
    /// Creates an entry, with the symbols that `symbols` returns for return addresses.
    pub fn new(recorded: RecordedFinding, mut symbols: impl FnMut(&[u64]) -> Vec<Frame>) -> ReportEntry {
        let frames = symbols(recorded.call_site.addresses());
        let sites = recorded.related.iter();
        let related = sites
            .map(|one| CallSite { what: one.what.clone(), frames: symbols(one.call_site.addresses()) })
            .collect();
        ReportEntry { finding: recorded, frames, related }
    }

    /// Returns the finding that the entry describes.
    pub fn to_finding(&self) -> Finding {
        let RecordedFinding { kind, object, numbers, count, .. } = &self.finding;
        Finding {
            site: CallSite { what: String::new(), frames: self.frames.clone() },
            related: self.related.clone(),
            count: *count,
            ..Finding::new(kind, object, numbers)
        }
    }

    /// Returns what the command that started the program needs to know of the finding.
    pub fn marks(&self) -> Marks {
        let kind = self.finding.kind;
        let has_injected = kind.name == FAILURE_INJECTED.name;
        let worst = Some(kind.level).filter(|_| !has_injected);
        Marks { worst, has_injected, ..Marks::default() }
    }

    /// Returns the finding as a paragraph for people, without a newline at its end.
    pub fn paragraph(&self) -> String {
        text::paragraph(&self.to_finding())
    }
}

/// Returns findings as paragraphs for people. Objects that were left share one: a program that forgets one
/// often forgets all.
pub fn paragraphs(entries: &[ReportEntry]) -> Vec<String> {
    let (left, others): (Vec<&ReportEntry>, Vec<&ReportEntry>) =
        entries.iter().partition(|entry| entry.finding.kind.name == OBJECTS_LEFT.name);
    let mut paragraphs: Vec<String> = others.into_iter().map(ReportEntry::paragraph).collect();
    if let Some((first, rest)) = left.split_first() {
        let mut finding = first.to_finding();
        let named = rest.iter().take(MAX_LEFT).map(|entry| {
            let at = entry.frames.first().map(|frame| format!(" at {frame}")).unwrap_or_default();
            format!("{}{at}", entry.finding.object)
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let more = match rest.len().saturating_sub(MAX_LEFT) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        if !rest.is_empty() {
            finding.sentence = format!("{}; and so were {named}{more}", finding.sentence);
        }
        // The object was made at the call site of the finding.
        finding.related.clear();
        paragraphs.push(text::paragraph(&finding));
    }
    paragraphs
}

/// Returns the end of a report for people: how often each entry was found. It has no newline at its end.
pub fn summary(entries: &[ReportEntry], about: &ReportHeader) -> String {
    with_report(entries, about, text::summary)
}

/// Returns all findings of a process as one document.
pub fn document(entries: &[ReportEntry], about: &ReportHeader, format: Format) -> String {
    with_report(entries, about, |report| print(report, format))
}

fn with_report(
    entries: &[ReportEntry],
    about: &ReportHeader,
    print: impl FnOnce(&FindingsReport<'_>) -> String,
) -> String {
    let findings: Vec<Finding> = entries.iter().map(ReportEntry::to_finding).collect();
    print(&FindingsReport { command: "check", about, kinds: KINDS, findings: &findings })
}

/// Largest number of lines of a file.
const MAX_LINES: usize = 4096;

/// The list of findings that are not reported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Suppressions(Vec<SuppressionLine>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SuppressionLine {
    kind: Option<String>,
    function: Option<String>,
    object: Option<String>,
}

impl Suppressions {
    /// Parses a file's text.
    ///
    /// # Errors
    /// Fails with a sentence that names the invalid line.
    pub fn parse(text: &str) -> Result<Suppressions, String> {
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let words = line.split('#').next().unwrap_or_default();
            let parsed =
                SuppressionLine::parse(words).map_err(|problem| format!("line {}: {problem}", number + 1))?;
            lines.extend(parsed);
            if lines.len() > MAX_LINES {
                return Err(format!("there are more than {MAX_LINES} lines: shorten the file"));
            }
        }
        Ok(Suppressions(lines))
    }

    /// Reads the file that the settings name; the list is empty if they name none.
    ///
    /// # Errors
    /// Fails if the file cannot be read, with the error of the operating system, or if a line is invalid,
    /// with EINVAL.
    pub fn of(settings: &CheckSettings) -> Result<Suppressions, SettingError> {
        let Some((path, text)) = settings.suppressions_text()? else { return Ok(Suppressions::default()) };
        Suppressions::parse(&text).map_err(|problem| CheckSettings::refuse_suppressions(path, problem))
    }

    /// Reports whether an entry is suppressed.
    pub fn cover(&self, entry: &ReportEntry) -> bool {
        self.0.iter().any(|line| line.covers(entry))
    }
}

impl SuppressionLine {
    fn parse(words: &str) -> Result<Option<SuppressionLine>, String> {
        let mut line = SuppressionLine::default();
        for word in words.split_ascii_whitespace() {
            let (name, pattern) = word.split_once('=').unwrap_or((word, ""));
            let field = match name {
                "kind" => &mut line.kind,
                "function" => &mut line.function,
                "object" => &mut line.object,
                _ => return Err(format!("{word:?} is none of kind=, function= and object=")),
            };
            if pattern.is_empty() {
                return Err(format!("{name}= needs a pattern"));
            }
            *field = Some(pattern.to_owned());
        }
        Ok(Some(line).filter(|line| *line != SuppressionLine::default()))
    }

    fn covers(&self, entry: &ReportEntry) -> bool {
        // Findings without a call site of their own have that of their object.
        let other = entry.related.first().map(|site| site.frames.as_slice()).unwrap_or_default();
        let frames = if entry.frames.is_empty() { other } else { &entry.frames };
        let fits = |pattern: &Option<String>, text: &str| pattern.as_ref().is_none_or(|p| matches(p, text));
        let any = |pattern: &Option<String>, of: fn(&Frame) -> &str| {
            pattern.is_none() || frames.iter().any(|frame| fits(pattern, of(frame)))
        };
        fits(&self.kind, entry.finding.kind.name)
            && any(&self.function, |frame| frame.function.as_deref().unwrap_or_default())
            && any(&self.object, |frame| frame.object.rsplit('/').next().unwrap_or_default())
    }
}

/// Reports whether a text matches a pattern, in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part).and_then(|at| rest.get(at + part.len()..)) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use pumice_platform::call_stack::{Stack, Stacks};

    use super::super::kind::{CQ_TOO_SMALL, LOST_WAKEUP};
    use super::super::recorded::RecordedFinding;
    use super::*;

    fn finding(kind: &'static FindingKind, call_site: Stack) -> RecordedFinding {
        let (object, numbers) = (String::from("queue pair 0"), String::new());
        RecordedFinding { kind, call_site, object, numbers, related: Vec::new(), count: 1 }
    }

    #[test]
    fn a_place_has_one_entry_for_each_kind() {
        let (mut findings, mut stacks) = (Findings::default(), Stacks::default());
        for address in [1, 2, 1, 1] {
            findings.add(finding(&CQ_TOO_SMALL, stacks.keep(&[address])));
        }
        findings.add(finding(&LOST_WAKEUP, stacks.keep(&[1])));
        let counts: Vec<u64> = findings.all().iter().map(|one| one.count).collect();
        assert_eq!(counts, [3, 1, 1]);
        assert_eq!((findings.news().len(), findings.news().len()), (3, 0));
        findings.again(&CQ_TOO_SMALL, "queue pair 0");
        assert_eq!(findings.all()[1].count, 2);
    }

    #[test]
    fn a_place_has_four_entries_for_the_ways_to_it() {
        let (mut findings, mut stacks) = (Findings::default(), Stacks::default());
        for way in [0, 1, 2, 3, 4, 5, 0] {
            findings.add(finding(&CQ_TOO_SMALL, stacks.keep(&[7, 8, 9, way])));
        }
        findings.add(finding(&LOST_WAKEUP, stacks.keep(&[7, 8, 9, 4])));
        findings.add(finding(&CQ_TOO_SMALL, stacks.keep(&[7, 8, 10, 4])));
        let counts: Vec<u64> = findings.all().iter().map(|one| one.count).collect();
        assert_eq!(counts, [2, 1, 1, 3, 1, 1]);
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let (mut findings, mut stacks) = (Findings::default(), Stacks::default());
        for address in 0..1000 {
            findings.add(finding(&CQ_TOO_SMALL, stacks.keep(&[address])));
        }
        assert_eq!((findings.all().len(), findings.left_out()), (MAX_FINDINGS, 744));
    }

    #[test]
    fn patterns_match() {
        for (pattern, text, is_match) in [
            ("main", "main", true),
            ("main", "main2", false),
            ("ucp_*", "ucp_put", true),
            ("*put*", "ucp_put_nb", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn a_line_covers_what_all_its_words_fit() {
        let finding = RecordedFinding {
            kind: &LOST_WAKEUP,
            call_site: Stack::default(),
            object: String::new(),
            numbers: String::new(),
            related: Vec::new(),
            count: 1,
        };
        let frame = |function: &str, object: &str| Frame {
            function: Some(function.to_owned()),
            object: object.to_owned(),
            ..Frame::default()
        };
        let frames = vec![frame("uct_poll", "/lib/libuct.so.0"), frame("main", "/bin/server")];
        let entry = ReportEntry { finding, frames, related: Vec::new() };
        for (text, covers) in [
            ("kind=lost-wakeup", true),
            ("# none\n\nkind=lost-* function=uct_* object=libuct.so*  # known", true),
            ("kind=lost-wakeup function=ucp_*", false),
            ("object=server", true),
            ("", false),
        ] {
            assert_eq!(Suppressions::parse(text).unwrap().cover(&entry), covers, "{text}");
        }
        assert!(Suppressions::parse("kind=a\nwhere=b").unwrap_err().starts_with("line 2: "));
        assert!(Suppressions::parse("kind=").is_err());
    }
}
