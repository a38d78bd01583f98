//! Device memory: allocated from the device, copied to and from by calls, registered for peers.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::slice;
use std::sync::Arc;

use pumice_device::memory::DeviceMemory;

use crate::calls::memory::{Mr, access};
use crate::calls::protection_domain::Pd;
use crate::ground::abi::operation;
use crate::ground::abi::{ibv_alloc_dm_attr, ibv_context, ibv_dm, ibv_mr, ibv_pd};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::handles::{Held, Identity, Listed, Shown, hand_out, held, live, take_back};
use crate::ground::outcome::{pointer, status, value};
use crate::ground::refusal::check_mask;
use crate::objects::command_file::Owned;
use crate::objects::context::Context;

/// Device memory of a program.
#[repr(C)]
pub(crate) struct Dm {
    c: Shown<ibv_dm>,
    memory: Arc<DeviceMemory>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Dm {
    type C = ibv_dm;
}

impl Listed for Dm {
    const KIND: &'static str = "device memory";

    fn identity(c: &ibv_dm) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

fn show(context: *mut ibv_context, memory: Arc<DeviceMemory>, handle: u32) -> *mut ibv_dm {
    let c = ibv_dm {
        context,
        memcpy_to_dm: operation!(memcpy_to_dm),
        memcpy_from_dm: operation!(memcpy_from_dm),
        comp_mask: 0,
        handle,
    };
    hand_out(Dm { c: Shown::new(c), memory })
}

pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attributes: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    pointer(|| {
        // SAFETY: null or open; null or the caller's structure.
        let (open, attributes) = unsafe { (Context::of(context)?, attributes.as_ref().ok_or(INVALID)?) };
        check_mask("ibv_alloc_dm", attributes.comp_mask, 0)?;
        let memory = open.hca().alloc_dm(attributes.length as u64, attributes.log_align_req)?;
        let handle = open.file().keep_device_memory(&memory);
        Ok(show(context, memory, handle))
    })
}

pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    status(|| {
        // SAFETY: null or live; a context outlives its objects.
        let (held, context, handle) = unsafe { (live::<Dm>(dm)?, Context::of((*dm).context)?, (*dm).handle) };
        if held.memory.registrations() != 0 {
            return Err(Errno(libc::EBUSY).because(|| "the device memory is registered".to_owned()));
        }
        context.file().forget_device_memory(handle);
        // SAFETY: the program gives it back.
        unsafe { take_back::<Dm>(dm) };
        Ok(())
    })
}

/// Device memory of a context with the same command file.
pub(crate) unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm {
    pointer(|| {
        // SAFETY: null or open.
        let open = unsafe { Context::of(context) }?;
        let memory = open.file().device_memory(dm_handle)?;
        Ok(show(context, memory, dm_handle))
    })
}

/// Frees the structure; the memory itself stays.
pub(crate) unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    value((), || {
        // SAFETY: the program gives it back.
        if unsafe { live::<Dm>(dm) }.is_ok() {
            // SAFETY: as above.
            unsafe { take_back::<Dm>(dm) };
        }
    });
}

/// Remote addresses of the region count from 0.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
    rights: c_uint,
) -> *mut ibv_mr {
    pointer(|| {
        // SAFETY: null or live.
        let (domain, dm) = unsafe { (live::<Pd>(pd)?, live::<Dm>(dm)?) };
        let context = domain.context()?;
        let rights = access(rights)?;
        let keys = context.hca().reg_dm_mr(domain.handle(), &dm.memory, dm_offset, length as u64, rights)?;
        context.own(Owned::Region(keys.handle.pack()));
        Ok(hand_out(Mr::new(domain, pd, keys, ptr::null_mut(), length)))
    })
}

unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    dm_offset: u64,
    host_addr: *const c_void,
    length: usize,
) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let dm = unsafe { held::<Dm>(dm) }?;
        if length as u64 > dm.memory.length() {
            return Err(Errno(libc::EFAULT));
        }
        if host_addr.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller's memory.
        Ok(dm.memory.write(dm_offset, unsafe { slice::from_raw_parts(host_addr.cast(), length) })?)
    })
}

unsafe extern "C" fn memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let dm = unsafe { held::<Dm>(dm) }?;
        if length as u64 > dm.memory.length() {
            return Err(Errno(libc::EFAULT));
        }
        if host_addr.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller's memory.
        Ok(dm.memory.read(dm_offset, unsafe { slice::from_raw_parts_mut(host_addr.cast(), length) })?)
    })
}
