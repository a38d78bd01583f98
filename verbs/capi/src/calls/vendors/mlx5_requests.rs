//! Requests that only mlx5 has: copies within the device's memory, and requests that the program writes in
//! the adapter's format.

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_device::profile::Vendor;
use pumice_transport::types::{AtomicOperation, Operand, RemoteTarget, SendFlags, SendOpcode, Sge, WcOpcode};

use super::super::queue_pair_ex::{add, set, set_elements};
use super::imitates;
use crate::abi::{mlx5dv_qp_ex, operation};
use crate::entry::arguments::{Bytes, In};
use crate::entry::{negative_of, unsupported, value};
use crate::gate::CallSubject;
use crate::objects::queue_pair::{Mlx5Qp, Qp};
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};

/// Flags of `MLX5DV_QP_EX_WITH_*`: raw requests, and copies.
pub(super) const OPERATION_RAW: u64 = 1 << 3;
pub(super) const OPERATION_COPY: u64 = 1 << 4;
/// Largest number of bytes that a request copies.
pub(super) const MAX_COPIED: u32 = 1 << 20;

/// Sets the functions that a queue pair was made with.
pub(super) fn fill_operations(c: &mut mlx5dv_qp_ex, operations: u64) {
    if operations & OPERATION_RAW != 0 {
        c.wr_raw_wqe = operation!(wr_raw_wqe);
    }
    if operations & OPERATION_COPY != 0 {
        c.wr_memcpy = operation!(wr_memcpy);
    }
}

/// Cancels the requests that wait in a send queue that has stopped.
pub(crate) extern "C" fn mlx5dv_qp_cancel_posted_send_wrs(mlx5: In<'_, mlx5dv_qp_ex>, wr_id: u64) -> c_int {
    let call = Call::mlx5dv_qp_cancel_posted_send_wrs;
    if !imitates(Vendor::Mellanox) {
        return unsupported::negative(call, "");
    }
    negative_of(call, CallSubject::NOTHING, || {
        let qp = Mlx5Qp::queue_pair_of(mlx5).ok_or(INVALID)?;
        let held = qp.held::<Qp>()?;
        let canceled = held.hca().cancel_sends(held.number(), wr_id).ok_or_else(|| {
            INVALID.because(|| {
                format!("{call} refused: requests are cancelled in SQD only, after IBV_EVENT_SQ_DRAINED")
            })
        })?;
        Ok(c_int::try_from(canceled).unwrap_or(c_int::MAX))
    })
}

extern "C" fn wr_memcpy(
    mlx5: In<'_, mlx5dv_qp_ex>,
    dest_lkey: u32,
    dest_addr: u64,
    src_lkey: u32,
    src_addr: u64,
    length: usize,
) {
    value((), || {
        let Some(qp) = Mlx5Qp::queue_pair_of(mlx5) else { return };
        let length = u32::try_from(length).ok().filter(|length| *length <= MAX_COPIED);
        add(qp, SendOpcode::CopyMemory, |part| {
            let length = length.ok_or_else(|| {
                INVALID
                    .because(|| format!("wr_memcpy copies {MAX_COPIED} bytes at most (max_wr_memcpy_length)"))
            })?;
            part.request.copy_to = Some(Sge { address: dest_addr, length, lkey: dest_lkey });
            Ok(())
        });
        let from = Sge { address: src_addr, length: length.unwrap_or(0), lkey: src_lkey };
        set(qp, |_, series| match series.refused {
            Some(_) => Ok(()),
            None => set_elements(series, &[from]),
        });
    });
}

/// Length in bytes of a unit of a request.
const UNIT: usize = 16;
/// Bit that marks a segment's bytes as inline data.
const INLINE: u32 = 1 << 31;
/// Bits of the control segment: a completion is made; the peer gets an event; a fence.
const MAKES_COMPLETION: u8 = 2 << 2;
const SOLICITED: u8 = 1 << 1;
const FENCES: u8 = 7 << 5;
/// Bit of a fence that only waits for requests of the driver itself.
const SMALL_FENCE: u8 = 1 << 5;

/// Operations by their numbers in requests of mlx5.
const OPCODES: [(u8, SendOpcode); 8] = [
    (0x01, SendOpcode::SendWithInvalidate),
    (0x08, SendOpcode::RdmaWrite),
    (0x09, SendOpcode::RdmaWriteWithImm),
    (0x0a, SendOpcode::Send),
    (0x0b, SendOpcode::SendWithImm),
    (0x10, SendOpcode::RdmaRead),
    (0x11, SendOpcode::CompareSwap),
    (0x12, SendOpcode::FetchAdd),
];

/// A decoded request in the format of mlx5.
#[derive(Debug, Default, PartialEq, Eq)]
struct RawRequest {
    opcode: Option<SendOpcode>,
    flags: SendFlags,
    imm_data: [u8; 4],
    remote: RemoteTarget,
    atomic: Option<AtomicOperation>,
    sges: Vec<Sge>,
    inline_data: Option<Vec<u8>>,
}

/// Reads the number of four bytes at an offset.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads the number of eight bytes at an offset.
fn double(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the length in bytes of a request, from its first unit; `None` if the unit is invalid.
fn length_of(control: &[u8]) -> Option<usize> {
    let units = word(control, 4)? as usize & 0x3f;
    (units > 0).then_some(units * UNIT)
}

/// Decodes a request; `None` if its parts do not fit together.
///
/// # Errors
/// Fails with EOPNOTSUPP for an operation that is not implemented.
fn parse(bytes: &[u8]) -> Result<Option<RawRequest>, Errno> {
    let number = word(bytes, 0).map(|word| word as u8);
    let known = OPCODES.iter().find(|(known, _)| Some(*known) == number);
    let opcode = known.map(|(_, opcode)| *opcode).ok_or_else(|| {
        NOT_SUPPORTED.because(|| {
            format!("wr_raw_wqe: operation {:#04x} is none that this device carries out", number.unwrap_or(0))
        })
    })?;
    Ok(parts_of(opcode, bytes))
}

fn parts_of(opcode: SendOpcode, bytes: &[u8]) -> Option<RawRequest> {
    let (control, mut rest) = bytes.split_at_checked(UNIT)?;
    let (&bits, imm_data) = (control.get(11)?, *control.get(12..)?.first_chunk()?);
    let mut request = RawRequest { opcode: Some(opcode), imm_data, ..RawRequest::default() };
    for (flag, is_set) in [
        (SendFlags::SIGNALED, bits & MAKES_COMPLETION != 0),
        (SendFlags::SOLICITED, bits & SOLICITED != 0),
        (SendFlags::FENCE, bits & FENCES > SMALL_FENCE),
    ] {
        request.flags.set(flag, is_set);
    }
    let info = opcode.info();
    if info.names_remote_memory() {
        request.remote = RemoteTarget { address: double(rest, 0)?, rkey: word(rest, 8)? };
        rest = rest.get(UNIT..)?;
    }
    if info.operand == Operand::Atomic {
        let (swap_or_add, compare) = (double(rest, 0)?, double(rest, 8)?);
        request.atomic = Some(match opcode {
            SendOpcode::CompareSwap => AtomicOperation::CompareSwap { compare, swap: swap_or_add },
            _ => AtomicOperation::FetchAdd { add: swap_or_add },
        });
        rest = rest.get(UNIT..)?;
    }
    while !rest.is_empty() {
        let length = word(rest, 0)?;
        if length & INLINE != 0 {
            let length = (length & !INLINE) as usize;
            let data = rest.get(4..)?.get(..length)?;
            request.inline_data.get_or_insert_default().extend_from_slice(data);
            rest = rest.get((length + 4).next_multiple_of(UNIT)..)?;
            continue;
        }
        request.sges.push(Sge { length, lkey: word(rest, 4)?, address: double(rest, 8)? });
        rest = rest.get(UNIT..)?;
    }
    // A request has one or the other: a request of verbs has no mixture.
    (request.inline_data.is_none() || request.sges.is_empty()).then_some(request)
}

extern "C" fn wr_raw_wqe(mlx5: In<'_, mlx5dv_qp_ex>, wqe: Bytes<'_>) {
    value((), || {
        let Some(qp) = Mlx5Qp::queue_pair_of(mlx5) else { return };
        let mut raw = RawRequest::default();
        // The operation of the request that is added changes before it is posted.
        add(qp, SendOpcode::Send, |part| {
            let malformed = || {
                INVALID.because(|| {
                    "wr_raw_wqe: the segments of the request do not add up to its size".to_owned()
                })
            };
            let length = length_of(wqe.get(UNIT)?).ok_or_else(malformed)?;
            raw = parse(wqe.get(length)?)?.ok_or_else(malformed)?;
            let request = &mut part.request;
            request.opcode = raw.opcode.unwrap_or(SendOpcode::Send);
            (request.flags, request.imm_data, request.remote) = (raw.flags, raw.imm_data, raw.remote);
            request.invalidate_rkey = u32::from_be_bytes(raw.imm_data);
            (request.atomic, request.completes_as) = (raw.atomic, Some(WcOpcode::RawRequest));
            Ok(())
        });
        set(qp, |_, series| match (&series.refused, &raw.inline_data) {
            (Some(_), _) => Ok(()),
            (None, Some(data)) => {
                series.add_inline(data);
                Ok(())
            }
            (None, None) => set_elements(series, &raw.sges),
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a request of these units behind its control segment.
    fn raw(opcode: u8, bits: u8, imm: u32, units: &[[u8; UNIT]]) -> Vec<u8> {
        let mut bytes = vec![7, 0, 1, opcode, 0, 0, 0x11, 1 + units.len() as u8, 0, 0, 0, bits];
        bytes.extend(imm.to_be_bytes());
        bytes.extend(units.concat());
        bytes
    }

    fn unit(first: u64, second: u64) -> [u8; UNIT] {
        let mut unit = [0; UNIT];
        unit[..8].copy_from_slice(&first.to_be_bytes());
        unit[8..].copy_from_slice(&second.to_be_bytes());
        unit
    }

    fn buffer(length: u32, lkey: u32, address: u64) -> [u8; UNIT] {
        unit(u64::from(length) << 32 | u64::from(lkey), address)
    }

    #[test]
    fn a_send_names_its_buffers_and_its_flags() {
        let bytes = raw(0x0a, 8, 0, &[buffer(5, 0x101, 0x7000), buffer(9, 0x202, 0x8000)]);
        assert_eq!(length_of(&bytes), Some(48));
        let request = parse(&bytes).unwrap().unwrap();
        let sges = vec![
            Sge { address: 0x7000, length: 5, lkey: 0x101 },
            Sge { address: 0x8000, length: 9, lkey: 0x202 },
        ];
        let (opcode, flags) = (Some(SendOpcode::Send), SendFlags::SIGNALED);
        assert_eq!(request, RawRequest { opcode, flags, sges, ..RawRequest::default() });
        let flags = |bits| parse(&raw(0x0b, bits, 0x0102_0304, &[])).unwrap().unwrap();
        assert_eq!(flags(2).flags, SendFlags::SOLICITED);
        assert_eq!((flags(0x20).flags, flags(0x80).flags), (SendFlags::empty(), SendFlags::FENCE));
        assert_eq!(flags(0).imm_data, [1, 2, 3, 4]);
    }

    #[test]
    fn what_names_remote_memory_says_it_before_its_data() {
        let target = RemoteTarget { address: 0x9000, rkey: 0x303 };
        let remote = unit(0x9000, 0x303 << 32);
        let mut inline = [0; UNIT];
        inline[..4].copy_from_slice(&(INLINE | 3).to_be_bytes());
        inline[4..7].copy_from_slice(b"abc");
        let write = parse(&raw(0x08, 0, 0, &[remote, inline])).unwrap().unwrap();
        assert_eq!((write.remote, write.inline_data), (target, Some(b"abc".to_vec())));
        let swap = raw(0x11, 0, 0, &[remote, unit(2, 1), buffer(8, 0x101, 0x7000)]);
        let swap = parse(&swap).unwrap().unwrap();
        assert_eq!(swap.atomic, Some(AtomicOperation::CompareSwap { compare: 1, swap: 2 }));
        assert_eq!(swap.sges, [Sge { address: 0x7000, length: 8, lkey: 0x101 }]);
        let add = parse(&raw(0x12, 0, 0, &[remote, unit(2, 1)])).unwrap().unwrap();
        assert_eq!(add.atomic, Some(AtomicOperation::FetchAdd { add: 2 }));
    }

    #[test]
    fn a_request_whose_parts_do_not_fit_is_refused_and_no_length_is_trusted() {
        assert_eq!(length_of(&raw(0x0a, 0, 0, &[])[..8]), Some(16));
        assert_eq!(length_of(&[0; UNIT]), None);
        // The requests are a WRITE without its target, and an atomic without its operand.
        assert_eq!(parse(&raw(0x08, 0, 0, &[])), Ok(None));
        assert_eq!(parse(&raw(0x11, 0, 0, &[unit(0, 0)])), Ok(None));
        // The requests have more inline data than there is, and inline data beside a buffer.
        let mut inline = [0; UNIT];
        inline[..4].copy_from_slice(&(INLINE | 13).to_be_bytes());
        assert_eq!(parse(&raw(0x0a, 0, 0, &[inline])), Ok(None));
        inline[3] = 1;
        assert_eq!(parse(&raw(0x0a, 0, 0, &[inline, buffer(1, 1, 1)])), Ok(None));
        assert_eq!(parse(&raw(0x25, 0, 0, &[])), Err(NOT_SUPPORTED));
        for length in 0..UNIT {
            let _ = parse(&raw(0x0a, 0, 0, &[])[..length]);
        }
    }
}
