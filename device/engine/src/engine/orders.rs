//! Orders of other processes to change the fault plan while the program runs, or to record what it does.

use pumice_fabric::gsi::Gsi;
use pumice_model::fates::live::{FaultCommand, FaultReply};
use pumice_model::inspect::{InspectCursor, InspectPage, InspectRequest, WaitReporter};
use pumice_model::port::Port;
use pumice_model::recording::{RecordCommand, RecordReply, Recorder};

use super::fault_effects::FaultEffects;
use super::inspect::DeviceView;
use super::mrc::MrcTable;
use super::queue_pairs::QueuePairs;
use crate::resources::Resources;

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

/// The parts of a device that orders of other processes read and change.
pub(super) struct OrderedDevice<'a> {
    pub(super) resources: &'a mut Resources,
    pub(super) queue_pairs: &'a QueuePairs,
    pub(super) mrc: &'a MrcTable,
    pub(super) gsi: &'a Gsi,
    pub(super) port: &'a mut Box<dyn Port>,
    pub(super) plan_effects: &'a mut FaultEffects,
}

impl OrderedDevice<'_> {
    /// Returns the parts that can be described.
    fn view(&self) -> DeviceView<'_> {
        let OrderedDevice { resources, queue_pairs, mrc, gsi, port, .. } = self;
        DeviceView { resources, queue_pairs, mrc, gsi, port: &***port }
    }

    fn change_plan(&mut self, order: &FaultCommand) -> FaultReply {
        self.plan_effects.change_plan(order, self.resources, self.port)
    }

    fn change_plan_as(&mut self, text: &[u8]) -> FaultReply {
        match FaultCommand::decode(text) {
            Some(wanted) => self.change_plan(&wanted),
            None => FaultReply::refusing("it does not know this order: both sides have to be of one version"),
        }
    }
}

impl Observers {
    /// Carries out the orders that have come.
    pub(super) fn apply_command(&mut self, device: &mut OrderedDevice<'_>) {
        while let Some(order) = device.port.group().and_then(|group| group.next_command()) {
            if let Some(InspectRequest::Inspect { cursor, waits }) = InspectRequest::decode(&order.text) {
                let page = self.inspect(device, cursor, waits).encode();
                if let Some(group) = device.port.group() {
                    group.reply_to_query(&order, &page);
                }
                continue;
            }
            let answer = match RecordCommand::decode(&order.text) {
                Some(wanted) => self.record(device, &wanted).encode(),
                None => device.change_plan_as(&order.text).encode(),
            };
            if let Some(group) = device.port.group() {
                group.reply_to_command(&order, &answer);
            }
        }
    }

    /// Returns a page of the objects, beginning at `cursor`. `looks`: whether to determine what threads wait
    /// for.
    pub(super) fn inspect(
        &self,
        device: &mut OrderedDevice<'_>,
        cursor: InspectCursor,
        looks: bool,
    ) -> InspectPage {
        let plan = device.change_plan(&FaultCommand::List);
        let waits = || self.waits.as_ref().and_then(|tells| tells(looks));
        device.view().page(cursor, (&plan.tag, plan.rules), &self.device_name, waits)
    }

    /// Starts or stops a recorder as another process orders.
    fn record(&mut self, device: &mut OrderedDevice<'_>, order: &RecordCommand) -> RecordReply {
        let existing = device.view();
        let mut recorders = self.recorders.iter_mut();
        let answer = recorders.find_map(|recorder| recorder.apply_command(order, &existing));
        // The subscribers may have changed.
        device.resources.follow_subscribers();
        let unknown = || RecordReply::refusing("it records nothing of this kind while it runs");
        let answer = answer.unwrap_or_else(unknown);
        let tag = device.change_plan(&FaultCommand::List).tag;
        RecordReply { tag, device: self.device_name.clone(), ..answer }
    }
}
