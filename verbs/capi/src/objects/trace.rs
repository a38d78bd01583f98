//! The trace that the settings ask for.

use std::io;
use std::path::Path;
use std::sync::Mutex;

use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::settings::{MAX_DEVICES, SettingError, Settings, TRACE};
use pumice_device::trace::{DEFAULT_LIMIT_BYTES, TraceFile, TraceSource, create_private};

use super::device::Device;
use crate::log::print_always;
use crate::platform::errno::Errno;
use crate::platform::process::current_pid;
use crate::platform::process_file::{WrittenPath, expand, open_process_file_by};

/// Returns a function that opens the trace of the settings when the port is open.
pub(crate) fn source(settings: &Settings, device: &'static Device) -> Option<TraceSource> {
    static WRITTEN: [WrittenPath; MAX_DEVICES] =
        [const { PerProcess::new(|_| Mutex::new(None)) }; MAX_DEVICES];
    let pattern = device.process_file(settings.trace.as_deref()?);
    let written = WRITTEN.get(device.index())?;
    let limit_bytes = settings.trace_limit_bytes.unwrap_or(DEFAULT_LIMIT_BYTES);
    Some(Box::new(move || {
        // The file of an earlier device of this process was closed with the device.
        let (file, path) = open_process_file_by(&pattern, written, || {}, create_private)?;
        if path != expand(&pattern, current_pid()) {
            print_always(&format!(
                "{} is being written by another process; the trace of process {} is {}",
                pattern.display(),
                current_pid(),
                path.display()
            ));
        }
        let on_problem =
            Box::new(move |sentence: &str| print_always(&format!("{}: {sentence}", path.display())));
        Ok(TraceFile { file, limit_bytes, program: program(), on_problem })
    }))
}

/// Returns the name of the program.
fn program() -> String {
    let called = outside::environment::program();
    Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Logs that a trace cannot be written, and returns the errno.
#[cold]
pub(crate) fn refused(settings: &Settings, error: &io::Error) -> Errno {
    let path = settings.trace.as_deref().unwrap_or(Path::new(""));
    let problem = format!("a trace cannot be written there: {error}");
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    SettingError::new(TRACE, path.to_string_lossy(), problem).with_errno(errno).into()
}
