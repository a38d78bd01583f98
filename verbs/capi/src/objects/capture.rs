//! Captures and traces that the settings ask for, and facts about a process in them.
//!
//! Facts about a process in a record, besides its packets: its tag, its devices, and their queue pairs by
//! ordinal.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_device::capture::whole_blocks;
use pumice_device::event::{Event, Subscriber, Topics};
use pumice_device::faults::FaultPlan;
use pumice_device::listeners::ReportSource;
use pumice_device::opening::CaptureSource;
use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::outside::output_file::{OutputFile, complete_lines, open_private_at_end};
use pumice_device::outside::system_call::Uncancelled;
use pumice_device::platform::ordinal::Ordinal;
use pumice_device::settings::record::{self, QUEUE_PAIRS};
use pumice_device::settings::{CAPTURE, FAULT_REPORT, LogLevel, MAX_DEVICES, SettingError, Settings, TRACE};
use pumice_device::trace::{DEFAULT_LIMIT_BYTES, TraceFile, TraceSource, create_private};
use pumice_transport::event::QpEvent;
use pumice_transport::types::QpState;

use super::device::Device;
use crate::gate;
use crate::log::{log_at, print_always};
use crate::platform::{Errno, WrittenPath, current_pid, expand, open_process_file, open_process_file_by};

/// Returns the tag of this process, and writes it into the record with its devices, if there is one: the
/// process may be a child of the recorded program.
pub(crate) fn record_tag(settings: &Settings, devices: &[Device]) -> String {
    let tag = settings.tag_of(outside::environment::arguments());
    if let Some(folder) = &settings.record {
        let names: Vec<&str> = devices.iter().map(Device::name).collect();
        let _uncancelled = Uncancelled::begin();
        if let Err((file, error)) = record::note(folder, outside::process::number(), &tag, &names) {
            report_write_error(&file, &error);
        }
    }
    tag
}

/// Returns a subscriber that writes the queue pairs of a device into the record, if there is one: packets do
/// not say which queue pair of the device sent them.
pub(crate) fn subscriber(settings: &Settings, device: &Device) -> Option<Box<dyn Subscriber>> {
    let pattern = settings.record.as_ref()?.join(format!("{}.{QUEUE_PAIRS}", outside::process::number()));
    let file = device.process_file(&pattern);
    let _uncancelled = Uncancelled::begin();
    // A device that is opened again counts queue pairs from the beginning: the first one's record is
    // continued.
    match open_private_at_end(&file) {
        Ok(out) => {
            let error_printer = Box::new(|sentence: &str| print_always(sentence));
            let out = OutputFile::new(out, file, "the record of queue pairs", complete_lines, error_printer);
            Some(Box::new(QueuePairRecorder(Mutex::new(out))))
        }
        Err(error) => {
            report_write_error(&file, &error);
            None
        }
    }
}

fn report_write_error(file: &Path, error: &std::io::Error) {
    print_always(&format!("{} cannot be written: {error}: the record lacks this process", file.display()));
}

/// A subscriber that writes a line for each queue pair that is made or connected.
struct QueuePairRecorder(Mutex<OutputFile>);

impl Subscriber for QueuePairRecorder {
    fn topics(&self) -> Topics {
        Topics::OBJECTS | Topics::STATES
    }

    fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
        let line = match event {
            Event::QpCreated { qp, .. } => format!("made {} {}\n", Ordinal(qp.ordinal), qp.qpn.value()),
            Event::Qp { qp, event: QpEvent::StateChanged { to: QpState::Rtr, peer: Some(peer), .. } } => {
                format!("connected {} {} {}\n", Ordinal(qp.ordinal), peer.address, peer.qpn.value())
            }
            _ => return,
        };
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk must not end the program; the error is logged, and the replay then counts by the
        // packets.
        let _ = out.append(line.as_bytes());
    }
}

/// Returns a function that opens the trace of the settings when the port is open.
pub(crate) fn trace_source(settings: &Settings, device: &'static Device) -> Option<TraceSource> {
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
pub(crate) fn trace_refused(settings: &Settings, error: &io::Error) -> Errno {
    let path = settings.trace.as_deref().unwrap_or(Path::new(""));
    let problem = format!("a trace cannot be written there: {error}");
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    SettingError::new(TRACE, path.to_string_lossy(), problem).with_errno(errno).into()
}

/// Buffer for packets that wait to be written, in bytes.
const CAPTURE_BUFFER_BYTES: usize = 1 << 18;

/// Returns a function that opens the capture of the settings when the port is open.
pub(crate) fn source(settings: &Settings, device: &'static Device) -> Option<CaptureSource> {
    let pattern = device.process_file(settings.capture.as_deref()?);
    Some(Box::new(move || {
        let (file, path) = open_capture(device.index(), &pattern)?;
        if path != expand(&pattern, outside::process::number()) {
            print_always(&format!(
                "{} is being written by another process; packets of process {} go to {}",
                pattern.display(),
                outside::process::number(),
                path.display()
            ));
        }
        let error_printer = Box::new(|sentence: &str| print_always(sentence));
        let file = OutputFile::new(file, path, "the capture", whole_blocks, error_printer);
        let out: Box<dyn Write + Send> = Box::new(SharedWriter::new(file));
        Ok(out)
    }))
}

/// Returns the faults that the settings inject.
///
/// # Errors
/// Fails if the plan cannot be used, which was logged.
pub(crate) fn faults(settings: &Settings) -> Result<FaultPlan, Errno> {
    let plan = FaultPlan::of_settings(settings)?;
    if settings.loss_ppm > 0 {
        let percent = f64::from(settings.loss_ppm) / 1e4;
        log_at(LogLevel::Info, || format!("{percent} % of what is sent is lost, with seed {}", plan.seed()));
    }
    if settings.faults.is_some() || !settings.fault_lines.is_empty() {
        let names: Vec<&str> = plan.rules().iter().map(|rule| rule.name.as_str()).collect();
        log_at(LogLevel::Info, || {
            format!("fault plan with seed {}: rules {}", plan.seed(), names.join(", "))
        });
    }
    Ok(plan)
}

/// Returns a function that opens the report of faults of the settings: each write is one line of the file.
pub(crate) fn report(settings: &Settings) -> Option<ReportSource> {
    let pattern = settings.fault_report.clone()?;
    Some(Box::new(move || {
        let out: Box<dyn Write + Send> = Box::new(gate::fault_report(&pattern)?);
        Ok(out)
    }))
}

/// The writer of a capture: the process's exit flushes it while the port may be in use.
#[derive(Clone)]
struct SharedWriter(Arc<Mutex<BufWriter<OutputFile>>>);

/// The writers of the devices.
static CAPTURES_OUT: PerProcess<Mutex<Vec<SharedWriter>>> = PerProcess::new(|_| Mutex::default());

impl SharedWriter {
    fn new(file: OutputFile) -> SharedWriter {
        let shared = SharedWriter(Arc::new(Mutex::new(BufWriter::with_capacity(CAPTURE_BUFFER_BYTES, file))));
        CAPTURES_OUT.lock().unwrap_or_else(PoisonError::into_inner).push(shared.clone());
        shared
    }
}

// Writing is a cancellation point, and packets are sent and received while the data path is locked.
impl Write for SharedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _uncancelled = Uncancelled::begin();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let _uncancelled = Uncancelled::begin();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

/// Drops the files, and with them the locks, of devices that are closed.
fn close_unused() {
    let mut all = CAPTURES_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|SharedWriter(out)| Arc::strong_count(out) > 1);
}

/// Writes out buffered packets at exit, unless another thread is writing (a signal handler may be exiting).
pub(crate) fn flush_captures() {
    let Ok(all) = CAPTURES_OUT.try_lock() else { return };
    for SharedWriter(out) in all.iter() {
        if let Ok(mut out) = out.try_lock() {
            let _ = out.flush(); // the failure is logged
        }
    }
}

/// Logs that a capture cannot be written, and returns the errno.
#[cold]
pub(crate) fn refused(settings: &Settings, error: &io::Error) -> Errno {
    let path = settings.capture.as_deref().unwrap_or(Path::new(""));
    let problem = format!("packets cannot be captured there: {error}");
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    SettingError::new(CAPTURE, path.to_string_lossy(), problem).with_errno(errno).into()
}

/// Logs that a report cannot be written, and returns the errno.
#[cold]
pub(crate) fn report_refused(settings: &Settings, error: &io::Error) -> Errno {
    let path = settings.fault_report.as_deref().unwrap_or(Path::new(""));
    let problem = format!("the report of faults cannot be written there: {error}");
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    SettingError::new(FAULT_REPORT, path.to_string_lossy(), problem).with_errno(errno).into()
}

/// Opens the file of this process for a device and a pattern ([`open_process_file`]).
fn open_capture(device: usize, pattern: &Path) -> io::Result<(File, PathBuf)> {
    static WRITTEN: [WrittenPath; MAX_DEVICES] =
        [const { PerProcess::new(|_| Mutex::new(None)) }; MAX_DEVICES];
    let written = WRITTEN.get(device).ok_or(io::ErrorKind::InvalidInput)?;
    open_process_file(pattern, written, close_unused)
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn a_file_that_is_written_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("pumice-capture-{}", process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("trace.pcapng");
        std::fs::write(&path, "old").unwrap();
        // The file belongs to another process.
        let other = File::open(&path).unwrap();
        other.try_lock().unwrap();
        let (first, own) = open_capture(0, &path).unwrap();
        assert_eq!(own, folder.join(format!("trace.{}.pcapng", process::id())));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        drop(first);
        // The device is opened again.
        std::fs::write(&own, "mine").unwrap();
        let (file, again) = open_capture(0, &path).unwrap();
        assert_eq!((again.as_path(), std::fs::read(&again).unwrap()), (own.as_path(), b"mine".to_vec()));
        // The device is opened once more, after packets that wait in the writer, which an exit would flush.
        let file = OutputFile::new(file, again, "the capture", <[u8]>::len, Box::new(|_| {}));
        SharedWriter::new(file).write_all(b" too").unwrap();
        let (_, again) = open_capture(0, &path).unwrap();
        assert_eq!((again.as_path(), std::fs::read(&again).unwrap()), (own.as_path(), b"mine too".to_vec()));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
