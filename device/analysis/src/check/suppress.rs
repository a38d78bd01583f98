//! Suppressions: findings that the user knows of, and does not want to be reported.
//!
//! One line each, of words `kind=`, `function=` and `object=` with patterns in which `*` stands for anything.
//! A finding is suppressed if all words of a line fit: the kind, the function of any frame of its stack, the
//! program or library that has any frame. `#` begins a comment.

use pumice_model::settings::{CheckSettings, SettingError};

use super::report::{Frame, ReportEntry};

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
    use super::super::kind::LOST_WAKEUP;
    use super::super::recorded::RecordedFinding;
    use super::*;
    use pumice_platform::call_stack::Stack;

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
