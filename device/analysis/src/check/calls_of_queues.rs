//! Notifications to the checker about calls for queues and channels, and about events that the program gets
//! and acknowledges.

use std::net::IpAddr;

use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{QpState, WcStatus};

use super::checker::Checker;
use super::notified::QueueName;
use super::queues::{Cq, CqMade, Modified, ModifyFacts, Qp, QpCallSites, QpMade, Srq};

impl Checker {
    /// Records that the program acknowledges `count` completion events.
    pub fn events_acknowledged(&mut self, handle: u32, count: u64) {
        let handle = self.context.own.handle(handle);
        self.for_each_check(|check, context| check.events_acknowledged(context, handle, count));
    }

    /// Records that the program gets an asynchronous event. `address` is that of the event's object, 0 if
    /// none.
    pub fn async_event_got(&mut self, address: u64) {
        self.for_each_check(|check, context| check.async_event_got(context, address));
    }

    /// Records that the program acknowledges an asynchronous event about the object at an address.
    pub fn async_event_acknowledged(&mut self, address: u64) {
        self.for_each_check(|check, context| check.async_event_acknowledged(context, address));
    }

    /// Records that the program gets the event of rdma_cm at an address, for whose acknowledgement this
    /// identifier waits.
    pub fn cm_event_got(&mut self, identifier: u64, event: u64) {
        self.for_each_check(|check, context| check.cm_event_got(context, identifier, event));
    }

    /// Records that the program acknowledges the event of rdma_cm at an address.
    pub fn cm_event_acknowledged(&mut self, event: u64) {
        self.for_each_check(|check, context| check.cm_event_acknowledged(context, event));
    }

    /// Records that the program acknowledges the event of rdma_cm at an address, which has this name. Its
    /// private data is in this page.
    pub fn private_data_given_back(&mut self, event: u64, name: &str, page: usize) {
        self.for_each_check(|check, context| check.private_data_given_back(context, event, name, page));
    }

    /// Records that the program reads private data in a page that it has given back, at these return
    /// addresses, innermost first.
    pub fn private_data_read(&mut self, page: usize, addresses: &[u64]) {
        self.for_each_check(|check, context| check.private_data_read(context, page, addresses));
    }

    /// Records that the program destroys the identifier at an address, leaves one of its groups or moves it,
    /// and has not acknowledged events, which have these names, for a second.
    pub fn waits_for_cm_acknowledgements(&mut self, identifier: u64, names: &str) {
        self.for_each_check(|check, context| check.waits_for_cm_acknowledgements(context, identifier, names));
    }

    /// Records that the program destroys the object at an address, and has not acknowledged `count` events of
    /// it for a second.
    pub fn waits_for_acknowledgements(&mut self, address: u64, count: u64, events: &str, remedy: &str) {
        self.for_each_check(|check, context| {
            check.waits_for_acknowledgements(context, address, count, events, remedy);
        });
    }

    /// Records that the program has made a completion queue. [`Checker::object_made`] comes first.
    pub fn cq_made(&mut self, cq: &CqMade) {
        let context = &mut self.context;
        let Some(object) = context.objects.at(cq.address) else { return };
        let known = Cq {
            name: object.name(),
            address: cq.address,
            depth: cq.depth,
            channel: cq.channel,
            made: object.made.clone(),
            ..Cq::default()
        };
        let handle = context.own.handle(cq.handle);
        context.cq_handles.insert(cq.address, handle);
        context.cqs.insert(handle, known);
        self.forget(Some(QueueName::Cq(handle)));
    }

    /// Records that the program has changed the depth of a completion queue.
    pub fn cq_resized(&mut self, handle: u32, depth: u32) {
        let handle = self.context.own.handle(handle);
        if let Some(cq) = self.context.cqs.get_mut(&handle) {
            cq.depth = depth;
        }
    }

    /// Records that the program destroyed a completion queue.
    pub fn cq_destroyed(&mut self, handle: u32) {
        let handle = self.context.own.handle(handle);
        let Some(address) = self.context.cqs.get(&handle).map(|cq| cq.address) else { return };
        self.for_each_check(|check, context| check.cq_destroyed(context, handle));
        self.context.cqs.remove(&handle);
        self.context.cq_handles.remove(&address);
        self.forget(Some(QueueName::Cq(handle)));
    }

    /// Records that the program polls, whether a completion is there or not.
    pub fn cq_polled(&mut self, address: u64) {
        let Some(handle) = self.context.cq_handles.get(&address).copied() else { return };
        let Some(cq) = self.context.cqs.get_mut(&handle) else { return };
        cq.polls = cq.polls.saturating_add(1);
        cq.stir();
        self.checks.cq_polled(&mut self.context, handle);
    }

    /// Records that the program arms a completion queue.
    pub fn cq_armed(&mut self, handle: u32, solicited_only: bool) {
        let armed_at = self.context.here();
        let Some(cq) = self.context.cqs.get_mut(&handle) else { return };
        cq.armed_at = armed_at;
        cq.is_armed(solicited_only);
        cq.stir();
        self.for_each_check(|check, context| check.cq_armed(context, handle));
    }

    /// Records that the program has made a completion channel with this descriptor.
    pub fn channel_made(&mut self, address: u64, descriptor: i32) {
        self.context.channels.insert(address, descriptor);
    }

    /// Records that the program destroyed a completion channel.
    pub fn channel_destroyed(&mut self, address: u64) {
        self.context.channels.remove(&address);
    }

    /// Records that a thread has slept in `ibv_get_cq_event` on the channel at this address for a further
    /// tenth of a second. `is_long` says that it has slept for a second at least.
    pub fn sleeps(&mut self, channel: u64, is_long: bool) {
        self.for_each_check(|check, context| check.sleeps(context, channel, is_long));
    }

    /// Returns the completion queues in which completions wait that came before the queue was armed, each
    /// with the descriptor that becomes readable only with the next completion. Called ten times a second.
    pub fn collect_waiting(&mut self) -> Vec<(u32, i32)> {
        let mut waiting = Vec::new();
        self.for_each_check(|check, context| check.collect_waiting(context, &mut waiting));
        waiting
    }

    /// Records that a thread sleeps until the descriptor of the queue's channel is readable.
    pub fn sleeps_in_poll(&mut self, handle: u32) {
        self.for_each_check(|check, context| check.sleeps_in_poll(context, handle));
    }

    /// Records that the program reads a field of a failed completion that has no meaning then.
    pub fn field_of_error_read(&mut self, address: u64, field: &str, status: WcStatus) {
        self.for_each_check(|check, context| check.field_of_error_read(context, address, field, status));
    }

    /// Records that the program has made a queue pair. [`Checker::object_made`] comes first.
    pub fn qp_made(&mut self, qp: &QpMade) {
        let context = &mut self.context;
        let Some(object) = context.objects.at_mut(qp.address) else { return };
        object.ordinal = qp.ordinal;
        // Rules for other services may not hold for services that only one vendor has.
        let service = if matches!(qp.service, "SRD" | "DCI" | "DCT") { qp.service } else { "" };
        let gap = if service.is_empty() { "" } else { ", " };
        let known = Qp {
            name: format!("{} ({service}{gap}number {:#x})", object.name(), qp.number),
            service: qp.service,
            // No queue has the last handle.
            send_cq: qp.send_cq.map_or(u32::MAX, |cq| context.own.handle(cq)),
            recv_cq: qp.recv_cq.map_or(u32::MAX, |cq| context.own.handle(cq)),
            capacity: qp.capacity,
            calls: QpCallSites { made: object.made.clone(), ..QpCallSites::default() },
            ..Qp::default()
        };
        context.qps.insert(qp.number, known);
        self.forget(Some(QueueName::Qp(qp.number)));
    }

    /// Records that the program has called `ibv_modify_qp`.
    pub fn qp_modified(
        &mut self,
        number: u32,
        attributes: &QpAttributes,
        mask: AttributeMask,
        facts: &ModifyFacts,
    ) {
        let stack = self.context.here();
        let Some(qp) = self.context.qps.get_mut(&number) else { return };
        let to = QpState::from_verbs(attributes.qp_state).filter(|_| mask.contains(AttributeMask::STATE));
        let modified = Modified { number, to, attributes, mask, facts, stack: &stack };
        if facts.is_done {
            qp.is_modified(&modified);
        }
        self.for_each_check(|check, context| check.qp_modified(context, &modified));
    }

    /// Records that a successful change of a queue pair has set `rnr_retry`, be it the program's own call or
    /// one that a call of the connection manager makes.
    pub fn rnr_retry_set(&mut self, number: u32, rnr_retry: u8) {
        self.for_each_check(|check, context| check.rnr_retry_set(context, number, rnr_retry));
    }

    /// Records that the program has attached a queue pair to a multicast group.
    pub fn group_attached(&mut self, group: IpAddr) {
        self.for_each_check(|check, _| check.group_attached(group));
    }

    /// Records that a post of send requests was refused because the queue is full.
    pub fn send_queue_is_full(&mut self, number: u32) {
        self.for_each_check(|check, context| check.send_queue_is_full(context, number));
    }

    /// Records that the program has made a shared receive queue. [`Checker::object_made`] comes first.
    pub fn srq_made(&mut self, address: u64, handle: u32) {
        let Some(object) = self.context.objects.at(address) else { return };
        let known = Srq { name: object.name(), made: object.made.clone() };
        let handle = self.context.own.handle(handle);
        self.context.srqs.insert(handle, known);
        self.forget(Some(QueueName::Srq(handle)));
    }

    /// Records that the program has armed the limit of a shared receive queue.
    pub fn srq_limit_armed(&mut self, handle: u32) {
        let handle = self.context.own.handle(handle);
        self.for_each_check(|check, context| check.srq_limit_armed(context, handle));
    }
}
