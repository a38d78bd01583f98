//! Orders of other processes to change the fault plan while the program runs, or to record what it does.

use pumice_model::fates::live::{FaultCommand, FaultReply};
use pumice_model::inspect::InspectRequest;
use pumice_model::recording::{Existing, QpSnapshot, RecordCommand, RecordReply, RegionSnapshot};

use super::Engine;
use super::queue_pairs::QpEntry;

impl Engine {
    /// Carries out the orders that have come.
    #[cold]
    pub(super) fn apply_command(&mut self) {
        while let Some(order) = self.port.group().and_then(|group| group.next_command()) {
            if let Some(InspectRequest::Inspect { cursor, waits }) = InspectRequest::decode(&order.text) {
                let page = self.inspect(cursor, waits).encode();
                if let Some(group) = self.port.group() {
                    group.reply_to_query(&order, &page);
                }
                continue;
            }
            let answer = match RecordCommand::decode(&order.text) {
                Some(wanted) => self.record(&wanted).encode(),
                None => self.change_plan_as(&order.text).encode(),
            };
            if let Some(group) = self.port.group() {
                group.reply_to_command(&order, &answer);
            }
        }
    }

    fn change_plan_as(&mut self, text: &[u8]) -> FaultReply {
        match FaultCommand::decode(text) {
            Some(wanted) => self.change_plan(&wanted),
            None => FaultReply::refusing("it does not know this order: both sides have to be of one version"),
        }
    }

    /// Starts or stops a recorder as another process orders.
    fn record(&mut self, order: &RecordCommand) -> RecordReply {
        let mut recorders = std::mem::take(&mut self.observers.recorders);
        let now: &Engine = self;
        let answer = recorders.iter_mut().find_map(|recorder| recorder.apply_command(order, now));
        self.observers.recorders = recorders;
        // The subscribers may have changed.
        self.resources.follow_subscribers();
        let unknown = || RecordReply::refusing("it records nothing of this kind while it runs");
        let answer = answer.unwrap_or_else(unknown);
        let tag = self.change_plan(&FaultCommand::List).tag;
        RecordReply { tag, device: self.observers.device_name.clone(), ..answer }
    }

    pub(super) fn change_plan(&mut self, order: &FaultCommand) -> FaultReply {
        self.faults.change_plan(order, &mut self.resources, &mut self.port)
    }

    /// Prepares the device for its first queue pair of datagrams: a seed may let them overtake each other.
    pub(crate) fn prepare_datagrams(&mut self) {
        self.faults.prepare_datagrams(&mut self.resources, &mut self.port);
    }
}

impl Existing for Engine {
    fn queue_pairs(&self, visit: &mut dyn FnMut(&QpSnapshot)) {
        for (_, QpEntry { qp, .. }) in self.queue_pairs.starting_at(0) {
            let context = qp.context();
            visit(&QpSnapshot {
                ordinal: context.ordinal,
                qpn: context.qpn.value(),
                send_cq: context.send_cq,
                recv_cq: context.recv_cq,
                service: qp.qp_type().name(),
                state: qp.state() as u8,
                connection: qp.connection(),
                peer: qp.peer().map(|(address, qpn)| (address, qpn.value())),
                next: qp.statistics().posted,
                sends: qp.unreported_sends(),
                receives: self.resources.objects.own_receives(context.recv_queue).unwrap_or(0),
                send_depth: qp.capacity().max_send_wr,
                reads: qp.max_rd_atomic(),
            });
        }
        self.visit_mrc_snapshots(visit);
    }

    fn regions(&self, visit: &mut dyn FnMut(&RegionSnapshot)) {
        self.resources.objects.for_each_region(visit);
    }

    fn completion_queues(&self, visit: &mut dyn FnMut(u32, u32)) {
        self.resources.objects.for_each_cq(visit);
    }
}
