//! How the checker hears of the device's events.

use std::sync::{Arc, Mutex, PoisonError};

use pumice_events::{Event, Subscriber, Topics};
use pumice_transport::event::QpEvent;
use pumice_transport::host::{Counter, QpContext};
use pumice_transport::types::{WcStatus, WrClass};
use pumice_transport::wire::Syndrome;

use super::checker::Checker;
use super::holder::holding;
use super::of_device::OfDevice;
use super::told::is_of_message;

/// Tells a checker of the events of a device. Its lock is taken under the engine's, so who holds it must not
/// call the device.
pub struct CheckSubscriber {
    /// The checker, which may hear of other devices, too.
    pub checker: Arc<Mutex<Checker>>,
    /// The device.
    pub device: OfDevice,
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

    fn hear(&self, _at_ns: u64, event: &Event<'_>) {
        holding(|| {
            self.checker.lock().unwrap_or_else(PoisonError::into_inner).on(self.device).hear(event);
        });
    }
}

impl Checker {
    /// Something happened.
    #[inline]
    pub fn hear(&mut self, event: &Event<'_>) {
        let own = self.context.own;
        match event {
            Event::Qp { qp, event } if is_of_message(event) => {
                if self.context.qps.contains_key(&qp.qpn.value()) {
                    self.checks.hears_of_message(&mut self.context, qp, event);
                }
                self.hear_of_qp(qp, event);
            }
            Event::Polled { cq, completion } => self.polled(own.handle(cq.index), completion),
            _ => self.hear_of_rest(event),
        }
    }

    #[cold]
    fn hear_of_rest(&mut self, event: &Event<'_>) {
        let own = self.context.own;
        self.checks.hears(&mut self.context, event);
        match event {
            Event::Qp { qp, event } => self.hear_of_qp(qp, event),
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

    fn hear_of_qp(&mut self, qp: &QpContext, event: &QpEvent<'_>) {
        let number = qp.qpn.value();
        match event {
            QpEvent::StateChanged { to, peer, .. } => {
                self.state_changed(number, *to);
                self.tell(|check, context| check.state_changed(context, number, *to, *peer));
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
                self.tell(|check, context| check.logged(context, number, cause, hint.as_ref()));
            }
            QpEvent::Completed { completion, cq, released } => {
                self.completed(number, self.context.own.handle(*cq), completion, *released);
                if completion.status == WcStatus::RnrRetryExcErr {
                    self.send_failed(number, completion.status);
                }
            }
            QpEvent::RemoteAccess { class, range, ends } => {
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
