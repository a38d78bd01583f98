//! Checks of one request packet that need no memory and no queue.

use super::refusal::RefusedRequest;
use crate::qp::settings::QpSettings;
use crate::types::{Access, AtomicOperation, FailureDetail, MAX_MESSAGE_BYTES, RemoteRange};
use crate::wire::{OperationClass, Packet, Position};

/// Returns the number of PSNs that `length_bytes` take: at least one.
pub(crate) fn packets_of(length_bytes: u32, mtu_bytes: usize) -> u32 {
    //= statement:18
    //| A READ of exactly n path MTUs has n responses, and a READ of no bytes has one.
    if length_bytes as usize <= mtu_bytes {
        return 1;
    }
    length_bytes.div_ceil(mtu_bytes.max(1) as u32)
}

pub(super) fn flush_access(placement: u8) -> Access {
    let mut access = Access::empty();
    //= linux:rxe_resp.c#check_qp_attr_access
    //| Bit 0 of the placement type asks for global visibility, and bit 1 asks for persistence.
    access.set(Access::FLUSH_GLOBAL, placement & 1 != 0);
    access.set(Access::FLUSH_PERSISTENT, placement & 2 != 0);
    access
}

/// Returns the name of an access right in verbs.
fn flag_name(access: Access) -> &'static str {
    match access {
        Access::REMOTE_READ => "IBV_ACCESS_REMOTE_READ",
        Access::REMOTE_WRITE => "IBV_ACCESS_REMOTE_WRITE",
        Access::REMOTE_ATOMIC => "IBV_ACCESS_REMOTE_ATOMIC",
        _ => "IBV_ACCESS_FLUSH_GLOBAL or IBV_ACCESS_FLUSH_PERSISTENT",
    }
}

/// Returns the memory that a packet names.
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

/// Checks the queue pair's access flags for the kind of operation: NAK "invalid request" without them.
pub(super) fn check_operation(settings: &QpSettings, packet: &Packet<'_>) -> Result<(), RefusedRequest> {
    let needed = match packet.info().class {
        //= linux:rxe_resp.c#check_qp_attr_access
        //| A READ needs the right REMOTE_READ of the queue pair.
        OperationClass::Read => Access::REMOTE_READ,
        OperationClass::Write => Access::REMOTE_WRITE,
        OperationClass::Atomic => {
            AtomicOperation::of(packet).map_or(Access::empty(), AtomicOperation::access)
        }
        OperationClass::Flush => {
            let needed = packet.feth().map_or(Access::empty(), |feth| flush_access(feth.placement));
            if needed.is_empty() {
                return Err(RefusedRequest::invalid("FLUSH without a placement type"));
            }
            needed
        }
        _ => Access::empty(),
    };
    if settings.access.contains(needed) {
        Ok(())
    } else {
        //= statement:9
        //| A request of no bytes also gets NAK 0x61 if the queue pair does not allow the operation.
        let refused = RefusedRequest::invalid("the queue pair does not allow the operation");
        Err(refused.with(FailureDetail::Access { missing: flag_name(needed) }))
    }
}

/// Checks the payload length: first and middle packets are full; last packets are not empty; none exceeds the
/// path MTU.
pub(crate) fn check_payload(
    settings: &QpSettings,
    packet: &Packet<'_>,
) -> Result<(), (&'static str, FailureDetail)> {
    let bytes = packet.payload().len();
    let mtu = settings.mtu_bytes;
    let legal = match packet.info().position {
        //= linux:rxe_resp.c#rxe_resp_check_length
        //| First and middle packets carry exactly one path MTU.
        Position::First | Position::Middle => bytes == mtu && packet.bth().pad_count == 0,
        //= linux:rxe_resp.c#rxe_resp_check_length
        //| A last packet carries at least one byte and at most one path MTU.
        Position::Last => (1..=mtu).contains(&bytes),
        Position::Only => bytes <= mtu,
    };
    //= linux:rxe_resp.c#check_rkey
    //| The pad count fills the payload up to a multiple of four bytes.
    let padded = usize::from(packet.bth().pad_count) == bytes.wrapping_neg() & 3;
    if legal && padded {
        return Ok(());
    }
    let is_senders_mtu = !packet.info().position.ends();
    let detail = FailureDetail::Payload { bytes: bytes as u32, mtu_bytes: mtu as u32, is_senders_mtu };
    Err(("the payload length does not fit the opcode and path MTU", detail))
}

pub(super) fn check_length(settings: &QpSettings, packet: &Packet<'_>) -> Result<(), RefusedRequest> {
    check_payload(settings, packet)
        .map_err(|(reason, detail)| RefusedRequest::invalid(reason).with(detail))?;
    check_range_length(packet).map_err(RefusedRequest::invalid)
}

/// Checks that the message is not longer than 2^31 bytes.
pub(crate) fn check_range_length(packet: &Packet<'_>) -> Result<(), &'static str> {
    match packet.reth() {
        //= statement:49
        //| A message of 2^31 bytes is accepted, and a longer one is refused.
        Some(reth) if u64::from(reth.length) > MAX_MESSAGE_BYTES => Err("the RETH length exceeds 2^31"),
        _ => Ok(()),
    }
}
