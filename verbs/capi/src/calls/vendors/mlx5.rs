//! `mlx5dv_*` on a device that looks like a ConnectX.

use std::ffi::{c_char, c_int};

use pumice_calls::Call;
use pumice_device::profile::{DirectCalls, Vendor};

use super::{answers, looks_like};
use crate::ground::abi::{ibv_context, ibv_device, mlx5dv_context};
use crate::ground::arguments::Out;
use crate::ground::errno::{Errno, NOT_SUPPORTED};
use crate::ground::gate::About;
use crate::ground::outcome::{status_of, value};
use crate::ground::unserved;
use crate::objects::context::Context;
use crate::objects::device::device_of;

/// `MLX5DV_CONTEXT_FLAGS_*` that a ConnectX has: CQE version 1, completions of 128 bytes compressed and
/// padded, time stamps in real time, BlueFlame. They tell of rings, which programs do not get here; perftest
/// reads them.
const FLAGS: u64 = 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8;

/// Answers on every device of the vendor, because perftest asks each before it makes a queue pair. There is
/// no length: what the program did not ask for is not written, and of what it asks for nothing is there.
pub(crate) extern "C" fn mlx5dv_query_device(
    context: *mut ibv_context,
    attributes: Out<'_, mlx5dv_context>,
) -> c_int {
    if !looks_like(Vendor::Mellanox) {
        return unserved::int(Call::mlx5dv_query_device, "");
    }
    status_of(Call::mlx5dv_query_device, About::on(context), || {
        let open = Context::facts_of(context)?;
        if open.device().profile().vendor() != Some(Vendor::Mellanox) {
            return Err(NOT_SUPPORTED);
        }
        let none_of_these = 0;
        let version = 0;
        attributes.required()?.set(mlx5dv_context { version, flags: FLAGS, comp_mask: none_of_these });
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
