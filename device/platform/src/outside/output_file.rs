//! Files that a program writes on request beside its traffic: captures, reports, records.
//!
//! A failed write to such a file must neither end the program nor go unreported: one sentence names the file
//! and the reason, what was whole stays, and nothing more is written.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::process::{Resource, geteuid, getrlimit};

use super::system_call::Unsignalled;
use crate::error::printable;

/// The mode of a file that only its owner reads and writes.
const PRIVATE: u32 = 0o600;

/// A closure that gets a sentence for the operator.
pub type MessageSink = Box<dyn Fn(&str) + Send>;

/// A function that returns how many of these bytes, which could be written, are whole pieces: the rest is
/// removed again.
pub type CompletePrefix = fn(&[u8]) -> usize;

/// Opens a file for writing that only this user may read, and creates it if it does not exist: it holds what
/// programs send. Its content stays. A pipe or a device, such as /dev/null, is opened as it is.
///
/// # Errors
/// The system's error.
pub fn open_private(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(PRIVATE).open(path)?;
    make_private(&file)?;
    Ok(file)
}

/// Opens a private file as [`open_private`] does, for appending.
///
/// # Errors
/// The system's error.
pub fn open_private_at_end(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create(true).mode(PRIVATE).open(path)?;
    make_private(&file)?;
    Ok(file)
}

/// Removes the rights of others to a regular file of this user.
fn make_private(file: &File) -> io::Result<()> {
    let about = file.metadata()?;
    let is_own = about.is_file() && about.uid() == geteuid().as_raw();
    if is_own && about.mode() & 0o7777 != PRIVATE {
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    Ok(())
}

/// Creates a folder that only this user may use, and those above it that are missing. An existing folder
/// stays as it is.
///
/// # Errors
/// The system's error.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that only this user may read, in the place of an older one.
///
/// # Errors
/// The system's error.
pub fn write_private(path: &Path, text: &[u8]) -> io::Result<()> {
    let _held = Unsignalled::begin();
    let mut file = open_private(path)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text)
}

/// Writes a sentence for the operator to standard error: for programs that have no other way.
pub fn on_standard_error(sentence: &str) {
    let _held = Unsignalled::begin();
    // A program without standard error does not want to know.
    let _ = io::stderr().write_all(format!("pumice: {}\n", printable(sentence)).as_bytes());
}

/// Returns the length of the whole lines in `bytes`, which are the whole pieces of a text file.
pub fn complete_lines(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

/// A file that is written until a write fails.
pub struct OutputFile {
    file: File,
    path: PathBuf,
    /// The name of the file's kind in sentences: "the capture".
    purpose: &'static str,
    complete_prefix: CompletePrefix,
    sink: MessageSink,
    /// The reason why the file ended.
    ended: Option<io::ErrorKind>,
    /// True if the end was reported; shared by all handles.
    has_reported: Arc<AtomicBool>,
}

impl std::fmt::Debug for OutputFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl OutputFile {
    /// Returns the output to `file`, which is at `path`; `purpose` names it in sentences.
    pub fn new(
        file: File,
        path: PathBuf,
        purpose: &'static str,
        complete_prefix: CompletePrefix,
        sink: MessageSink,
    ) -> OutputFile {
        OutputFile { file, path, purpose, complete_prefix, sink, ended: None, has_reported: Arc::default() }
    }

    /// Creates a file that only this user may read, in the place of an older one.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(
        path: &Path,
        purpose: &'static str,
        complete_prefix: CompletePrefix,
        sink: MessageSink,
    ) -> io::Result<OutputFile> {
        let file = open_private(path)?;
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        Ok(OutputFile::new(file, path.to_owned(), purpose, complete_prefix, sink))
    }

    /// Returns another handle of the same file, which ends independently; only one of them reports it.
    ///
    /// # Errors
    /// The system's error.
    pub fn another(&self, sink: MessageSink) -> io::Result<OutputFile> {
        let other = OutputFile::new(
            self.file.try_clone()?,
            self.path.clone(),
            self.purpose,
            self.complete_prefix,
            sink,
        );
        Ok(OutputFile { ended: self.ended, has_reported: Arc::clone(&self.has_reported), ..other })
    }

    /// Writes all of the bytes, or ends the file after the last whole piece.
    ///
    /// # Errors
    /// The file has ended, which was reported.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(ended) = self.ended {
            return Err(ended.into());
        }
        let held = Unsignalled::begin();
        let (written, result) = self.write_as_much(bytes);
        if result.is_err() {
            let kept = bytes.get(..written).map_or(0, self.complete_prefix);
            self.take_back(written - kept);
        }
        drop(held);
        result.inspect_err(|error| {
            self.ended = Some(error.kind());
            self.report_error(error, "ends here");
        })
    }

    /// Replaces the document in the file, which stays if there is no room for the new one.
    ///
    /// # Errors
    /// The system's error; it was reported before, or now.
    pub fn replace(&mut self, document: &[u8]) -> io::Result<()> {
        let held = Unsignalled::begin();
        let replaced = self.reserve(document.len() as u64).and_then(|()| {
            self.file.rewind()?;
            self.file.write_all(document)?;
            if self.file.metadata()?.is_file() {
                self.file.set_len(document.len() as u64)?;
            }
            Ok(())
        });
        drop(held);
        replaced.inspect_err(|error| self.report_error(error, "is not complete"))
    }

    /// Reports whether something could not be written.
    pub fn has_failed(&self) -> bool {
        self.has_reported.load(Ordering::Relaxed)
    }

    fn write_as_much(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }

    /// Removes what was written last, unless another handle has written behind it.
    fn take_back(&mut self, bytes: usize) {
        let Ok(about) = self.file.metadata() else { return };
        let Some(before) = about.len().checked_sub(bytes as u64).filter(|_| about.is_file()) else { return };
        if self.file.stream_position().is_ok_and(|at| at == about.len()) && self.file.set_len(before).is_ok()
        {
            // If that fails, nothing more is written anyway.
            let _ = self.file.seek(SeekFrom::Start(before));
        }
    }

    /// Allocates room for `bytes` bytes, so that the present document is not destroyed for one that has no
    /// room.
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let about = self.file.metadata()?;
        if !about.is_file() || about.len() >= bytes {
            return Ok(());
        }
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let (length, missing) = (about.len(), bytes - about.len());
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, length, missing) {
            // The file system may be unable to allocate.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn report_error(&mut self, error: &io::Error, how: &str) {
        if !self.has_reported.swap(true, Ordering::Relaxed) {
            (self.sink)(&format!(
                "{}: {} {how}, because it cannot be written: {error}; the program goes on",
                self.path.display(),
                self.purpose
            ));
        }
    }
}

/// Writes all of the bytes, or returns an error.
impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Returns a file whose writes fail: there is no room on this device.
    fn full(has_reported: &Arc<Mutex<Vec<String>>>) -> OutputFile {
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let messages = Arc::clone(has_reported);
        let sink: MessageSink = Box::new(move |sentence| messages.lock().unwrap().push(sentence.to_owned()));
        OutputFile::new(file, "/a/full".into(), "the report", complete_lines, sink)
    }

    #[test]
    fn a_failure_is_said_once_with_file_and_reason() {
        let has_reported = Arc::new(Mutex::new(Vec::new()));
        let mut output = full(&has_reported);
        assert_eq!(output.append(b"line\n").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(output.write_all(b"line\n").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(output.replace(b"document").is_err() && output.has_failed());
        let sentence = "/a/full: the report ends here, because it cannot be written: No space left on \
                        device (os error 28); the program goes on";
        assert_eq!(*has_reported.lock().unwrap(), [sentence]);
    }

    #[test]
    fn what_is_written_is_private_and_whole() {
        let path = std::env::temp_dir().join(format!("pumice-output-{}", std::process::id()));
        std::fs::write(&path, "an older document that is longer").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let file = open_private(&path).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, PRIVATE);
        let mut output = OutputFile::new(file, path.clone(), "the report", complete_lines, Box::new(|_| {}));
        output.replace(b"short").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"short");
        output.replace(b"longer than before").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"longer than before");
        output.append(b", and more").unwrap();
        output.take_back(", and more".len());
        assert_eq!(std::fs::read(&path).unwrap(), b"longer than before");
        assert!(!output.has_failed());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn lines_are_whole_pieces() {
        assert_eq!(
            [complete_lines(b""), complete_lines(b"a"), complete_lines(b"a\nb"), complete_lines(b"a\nb\n")],
            [0, 0, 2, 4]
        );
    }
}
