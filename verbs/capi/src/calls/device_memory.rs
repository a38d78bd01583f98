//! Memory that the device has or allocates for a program: device memory, buffers, DMA handles.
//!
//! Buffers that the device allocates for a program (`ibv_alloc_buf`), and registration with a structure of
//! parameters (`ibv_reg_mr_ex`).
//!
//! DMA handles (`ibv_alloc_dmah`). Their parameters are checked as by Linux and the provider that has them,
//! and have no effect: the processor that copies this device's bytes manages its own caches.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;
use std::os::fd::IntoRawFd;
use std::ptr;
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::memory::DeviceMemory;
use pumice_device::outside::process::may_run_on;
use pumice_transport::types::Access;

use super::memory::{FileRange, access, own_iova, register, register_at, register_file};
use crate::abi::{
    ibv_alloc_dm_attr, ibv_buf, ibv_context, ibv_dm, ibv_dmah, ibv_dmah_init_attr, ibv_mr, ibv_mr_init_attr,
    ibv_pd, operation,
};
use crate::entry::arguments::{Bytes, In, LastingPointer, Out, OutBytes, Trusted};
use crate::entry::handles::{hand_out, is_inherited, live, take_back};
use crate::entry::{number, number_of, pointer_about, status_of, value};
use crate::gate::CallSubject;
use crate::log::refusal::check_mask;
use crate::objects::Context;
use crate::objects::command_file::OwnedObject;
use crate::objects::device_memory::{Buffer, Dm, Dmah, allocate_in_child};
use crate::objects::domains::Pd;
use crate::objects::memory_region::Mr;
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};

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

/// Allocates a buffer: returns its address, and in `buf` the handle with which it is registered and freed.
pub(crate) extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    buf: Out<'_, *mut ibv_buf>,
) -> *mut c_void {
    pointer_about(Call::ibv_alloc_buf, CallSubject::on(pd), || {
        live::<Pd>(pd)?;
        let buf = buf.required()?;
        let buffer = Buffer::new(pd, size)?;
        let address = buffer.address();
        buf.set(hand_out(buffer));
        Ok(address)
    })
}

pub(crate) extern "C" fn ibv_free_buf(buf: *mut ibv_buf) {
    value((), || {
        if live::<Buffer>(buf).is_ok() {
            take_back::<Buffer>(buf);
        }
    });
}

/// Fails with -1 and ENODATA: plain memory has no DMA-buf.
pub(crate) extern "C" fn ibv_export_buf_dmabuf_fd(buf: *mut ibv_buf) -> c_int {
    number(Call::ibv_export_buf_dmabuf_fd, || {
        live::<Buffer>(buf)?;
        Err(Errno(libc::ENODATA).because(|| "the buffer is plain memory, and has no DMA-buf".to_owned()))
    })
}

/// Bits of `IBV_REG_MR_MASK_*`.
const MASK_IOVA: u64 = 1;
const MASK_ADDR: u64 = 1 << 1;
const MASK_FD: u64 = 1 << 2;
const MASK_FD_OFFSET: u64 = 1 << 3;
const MASK_DMAH: u64 = 1 << 4;
const MASK_BUF: u64 = 1 << 5;
const REGISTRATION_MASK_KNOWN: u64 = (1 << 6) - 1;

/// Parameters of `ibv_reg_mr_ex`. Members without their bit are not read: programs that were built before
/// they existed have shorter structures.
struct RegistrationParameters {
    memory: RegisteredMemory,
    length: usize,
    iova: Option<u64>,
    access: c_uint,
    dma_handle: Option<Arc<Dmah>>,
}

enum RegisteredMemory {
    At(*mut c_void),
    File { descriptor: c_int, offset: u64 },
}

impl RegistrationParameters {
    /// # Errors
    /// Fails with EOPNOTSUPP for an unknown bit, with ENOENT for a DMA handle or buffer that does not exist,
    /// and with EINVAL for a contradictory combination.
    fn of(pd: *mut ibv_pd, attr: In<'_, ibv_mr_init_attr>) -> Result<RegistrationParameters, Errno> {
        let nothing = ibv_mr_init_attr {
            length: 0,
            access: 0,
            comp_mask: 0,
            iova: 0,
            addr: ptr::null_mut(),
            fd: -1,
            fd_offset: 0,
            dmah: ptr::null_mut(),
            buf: ptr::null_mut(),
        };
        let mask = attr.beginning(offset_of!(ibv_mr_init_attr, iova), nothing)?.comp_mask;
        let given = |bits: u64| mask & bits != 0;
        if given(!REGISTRATION_MASK_KNOWN) {
            return Err(NOT_SUPPORTED.because(|| {
                format!("ibv_reg_mr_ex refused: its comp_mask {mask:#x} has bits that are not known")
            }));
        }
        let mismatched = |what: &str| INVALID.because(|| format!("ibv_reg_mr_ex refused: {what}"));
        if given(MASK_FD) {
            if given(MASK_ADDR | MASK_BUF) || !given(MASK_FD_OFFSET) || !given(MASK_IOVA) {
                return Err(mismatched("a DMA-buf needs an offset and an iova, and has no address"));
            }
        } else if !given(MASK_ADDR) || given(MASK_FD_OFFSET) {
            return Err(mismatched("memory needs an address, and has no descriptor and no offset"));
        }
        let attr = attr.beginning(length_of(mask), nothing)?;
        let access = attr.access as c_uint;
        let dma_handle = if given(MASK_DMAH) { Some(dma_handle_for(pd, attr.dmah, access)?) } else { None };
        let iova = given(MASK_IOVA).then_some(attr.iova);
        if given(MASK_FD) {
            let memory = RegisteredMemory::File { descriptor: attr.fd, offset: attr.fd_offset };
            return Ok(RegistrationParameters { memory, length: attr.length, iova, access, dma_handle });
        }
        if given(MASK_BUF) {
            live::<Buffer>(attr.buf)?.check_registration(pd, attr.addr, attr.length)?;
        }
        let memory = RegisteredMemory::At(attr.addr);
        Ok(RegistrationParameters { memory, length: attr.length, iova, access, dma_handle })
    }

    /// # Errors
    /// Fails as [`register`] and [`register_file`].
    fn register(&self, pd: *mut ibv_pd) -> Result<*mut ibv_mr, Errno> {
        let &RegistrationParameters { ref memory, length, iova, access, .. } = self;
        let addr = match *memory {
            RegisteredMemory::At(addr) => addr,
            RegisteredMemory::File { descriptor, offset } => {
                let range = FileRange { descriptor, offset, length };
                return register_file(pd, &range, iova.unwrap_or(offset), access);
            }
        };
        // SAFETY: the program that calls `ibv_reg_mr_ex` does not unmap the memory before it deregisters it.
        let memory = unsafe { LastingPointer::new(addr) };
        match iova {
            Some(iova) => register_at(pd, memory, length, iova, access),
            None => register(pd, memory, length, own_iova(memory, access), access),
        }
    }
}

/// Returns the length in bytes that the structure has if these members are given.
fn length_of(mask: u64) -> usize {
    if mask & MASK_BUF != 0 {
        size_of::<ibv_mr_init_attr>()
    } else if mask & MASK_DMAH != 0 {
        offset_of!(ibv_mr_init_attr, buf)
    } else if mask & MASK_FD != 0 {
        offset_of!(ibv_mr_init_attr, dmah)
    } else {
        offset_of!(ibv_mr_init_attr, fd)
    }
}

/// Returns the DMA handle for a region in a domain.
///
/// # Errors
/// Fails with ENOENT if there is none, and with EINVAL if it is another device's, or if the region is on
/// demand, which Linux refuses too.
fn dma_handle_for(pd: *mut ibv_pd, dmah: *mut ibv_dmah, access: c_uint) -> Result<Arc<Dmah>, Errno> {
    let dma_handle = live::<Dmah>(dmah)?;
    live::<Pd>(pd)?.context()?.check_same("DMA handle", &*dma_handle.context()?)?;
    if access & Access::ON_DEMAND.bits() != 0 {
        return Err(INVALID.because(|| {
            "ibv_reg_mr_ex refused: a region that is paged on demand has no DMA handle".to_owned()
        }));
    }
    Ok(dma_handle)
}

pub(crate) extern "C" fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: In<'_, ibv_mr_init_attr>) -> *mut ibv_mr {
    pointer_about(Call::ibv_reg_mr_ex, CallSubject::on(pd), || {
        let parameters = RegistrationParameters::of(pd, attr)?;
        let region = parameters.register(pd)?;
        if let Some(dma_handle) = &parameters.dma_handle {
            live::<Mr>(region)?.hold_dma_handle(dma_handle);
        }
        Ok(region)
    })
}

pub(crate) extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: LastingPointer,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    pointer_about(Call::ibv_reg_buf_mr, CallSubject::on(pd), || {
        live::<Buffer>(buf)?.check_registration(pd, addr.as_ptr(), length)?;
        let access = access as c_uint;
        register(pd, addr, length, own_iova(addr, access), access)
    })
}

/// Bits of `IBV_DMAH_INIT_ATTR_MASK_*`.
const MASK_CPU_ID: u32 = 1;
const MASK_PH: u32 = 1 << 1;
const MASK_TPH_MEM_TYPE: u32 = 1 << 2;
const DMA_HANDLE_MASK_KNOWN: u32 = MASK_CPU_ID | MASK_PH | MASK_TPH_MEM_TYPE;
/// The two members of a steering tag.
const MASK_STEERING: u32 = MASK_CPU_ID | MASK_TPH_MEM_TYPE;

/// Largest processing hint: PCIe has two bits for it.
const LARGEST_HINT: u8 = 3;
/// The value `IBV_TPH_MEM_TYPE_PM`, behind `IBV_TPH_MEM_TYPE_VM`.
const LARGEST_MEMORY_TYPE: u8 = 1;

/// # Errors
/// Fails with EINVAL for no hint, one of more than two bits, or half of a steering tag; with EOPNOTSUPP for
/// an unknown type of memory; with EPERM for a processor that this thread may not run on.
fn check(attributes: &ibv_dmah_init_attr) -> Result<(), Errno> {
    let ibv_dmah_init_attr { comp_mask, cpu_id, ph, tph_mem_type } = *attributes;
    check_mask(Call::ibv_alloc_dmah, comp_mask, DMA_HANDLE_MASK_KNOWN)?;
    let refused = |errno: Errno, why: String| errno.because(|| format!("ibv_alloc_dmah refused: {why}"));
    if comp_mask & MASK_PH == 0 {
        return Err(refused(INVALID, "a processing hint (ph) must be given".to_owned()));
    }
    if ph > LARGEST_HINT {
        return Err(refused(INVALID, format!("the processing hint {ph} is more than {LARGEST_HINT}")));
    }
    match comp_mask & MASK_STEERING {
        0 => return Ok(()),
        MASK_STEERING => {}
        _ => return Err(refused(INVALID, "give cpu_id and tph_mem_type together".to_owned())),
    }
    if tph_mem_type > LARGEST_MEMORY_TYPE {
        return Err(refused(NOT_SUPPORTED, format!("there is no type of memory {tph_mem_type}")));
    }
    if !may_run_on(cpu_id) {
        return Err(refused(Errno(libc::EPERM), format!("this thread may not run on processor {cpu_id}")));
    }
    Ok(())
}

pub(crate) extern "C" fn ibv_alloc_dmah(
    context: *mut ibv_context,
    attributes: In<'_, ibv_dmah_init_attr>,
) -> *mut ibv_dmah {
    pointer_about(Call::ibv_alloc_dmah, CallSubject::on(context), || {
        Context::of(context)?;
        check(attributes.get()?)?;
        Ok(hand_out(Dmah::new(context)))
    })
}

pub(crate) extern "C" fn ibv_dealloc_dmah(dmah: *mut ibv_dmah) -> c_int {
    status_of(Call::ibv_dealloc_dmah, CallSubject::of(dmah), || {
        live::<Dmah>(dmah)?.check_unused()?;
        take_back::<Dmah>(dmah);
        Ok(())
    })
}
