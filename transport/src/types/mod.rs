//! The vocabulary of verbs: the values that all layers use, numbered as the verbs ABI numbers them.

mod address_vector;
mod cause;
mod completion;
mod counter;
mod event;
mod failure;
mod fate;
mod memory_key;
mod mtu;
mod opcode;
#[cfg(any(test, kani))]
mod proofs;
mod queue_pair;
mod store_order;
mod work;

pub use address_vector::{AddressVector, Gid};
pub use cause::{Cause, CqUse, DropReason};
pub use completion::{CompletionError, MAX_MESSAGE_BYTES, PostError, WcFlags, WcStatus, WorkCompletion};
pub use counter::Counter;
pub use event::{AsyncEventType, MrcBreach, MrcLossProof};
pub use failure::{
    FailedSend, FailureDetail, IgnoredAnswer, IgnoredAnswers, MemoryError, MemoryFault, Peer, RemoteRange,
};
pub use fate::{Fate, Flips};
pub use memory_key::{
    Access, BlockSignature, KeyConfiguration, KeyLayout, KeyPiece, KeySignature, SignatureChange,
    SignedBlocks,
};
pub use mtu::Mtu;
pub use opcode::{
    AtomicOperation, LocalData, Operand, QpTypes, SendOpcode, WR_OPCODES, WcOpcode, WrClass, WrInfo,
};
pub use queue_pair::{DcStreams, QP_TYPES, QpCapacity, QpState, QpType, QpTypeRow, VendorService};
pub use store_order::{
    STORE_GUARANTEES, SenderOrder, StoreEvidence, StoreGuarantee, StoreOrder, guarantees_as_markdown,
};
pub use work::{
    DcDestination, FlushRange, RecvRequest, RemoteTarget, SendFlags, SendRequest, Sge, UdDestination,
    WindowBind,
};
