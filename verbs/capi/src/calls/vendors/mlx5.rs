//! `mlx5dv_*` on a device that looks like a ConnectX.

use std::ffi::{c_char, c_int};
use std::mem::offset_of;

use pumice_calls::Call;
use pumice_device::profile::{DirectCalls, Vendor};

use super::dc::{MAX_LOG_STREAMS, has_dc};
use super::{answers, looks_like};
use crate::ground::abi::{ibv_context, ibv_device, mlx5dv_context};
use crate::ground::arguments::InOut;
use crate::ground::errno::{Errno, NOT_SUPPORTED};
use crate::ground::gate::About;
use crate::ground::outcome::{status_of, value};
use crate::ground::unserved;
use crate::ground::zeroed::zeroed;
use crate::objects::context::Context;
use crate::objects::device::device_of;

/// `MLX5DV_CONTEXT_FLAGS_*` that a ConnectX has: CQE version 1, completions of 128 bytes compressed and
/// padded, time stamps in real time, BlueFlame. They tell of rings, which programs do not get here; perftest
/// reads them.
const FLAGS: u64 = 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8;

/// `MLX5DV_CONTEXT_MASK_*` that a device with DC answers: what DC pages on demand, streams, READs and
/// atomics.
const MASK_DC_ODP: u64 = 1 << 7;
const MASK_DCI_STREAMS: u64 = 1 << 11;
const MASK_MAX_DC_RD_ATOM: u64 = 1 << 14;
/// `IBV_ODP_SUPPORT_*` of SEND, receive, WRITE, READ, atomics and shared receive queues.
const DC_ODP: u32 = 0x3f;

/// Answers on every device of the vendor, because perftest asks each before it makes a queue pair. There is
/// no length: what the program did not ask for is not written, and its structure ends somewhere behind that.
pub(crate) extern "C" fn mlx5dv_query_device(
    context: *mut ibv_context,
    attributes: InOut<'_, mlx5dv_context>,
) -> c_int {
    if !looks_like(Vendor::Mellanox) {
        return unserved::int(Call::mlx5dv_query_device, "");
    }
    status_of(Call::mlx5dv_query_device, About::on(context), || {
        let open = Context::facts_of(context)?;
        if open.device().profile().vendor() != Some(Vendor::Mellanox) {
            return Err(NOT_SUPPORTED);
        }
        let asked = attributes.beginning(offset_of!(mlx5dv_context, of_rings), zeroed())?.comp_mask;
        let served = if has_dc(&open) { MASK_DC_ODP | MASK_DCI_STREAMS | MASK_MAX_DC_RD_ATOM } else { 0 };
        let answered = asked & served;
        // Up to the last field that it asks for.
        let length = [
            (MASK_MAX_DC_RD_ATOM, offset_of!(mlx5dv_context, reg_c0)),
            (MASK_DCI_STREAMS, offset_of!(mlx5dv_context, max_wr_memcpy_length)),
            (MASK_DC_ODP, offset_of!(mlx5dv_context, hca_core_clock)),
        ];
        let length = length.iter().find(|(bit, _)| answered & bit != 0);
        let length = length.map_or(offset_of!(mlx5dv_context, of_rings), |(_, length)| *length);
        let mut all = attributes.beginning(length, zeroed())?;
        (all.version, all.flags, all.comp_mask) = (0, FLAGS, answered);
        if answered & MASK_DC_ODP != 0 {
            all.dc_odp_caps = DC_ODP;
        }
        if answered & MASK_DCI_STREAMS != 0 {
            all.dci_streams_caps = [MAX_LOG_STREAMS; 2];
        }
        if answered & MASK_MAX_DC_RD_ATOM != 0 {
            let depth = open.hca().limits().max_init_rd_atomic.into();
            (all.max_dc_rd_atom, all.max_dc_init_rd_atom) = (depth, depth);
        }
        attributes.put_beginning(&all, length);
        Ok(())
    })
}

/// Whether programs get the calls of mlx5 on a device.
pub(crate) fn is_served(device: *mut ibv_device) -> bool {
    device_of(device).is_ok_and(|device| {
        let profile = device.profile();
        profile.vendor() == Some(Vendor::Mellanox) && profile.dv == DirectCalls::Calls
    })
}

pub(crate) extern "C" fn mlx5dv_is_supported(device: *mut ibv_device) -> bool {
    if !answers(Vendor::Mellanox) {
        return unserved::plain(Call::mlx5dv_is_supported, "") != 0;
    }
    value(false, || is_served(device))
}

/// There is no device for data that goes around the processor. NCCL takes every other errno for a failure.
pub(crate) extern "C" fn mlx5dv_get_data_direct_sysfs_path(
    context: *mut ibv_context,
    _path: *mut c_char,
    _length: usize,
) -> c_int {
    if !answers(Vendor::Mellanox) {
        return unserved::int(Call::mlx5dv_get_data_direct_sysfs_path, "");
    }
    status_of(Call::mlx5dv_get_data_direct_sysfs_path, About::on(context), || {
        Context::of(context)?;
        Err(Errno(libc::ENODEV))
    })
}
