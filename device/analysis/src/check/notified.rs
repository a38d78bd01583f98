//! The notifications that a check may get, and records that it has for each queue.

use std::fmt::Debug;
use std::net::IpAddr;

use pumice_calls::Call;
use pumice_model::event::{AsyncElement, Event};
use pumice_platform::call_stack::Stack;
use pumice_platform::number_map::NumberMap;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::types::{
    AsyncEventType, Cause, Peer, QpState, RemoteRange, SendRequest, WcStatus, WorkCompletion,
};
use pumice_transport::wire::OperationClass;

use super::context::CheckContext;
use super::objects::Object;
use super::queues::Modified;
use super::recorded::RelatedCallSite;
use crate::waits::StalledWait;

/// The name of a queue in the shared records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum QueueName {
    /// A completion queue, by its handle.
    Cq(u32),
    /// A queue pair, by its number.
    Qp(u32),
    /// A shared receive queue, by its handle.
    Srq(u32),
}

impl From<QueueName> for u64 {
    fn from(of: QueueName) -> u64 {
        match of {
            QueueName::Cq(handle) => handle.into(),
            QueueName::Qp(number) => 1 << 32 | u64::from(number),
            QueueName::Srq(handle) => 2 << 32 | u64::from(handle),
        }
    }
}

/// The records of a check, one for each queue. Ask only for queues that are known: the records of others are
/// never removed.
#[derive(Debug, Default)]
pub(super) struct PerQueue<T>(NumberMap<QueueName, T>);

impl<T: Default> PerQueue<T> {
    /// Returns the record of a queue, a new one if there was none.
    pub(super) fn of(&mut self, of: QueueName) -> &mut T {
        self.0.or_default(of)
    }

    /// Returns the record of a queue, if there is one.
    pub(super) fn get(&self, of: QueueName) -> Option<&T> {
        self.0.get(&of)
    }

    /// Removes the record of a queue that was destroyed or created again; all records if none is named.
    pub(super) fn forget(&mut self, of: Option<QueueName>) {
        match of {
            Some(of) => drop(self.0.remove(&of)),
            None => self.0.clear(),
        }
    }
}

/// Facts that a check knows of the memory of a failure.
#[derive(Debug, Clone, Default)]
pub(super) struct Hint {
    /// Continuation of the failure's sentence; empty, or with the punctuation that divides it.
    pub(super) text: String,
    /// Related call sites, for example the one that registered the memory.
    pub(super) related: Vec<RelatedCallSite>,
}

/// A failure whose cause another finding names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedFailure {
    /// Sentence of the log.
    pub sentence: String,
    /// Call site that posted the request; unknown for other failures.
    pub call_site: Stack,
    /// The log reported the failure when it happened.
    pub is_reported: bool,
}

/// Reports whether an event comes with each message.
#[inline]
pub(super) const fn is_of_message(event: &QpEvent<'_>) -> bool {
    matches!(
        event,
        QpEvent::SendPosted { .. }
            | QpEvent::RecvPosted { .. }
            | QpEvent::PacketSent { .. }
            | QpEvent::PacketReceived { .. }
            | QpEvent::Acknowledged { .. }
            | QpEvent::Completed { .. }
            | QpEvent::RemoteAccess { .. }
            | QpEvent::RemoteWriteEnded { .. }
    )
}

/// A search for one kind of mistake, with state of its own.
///
/// A check is notified of calls and of the device's events, and has a method for each of those that it needs.
/// The shared records are up to date by then, except for [`Check::on_event`]. Completion queues and shared
/// receive queues are named by the handles of the shared records, queue pairs by their numbers, and objects
/// by the addresses of the program's pointers.
pub(super) trait Check: Debug + Send {
    /// Called when the program has destroyed a queue, or created it again, of which the check may have a
    /// record; all queues if none is named.
    fn forget(&mut self, _of: Option<QueueName>) {}
    /// Called for a queue pair that existed before; its send requests before this one are not known.
    fn begins_at(&mut self, _qp: u32, _next: u64) {}
    /// Called when the owner of the checker has provided a function: [`CheckContext::callbacks`] has changed.
    fn callbacks_set(&mut self, _context: &CheckContext) {}
    /// Called with an event of the device, but for those of messages and of polls, before the shared records
    /// are updated.
    #[inline]
    fn on_event(&mut self, _context: &mut CheckContext, _event: &Event<'_>) {}

    /// Called with an event of the kinds that come with each message ([`is_of_message`]), of a queue pair
    /// that is known, before the shared records are updated.
    #[inline]
    fn on_message_event(&mut self, _context: &mut CheckContext, _qp: &QpContext, _event: &QpEvent<'_>) {}

    /// Called when the program makes a call with the object at this address; 0 if none.
    #[inline]
    fn enters(&mut self, _context: &mut CheckContext, _call: Call, _address: u64) {}
    /// Called when the program passes this address, at which there is no object now, to a call.
    fn used(&mut self, _context: &mut CheckContext, _address: u64, _call: &str) {}
    /// Called when the program gets an object from a call of this name, at this call site.
    fn object_made(
        &mut self,
        _context: &mut CheckContext,
        _kind: &'static str,
        _call: &'static str,
        _made: &Stack,
    ) {
    }
    /// Called when the program has destroyed an object.
    fn object_destroyed(&mut self, _context: &mut CheckContext, _address: u64) {}
    /// Called when an object ended with its context, which the program closes.
    fn object_left_behind(&mut self, _context: &mut CheckContext, _object: &Object) {}
    /// Called when the program passes an object, as in "completion queue", of another context than the
    /// call's.
    fn of_other_context(&mut self, _context: &mut CheckContext, _object: &str) {}
    /// Called when the program has prepared for forks: it called `ibv_fork_init`, or queried whether that is
    /// needed.
    fn prepared_for_forks(&mut self) {}
    /// Called when the program is about to fork.
    fn forks(&mut self, _context: &mut CheckContext) {}
    /// Called in a fork child; the shared records are empty, and [`Check::forget`] was called.
    fn forked(&mut self, _context: &mut CheckContext) {}
    /// Called when a signal ends the process, wherever the program is.
    fn is_ended_by_signal(&mut self, _context: &mut CheckContext) {}
    /// Called when the process ends with status 0.
    fn ends(&mut self, _context: &mut CheckContext) {}

    /// Called when the program polls a completion queue, whether a completion is there or not.
    #[inline]
    fn cq_polled(&mut self, _context: &mut CheckContext, _cq: u32) {}
    /// Called when the program polls this completion.
    #[inline]
    fn polled(&mut self, _context: &mut CheckContext, _cq: u32, _completion: &WorkCompletion) {}
    /// Called when the program arms a completion queue.
    fn cq_armed(&mut self, _context: &mut CheckContext, _cq: u32) {}
    /// Called when the program has destroyed a completion queue, whose record exists for the last time.
    fn cq_destroyed(&mut self, _context: &mut CheckContext, _cq: u32) {}
    /// Called when a thread has slept in `ibv_get_cq_event` for a further tenth of a second. `is_long` says
    /// that it has slept for a second at least.
    fn sleeps(&mut self, _context: &mut CheckContext, _channel: u64, _is_long: bool) {}
    /// Called ten times a second: adds queues, each with the descriptor of its channel, for which the checker
    /// should find out whether a thread sleeps until the descriptor is readable.
    fn collect_waiting(&mut self, _context: &CheckContext, _waiting: &mut Vec<(u32, i32)>) {}
    /// Called when a thread sleeps until the descriptor of such a queue's channel is readable.
    fn sleeps_in_poll(&mut self, _context: &mut CheckContext, _cq: u32) {}
    /// Called when the device has made a completion event.
    fn event_raised(&mut self, _context: &mut CheckContext, _cq: u32) {}
    /// Called when the program gets a completion event.
    fn event_delivered(&mut self, _context: &mut CheckContext, _cq: u32) {}
    /// Called when the program acknowledges this number of completion events.
    fn events_acknowledged(&mut self, _context: &mut CheckContext, _cq: u32, _count: u64) {}
    /// Called when the program reads a field of a failed completion of the queue at an address.
    fn field_of_error_read(
        &mut self,
        _context: &mut CheckContext,
        _address: u64,
        _field: &str,
        _status: WcStatus,
    ) {
    }

    /// Called when a send request was posted to a queue pair that is known.
    #[inline]
    fn send_posted(&mut self, _context: &mut CheckContext, _qp: u32, _is_signaled: bool) {}
    /// Called when a send request was posted to a queue pair, known or not: its `message`-th one, of this
    /// length.
    #[inline]
    fn request_posted(
        &mut self,
        _context: &mut CheckContext,
        _qp: u32,
        _message: u64,
        _bytes: u32,
        _request: &SendRequest<'_>,
    ) {
    }
    /// Called when a send request was posted whose payload, of this length, is in registered memory.
    #[inline]
    fn posted_from_memory(&mut self, _context: &mut CheckContext, _qp: u32, _bytes: u32) {}
    /// Called when a receive was posted to a queue pair that is known.
    #[inline]
    fn receive_posted(&mut self, _context: &mut CheckContext, _qp: u32) {}
    /// Called when a post of send requests was refused because the queue is full.
    fn send_queue_is_full(&mut self, _context: &mut CheckContext, _qp: u32) {}
    /// Called for a completion, with the number of send requests that it ends.
    #[inline]
    fn completed(
        &mut self,
        _context: &mut CheckContext,
        _qp: u32,
        _completion: &WorkCompletion,
        _released: u32,
    ) {
    }
    /// Called when a send request failed with this status.
    fn send_failed(&mut self, _context: &mut CheckContext, _qp: u32, _status: WcStatus) {}
    /// Called when a queue pair failed or went on without a message, for this reason. The hint is of another
    /// check.
    fn logged(&mut self, _context: &mut CheckContext, _qp: u32, _cause: &Cause, _hint: Option<&Hint>) {}
    /// Called when a call of the program was refused with this errno; the sentence is that of the log.
    fn call_refused(&mut self, _context: &mut CheckContext, _call: Call, _errno: i32, _sentence: &str) {}
    /// Called when something waits in vain, at this call site.
    fn wait_stalled(&mut self, _context: &mut CheckContext, _vain: &StalledWait, _stack: &Stack) {}
    /// Called when findings that were held back may be reported; with `is_over` they have to be. Failures of
    /// which another finding names the cause become `effects`.
    fn settles(&mut self, _context: &mut CheckContext, _is_over: bool, _effects: &mut Vec<ExplainedFailure>) {
    }
    /// Called when the program has called `ibv_modify_qp`.
    fn qp_modified(&mut self, _context: &mut CheckContext, _modified: &Modified<'_>) {}
    /// Called when a queue pair went to another state.
    fn state_changed(&mut self, _context: &mut CheckContext, _qp: u32, _to: QpState, _peer: Option<Peer>) {}
    /// Called when a queue pair was destroyed, whose record exists for the last time if it is known.
    fn qp_destroyed(&mut self, _context: &mut CheckContext, _qp: u32) {}
    /// Called when the program has attached a queue pair to a multicast group.
    fn group_attached(&mut self, _group: IpAddr) {}
    /// Called when a message came and found no receive.
    fn found_no_receive(&mut self, _context: &mut CheckContext, _qp: u32) {}
    /// Called when a successful change of a queue pair has set `rnr_retry`.
    fn rnr_retry_set(&mut self, _context: &mut CheckContext, _qp: u32, _rnr_retry: u8) {}
    /// Called when the peer had no receive for a message.
    fn peer_had_no_receive(&mut self, _context: &mut CheckContext, _qp: u32, _psn: u32) {}
    /// Called when nothing is sent for a while, because the peer had no receive. `retries_left` is as the
    /// device counts them.
    fn waits_for_receive(&mut self, _context: &mut CheckContext, _qp: u32, _retries_left: u8, _wait_ns: u64) {
    }
    /// Called when a request of the peer begins to use memory of this process. `ends` says that it has one
    /// packet.
    #[inline]
    fn remote_access(
        &mut self,
        _context: &mut CheckContext,
        _qp: u32,
        _class: OperationClass,
        _range: &RemoteRange,
        _ends: bool,
    ) {
    }
    /// Called when the last packet of a WRITE was executed.
    #[inline]
    fn remote_write_ended(&mut self, _context: &mut CheckContext, _qp: u32, _has_imm: bool) {}

    /// Called when the program has armed the limit of a shared receive queue.
    fn srq_limit_armed(&mut self, _context: &mut CheckContext, _srq: u32) {}
    /// Called when a message found no receive, on a queue pair that takes them from this queue.
    fn srq_was_empty(&mut self, _context: &mut CheckContext, _srq: u32) {}
    /// Called when a receive is posted to a shared receive queue.
    fn srq_filled(&mut self, _context: &mut CheckContext, _srq: u32) {}
    /// Called when a shared receive queue was destroyed, whose record exists for the last time.
    fn srq_destroyed(&mut self, _context: &mut CheckContext, _srq: u32) {}

    /// Called when the device has an asynchronous event for the program.
    fn async_event_raised(
        &mut self,
        _context: &mut CheckContext,
        _event: AsyncEventType,
        _element: AsyncElement,
    ) {
    }
    /// Called when the program gets an asynchronous event. `address` is that of the event's object, 0 if
    /// none.
    fn async_event_got(&mut self, _context: &mut CheckContext, _address: u64) {}
    /// Called when the program acknowledges an asynchronous event about the object at an address.
    fn async_event_acknowledged(&mut self, _context: &mut CheckContext, _address: u64) {}
    /// Called when the program gets the event of rdma_cm at an address, for whose acknowledgement this
    /// identifier waits.
    fn cm_event_got(&mut self, _context: &mut CheckContext, _identifier: u64, _event: u64) {}
    /// Called when the program acknowledges the event of rdma_cm at an address.
    fn cm_event_acknowledged(&mut self, _context: &mut CheckContext, _event: u64) {}
    /// Called when the program acknowledges an event of rdma_cm of this name, whose private data is in this
    /// page.
    fn private_data_given_back(
        &mut self,
        _context: &mut CheckContext,
        _event: u64,
        _name: &str,
        _page: usize,
    ) {
    }
    /// Called when the program reads private data in a page that it has given back, at these return
    /// addresses.
    fn private_data_read(&mut self, _context: &mut CheckContext, _page: usize, _addresses: &[u64]) {}
    /// Called when a call about an identifier has waited for the acknowledgement of events with these names
    /// for a second.
    fn waits_for_cm_acknowledgements(&mut self, _context: &mut CheckContext, _identifier: u64, _names: &str) {
    }
    /// Called when the program destroys an object, and has not acknowledged this number of its events for a
    /// second.
    fn waits_for_acknowledgements(
        &mut self,
        _context: &mut CheckContext,
        _address: u64,
        _count: u64,
        _events: &str,
        _remedy: &str,
    ) {
    }

    /// Called for an object that one thread at a time may use, together with all others of the domain.
    fn belongs_to_thread_domain(&mut self, _address: u64, _domain: u64) {}
    /// Called when a thread makes a call with the object at this address.
    fn thread_enters(
        &mut self,
        _context: &mut CheckContext,
        _thread: u64,
        _call: &'static str,
        _address: u64,
    ) {
    }
    /// Called when that call ends.
    fn thread_leaves(&mut self, _thread: u64, _address: u64) {}

    /// Returns more facts about the memory that caused a failure.
    fn hint(&self, _context: &CheckContext, _cause: &Cause) -> Option<Hint> {
        None
    }
    /// Returns the request under way that uses bytes of a range of memory.
    fn user_of(&self, _address: u64, _bytes: u64) -> Option<u64> {
        None
    }
    /// Called when the program frees memory of a request by this call.
    fn memory_freed(&mut self, _context: &mut CheckContext, _request: u64, _call: &str) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_begin_anew_with_their_queues() {
        let mut per_queue = PerQueue::<u32>::default();
        for of in [QueueName::Cq(1), QueueName::Qp(1)] {
            *per_queue.of(of) += 1;
        }
        per_queue.forget(Some(QueueName::Cq(1)));
        assert_eq!((*per_queue.of(QueueName::Cq(1)), *per_queue.of(QueueName::Qp(1))), (0, 1));
        per_queue.forget(None);
        assert_eq!(*per_queue.of(QueueName::Qp(1)), 0);
    }
}
