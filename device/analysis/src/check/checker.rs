//! The checker, its notifications from the device, and the subscriber that passes them on.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use pumice_model::event::{AsyncElement, Event, Subscriber, Topics};
use pumice_transport::event::QpEvent;
use pumice_transport::host::{Counter, QpContext};
use pumice_transport::types::{AsyncEventType, Peer, QpState, WcStatus, WorkCompletion, WrClass};
use pumice_transport::wire::{OperationClass, Syndrome};

use super::checks::Checks;
use super::context::{
    BoundsCallback, CaptureStack, CheckContext, FillMemory, OwnStack, ReadMemory, SleepCounter, WaitCounter,
    Watchpoints, holding,
};
use super::notified::{Check, ExplainedFailure, QueueName, is_of_message};
use super::objects::DeviceTag;
use super::queues::CqNotifyState;
use super::recorded::Findings;

/// The observer of a program's use of verbs, which finds mistakes.
///
/// Code that takes the program's calls notifies it of them, and [`super::CheckSubscriber`] notifies it of
/// events. It calls nothing but [`CaptureStack`] and the functions that its owner provides.
pub struct Checker {
    pub(super) context: CheckContext,
    pub(super) checks: Checks,
    /// Failures whose cause is reported, for the log.
    pub(super) effects: Vec<ExplainedFailure>,
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").field("context", &self.context).finish_non_exhaustive()
    }
}

impl Checker {
    /// Creates a checker without any objects. With `checks_performance`, slow ways are findings too.
    pub fn new(capture: CaptureStack, checks_performance: bool) -> Checker {
        Checker {
            context: CheckContext::new(capture, checks_performance),
            checks: Checks::default(),
            effects: Vec::new(),
        }
    }

    /// Sets the device that the following notifications are about.
    pub fn on(&mut self, device: DeviceTag) -> &mut Checker {
        self.context.own = device;
        self
    }

    /// Sets the time of the device, in ns, at which the following events happen.
    pub fn at(&mut self, now_ns: u64) -> &mut Checker {
        self.context.now_ns = now_ns;
        self
    }

    /// Records objects that existed before the checker: the call sites that made them are not known.
    pub fn finds(&mut self, record_existing: impl FnOnce(&mut Checker)) {
        let capture = std::mem::replace(&mut self.context.sites.capture, |_| {});
        record_existing(self);
        (self.context.sites.capture, self.context.sites.latest) = (capture, None);
    }

    /// Records that a queue pair was in this state, and had this peer; its next send request is the `next`-th
    /// one.
    pub fn qp_is_in(&mut self, number: u32, state: QpState, peer: Option<Peer>, next: u64) {
        self.state_changed(number, state);
        if peer.is_some() {
            self.for_each_check(|check, context| check.state_changed(context, number, QpState::Rtr, peer));
        }
        self.for_each_check(|check, context| {
            check.begins_at(number, next);
            check.state_changed(context, number, state, peer.filter(|_| state != QpState::Rtr));
        });
    }

    /// Records that a queue pair, of whose attributes the checker was not notified, is connected to this peer
    /// at an address of its device.
    pub fn qp_is_connected_here(&mut self, number: u32, peer: u32) {
        if let Some(qp) = self.context.qps.get_mut(&number) {
            (qp.destination, qp.peer_is_here) = (Some(peer), true);
        }
    }

    /// Returns the findings.
    pub fn findings(&mut self) -> &mut Findings {
        &mut self.context.findings
    }

    /// Calls a method of each check.
    #[inline]
    pub(super) fn for_each_check(&mut self, mut visit: impl FnMut(&mut dyn Check, &mut CheckContext)) {
        self.checks.for_each_check(|check| visit(check, &mut self.context));
    }

    /// Makes the checks forget a queue that was destroyed or created again; all queues if none is named.
    pub(super) fn forget(&mut self, of: Option<QueueName>) {
        self.for_each_check(|check, _| check.forget(of));
    }

    /// Asks each check until one returns an answer.
    pub(super) fn ask<T>(&self, question: impl Fn(&dyn Check) -> Option<T>) -> Option<T> {
        self.checks.ask(question)
    }

    fn pass_callbacks(&mut self) {
        self.for_each_check(|check, context| check.callbacks_set(context));
    }

    /// Sets the function that reads memory, to see whether it changes. Without it, no contents are compared.
    pub fn set_memory_reader(&mut self, read: ReadMemory) {
        self.context.callbacks.read = Some(read);
        self.pass_callbacks();
    }

    /// Sets the function that reads memory which the device copies at the same moment. Without it, such
    /// memory is read like other memory.
    pub fn set_mapped_memory_reader(&mut self, read: ReadMemory) {
        self.context.callbacks.read_at_once = Some(read);
        self.pass_callbacks();
    }

    /// Sets the function that returns the stack of the calling thread. Without it, no buffer counts as being
    /// on one.
    pub fn set_stack_source(&mut self, own_stack: OwnStack) {
        self.context.callbacks.own_stack = Some(own_stack);
        self.pass_callbacks();
    }

    /// Sets the function that fills the buffers of posted receives.
    pub fn set_poisoner(&mut self, fill: FillMemory) {
        self.context.callbacks.fill = Some(fill);
        self.pass_callbacks();
    }

    /// Sets the function that counts the sleeps of the calling thread. Without it, sleeps between
    /// polls are not reported.
    pub fn set_sleep_counter(&mut self, sleeps: SleepCounter) {
        self.context.callbacks.sleeps = Some(sleeps);
        self.pass_callbacks();
    }

    /// Sets the functions that watch the program's accesses to memory. Without them, no early use is found.
    pub fn set_watchpoints(&mut self, watchpoints: Watchpoints) {
        self.context.callbacks.watchpoints = Some(watchpoints);
        self.pass_callbacks();
    }

    /// Sets the function that is notified of the bounds of posted requests' memory.
    pub fn set_bounds_callback(&mut self, watch: BoundsCallback) {
        self.context.callbacks.watch = Some(watch);
        self.pass_callbacks();
    }

    /// Sets the function that returns how often the calling thread has waited. Without it, programs that poll
    /// memory in order to notice WRITEs are not found.
    #[must_use]
    pub fn with_wait_counter(mut self, switches: WaitCounter) -> Checker {
        self.context.callbacks.switches = Some(switches);
        self.pass_callbacks();
        self
    }

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

    /// Handles an event.
    #[inline]
    pub fn on_event(&mut self, event: &Event<'_>) {
        let own = self.context.own;
        match event {
            Event::Qp { qp, event } if is_of_message(event) => {
                if self.context.qps.contains_key(&qp.qpn.value()) {
                    self.checks.on_message_event(&mut self.context, qp, event);
                }
                self.handle_qp_event(qp, event);
            }
            Event::Polled { cq, completion } => self.polled(own.handle(cq.index), completion),
            _ => self.handle_other_event(event),
        }
    }

    #[cold]
    fn handle_other_event(&mut self, event: &Event<'_>) {
        let own = self.context.own;
        self.checks.on_event(&mut self.context, event);
        match event {
            Event::Qp { qp, event } => self.handle_qp_event(qp, event),
            Event::QpDestroyed { qp } => self.qp_destroyed(qp.qpn.value()),
            Event::Armed { cq, solicited_only } => self.cq_armed(own.handle(cq.index), *solicited_only),
            Event::CompletionEventRaised { cq } => self.event_raised(own.handle(cq.index)),
            Event::CompletionEventDelivered { cq } => self.event_delivered(own.handle(cq.index)),
            Event::AsyncEventRaised { event, element } => self.async_event_raised(*event, *element),
            Event::SharedRecvPosted { srq, .. } => self.srq_filled(own.handle(*srq)),
            Event::SrqDestroyed { srq } => self.srq_destroyed(own.handle(*srq)),
            _ => {}
        }
    }

    fn handle_qp_event(&mut self, qp: &QpContext, event: &QpEvent<'_>) {
        let number = qp.qpn.value();
        match event {
            QpEvent::StateChanged { to, peer, .. } => {
                self.state_changed(number, *to);
                self.for_each_check(|check, context| check.state_changed(context, number, *to, *peer));
            }
            QpEvent::SendPosted { signaled, inline, length_bytes, opcode, message, request, .. } => {
                self.send_posted(number, *signaled);
                self.checks.request_posted(&mut self.context, number, *message, *length_bytes, request);
                if !inline && opcode.info().class != WrClass::Local {
                    self.posted_from_memory(number, *length_bytes);
                }
            }
            QpEvent::RecvPosted { .. } => self.receive_posted(number),
            QpEvent::Logged(cause) => {
                let hint = self.ask(|check| check.hint(&self.context, cause));
                self.for_each_check(|check, context| check.logged(context, number, cause, hint.as_ref()));
            }
            QpEvent::Completed { completion, cq, released } => {
                self.completed(number, self.context.own.handle(*cq), completion, *released);
                if completion.status == WcStatus::RnrRetryExcErr {
                    self.send_failed(number, completion.status);
                }
            }
            QpEvent::RemoteAccess { class, range, ends } if *class != OperationClass::Read => {
                self.checks.remote_access(&mut self.context, number, *class, range, *ends);
            }
            QpEvent::RemoteWriteEnded { has_imm } => {
                self.checks.remote_write_ended(&mut self.context, number, *has_imm);
            }
            QpEvent::NakSent { syndrome: Syndrome::RnrNak { .. }, psn }
            | QpEvent::Dropped { reason: Counter::RxNoReceive, psn, .. } => {
                self.found_no_receive(qp, psn.value());
            }
            QpEvent::NakReceived { syndrome: Syndrome::RnrNak { .. }, psn } => {
                self.peer_had_no_receive(number, psn.value());
            }
            QpEvent::ReceiverNotReady { retries_left, wait_ns, .. } => {
                self.waits_for_receive(number, *retries_left, *wait_ns);
            }
            _ => {}
        }
    }
}

/// A subscriber that notifies a checker of the events of a device. The checker's lock is taken under the
/// engine's, so a thread that holds it must not call the device.
pub struct CheckSubscriber {
    /// Checker, which may be notified by other devices, too.
    pub checker: Arc<Mutex<Checker>>,
    /// Device of the events.
    pub device: DeviceTag,
}

impl Subscriber for CheckSubscriber {
    fn topics(&self) -> Topics {
        Topics::STATES
            | Topics::POSTS
            | Topics::DROPS
            | Topics::REFUSALS
            | Topics::RECOVERY
            | Topics::COMPLETIONS
            | Topics::LOG
            | Topics::POLLS
            | Topics::COMPLETION_EVENTS
            | Topics::ASYNC_EVENTS
            | Topics::OBJECTS
            | Topics::ACCESSES
            | Topics::PACKETS
            | Topics::REGIONS
            | Topics::FAULTS
    }

    fn on_event(&self, at_ns: u64, event: &Event<'_>) {
        holding(|| {
            self.checker
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .on(self.device)
                .at(at_ns)
                .on_event(event);
        });
    }
}
