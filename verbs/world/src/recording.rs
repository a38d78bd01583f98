//! The recording of a run in a file: what is needed to run it again, and all events.
//!
//! The first line is JSON, of version 4; each further line is one event. Files are hostile: one that is too
//! long or has another form is rejected. The end may be missing, because a run may be killed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::options::{Departure, Draws, MAX_PREEMPTION_STEPS, WorldOptions};

/// Version of the format.
const VERSION: u32 = 4;
/// Maximum length of a recording, in bytes.
const MAX_BYTES: u64 = 1 << 30;
/// Maximum length of its first line, in bytes.
const MAX_HEADER: u64 = 1 << 24;
/// Maximum length of an event, in bytes.
const MAX_EVENT: u64 = 1 << 12;
/// The longest rest of a valid run, in ns.
const MAX_STALL_NS: u64 = 10_000_000_000;
/// Upper bound of frequencies, in parts per million.
const ALL_PPM: u32 = 1_000_000;

/// Mode of a recording, which only its user may read: it contains the arguments of the program.
const PRIVATE: u32 = 0o600;

/// Text in place of an event that is incomplete or invalid.
const CUT_OFF: &str = "no event: the recording is cut off here";
const NO_EVENT: &str = "no event: the recording is damaged here";

/// The header of a recording: what is needed to run it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Version of the format.
    pub version: u32,
    /// Seed of the run.
    pub seed: u64,
    /// Program, by the bytes of its name.
    program: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    /// Folder in which it was run.
    folder: Vec<u8>,
    private_folders: Vec<Vec<u8>>,
    /// Names of the variables of its environment. Values may be secrets, and a short secret can be found from
    /// any digest of it by guessing.
    environment: BTreeSet<String>,
    /// Values of the variables that decide what the run does: they are not secret.
    settings: Vec<(String, Vec<u8>)>,
    draws: Draws,
    departures: Option<BTreeMap<u64, Departure>>,
    /// Calls of the kernel take no time. Recordings of earlier versions do not have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    exact_time: bool,
    /// The program is one that starts the program of the run.
    is_starter: bool,
    /// Time of the world after which the run ends, in s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    longest_s: Option<u64>,
    /// User of the run, by number.
    user: u32,
}

/// Prefixes of the names of variables whose values a recording has.
const KEPT_PREFIXES: [&str; 1] = ["PUMICE_"];

impl Header {
    /// Returns the header of a run.
    pub(crate) fn of(options: &WorldOptions) -> Header {
        let bytes = |text: &OsStr| text.as_bytes().to_vec();
        let is_recorded = |name: &str| KEPT_PREFIXES.iter().any(|begin| name.starts_with(begin));
        let variables =
            || options.environment.iter().filter_map(|(name, value)| Some((name.to_str()?, value)));
        Header {
            version: VERSION,
            seed: options.seed,
            program: bytes(&options.program),
            arguments: options.arguments.iter().map(|one| bytes(one)).collect(),
            folder: std::env::current_dir().map_or_else(|_| Vec::new(), |folder| bytes(folder.as_os_str())),
            private_folders: options.private_folders.iter().map(|one| bytes(one.as_os_str())).collect(),
            environment: variables().map(|(name, _)| name.to_owned()).collect(),
            settings: variables()
                .filter(|(name, _)| is_recorded(name))
                .map(|(name, value)| (name.to_owned(), bytes(value)))
                .collect(),
            draws: options.draws,
            departures: options.departures.clone(),
            exact_time: options.exact_time,
            is_starter: options.is_starter,
            longest_s: options.longest_s,
            user: own_user(),
        }
    }

    /// Returns the program and its arguments, for the reader.
    pub fn command(&self) -> String {
        let texts = self.arguments.iter().map(|one| String::from_utf8_lossy(one).into_owned());
        texts.collect::<Vec<_>>().join(" ")
    }

    /// Returns the options of the recorded run, with the environment of this process and the settings of the
    /// recording.
    pub fn options(&self) -> WorldOptions {
        let text = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
        let mut options = WorldOptions::new(self.seed, self.arguments.iter().map(text).collect());
        options.program = text(&self.program);
        options.private_folders = self.private_folders.iter().map(|one| PathBuf::from(text(one))).collect();
        options.draws = self.draws;
        options.departures.clone_from(&self.departures);
        options.exact_time = self.exact_time;
        options.is_starter = self.is_starter;
        options.longest_s = self.longest_s;
        options.environment.retain(|(name, _)| {
            !name.to_str().is_some_and(|name| KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        });
        let settings = self.settings.iter().map(|(name, value)| (name.into(), text(value)));
        options.environment.extend(settings);
        options
    }

    /// Checks that a run can have had this header. Its values are passed to system calls, and to a clock that
    /// must not overflow.
    fn check(&self) -> Result<(), String> {
        if self.arguments.is_empty() {
            return Err("it names no program".to_owned());
        }
        let values = self.settings.iter().map(|(_, value)| value);
        let texts = self.arguments.iter().chain(&self.private_folders).chain(values);
        if texts.chain([&self.program, &self.folder]).any(|text| text.contains(&0)) {
            return Err("a text in it has a NUL byte".to_owned());
        }
        let is_recorded = |name: &str| {
            KEPT_PREFIXES.iter().any(|begin| name.starts_with(begin)) && !name.contains(['=', '\0'])
        };
        if let Some((name, _)) = self.settings.iter().find(|(name, _)| !is_recorded(name)) {
            return Err(format!("it sets {name:?}, which is no variable of pumice"));
        }
        let Draws { switch_ppm, stall_ppm, longest_stall_ns, preempt_ppm, priorities: _ } = self.draws;
        let is_long = |one: &Departure| match one {
            Departure::Switch(_) => false,
            Departure::Stall(ns) => *ns > MAX_STALL_NS,
            Departure::Preempt { steps, rest_ns } => {
                *rest_ns > MAX_STALL_NS || !(1..=MAX_PREEMPTION_STEPS).contains(steps)
            }
        };
        if switch_ppm > ALL_PPM
            || stall_ppm > ALL_PPM
            || preempt_ppm > ALL_PPM
            || longest_stall_ns > MAX_STALL_NS
            || self.departures.iter().flat_map(BTreeMap::values).any(is_long)
        {
            return Err("its threads switch or rest more than threads can".to_owned());
        }
        Ok(())
    }

    /// Returns the folder in which it was run.
    pub fn folder(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.folder.clone()))
    }

    /// Returns the user of the run, if it is another one than that of this process.
    pub fn other_user(&self) -> Option<u32> {
        (self.user != own_user()).then_some(self.user)
    }

    /// Returns the names of variables that only one of two environments has: that of the run, or this
    /// process's.
    pub fn other_variables(&self) -> Vec<String> {
        let now = Header::of(&self.options()).environment;
        self.environment.symmetric_difference(&now).cloned().collect()
    }
}

/// Returns the user of this process; 0 where that is unknown.
fn own_user() -> u32 {
    std::fs::metadata("/proc/self").map_or(0, |about| about.uid())
}

/// Creates a file that only its user may read and write, under any umask, also in place of an older file with
/// another mode.
///
/// # Errors
/// The file cannot be created, or its mode cannot be changed.
pub(crate) fn create_private(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE).open(path)?;
    // `/dev/stdout` and similar files keep their mode.
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    Ok(file)
}

/// A recording that is being written.
pub(crate) struct Recorder(BufWriter<File>);

impl Recorder {
    pub(crate) fn create(path: &Path, options: &WorldOptions) -> std::io::Result<Recorder> {
        let mut file = BufWriter::new(create_private(path)?);
        serde_json::to_writer(&mut file, &Header::of(options))?;
        file.write_all(b"\n")?;
        Ok(Recorder(file))
    }

    pub(crate) fn event(&mut self, event: &str) -> std::io::Result<()> {
        writeln!(self.0, "{event}")
    }

    pub(crate) fn end(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// A recording that is being read.
pub struct Recording {
    /// Header, with what is needed to run it again.
    pub header: Header,
    lines: Box<dyn BufRead>,
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("header", &self.header).finish_non_exhaustive()
    }
}

impl Recording {
    /// Opens a recording.
    ///
    /// # Errors
    /// A sentence: it cannot be read, or is no recording.
    pub fn open(path: &Path) -> Result<Recording, String> {
        let name = path.display();
        let file = File::open(path).map_err(|error| format!("{name} cannot be read: {error}"))?;
        let is_file = file.metadata().is_ok_and(|known| known.is_file() && known.len() <= MAX_BYTES);
        if !is_file {
            return Err(format!("{name} is no recording of a world: it is no file, or longer than 1 GiB"));
        }
        Recording::read(path, BufReader::new(file.take(MAX_BYTES)))
    }

    /// Reads a recording from a source with this name.
    ///
    /// # Errors
    /// The same as for `open`.
    pub fn read(name: &Path, mut source: impl BufRead + 'static) -> Result<Recording, String> {
        /// The field that a header of any version has.
        #[derive(Deserialize)]
        struct AnyVersion {
            version: u32,
        }
        let name = name.display();
        let none = |why: &str| format!("{name} is no recording of a world: {why}");
        let mut first = Vec::new();
        source
            .by_ref()
            .take(MAX_HEADER)
            .read_until(b'\n', &mut first)
            .map_err(|error| format!("{name} cannot be read: {error}"))?;
        if !first.ends_with(b"\n") {
            return Err(none("its first line has no end, or is longer than 16 MiB"));
        }
        let words = |error: serde_json::Error| none(&format!("its first line: {}", in_one_line(&error)));
        let AnyVersion { version } = serde_json::from_slice(&first).map_err(words)?;
        if version != VERSION {
            return Err(format!(
                "{name} is a recording of version {version}; this pumice reads version {VERSION}"
            ));
        }
        let header: Header = serde_json::from_slice(&first).map_err(words)?;
        header.check().map_err(|why| none(&why))?;
        Ok(Recording { header, lines: Box::new(source) })
    }

    /// Returns the next event, or a few words about what is in its place; `None` at the end.
    pub fn next_event(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let read = self.lines.by_ref().take(MAX_EVENT).read_until(b'\n', &mut line).ok()?;
        let Some(line) = line.strip_suffix(b"\n") else {
            let is_end = (read as u64) < MAX_EVENT;
            return (read > 0).then(|| if is_end { CUT_OFF } else { NO_EVENT }.to_owned());
        };
        let event = std::str::from_utf8(line).ok().filter(|line| is_event(line));
        Some(event.unwrap_or(NO_EVENT).to_owned())
    }
}

/// Reports whether a line has the form of an event: ns of the world, thread, call, result.
fn is_event(line: &str) -> bool {
    let mut words = line.split(' ');
    let is_number = |word: &str| word.parse::<i128>().is_ok();
    words.next().is_some_and(is_number)
        && words.next_back().is_some_and(is_number)
        && words.count() >= 2
        && !line.contains(char::is_control)
}

/// Formats an error about a hostile text, which the error may quote, in one line.
fn in_one_line(error: &serde_json::Error) -> String {
    const MOST: usize = 200;
    error.to_string().chars().take(MOST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("pumice-world-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_recording_says_how_to_run_it_again_and_no_secret() {
        let mut options = WorldOptions::new(9, vec!["sh".into(), "-c".into(), "true".into()]);
        options.environment = vec![("SECRET".into(), "hunter2".into()), ("PUMICE_LOSS".into(), "1%".into())];
        let path = file("good", "");
        let mut recorder = Recorder::create(&path, &options).unwrap();
        recorder.event("0 p1.t1 read 3").unwrap();
        recorder.end().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("hunter2"));
        // No digest of a value is there either, only the names.
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(first["environment"], serde_json::json!(["PUMICE_LOSS", "SECRET"]));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE);
        let mut recording = Recording::open(&path).unwrap();
        let again = recording.header.options();
        assert_eq!((again.seed, &again.arguments, &again.program), (9, &options.arguments, &options.program));
        assert!(again.environment.contains(&("PUMICE_LOSS".into(), "1%".into())));
        assert!(recording.header.other_variables().contains(&"SECRET".to_owned()));
        assert_eq!(recording.next_event().as_deref(), Some("0 p1.t1 read 3"));
        assert_eq!(recording.next_event(), None);
        std::fs::remove_file(path).unwrap();
    }

    /// Returns a recording with this first line and these events.
    fn recording(first: &serde_json::Value, events: &[u8]) -> Result<Recording, String> {
        let mut bytes = format!("{first}\n").into_bytes();
        bytes.extend_from_slice(events);
        Recording::read(Path::new("x"), std::io::Cursor::new(bytes))
    }

    fn header() -> serde_json::Value {
        serde_json::to_value(Header::of(&WorldOptions::new(9, vec!["true".into()]))).unwrap()
    }

    #[test]
    fn what_is_no_recording_is_refused_by_a_sentence() {
        for (name, text) in [("empty", ""), ("text", "hello\n"), ("object", "{}\n"), ("binary", "\0\u{1}")] {
            let path = file(name, text);
            let refused = Recording::open(&path).unwrap_err();
            assert!(refused.contains("is no recording of a world"), "{refused}");
            std::fs::remove_file(path).unwrap();
        }
        assert!(Recording::open(Path::new("/nonexistent/x")).unwrap_err().contains("cannot be read"));
        assert!(Recording::open(Path::new("/dev/zero")).unwrap_err().contains("it is no file"));
    }

    #[test]
    fn hostile_first_lines_are_refused_by_a_sentence() {
        let whole = header().to_string();
        for end in 0..=whole.len() {
            let cut = std::io::Cursor::new(whole.as_bytes()[..end].to_vec());
            let refused = Recording::read(Path::new("x"), cut).unwrap_err();
            assert!(refused.contains("has no end"), "{end}: {refused}");
        }
        let many = vec![b' '; MAX_HEADER as usize + 1];
        let refused = Recording::read(Path::new("x"), std::io::Cursor::new(many)).unwrap_err();
        assert!(refused.contains("longer than 16 MiB"), "{refused}");
        let bad_text = b"{\"version\": 3, \"seed\": 1, \"\xff\": 1}\n".to_vec();
        let refused = Recording::read(Path::new("x"), std::io::Cursor::new(bad_text)).unwrap_err();
        assert!(refused.contains("its first line: ") && refused.lines().count() == 1, "{refused}");
        let far = serde_json::json!({"7": {"stall": u64::MAX}});
        let cases: [(&str, serde_json::Value, &str); 10] = [
            ("version", 1.into(), "of version 1; this pumice reads version 4"),
            ("version", u64::MAX.into(), "its first line: "),
            ("more\n", 1.into(), "its first line: unknown field `more `"),
            ("arguments", serde_json::json!([]), "it names no program"),
            ("arguments", serde_json::json!([[97, 0]]), "a text in it has a NUL byte"),
            ("arguments", serde_json::json!([[256]]), "its first line: "),
            ("settings", serde_json::json!([["LD_PRELOAD", [97]]]), "it sets \"LD_PRELOAD\""),
            ("settings", serde_json::json!([["PUMICE_A=", [97]]]), "it sets \"PUMICE_A=\""),
            (
                "draws",
                serde_json::json!({"switch_ppm": 1, "stall_ppm": u32::MAX, "longest_stall_ns": 1}),
                "rest more",
            ),
            ("departures", far, "rest more than threads can"),
        ];
        for (field, value, why) in cases {
            let mut first = header();
            first[field] = value;
            let refused = recording(&first, b"").unwrap_err();
            assert!(refused.contains(why) && refused.lines().count() == 1, "{why}: {refused}");
        }
    }

    #[test]
    fn what_is_no_event_is_refused_and_nothing_of_it_printed() {
        let whole = b"12 p1.t1 read -5\n".to_vec();
        let long = [&b"1 p1.t1 read "[..], &[b'1'; MAX_EVENT as usize], b"\n"].concat();
        let cases: [(&[u8], &str); 7] = [
            (&whole, "12 p1.t1 read -5"),
            (b"12 p1.t1 read", CUT_OFF),
            (b"12 p1.t1 read\n", NO_EVENT),
            (b"12 \xff\xfe read 1\n", NO_EVENT),
            (b"12 p1.t1 \x1b[2J 1\n", NO_EVENT),
            (b"\n", NO_EVENT),
            (&long, NO_EVENT),
        ];
        for (events, read) in cases {
            assert_eq!(recording(&header(), events).unwrap().next_event().as_deref(), Some(read));
        }
        let mut two = recording(&header(), &[&whole[..], b"13 p1"].concat()).unwrap();
        let both = [two.next_event(), two.next_event(), two.next_event()];
        assert_eq!(both, [Some("12 p1.t1 read -5".to_owned()), Some(CUT_OFF.to_owned()), None]);
    }
}
