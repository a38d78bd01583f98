//! The contexts that identifiers can be on.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use pumice_calls::Call;
use pumice_device::settings::MAX_DEVICES;

use crate::abi::ibv_context;
use crate::entry::outcome::pointer;
use crate::platform::allocation::{Allocation, free};
use crate::rdma_cm::id::shared::up_to_date;

/// Returns the contexts that identifiers can be on, ending with NULL.
pub(crate) extern "C" fn rdma_get_devices(
    num_devices: Option<&mut MaybeUninit<c_int>>,
) -> *mut *mut ibv_context {
    let mut count = 0;
    let list: *mut *mut ibv_context = pointer(Call::rdma_get_devices, || {
        // All elements begin as null, also the last, which ends the list.
        let mut list = [ptr::null_mut(); MAX_DEVICES + 1];
        let devices = up_to_date()?.iter().filter(|device| !device.is_removed()).take(MAX_DEVICES);
        for (element, device) in list.iter_mut().zip(devices) {
            *element = device.context();
            count += 1;
        }
        Ok(Allocation::new(list)?.into_raw().cast())
    });
    if let Some(number) = num_devices {
        // The number is written even if there is no list: some programs read only the number.
        number.write(if list.is_null() { 0 } else { count });
    }
    list
}

pub(crate) unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: NULL, or the program gives back a list of `rdma_get_devices`. The contexts themselves are not
    // freed.
    unsafe { free(list.cast()) }
}
