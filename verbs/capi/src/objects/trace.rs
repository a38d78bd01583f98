//! The trace that the settings ask for.

use std::io;
use std::path::Path;
use std::sync::Mutex;

use pumice_device::outside;
use pumice_device::outside::lineage::PerProcess;
use pumice_device::settings::{MAX_DEVICES, SettingError, Settings, TRACE};
use pumice_device::trace::{DEFAULT_LIMIT_BYTES, TraceFile, TraceSource, create_private};

use super::device::Device;
use crate::ground::errno::Errno;
use crate::ground::log::print_always;
use crate::ground::own_file::{Written, expand, open_own_by};
use crate::ground::process::own_process;

/// Where the settings want everything recorded; opened when the port is there.
pub(crate) fn source(settings: &Settings, device: &'static Device) -> Option<TraceSource> {
    static WRITTEN: [Written; MAX_DEVICES] = [const { PerProcess::new(|_| Mutex::new(None)) }; MAX_DEVICES];
    let pattern = device.own_file(settings.trace.as_deref()?);
    let written = WRITTEN.get(device.index())?;
    let limit_bytes = settings.trace_limit_bytes.unwrap_or(DEFAULT_LIMIT_BYTES);
    Some(Box::new(move || {
        // The file of an earlier device of this process was closed with the device.
        let (file, path) = open_own_by(&pattern, written, || {}, create_private)?;
        if path != expand(&pattern, own_process()) {
            print_always(&format!(
                "{} is being written by another process; the trace of process {} is {}",
                pattern.display(),
                own_process(),
                path.display()
            ));
        }
        let say = Box::new(move |sentence: &str| print_always(&format!("{}: {sentence}", path.display())));
        Ok(TraceFile { file, limit_bytes, program: program(), say })
    }))
}

/// Name of the program.
fn program() -> String {
    let called = outside::environment::program();
    Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The sentence and the errno for a trace that cannot be written.
#[cold]
pub(crate) fn refused(settings: &Settings, error: &io::Error) -> Errno {
    let path = settings.trace.as_deref().unwrap_or(Path::new(""));
    let problem = format!("a trace cannot be written there: {error}");
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    SettingError::new(TRACE, path.to_string_lossy(), problem).with_errno(errno).into()
}
