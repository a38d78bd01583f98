//! Buffers that the device allocates for a program (`ibv_alloc_buf`), and registration with a structure of
//! parameters (`ibv_reg_mr_ex`).

use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::Arc;

use pumice_calls::Call;
use pumice_transport::types::Access;

use super::memory::{FileRange, own_iova, register, register_at, register_file};
use crate::abi::{ibv_buf, ibv_dmah, ibv_mr, ibv_mr_init_attr, ibv_pd};
use crate::entry::arguments::{In, LastingPointer, Out};
use crate::entry::handles::{hand_out, live, take_back};
use crate::entry::outcome::{number, pointer_about, value};
use crate::gate::CallSubject;
use crate::objects::buffer::Buffer;
use crate::objects::dma_handle::Dmah;
use crate::objects::memory_region::Mr;
use crate::objects::protection_domain::Pd;
use crate::platform::errno::{Errno, INVALID, NOT_SUPPORTED};

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
const MASK_KNOWN: u64 = (1 << 6) - 1;

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
        if given(!MASK_KNOWN) {
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
