//! Calls of `mlx5dv_*` on a device that looks like a ConnectX.

use std::ffi::{c_char, c_int};
use std::mem::offset_of;
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::profile::{DirectCalls, Vendor};
use pumice_transport::wire::Qpn;

use super::dc::{MAX_LOG_STREAMS, has_dc};
use super::mlx5_keys::SIGNATURES;
use super::mlx5_requests::MAX_COPIED;
use super::{has_vendor_calls, imitates};
use crate::abi::plain::zeroed;
use crate::abi::{
    ibv_context, ibv_device, mlx5dv_clock_info, mlx5dv_context, mlx5dv_cqe_comp_caps, mlx5dv_ctx_allocators,
    mlx5dv_obj, mlx5dv_ooo_recv_wrs_caps, mlx5dv_pd,
};
use crate::entry::arguments::{In, InOut, Out, OutBytes};
use crate::entry::handles::live;
use crate::entry::{status_of, unsupported, value};
use crate::gate::CallSubject;
use crate::objects::Context;
use crate::objects::command_file::OwnedObject;
use crate::objects::device::device_of;
use crate::objects::domains::Pd;
use crate::platform::wall_clock::WallClock;
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};

/// Flags of `MLX5DV_CONTEXT_FLAGS_*` that a ConnectX has: CQE version 1, completions of 128 bytes compressed
/// and padded, timestamps in real time, BlueFlame. They describe rings, which programs do not get here;
/// perftest reads them.
const FLAGS: u64 = 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8;

/// A part of the structure that a program may ask for, and gets if the device has it.
struct QueriedCapability {
    /// Bit of `MLX5DV_CONTEXT_MASK_*`.
    bit: u64,
    /// Offset of its end in the structure.
    end: usize,
    is_served: fn(&Context) -> bool,
    answer: fn(&Context, &mut mlx5dv_context),
}

/// Flags of `IBV_ODP_SUPPORT_*` of SEND, receive, WRITE, READ, atomics and shared receive queues.
const DC_ODP: u32 = 0x3f;
/// Formats of `MLX5DV_CQE_RES_FORMAT_*`: all three.
pub(super) const CQE_FORMATS: u8 = 7;
/// Number of completions that an adapter packs into one.
const MAX_PACKED: u32 = 8;

/// Parts of the structure, in its order.
const QUERIED_CAPABILITIES: [QueriedCapability; 8] = [
    // Compression of completions: programs see none, because the library of the adapter unpacks them.
    QueriedCapability {
        bit: 1,
        end: offset_of!(mlx5dv_context, of_rings),
        is_served: |_| true,
        answer: |_, all| {
            let supported_format = CQE_FORMATS.into();
            all.cqe_comp_caps = mlx5dv_cqe_comp_caps { max_num: MAX_PACKED, supported_format };
        },
    },
    // On-demand paging of DC.
    QueriedCapability {
        bit: 1 << 7,
        end: offset_of!(mlx5dv_context, hca_core_clock),
        is_served: has_dc,
        answer: |_, all| all.dc_odp_caps = DC_ODP,
    },
    // Ports of a bond.
    QueriedCapability {
        bit: 1 << 9,
        end: offset_of!(mlx5dv_context, sig_caps),
        is_served: |open| open.device().profile().lag_ports > 1,
        answer: |open, all| all.num_lag_ports = open.device().profile().lag_ports,
    },
    // Signatures.
    QueriedCapability {
        bit: 1 << 10,
        end: offset_of!(mlx5dv_context, dci_streams_caps),
        is_served: has_dc,
        answer: |_, all| all.sig_caps = SIGNATURES,
    },
    // Streams.
    QueriedCapability {
        bit: 1 << 11,
        end: offset_of!(mlx5dv_context, max_wr_memcpy_length),
        is_served: has_dc,
        answer: |_, all| all.dci_streams_caps = [MAX_LOG_STREAMS; 2],
    },
    // Copies.
    QueriedCapability {
        bit: 1 << 12,
        end: offset_of!(mlx5dv_context, crypto_caps),
        is_served: has_dc,
        answer: |_, all| all.max_wr_memcpy_length = MAX_COPIED.into(),
    },
    // READs and atomics of DC.
    QueriedCapability {
        bit: 1 << 14,
        end: offset_of!(mlx5dv_context, reg_c0),
        is_served: has_dc,
        answer: |open, all| {
            let depth = open.hca().limits().max_init_rd_atomic.into();
            (all.max_dc_rd_atom, all.max_dc_init_rd_atom) = (depth, depth);
        },
    },
    // Number of receive requests of queue pairs whose data may be placed out of order.
    QueriedCapability {
        bit: 1 << 16,
        end: size_of::<mlx5dv_context>() - size_of::<u32>(),
        is_served: has_dc,
        answer: |open, all| {
            let limits = open.hca().limits();
            let (max_rc, max_dct) = (limits.max_qp_wr, limits.max_srq_wr);
            all.ooo_recv_wrs_caps =
                mlx5dv_ooo_recv_wrs_caps { max_rc, max_xrc: 0, max_dct, max_ud: 0, max_uc: 0 };
        },
    },
];

/// Reports whether a device of this process may look like mlx5.
pub(super) fn serves() -> bool {
    imitates(Vendor::Mellanox)
}

/// Returns the context, if its device looks like mlx5.
///
/// # Errors
/// Fails with EOPNOTSUPP if it does not, and as [`Context::of`].
pub(super) fn mlx5_of(context: *mut ibv_context) -> Result<Arc<Context>, Errno> {
    let open = Context::of(context)?;
    check_mlx5(&open)?;
    Ok(open)
}

/// Checks that the device of a context looks like mlx5.
///
/// # Errors
/// Fails with EOPNOTSUPP if it does not.
pub(super) fn check_mlx5(open: &Context) -> Result<(), Errno> {
    if open.is_of(Vendor::Mellanox) { Ok(()) } else { Err(NOT_SUPPORTED) }
}

/// Answers on every device of the vendor, because perftest asks each before it makes a queue pair. The call
/// has no length argument: a part that the program did not ask for is not written, because its structure may
/// end before it.
pub(crate) extern "C" fn mlx5dv_query_device(
    context: *mut ibv_context,
    attributes: InOut<'_, mlx5dv_context>,
) -> c_int {
    if !serves() {
        return unsupported::int(Call::mlx5dv_query_device, "");
    }
    status_of(Call::mlx5dv_query_device, CallSubject::on(context), || {
        let open = Context::facts_of(context)?;
        check_mlx5(&open)?;
        let least = offset_of!(mlx5dv_context, cqe_comp_caps);
        let requested = attributes.beginning(least, zeroed())?.comp_mask;
        let answered =
            || QUERIED_CAPABILITIES.iter().filter(|one| requested & one.bit != 0 && (one.is_served)(&open));
        let length = answered().map(|one| one.end).max().unwrap_or(least);
        let mut all = attributes.beginning(length, zeroed())?;
        (all.version, all.flags, all.comp_mask) = (0, FLAGS, answered().map(|one| one.bit).sum());
        answered().for_each(|one| (one.answer)(&open, &mut all));
        attributes.put_beginning(&all, length);
        Ok(())
    })
}

/// Reports whether programs get the calls of mlx5 on a device.
pub(crate) fn is_served(device: *mut ibv_device) -> bool {
    device_of(device).is_ok_and(|device| {
        let profile = device.profile();
        profile.vendor() == Some(Vendor::Mellanox) && profile.dv == DirectCalls::Calls
    })
}

pub(crate) extern "C" fn mlx5dv_is_supported(device: *mut ibv_device) -> bool {
    if !has_vendor_calls(Vendor::Mellanox) {
        return unsupported::plain(Call::mlx5dv_is_supported, "") != 0;
    }
    value(false, || is_served(device))
}

/// Fails with ENODEV: there is no device for data that bypasses the processor. NCCL takes every other errno
/// for a failure.
pub(crate) extern "C" fn mlx5dv_get_data_direct_sysfs_path(
    context: *mut ibv_context,
    _path: *mut c_char,
    _length: usize,
) -> c_int {
    if !has_vendor_calls(Vendor::Mellanox) {
        return unsupported::int(Call::mlx5dv_get_data_direct_sysfs_path, "");
    }
    status_of(Call::mlx5dv_get_data_direct_sysfs_path, CallSubject::on(context), || {
        Context::of(context)?;
        Err(Errno(libc::ENODEV))
    })
}

/// Returns no attributes: no port has any of mlx5 alone, because no packet is steered in memory that programs
/// may name.
pub(crate) extern "C" fn _mlx5dv_query_port(
    context: *mut ibv_context,
    port_num: u32,
    info: OutBytes<'_>,
    info_len: usize,
) -> c_int {
    let call = Call::_mlx5dv_query_port;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, CallSubject::on(context), || {
        let open = mlx5_of(context)?;
        if port_num == 0 || port_num > u32::from(open.hca().port_count()) {
            return Err(INVALID.because(|| format!("{call} refused: the device has no port {port_num}")));
        }
        info.get(info_len)?.fill(0);
        Ok(())
    })
}

/// Returns the parameters of timestamps, which are nanoseconds of the device's clock. The difference to the
/// system's time is measured now.
pub(crate) extern "C" fn mlx5dv_get_clock_info(
    context: *mut ibv_context,
    clock_info: Out<'_, mlx5dv_clock_info>,
) -> c_int {
    let call = Call::mlx5dv_get_clock_info;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, CallSubject::on(context), || {
        let open = mlx5_of(context)?;
        let clock = open.hca().clock();
        let last_cycles = clock.now_ns();
        let nsec = WallClock::new(clock).translate(clock, last_cycles);
        let (frac, mult, shift, mask) = (0, 1, 0, u64::MAX);
        clock_info.required()?.set(mlx5dv_clock_info { nsec, last_cycles, frac, mult, shift, mask });
        Ok(())
    })
}

/// Allocates a number of no queue pair, which programs of rdma_cm give the peer where one queue pair has
/// several connections.
pub(crate) extern "C" fn mlx5dv_reserved_qpn_alloc(context: *mut ibv_context, qpn: Out<'_, u32>) -> c_int {
    let call = Call::mlx5dv_reserved_qpn_alloc;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, CallSubject::on(context), || {
        let (open, target) = (mlx5_of(context)?, qpn.required()?);
        let number = open.hca().reserve_number()?.value();
        open.own(OwnedObject::ReservedNumber(number));
        target.set(number);
        Ok(())
    })
}

pub(crate) extern "C" fn mlx5dv_reserved_qpn_dealloc(context: *mut ibv_context, qpn: u32) -> c_int {
    let call = Call::mlx5dv_reserved_qpn_dealloc;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, CallSubject::on(context), || {
        let open = mlx5_of(context)?;
        let known = open
            .file()
            .find("reserved number", |owned| (*owned == OwnedObject::ReservedNumber(qpn)).then_some(()));
        known?;
        open.disown(OwnedObject::ReservedNumber(qpn));
        open.hca().release_number(Qpn::new(qpn));
        Ok(())
    })
}

/// The flag `MLX5DV_OBJ_PD` of the kinds of objects.
const OBJECT_PD: u64 = 1 << 6;
/// The value `MLX5DV_CTX_ATTR_BUF_ALLOCATORS`, the only attribute of a context.
const ATTRIBUTE_ALLOCATORS: u32 = 1;

/// Returns an adapter's internal data of an object. Queues have no rings here that programs could write to,
/// so these kinds are refused.
pub(crate) extern "C" fn mlx5dv_init_obj(obj: In<'_, mlx5dv_obj>, obj_type: u64) -> c_int {
    let call = Call::mlx5dv_init_obj;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, CallSubject::NOTHING, || {
        if obj_type != OBJECT_PD {
            return Err(NOT_SUPPORTED.because(|| {
                format!(
                    "{call} refused: the device shows no rings of queues (obj_type {obj_type:#x}), only the \
                     number of a protection domain; use the calls of libibverbs"
                )
            }));
        }
        let pair = obj.get()?.pd;
        let domain = live::<Pd>(pair.r#in)?;
        check_mlx5(&*domain.context()?)?;
        // SAFETY: the program's pointer, which is NULL or leads to what the header says.
        let target = unsafe { Out::<mlx5dv_pd>::new(pair.out) }.required()?;
        target.set(mlx5dv_pd { pdn: domain.handle().index, comp_mask: 0 });
        Ok(())
    })
}

/// Accepts functions of the program that allocate queues, and never calls them: the queues here are not in
/// memory that a program could allocate.
pub(crate) extern "C" fn mlx5dv_set_context_attr(
    context: *mut ibv_context,
    r#type: u32,
    attr: In<'_, mlx5dv_ctx_allocators>,
) -> c_int {
    let call = Call::mlx5dv_set_context_attr;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, CallSubject::on(context), || {
        mlx5_of(context)?;
        if r#type != ATTRIBUTE_ALLOCATORS {
            return Err(NOT_SUPPORTED.because(|| {
                format!("{call} refused: attribute {} is not MLX5DV_CTX_ATTR_BUF_ALLOCATORS", r#type)
            }));
        }
        attr.get()?;
        Ok(())
    })
}
