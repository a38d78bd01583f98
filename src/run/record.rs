//! The record of what happened to a program's packets: a folder with the files of each process, which
//! [`pumice_device::settings::record`] names. A process has one report of faults and one tag, and each device
//! a capture and a file with its queue pairs.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use pumice_device::faults::MAX_PLAN_BYTES;
use pumice_device::outside::output_file::create_private_folder;
use pumice_device::platform::order::{Point, RequestReceiver};
use pumice_device::settings::record::{self, DEVICES, EXIT, FAULTS, ORDER, PACKETS, QUEUE_PAIRS, TAG};
use serde_json::Value;

/// Maximum number of files of a folder that are read.
const MAX_FILES: usize = 1 << 16;
/// Maximum length of a tag, and of a list of devices, in bytes.
const MAX_NOTE_BYTES: u64 = 4096;
/// Maximum length of a file with queue pairs, in bytes: some million lines.
const MAX_QUEUE_PAIRS_BYTES: u64 = 64 << 20;
/// Maximum length of a file with the order of a process, in bytes: a million points.
const MAX_ORDER_BYTES: u64 = 64 << 20;

/// The identity of a process: its name in plans and records, and its devices.
pub(crate) struct ProcessIdentity {
    pub(crate) tag: String,
    /// Names of its devices.
    pub(crate) devices: Vec<String>,
}

/// The files of one recorded process.
#[derive(Debug)]
pub(crate) struct RecordedProcess {
    pub(crate) tag: String,
    /// Exit code, as shells say it, if `pumice` started the process and waited for it.
    pub(crate) exit_code: Option<u8>,
    /// Report of faults, if rules applied to the process.
    faults: Option<PathBuf>,
    /// Order of its calls and of what arrived, if there were any.
    order: Option<PathBuf>,
    /// Devices of the process, at least one.
    pub(crate) devices: Vec<RecordedDevice>,
}

/// The files of a device of a recorded process.
#[derive(Debug)]
pub(crate) struct RecordedDevice {
    /// Name of the device, if the process had several.
    pub(crate) name: Option<String>,
    /// Capture, if the device sent or received anything.
    pub(crate) packets: Option<PathBuf>,
    /// File with its queue pairs, if it made any.
    queue_pairs: Option<PathBuf>,
}

/// Creates the folder, which only this user may enter, because the program's packets are in it.
///
/// # Errors
/// A sentence: why it cannot be created, and the remedy.
pub(super) fn begin(folder: &Path) -> Result<(), String> {
    create_private_folder(folder).map_err(|error| refused(folder, &error))
}

/// Notes which program this process is. A process that uses a device notes that itself, and may be another
/// one, because the program may run others.
///
/// # Errors
/// A sentence: why it cannot be written, and the remedy.
pub(super) fn note(folder: &Path, identity: &ProcessIdentity, process: u32) -> Result<(), String> {
    let names: Vec<&str> = identity.devices.iter().map(String::as_str).collect();
    record::note(folder, process, &identity.tag, &names).map_err(|(_, error)| refused(folder, &error))
}

/// Notes the exit code of the process.
///
/// # Errors
/// A sentence: why it cannot be written, and the remedy.
pub(super) fn note_exit(folder: &Path, process: u32, exit_code: u8) -> Result<(), String> {
    record::note_exit(folder, process, exit_code).map_err(|(_, error)| refused(folder, &error))
}

fn refused(folder: &Path, error: &std::io::Error) -> String {
    format!("--record {}: it cannot be written: {error}: name another folder", folder.display())
}

/// Reads the processes of a record, in the order of their names.
///
/// # Errors
/// A sentence: which file cannot be read, or is damaged.
pub(crate) fn read(folder: &Path) -> Result<Vec<RecordedProcess>, String> {
    let files = files(folder)?;
    let tags: Vec<&PathBuf> = files.iter().filter(|path| is(path, TAG)).collect();
    if tags.is_empty() {
        let name = folder.display();
        return Err(format!("{name} has no record: name a folder that pumice run --record has written"));
    }
    tags.into_iter().map(|tag| RecordedProcess::read(tag, &files)).collect()
}

/// Returns the files of a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let name = folder.display();
    let broken = |error: std::io::Error| {
        format!("{name}: {error}: name a folder that pumice run --record has written")
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(broken)? {
        if files.len() == MAX_FILES {
            return Err(format!("{name} has more than {MAX_FILES} files: record a shorter run"));
        }
        files.push(entry.map_err(broken)?.path());
    }
    files.sort();
    Ok(files)
}

fn is(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|own| own == extension)
}

/// Reads the text of a file of a record, which has at most `most` bytes.
fn text_of(file: &Path, most: u64) -> Result<String, String> {
    let name = file.display();
    let broken = |problem: String| format!("{name} cannot be read: {problem}");
    let mut text = String::new();
    // Opening a pipe would wait for its other end.
    let about = fs::metadata(file).map_err(|error| broken(error.to_string()))?;
    if !about.is_file() {
        return Err(broken("it is no file".to_owned()));
    }
    let read = File::open(file).and_then(|file| file.take(most.saturating_add(1)).read_to_string(&mut text));
    read.map_err(|error| broken(error.to_string()))?;
    if text.len() as u64 > most {
        return Err(broken(format!("it has more than {most} bytes")));
    }
    Ok(text)
}

/// Reads the exit code that a file notes.
fn exit_code_in(file: &Path) -> Result<u8, String> {
    let text = text_of(file, MAX_NOTE_BYTES)?;
    text.trim_end().parse().map_err(|_| damaged(file, &format!("{:?} is no exit code", text.trim_end())))
}

/// Returns the sentence for damage in a file of a record.
fn damaged(file: &Path, problem: &str) -> String {
    format!("{}: {problem}: the record is damaged, record the run again", file.display())
}

impl RecordedProcess {
    /// Reads the process with this tag; `files` are those of its folder.
    fn read(tag: &Path, files: &[PathBuf]) -> Result<RecordedProcess, String> {
        let list = tag.with_extension(DEVICES);
        let names = if files.binary_search(&list).is_ok() {
            let text = text_of(&list, MAX_NOTE_BYTES)?;
            record::devices_in(&text).map_err(|problem| damaged(&list, &problem))?
        } else {
            Vec::new()
        };
        let there = |file: PathBuf| Some(file).filter(|file| files.binary_search(file).is_ok());
        let device = |(index, name): (usize, Option<&String>)| {
            let file = |extension| {
                let pattern = tag.with_extension(extension);
                there(record::process_file(&pattern, index, name.map_or("", String::as_str)))
            };
            RecordedDevice { name: name.cloned(), packets: file(PACKETS), queue_pairs: file(QUEUE_PAIRS) }
        };
        let each = names.iter().map(Some).chain(names.is_empty().then_some(None)).enumerate();
        let devices: Vec<RecordedDevice> = each.map(device).collect();
        of_its_devices(tag, files, &devices)?;
        let exit_code = there(tag.with_extension(EXIT)).map(|file| exit_code_in(&file)).transpose()?;
        let [faults, order] = [FAULTS, ORDER].map(|extension| there(tag.with_extension(extension)));
        Ok(RecordedProcess { tag: text_of(tag, MAX_NOTE_BYTES)?, exit_code, faults, order, devices })
    }

    /// Reads its calls and arrivals, in order.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub(crate) fn order(&self) -> Result<Vec<Point<RequestReceiver>>, String> {
        let Some(file) = &self.order else { return Ok(Vec::new()) };
        let text = text_of(file, MAX_ORDER_BYTES)?;
        let complete_lines = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
        // The process may have been killed in the middle of the last line.
        let wrong = |number: usize| damaged(file, &format!("line {}: it is no point", number + 1));
        let point = |(number, line)| Point::written_down(line).ok_or_else(|| wrong(number));
        complete_lines.lines().enumerate().map(point).collect()
    }

    /// Reads the lines of its report of faults, each about a device that the process had.
    ///
    /// # Errors
    /// It cannot be read, or a line is about another device.
    pub(crate) fn report(&self) -> Result<Vec<String>, String> {
        let Some(file) = &self.faults else { return Ok(Vec::new()) };
        let text = text_of(file, MAX_PLAN_BYTES)?;
        for (number, line) in text.lines().enumerate() {
            self.check_device(line)
                .map_err(|problem| damaged(file, &format!("line {}: {problem}", number + 1)))?;
        }
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Checks that a line of the report is about a device that the process had. Other damage is found when
    /// the report is parsed as a plan.
    fn check_device(&self, line: &str) -> Result<(), String> {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        let had = |device: &str| self.devices.iter().any(|own| own.name.as_deref() == Some(device));
        // Lines about calls and processes may name no device.
        let is_of_process = value["process"].is_string() || value["call"].is_string();
        match value["device"].as_str() {
            Some(device) if !had(device) => Err(format!("the process had no device {device:?}")),
            None if self.devices.len() > 1 && value.is_object() && !is_of_process => {
                Err("it names no device, and the process had several".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Reports whether the process had these devices. A single device may have another name now.
    pub(crate) fn had(&self, devices: &[String]) -> bool {
        let name = |device: &RecordedDevice| device.name.clone();
        let Some(mut own) = self.devices.iter().map(name).collect::<Option<Vec<String>>>() else {
            return devices.len() == 1;
        };
        let mut given = devices.to_vec();
        own.sort();
        given.sort();
        own == given
    }
}

impl RecordedDevice {
    /// Reads the lines about its queue pairs.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn queue_pairs(&self) -> Result<String, String> {
        self.queue_pairs.as_deref().map_or(Ok(String::new()), |file| text_of(file, MAX_QUEUE_PAIRS_BYTES))
    }
}

/// Checks that all files of devices of a process belong to devices that it had.
fn of_its_devices(tag: &Path, files: &[PathBuf], devices: &[RecordedDevice]) -> Result<(), String> {
    let process = tag.file_stem().unwrap_or_default().to_string_lossy();
    let known = || devices.iter().flat_map(|device| [&device.packets, &device.queue_pairs]).flatten();
    let is_unknown = |file: &&PathBuf| {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let is_of_device = stem.strip_prefix(&*process).is_some_and(|rest| rest.starts_with('-'));
        let is_own = is_of_device && (is(file, PACKETS) || is(file, QUEUE_PAIRS));
        is_own && !known().any(|known| known == *file)
    };
    match files.iter().find(is_unknown) {
        Some(file) => Err(damaged(file, "it is of a device that the process did not have")),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
