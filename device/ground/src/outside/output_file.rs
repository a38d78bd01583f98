//! Files that people ask a program for beside its traffic: captures, reports, records.
//!
//! That such a file cannot be written any more must neither end the program nor go unsaid: one sentence names
//! the file and the reason, what was whole stays, and nothing more comes.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::process::{Resource, geteuid, getrlimit};

use super::unsignalled::Unsignalled;
use crate::printable::printable;

/// Only its owner reads and writes it.
const PRIVATE: u32 = 0o600;

/// Takes a sentence for the operator.
pub type Say = Box<dyn Fn(&str) + Send>;

/// How many of these bytes, which could be written, are whole pieces: the rest is taken away again.
pub type Whole = fn(&[u8]) -> usize;

/// Opens a file for writing that only this user may read, and makes it if it is not there: it holds what
/// programs send. What is in it stays. A pipe or a device, such as /dev/null, is opened as it is.
///
/// # Errors
/// What the system says.
pub fn open_private(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(PRIVATE).open(path)?;
    make_private(&file)?;
    Ok(file)
}

/// The same, for writing behind what is in it.
///
/// # Errors
/// What the system says.
pub fn open_private_at_end(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create(true).mode(PRIVATE).open(path)?;
    make_private(&file)?;
    Ok(file)
}

/// Takes the rights of others to a regular file of this user's away.
fn make_private(file: &File) -> io::Result<()> {
    let about = file.metadata()?;
    let is_own = about.is_file() && about.uid() == geteuid().as_raw();
    if is_own && about.mode() & 0o7777 != PRIVATE {
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    Ok(())
}

/// Makes a folder that only this user may use, and those above it that are missing. One that is there stays
/// as it is.
///
/// # Errors
/// What the system says.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that only this user may read, in the place of an older one.
///
/// # Errors
/// What the system says.
pub fn write_private(path: &Path, text: &[u8]) -> io::Result<()> {
    let _held = Unsignalled::begin();
    let mut file = open_private(path)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text)
}

/// Says something to the operator: for programs that have no other way.
pub fn on_standard_error(sentence: &str) {
    let _held = Unsignalled::begin();
    // A program without standard error has chosen not to know.
    let _ = io::stderr().write_all(format!("pumice: {}\n", printable(sentence)).as_bytes());
}

/// Lines are whole pieces.
pub fn whole_lines(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

/// A file that is written until that fails.
pub struct OutputFile {
    file: File,
    path: PathBuf,
    /// What it is: "the capture".
    what: &'static str,
    whole: Whole,
    say: Say,
    /// Why it ended.
    ended: Option<io::ErrorKind>,
    /// That was said; of all handles.
    said: Arc<AtomicBool>,
}

impl std::fmt::Debug for OutputFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl OutputFile {
    /// What is written to `file` from now on, which is at `path`; `what` names it in the sentence.
    pub fn new(file: File, path: PathBuf, what: &'static str, whole: Whole, say: Say) -> OutputFile {
        OutputFile { file, path, what, whole, say, ended: None, said: Arc::default() }
    }

    /// A new file that only this user may read, in the place of an older one.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path, what: &'static str, whole: Whole, say: Say) -> io::Result<OutputFile> {
        let file = open_private(path)?;
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        Ok(OutputFile::new(file, path.to_owned(), what, whole, say))
    }

    /// Another handle of the same file, which ends by itself; of both, one says so.
    ///
    /// # Errors
    /// What the system says.
    pub fn another(&self, say: Say) -> io::Result<OutputFile> {
        let other = OutputFile::new(self.file.try_clone()?, self.path.clone(), self.what, self.whole, say);
        Ok(OutputFile { ended: self.ended, said: Arc::clone(&self.said), ..other })
    }

    /// Writes all of the bytes, or ends the file after the last whole piece.
    ///
    /// # Errors
    /// The file has ended, which was said.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(ended) = self.ended {
            return Err(ended.into());
        }
        let held = Unsignalled::begin();
        let (written, result) = self.write_as_much(bytes);
        if result.is_err() {
            let kept = bytes.get(..written).map_or(0, self.whole);
            self.take_back(written - kept);
        }
        drop(held);
        result.inspect_err(|error| {
            self.ended = Some(error.kind());
            self.tell(error, "ends here");
        })
    }

    /// Writes a document in the place of the one that is there, which stays if there is no room for another.
    ///
    /// # Errors
    /// What the system says; it was said before, or now.
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
        replaced.inspect_err(|error| self.tell(error, "is not complete"))
    }

    /// Whether something could not be written.
    pub fn has_failed(&self) -> bool {
        self.said.load(Ordering::Relaxed)
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

    /// Takes back what was written last, unless another handle has written behind it.
    fn take_back(&mut self, bytes: usize) {
        let Ok(about) = self.file.metadata() else { return };
        let Some(before) = about.len().checked_sub(bytes as u64).filter(|_| about.is_file()) else { return };
        if self.file.stream_position().is_ok_and(|at| at == about.len()) && self.file.set_len(before).is_ok()
        {
            // If that fails, nothing more is written anyway.
            let _ = self.file.seek(SeekFrom::Start(before));
        }
    }

    /// Takes the room for so many bytes, so that a document that is there is not destroyed for one that has
    /// none.
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
            // A file system that cannot say.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn tell(&mut self, error: &io::Error, how: &str) {
        if !self.said.swap(true, Ordering::Relaxed) {
            (self.say)(&format!(
                "{}: {} {how}, because it cannot be written: {error}; the program goes on",
                self.path.display(),
                self.what
            ));
        }
    }
}

/// All of the bytes, or an error.
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

    /// A file whose writes fail: there is no room on this device.
    fn full(said: &Arc<Mutex<Vec<String>>>) -> OutputFile {
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let told = Arc::clone(said);
        let say: Say = Box::new(move |sentence| told.lock().unwrap().push(sentence.to_owned()));
        OutputFile::new(file, "/a/full".into(), "the report", whole_lines, say)
    }

    #[test]
    fn a_failure_is_said_once_with_file_and_reason() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let mut output = full(&said);
        assert_eq!(output.append(b"line\n").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(output.write_all(b"line\n").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(output.replace(b"document").is_err() && output.has_failed());
        let sentence = "/a/full: the report ends here, because it cannot be written: No space left on \
                        device (os error 28); the program goes on";
        assert_eq!(*said.lock().unwrap(), [sentence]);
    }

    #[test]
    fn what_is_written_is_private_and_whole() {
        let path = std::env::temp_dir().join(format!("pumice-output-{}", std::process::id()));
        std::fs::write(&path, "an older document that is longer").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let file = open_private(&path).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, PRIVATE);
        let mut output = OutputFile::new(file, path.clone(), "the report", whole_lines, Box::new(|_| {}));
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
            [whole_lines(b""), whole_lines(b"a"), whole_lines(b"a\nb"), whole_lines(b"a\nb\n")],
            [0, 0, 2, 4]
        );
    }
}
