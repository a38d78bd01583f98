//! Orders of other processes to change the fault plan while the program runs, or to record what it does.

use pumice_events::inspect::Question;
use pumice_events::recording::{Existing, QpNow, RecordAnswer, RecordOrder, Recorder, RegionNow};
use pumice_faults::live::{LiveAnswer, LiveOrder};
use pumice_faults::{ForPort, Moment};
use pumice_ports::{FaultPort, Link, LinkPort, Nowhere, Port as _};
use pumice_transport::host::Counter;

use super::Engine;
use super::queue_pairs::QpEntry;

impl Engine {
    /// Obeys the orders that have come.
    #[cold]
    pub(super) fn obey(&mut self) {
        while let Some(order) = self.port.group().and_then(|group| group.next_order()) {
            if let Some(Question::Inspect { cursor, waits }) = Question::decode(&order.text) {
                let page = self.inspect(cursor, waits).encode();
                if let Some(group) = self.port.group() {
                    group.answer_question(&order, &page);
                }
                continue;
            }
            let answer = match RecordOrder::decode(&order.text) {
                Some(wanted) => self.record(&wanted).encode(),
                None => self.change_plan_as(&order.text).encode(),
            };
            if let Some(group) = self.port.group() {
                group.answer_order(&order, &answer);
            }
        }
    }

    fn change_plan_as(&mut self, text: &[u8]) -> LiveAnswer {
        match LiveOrder::decode(text) {
            Some(wanted) => self.change_plan(&wanted),
            None => LiveAnswer::refusing("it does not know this order: both sides have to be of one version"),
        }
    }

    /// From now on this records as well when another process wants it.
    pub(crate) fn add_recorder(&mut self, recorder: Box<dyn Recorder>) {
        self.recorders.push(recorder);
    }

    /// Another process wants something recorded, or no longer.
    fn record(&mut self, order: &RecordOrder) -> RecordAnswer {
        let mut recorders = std::mem::take(&mut self.recorders);
        let now: &Engine = self;
        let answer = recorders.iter_mut().find_map(|recorder| recorder.obey(order, now));
        self.recorders = recorders;
        // Others may listen now.
        self.resources.follow_subscribers();
        let unknown = || RecordAnswer::refusing("it records nothing of this kind while it runs");
        let answer = answer.unwrap_or_else(unknown);
        let tag = self.change_plan(&LiveOrder::List).tag;
        RecordAnswer { tag, device: self.device_name.clone(), ..answer }
    }

    pub(super) fn change_plan(&mut self, order: &LiveOrder) -> LiveAnswer {
        let packets = self.resources.counters.value(Counter::TxPackets);
        let moment = Moment { packets, queue_pairs: self.resources.queue_pairs_made() };
        let answer = self.resources.change_plan(order, moment);
        self.arm();
        answer
    }

    /// Puts what does what a plan decides around the port, if there are rules and that was not done yet.
    pub(super) fn arm(&mut self) {
        self.look_at_times();
        if self.is_armed {
            return;
        }
        let Some(ForPort { partitions, notes, seed, tag, clock }) = self.resources.decisions.for_port()
        else {
            return;
        };
        let witness = notes.map(|notes| (notes, self.resources.subscribers()));
        let mut bare = std::mem::replace(&mut self.port, Box::new(Nowhere));
        if !bare.has_link() {
            // The plan may change what the link does.
            let link = Link::default().seeded(seed, &tag);
            bare = Box::new(LinkPort::new(bare, link, &clock));
            bare.observe(&self.resources.counters);
        }
        self.port = Box::new(FaultPort::of_plan(bare, partitions, witness));
        self.is_armed = true;
    }
}

impl Existing for Engine {
    fn queue_pairs(&self, tell: &mut dyn FnMut(&QpNow)) {
        for (_, QpEntry { qp, .. }) in self.queue_pairs.starting_at(0) {
            let context = qp.context();
            tell(&QpNow {
                ordinal: context.ordinal,
                qpn: context.qpn.value(),
                send_cq: context.send_cq,
                recv_cq: context.recv_cq,
                service: qp.qp_type().name(),
                state: qp.state() as u8,
                connection: qp.connection(),
                peer: qp.peer().map(|(address, qpn)| (address, qpn.value())),
                next: qp.figures().posted,
                sends: qp.untold_sends(),
                receives: self.resources.own_receives(context.recv_queue).unwrap_or(0),
                send_depth: qp.capacity().max_send_wr,
                reads: qp.max_rd_atomic(),
            });
        }
    }

    fn regions(&self, tell: &mut dyn FnMut(&RegionNow)) {
        self.resources.look_at_regions(tell);
    }

    fn completion_queues(&self, tell: &mut dyn FnMut(u32, u32)) {
        self.resources.look_at_cqs(tell);
    }
}
