//! Opcodes, spelled a second time: the low five bits (the high three are the service), a name, and
//! the headers that follow the BTH.

pub(crate) const SEND_FIRST: u8 = 0x00;
pub(crate) const SEND_MIDDLE: u8 = 0x01;
pub(crate) const SEND_LAST: u8 = 0x02;
pub(crate) const SEND_LAST_IMM: u8 = 0x03;
pub(crate) const SEND_ONLY: u8 = 0x04;
pub(crate) const SEND_ONLY_IMM: u8 = 0x05;
pub(crate) const WRITE_FIRST: u8 = 0x06;
pub(crate) const WRITE_MIDDLE: u8 = 0x07;
pub(crate) const WRITE_LAST: u8 = 0x08;
pub(crate) const WRITE_LAST_IMM: u8 = 0x09;
pub(crate) const WRITE_ONLY: u8 = 0x0a;
pub(crate) const WRITE_ONLY_IMM: u8 = 0x0b;
pub(crate) const READ_REQUEST: u8 = 0x0c;
pub(crate) const READ_FIRST: u8 = 0x0d;
pub(crate) const READ_MIDDLE: u8 = 0x0e;
pub(crate) const READ_LAST: u8 = 0x0f;
pub(crate) const READ_ONLY: u8 = 0x10;
pub(crate) const ACK: u8 = 0x11;
pub(crate) const ATOMIC_ACK: u8 = 0x12;
pub(crate) const CMP_SWAP: u8 = 0x13;
pub(crate) const FETCH_ADD: u8 = 0x14;
pub(crate) const SEND_LAST_INV: u8 = 0x16;
pub(crate) const SEND_ONLY_INV: u8 = 0x17;
pub(crate) const FLUSH: u8 = 0x1c;
pub(crate) const ATOMIC_WRITE: u8 = 0x1d;
/// A whole opcode, service included.
pub(crate) const CNP: u8 = 0x81;

/// An extension header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    Xrc,
    Deth,
    Feth,
    Reth,
    Atomic,
    Aeth,
    AtomicAck,
    Imm,
    Ieth,
    CnpReserved,
}

/// Name of an operation for failure messages.
pub(crate) fn name(opcode: u8) -> &'static str {
    const NAMES: [&str; 0x1e] = [
        "SEND_FIRST",
        "SEND_MIDDLE",
        "SEND_LAST",
        "SEND_LAST_IMM",
        "SEND_ONLY",
        "SEND_ONLY_IMM",
        "WRITE_FIRST",
        "WRITE_MIDDLE",
        "WRITE_LAST",
        "WRITE_LAST_IMM",
        "WRITE_ONLY",
        "WRITE_ONLY_IMM",
        "READ_REQUEST",
        "READ_FIRST",
        "READ_MIDDLE",
        "READ_LAST",
        "READ_ONLY",
        "ACK",
        "ATOMIC_ACK",
        "CMP_SWAP",
        "FETCH_ADD",
        "?",
        "SEND_LAST_INV",
        "SEND_ONLY_INV",
        "?",
        "?",
        "?",
        "?",
        "FLUSH",
        "ATOMIC_WRITE",
    ];
    if opcode == CNP { "CNP" } else { NAMES.get(usize::from(opcode & 0x1f)).copied().unwrap_or("?") }
}

/// Name of the service in an opcode's high bits.
pub(crate) fn service(opcode: u8) -> &'static str {
    match opcode >> 5 {
        0 => "RC",
        1 => "UC",
        3 => "UD",
        4 => "CNP",
        5 => "XRC",
        _ => "?",
    }
}

/// The headers that follow the BTH, in order.
pub(crate) fn headers(opcode: u8) -> Vec<Header> {
    use Header::*;
    if opcode == CNP {
        return vec![CnpReserved];
    }
    let operation = opcode & 0x1f;
    let mut headers = Vec::new();
    let response = matches!(operation, READ_FIRST..=ATOMIC_ACK);
    match opcode >> 5 {
        3 => headers.push(Deth),
        5 if !response => headers.push(Xrc),
        _ => {}
    }
    headers.extend_from_slice(match operation {
        SEND_LAST_IMM | SEND_ONLY_IMM | WRITE_LAST_IMM => &[Imm],
        WRITE_FIRST | WRITE_ONLY | READ_REQUEST | ATOMIC_WRITE => &[Reth],
        WRITE_ONLY_IMM => &[Reth, Imm],
        READ_FIRST | READ_LAST | READ_ONLY | ACK => &[Aeth],
        ATOMIC_ACK => &[Aeth, AtomicAck],
        CMP_SWAP | FETCH_ADD => &[Atomic],
        SEND_LAST_INV | SEND_ONLY_INV => &[Ieth],
        FLUSH => &[Feth, Reth],
        _ => &[],
    });
    headers
}
