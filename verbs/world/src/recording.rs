//! A run in a file: what it takes to run it again, and what happened, event by event.
//!
//! The first line is JSON, of version 1; each further line is one event. Files are hostile: what is too long
//! or has another form is refused.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::Hasher as _;
use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use fnv::FnvHasher;
use serde::{Deserialize, Serialize};

use crate::options::{Departure, Draws, WorldOptions};

/// The version of the form.
const VERSION: u32 = 1;
/// Bytes of a recording at most.
const MOST_BYTES: u64 = 1 << 30;
/// Bytes of its first line at most.
const MOST_HEADER: u64 = 1 << 24;

/// What it takes to run a recorded run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The version of the form.
    pub version: u32,
    /// The seed of the run.
    pub seed: u64,
    /// The program, by the bytes of its name.
    program: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    /// The folder in which it was run.
    folder: Vec<u8>,
    private_folders: Vec<Vec<u8>>,
    /// The names of the variables of its environment, and what their values hash to: values may be secrets.
    environment: BTreeMap<String, u64>,
    /// The values of those that decide what the run does: they are not secret.
    settings: Vec<(String, Vec<u8>)>,
    draws: Draws,
    departures: Option<BTreeMap<u64, Departure>>,
}

/// Begins of names of variables whose values a recording keeps.
const KEPT: [&str; 1] = ["PUMICE_"];

impl Header {
    /// That of a run.
    pub(crate) fn of(options: &WorldOptions) -> Header {
        let bytes = |text: &OsStr| text.as_bytes().to_vec();
        let is_kept = |name: &str| KEPT.iter().any(|begin| name.starts_with(begin));
        let variables =
            || options.environment.iter().filter_map(|(name, value)| Some((name.to_str()?, value)));
        Header {
            version: VERSION,
            seed: options.seed,
            program: bytes(&options.program),
            arguments: options.arguments.iter().map(|one| bytes(one)).collect(),
            folder: std::env::current_dir().map_or_else(|_| Vec::new(), |folder| bytes(folder.as_os_str())),
            private_folders: options.private_folders.iter().map(|one| bytes(one.as_os_str())).collect(),
            environment: variables()
                .map(|(name, value)| (name.to_owned(), digest(value.as_bytes())))
                .collect(),
            settings: variables()
                .filter(|(name, _)| is_kept(name))
                .map(|(name, value)| (name.to_owned(), bytes(value)))
                .collect(),
            draws: options.draws,
            departures: options.departures.clone(),
        }
    }

    /// The program and its arguments, to read.
    pub fn command(&self) -> String {
        let texts = self.arguments.iter().map(|one| String::from_utf8_lossy(one).into_owned());
        texts.collect::<Vec<_>>().join(" ")
    }

    /// The run that is recorded, with the environment of this process and the settings of the recording.
    pub fn options(&self) -> WorldOptions {
        let text = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
        let mut options = WorldOptions::new(self.seed, self.arguments.iter().map(text).collect());
        options.program = text(&self.program);
        options.private_folders = self.private_folders.iter().map(|one| PathBuf::from(text(one))).collect();
        options.draws = self.draws;
        options.departures.clone_from(&self.departures);
        options.environment.retain(|(name, _)| {
            !name.to_str().is_some_and(|name| KEPT.iter().any(|kept| name.starts_with(kept)))
        });
        let settings = self.settings.iter().map(|(name, value)| (name.into(), text(value)));
        options.environment.extend(settings);
        options
    }

    /// The folder in which it was run.
    pub fn folder(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.folder.clone()))
    }

    /// The variables that differ from those of this process, by name.
    pub fn other_variables(&self) -> Vec<String> {
        let now = Header::of(&self.options()).environment;
        let names = self.environment.keys().chain(now.keys());
        let mut other: Vec<String> =
            names.filter(|name| self.environment.get(*name) != now.get(*name)).cloned().collect();
        other.sort();
        other.dedup();
        other
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// A recording that is being written.
pub(crate) struct Recorder(BufWriter<File>);

impl Recorder {
    pub(crate) fn create(path: &Path, options: &WorldOptions) -> std::io::Result<Recorder> {
        let mut file = BufWriter::new(File::create(path)?);
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
    /// What it takes to run it again.
    pub header: Header,
    lines: BufReader<std::io::Take<File>>,
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
    /// A sentence: it cannot be read, or is none.
    pub fn open(path: &Path) -> Result<Recording, String> {
        let name = path.display();
        let file = File::open(path).map_err(|error| format!("{name} cannot be read: {error}"))?;
        let is_file = file.metadata().is_ok_and(|known| known.is_file() && known.len() <= MOST_BYTES);
        if !is_file {
            return Err(format!("{name} is no recording of a world: it is no file, or longer than 1 GiB"));
        }
        let mut lines = BufReader::new(file.take(MOST_BYTES));
        let mut first = Vec::new();
        lines
            .by_ref()
            .take(MOST_HEADER)
            .read_until(b'\n', &mut first)
            .map_err(|error| format!("{name} cannot be read: {error}"))?;
        let header: Header = serde_json::from_slice(&first)
            .map_err(|error| format!("{name} is no recording of a world: its first line: {error}"))?;
        if header.version != VERSION {
            let version = header.version;
            return Err(format!(
                "{name} is a recording of version {version}; this pumice reads version {VERSION}"
            ));
        }
        if header.arguments.is_empty() {
            return Err(format!("{name} is no recording of a world: it names no program"));
        }
        Ok(Recording { header, lines })
    }

    /// The next event; `None`: there is none any more.
    pub(crate) fn next_event(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let read = self.lines.by_ref().take(MOST_HEADER).read_until(b'\n', &mut line).ok()?;
        (read > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_owned())
    }
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
        assert!(!std::fs::read_to_string(&path).unwrap().contains("hunter2"));
        let mut recording = Recording::open(&path).unwrap();
        let again = recording.header.options();
        assert_eq!((again.seed, &again.arguments, &again.program), (9, &options.arguments, &options.program));
        assert!(again.environment.contains(&("PUMICE_LOSS".into(), "1%".into())));
        assert!(recording.header.other_variables().contains(&"SECRET".to_owned()));
        assert_eq!(recording.next_event().as_deref(), Some("0 p1.t1 read 3"));
        assert_eq!(recording.next_event(), None);
        std::fs::remove_file(path).unwrap();
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
    }
}
