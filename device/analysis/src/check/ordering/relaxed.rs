//! Regions with relaxed ordering and queue pairs that place data out of order: the order that they do not
//! promise, by the table that shuffled schedules use as well.

use pumice_model::event::Event;
use pumice_transport::event::QpEvent;
use pumice_transport::types::{SenderOrder, StoreEvidence, StoreOrder};
use pumice_transport::wire::OperationClass;

use super::remote::name_of;
use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::kind::NOTIFIED_ON_OTHER_QP;
use crate::check::orders::{NOTICE_TURNS, RequestOrdering};

/// Number of regions and queue pairs that are known to be relaxed; others count as ordered.
const MAX_RELAXED: usize = 1 << 17;

impl RequestOrdering {
    /// Handles an event that may be of a region or of the state of a queue pair.
    pub(super) fn handle_order_event(&mut self, context: &mut CheckContext, event: &Event<'_>) {
        match event {
            Event::RegionRegistered { rkey, relaxed, .. } => {
                let key = context.own.key(*rkey);
                self.relaxed.remove(&key);
                if *relaxed && self.relaxed.len() < MAX_RELAXED {
                    self.relaxed.insert(key, context.here());
                }
            }
            Event::RegionDeregistered { rkey, .. } => {
                self.relaxed.remove(&context.own.key(*rkey));
            }
            Event::Qp { qp, event: QpEvent::StateChanged { .. } }
                if qp.out_of_order && self.out_of_order.len() < MAX_RELAXED =>
            {
                self.out_of_order.insert(qp.qpn.value());
            }
            _ => {}
        }
    }

    /// Reports whether anything is known to be stored in less than the usual order.
    fn is_any_relaxed(&self) -> bool {
        !self.relaxed.is_empty() || !self.out_of_order.is_empty()
    }

    /// Returns the order in which WRITEs of this program's queue pair are stored at the peer, as far as is
    /// known: the region of another process counts as ordered.
    pub(super) fn order_of_sent(&self, context: &CheckContext, number: u32, rkey: u32) -> StoreOrder {
        if !self.is_any_relaxed() {
            return StoreOrder::AsSpecified;
        }
        let is_known = context.is_connected_to_own(number);
        let relaxed = is_known && self.relaxed.contains_key(&context.own.key(rkey));
        StoreOrder::of(false, self.out_of_order.contains(&number), relaxed)
    }

    /// Returns the order in which WRITEs of a peer are stored that come to a queue pair of this program.
    pub(super) fn order_of_arrival(&self, context: &CheckContext, number: u32, rkey: u32) -> StoreOrder {
        if !self.is_any_relaxed() {
            return StoreOrder::AsSpecified;
        }
        let relaxed = self.relaxed.contains_key(&context.own.key(rkey));
        StoreOrder::of(false, self.out_of_order.contains(&number), relaxed)
    }

    /// Handles a WRITE or an atomic of a peer that begins to come.
    pub(super) fn note_arrival(
        &mut self,
        context: &CheckContext,
        number: u32,
        class: OperationClass,
        rkey: u32,
    ) {
        if self.relaxed.is_empty() {
            return;
        }
        let Some(peer) = self.qps.get(&number).map(|qp| qp.peer) else { return };
        match class {
            OperationClass::Write
                if self.order_of_arrival(context, number, rkey).outlives_acknowledgement() =>
            {
                self.arrived.entry(peer).or_default().written(number, rkey);
            }
            OperationClass::Write => {}
            _ => self.note_evidence(number, StoreEvidence::AtomicInMemory),
        }
    }

    /// Handles evidence on a queue pair that shows data of WRITEs that came before it there.
    pub(super) fn note_evidence(&mut self, number: u32, evidence: StoreEvidence) {
        let following = SenderOrder { same_queue_pair: true, after_completion: false };
        if self.arrived.is_empty() || !StoreOrder::Relaxed.guarantees(evidence, following) {
            return;
        }
        let Some(peer) = self.qps.get(&number).map(|qp| qp.peer) else { return };
        if let Some(arrived) = self.arrived.get_mut(&peer) {
            arrived.shown(number);
        }
    }

    /// Checks a message that the program has polled: if it is not of the queue pair of the WRITEs before it,
    /// their data need not be there, whether the peer knows that they have completed or not.
    pub(super) fn check_message(&mut self, context: &mut CheckContext, number: u32) {
        if self.arrived.is_empty() {
            return;
        }
        self.note_evidence(number, StoreEvidence::ReceiveCompletion);
        let following = SenderOrder { same_queue_pair: false, after_completion: true };
        if StoreOrder::Relaxed.guarantees(StoreEvidence::ReceiveCompletion, following) {
            return;
        }
        let Some(peer) = self.qps.get(&number).map(|qp| qp.peer) else { return };
        let notified = self.arrived.get_mut(&peer).and_then(|arrived| arrived.message_polled(number));
        if let Some((of, rkey)) = notified {
            self.report_message(context, number, of, rkey);
        }
    }

    fn report_message(&self, context: &mut CheckContext, number: u32, of: u32, rkey: u32) {
        let stack = context.here();
        let (object, other) = (name_of(context, number), name_of(context, of));
        let numbers = format!(
            "the message polled here from {object} followed RDMA_WRITEs that came to {other} from the same \
             peer {}; their region has IBV_ACCESS_RELAXED_ORDERING, so only what comes to {other} itself \
             shows that their data is there, even if the peer has polled their completions",
            counted(NOTICE_TURNS.into(), "time")
        );
        let made = self.relaxed.get(&context.own.key(rkey)).cloned().unwrap_or_default();
        let related = vec![related("the region was registered here", &made)];
        context.found(&NOTIFIED_ON_OTHER_QP, FindingParts { object, numbers, stack, related });
    }
}
