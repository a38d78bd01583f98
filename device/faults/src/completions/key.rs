//! Which completion it is, and what happens to it.

use std::hash::Hasher as _;

use fnv::FnvHasher;
use pumice_ground::random::Random;
use pumice_transport::types::{WcOpcode, WcStatus};

use crate::identity::named;
use crate::trigger::Trigger;

named! {
    /// The work queue of a queue pair.
    WorkSide {
        /// That of send requests.
        Send = "send",
        /// That of receive requests.
        Receive = "receive",
    }
}

named! {
    /// What a work request did.
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
        /// A request that the program wrote as adapters read it was carried out.
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
            WcOpcode::Recv => CompletionClass::Recv,
            WcOpcode::RecvRdmaWithImm => CompletionClass::RecvWrite,
        }
    }

    /// The work queue that has requests of this class.
    pub const fn side(self) -> WorkSide {
        match self {
            CompletionClass::Recv | CompletionClass::RecvWrite => WorkSide::Receive,
            _ => WorkSide::Send,
        }
    }
}

/// Which completion of a process it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CompletionKey {
    /// The ordinal of the queue pair in its process, from 0.
    pub qp: u32,
    /// How often the queue pair was reset before.
    pub connection: u32,
    /// What the work request did.
    pub class: CompletionClass,
    /// The ordinal of the work request on its work queue, from 0: of those that were carried out, also those
    /// that make no completion. With a shared receive queue, of those that this queue pair used.
    pub message: u64,
}

/// What happens to a completion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionFate {
    /// The work request ends with this.
    pub status: Option<WcStatus>,
    /// What its completion has as `vendor_err`.
    pub vendor_err: u32,
    /// The completion comes so much later.
    pub delay_ns: u64,
    /// The completion is held until this happens.
    pub until: Option<Trigger>,
}

impl CompletionKey {
    /// What a rule draws for this completion: a function of the seed, the rule's name, the process and the
    /// work request.
    pub fn draw(&self, seed: u64, rule: &str, tag: &str) -> Random {
        let mut hasher = FnvHasher::default();
        for text in [rule, tag, self.class.side().name()] {
            hasher.write(text.as_bytes());
            // It is in no UTF-8 text: it separates.
            hasher.write(&[0xff]);
        }
        for number in [self.qp.into(), self.connection.into(), self.message, seed] {
            hasher.write(&number.to_le_bytes());
        }
        Random::new(hasher.finish())
    }
}
