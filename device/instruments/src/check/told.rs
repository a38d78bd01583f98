//! What a check may be told.

use std::fmt::Debug;
use std::net::IpAddr;

use pumice_calls::Call;
use pumice_events::{AsyncElement, Event};
use pumice_ground::call_stack::Stack;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::types::{
    AsyncEventType, Cause, Peer, QpState, RemoteRange, SendRequest, WcStatus, WorkCompletion,
};
use pumice_transport::wire::OperationClass;

use super::context::Context;
use super::facts::Modified;
use super::kept::Of;
use super::objects::Object;
use super::recorded::Related;
use crate::waits::Vain;

/// What a check knows of the memory that a failure is about.
#[derive(Debug, Clone, Default)]
pub(super) struct Hint {
    /// What the sentence of the failure goes on with; empty or with the sign that divides it.
    pub(super) text: String,
    /// Where the memory was registered, for example.
    pub(super) related: Vec<Related>,
}

/// A failure of which a finding tells the cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// As the log has it.
    pub sentence: String,
    /// Where the request was posted; unknown of other failures.
    pub place: Stack,
    /// The log has told of it when it happened.
    pub is_told: bool,
}

/// Whether an event comes with each message.
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

/// Looks for something that programs do wrong, with state of its own.
///
/// It is told of calls and of the device's events, and has a method for each of those that it looks at. The
/// shared records have them already, except for [`Check::hears`]. Completion queues and shared receive queues
/// are named by the handles of the shared records, queue pairs by their numbers, and objects by the addresses
/// of the program's pointers.
pub(super) trait Check: Debug + Send {
    /// A queue is gone or made anew, of which a record may be kept; all of them if none is named.
    fn forget(&mut self, _of: Option<Of>) {}
    /// A queue pair was there before, and nothing is known of its send requests before this one.
    fn begins_at(&mut self, _qp: u32, _next: u64) {}
    /// The owner of the checker has lent it something: [`Context::means`] has changed.
    fn means_given(&mut self, _context: &Context) {}
    /// An event of the device, but for those of messages and of polls, before the shared records have it.
    #[inline]
    fn hears(&mut self, _context: &mut Context, _event: &Event<'_>) {}

    /// The same of an event of the kinds that come with each message ([`is_of_message`]), of a queue pair
    /// that is known.
    #[inline]
    fn hears_of_message(&mut self, _context: &mut Context, _qp: &QpContext, _event: &QpEvent<'_>) {}

    /// The program makes a call, which is given the object at this address; 0 if none.
    #[inline]
    fn enters(&mut self, _context: &mut Context, _call: Call, _address: u64) {}
    /// The program gives this address, at which there is no object now, to a call.
    fn used(&mut self, _context: &mut Context, _address: u64, _call: &str) {}
    /// The program gets an object from a call of this name, which stands here.
    fn object_made(
        &mut self,
        _context: &mut Context,
        _kind: &'static str,
        _call: &'static str,
        _made: &Stack,
    ) {
    }
    /// The program has destroyed an object.
    fn object_destroyed(&mut self, _context: &mut Context, _address: u64) {}
    /// An object went with its context, which the program closes.
    fn object_left_behind(&mut self, _context: &mut Context, _object: &Object) {}
    /// The program gives a call an object, as in "completion queue", of another context than the call's.
    fn of_other_context(&mut self, _context: &mut Context, _object: &str) {}
    /// The program has cared for forks: it called `ibv_fork_init`, or asked whether that is needed.
    fn cares_for_forks(&mut self) {}
    /// The program is about to fork.
    fn forks(&mut self, _context: &mut Context) {}
    /// This process is a child; the shared records are empty, and [`Check::forget`] was called.
    fn forked(&mut self, _context: &mut Context) {}
    /// A signal ends the process, wherever the program is.
    fn is_ended_by_signal(&mut self, _context: &mut Context) {}
    /// The process ends with status 0.
    fn ends(&mut self, _context: &mut Context) {}

    /// The program polls a completion queue, whether there is something or not.
    #[inline]
    fn cq_polled(&mut self, _context: &mut Context, _cq: u32) {}
    /// The program polls this completion.
    #[inline]
    fn polled(&mut self, _context: &mut Context, _cq: u32, _completion: &WorkCompletion) {}
    /// The program arms a completion queue.
    fn cq_armed(&mut self, _context: &mut Context, _cq: u32) {}
    /// The program has destroyed a completion queue, whose record is there for the last time.
    fn cq_destroyed(&mut self, _context: &mut Context, _cq: u32) {}
    /// A thread has slept in `ibv_get_cq_event` for a tenth of a second more; `is_long`: a second at least.
    fn sleeps(&mut self, _context: &mut Context, _channel: u64, _is_long: bool) {}
    /// Ten times a second: adds queues, each with the descriptor of its channel, of which the checker should
    /// know whether a thread sleeps until it is readable.
    fn look_at_waiting(&mut self, _context: &Context, _waiting: &mut Vec<(u32, i32)>) {}
    /// A thread sleeps until the descriptor of such a queue's channel is readable.
    fn sleeps_in_poll(&mut self, _context: &mut Context, _cq: u32) {}
    /// The device has made a completion event.
    fn event_raised(&mut self, _context: &mut Context, _cq: u32) {}
    /// The program gets a completion event.
    fn event_delivered(&mut self, _context: &mut Context, _cq: u32) {}
    /// The program acknowledges so many completion events.
    fn events_acknowledged(&mut self, _context: &mut Context, _cq: u32, _count: u64) {}
    /// The program reads a field of a failed completion of the queue at an address.
    fn field_of_error_read(
        &mut self,
        _context: &mut Context,
        _address: u64,
        _field: &str,
        _status: WcStatus,
    ) {
    }

    /// A send request was posted to a queue pair that is known.
    #[inline]
    fn send_posted(&mut self, _context: &mut Context, _qp: u32, _is_signaled: bool) {}
    /// A send request was posted to a queue pair, known or not: its `message`-th one, of so many bytes.
    #[inline]
    fn request_posted(
        &mut self,
        _context: &mut Context,
        _qp: u32,
        _message: u64,
        _bytes: u32,
        _request: &SendRequest<'_>,
    ) {
    }
    /// A send request was posted whose payload of so many bytes is in registered memory.
    #[inline]
    fn posted_from_memory(&mut self, _context: &mut Context, _qp: u32, _bytes: u32) {}
    /// A receive was posted to a queue pair that is known.
    #[inline]
    fn receive_posted(&mut self, _context: &mut Context, _qp: u32) {}
    /// A post of send requests was refused because the queue is full.
    fn send_queue_is_full(&mut self, _context: &mut Context, _qp: u32) {}
    /// A completion came, and with it the end of so many send requests.
    #[inline]
    fn completed(&mut self, _context: &mut Context, _qp: u32, _completion: &WorkCompletion, _released: u32) {}
    /// A send request failed with this status.
    fn send_failed(&mut self, _context: &mut Context, _qp: u32, _status: WcStatus) {}
    /// A queue pair failed or went on without a message, for this reason. The hint is of another check.
    fn logged(&mut self, _context: &mut Context, _qp: u32, _cause: &Cause, _hint: Option<&Hint>) {}
    /// A call of the program was refused with this errno; the sentence is that of the log.
    fn call_refused(&mut self, _context: &mut Context, _call: Call, _errno: i32, _sentence: &str) {}
    /// Something is waited for in vain, where the stack says.
    fn waits_in_vain(&mut self, _context: &mut Context, _vain: &Vain, _stack: &Stack) {}
    /// What was held back may be told; `is_over`: has to be told. Failures of which another finding tells the
    /// cause become `effects`.
    fn settles(&mut self, _context: &mut Context, _is_over: bool, _effects: &mut Vec<Effect>) {}
    /// The program has called `ibv_modify_qp`.
    fn qp_modified(&mut self, _context: &mut Context, _modified: &Modified<'_>) {}
    /// A queue pair went to another state.
    fn state_changed(&mut self, _context: &mut Context, _qp: u32, _to: QpState, _peer: Option<Peer>) {}
    /// A queue pair was destroyed, whose record is there for the last time if it is known.
    fn qp_destroyed(&mut self, _context: &mut Context, _qp: u32) {}
    /// The program has attached a queue pair to a multicast group.
    fn group_attached(&mut self, _group: IpAddr) {}
    /// A message came and found no receive.
    fn found_no_receive(&mut self, _context: &mut Context, _qp: u32) {}
    /// A change of a queue pair that succeeded has set `rnr_retry`.
    fn rnr_retry_set(&mut self, _context: &mut Context, _qp: u32, _rnr_retry: u8) {}
    /// The peer had no receive for a message.
    fn peer_had_no_receive(&mut self, _context: &mut Context, _qp: u32, _psn: u32) {}
    /// That is why nothing is sent for a while. `retries_left`: as the device counts them.
    fn waits_for_receive(&mut self, _context: &mut Context, _qp: u32, _retries_left: u8, _wait_ns: u64) {}
    /// A request of the peer begins to use memory of this process; `ends`: it has one packet.
    #[inline]
    fn remote_access(
        &mut self,
        _context: &mut Context,
        _qp: u32,
        _class: OperationClass,
        _range: &RemoteRange,
        _ends: bool,
    ) {
    }
    /// The last packet of a WRITE was executed.
    #[inline]
    fn remote_write_ended(&mut self, _context: &mut Context, _qp: u32, _has_imm: bool) {}

    /// The program has armed the limit of a shared receive queue.
    fn srq_limit_armed(&mut self, _context: &mut Context, _srq: u32) {}
    /// A message found no receive, and its queue pair takes them from this queue.
    fn srq_was_empty(&mut self, _context: &mut Context, _srq: u32) {}
    /// A receive is posted to a shared receive queue.
    fn srq_filled(&mut self, _context: &mut Context, _srq: u32) {}
    /// A shared receive queue was destroyed, whose record is there for the last time.
    fn srq_destroyed(&mut self, _context: &mut Context, _srq: u32) {}

    /// The device has an asynchronous event for the program.
    fn async_event_raised(&mut self, _context: &mut Context, _event: AsyncEventType, _element: AsyncElement) {
    }
    /// The program gets an asynchronous event; `address`: of the object that it is about, 0 if none.
    fn async_event_got(&mut self, _context: &mut Context, _address: u64) {}
    /// The program acknowledges an asynchronous event about the object at an address.
    fn async_event_acknowledged(&mut self, _context: &mut Context, _address: u64) {}
    /// The program gets the event of rdma_cm at an address, for whose acknowledgement this identifier waits.
    fn cm_event_got(&mut self, _context: &mut Context, _identifier: u64, _event: u64) {}
    /// The program acknowledges the event of rdma_cm at an address.
    fn cm_event_acknowledged(&mut self, _context: &mut Context, _event: u64) {}
    /// The program acknowledges an event of rdma_cm of this name, whose private data is in this page.
    fn private_data_given_back(&mut self, _context: &mut Context, _event: u64, _name: &str, _page: usize) {}
    /// The program reads private data in a page that it has given back, where these return addresses say.
    fn private_data_read(&mut self, _context: &mut Context, _page: usize, _addresses: &[u64]) {}
    /// A call about an identifier waits for the acknowledgement of events with these names for a second.
    fn waits_for_cm_acknowledgements(&mut self, _context: &mut Context, _identifier: u64, _names: &str) {}
    /// The program destroys an object, and has not acknowledged so many events of it for a second.
    fn waits_for_acknowledgements(
        &mut self,
        _context: &mut Context,
        _address: u64,
        _count: u64,
        _events: &str,
        _remedy: &str,
    ) {
    }

    /// The object at an address may be used by one thread at a time, together with all others of the domain.
    fn belongs_to_thread_domain(&mut self, _address: u64, _domain: u64) {}
    /// A thread makes a call that is given the object at this address.
    fn thread_enters(&mut self, _context: &mut Context, _thread: u64, _call: &'static str, _address: u64) {}
    /// The call ends.
    fn thread_leaves(&mut self, _thread: u64, _address: u64) {}

    /// More about the memory for which a failure is the reason.
    fn hint(&self, _context: &Context, _cause: &Cause) -> Option<Hint> {
        None
    }
    /// The request under way that uses bytes of a range of memory.
    fn user_of(&self, _address: u64, _bytes: u64) -> Option<u64> {
        None
    }
    /// The program frees memory of a request by this call.
    fn memory_freed(&mut self, _context: &mut Context, _request: u64, _call: &str) {}
}
