//! Operations of send requests: [`WR_OPCODES`] describes each one, and every layer looks it up there.
//!
//! A new operation is a variant of [`SendOpcode`], a row of [`WR_OPCODES`] and a row of
//! [`crate::wire::OPCODES`] for each of its packets.

use core::fmt;

use super::queue_pair::{QpTypeProperty, bits};
use super::{Access, QpType};
#[cfg(doc)]
use crate::wire::OperationClass;
use crate::wire::{AtomicEth, Operation, Packet, Packets};

/// Operation of a send request (`IBV_WR_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SendOpcode {
    /// RDMA WRITE.
    RdmaWrite = 0,
    /// RDMA WRITE with immediate: also consumes a receive at the peer.
    RdmaWriteWithImm = 1,
    /// SEND.
    Send = 2,
    /// SEND with immediate.
    SendWithImm = 3,
    /// RDMA READ.
    RdmaRead = 4,
    /// Atomic compare and swap of 8 bytes.
    CompareSwap = 5,
    /// Atomic fetch and add of 8 bytes.
    FetchAdd = 6,
    /// Invalidate a local key (type-2 window or fast-register region).
    LocalInvalidate = 7,
    /// Bind a memory window.
    BindWindow = 8,
    /// SEND that also invalidates a key at the peer.
    SendWithInvalidate = 9,
    /// Configure an indirect memory key (`IBV_WR_DRIVER1`).
    ConfigureKey = 11,
    /// Copy memory of this device; only vendor calls ask for it, and verbs have no number for it.
    CopyMemory = 12,
    /// Make earlier writes visible or persistent at the peer.
    Flush = 14,
    /// Store 8 bytes at the peer atomically.
    AtomicWrite = 15,
}

/// Operation that completed (`IBV_WC_*` opcode).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum WcOpcode {
    /// Any SEND.
    #[default]
    Send = 0,
    /// RDMA WRITE, with or without immediate.
    RdmaWrite = 1,
    /// RDMA READ.
    RdmaRead = 2,
    /// Compare and swap.
    CompareSwap = 3,
    /// Fetch and add.
    FetchAdd = 4,
    /// A memory window was bound.
    BindWindow = 5,
    /// A key was invalidated.
    LocalInvalidate = 6,
    /// FLUSH.
    Flush = 8,
    /// ATOMIC WRITE.
    AtomicWrite = 9,
    /// A SEND arrived.
    Recv = 128,
    /// An RDMA WRITE with immediate arrived.
    RecvRdmaWithImm = 129,
    /// A buffer was added to the list of tags of a shared receive queue.
    TagAdd = 130,
    /// A buffer was removed from the list of tags.
    TagDelete = 131,
    /// The count of unexpected messages of a list of tags was compared.
    TagSync = 132,
    /// A SEND with a tag arrived: a buffer of that tag has it, or else a receive request.
    TagRecv = 133,
    /// A SEND without a tag arrived at a queue that matches tags.
    TagNoTag = 134,
    /// An indirect memory key was configured (`IBV_WC_DRIVER1`).
    ConfigureKey = 135,
    /// A request of any operation that the program wrote in the adapter's format (`IBV_WC_DRIVER2`).
    RawRequest = 136,
    /// Memory of this device was copied (`IBV_WC_DRIVER3`).
    CopyMemory = 137,
}

impl WcOpcode {
    /// Reports whether this is the completion of a receive request. Bit 7 alone does not say it: the numbers
    /// of vendors have it too.
    pub const fn is_recv(self) -> bool {
        matches!(self, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm | WcOpcode::TagRecv | WcOpcode::TagNoTag)
    }
}

/// Classes of operations, by their effect and the peer's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WrClass {
    /// A message for a receive request of the peer. The peer acknowledges it.
    Send,
    /// A message for memory of the peer. The peer acknowledges it.
    Write,
    /// A read of the peer's memory, which returns in READ responses.
    Read,
    /// An atomic operation, whose answer is the original value of a word of the peer's memory.
    Atomic,
    /// An operation on the peer's memory that the peer confirms with an empty READ response.
    Confirmed,
    /// An operation that is executed locally, without a packet.
    Local,
}

/// Use of a request's local buffers, and their total length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LocalData {
    /// The packets carry the buffers: 0 … 2^31 bytes.
    Sent,
    /// The packet carries the buffers: exactly 8 bytes, for a remote address that is a multiple of 8.
    SentWord,
    /// The response is stored in the buffers: 0 … 2^31 bytes.
    Stored,
    /// The response is stored in the buffers: exactly 8 bytes, from a remote address that is a multiple of 8.
    StoredWord,
    /// The buffers are copied to other memory of this device: 0 … 2^31 bytes.
    Copied,
    /// The buffers are not used.
    Unused,
}

impl LocalData {
    /// Reports whether the request's packets carry its data, which may therefore be inline.
    #[inline]
    pub const fn is_sent(self) -> bool {
        matches!(self, LocalData::Sent | LocalData::SentWord)
    }

    /// Reports whether the length has to be exactly 8 bytes.
    #[inline]
    pub const fn is_word(self) -> bool {
        matches!(self, LocalData::SentWord | LocalData::StoredWord)
    }
}

/// The field of a [`super::SendRequest`] that a request needs beside its buffers and its remote memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// No further field.
    None,
    /// The field `atomic`.
    Atomic,
    /// The field `flush`.
    FlushRange,
    /// The field `bind`.
    Window,
    /// The field `invalidate_rkey`.
    LocalKey,
    /// The field `key`.
    KeyConfiguration,
    /// The field `copy_to`.
    CopyTarget,
}

/// Properties of an operation.
#[derive(Debug, Clone, Copy)]
pub struct WrInfo {
    /// The operation itself.
    pub opcode: SendOpcode,
    /// Name used in messages, as in verbs without the prefix.
    pub name: &'static str,
    /// Class of the operation.
    pub class: WrClass,
    /// Types of queue pairs that have the operation.
    pub qp_types: QpTypes,
    /// Use of the local buffers.
    pub data: LocalData,
    /// Further field that the operation needs.
    pub operand: Operand,
    /// Operations of the packets. A request that asks for responses is one packet, or for a long READ several
    /// of the same operation.
    pub packets: Packets,
    /// Opcode of the completion.
    pub completion: WcOpcode,
    /// Bit in the extended interface's set of operations (`IBV_QP_EX_WITH_*`); 0 if only vendor calls ask for
    /// the operation.
    pub extended_flag: u64,
    /// Bit of the device capability flags (`IBV_DEVICE_*`); 0 if every device has the operation.
    pub device_flag: u64,
}

impl WrInfo {
    /// Reports whether the peer reserves a resource for the request and answers it with a response of its
    /// own, which counts against `max_rd_atomic`.
    #[inline]
    pub const fn needs_response(&self) -> bool {
        matches!(self.class, WrClass::Read | WrClass::Atomic | WrClass::Confirmed)
    }

    /// Reports whether the request names memory of the peer.
    #[inline]
    pub const fn names_remote_memory(&self) -> bool {
        !matches!(self.class, WrClass::Send | WrClass::Local)
    }
}

/// A set of types of queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpTypes(u16);

impl QpTypes {
    /// Returns the types that have a send queue and whose rows answer the question with true.
    const fn that_send(property: QpTypeProperty) -> QpTypes {
        QpTypes(bits(property) & bits(QpTypeProperty::SendQueue))
    }

    /// Returns this set with one type added.
    const fn with(self, qp_type: QpType) -> QpTypes {
        QpTypes(self.0 | 1 << qp_type as u8)
    }

    /// Returns the types of this set that are not in the other one.
    const fn without(self, other: QpTypes) -> QpTypes {
        QpTypes(self.0 & !other.0)
    }

    /// Reports whether a type is in the set.
    #[inline]
    pub const fn contains(self, qp_type: QpType) -> bool {
        self.0 & 1 << qp_type as u8 != 0
    }
}

/// Every type that sends RoCE packets.
const ROCE: QpTypes = QpTypes::that_send(QpTypeProperty::Roce);
/// Every type that has a send queue.
const ALL: QpTypes = QpTypes::that_send(QpTypeProperty::SendQueue);
const CONNECTED: QpTypes = QpTypes::that_send(QpTypeProperty::Connected);
const RELIABLE: QpTypes = QpTypes::that_send(QpTypeProperty::Reliable);
const WRITES: QpTypes = CONNECTED.with(QpType::Srd).with(QpType::Dci);
const READS: QpTypes = RELIABLE.with(QpType::Srd).with(QpType::Dci);
const ATOMICS: QpTypes = RELIABLE.with(QpType::Dci);
const RC: QpTypes = RELIABLE.without(QpTypes::that_send(QpTypeProperty::NamesSrq));

/// The operations, in the order of their numbers.
#[rustfmt::skip]
pub static WR_OPCODES: [WrInfo; 14] = {
    use LocalData::{Copied, Sent, SentWord, Stored, StoredWord, Unused};
    use {SendOpcode as Op, WcOpcode as Wc, WrClass as Class};
    [
        WrInfo { opcode: Op::RdmaWrite, name: "RDMA_WRITE", completion: Wc::RdmaWrite,
                 class: Class::Write, qp_types: WRITES, data: Sent, operand: Operand::None,
                 packets: Packets::WRITE, extended_flag: 1, device_flag: 0 },
        WrInfo { opcode: Op::RdmaWriteWithImm, name: "RDMA_WRITE_WITH_IMM", completion: Wc::RdmaWrite,
                 class: Class::Write, qp_types: WRITES, data: Sent, operand: Operand::None,
                 packets: Packets::WRITE_WITH_IMM, extended_flag: 1 << 1, device_flag: 0 },
        WrInfo { opcode: Op::Send, name: "SEND", completion: Wc::Send,
                 class: Class::Send, qp_types: ALL, data: Sent, operand: Operand::None,
                 packets: Packets::SEND, extended_flag: 1 << 2, device_flag: 0 },
        WrInfo { opcode: Op::SendWithImm, name: "SEND_WITH_IMM", completion: Wc::Send,
                 class: Class::Send, qp_types: ROCE, data: Sent, operand: Operand::None,
                 packets: Packets::SEND_WITH_IMM, extended_flag: 1 << 3, device_flag: 0 },
        WrInfo { opcode: Op::RdmaRead, name: "RDMA_READ", completion: Wc::RdmaRead,
                 class: Class::Read, qp_types: READS, data: Stored, operand: Operand::None,
                 packets: Packets::one(Operation::ReadRequest), extended_flag: 1 << 4, device_flag: 0 },
        WrInfo { opcode: Op::CompareSwap, name: "ATOMIC_CMP_AND_SWP", completion: Wc::CompareSwap,
                 class: Class::Atomic, qp_types: ATOMICS, data: StoredWord, operand: Operand::Atomic,
                 packets: Packets::one(Operation::CompareSwap), extended_flag: 1 << 5, device_flag: 0 },
        WrInfo { opcode: Op::FetchAdd, name: "ATOMIC_FETCH_AND_ADD", completion: Wc::FetchAdd,
                 class: Class::Atomic, qp_types: ATOMICS, data: StoredWord, operand: Operand::Atomic,
                 packets: Packets::one(Operation::FetchAdd), extended_flag: 1 << 6, device_flag: 0 },
        WrInfo { opcode: Op::LocalInvalidate, name: "LOCAL_INV", completion: Wc::LocalInvalidate,
                 class: Class::Local, qp_types: CONNECTED, data: Unused, operand: Operand::LocalKey,
                 packets: Packets::NONE, extended_flag: 1 << 7, device_flag: 0 },
        WrInfo { opcode: Op::BindWindow, name: "BIND_MW", completion: Wc::BindWindow,
                 class: Class::Local, qp_types: CONNECTED, data: Unused, operand: Operand::Window,
                 packets: Packets::NONE, extended_flag: 1 << 8, device_flag: 0 },
        WrInfo { opcode: Op::SendWithInvalidate, name: "SEND_WITH_INV", completion: Wc::Send,
                 class: Class::Send, qp_types: RELIABLE, data: Sent, operand: Operand::None,
                 packets: Packets::SEND_WITH_INVALIDATE, extended_flag: 1 << 9, device_flag: 0 },
        WrInfo { opcode: Op::ConfigureKey, name: "CONFIGURE_KEY", completion: Wc::ConfigureKey,
                 class: Class::Local, qp_types: RC, data: Unused, operand: Operand::KeyConfiguration,
                 packets: Packets::NONE, extended_flag: 0, device_flag: 0 },
        WrInfo { opcode: Op::CopyMemory, name: "COPY_MEMORY", completion: Wc::CopyMemory,
                 class: Class::Local, qp_types: RC, data: Copied, operand: Operand::CopyTarget,
                 packets: Packets::NONE, extended_flag: 0, device_flag: 0 },
        WrInfo { opcode: Op::Flush, name: "FLUSH", completion: Wc::Flush,
                 class: Class::Confirmed, qp_types: RC, data: Unused, operand: Operand::FlushRange,
                 packets: Packets::one(Operation::Flush), extended_flag: 1 << 11, device_flag: 1 << 38 },
        WrInfo { opcode: Op::AtomicWrite, name: "ATOMIC_WRITE", completion: Wc::AtomicWrite,
                 class: Class::Confirmed, qp_types: RC, data: SentWord, operand: Operand::None,
                 packets: Packets::one(Operation::AtomicWrite), extended_flag: 1 << 12,
                 device_flag: 1 << 40 },
    ]
};

/// Row of each number in [`WR_OPCODES`]; numbers without an operation have the length of the table.
#[expect(clippy::indexing_slicing, reason = "evaluated when this is compiled")]
static ROW_OF_NUMBER: [u8; 16] = {
    let mut rows = [WR_OPCODES.len() as u8; 16];
    let mut row = 0;
    while row < WR_OPCODES.len() {
        let number = WR_OPCODES[row].opcode as usize;
        assert!(rows[number] as usize == WR_OPCODES.len(), "two rows claim one operation");
        rows[number] = row as u8;
        row += 1;
    }
    rows
};

impl SendOpcode {
    /// Returns the properties of the operation.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a test finds the row of every operation")]
    pub const fn info(self) -> &'static WrInfo {
        &WR_OPCODES[ROW_OF_NUMBER[self as usize] as usize]
    }

    /// Returns the operation with this number (`IBV_WR_*`).
    #[inline]
    pub fn from_number(number: u32) -> Option<SendOpcode> {
        let row = *ROW_OF_NUMBER.get(usize::try_from(number).ok()?)?;
        WR_OPCODES.get(usize::from(row)).map(|info| info.opcode)
    }

    /// Returns the name used in messages, as in verbs without the prefix.
    pub const fn name(self) -> &'static str {
        self.info().name
    }
}

/// An atomic operation on 8 aligned bytes of the peer's memory; operands in host order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Store `swap` if the target equals `compare`.
    CompareSwap {
        /// Expected value.
        compare: u64,
        /// Value to store.
        swap: u64,
    },
    /// Add `add` (wrapping) to the target.
    FetchAdd {
        /// The addend.
        add: u64,
    },
    /// Store these bytes. Requests carry them as data and not as an operand.
    Write {
        /// Bytes in network byte order.
        bytes: [u8; 8],
    },
}

impl AtomicOperation {
    /// Returns the operation that a packet asks for; `None` if its class is not [`OperationClass::Atomic`].
    pub fn of(packet: &Packet<'_>) -> Option<AtomicOperation> {
        if packet.operation() == Operation::AtomicWrite {
            return Some(AtomicOperation::Write { bytes: packet.payload().try_into().ok()? });
        }
        let AtomicEth { swap_or_add, compare, .. } = packet.atomic_eth()?;
        AtomicOperation::from_operands(packet.operation(), swap_or_add, compare)
    }

    /// Returns the operation with these operands, in the order of [`AtomicOperation::operands`]; `None` if
    /// the packet of a wire operation has no atomic header.
    pub const fn from_operands(
        operation: Operation,
        swap_or_add: u64,
        compare: u64,
    ) -> Option<AtomicOperation> {
        Some(match operation {
            Operation::CompareSwap => AtomicOperation::CompareSwap { compare, swap: swap_or_add },
            Operation::FetchAdd => AtomicOperation::FetchAdd { add: swap_or_add },
            _ => return None,
        })
    }

    /// Returns the operands in the atomic header: the value to swap or add, and the value to compare with.
    pub const fn operands(self) -> (u64, u64) {
        match self {
            AtomicOperation::CompareSwap { compare, swap } => (swap, compare),
            AtomicOperation::FetchAdd { add } => (add, 0),
            AtomicOperation::Write { .. } => (0, 0),
        }
    }

    /// Returns the operation of a send request that asks for it.
    pub const fn opcode(self) -> SendOpcode {
        match self {
            AtomicOperation::CompareSwap { .. } => SendOpcode::CompareSwap,
            AtomicOperation::FetchAdd { .. } => SendOpcode::FetchAdd,
            AtomicOperation::Write { .. } => SendOpcode::AtomicWrite,
        }
    }

    /// Returns the value that the operation stores where `original` was, both in host order.
    pub const fn applied_to(self, original: u64) -> u64 {
        match self {
            AtomicOperation::CompareSwap { compare, swap } if original == compare => swap,
            AtomicOperation::CompareSwap { .. } => original,
            AtomicOperation::FetchAdd { add } => original.wrapping_add(add),
            AtomicOperation::Write { bytes } => u64::from_ne_bytes(bytes),
        }
    }

    /// Reports whether the answer carries the original value.
    pub const fn returns_original(self) -> bool {
        !matches!(self, AtomicOperation::Write { .. })
    }

    /// Returns the access right that the operation needs.
    pub const fn access(self) -> Access {
        match self {
            AtomicOperation::CompareSwap { .. } | AtomicOperation::FetchAdd { .. } => Access::REMOTE_ATOMIC,
            AtomicOperation::Write { .. } => Access::REMOTE_WRITE,
        }
    }
}

impl fmt::Display for AtomicOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AtomicOperation::CompareSwap { compare, swap } => {
                write!(f, "compare {compare:#x} swap {swap:#x}")
            }
            AtomicOperation::FetchAdd { add } => write!(f, "add {add:#x}"),
            AtomicOperation::Write { bytes } => write!(f, "store {bytes:02x?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{HeaderSet, OPCODES, Opcode, PayloadRule, Position, Service};

    #[test]
    fn every_number_finds_its_row_and_no_other_number_finds_one() {
        for number in 0..=300 {
            match SendOpcode::from_number(number) {
                Some(opcode) => {
                    assert_eq!((opcode as u32, opcode.info().opcode), (number, opcode));
                }
                None => assert!(matches!(number, 10 | 13 | 16..), "{number}"),
            }
        }
        assert!(WR_OPCODES.iter().map(|info| info.opcode as u8).is_sorted());
    }

    #[test]
    fn requests_have_exactly_the_packets_of_their_services() {
        for info in &WR_OPCODES {
            let services = [
                (QpType::Rc, Service::Rc),
                (QpType::Uc, Service::Uc),
                (QpType::Ud, Service::Ud),
                (QpType::XrcInitiator, Service::Xrc),
            ];
            for (qp_type, service) in services {
                let only = info.packets.at(Position::Only).map(|operation| Opcode::new(service, operation));
                let exists = only.is_some_and(|opcode| opcode.info().is_some());
                let is_local = info.class == WrClass::Local;
                let expected = if is_local { false } else { info.qp_types.contains(qp_type) };
                assert_eq!(exists, expected, "{} on {}", info.name, qp_type.name());
                for position in [Position::First, Position::Middle, Position::Last, Position::Only] {
                    let Some(operation) = info.packets.at(position) else { continue };
                    let Some(row) = Opcode::new(service, operation).info() else { continue };
                    assert!(row.is_request);
                    let carries = row.payload != PayloadRule::None;
                    assert_eq!(carries, info.data.is_sent(), "{}", row.name);
                }
            }
            assert!(!info.qp_types.contains(QpType::XrcTarget), "a target sends nothing");
            assert_eq!(info.qp_types.contains(QpType::RawPacket), info.opcode == SendOpcode::Send);
            let has = |qp_type| info.qp_types.contains(qp_type);
            assert_eq!(has(QpType::XrcDuplex), has(QpType::XrcInitiator), "{}", info.name);
            assert_eq!(has(QpType::Gsi), has(QpType::Ud), "{}", info.name);
        }
    }

    #[test]
    fn what_a_packet_with_an_atomic_header_carries_makes_its_atomic() {
        for row in OPCODES.iter().flatten().filter(|row| row.headers.contains(HeaderSet::ATOMIC_ETH)) {
            let atomic = AtomicOperation::from_operands(row.operation, 5, 0);
            assert_eq!(atomic.map(AtomicOperation::operands), Some((5, 0)), "{}", row.name);
            assert!(atomic.is_some_and(AtomicOperation::returns_original), "{}", row.name);
        }
        for info in WR_OPCODES.iter().filter(|info| info.operand == Operand::Atomic) {
            let operation = info.packets.at(Position::Only);
            let atomic = operation.and_then(|operation| AtomicOperation::from_operands(operation, 0, 0));
            assert!(atomic.is_some(), "{} has an operand that its packets do not carry", info.name);
        }
    }

    #[test]
    fn what_needs_a_response_and_what_names_memory() {
        let of = |keep: fn(&WrInfo) -> bool| {
            WR_OPCODES.iter().filter(|info| keep(info)).map(|info| info.name).collect::<alloc::vec::Vec<_>>()
        };
        let atomics = ["ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD"];
        let last = ["FLUSH", "ATOMIC_WRITE"];
        assert_eq!(of(WrInfo::needs_response), [&["RDMA_READ"][..], &atomics, &last].concat());
        let writes = ["RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ"];
        assert_eq!(of(WrInfo::names_remote_memory), [&writes[..], &atomics, &last].concat());
        let sends = ["SEND", "SEND_WITH_IMM", "SEND_WITH_INV", "ATOMIC_WRITE"];
        assert_eq!(of(|info| info.data.is_sent()), [&writes[..2], &sends].concat());
        assert_eq!(of(|info| info.data.is_word()), [&atomics[..], &last[1..]].concat());
    }
}
