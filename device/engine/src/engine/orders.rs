//! Orders of other processes to change the fault plan while the program runs, or to record what it does.

use pumice_fabric::LinkPort;
use pumice_faults::port::fault::FaultPort;
use pumice_faults::{PortDecisions, ProcessProgress};
use pumice_model::fates::live::{FaultCommand, FaultReply};
use pumice_model::inspect::InspectRequest;
use pumice_model::network::link::Link;
use pumice_model::port::null_port::NullPort;
use pumice_model::port::traits::Port as _;
use pumice_model::recording::{Existing, QpSnapshot, RecordCommand, RecordReply, Recorder, RegionSnapshot};
use pumice_transport::host::Counter;

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

    /// Adds a recorder, which other processes can start from now on.
    pub(crate) fn add_recorder(&mut self, recorder: Box<dyn Recorder>) {
        self.recorders.push(recorder);
    }

    /// Starts or stops a recorder as another process orders.
    fn record(&mut self, order: &RecordCommand) -> RecordReply {
        let mut recorders = std::mem::take(&mut self.recorders);
        let now: &Engine = self;
        let answer = recorders.iter_mut().find_map(|recorder| recorder.apply_command(order, now));
        self.recorders = recorders;
        // The subscribers may have changed.
        self.resources.follow_subscribers();
        let unknown = || RecordReply::refusing("it records nothing of this kind while it runs");
        let answer = answer.unwrap_or_else(unknown);
        let tag = self.change_plan(&FaultCommand::List).tag;
        RecordReply { tag, device: self.device_name.clone(), ..answer }
    }

    pub(super) fn change_plan(&mut self, order: &FaultCommand) -> FaultReply {
        let packets = self.resources.port.counters.value(Counter::TxPackets);
        let progress = ProcessProgress { packets, queue_pairs: self.resources.queue_pairs_made() };
        let answer = self.resources.change_plan(order, progress);
        self.arm();
        answer
    }

    /// Touches the memory of all lists for a new queue pair, which its first message would touch otherwise:
    /// some hundred pages, because the index is drawn.
    pub(crate) fn make_room(&mut self, index: u32) {
        for list in [
            &mut self.senders,
            &mut self.responders,
            &mut self.touched,
            &mut self.held,
            &mut self.held_responders,
        ] {
            list.make_room(index);
        }
        self.deadlines.make_room(index);
    }

    /// Prepares the device for its first queue pair of datagrams: a seed may let them overtake each other.
    pub(crate) fn prepare_datagrams(&mut self) {
        if self.resources.decisions.reorder_datagrams() {
            self.resources.follow_subscribers();
            self.arm();
        }
    }

    /// Wraps the port in one that applies fault decisions, if there are any and the port is not wrapped
    /// yet.
    pub(super) fn arm(&mut self) {
        self.update_timed_deadline();
        if self.is_armed {
            return;
        }
        let Some(PortDecisions { partitions, notes, seed, tag, clock }) = self.resources.decisions.for_port()
        else {
            return;
        };
        let witness = notes.map(|notes| (notes, self.resources.subscribers()));
        let mut bare = std::mem::replace(&mut self.port, Box::new(NullPort));
        if !bare.has_link() {
            // The plan may change the link settings.
            let link = Link::default().seeded(seed, &tag);
            bare = Box::new(LinkPort::new(bare, link, &clock));
            bare.observe(&self.resources.port.counters);
        }
        self.port = Box::new(FaultPort::of_plan(bare, partitions, witness));
        self.is_armed = true;
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
