//! Opcodes: one table of what each of the 256 values means.

use core::fmt;

/// Transport service of an opcode: its high three bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection, 0x00.
    Rc,
    /// Unreliable connection, 0x20.
    Uc,
    /// Reliable datagram, 0x40: not on RoCE.
    Rd,
    /// Unreliable datagram, 0x60.
    Ud,
    /// Congestion notification, 0x80.
    Cnp,
    /// Extended reliable connection, 0xA0.
    Xrc,
    /// 0xC0 and above: manufacturers'.
    Reserved,
}

impl Service {
    const fn bits(self) -> u8 {
        match self {
            Service::Rc => 0x00,
            Service::Uc => 0x20,
            Service::Rd => 0x40,
            Service::Ud => 0x60,
            Service::Cnp => 0x80,
            Service::Xrc => 0xa0,
            Service::Reserved => 0xc0,
        }
    }
}

/// Operation of an opcode: its low five bits (a CNP is the whole byte 0x81).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the names are those of the table below
pub enum Operation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImm = 0x03,
    SendOnly = 0x04,
    SendOnlyImm = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImm = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImm = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
    Flush = 0x1c,
    AtomicWrite = 0x1d,
    Cnp = 0x81,
}

/// Place of a packet in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Position {
    /// More follow.
    First,
    /// Some were before, more follow.
    Middle,
    /// The end of several.
    Last,
    /// A message of one packet.
    Only,
}

bitflags::bitflags! {
    /// Extension headers after the BTH.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct HeaderSet: u16 {
        /// XRC SRQ number.
        const XRCETH = 1;
        /// Datagram: Q_Key and source QP.
        const DETH = 2;
        /// FLUSH: placement and selectivity.
        const FETH = 4;
        /// Remote address, key and length.
        const RETH = 8;
        /// Atomic operands.
        const ATOMIC_ETH = 0x10;
        /// Syndrome and MSN.
        const AETH = 0x20;
        /// Original value of an atomic.
        const ATOMIC_ACK_ETH = 0x40;
        /// Immediate data.
        const IMM = 0x80;
        /// Key to invalidate.
        const IETH = 0x100;
        /// The 16 zero bytes of a CNP.
        const CNP_RESERVED = 0x200;
    }
}

impl HeaderSet {
    /// Length of the headers in bytes.
    pub(crate) const fn bytes(self) -> usize {
        let lengths = [4, 8, 4, 16, 28, 4, 8, 4, 4, 16];
        let mut total = 0;
        let mut bit = 0;
        while bit < lengths.len() {
            if self.bits() & (1 << bit) != 0 {
                total += lengths[bit];
            }
            bit += 1;
        }
        total
    }
}

/// How many payload bytes an opcode carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PayloadRule {
    /// None.
    None,
    /// Exactly the path MTU.
    Mtu,
    /// 1 to the path MTU.
    OneToMtu,
    /// 0 to the path MTU.
    ZeroToMtu,
    /// Exactly 8.
    Eight,
}

/// What an opcode means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// The opcode.
    pub opcode: Opcode,
    /// Name, e.g. `RC_SEND_FIRST`.
    pub name: &'static str,
    /// Transport service.
    pub service: Service,
    /// Operation.
    pub operation: Operation,
    /// Place in the message.
    pub position: Position,
    /// Extension headers.
    pub headers: HeaderSet,
    /// Bytes of BTH and extension headers.
    pub header_bytes: usize,
    /// Payload rule.
    pub payload: PayloadRule,
    /// Goes from requester to responder.
    pub is_request: bool,
}

/// An opcode byte; any value may come from the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(u8);

impl Opcode {
    /// The opcode with this value.
    pub const fn from_byte(byte: u8) -> Opcode {
        Opcode(byte)
    }

    /// The value.
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// The opcode of an operation of a service; it need not exist.
    pub const fn new(service: Service, operation: Operation) -> Opcode {
        match operation {
            Operation::Cnp => Opcode(Operation::Cnp as u8),
            _ => Opcode(service.bits() | operation as u8),
        }
    }

    /// What it means; `None` for opcodes that do not exist on RoCE.
    pub const fn info(self) -> Option<&'static OpcodeInfo> {
        TABLE[self.0 as usize].as_ref()
    }

    /// Transport service by the high three bits.
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

struct Row(Operation, [&'static str; 3], Position, HeaderSet, PayloadRule);

const NO_HEADERS: HeaderSet = HeaderSet::empty();

/// Operations of RC, UC and XRC with their names in these services; an empty name: does not exist.
const ROWS: [Row; 25] = {
    use HeaderSet as H;
    use Operation as O;
    use PayloadRule as P;
    use Position::{First, Last, Middle, Only};
    [
        Row(O::SendFirst, ["RC_SEND_FIRST", "UC_SEND_FIRST", "XRC_SEND_FIRST"], First, NO_HEADERS, P::Mtu),
        Row(
            O::SendMiddle,
            ["RC_SEND_MIDDLE", "UC_SEND_MIDDLE", "XRC_SEND_MIDDLE"],
            Middle,
            NO_HEADERS,
            P::Mtu,
        ),
        Row(O::SendLast, ["RC_SEND_LAST", "UC_SEND_LAST", "XRC_SEND_LAST"], Last, NO_HEADERS, P::OneToMtu),
        Row(
            O::SendLastImm,
            ["RC_SEND_LAST_IMM", "UC_SEND_LAST_IMM", "XRC_SEND_LAST_IMM"],
            Last,
            H::IMM,
            P::OneToMtu,
        ),
        Row(O::SendOnly, ["RC_SEND_ONLY", "UC_SEND_ONLY", "XRC_SEND_ONLY"], Only, NO_HEADERS, P::ZeroToMtu),
        Row(
            O::SendOnlyImm,
            ["RC_SEND_ONLY_IMM", "UC_SEND_ONLY_IMM", "XRC_SEND_ONLY_IMM"],
            Only,
            H::IMM,
            P::ZeroToMtu,
        ),
        Row(
            O::WriteFirst,
            ["RC_RDMA_WRITE_FIRST", "UC_RDMA_WRITE_FIRST", "XRC_RDMA_WRITE_FIRST"],
            First,
            H::RETH,
            P::Mtu,
        ),
        Row(
            O::WriteMiddle,
            ["RC_RDMA_WRITE_MIDDLE", "UC_RDMA_WRITE_MIDDLE", "XRC_RDMA_WRITE_MIDDLE"],
            Middle,
            NO_HEADERS,
            P::Mtu,
        ),
        Row(
            O::WriteLast,
            ["RC_RDMA_WRITE_LAST", "UC_RDMA_WRITE_LAST", "XRC_RDMA_WRITE_LAST"],
            Last,
            NO_HEADERS,
            P::OneToMtu,
        ),
        Row(
            O::WriteLastImm,
            ["RC_RDMA_WRITE_LAST_IMM", "UC_RDMA_WRITE_LAST_IMM", "XRC_RDMA_WRITE_LAST_IMM"],
            Last,
            H::IMM,
            P::OneToMtu,
        ),
        Row(
            O::WriteOnly,
            ["RC_RDMA_WRITE_ONLY", "UC_RDMA_WRITE_ONLY", "XRC_RDMA_WRITE_ONLY"],
            Only,
            H::RETH,
            P::ZeroToMtu,
        ),
        Row(
            O::WriteOnlyImm,
            ["RC_RDMA_WRITE_ONLY_IMM", "UC_RDMA_WRITE_ONLY_IMM", "XRC_RDMA_WRITE_ONLY_IMM"],
            Only,
            H::RETH.union(H::IMM),
            P::ZeroToMtu,
        ),
        Row(O::ReadRequest, ["RC_RDMA_READ_REQUEST", "", "XRC_RDMA_READ_REQUEST"], Only, H::RETH, P::None),
        Row(
            O::ReadResponseFirst,
            ["RC_RDMA_READ_RESPONSE_FIRST", "", "XRC_RDMA_READ_RESPONSE_FIRST"],
            First,
            H::AETH,
            P::Mtu,
        ),
        Row(
            O::ReadResponseMiddle,
            ["RC_RDMA_READ_RESPONSE_MIDDLE", "", "XRC_RDMA_READ_RESPONSE_MIDDLE"],
            Middle,
            NO_HEADERS,
            P::Mtu,
        ),
        Row(
            O::ReadResponseLast,
            ["RC_RDMA_READ_RESPONSE_LAST", "", "XRC_RDMA_READ_RESPONSE_LAST"],
            Last,
            H::AETH,
            P::OneToMtu,
        ),
        Row(
            O::ReadResponseOnly,
            ["RC_RDMA_READ_RESPONSE_ONLY", "", "XRC_RDMA_READ_RESPONSE_ONLY"],
            Only,
            H::AETH,
            P::ZeroToMtu,
        ),
        Row(O::Acknowledge, ["RC_ACKNOWLEDGE", "", "XRC_ACKNOWLEDGE"], Only, H::AETH, P::None),
        Row(
            O::AtomicAcknowledge,
            ["RC_ATOMIC_ACKNOWLEDGE", "", "XRC_ATOMIC_ACKNOWLEDGE"],
            Only,
            H::AETH.union(H::ATOMIC_ACK_ETH),
            P::None,
        ),
        Row(O::CompareSwap, ["RC_COMPARE_SWAP", "", "XRC_COMPARE_SWAP"], Only, H::ATOMIC_ETH, P::None),
        Row(O::FetchAdd, ["RC_FETCH_ADD", "", "XRC_FETCH_ADD"], Only, H::ATOMIC_ETH, P::None),
        Row(
            O::SendLastInvalidate,
            ["RC_SEND_LAST_INVALIDATE", "", "XRC_SEND_LAST_INVALIDATE"],
            Last,
            H::IETH,
            P::OneToMtu,
        ),
        Row(
            O::SendOnlyInvalidate,
            ["RC_SEND_ONLY_INVALIDATE", "", "XRC_SEND_ONLY_INVALIDATE"],
            Only,
            H::IETH,
            P::ZeroToMtu,
        ),
        Row(O::Flush, ["RC_FLUSH", "", ""], Only, H::FETH.union(H::RETH), P::None),
        Row(O::AtomicWrite, ["RC_ATOMIC_WRITE", "", ""], Only, H::RETH, P::Eight),
    ]
};

const fn is_response(operation: Operation) -> bool {
    matches!(operation as u8, 0x0d..=0x12)
}

const fn entry(
    name: &'static str,
    service: Service,
    operation: Operation,
    position: Position,
    headers: HeaderSet,
    payload: PayloadRule,
) -> OpcodeInfo {
    OpcodeInfo {
        opcode: Opcode::new(service, operation),
        name,
        service,
        operation,
        position,
        headers,
        header_bytes: 12 + headers.bytes(),
        payload,
        is_request: !is_response(operation),
    }
}

static TABLE: [Option<OpcodeInfo>; 256] = table();

const fn table() -> [Option<OpcodeInfo>; 256] {
    let mut table: [Option<OpcodeInfo>; 256] = [const { None }; 256];
    let services = [Service::Rc, Service::Uc, Service::Xrc];
    let mut row = 0;
    while row < ROWS.len() {
        let Row(operation, names, position, headers, payload) = &ROWS[row];
        let mut s = 0;
        while s < services.len() {
            if !names[s].is_empty() {
                let xrc_request = s == 2 && !is_response(*operation);
                let headers = if xrc_request { HeaderSet::XRCETH.union(*headers) } else { *headers };
                let info = entry(names[s], services[s], *operation, *position, headers, *payload);
                table[info.opcode.0 as usize] = Some(info);
            }
            s += 1;
        }
        row += 1;
    }
    let deth = HeaderSet::DETH;
    table[0x64] = Some(entry(
        "UD_SEND_ONLY",
        Service::Ud,
        Operation::SendOnly,
        Position::Only,
        deth,
        PayloadRule::ZeroToMtu,
    ));
    table[0x65] = Some(entry(
        "UD_SEND_ONLY_IMM",
        Service::Ud,
        Operation::SendOnlyImm,
        Position::Only,
        deth.union(HeaderSet::IMM),
        PayloadRule::ZeroToMtu,
    ));
    table[0x81] = Some(entry(
        "CNP",
        Service::Cnp,
        Operation::Cnp,
        Position::Only,
        HeaderSet::CNP_RESERVED,
        PayloadRule::None,
    ));
    table
}
