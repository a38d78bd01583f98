//! How programs are checked.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use pumice_events::findings::{Level, ReportFormat};
use pumice_ground::outside;
use pumice_ground::outside::output_file::{on_standard_error, write_private};
use pumice_ground::outside::unsignalled::Unsignalled;

use super::error::SettingError;

/// Whether what the program does wrong is looked for: 1, or words with commas between them: "perf" to look
/// for slow ways too, "poison" to fill the buffers of posted receives.
pub const CHECK: &str = "PUMICE_CHECK";
/// File for the report of what was found.
pub const CHECK_REPORT: &str = "PUMICE_CHECK_REPORT";
/// ReportFormat of that file.
pub const CHECK_FORMAT: &str = "PUMICE_CHECK_FORMAT";
/// File that says what is not to be reported.
pub const CHECK_SUPPRESS: &str = "PUMICE_CHECK_SUPPRESS";
/// File in which processes that find something leave a mark, and those whose report cannot be written
/// another.
pub const CHECK_MARK: &str = "PUMICE_CHECK_MARK";

/// How to look for what the program does wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckSettings {
    /// Looks for slow ways too.
    pub looks_for_slow: bool,
    /// Fills the buffers of posted receives with a pattern.
    pub poisons: bool,
    /// Where the report is written to; `%p` stands for the process number.
    pub report: Option<PathBuf>,
    /// How it is written; by the extension of its name when none.
    pub format: Option<ReportFormat>,
    /// A file that says what is not to be reported.
    pub suppressions: Option<PathBuf>,
    /// A file with [`Marks`].
    pub mark: Option<PathBuf>,
}

/// What processes have told the command that started them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// The worst that was found; none: nothing was.
    pub worst: Option<Level>,
    /// A failure was found that a fault plan has made.
    pub has_injected: bool,
    /// A report could not be written.
    pub lacks_report: bool,
}

/// A mark that is not made, and one that is. The room is taken before, so that a full disk has room for
/// marks.
const UNMARKED: [u8; 5] = *b"-----";
const MARKED: u8 = b'x';
/// The end of the marks of a report that is whole.
const WHOLE: u8 = b'.';

impl Marks {
    /// What a report of a check for a while begins with, until it is whole.
    pub const UNFINISHED: &'static [u8; 6] = b"-----?";

    /// What it begins with when it is whole: what was found.
    pub fn finished(found: &[Marks]) -> [u8; 6] {
        let has = |level| found.iter().any(|marks| marks.worst == Some(level));
        let has_injected = found.iter().any(|marks| marks.has_injected);
        let mark = |is_made: bool| if is_made { MARKED } else { UNMARKED[0] };
        [
            mark(has(Level::Error)),
            mark(has(Level::Warning)),
            mark(has(Level::Note)),
            mark(has_injected),
            UNMARKED[4],
            WHOLE,
        ]
    }

    /// What such a report says was found, and the report; `None`: it is not whole.
    pub fn of_report(bytes: &[u8]) -> Option<(Marks, &[u8])> {
        let (marks, report) = bytes.split_first_chunk::<6>()?;
        let [.., end] = marks;
        (*end == WHOLE).then(|| (Marks::of(marks), report))
    }

    fn of(marks: &[u8]) -> Marks {
        let is_marked = |offset: usize| marks.get(offset) == Some(&MARKED);
        let levels = [(0, Level::Error), (1, Level::Warning), (2, Level::Note)];
        let worst = levels.into_iter().find(|(offset, _)| is_marked(*offset)).map(|(_, level)| level);
        Marks { worst, has_injected: is_marked(3), lacks_report: is_marked(4) }
    }

    /// Makes the file, without a mark.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(file: &Path) -> io::Result<()> {
        write_private(file, &UNMARKED)
    }

    /// What the file says.
    ///
    /// # Errors
    /// What the system says.
    pub fn read(file: &Path) -> io::Result<Marks> {
        Ok(Marks::of(&outside::files::read(file)?))
    }
}

/// Bytes of a file of suppressions that are read.
const MAX_SUPPRESSIONS_BYTES: u64 = 1 << 20;

impl CheckSettings {
    /// Leaves marks, if there is a file for them. The command that started the program may have ended, and
    /// its file with it: then it asks no more.
    pub fn leave(&self, marks: Marks) {
        let Some(file) = &self.mark else { return };
        let _held = Unsignalled::begin();
        let Ok(file) = outside::files::options().write(true).open(file) else { return };
        let is = |level| marks.worst == Some(level);
        let made =
            [is(Level::Error), is(Level::Warning), is(Level::Note), marks.has_injected, marks.lacks_report];
        for (offset, is_made) in (0..).zip(made) {
            if is_made && let Err(error) = file.write_all_at(&[MARKED], offset) {
                on_standard_error(&format!("--check-exit cannot tell of what was found: {error}"));
            }
        }
    }

    /// The file that says what is not to be reported, and its text; `None`: there is none.
    ///
    /// # Errors
    /// It cannot be read: what the system says.
    pub fn suppressions_text(&self) -> Result<Option<(&Path, String)>, SettingError> {
        let Some(path) = &self.suppressions else { return Ok(None) };
        let mut text = String::new();
        let read = outside::files::open(path)
            .and_then(|file| file.take(MAX_SUPPRESSIONS_BYTES).read_to_string(&mut text));
        read.map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
            CheckSettings::refuse_suppressions(path, format!("it cannot be read: {error}")).with_errno(errno)
        })?;
        Ok(Some((path, text)))
    }

    /// The error of a file of suppressions that is of no use.
    pub fn refuse_suppressions(path: &Path, problem: String) -> SettingError {
        SettingError::new(CHECK_SUPPRESS, path.to_string_lossy(), problem)
    }

    /// Those of the variables of this process; `None`: nothing is checked.
    ///
    /// # Errors
    /// A variable makes no sense, or is no text.
    pub fn of_environment() -> Result<Option<CheckSettings>, SettingError> {
        let text = |name| match outside::environment::text(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(value)) => {
                Err(SettingError::new(name, value.to_string_lossy(), "it is no UTF-8 text"))
            }
        };
        CheckSettings::parse(text(CHECK)?, text(CHECK_FORMAT)?, &outside::environment::variable)
    }

    /// Those of the variables; `None`: nothing is checked.
    pub(super) fn parse(
        check: Option<String>,
        format: Option<String>,
        path: &impl Fn(&'static str) -> Option<OsString>,
    ) -> Result<Option<CheckSettings>, SettingError> {
        let words: Vec<&str> = match check.as_deref() {
            None | Some("0") => return Ok(None),
            Some("1") => Vec::new(),
            Some(words) => words.split(',').collect(),
        };
        if words.iter().any(|word| !["perf", "poison"].contains(word)) {
            let problem = "it is 1, perf for slow ways too, poison to fill receives, perf,poison, or 0";
            return Err(SettingError::new(CHECK, words.join(","), problem));
        }
        let as_format = |name: String| {
            let problem = format!("the formats are {}", ReportFormat::NAMES);
            ReportFormat::named(&name).ok_or_else(|| SettingError::new(CHECK_FORMAT, name, problem))
        };
        let file = |name| path(name).map(PathBuf::from);
        Ok(Some(CheckSettings {
            looks_for_slow: words.contains(&"perf"),
            poisons: words.contains(&"poison"),
            report: file(CHECK_REPORT),
            format: format.map(as_format).transpose()?,
            suppressions: file(CHECK_SUPPRESS),
            mark: file(CHECK_MARK),
        }))
    }
}
