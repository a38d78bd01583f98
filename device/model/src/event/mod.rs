//! All events of a program and its device, as one stream: the events of queue pairs
//! ([`pumice_transport::event`]) and those of the device around them.
//!
//! An event borrows its data. The subscribers are fixed when the device opens ([`Subscribers`]), except
//! guests that come while a program runs, and events without a subscriber are not
//! constructed. Counters are part of emitting (`Resources::emit`); the log, the printed steps and all others
//! are [`Subscriber`]s.
//!
//! **Invariant**: a subscriber is called under the engine's lock, and from threads that poll without it. It
//! must not call the device, and must not wait.
//!
//! The kinds of events, their data, and the words for what a fault plan does.

use std::net::IpAddr;
use std::sync::Arc;

use bitflags::bitflags;
use pumice_calls::Call;
use pumice_platform::ordinal::Ordinal;
use pumice_platform::table::Handle;
use pumice_transport::cm::{CmEvent, CmState};
use pumice_transport::event::{QpEvent, Topic};
use pumice_transport::host::{Counter, QpContext};
use pumice_transport::mad::CmMessage;
use pumice_transport::path::Path;
use pumice_transport::types::{AsyncEventType, RecvRequest, WorkCompletion};
use pumice_transport::wire::{Opcode, Psn, Qpn};

use crate::fates::fired::{CallFired, CompletionEventFired, CompletionFired, Fired};
use crate::fates::live::RuleChange;

/// The object of an asynchronous event. A cookie is the application's value for the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncElement {
    /// A completion queue.
    Cq {
        /// The cookie of the completion queue.
        cookie: u64,
    },
    /// A queue pair.
    Qp {
        /// The number of the queue pair.
        qpn: u32,
        /// The cookie of the queue pair.
        cookie: u64,
    },
    /// A shared receive queue.
    Srq {
        /// The cookie of the shared receive queue.
        cookie: u64,
    },
    /// A port, counted from 1.
    Port(u8),
    /// The device.
    Device,
}

bitflags! {
    /// A set of topics; see [`Topic`] for those of the protocol.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Topics: u32 {
        /// Changes of the state of queue pairs.
        const STATES = Topic::States.bit();
        /// Requests posted.
        const POSTS = Topic::Posts.bit();
        /// Packets sent and received, except answers; frequent.
        const PACKETS = Topic::Packets.bit();
        /// Packets of answers, sent and received; frequent. A subscriber to these has to subscribe to
        /// `PACKETS`, too.
        const ANSWERS = Topic::Answers.bit();
        /// Packets that were dropped, repeated or out of turn.
        const DROPS = Topic::Drops.bit();
        /// NAKs, and congestion notifications.
        const REFUSALS = Topic::Refusals.bit();
        /// Timers, repetitions and waits of the requester.
        const RECOVERY = Topic::Recovery.bit();
        /// Requests completed.
        const COMPLETIONS = Topic::Completions.bit();
        /// Accesses of peers to registered memory.
        const ACCESSES = Topic::Accesses.bit();
        /// Sentences for the operator.
        const LOG = Topic::Log.bit();
        /// Completions that the program polled; frequent.
        const POLLS = 1 << Topic::COUNT;
        /// Asynchronous events of verbs, raised and delivered.
        const ASYNC_EVENTS = 1 << (Topic::COUNT + 1);
        /// Completion queues armed; completion events, raised and delivered.
        const COMPLETION_EVENTS = 1 << (Topic::COUNT + 2);
        /// Queue pairs created and destroyed.
        const OBJECTS = 1 << (Topic::COUNT + 3);
        /// Faults that a plan applied.
        const FAULTS = 1 << (Topic::COUNT + 4);
        /// Batches of packets as the network carries them; frequent.
        const BATCHES = 1 << (Topic::COUNT + 5);
        /// Calls of the program that were refused.
        const CALLS = 1 << (Topic::COUNT + 6);
        /// Messages and events of connection management.
        const CM = 1 << (Topic::COUNT + 7);
        /// Memory registered and deregistered.
        const REGIONS = 1 << (Topic::COUNT + 8);
        /// Calls of the program, as they begin and end; frequent.
        const PASSAGES = 1 << (Topic::COUNT + 9);
    }
}

/// The phase of a call of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPhase {
    /// The call begins, and no rule has been asked about it.
    Begins,
    /// The call is counted and its fate is known; it is executed next.
    Enters,
    /// The call was executed.
    Returns,
    /// The call has failed.
    Fails,
    /// An attempt of the call has ended, and the same call will be tried again.
    Pauses,
}

/// A call of the program, and the known data about it. Subscribers are notified in the thread that makes the
/// call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallMade {
    /// The call.
    pub call: Call,
    /// The address of the object that the call is about; 0 for none.
    pub on: usize,
    /// The ordinal of the call among those of this name in this process, from 1; 0 before it is counted.
    pub ordinal: u64,
}

/// An event of the device or of the program.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The program makes a call.
    Call {
        /// The call.
        made: CallMade,
        /// The phase of the call.
        phase: CallPhase,
    },
    /// A call has polled for something and found nothing: how often programs poll depends on time, so the
    /// call does not count among those of its name.
    Idle {
        /// The call.
        made: CallMade,
    },
    /// An event of a queue pair.
    Qp {
        /// The queue pair; [`QpContext::ordinal`] is its name in every run.
        qp: &'a QpContext,
        /// The event of the queue pair.
        event: &'a QpEvent<'a>,
    },
    /// A queue pair was created.
    QpCreated {
        /// The queue pair.
        qp: &'a QpContext,
        /// The transport service of the queue pair.
        service: &'static str,
    },
    /// A queue pair was destroyed.
    QpDestroyed {
        /// The queue pair.
        qp: &'a QpContext,
    },
    /// A receive request was posted to a shared receive queue.
    SharedRecvPosted {
        /// The shared receive queue, as [`QpContext::recv_queue`] names it.
        srq: u32,
        /// The request.
        request: &'a RecvRequest<'a>,
    },
    /// A shared receive queue was destroyed.
    SrqDestroyed {
        /// The shared receive queue.
        srq: u32,
    },
    /// Memory of the process was registered, or a registration changed.
    RegionRegistered {
        /// The key for scatter/gather elements.
        lkey: u32,
        /// The key for peers; on most adapters it is the same number.
        rkey: u32,
        /// Address of the first byte in this process.
        address: u64,
        /// Length in bytes.
        length: u64,
        /// Address of the first byte for users of the key.
        iova: u64,
        /// True if all of the region stays mapped for as long as it is registered.
        stays_mapped: bool,
        /// True if adapters may relax the order of their stores to it.
        relaxed: bool,
    },
    /// A registration ended.
    RegionDeregistered {
        /// The key for scatter/gather elements.
        lkey: u32,
        /// The key for peers.
        rkey: u32,
    },
    /// A packet was dropped before a queue pair saw it.
    PacketDropped {
        /// The counter that counts the drop.
        reason: Counter,
        /// The address that sent it.
        source: IpAddr,
        /// The destination, opcode and PSN of the packet, if it could be parsed.
        packet: Option<(Qpn, Opcode, Psn)>,
    },
    /// A rule of a fault plan applied to a packet on its way out.
    FaultApplied {
        /// The rule, the packet and the fate.
        fault: &'a Fired<'a>,
        /// The number of the queue pair; `None` for connection management.
        qpn: Option<Qpn>,
    },
    /// A rule was added, paused, resumed or cleared while the program runs.
    FaultPlanChanged {
        /// The rule, and its change.
        change: &'a RuleChange<'a>,
    },
    /// A rule of a fault plan applied to a completion.
    CompletionFaultApplied {
        /// The rule, the completion and the fate.
        fault: &'a CompletionFired<'a>,
        /// The number of the queue pair.
        qpn: Qpn,
    },
    /// A rule of a fault plan applied to a call.
    CallFaultApplied {
        /// The rule, the call and the fate.
        fault: &'a CallFired<'a>,
    },
    /// A rule of a fault plan applied to an event of a completion channel.
    CompletionEventFaultApplied {
        /// The rule, the event and the fate.
        fault: &'a CompletionEventFired<'a>,
    },
    /// A call of the program was refused.
    CallRefused {
        /// The name of the call.
        call: &'a str,
        /// The ordinal of the call among those of this name in this process, from 1, if they are counted.
        ordinal: Option<u64>,
        /// The errno with which the call ended.
        errno: i32,
        /// The reason, in words.
        why: &'a str,
    },
    /// A message of connection management was given to the port.
    CmSent {
        /// The message.
        message: &'a CmMessage,
    },
    /// A message of connection management came, and this process handles it.
    CmReceived {
        /// The message.
        message: &'a CmMessage,
    },
    /// An event of a connection, which the program gets.
    CmEvent {
        /// The event.
        event: &'a CmEvent,
        /// The present state of the connection; `None` if it is over and forgotten.
        state: Option<CmState>,
    },
    /// Packets of one path left together.
    BatchSent {
        /// The path of the packets.
        path: &'a Path,
        /// Length of every packet but the last, in bytes, which may be shorter; at least 1.
        segment_bytes: usize,
        /// The packets, each from BTH to ICRC.
        bytes: &'a [u8],
        /// The effects of a fault plan on some of them, by their indices in the batch, in ascending order.
        comments: &'a [(u16, Arc<str>)],
    },
    /// A fault plan lost a packet, which never reached the network.
    PacketLost {
        /// The path of the packet.
        path: &'a Path,
        /// The packet, from BTH to ICRC; the ICRC is computed with IP ID 0.
        bytes: &'a [u8],
        /// The effect of the plan.
        comment: &'a str,
    },
    /// Packets of one path arrived together.
    BatchReceived {
        /// The path of the packets; its flow label is not known.
        path: &'a Path,
        /// Length of every packet but the last, in bytes, which may be shorter; at least 1.
        segment_bytes: usize,
        /// The packets, each from BTH to ICRC.
        bytes: &'a [u8],
    },
    /// The program polled a completion.
    Polled {
        /// The completion queue.
        cq: Handle,
        /// The completion.
        completion: &'a WorkCompletion,
    },
    /// The program armed a completion queue.
    Armed {
        /// The completion queue.
        cq: Handle,
        /// True if the arming is for solicited completions only.
        solicited_only: bool,
    },
    /// An armed completion queue made an event.
    CompletionEventRaised {
        /// The completion queue.
        cq: Handle,
    },
    /// The program got a completion event.
    CompletionEventDelivered {
        /// The completion queue.
        cq: Handle,
    },
    /// An asynchronous event was raised.
    AsyncEventRaised {
        /// The event.
        event: AsyncEventType,
        /// The object of the event.
        element: AsyncElement,
    },
    /// The program got an asynchronous event.
    AsyncEventDelivered {
        /// The event.
        event: AsyncEventType,
        /// The object of the event.
        element: AsyncElement,
    },
}

impl Event<'_> {
    /// Returns the topics of the event.
    #[inline]
    pub const fn topics(&self) -> Topics {
        match self {
            Event::Call { .. } | Event::Idle { .. } => Topics::PASSAGES,
            Event::Qp { event, .. } => Topics::from_bits_retain(event.topic().bit()),
            Event::QpCreated { .. } | Event::QpDestroyed { .. } | Event::SrqDestroyed { .. } => {
                Topics::OBJECTS
            }
            Event::SharedRecvPosted { .. } => Topics::POSTS,
            Event::RegionRegistered { .. } | Event::RegionDeregistered { .. } => Topics::REGIONS,
            Event::PacketDropped { .. } => Topics::DROPS,
            Event::FaultApplied { .. }
            | Event::FaultPlanChanged { .. }
            | Event::CallFaultApplied { .. }
            | Event::CompletionFaultApplied { .. }
            | Event::CompletionEventFaultApplied { .. } => Topics::FAULTS,
            Event::CallRefused { .. } => Topics::CALLS,
            Event::CmSent { .. } | Event::CmReceived { .. } | Event::CmEvent { .. } => Topics::CM,
            Event::BatchSent { .. } | Event::PacketLost { .. } | Event::BatchReceived { .. } => {
                Topics::BATCHES
            }
            Event::Polled { .. } => Topics::POLLS,
            Event::Armed { .. }
            | Event::CompletionEventRaised { .. }
            | Event::CompletionEventDelivered { .. } => Topics::COMPLETION_EVENTS,
            Event::AsyncEventRaised { .. } | Event::AsyncEventDelivered { .. } => Topics::ASYNC_EVENTS,
        }
    }
}

/// Returns, in words, the effect of a fault plan on anything but a packet; `None` if the event is none.
pub fn fault_in_words(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::CallFaultApplied { fault } => fault.sentence(),
        Event::CompletionFaultApplied { fault, qpn } => about_completion(fault, *qpn),
        Event::CompletionEventFaultApplied { fault } => about_completion_event(fault),
        Event::FaultPlanChanged { change } => about_change(change),
        _ => return None,
    })
}

/// Returns, in words, the change of a rule while the program runs.
pub fn about_change(change: &RuleChange<'_>) -> String {
    let RuleChange { rule, what, line, .. } = change;
    match line {
        Some(line) => format!("fault \"{rule}\" {what} while the program runs: {line}"),
        None => format!("fault \"{rule}\" {what} while the program runs"),
    }
}

/// Returns, in words, the effect of a rule on a completion.
pub fn about_completion(fired: &CompletionFired<'_>, qpn: Qpn) -> String {
    let CompletionFired { rule, key, fate, .. } = fired;
    let mut done = Vec::new();
    if let Some(status) = fate.status {
        done.push(format!("ends with {} instead of success", status.name()));
    }
    if fate.delay_ns > 0 {
        done.push(format!("comes {} us later", fate.delay_ns / 1000));
    }
    if let Some(until) = &fate.until {
        done.push(format!("is held until \"{until}\""));
    }
    let (done, class, message) = (done.join(", "), key.class.name(), key.message);
    format!("fault \"{rule}\": {class} request {message} {done} (queue pair {}, QP {qpn})", Ordinal(key.qp))
}

/// Returns, in words, the effect of a rule on an event of a completion channel.
pub fn about_completion_event(fired: &CompletionEventFired<'_>) -> String {
    let CompletionEventFired { rule, key, fate, .. } = fired;
    let mut done = Vec::new();
    if fate.delay_ns > 0 {
        done.push(format!("comes {} us later", fate.delay_ns / 1000));
    }
    if fate.more > 0 {
        done.push(format!("waits for {} more completions, or {} us", fate.more, fate.within_ns / 1000));
    }
    format!("fault \"{rule}\": event {} of completion queue {} {}", key.nth, Ordinal(key.cq), done.join(", "))
}

pub mod async_event;
mod subscribers;

pub use subscribers::{MAX_DYNAMIC_SUBSCRIBERS, Subscriber, Subscribers, SubscriptionId};
