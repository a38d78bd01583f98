//! Opcodes: a transport service in the upper three bits, an operation in the lower five.

use core::fmt;

use super::{Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, OPCODES, Operation, Reth, XrcEth};

/// An opcode byte, known or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(u8);

impl Opcode {
    /// Any byte is an opcode; [`Opcode::info`] tells whether it is a known one.
    pub const fn from_byte(byte: u8) -> Opcode {
        Opcode(byte)
    }

    /// The byte on the wire.
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// The opcode of an operation on a service. Not every combination exists: see [`Opcode::info`].
    pub const fn new(service: Service, operation: Operation) -> Opcode {
        Opcode((service as u8) << 5 | (operation as u8 & 0x1f))
    }

    /// What is known about it; `None` for an opcode that no RoCE packet may have.
    #[inline]
    pub const fn info(self) -> Option<&'static OpcodeInfo> {
        OPCODES[self.0 as usize].as_ref()
    }

    /// The transport service in the upper three bits, also of unknown operations.
    pub const fn service(self) -> Service {
        match self.0 >> 5 {
            0 => Service::Rc,
            1 => Service::Uc,
            2 => Service::Rd,
            3 => Service::Ud,
            4 => Service::Cnp,
            5 => Service::Xrc,
            _ => Service::Reserved,
        }
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info() {
            Some(info) => f.write_str(info.name),
            None => write!(f, "opcode {:#04x}", self.0),
        }
    }
}

/// Transport service; discriminants are the upper three bits of the opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Reliable datagram: does not exist on RoCE.
    Rd = 2,
    /// Unreliable datagram.
    Ud = 3,
    /// Congestion notification.
    Cnp = 4,
    /// Extended reliable connection.
    Xrc = 5,
    /// 0xc0…0xff: reserved or a manufacturer's own.
    Reserved = 6,
}

/// Position of a packet in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Position {
    /// Begins a message of several packets.
    First,
    /// Neither begins nor ends its message.
    Middle,
    /// Ends a message of several packets.
    Last,
    /// Is a whole message.
    Only,
}

impl Position {
    /// The position of a packet that begins its message, ends it, does both or neither.
    #[inline]
    pub const fn of(begins: bool, ends: bool) -> Position {
        match (begins, ends) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
        }
    }

    /// First and Only.
    #[inline]
    pub const fn begins(self) -> bool {
        matches!(self, Position::First | Position::Only)
    }

    /// Last and Only.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Position::Last | Position::Only)
    }
}

/// What a packet asks its receiver to do, whatever its position in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperationClass {
    /// A request: data for a receive request.
    Send,
    /// A request: data for the memory that it names.
    Write,
    /// A request: the responder returns memory.
    Read,
    /// A request: the responder changes 8 aligned bytes of memory in one piece.
    Atomic,
    /// A request: the responder completes its earlier stores.
    Flush,
    /// An answer: the data of a READ, or nothing for requests that need only to be confirmed.
    ReadResponse,
    /// An answer: ACK or NAK.
    Acknowledge,
    /// An answer: what an atomic found.
    AtomicAnswer,
    /// Congestion was seen: neither a request nor an answer to one.
    Cnp,
}

impl OperationClass {
    /// Travels from requester to responder.
    #[inline]
    pub const fn is_request(self) -> bool {
        use OperationClass::{Atomic, Flush, Read, Send, Write};
        matches!(self, Send | Write | Read | Atomic | Flush)
    }

    /// A request whose answer the responder keeps, because it must not execute the request twice.
    #[inline]
    pub const fn is_executed_once(self) -> bool {
        matches!(self, OperationClass::Atomic | OperationClass::Flush)
    }

    /// A request that takes one of the responder's resources, and a response of its own.
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
    /// What makes no packet.
    pub const NONE: Packets = Packets { first: None, middle: None, last: None, only: None };

    /// What is cut into packets.
    pub(super) const fn of(first: Operation, middle: Operation, last: Operation, only: Operation) -> Packets {
        Packets { first: Some(first), middle: Some(middle), last: Some(last), only: Some(only) }
    }

    /// What has one operation in every position.
    pub const fn one(operation: Operation) -> Packets {
        Packets::of(operation, operation, operation, operation)
    }

    /// The operation of the packet at a position.
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

bitflags::bitflags! {
    /// Headers after the BTH. Bits ascend in the order in which the headers follow each other.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct HeaderSet: u16 {
        /// XRC: shared receive queue.
        const XRCETH = 1 << 0;
        /// Datagram: Q_Key and source.
        const DETH = 1 << 1;
        /// FLUSH: placement and selectivity.
        const FETH = 1 << 2;
        /// RDMA: remote range.
        const RETH = 1 << 3;
        /// Atomic: target and operands.
        const ATOMIC_ETH = 1 << 4;
        /// Answer: syndrome and MSN.
        const AETH = 1 << 5;
        /// Atomic answer: original value.
        const ATOMIC_ACK_ETH = 1 << 6;
        /// Immediate data.
        const IMM = 1 << 7;
        /// Key to invalidate.
        const IETH = 1 << 8;
        /// The sixteen reserved bytes of a CNP.
        const CNP_RESERVED = 1 << 9;
    }
}

/// Reserved bytes of a CNP between BTH and ICRC.
pub(super) const CNP_RESERVED_BYTES: usize = 16;

impl HeaderSet {
    /// Length of each header, by bit number.
    const BYTES: [usize; 10] = [
        XrcEth::LEN,
        Deth::LEN,
        Feth::LEN,
        Reth::LEN,
        AtomicEth::LEN,
        Aeth::LEN,
        AtomicAckEth::LEN,
        ImmDt::LEN,
        Ieth::LEN,
        CNP_RESERVED_BYTES,
    ];

    /// Bytes of all these headers together, the BTH not counted.
    pub const fn bytes(self) -> usize {
        let mut rest = self.bits() as usize & ((1 << HeaderSet::BYTES.len()) - 1);
        let mut sum = 0;
        while rest != 0 {
            sum += HeaderSet::BYTES[rest.trailing_zeros() as usize];
            rest &= rest - 1;
        }
        sum
    }

    /// Offset of `header` (one of these, a single bit) from the start of the BTH; `None` if it is
    /// not in the set.
    pub const fn offset_of(self, header: HeaderSet) -> Option<usize> {
        if !self.intersects(header) {
            return None;
        }
        let before = HeaderSet::from_bits_truncate(self.bits() & header.bits().wrapping_sub(1));
        Some(Bth::LEN + before.bytes())
    }
}

/// How many payload bytes a packet may have. The rules that need the path MTU are the queue pair's to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PayloadRule {
    /// No payload.
    None,
    /// Exactly the path MTU.
    Mtu,
    /// 1 … path MTU.
    OneToMtu,
    /// 0 … path MTU.
    ZeroToMtu,
    /// Exactly 8.
    Eight,
}

/// What is known about an opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// The opcode itself.
    pub opcode: Opcode,
    /// For example `RC_SEND_FIRST` or `XRC_RDMA_WRITE_ONLY_IMM`.
    pub name: &'static str,
    /// Transport service.
    pub service: Service,
    /// Operation.
    pub operation: Operation,
    /// Class of the operation.
    pub class: OperationClass,
    /// Position in the message.
    pub position: Position,
    /// Headers after the BTH.
    pub headers: HeaderSet,
    /// Bytes of BTH and all headers after it.
    pub header_bytes: usize,
    /// Legal payload lengths.
    pub payload: PayloadRule,
    /// Travels from requester to responder. False for answers and for CNP.
    pub is_request: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_byte_prints_and_has_a_service() {
        assert_eq!(Opcode::from_byte(0x00).to_string(), "RC_SEND_FIRST");
        assert_eq!(Opcode::from_byte(0xab).to_string(), "XRC_RDMA_WRITE_ONLY_IMM");
        assert_eq!(Opcode::from_byte(0x81).to_string(), "CNP");
        assert_eq!(Opcode::from_byte(0x15).to_string(), "opcode 0x15");
        let services = [
            Service::Rc,
            Service::Uc,
            Service::Rd,
            Service::Ud,
            Service::Cnp,
            Service::Xrc,
            Service::Reserved,
            Service::Reserved,
        ];
        for byte in 0..=255u8 {
            assert_eq!(Opcode::from_byte(byte).service(), services[byte as usize / 32]);
        }
        assert_eq!(Opcode::new(Service::Cnp, Operation::Cnp).byte(), 0x81);
        assert_eq!(Opcode::new(Service::Xrc, Operation::SendOnlyInvalidate).byte(), 0xb7);
    }

    #[test]
    fn header_offsets_follow_the_order_of_the_wire() {
        let set = HeaderSet::XRCETH | HeaderSet::RETH | HeaderSet::IMM;
        assert_eq!(set.bytes(), 24);
        assert_eq!(set.offset_of(HeaderSet::XRCETH), Some(12));
        assert_eq!(set.offset_of(HeaderSet::RETH), Some(16));
        assert_eq!(set.offset_of(HeaderSet::IMM), Some(32));
        assert_eq!(set.offset_of(HeaderSet::AETH), None);
        assert_eq!((HeaderSet::FETH | HeaderSet::RETH).offset_of(HeaderSet::RETH), Some(16));
        assert_eq!(HeaderSet::all().bytes(), 96);
        assert_eq!(HeaderSet::from_bits_retain(0xfc00).bytes(), 0, "unknown bits have no bytes");
    }
}
