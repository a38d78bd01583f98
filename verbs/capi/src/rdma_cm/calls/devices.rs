//! The contexts that identifiers can be on.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use crate::ground::abi::ibv_context;
use crate::ground::allocation::{Allocation, free};
use crate::ground::outcome::pointer;
use crate::rdma_cm::id::shared::shared;

/// The contexts that identifiers can be on, ending with NULL.
pub(crate) extern "C" fn rdma_get_devices(
    num_devices: Option<&mut MaybeUninit<c_int>>,
) -> *mut *mut ibv_context {
    let list: *mut *mut ibv_context = pointer(|| {
        // The first of the two, and the end of the list.
        Ok(Allocation::new([shared()?.context(), ptr::null_mut()])?.into_raw().cast())
    });
    if let Some(number) = num_devices {
        // Also when there is none: some programs look at nothing else.
        number.write((!list.is_null()).into());
    }
    list
}

pub(crate) unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: NULL, or the program gives back what `rdma_get_devices` gave it. The context itself stays.
    unsafe { free(list.cast()) }
}
