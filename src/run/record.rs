//! A record of what happened to a program's packets: a folder with four files for each process, the report
//! of faults, the capture, one with its tag and one with its queue pairs.

use std::fs;
use std::path::{Path, PathBuf};

/// Files of a process; `%p` stands for its number.
pub(super) const FAULTS: &str = "%p.faults";
pub(super) const PACKETS: &str = "%p.pcapng";
/// How the name of the file with a tag ends.
const TAG: &str = "tag";

/// What one process has left.
pub(crate) struct Recorded {
    pub(crate) tag: String,
    /// The report of faults, if rules concerned the process.
    pub(crate) faults: Option<PathBuf>,
    /// The capture, if the process sent or received anything.
    pub(crate) packets: Option<PathBuf>,
    /// Its queue pairs, if it made any.
    pub(crate) queue_pairs: Option<PathBuf>,
}

/// Makes the folder.
///
/// # Errors
/// It cannot be made, and the remedy.
pub(super) fn begin(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| refused(folder, &error))
}

/// Notes the tag of the program that this process is. A process that uses the device notes its own, which may
/// be another: the program may run others.
///
/// # Errors
/// It cannot be written, and the remedy.
pub(super) fn note(folder: &Path, tag: &str, process: u32) -> Result<(), String> {
    fs::write(folder.join(format!("{process}.{TAG}")), tag).map_err(|error| refused(folder, &error))
}

fn refused(folder: &Path, error: &std::io::Error) -> String {
    format!("--record {}: it cannot be written: {error}: name another folder", folder.display())
}

/// The processes of a record, in the order of their names.
///
/// # Errors
/// What cannot be read.
pub(crate) fn read(folder: &Path) -> Result<Vec<Recorded>, String> {
    let broken = |error: std::io::Error| {
        format!("{}: {error}: name a folder that pumice run --record has written", folder.display())
    };
    let mut tags: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).map_err(broken)? {
        let path = entry.map_err(broken)?.path();
        if path.extension().is_some_and(|extension| extension == TAG) {
            tags.push(path);
        }
    }
    tags.sort();
    if tags.is_empty() {
        let name = folder.display();
        return Err(format!("{name} has no record: name a folder that pumice run --record has written"));
    }
    let recorded = |path: &PathBuf| {
        let there = |extension: &str| Some(path.with_extension(extension)).filter(|file| file.exists());
        let tag = fs::read_to_string(path).map_err(broken)?;
        Ok(Recorded { tag, faults: there("faults"), packets: there("pcapng"), queue_pairs: there("qps") })
    };
    tags.iter().map(recorded).collect()
}
