//! What other processes can learn of a device, and record of it.

use pumice_model::inspect::WaitReporter;
use pumice_model::recording::Recorder;

/// The parts of a device that serve other processes.
pub(crate) struct Observers {
    /// The name of the device for other processes.
    pub(super) device_name: String,
    /// Tells other processes what threads wait for.
    pub(super) waits: Option<WaitReporter>,
    /// The recorders of events that other processes can start.
    pub(super) recorders: Vec<Box<dyn Recorder>>,
}

impl Observers {
    /// Returns observers that record nothing.
    pub(super) fn new(device_name: String) -> Observers {
        Observers { device_name, waits: None, recorders: Vec::new() }
    }

    /// Sets the function that tells other processes what threads wait for.
    pub(crate) fn set_waits(&mut self, tells: WaitReporter) {
        self.waits = Some(tells);
    }

    /// Adds a recorder, which other processes can start from now on.
    pub(crate) fn add_recorder(&mut self, recorder: Box<dyn Recorder>) {
        self.recorders.push(recorder);
    }
}
