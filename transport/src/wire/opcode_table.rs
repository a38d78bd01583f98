//! The table of opcodes: one row per operation, expanded to the services that have it.

use core::fmt;

use super::{Bth, HeaderSet, Opcode, Operation, OperationClass, Position, Service};

/// Legal payload lengths of a packet. The queue pair checks the rules that need the path MTU.
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
    /// Exactly 8 bytes.
    Eight,
}

/// Properties of an opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// The opcode itself.
    pub opcode: Opcode,
    /// Name, for example `RC_SEND_FIRST` or `XRC_RDMA_WRITE_ONLY_IMM`.
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
    /// Length in bytes of BTH and all headers after it.
    pub header_bytes: usize,
    /// Legal payload lengths.
    pub payload: PayloadRule,
    /// True if it travels from requester to responder; false for answers and for CNP.
    pub is_request: bool,
}

impl Opcode {
    /// Returns the properties of the opcode; `None` for an opcode that no RoCE packet may have.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "the table has a row for every byte")]
    pub const fn info(self) -> Option<&'static OpcodeInfo> {
        OPCODES[self.byte() as usize].as_ref()
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info() {
            Some(info) => f.write_str(info.name),
            None => write!(f, "opcode {:#04x}", self.byte()),
        }
    }
}

/// Table of every opcode byte; `None` where no RoCE packet may have it.
pub static OPCODES: [Option<OpcodeInfo>; 256] = by_byte(ROWS);

macro_rules! name {
    (Rc $name:literal) => {
        concat!("RC_", $name)
    };
    (Uc $name:literal) => {
        concat!("UC_", $name)
    };
    (Ud $name:literal) => {
        concat!("UD_", $name)
    };
    (Xrc $name:literal) => {
        concat!("XRC_", $name)
    };
    (Cnp $name:literal) => {
        $name
    };
}

macro_rules! rows {
    ($($operation:ident $name:literal $position:ident $payload:ident $class:ident
       [$($header:ident)*]: $($service:ident)+;)*) => {
        // A row's headers and services repeat independently, so the headers travel as one group.
        &[$(rows!(@each $operation $name $position $payload $class
            (HeaderSet::empty()$(.union(HeaderSet::$header))*); $($service)+)),*]
    };
    (@each $operation:ident $name:literal $position:ident $payload:ident $class:ident
     $headers:tt; $($service:ident)+) => {
        &[$(row(
            name!($service $name),
            Service::$service,
            Operation::$operation,
            Position::$position,
            PayloadRule::$payload,
            OperationClass::$class,
            $headers,
        )),+] as &[OpcodeInfo]
    };
}

#[rustfmt::skip]
const ROWS: &[&[OpcodeInfo]] = rows! {
    SendFirst          "SEND_FIRST"                First  Mtu       Send         []:           Rc Uc Xrc;
    SendMiddle         "SEND_MIDDLE"               Middle Mtu       Send         []:           Rc Uc Xrc;
    SendLast           "SEND_LAST"                 Last   OneToMtu  Send         []:           Rc Uc Xrc;
    SendLastImm        "SEND_LAST_IMM"             Last   OneToMtu  Send         [IMM]:        Rc Uc Xrc;
    SendOnly           "SEND_ONLY"                 Only   ZeroToMtu Send         []:           Rc Uc Ud Xrc;
    SendOnlyImm        "SEND_ONLY_IMM"             Only   ZeroToMtu Send         [IMM]:        Rc Uc Ud Xrc;
    WriteFirst         "RDMA_WRITE_FIRST"          First  Mtu       Write        [RETH]:       Rc Uc Xrc;
    WriteMiddle        "RDMA_WRITE_MIDDLE"         Middle Mtu       Write        []:           Rc Uc Xrc;
    WriteLast          "RDMA_WRITE_LAST"           Last   OneToMtu  Write        []:           Rc Uc Xrc;
    WriteLastImm       "RDMA_WRITE_LAST_IMM"       Last   OneToMtu  Write        [IMM]:        Rc Uc Xrc;
    WriteOnly          "RDMA_WRITE_ONLY"           Only   ZeroToMtu Write        [RETH]:       Rc Uc Xrc;
    WriteOnlyImm       "RDMA_WRITE_ONLY_IMM"       Only   ZeroToMtu Write        [RETH IMM]:   Rc Uc Xrc;
    ReadRequest        "RDMA_READ_REQUEST"         Only   None      Read         [RETH]:       Rc Xrc;
    ReadResponseFirst  "RDMA_READ_RESPONSE_FIRST"  First  Mtu       ReadResponse [AETH]:       Rc Xrc;
    //= statement:17
    //| The middle responses of a READ have no AETH.
    ReadResponseMiddle "RDMA_READ_RESPONSE_MIDDLE" Middle Mtu       ReadResponse []:           Rc Xrc;
    ReadResponseLast   "RDMA_READ_RESPONSE_LAST"   Last   OneToMtu  ReadResponse [AETH]:       Rc Xrc;
    ReadResponseOnly   "RDMA_READ_RESPONSE_ONLY"   Only   ZeroToMtu ReadResponse [AETH]:       Rc Xrc;
    Acknowledge        "ACKNOWLEDGE"               Only   None      Acknowledge  [AETH]:       Rc Xrc;
    AtomicAcknowledge  "ATOMIC_ACKNOWLEDGE"        Only   None      AtomicAnswer [AETH ATOMIC_ACK_ETH]: Rc Xrc;
    CompareSwap        "COMPARE_SWAP"              Only   None      Atomic       [ATOMIC_ETH]: Rc Xrc;
    FetchAdd           "FETCH_ADD"                 Only   None      Atomic       [ATOMIC_ETH]: Rc Xrc;
    SendLastInvalidate "SEND_LAST_INVALIDATE"      Last   OneToMtu  Send         [IETH]:       Rc Xrc;
    SendOnlyInvalidate "SEND_ONLY_INVALIDATE"      Only   ZeroToMtu Send         [IETH]:       Rc Xrc;
    Flush              "FLUSH"                     Only   None      Flush        [FETH RETH]:  Rc;
    AtomicWrite        "ATOMIC_WRITE"              Only   Eight     Atomic       [RETH]:       Rc;
    Cnp                "CNP"                       Only   None      Cnp          [CNP_RESERVED]: Cnp;
};

/// Completes a row with the properties that its service determines.
const fn row(
    name: &'static str,
    service: Service,
    operation: Operation,
    position: Position,
    payload: PayloadRule,
    class: OperationClass,
    headers: HeaderSet,
) -> OpcodeInfo {
    let is_request = class.is_request();
    let headers = match service {
        Service::Ud => headers.union(HeaderSet::DETH),
        //= statement:47
        //| Requests of XRC have an XRCETH, and responses have none.
        Service::Xrc if is_request => headers.union(HeaderSet::XRCETH),
        _ => headers,
    };
    OpcodeInfo {
        opcode: Opcode::new(service, operation),
        name,
        service,
        operation,
        class,
        position,
        headers,
        header_bytes: Bth::LEN + headers.bytes(),
        payload,
        is_request,
    }
}

#[expect(clippy::indexing_slicing, reason = "evaluated when this is compiled")]
const fn by_byte(rows: &[&[OpcodeInfo]]) -> [Option<OpcodeInfo>; 256] {
    let mut table = [None; 256];
    let mut row_index = 0;
    while row_index < rows.len() {
        let row = rows[row_index];
        let mut column_index = 0;
        while column_index < row.len() {
            let info = row[column_index];
            let entry = &mut table[info.opcode.byte() as usize];
            assert!(entry.is_none(), "two rows claim one opcode");
            *entry = Some(info);
            column_index += 1;
        }
        row_index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of RC, written independently: low five bits, name, headers, header bytes without BTH.
    const RC: &[(u8, &str, HeaderSet, usize, Position, PayloadRule, bool)] = {
        use PayloadRule::*;
        use Position::*;
        const NO: HeaderSet = HeaderSet::empty();
        const RETH: HeaderSet = HeaderSet::RETH;
        const AETH: HeaderSet = HeaderSet::AETH;
        const IMM: HeaderSet = HeaderSet::IMM;
        &[
            (0x00, "RC_SEND_FIRST", NO, 0, First, Mtu, true),
            (0x01, "RC_SEND_MIDDLE", NO, 0, Middle, Mtu, true),
            (0x02, "RC_SEND_LAST", NO, 0, Last, OneToMtu, true),
            (0x03, "RC_SEND_LAST_IMM", IMM, 4, Last, OneToMtu, true),
            (0x04, "RC_SEND_ONLY", NO, 0, Only, ZeroToMtu, true),
            (0x05, "RC_SEND_ONLY_IMM", IMM, 4, Only, ZeroToMtu, true),
            (0x06, "RC_RDMA_WRITE_FIRST", RETH, 16, First, Mtu, true),
            (0x07, "RC_RDMA_WRITE_MIDDLE", NO, 0, Middle, Mtu, true),
            (0x08, "RC_RDMA_WRITE_LAST", NO, 0, Last, OneToMtu, true),
            (0x09, "RC_RDMA_WRITE_LAST_IMM", IMM, 4, Last, OneToMtu, true),
            (0x0a, "RC_RDMA_WRITE_ONLY", RETH, 16, Only, ZeroToMtu, true),
            (0x0b, "RC_RDMA_WRITE_ONLY_IMM", RETH.union(IMM), 20, Only, ZeroToMtu, true),
            (0x0c, "RC_RDMA_READ_REQUEST", RETH, 16, Only, None, true),
            (0x0d, "RC_RDMA_READ_RESPONSE_FIRST", AETH, 4, First, Mtu, false),
            (0x0e, "RC_RDMA_READ_RESPONSE_MIDDLE", NO, 0, Middle, Mtu, false),
            (0x0f, "RC_RDMA_READ_RESPONSE_LAST", AETH, 4, Last, OneToMtu, false),
            (0x10, "RC_RDMA_READ_RESPONSE_ONLY", AETH, 4, Only, ZeroToMtu, false),
            (0x11, "RC_ACKNOWLEDGE", AETH, 4, Only, None, false),
            (0x12, "RC_ATOMIC_ACKNOWLEDGE", AETH.union(HeaderSet::ATOMIC_ACK_ETH), 12, Only, None, false),
            (0x13, "RC_COMPARE_SWAP", HeaderSet::ATOMIC_ETH, 28, Only, None, true),
            (0x14, "RC_FETCH_ADD", HeaderSet::ATOMIC_ETH, 28, Only, None, true),
            (0x16, "RC_SEND_LAST_INVALIDATE", HeaderSet::IETH, 4, Last, OneToMtu, true),
            (0x17, "RC_SEND_ONLY_INVALIDATE", HeaderSet::IETH, 4, Only, ZeroToMtu, true),
            (0x1c, "RC_FLUSH", HeaderSet::FETH.union(RETH), 20, Only, None, true),
            (0x1d, "RC_ATOMIC_WRITE", RETH, 16, Only, Eight, true),
        ]
    };

    /// Returns the meaning of a byte, derived from the RC table by the rules of the other services.
    fn expected(byte: u8) -> Option<(Service, &'static str, HeaderSet, usize, Position, PayloadRule, bool)> {
        if byte == 0x81 {
            return Some((
                Service::Cnp,
                "CNP",
                HeaderSet::CNP_RESERVED,
                16,
                Position::Only,
                PayloadRule::None,
                false,
            ));
        }
        let &(low, name, headers, bytes, position, payload, is_request) =
            RC.iter().find(|row| row.0 == byte & 0x1f)?;
        let name = &name["RC_".len()..];
        let (service, added, added_bytes) = match byte >> 5 {
            0 => (Service::Rc, HeaderSet::empty(), 0),
            1 if low <= 0x0b => (Service::Uc, HeaderSet::empty(), 0),
            3 if low == 4 || low == 5 => (Service::Ud, HeaderSet::DETH, 8),
            5 if low < 0x1c && is_request => (Service::Xrc, HeaderSet::XRCETH, 4),
            5 if low < 0x1c => (Service::Xrc, HeaderSet::empty(), 0),
            _ => return None,
        };
        Some((service, name, headers | added, bytes + added_bytes, position, payload, is_request))
    }

    #[test]
    fn all_256_opcodes_are_as_specified() {
        let mut known = 0;
        for byte in 0..=255u8 {
            let opcode = Opcode::from_byte(byte);
            let Some((service, name, headers, bytes, position, payload, is_request)) = expected(byte) else {
                assert_eq!(opcode.info(), None, "{byte:#04x} should be unknown");
                continue;
            };
            known += 1;
            let info = opcode.info().unwrap_or_else(|| panic!("{byte:#04x} should be known"));
            assert_eq!(info.opcode, opcode);
            assert_eq!((info.service, opcode.service()), (service, service), "{byte:#04x}");
            assert_eq!(Opcode::new(info.service, info.operation), opcode);
            let full_name = match service {
                Service::Rc => alloc::format!("RC_{name}"),
                Service::Uc => alloc::format!("UC_{name}"),
                Service::Ud => alloc::format!("UD_{name}"),
                Service::Xrc => alloc::format!("XRC_{name}"),
                _ => name.into(),
            };
            assert_eq!(info.name, full_name);
            assert_eq!(info.headers, headers, "{full_name}");
            assert_eq!(info.header_bytes, 12 + bytes, "{full_name}");
            assert_eq!(info.position, position, "{full_name}");
            assert_eq!(info.payload, payload, "{full_name}");
            assert_eq!(info.is_request, is_request, "{full_name}");
        }
        assert_eq!(known, 25 + 12 + 2 + 23 + 1);
    }
}
