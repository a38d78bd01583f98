//! Device memory: allocated from the device, copied to and from by calls, registered for peers.

use std::ffi::{c_int, c_uint};
use std::os::fd::IntoRawFd;
use std::ptr;
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::memory::DeviceMemory;

use super::memory::access;
use crate::abi::operation;
use crate::abi::{ibv_alloc_dm_attr, ibv_context, ibv_dm, ibv_mr, ibv_pd};
use crate::entry::arguments::{Bytes, In, OutBytes, Trusted};
use crate::entry::handles::{hand_out, is_inherited, live, take_back};
use crate::entry::outcome::{number_of, pointer_about, status_of, value};
use crate::gate::CallSubject;
use crate::log::refusal::check_mask;
use crate::objects::command_file::OwnedObject;
use crate::objects::context::Context;
use crate::objects::device_memory::{Dm, allocate_in_child};
use crate::objects::memory_region::Mr;
use crate::objects::protection_domain::Pd;
use crate::platform::errno::{Errno, INVALID};

/// Handle of memory that a child has through an inherited context, which cannot be imported.
const NO_HANDLE: u32 = u32::MAX;

fn show(context: *mut ibv_context, memory: Arc<DeviceMemory>, handle: u32) -> *mut ibv_dm {
    let c = ibv_dm {
        context,
        memcpy_to_dm: operation!(memcpy_to_dm),
        memcpy_from_dm: operation!(memcpy_from_dm),
        comp_mask: 0,
        handle,
    };
    hand_out(Dm::new(c, memory))
}

pub(crate) extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attributes: In<'_, ibv_alloc_dm_attr>,
) -> *mut ibv_dm {
    pointer_about(Call::ibv_alloc_dm, CallSubject::on(context), || {
        let (open, attributes) = (Context::facts_of(context)?, attributes.get()?);
        check_mask(Call::ibv_alloc_dm, attributes.comp_mask, 0)?;
        if is_inherited::<Context>(context) {
            let memory = allocate_in_child(attributes.length as u64, attributes.log_align_req)?;
            return Ok(show(context, memory, NO_HANDLE));
        }
        let memory = open.hca().alloc_dm(attributes.length as u64, attributes.log_align_req)?;
        let handle = open.file().store_device_memory(&memory);
        Ok(show(context, memory, handle))
    })
}

pub(crate) extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    status_of(Call::ibv_free_dm, CallSubject::of(dm), || {
        let held = live::<Dm>(dm)?;
        let context = if held.is_of_inherited_context() { None } else { Some(held.context()?) };
        //= man:ibv_alloc_dm
        //| Device memory that is registered cannot be freed.
        if held.memory().registrations() != 0 {
            return Err(Errno(libc::EBUSY).because(|| "the device memory is registered".to_owned()));
        }
        if let Some(context) = context {
            context.file().forget_device_memory(held.handle());
        }
        take_back::<Dm>(dm);
        Ok(())
    })
}

/// Imports device memory of a context with the same command file.
pub(crate) extern "C" fn ibv_import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm {
    pointer_about(Call::ibv_import_dm, CallSubject::on(context), || {
        let memory = Context::of(context)?.file().device_memory(dm_handle)?;
        Ok(show(context, memory, dm_handle))
    })
}

/// Frees the structure, but not the memory itself.
pub(crate) extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    value((), || {
        if live::<Dm>(dm).is_ok() {
            take_back::<Dm>(dm);
        }
    });
}

/// Returns a descriptor of a file with the memory's bytes: for `ibv_reg_dmabuf_mr` of this library's devices
/// and for mmap(2). It is no DMA-buf that drivers of other devices know.
pub(crate) extern "C" fn ibv_dm_export_dmabuf_fd(dm: *mut ibv_dm) -> c_int {
    number_of(Call::ibv_dm_export_dmabuf_fd, CallSubject::on(dm), || {
        Ok(live::<Dm>(dm)?.memory().export()?.into_raw_fd())
    })
}

/// Registers device memory; remote addresses of the region count from 0.
pub(crate) extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
    rights: c_uint,
) -> *mut ibv_mr {
    pointer_about(Call::ibv_reg_dm_mr, CallSubject::on(pd), || {
        let (domain, dm) = (live::<Pd>(pd)?, live::<Dm>(dm)?);
        let context = domain.context()?;
        context.check_same("device memory", &*dm.context()?)?;
        let rights = access(rights)?;
        let keys = context.hca().reg_dm_mr(domain.handle(), dm.memory(), dm_offset, length as u64, rights)?;
        context.own(OwnedObject::Region(keys.handle.pack()));
        Ok(hand_out(Mr::new(&domain, pd, keys, ptr::null_mut(), length)))
    })
}

/// Returns the memory, if this length can be copied at all.
///
/// # Errors
/// Fails with EFAULT if it is shorter, and with EINVAL if no memory to copy to or from is given.
fn check_copy(dm: &Dm, length: usize, given: bool) -> Result<&DeviceMemory, Errno> {
    if length as u64 > dm.memory().length() {
        return Err(Errno(libc::EFAULT));
    }
    if given { Ok(dm.memory()) } else { Err(INVALID) }
}

extern "C" fn memcpy_to_dm(
    dm: Trusted<'_, ibv_dm>,
    dm_offset: u64,
    host_addr: Bytes<'_>,
    length: usize,
) -> c_int {
    status_of(Call::ibv_memcpy_to_dm, CallSubject::on(dm.as_ptr()), || {
        let memory = check_copy(dm.held::<Dm>()?, length, !host_addr.is_null())?;
        Ok(memory.write(dm_offset, host_addr.get(length)?)?)
    })
}

extern "C" fn memcpy_from_dm(
    host_addr: OutBytes<'_>,
    dm: Trusted<'_, ibv_dm>,
    dm_offset: u64,
    length: usize,
) -> c_int {
    status_of(Call::ibv_memcpy_from_dm, CallSubject::on(dm.as_ptr()), || {
        let memory = check_copy(dm.held::<Dm>()?, length, !host_addr.is_null())?;
        Ok(memory.read(dm_offset, host_addr.get(length)?)?)
    })
}
