//! Proofs about the first checks of a request packet, which need no memory and no queue.

use super::check::{check_operation, check_payload, check_range_length, flush_access, packets_of, range_of};
use crate::host::QpContext;
use crate::proofs::{check, check_all};
use crate::qp::dcqcn::Congestion;
use crate::qp::settings::{QpConfig, QpSettings};
use crate::types::{Access, AtomicOperation, MAX_MESSAGE_BYTES, Mtu, QpCapacity, QpType};
use crate::wire::proofs::packets::bytes;
use crate::wire::{Bth, HeaderSet, Opcode, OperationClass, Packet, Position, Qpn};

/// Path MTU in bytes here: the checks depend on no other number.
const MTU_BYTES: usize = 4;
fn settings(access: Access) -> QpSettings {
    let context = QpContext {
        qpn: Qpn::new(1),
        pd: 0,
        send_cq: 0,
        recv_cq: 0,
        recv_queue: 0,
        xrcd: 0,
        ordinal: 0,
        out_of_order: false,
    };
    let config = QpConfig {
        context,
        qp_type: QpType::Rc,
        capacity: QpCapacity::default(),
        signal_all: false,
        has_srq: false,
        port_mtu_bytes: 256,
        congestion: Congestion::default(),
        adaptive_timeout: None,
    };
    QpSettings { mtu_bytes: MTU_BYTES, access, ..QpSettings::new(&config) }
}

/// The packets of a message have room for all of it, and one packet fewer would not.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn the_packets_of_a_message_hold_all_of_it() {
    check(|from| {
        let (length, mtu) = (from.u32(), from.one_of(&Mtu::ALL).bytes());
        let packets = u64::from(packets_of(length, mtu));
        assert!(packets >= 1 && packets * mtu as u64 >= u64::from(length));
        assert!(packets == 1 || (packets - 1) * (mtu as u64) < u64::from(length));
    });
}

/// A packet count has an answer for every length and MTU, also for an MTU of 0.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn counting_packets_never_divides_by_zero() {
    check(|from| {
        let length = from.u32();
        assert_eq!(packets_of(length, 0), length.max(1));
        assert_eq!(packets_of(0, from.u16().into()), 1);
    });
}

/// A payload passes if, and only if, its length fits its position and the path MTU, and its pad fits it.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(62))]
#[cfg_attr(not(kani), test)]
fn a_payload_passes_if_it_fits_its_position() {
    let settings = settings(Access::empty());
    check(|from| {
        let (bytes, length) = bytes(from);
        let Ok(packet) = Packet::parse(&bytes[..length]) else { return };
        let payload = packet.payload().len();
        let fits = match packet.info().position {
            Position::First | Position::Middle => payload == MTU_BYTES,
            Position::Last => payload > 0 && payload <= MTU_BYTES,
            Position::Only => payload <= MTU_BYTES,
        };
        // The pad fills up to a multiple of four, and is never a whole word.
        let is_padded =
            (payload + usize::from(packet.bth().pad_count)).is_multiple_of(4) && packet.bth().pad_count < 4;
        assert_eq!(check_payload(&settings, &packet).is_ok(), fits && is_padded);
    });
}

/// A message is refused for its length if, and only if, it is longer than 2^31 bytes.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(62))]
#[cfg_attr(not(kani), test)]
fn a_message_longer_than_the_longest_is_refused() {
    check(|from| {
        let (mut bytes, length) = bytes(from);
        let info = Opcode::from_byte(bytes[0]).info();
        if let Some(at) = info.and_then(|info| info.headers.offset_of(HeaderSet::RETH)) {
            let length = from.between(MAX_MESSAGE_BYTES - 1, MAX_MESSAGE_BYTES + 1) as u32;
            let length = if from.bool() { length } else { from.u32() };
            bytes[at + 12..at + 16].copy_from_slice(&length.to_be_bytes());
        }
        let Ok(packet) = Packet::parse(&bytes[..length]) else { return };
        let is_short = packet.reth().is_none_or(|reth| u64::from(reth.length) <= MAX_MESSAGE_BYTES);
        assert_eq!(check_range_length(&packet).is_ok(), is_short);
    });
}

/// The memory that a packet names is that of its RETH, or the eight bytes of an atomic.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(62))]
#[cfg_attr(not(kani), test)]
fn the_memory_that_a_packet_names_is_in_its_headers() {
    check(|from| {
        let (bytes, length) = bytes(from);
        let Ok(packet) = Packet::parse(&bytes[..length]) else { return };
        let range = range_of(&packet);
        assert_eq!(range.is_some(), packet.reth().is_some() || packet.atomic_eth().is_some());
        let Some(range) = range else { return };
        let at = Bth::LEN + if packet.xrceth().is_some() || packet.feth().is_some() { 4 } else { 0 };
        assert_eq!(Some(&range.address.to_be_bytes()), bytes[at..].first_chunk());
        assert_eq!(Some(&range.rkey.to_be_bytes()), bytes[at + 8..].first_chunk());
        assert!(range.length_bytes == 8 || packet.reth().is_some());
    });
}

/// The rights of a FLUSH are those of its placement type, one for each of two bits.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn the_rights_of_a_flush_are_those_of_its_placement() {
    check_all(|from| {
        let placement = from.u8();
        let access = flush_access(placement);
        assert_eq!(access.contains(Access::FLUSH_GLOBAL), placement & 1 != 0);
        assert_eq!(access.contains(Access::FLUSH_PERSISTENT), placement & 2 != 0);
        assert!((Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT).contains(access));
    });
}

/// A request passes the first check if the queue pair has the right for it; SENDs and answers need none.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(62))]
#[cfg_attr(not(kani), test)]
fn an_operation_passes_if_the_queue_pair_has_the_right() {
    let without = settings(Access::empty());
    let all = settings(Access::all());
    check(|from| {
        let (bytes, length) = bytes(from);
        let Ok(packet) = Packet::parse(&bytes[..length]) else { return };
        let class = packet.info().class;
        let needed = match class {
            OperationClass::Read => Access::REMOTE_READ,
            OperationClass::Write => Access::REMOTE_WRITE,
            OperationClass::Atomic => AtomicOperation::of(&packet).map_or(Access::empty(), |it| it.access()),
            OperationClass::Flush => packet.feth().map_or(Access::empty(), |it| flush_access(it.placement)),
            _ => Access::empty(),
        };
        let is_empty_flush = class == OperationClass::Flush && needed.is_empty();
        assert_eq!(check_operation(&all, &packet).is_ok(), !is_empty_flush);
        assert_eq!(check_operation(&without, &packet).is_ok(), needed.is_empty() && !is_empty_flush);
        let access = Access::from_bits_truncate(from.u32());
        let granted = check_operation(&settings(access), &packet);
        assert_eq!(granted.is_ok(), access.contains(needed) && !is_empty_flush);
    });
}
