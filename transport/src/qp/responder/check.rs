//! Checks of one request packet that need no memory and no queue.

use super::Refused;
use crate::qp::settings::Settings;
use crate::types::{Access, RemoteRange};
use crate::wire::{Operation, Packet, Position};

/// Whether an operation is part of a SEND.
pub(crate) fn is_send(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::SendFirst
            | Operation::SendMiddle
            | Operation::SendLast
            | Operation::SendLastImm
            | Operation::SendLastInvalidate
            | Operation::SendOnly
            | Operation::SendOnlyImm
            | Operation::SendOnlyInvalidate
    )
}

/// Whether an operation is part of an RDMA WRITE.
pub(crate) fn is_write(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::WriteFirst
            | Operation::WriteMiddle
            | Operation::WriteLast
            | Operation::WriteLastImm
            | Operation::WriteOnly
            | Operation::WriteOnlyImm
    )
}

/// Whether the answer to an operation is saved, because it must not be executed twice.
pub(super) fn is_saved(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::CompareSwap | Operation::FetchAdd | Operation::AtomicWrite | Operation::Flush
    )
}

/// PSNs that `length_bytes` take: at least one.
pub(crate) fn packets_of(length_bytes: u32, mtu_bytes: usize) -> u32 {
    length_bytes.div_ceil(mtu_bytes.max(1) as u32).max(1)
}

pub(super) fn flush_access(placement: u8) -> Access {
    let mut access = Access::empty();
    access.set(Access::FLUSH_GLOBAL, placement & 1 != 0);
    access.set(Access::FLUSH_PERSISTENT, placement & 2 != 0);
    access
}

/// The memory that a packet names.
pub(super) fn range_of(packet: &Packet<'_>) -> Option<RemoteRange> {
    let of_reth = packet.reth().map(|reth| RemoteRange {
        rkey: reth.rkey,
        address: reth.address,
        length_bytes: reth.length.into(),
    });
    let of_atomic = || {
        let eth = packet.atomic_eth()?;
        Some(RemoteRange { rkey: eth.rkey, address: eth.address, length_bytes: 8 })
    };
    of_reth.or_else(of_atomic)
}

/// The queue pair's access flags gate the kind of operation: NAK "invalid request" without them.
pub(super) fn check_operation(settings: &Settings, packet: &Packet<'_>) -> Result<(), Refused> {
    let needed = match packet.operation() {
        Operation::ReadRequest => Access::REMOTE_READ,
        Operation::CompareSwap | Operation::FetchAdd => Access::REMOTE_ATOMIC,
        Operation::AtomicWrite => Access::REMOTE_WRITE,
        Operation::Flush => {
            let needed = packet.feth().map_or(Access::empty(), |feth| flush_access(feth.placement));
            if needed.is_empty() {
                return Err(Refused::invalid("FLUSH without a placement type"));
            }
            needed
        }
        operation if is_write(operation) => Access::REMOTE_WRITE,
        _ => Access::empty(),
    };
    if settings.access.contains(needed) {
        Ok(())
    } else {
        Err(Refused::invalid("the queue pair's access flags do not allow the operation"))
    }
}

/// First and middle packets are full; last packets are not empty; nothing exceeds the path MTU.
pub(crate) fn check_payload(settings: &Settings, packet: &Packet<'_>) -> Result<(), &'static str> {
    let bytes = packet.payload().len();
    let mtu = settings.mtu_bytes;
    let legal = match packet.info().position {
        Position::First | Position::Middle => bytes == mtu && packet.bth().pad_count == 0,
        Position::Last => (1..=mtu).contains(&bytes),
        Position::Only => bytes <= mtu,
    };
    let padded = usize::from(packet.bth().pad_count) == bytes.wrapping_neg() & 3;
    if legal && padded { Ok(()) } else { Err("the payload length does not fit the opcode and path MTU") }
}

pub(super) fn check_length(settings: &Settings, packet: &Packet<'_>) -> Result<(), Refused> {
    check_payload(settings, packet).map_err(Refused::invalid)?;
    if packet.reth().is_some_and(|reth| reth.length > 1 << 31) {
        return Err(Refused::invalid("the RETH length exceeds 2^31"));
    }
    Ok(())
}

/// A WRITE's packets add up to the RETH length.
pub(super) fn check_remaining(
    settings: &Settings,
    packet: &Packet<'_>,
    remaining: u64,
) -> Result<(), Refused> {
    let bytes = packet.payload().len() as u64;
    let ends = matches!(packet.info().position, Position::Last | Position::Only);
    let legal =
        if ends { bytes == remaining } else { bytes == settings.mtu_bytes as u64 && remaining > bytes };
    if legal { Ok(()) } else { Err(Refused::invalid("the payloads do not add up to the RETH length")) }
}
