//! What is known of queues, of their events, and of the threads that use them.

use std::collections::BTreeMap;

use pumice_transport::types::{QpCapacity, QpState};

use super::stack::Stack;

/// How a completion queue is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Armed {
    #[default]
    No,
    Solicited,
    Any,
}

/// A completion queue of the program.
#[derive(Debug, Default)]
pub(super) struct Cq {
    /// As in "completion queue 0".
    pub(super) name: String,
    pub(super) address: u64,
    pub(super) depth: u32,
    /// Address of its channel; 0 if it has none.
    pub(super) channel: u64,
    pub(super) made: Stack,
    /// Where it was last armed.
    pub(super) armed_at: Stack,
    /// Completions that waited when it was last armed, unless it was polled since, and those of them for
    /// which it made an event at once.
    pub(super) armed_over: u64,
    pub(super) fired_late: u64,
    /// Activity at the last look from aside, and looks in sequence at which it was the same.
    pub(super) rest: (u64, u32),
    /// Completions that wait to be polled.
    pub(super) unpolled: u64,
    /// Posted requests that will complete on it.
    pub(super) expected: u64,
    /// Completions that came and succeeded.
    pub(super) successes: u64,
    /// Calls that polled.
    pub(super) polls: u64,
    pub(super) armed: Armed,
    /// It was armed for all completions once.
    pub(super) was_armed: bool,
    /// Events that the program got and has not acknowledged, and where it got the first of them.
    pub(super) unacknowledged: u64,
    pub(super) got_at: Stack,
    /// Events that the program has not got.
    pub(super) events_queued: u64,
    /// Changes with everything that happens to it.
    pub(super) activity: u64,
    /// That of the last look of a thread that sleeps.
    pub(super) activity_seen: u64,
    /// Looks in sequence at which nothing had happened.
    pub(super) looks_at_rest: u32,
    /// Completions that the last call took.
    pub(super) taken: u32,
    /// Calls that took one of several.
    pub(super) small_polls: u32,
    pub(super) told_small: bool,
    pub(super) told_asleep: bool,
}

impl Cq {
    /// Something happened to it.
    pub(super) fn stir(&mut self) {
        self.activity = self.activity.wrapping_add(1);
    }
}

/// Calls of `ibv_post_send` in sequence, without another call between them.
#[derive(Debug, Default)]
pub(super) struct Posts {
    /// Of the queue pair.
    pub(super) address: u64,
    /// Requests that the last call posted.
    pub(super) requests: u32,
    /// Calls in sequence that posted one request each.
    pub(super) run: u32,
    /// Calls in long sequences.
    pub(super) wasted: u32,
}

/// A queue pair of the program.
#[derive(Debug, Default)]
pub(super) struct Qp {
    /// As in "queue pair 3 (number 0x12)".
    pub(super) name: String,
    pub(super) service: &'static str,
    pub(super) state: QpState,
    pub(super) send_cq: u32,
    pub(super) recv_cq: u32,
    pub(super) capacity: QpCapacity,
    pub(super) made: Stack,
    /// Where it last went to INIT, RTR and RTS.
    pub(super) to_init: Stack,
    pub(super) to_rtr: Stack,
    pub(super) to_rts: Stack,
    /// Send requests that are posted and not ended.
    pub(super) sends: u64,
    /// Of these, those that will make a completion.
    pub(super) signaled: u64,
    /// Receives that are posted and not completed.
    pub(super) receives: u64,
    /// Completions that wait to be polled.
    pub(super) sends_unpolled: u64,
    pub(super) receives_unpolled: u64,
    /// Send requests posted in all, and signaled ones.
    pub(super) posted: u64,
    pub(super) posted_signaled: u64,
    /// Short ones whose payload was read from memory.
    pub(super) short: u32,
    /// Receives completed in all.
    pub(super) received: u64,
    /// Messages that found no receive, and the PSN of the last.
    pub(super) unready: u64,
    pub(super) unready_psn: Option<u32>,
    /// One has found none since a receive was last posted.
    pub(super) is_late: bool,
    pub(super) late_posts: u64,
    /// Packets that came before RTR.
    pub(super) early_packets: u64,
    /// The attribute `rnr_retry`, and where it was given.
    pub(super) rnr_retry: Option<u8>,
    pub(super) rnr_retry_at: Stack,
    pub(super) rnr: RnrWaits,
    pub(super) destination: Option<u32>,
    pub(super) peer_is_here: bool,
    pub(super) max_rd_atomic: Option<u8>,
    pub(super) max_dest_rd_atomic: Option<u8>,
    pub(super) told_full: bool,
    pub(super) told_late: u32,
    pub(super) told_qkey: bool,
    pub(super) told_pkey: bool,
    pub(super) told_depth: bool,
    pub(super) told_rnr: bool,
}

/// How long a peer has had no receive for a message.
#[derive(Debug, Default)]
pub(super) struct RnrWaits {
    /// Of the message; none if the peer always had receives.
    pub(super) psn: Option<u32>,
    /// RNR NAKs for it.
    pub(super) naks: u64,
    /// Waits that have ended with another of them.
    pub(super) waited_ns: u64,
    /// The one that has not ended.
    pub(super) waits_ns: u64,
}

/// A shared receive queue of the program.
#[derive(Debug, Default)]
pub(super) struct Srq {
    /// As in "shared receive queue 0".
    pub(super) name: String,
    pub(super) made: Stack,
    /// The program has posted to it.
    pub(super) was_filled: bool,
    /// Messages that found it empty after that, and whether one did since a receive was last posted.
    pub(super) missed: u64,
    pub(super) is_empty: bool,
    /// The program has armed its limit.
    pub(super) was_armed: bool,
    pub(super) is_told: bool,
}

/// Asynchronous events.
#[derive(Debug, Default)]
pub(super) struct Async {
    /// The program has got one.
    pub(super) is_read: bool,
    /// Events of rdma_cm that it has got in all.
    pub(super) of_rdma_cm_got: u64,
    /// Those that tell of something that nothing else tells of.
    pub(super) raised: u64,
    /// The first of these: what it says of which object, and where that was made.
    pub(super) first: Option<(&'static str, String, Stack)>,
    /// Those that the program got and has not acknowledged, by the addresses of their objects, and where it
    /// got the first of them.
    pub(super) unacknowledged: BTreeMap<u64, (u64, Stack)>,
    /// Events of rdma_cm that the program got and has not acknowledged, by their addresses.
    pub(super) of_rdma_cm: BTreeMap<u64, CmEvent>,
    /// Of private data whose event was acknowledged: which event that was, where the program got it and where
    /// it acknowledged it; by the pages.
    pub(super) given_back: BTreeMap<usize, (String, Stack, Stack)>,
}

/// An event of rdma_cm that the program has got.
#[derive(Debug)]
pub(super) struct CmEvent {
    /// The address of the identifier that waits for the acknowledgement.
    pub(super) identifier: u64,
    /// How many the program had got before.
    pub(super) ordinal: u64,
    pub(super) got_at: Stack,
}

/// A thread in a call that is given an object of a domain.
#[derive(Debug)]
pub(super) struct Inside {
    pub(super) thread: u64,
    pub(super) call: &'static str,
    pub(super) address: u64,
    pub(super) stack: Stack,
}

/// Domains, and the threads that are inside of them.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// Domains by the addresses of their objects. A domain is named by an address, too.
    pub(super) domains: BTreeMap<u64, u64>,
    /// The one thread that is inside of a domain; further ones are told of.
    pub(super) inside: BTreeMap<u64, Inside>,
}
