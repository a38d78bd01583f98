//! The list of devices.

use std::ffi::{c_char, c_int};
use std::ptr;

use pumice_calls::Call;

use crate::abi::ibv_device;
use crate::check;
use crate::entry::arguments::{Out, Trusted};
use crate::entry::outcome::pointer;
use crate::objects::device::{Device, devices};
use crate::objects::gid_entries::gid_entries;
use crate::objects::loss::is_present;
use crate::objects::unused;
use crate::platform::errno::Errno;

/// Returns a list of devices that ends with NULL: without those that have no address now, or were removed.
pub(crate) extern "C" fn ibv_get_device_list(num_devices: Out<'_, c_int>) -> *mut *mut ibv_device {
    pointer(Call::ibv_get_device_list, || {
        unused::is_listed();
        let mut usable = Vec::new();
        for device in devices()? {
            if is_present(device.index()) && !gid_entries(device.description())?.is_empty() {
                usable.push(device.as_ptr());
            }
        }
        let length = usable.len() + 1;
        // SAFETY: the elements are pointers, for which zeros are NULL.
        let list = unsafe { libc::calloc(length, size_of::<*mut ibv_device>()) }.cast::<*mut ibv_device>();
        if list.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        for (index, device) in usable.iter().enumerate() {
            // SAFETY: the index is below the number of devices, and the list has one element more.
            unsafe { list.add(index).write(*device) };
        }
        if check::is_on() {
            check::misuse::got_list(list.addr(), usable.iter().map(|device| device.addr()).collect());
        }
        if let Some(num_devices) = num_devices.optional() {
            num_devices.set(usable.len() as c_int);
        }
        Ok(list)
    })
}

/// # Safety
/// `list` must be NULL or come from [`ibv_get_device_list`], and must not be freed yet.
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if check::is_on() {
        check::misuse::frees_list(list.addr());
    }
    // SAFETY: the C library allocated it, in `ibv_get_device_list`. The devices themselves are not freed.
    unsafe { libc::free(list.cast()) }
}

pub(crate) extern "C" fn ibv_get_device_name(device: Trusted<'_, ibv_device>) -> *const c_char {
    device.of_any_process::<Device>().map_or(ptr::null(), Device::name_pointer)
}

/// Returns the GUID in network byte order.
pub(crate) extern "C" fn ibv_get_device_guid(device: Trusted<'_, ibv_device>) -> u64 {
    device.of_any_process::<Device>().map_or(0, |device| u64::from_ne_bytes(device.guid()))
}

/// Returns -1, which the manual page has for a kernel that gives no indexes: programs ask the kernel about
/// the device of an index (UCX does, by netlink), and 0 may be another device there, or none.
pub(crate) extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    -1
}
