//! The shared records of queues, and facts about queues that calls provide.
//!
//! The shared records of queues. State that one check alone needs is in that check, in
//! [`super::per_queue::PerQueue`].

use pumice_platform::call_stack::Stack;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{Mtu, QpCapacity, QpState, WorkCompletion};

/// A completion queue that the program has made.
#[derive(Debug, Clone, Copy)]
pub struct CqMade {
    /// Address of the program's pointer.
    pub address: u64,
    /// Handle by which events name it.
    pub handle: u32,
    /// Number of completions that it has room for.
    pub depth: u32,
    /// Address of its channel; 0 if it has none.
    pub channel: u64,
}

/// A queue pair that the program has made.
#[derive(Debug, Clone, Copy)]
pub struct QpMade {
    /// Address of the program's pointer.
    pub address: u64,
    /// Queue pair number.
    pub number: u32,
    /// Number of queue pairs that the device had made before it.
    pub ordinal: u32,
    /// Name of its transport service.
    pub service: &'static str,
    /// Handle of the completion queue of send requests.
    pub send_cq: Option<u32>,
    /// Handle of the completion queue of receives of its own.
    pub recv_cq: Option<u32>,
    /// Numbers of requests and entries that it has room for.
    pub capacity: QpCapacity,
}

/// Facts of the device about the attributes of an `ibv_modify_qp`.
#[derive(Debug, Clone, Copy)]
pub struct ModifyFacts {
    /// The call succeeded.
    pub is_done: bool,
    /// Active MTU of the port.
    pub active_mtu: Mtu,
    /// The GID at `sgid_index` is an IPv4 address; `None` if there is no GID, or no address vector.
    pub source_is_ipv4: Option<bool>,
    /// The destination is an address of this device, or of another one of the program.
    pub peer_is_here: bool,
}

/// A call of `ibv_modify_qp`, as checks are notified of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Modified<'a> {
    pub(super) number: u32,
    /// State that the call asks for.
    pub(super) to: Option<QpState>,
    pub(super) attributes: &'a QpAttributes,
    pub(super) mask: AttributeMask,
    pub(super) facts: &'a ModifyFacts,
    /// Call site.
    pub(super) stack: &'a Stack,
}

impl Modified<'_> {
    /// Reports whether the call gives an attribute.
    pub(super) const fn gives(&self, bit: AttributeMask) -> bool {
        self.mask.contains(bit)
    }
}

/// The way in which a completion queue is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum CqNotifyState {
    #[default]
    No,
    Solicited,
    Any,
}

/// A completion queue of the program.
#[derive(Debug, Default)]
pub(super) struct Cq {
    /// Name in findings, as in "completion queue 0".
    pub(super) name: String,
    pub(super) address: u64,
    pub(super) depth: u32,
    /// Address of its channel; 0 if it has none.
    pub(super) channel: u64,
    pub(super) made: Stack,
    /// Call site that last armed it.
    pub(super) armed_at: Stack,
    /// Number of completions that wait to be polled.
    pub(super) unpolled: u64,
    /// Number of posted requests that will complete on it.
    pub(super) expected: u64,
    /// Number of completions that came and succeeded.
    pub(super) successes: u64,
    /// Number of calls that polled.
    pub(super) polls: u64,
    pub(super) armed: CqNotifyState,
    /// The queue was once armed for all completions.
    pub(super) was_armed: bool,
    /// Number of events that the program has not got.
    pub(super) events_queued: u64,
    /// Counter that changes with everything that happens to the queue.
    pub(super) activity: u64,
}

impl Cq {
    /// Counts an activity of the queue.
    pub(super) fn stir(&mut self) {
        self.activity = self.activity.wrapping_add(1);
    }

    /// Notes that the program arms the queue.
    pub(super) fn is_armed(&mut self, solicited_only: bool) {
        if !solicited_only {
            (self.armed, self.was_armed) = (CqNotifyState::Any, true);
        } else if self.armed == CqNotifyState::No {
            (self.armed, self.was_armed) = (CqNotifyState::Solicited, false);
        }
    }
}

/// The call sites of a queue pair.
#[derive(Debug, Default)]
pub(super) struct QpCallSites {
    pub(super) made: Stack,
    /// Call sites at which it last went to INIT, RTR and RTS.
    pub(super) to_init: Stack,
    pub(super) to_rtr: Stack,
    pub(super) to_rts: Stack,
}

/// The requests and completions of a queue pair.
#[derive(Debug, Default)]
pub(super) struct QpCounts {
    /// Number of send requests that are posted and not ended.
    pub(super) sends: u64,
    /// Number of these that will make a completion.
    pub(super) signaled: u64,
    /// Number of receives that are posted and not completed.
    pub(super) receives: u64,
    /// Number of completions that wait to be polled.
    pub(super) sends_unpolled: u64,
    pub(super) receives_unpolled: u64,
    /// Number of receives completed in all.
    pub(super) received: u64,
}

/// A queue pair of the program.
#[derive(Debug, Default)]
pub(super) struct Qp {
    /// Name in findings, as in "queue pair 3 (number 0x12)".
    pub(super) name: String,
    pub(super) service: &'static str,
    pub(super) state: QpState,
    pub(super) send_cq: u32,
    pub(super) recv_cq: u32,
    pub(super) capacity: QpCapacity,
    pub(super) calls: QpCallSites,
    pub(super) counts: QpCounts,
    /// PSN of the last message that found no receive.
    pub(super) unready_psn: Option<u32>,
    /// Number of the queue pair that it is connected to, and whether that is of this process.
    pub(super) destination: Option<u32>,
    pub(super) peer_is_here: bool,
    pub(super) max_rd_atomic: Option<u8>,
    pub(super) max_dest_rd_atomic: Option<u8>,
}

impl Qp {
    /// Applies attributes that the program has given it.
    pub(super) fn is_modified(&mut self, modified: &Modified<'_>) {
        let Modified { to, attributes, facts, stack, .. } = *modified;
        match to {
            Some(QpState::Init) => self.calls.to_init = stack.clone(),
            Some(QpState::Rtr) => self.calls.to_rtr = stack.clone(),
            Some(QpState::Rts) => self.calls.to_rts = stack.clone(),
            _ => {}
        }
        if modified.gives(AttributeMask::DEST_QPN) {
            self.destination = Some(attributes.dest_qp_num);
            self.peer_is_here = facts.peer_is_here;
        }
        if modified.gives(AttributeMask::MAX_QP_RD_ATOMIC) {
            self.max_rd_atomic = Some(attributes.max_rd_atomic);
        }
        if modified.gives(AttributeMask::MAX_DEST_RD_ATOMIC) {
            self.max_dest_rd_atomic = Some(attributes.max_dest_rd_atomic);
        }
    }

    /// Counts a completion, and the end of `released` send requests with it. Returns whether the completion
    /// was expected.
    pub(super) fn is_completed(&mut self, completion: &WorkCompletion, released: u32) -> bool {
        if completion.opcode.is_recv() {
            let is_expected = self.counts.receives > 0;
            self.counts.receives = self.counts.receives.saturating_sub(1);
            self.counts.received = self.counts.received.saturating_add(1);
            self.counts.receives_unpolled = self.counts.receives_unpolled.saturating_add(1);
            return is_expected;
        }
        let is_expected = self.counts.signaled > 0;
        self.counts.signaled = self.counts.signaled.saturating_sub(1);
        self.counts.sends = self.counts.sends.saturating_sub(released.max(1).into());
        self.counts.sends_unpolled = self.counts.sends_unpolled.saturating_add(1);
        is_expected
    }
}

/// A shared receive queue of the program.
#[derive(Debug, Default)]
pub(super) struct Srq {
    /// Name in findings, as in "shared receive queue 0".
    pub(super) name: String,
    pub(super) made: Stack,
}
