//! Operations, their classes, and their positions in messages.

/// Operation; discriminants are the lower five bits of the opcode (of [`Operation::Cnp`]: all eight).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the specification's own names
pub enum Operation {
    SendFirst = 0,
    SendMiddle,
    SendLast,
    SendLastImm,
    SendOnly,
    SendOnlyImm,
    WriteFirst,
    WriteMiddle,
    WriteLast,
    WriteLastImm,
    WriteOnly,
    WriteOnlyImm,
    ReadRequest,
    ReadResponseFirst,
    ReadResponseMiddle,
    ReadResponseLast,
    ReadResponseOnly,
    Acknowledge,
    AtomicAcknowledge,
    CompareSwap,
    FetchAdd,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
    Flush = 0x1c,
    AtomicWrite = 0x1d,
    Cnp = 0x81,
}

/// Position of a packet in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Position {
    /// The packet begins a message of several packets.
    First,
    /// The packet neither begins nor ends its message.
    Middle,
    /// The packet ends a message of several packets.
    Last,
    /// The packet is a whole message.
    Only,
}

impl Position {
    /// Returns the position of a packet that begins its message, ends it, does both or neither.
    #[inline]
    pub const fn of(begins: bool, ends: bool) -> Position {
        match (begins, ends) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
        }
    }

    /// Reports whether the packet begins its message: First and Only.
    #[inline]
    pub const fn begins(self) -> bool {
        matches!(self, Position::First | Position::Only)
    }

    /// Reports whether the packet ends its message: Last and Only.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Position::Last | Position::Only)
    }
}

/// Effect of a packet at its receiver, the same at each position in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperationClass {
    /// A request: data for a receive request.
    Send,
    /// A request: data for the memory that it names.
    Write,
    /// A request: the responder returns memory.
    Read,
    /// A request: the responder changes 8 aligned bytes of memory atomically.
    Atomic,
    /// A request: the responder completes its earlier stores.
    Flush,
    /// An answer: the data of a READ, or empty for requests that need only to be confirmed.
    ReadResponse,
    /// An answer: ACK or NAK.
    Acknowledge,
    /// An answer: the original value that an atomic found.
    AtomicAnswer,
    /// A congestion notification: neither a request nor an answer to one.
    Cnp,
}

impl OperationClass {
    /// Reports whether the packet travels from requester to responder.
    #[inline]
    pub const fn is_request(self) -> bool {
        use OperationClass::{Atomic, Flush, Read, Send, Write};
        matches!(self, Send | Write | Read | Atomic | Flush)
    }

    /// Reports whether the responder remembers the answer of the request, because it must not execute the
    /// request twice.
    #[inline]
    pub const fn is_executed_once(self) -> bool {
        //= statement:13
        //| The answers of atomic operations and of FLUSH are kept, because a repetition is not executed.
        matches!(self, OperationClass::Atomic | OperationClass::Flush)
    }

    /// Reports whether the request takes one of the responder's resources and has a response of its own.
    #[inline]
    pub const fn needs_response(self) -> bool {
        matches!(self, OperationClass::Read) || self.is_executed_once()
    }
}

/// The operations of a message's packets, by their positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packets {
    first: Option<Operation>,
    middle: Option<Operation>,
    last: Option<Operation>,
    only: Option<Operation>,
}

impl Packets {
    /// The operations of a request that makes no packet.
    pub const NONE: Packets = Packets { first: None, middle: None, last: None, only: None };

    /// Creates the operations of a message that is cut into packets.
    pub(super) const fn of(first: Operation, middle: Operation, last: Operation, only: Operation) -> Packets {
        Packets { first: Some(first), middle: Some(middle), last: Some(last), only: Some(only) }
    }

    /// Creates the operations of a message with the same operation in every position.
    pub const fn one(operation: Operation) -> Packets {
        Packets::of(operation, operation, operation, operation)
    }

    /// Returns the operation of the packet at a position.
    #[inline]
    pub const fn at(&self, position: Position) -> Option<Operation> {
        match position {
            Position::First => self.first,
            Position::Middle => self.middle,
            Position::Last => self.last,
            Position::Only => self.only,
        }
    }
}

impl Packets {
    /// RDMA WRITE.
    pub const WRITE: Packets = Packets::of(
        Operation::WriteFirst,
        Operation::WriteMiddle,
        Operation::WriteLast,
        Operation::WriteOnly,
    );
    /// RDMA WRITE with immediate.
    pub const WRITE_WITH_IMM: Packets = Packets::of(
        Operation::WriteFirst,
        Operation::WriteMiddle,
        Operation::WriteLastImm,
        Operation::WriteOnlyImm,
    );
    /// SEND.
    pub const SEND: Packets =
        Packets::of(Operation::SendFirst, Operation::SendMiddle, Operation::SendLast, Operation::SendOnly);
    /// SEND with immediate.
    pub const SEND_WITH_IMM: Packets = Packets::of(
        Operation::SendFirst,
        Operation::SendMiddle,
        Operation::SendLastImm,
        Operation::SendOnlyImm,
    );
    /// SEND with invalidate.
    pub const SEND_WITH_INVALIDATE: Packets = Packets::of(
        Operation::SendFirst,
        Operation::SendMiddle,
        Operation::SendLastInvalidate,
        Operation::SendOnlyInvalidate,
    );
    /// The answer to a READ.
    pub const READ_RESPONSE: Packets = Packets::of(
        Operation::ReadResponseFirst,
        Operation::ReadResponseMiddle,
        Operation::ReadResponseLast,
        Operation::ReadResponseOnly,
    );
}
