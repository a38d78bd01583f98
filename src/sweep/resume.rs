//! Writes results to a file as they arrive, so that a sweep that was stopped can be resumed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::options::SweepOptions;
use super::verdict::Judgement;

/// The first line: the program and the options of the sweep.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct JournalHeading {
    program: Vec<String>,
    server: Option<String>,
    sweep_server: bool,
}

impl JournalHeading {
    fn of(options: &SweepOptions) -> JournalHeading {
        let program = options.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        JournalHeading { program, server: options.server.clone(), sweep_server: options.sweep_server }
    }
}

/// A file of results; nothing is written without `--resume`.
#[derive(Debug)]
pub(super) struct Journal(Option<File>);

impl Journal {
    /// Opens the file that the options name, and returns the journal with the results in it.
    ///
    /// # Errors
    /// A sentence: the file cannot be read or written, or it is about another program.
    pub(super) fn open(options: &SweepOptions) -> Result<(Journal, Vec<Judgement>), String> {
        let Some(path) = &options.resume else { return Ok((Journal(None), Vec::new())) };
        let cannot = |error: io::Error| format!("--resume {}: {error}", path.display());
        let before = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(cannot)?,
        };
        // A line that was cut off is written again.
        let complete_lines = before.rfind('\n').map_or("", |end| before.get(..=end).unwrap_or_default());
        let mut lines = complete_lines.lines();
        let heading = JournalHeading::of(options);
        let known: Vec<Judgement> = match lines.next() {
            None => Vec::new(),
            Some(first) if serde_json::from_str(first).ok().as_ref() == Some(&heading) => {
                lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
            }
            Some(_) => {
                return Err(format!("--resume {}: it is about another command; remove it", path.display()));
            }
        };
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(cannot)?;
        file.set_len(complete_lines.len() as u64).map_err(cannot)?;
        let mut journal = Journal(Some(file));
        if complete_lines.is_empty() {
            journal.write(&heading).map_err(cannot)?;
        }
        Ok((journal, known))
    }

    /// Appends a result.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn note(&mut self, judgement: &Judgement) -> io::Result<()> {
        self.write(judgement)
    }

    fn write(&mut self, value: &impl Serialize) -> io::Result<()> {
        let Some(file) = &mut self.0 else { return Ok(()) };
        let line = serde_json::to_string(value)?;
        file.write_all(format!("{line}\n").as_bytes())
    }
}
