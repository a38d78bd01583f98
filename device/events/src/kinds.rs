//! The kinds of events, and what they are about.

use std::net::IpAddr;
use std::sync::Arc;

use bitflags::bitflags;
use pumice_calls::Call;
use pumice_faults::Fired;
use pumice_faults::calls::CallFired;
use pumice_faults::completion_events::CompletionEventFired;
use pumice_faults::completions::CompletionFired;
use pumice_faults::live::LiveChange;
use pumice_ground::table::Handle;
use pumice_transport::cm::{Event as CmEvent, State as CmState};
use pumice_transport::event::{QpEvent, Topic};
use pumice_transport::host::{Counter, QpContext};
use pumice_transport::mad::CmMessage;
use pumice_transport::path::Path;
use pumice_transport::types::{AsyncEventType, RecvRequest, WorkCompletion};
use pumice_transport::wire::{Opcode, Psn, Qpn};

use super::element::AsyncElement;

bitflags! {
    /// A set of topics; see [`Topic`] for those of the protocol.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Topics: u32 {
        /// Changes of the state of queue pairs.
        const STATES = Topic::States.bit();
        /// Requests posted.
        const POSTS = Topic::Posts.bit();
        /// Packets sent and received, answers apart; frequent.
        const PACKETS = Topic::Packets.bit();
        /// Packets of answers, sent and received; frequent. Who wants these has to want `PACKETS`, too.
        const ANSWERS = Topic::Answers.bit();
        /// Packets that were dropped, repeated or out of turn.
        const DROPS = Topic::Drops.bit();
        /// NAKs, and congestion notifications.
        const REFUSALS = Topic::Refusals.bit();
        /// Timers, repetitions and waits of the requester.
        const RECOVERY = Topic::Recovery.bit();
        /// Requests completed.
        const COMPLETIONS = Topic::Completions.bit();
        /// What peers do with registered memory.
        const ACCESSES = Topic::Accesses.bit();
        /// Sentences for the operator.
        const LOG = Topic::Log.bit();
        /// Completions that the program polled; frequent.
        const POLLS = 1 << Topic::COUNT;
        /// Asynchronous events of verbs, raised and delivered.
        const ASYNC_EVENTS = 1 << (Topic::COUNT + 1);
        /// Completion queues armed; completion events, raised and delivered.
        const COMPLETION_EVENTS = 1 << (Topic::COUNT + 2);
        /// Queue pairs made and destroyed.
        const OBJECTS = 1 << (Topic::COUNT + 3);
        /// Faults that a plan applied.
        const FAULTS = 1 << (Topic::COUNT + 4);
        /// Batches of packets as they meet the network; frequent.
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

/// How far a call of the program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPhase {
    /// It begins, and nothing has been asked about it.
    Begins,
    /// It is counted and its fate is known; its work comes next.
    Enters,
    /// It has done its work.
    Returns,
    /// It has failed.
    Fails,
    /// An attempt of it has ended, and the same call will be tried again.
    Pauses,
}

/// A call of the program: which one, and what is known of it. Who hears of it does so in the thread that
/// makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallMade {
    /// Which one.
    pub call: Call,
    /// The address of the object that it is about; 0 for none.
    pub on: usize,
    /// Its ordinal among the calls of this name in this process, from 1; 0 before it is counted.
    pub ordinal: u64,
}

/// Something that happened.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The program makes a call.
    Call {
        /// The call.
        made: CallMade,
        /// How far it is.
        phase: CallPhase,
    },
    /// A call has looked for something and found nothing: how often programs look depends on time, so it does
    /// not count among the calls of its name.
    Idle {
        /// The call.
        made: CallMade,
    },
    /// A queue pair did something.
    Qp {
        /// The queue pair; [`QpContext::ordinal`] names it alike in every run.
        qp: &'a QpContext,
        /// What it did.
        event: &'a QpEvent<'a>,
    },
    /// A queue pair was made.
    QpCreated {
        /// The queue pair.
        qp: &'a QpContext,
        /// Its transport service.
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
        /// The key, for scatter/gather elements and for peers.
        key: u32,
        /// First byte in this process.
        address: u64,
        /// Bytes.
        length: u64,
        /// The first byte's address as users of the key say it.
        iova: u64,
        /// All of it is mapped for as long as it is registered.
        stays_mapped: bool,
    },
    /// A registration ended.
    RegionDeregistered {
        /// The key that it had.
        key: u32,
    },
    /// A packet was dropped before a queue pair saw it.
    PacketDropped {
        /// The counter that has it.
        reason: Counter,
        /// The address that sent it.
        source: IpAddr,
        /// What is known of it, if it could be parsed: destination, opcode and PSN.
        packet: Option<(Qpn, Opcode, Psn)>,
    },
    /// A rule of a fault plan applied to a packet on its way out.
    FaultApplied {
        /// Which rule did what to which packet.
        fault: &'a Fired<'a>,
        /// The number of the queue pair; `None` for connection management.
        qpn: Option<Qpn>,
    },
    /// A rule came, rested, went on or went while the program runs.
    FaultPlanChanged {
        /// Which rule, and what became of it.
        change: &'a LiveChange<'a>,
    },
    /// A rule of a fault plan applied to a completion.
    CompletionFaultApplied {
        /// Which rule did what to which completion.
        fault: &'a CompletionFired<'a>,
        /// The number of the queue pair.
        qpn: Qpn,
    },
    /// A rule of a fault plan applied to a call.
    CallFaultApplied {
        /// Which rule did what to which call.
        fault: &'a CallFired<'a>,
    },
    /// A rule of a fault plan applied to an event of a completion channel.
    CompletionEventFaultApplied {
        /// Which rule did what to which event.
        fault: &'a CompletionEventFired<'a>,
    },
    /// A call of the program was refused.
    CallRefused {
        /// Its name.
        call: &'a str,
        /// Its ordinal among the calls of this name in this process, from 1, if they are counted.
        ordinal: Option<u64>,
        /// The errno that it ended with.
        errno: i32,
        /// Why, in words.
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
    /// Something happened to a connection, of which the program is told.
    CmEvent {
        /// What happened.
        event: &'a CmEvent,
        /// The state that the connection is in now; `None` if it is over and forgotten.
        state: Option<CmState>,
    },
    /// Packets of one path left together.
    BatchSent {
        /// Their path.
        path: &'a Path,
        /// Bytes of every packet but the last, which may be shorter; at least 1.
        segment_bytes: usize,
        /// The packets, from BTH to ICRC each.
        bytes: &'a [u8],
        /// What a fault plan did to some of them, by their indices in the batch, upwards.
        comments: &'a [(u16, Arc<str>)],
    },
    /// A fault plan lost a packet, which never met the network.
    PacketLost {
        /// The path that it would have gone.
        path: &'a Path,
        /// The packet, from BTH to ICRC; the ICRC is made with IP ID 0.
        bytes: &'a [u8],
        /// What the plan did.
        comment: &'a str,
    },
    /// Packets of one path arrived together.
    BatchReceived {
        /// Their path; the flow label is not known.
        path: &'a Path,
        /// Bytes of every packet but the last, which may be shorter; at least 1.
        segment_bytes: usize,
        /// The packets, from BTH to ICRC each.
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
        /// For solicited completions only.
        solicited_only: bool,
    },
    /// An armed completion queue fired.
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
        /// Which one.
        event: AsyncEventType,
        /// What it is about.
        element: AsyncElement,
    },
    /// The program got an asynchronous event.
    AsyncEventDelivered {
        /// Which one.
        event: AsyncEventType,
        /// What it is about.
        element: AsyncElement,
    },
}

impl Event<'_> {
    /// What it is about.
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
