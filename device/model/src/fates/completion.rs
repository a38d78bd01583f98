//! The identity of a completion, and what happens to it.

use std::hash::Hasher as _;

use fnv::FnvHasher;
use pumice_platform::random::Random;
use pumice_transport::types::{WcOpcode, WcStatus};

use crate::fates::identity::named;
use crate::fates::trigger::Trigger;

named! {
    /// A work queue of a queue pair.
    WorkSide {
        /// The send queue.
        Send = "send",
        /// The receive queue.
        Receive = "receive",
    }
}

named! {
    /// The class of a work request: what it did.
    CompletionClass {
        /// SEND.
        Send = "send",
        /// RDMA WRITE.
        Write = "write",
        /// RDMA READ.
        Read = "read",
        /// Compare and swap, fetch and add, or ATOMIC WRITE.
        Atomic = "atomic",
        /// FLUSH.
        Flush = "flush",
        /// A memory window was bound.
        Bind = "bind",
        /// A key was invalidated.
        Invalidate = "invalidate",
        /// An indirect memory key was configured.
        Configure = "configure",
        /// Memory of the device was copied.
        Copy = "copy",
        /// A request that the program wrote in the adapter's own format was executed.
        Raw = "raw",
        /// A SEND was received.
        Recv = "recv",
        /// An RDMA WRITE with immediate data was received.
        RecvWrite = "recv-write",
    }
}

impl CompletionClass {
    #[doc(hidden)]
    pub const fn of(opcode: WcOpcode) -> CompletionClass {
        match opcode {
            WcOpcode::Send => CompletionClass::Send,
            WcOpcode::RdmaWrite => CompletionClass::Write,
            WcOpcode::RdmaRead => CompletionClass::Read,
            WcOpcode::CompareSwap | WcOpcode::FetchAdd | WcOpcode::AtomicWrite => CompletionClass::Atomic,
            WcOpcode::Flush => CompletionClass::Flush,
            WcOpcode::BindWindow => CompletionClass::Bind,
            WcOpcode::LocalInvalidate => CompletionClass::Invalidate,
            WcOpcode::ConfigureKey => CompletionClass::Configure,
            WcOpcode::CopyMemory => CompletionClass::Copy,
            WcOpcode::RawRequest => CompletionClass::Raw,
            WcOpcode::Recv | WcOpcode::TagRecv | WcOpcode::TagNoTag => CompletionClass::Recv,
            // Operations on lists of tags are no work of a queue pair: no plan is asked about them.
            WcOpcode::TagAdd | WcOpcode::TagDelete | WcOpcode::TagSync => CompletionClass::Recv,
            WcOpcode::RecvRdmaWithImm => CompletionClass::RecvWrite,
        }
    }

    /// Returns the work queue that holds requests of this class.
    pub const fn side(self) -> WorkSide {
        match self {
            CompletionClass::Recv | CompletionClass::RecvWrite => WorkSide::Receive,
            _ => WorkSide::Send,
        }
    }
}

/// The identity of a completion in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CompletionKey {
    /// The ordinal of the queue pair in its process, from 0.
    pub qp: u32,
    /// Number of times that the queue pair was reset before.
    pub connection: u32,
    /// The class of the work request.
    pub class: CompletionClass,
    /// The ordinal of the work request on its work queue, from 0, among the executed ones, including those
    /// that make no completion. With a shared receive queue only the requests that this queue pair used are
    /// counted.
    pub message: u64,
}

/// The fate of a completion: how its work request ends, and how long the completion is delayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionFate {
    /// The status with which the work request ends.
    pub status: Option<WcStatus>,
    /// The `vendor_err` of the completion.
    pub vendor_err: u32,
    /// Additional time before the completion comes, in ns.
    pub delay_ns: u64,
    /// The trigger until which the completion is held.
    pub until: Option<Trigger>,
}

impl CompletionKey {
    /// Returns the random numbers of a rule for this completion: a function of the seed, the rule's name, the
    /// process and the work request.
    pub fn draw(&self, seed: u64, rule: &str, tag: &str) -> Random {
        let mut hasher = FnvHasher::default();
        for text in [rule, tag, self.class.side().name()] {
            hasher.write(text.as_bytes());
            // The byte 0xff is in no UTF-8 text, so it separates.
            hasher.write(&[0xff]);
        }
        for number in [self.qp.into(), self.connection.into(), self.message, seed] {
            hasher.write(&number.to_le_bytes());
        }
        Random::new(hasher.finish())
    }
}
