//! The settings of the checks of programs, and the errors of settings.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use pumice_platform::outside;
use pumice_platform::outside::output_file::{on_standard_error, write_private};
use pumice_platform::outside::system_call::Unsignalled;

use crate::findings::{Level, ReportFormat};

/// A variable, its value, and the problem with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value}: {problem}")]
pub struct SettingError {
    /// The name of the variable, e.g. "PUMICE_LOSS".
    pub variable: &'static str,
    /// The value of the variable.
    pub value: String,
    /// The problem, and the remedy.
    pub problem: Cow<'static, str>,
    /// The errno to return for it; positive.
    pub errno: i32,
}

impl SettingError {
    /// Returns the error of a value that is wrong in itself: EINVAL.
    pub fn new(
        variable: &'static str,
        value: impl Into<String>,
        problem: impl Into<Cow<'static, str>>,
    ) -> SettingError {
        SettingError { variable, value: value.into(), problem: problem.into(), errno: libc::EINVAL }
    }

    /// Sets another errno.
    #[must_use]
    pub fn with_errno(self, errno: i32) -> SettingError {
        SettingError { errno, ..self }
    }
}

/// The variable that turns on checks of the program's use of verbs: 1, or words with commas between them:
/// "perf" to look for slow ways too, "poison" to fill the buffers of posted receives.
pub const CHECK: &str = "PUMICE_CHECK";
/// The variable with the file for the report of findings.
pub const CHECK_REPORT: &str = "PUMICE_CHECK_REPORT";
/// The variable with the [`ReportFormat`] of that file.
pub const CHECK_FORMAT: &str = "PUMICE_CHECK_FORMAT";
/// The variable with the file of suppressions: findings that are not reported.
pub const CHECK_SUPPRESS: &str = "PUMICE_CHECK_SUPPRESS";
/// The variable with the file in which processes leave marks: those that open a device, those that find
/// something, and those whose report cannot be written.
pub const CHECK_MARK: &str = "PUMICE_CHECK_MARK";

/// The settings of the checks of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckSettings {
    /// True to look for slow ways too.
    pub checks_performance: bool,
    /// True to fill the buffers of posted receives with a pattern.
    pub poisons: bool,
    /// The file of the report; `%p` stands for the process number.
    pub report: Option<PathBuf>,
    /// The format of the report; `None`: by the extension of the file's name.
    pub format: Option<ReportFormat>,
    /// The file of suppressions.
    pub suppressions: Option<PathBuf>,
    /// The file with [`Marks`].
    pub mark: Option<PathBuf>,
}

/// The results that processes have reported to the command that started them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// The worst level that was found; `None`: nothing was found.
    pub worst: Option<Level>,
    /// True if a failure was found that a fault plan has injected.
    pub has_injected: bool,
    /// True if a report could not be written.
    pub lacks_report: bool,
    /// True if a process opened a device, so that something was checked.
    pub has_device: bool,
}

/// The bytes of a mark that is not set, and of one that is. The room is allocated before, so that a full disk
/// has room for marks.
const UNMARKED: [u8; 6] = *b"------";
const MARKED: u8 = b'x';
/// The byte after the marks of a report that is whole.
const COMPLETE: u8 = b'.';

impl Marks {
    /// The beginning of the report of a check for a while, until it is whole.
    pub const UNFINISHED: &'static [u8; 7] = b"------?";

    /// Returns the beginning of a whole report: the results.
    pub fn finished(found: &[Marks]) -> [u8; 7] {
        let has = |level| found.iter().any(|marks| marks.worst == Some(level));
        let has_injected = found.iter().any(|marks| marks.has_injected);
        let mark = |is_made: bool| if is_made { MARKED } else { UNMARKED[0] };
        [
            mark(has(Level::Error)),
            mark(has(Level::Warning)),
            mark(has(Level::Note)),
            mark(has_injected),
            UNMARKED[4],
            UNMARKED[5],
            COMPLETE,
        ]
    }

    /// Returns the results at the beginning of such a report, and the report; `None`: it is not whole.
    pub fn of_report(bytes: &[u8]) -> Option<(Marks, &[u8])> {
        let (marks, report) = bytes.split_first_chunk::<7>()?;
        let [.., end] = marks;
        (*end == COMPLETE).then(|| (Marks::of(marks), report))
    }

    fn of(marks: &[u8]) -> Marks {
        let is_marked = |offset: usize| marks.get(offset) == Some(&MARKED);
        let levels = [(0, Level::Error), (1, Level::Warning), (2, Level::Note)];
        let worst = levels.into_iter().find(|(offset, _)| is_marked(*offset)).map(|(_, level)| level);
        let [has_injected, lacks_report, has_device] = [3, 4, 5].map(is_marked);
        Marks { worst, has_injected, lacks_report, has_device }
    }

    /// Creates the file, without a mark.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(file: &Path) -> io::Result<()> {
        write_private(file, &UNMARKED)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(file: &Path) -> io::Result<Marks> {
        Ok(Marks::of(&outside::files::read(file)?))
    }
}

/// Most bytes of a file of suppressions that are read.
const MAX_SUPPRESSIONS_BYTES: u64 = 1 << 20;

impl CheckSettings {
    /// Sets marks, if there is a file for them. The command that started the program may have ended, and its
    /// file with it: then it does not need them any more.
    pub fn leave(&self, marks: Marks) {
        let Some(file) = &self.mark else { return };
        let _held = Unsignalled::begin();
        let Ok(file) = outside::files::options().write(true).open(file) else { return };
        let is = |level| marks.worst == Some(level);
        let Marks { has_injected, lacks_report, has_device, .. } = marks;
        let made =
            [is(Level::Error), is(Level::Warning), is(Level::Note), has_injected, lacks_report, has_device];
        for (offset, is_made) in (0..).zip(made) {
            if is_made && let Err(error) = file.write_all_at(&[MARKED], offset) {
                on_standard_error(&format!("--check-exit cannot tell of what was found: {error}"));
            }
        }
    }

    /// Returns the file of suppressions, and its text; `None`: there is none.
    ///
    /// # Errors
    /// The file cannot be read: the system's error.
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

    /// Returns the error of a file of suppressions that is of no use.
    pub fn refuse_suppressions(path: &Path, problem: String) -> SettingError {
        SettingError::new(CHECK_SUPPRESS, path.to_string_lossy(), problem)
    }

    /// Returns the settings of the variables of this process; `None`: nothing is checked.
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

    /// Returns the settings of the variables; `None`: nothing is checked.
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
            checks_performance: words.contains(&"perf"),
            poisons: words.contains(&"poison"),
            report: file(CHECK_REPORT),
            format: format.map(as_format).transpose()?,
            suppressions: file(CHECK_SUPPRESS),
            mark: file(CHECK_MARK),
        }))
    }
}
