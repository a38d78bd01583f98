//! Facts about a process in a record, besides its packets: its tag, its devices, and their queue pairs by
//! ordinal.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pumice_device::event::{Event, Subscriber, Topics};
use pumice_device::outside;
use pumice_device::outside::cancellation::Uncancelled;
use pumice_device::outside::output_file::{OutputFile, complete_lines, open_private_at_end};
use pumice_device::platform::ordinal::Ordinal;
use pumice_device::settings::Settings;
use pumice_device::settings::record::{self, QUEUE_PAIRS};
use pumice_transport::event::QpEvent;
use pumice_transport::types::QpState;

use super::device::Device;
use crate::log::print_always;

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
