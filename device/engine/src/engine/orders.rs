//! Orders of other processes to change the fault plan while the program runs.

use pumice_events::inspect::Question;
use pumice_faults::live::{LiveAnswer, LiveOrder};
use pumice_faults::{ForPort, Moment};
use pumice_ports::{FaultPort, Link, LinkPort, Nowhere, Port as _};
use pumice_transport::host::Counter;

use super::Engine;

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
            let answer = match LiveOrder::decode(&order.text) {
                Some(wanted) => self.change_plan(&wanted),
                None => {
                    LiveAnswer::refusing("it does not know this order: both sides have to be of one version")
                }
            };
            if let Some(group) = self.port.group() {
                group.answer_order(&order, &answer.encode());
            }
        }
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
