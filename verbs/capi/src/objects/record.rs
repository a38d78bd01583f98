//! What a record has of a process besides its packets: its tag, its devices, and their queue pairs by
//! ordinal.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pumice_device::event::{Event, Subscriber, Topics};
use pumice_device::ground::ordinal::Ordinal;
use pumice_device::outside;
use pumice_device::outside::cancellation::Uncancelled;
use pumice_device::outside::output_file::{OutputFile, open_private_at_end, whole_lines};
use pumice_device::settings::Settings;
use pumice_device::settings::record::{self, QUEUE_PAIRS};
use pumice_transport::event::QpEvent;
use pumice_transport::types::QpState;

use super::device::Device;
use crate::ground::log::print_always;

/// The tag of this process, noted in the record with its devices, if there is one: the process may be a child
/// of the program that was started to be recorded.
pub(crate) fn noted_tag(settings: &Settings, devices: &[Device]) -> String {
    let tag = settings.tag_of(outside::environment::arguments());
    if let Some(folder) = &settings.record {
        let names: Vec<&str> = devices.iter().map(Device::name).collect();
        let _whole = Uncancelled::begin();
        if let Err((file, error)) = record::note(folder, outside::process::number(), &tag, &names) {
            complain(&file, &error);
        }
    }
    tag
}

/// Notes the queue pairs of a device, if there is a record: packets do not say which one of the device sent
/// them.
pub(crate) fn subscriber(settings: &Settings, device: &Device) -> Option<Box<dyn Subscriber>> {
    let pattern = settings.record.as_ref()?.join(format!("{}.{QUEUE_PAIRS}", outside::process::number()));
    let file = device.own_file(&pattern);
    let _whole = Uncancelled::begin();
    // A device that is opened again counts queue pairs from the beginning: what it does is told by the first.
    match open_private_at_end(&file) {
        Ok(out) => {
            let say = Box::new(|sentence: &str| print_always(sentence));
            let out = OutputFile::new(out, file, "the record of queue pairs", whole_lines, say);
            Some(Box::new(QueuePairs(Mutex::new(out))))
        }
        Err(error) => {
            complain(&file, &error);
            None
        }
    }
}

fn complain(file: &Path, error: &std::io::Error) {
    print_always(&format!("{} cannot be written: {error}: the record lacks this process", file.display()));
}

/// Writes a line for each queue pair that is made or connected.
struct QueuePairs(Mutex<OutputFile>);

impl Subscriber for QueuePairs {
    fn topics(&self) -> Topics {
        Topics::OBJECTS | Topics::STATES
    }

    fn hear(&self, _at_ns: u64, event: &Event<'_>) {
        let line = match event {
            Event::QpCreated { qp, .. } => format!("made {} {}\n", Ordinal(qp.ordinal), qp.qpn.value()),
            Event::Qp { qp, event: QpEvent::StateChanged { to: QpState::Rtr, peer: Some(peer), .. } } => {
                format!("connected {} {} {}\n", Ordinal(qp.ordinal), peer.address, peer.qpn.value())
            }
            _ => return,
        };
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A disk that is full must not end the program; it is said, and the replay then counts by the
        // packets.
        let _ = out.append(line.as_bytes());
    }
}
