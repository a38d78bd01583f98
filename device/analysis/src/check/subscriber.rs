//! The subscriber by which the checker is notified of the device's events.

use std::sync::{Arc, Mutex, PoisonError};

use pumice_model::event::{Event, Subscriber, Topics};
use pumice_transport::event::QpEvent;
use pumice_transport::host::{Counter, QpContext};
use pumice_transport::types::{WcStatus, WrClass};
use pumice_transport::wire::{OperationClass, Syndrome};

use super::checker::Checker;
use super::device_tag::DeviceTag;
use super::holder::holding;
use super::notified::is_of_message;

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

impl Checker {
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
