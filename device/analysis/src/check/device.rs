//! Notifications from the device to the checker: they change the shared records first, then reach the checks.

use pumice_model::event::AsyncElement;
use pumice_transport::host::QpContext;
use pumice_transport::types::{AsyncEventType, QpState, WcStatus, WorkCompletion};

use super::checker::Checker;
use super::per_queue::QueueName;
use super::queues::CqNotifyState;

impl Checker {
    pub(super) fn send_posted(&mut self, number: u32, signaled: bool) {
        let Some(qp) = self.context.qps.get_mut(&number) else { return };
        qp.counts.sends = qp.counts.sends.saturating_add(1);
        if signaled {
            qp.counts.signaled = qp.counts.signaled.saturating_add(1);
            let cq = qp.send_cq;
            self.context.expect(cq);
        }
        self.checks.send_posted(&mut self.context, number, signaled);
    }

    /// Handles a posted send request whose payload is in registered memory.
    pub(super) fn posted_from_memory(&mut self, number: u32, length_bytes: u32) {
        self.checks.posted_from_memory(&mut self.context, number, length_bytes);
    }

    pub(super) fn receive_posted(&mut self, number: u32) {
        let Some(qp) = self.context.qps.get_mut(&number) else { return };
        qp.counts.receives = qp.counts.receives.saturating_add(1);
        let cq = qp.recv_cq;
        self.context.expect(cq);
        self.checks.receive_posted(&mut self.context, number);
    }

    pub(super) fn completed(&mut self, number: u32, handle: u32, completion: &WorkCompletion, released: u32) {
        let mut is_expected = false;
        if let Some(qp) = self.context.qps.get_mut(&number) {
            is_expected = qp.is_completed(completion, released);
        }
        if let Some(cq) = self.context.cqs.get_mut(&handle) {
            cq.expected = cq.expected.saturating_sub(u64::from(is_expected));
            cq.unpolled = cq.unpolled.saturating_add(1);
            let is_success = completion.status == WcStatus::Success;
            cq.successes = cq.successes.saturating_add(u64::from(is_success));
            cq.stir();
        }
        self.checks.completed(&mut self.context, number, completion, released);
    }

    /// Handles a send request that failed with this status.
    pub(super) fn send_failed(&mut self, number: u32, status: WcStatus) {
        self.for_each_check(|check, context| check.send_failed(context, number, status));
    }

    pub(super) fn polled(&mut self, handle: u32, completion: &WorkCompletion) {
        if let Some(cq) = self.context.cqs.get_mut(&handle) {
            cq.unpolled = cq.unpolled.saturating_sub(1);
            cq.polls = cq.polls.saturating_add(1);
            cq.stir();
        }
        if let Some(qp) = self.context.qps.get_mut(&completion.qp_num) {
            let unpolled = if completion.opcode.is_recv() {
                &mut qp.counts.receives_unpolled
            } else {
                &mut qp.counts.sends_unpolled
            };
            *unpolled = unpolled.saturating_sub(1);
        }
        self.checks.polled(&mut self.context, handle, completion);
    }

    pub(super) fn state_changed(&mut self, number: u32, to: QpState) {
        let Some(mut qp) = self.context.qps.remove(&number) else { return };
        qp.state = to;
        if to == QpState::Reset {
            self.context.forget_requests(&mut qp);
        }
        self.context.qps.insert(number, qp);
    }

    pub(super) fn qp_destroyed(&mut self, number: u32) {
        self.for_each_check(|check, context| check.qp_destroyed(context, number));
        if let Some(mut qp) = self.context.qps.remove(&number) {
            self.context.forget_requests(&mut qp);
            self.forget(Some(QueueName::Qp(number)));
        }
    }

    /// Handles a packet of a message that came and found no receive.
    pub(super) fn found_no_receive(&mut self, qp: &QpContext, psn: u32) {
        let number = qp.qpn.value();
        let Some(known) = self.context.qps.get_mut(&number) else { return };
        if known.unready_psn.replace(psn) != Some(psn) {
            let srq = self.context.own.handle(qp.recv_queue);
            self.for_each_check(|check, context| check.found_no_receive(context, number));
            self.srq_was_empty(srq);
        }
    }

    /// Handles an RNR NAK: the peer had no receive for a message.
    pub(super) fn peer_had_no_receive(&mut self, number: u32, psn: u32) {
        self.for_each_check(|check, context| check.peer_had_no_receive(context, number, psn));
    }

    /// Handles the wait before the message is sent again. `retries_left` is as the device counts them.
    pub(super) fn waits_for_receive(&mut self, number: u32, retries_left: u8, wait_ns: u64) {
        self.for_each_check(|check, context| check.waits_for_receive(context, number, retries_left, wait_ns));
    }

    /// Handles a message that found no receive, on a queue pair that takes them from this queue.
    pub(super) fn srq_was_empty(&mut self, handle: u32) {
        if self.context.srqs.contains_key(&handle) {
            self.for_each_check(|check, context| check.srq_was_empty(context, handle));
        }
    }

    /// Handles a receive that is posted to a shared receive queue.
    pub(super) fn srq_filled(&mut self, handle: u32) {
        if self.context.srqs.contains_key(&handle) {
            self.for_each_check(|check, context| check.srq_filled(context, handle));
        }
    }

    /// Handles the end of a shared receive queue.
    pub(super) fn srq_destroyed(&mut self, handle: u32) {
        if self.context.srqs.contains_key(&handle) {
            self.for_each_check(|check, context| check.srq_destroyed(context, handle));
            self.context.srqs.remove(&handle);
            self.forget(Some(QueueName::Srq(handle)));
        }
    }

    pub(super) fn event_raised(&mut self, handle: u32) {
        if let Some(cq) = self.context.cqs.get_mut(&handle) {
            cq.armed = CqNotifyState::No;
            cq.events_queued = cq.events_queued.saturating_add(1);
            cq.stir();
            self.for_each_check(|check, context| check.event_raised(context, handle));
        }
    }

    pub(super) fn event_delivered(&mut self, handle: u32) {
        if let Some(cq) = self.context.cqs.get_mut(&handle) {
            cq.events_queued = cq.events_queued.saturating_sub(1);
            cq.stir();
            self.for_each_check(|check, context| check.event_delivered(context, handle));
        }
    }

    pub(super) fn async_event_raised(&mut self, event: AsyncEventType, element: AsyncElement) {
        self.for_each_check(|check, context| check.async_event_raised(context, event, element));
    }
}
