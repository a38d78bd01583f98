//! Buffers that the device allocates for a program (`ibv_alloc_buf`), and registration by a list of what is
//! given (`ibv_reg_mr_ex`).

use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;
use std::ptr;

use super::memory::{FileRange, own_iova, register, register_file};
use crate::ground::abi::{ibv_buf, ibv_mr, ibv_mr_init_attr, ibv_pd};
use crate::ground::arguments::{In, Lasting, Out};
use crate::ground::errno::{Errno, INVALID, NOT_SUPPORTED};
use crate::ground::gate::About;
use crate::ground::handles::{hand_out, live, take_back};
use crate::ground::outcome::{number, pointer_about, value};
use crate::objects::buffer::Buffer;
use crate::objects::protection_domain::Pd;

/// Allocates a buffer: its address, and in `buf` the handle by which it is registered and freed.
pub(crate) extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    buf: Out<'_, *mut ibv_buf>,
) -> *mut c_void {
    pointer_about(About::on(pd), || {
        live::<Pd>(pd)?;
        let buf = buf.place()?;
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

/// -1 and ENODATA: plain memory has no DMA-buf.
pub(crate) extern "C" fn ibv_export_buf_dmabuf_fd(buf: *mut ibv_buf) -> c_int {
    number(|| {
        live::<Buffer>(buf)?;
        Err(Errno(libc::ENODATA).because(|| "the buffer is plain memory, and has no DMA-buf".to_owned()))
    })
}

/// `IBV_REG_MR_MASK_*`.
const MASK_IOVA: u64 = 1;
const MASK_ADDR: u64 = 1 << 1;
const MASK_FD: u64 = 1 << 2;
const MASK_FD_OFFSET: u64 = 1 << 3;
const MASK_DMAH: u64 = 1 << 4;
const MASK_BUF: u64 = 1 << 5;
const MASK_KNOWN: u64 = (1 << 6) - 1;

/// What `ibv_reg_mr_ex` is asked for. Members without their bit are not read: programs that were built before
/// they existed have shorter structures.
struct Wanted {
    memory: WantedMemory,
    length: usize,
    iova: Option<u64>,
    access: c_uint,
}

enum WantedMemory {
    At(*mut c_void),
    File { descriptor: c_int, offset: u64 },
}

impl Wanted {
    /// # Errors
    /// EOPNOTSUPP: an unknown bit, a DMA handle. EINVAL: what is given does not go together.
    fn of(pd: *mut ibv_pd, attr: In<'_, ibv_mr_init_attr>) -> Result<Wanted, Errno> {
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
        if given(!MASK_KNOWN | MASK_DMAH) {
            return Err(NOT_SUPPORTED.because(|| {
                let what = if given(MASK_DMAH) { "a DMA handle" } else { "bits that are not known" };
                format!("ibv_reg_mr_ex refused: its comp_mask {mask:#x} has {what}")
            }));
        }
        let mismatched = |what: &str| INVALID.because(|| format!("ibv_reg_mr_ex refused: {what}"));
        if given(MASK_FD) {
            if given(MASK_ADDR | MASK_BUF) || !given(MASK_FD_OFFSET) || !given(MASK_IOVA) {
                return Err(mismatched("a DMA-buf needs an offset and an iova, and has no address"));
            }
            let attr = attr.beginning(offset_of!(ibv_mr_init_attr, dmah), nothing)?;
            return Ok(Wanted {
                memory: WantedMemory::File { descriptor: attr.fd, offset: attr.fd_offset },
                length: attr.length,
                iova: Some(attr.iova),
                access: attr.access as c_uint,
            });
        }
        if !given(MASK_ADDR) || given(MASK_FD_OFFSET) {
            return Err(mismatched("memory needs an address, and has no descriptor and no offset"));
        }
        let bytes =
            if given(MASK_BUF) { size_of::<ibv_mr_init_attr>() } else { offset_of!(ibv_mr_init_attr, fd) };
        let attr = attr.beginning(bytes, nothing)?;
        if given(MASK_BUF) {
            live::<Buffer>(attr.buf)?.check_registration(pd, attr.addr, attr.length)?;
        }
        Ok(Wanted {
            memory: WantedMemory::At(attr.addr),
            length: attr.length,
            iova: given(MASK_IOVA).then_some(attr.iova),
            access: attr.access as c_uint,
        })
    }
}

pub(crate) extern "C" fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: In<'_, ibv_mr_init_attr>) -> *mut ibv_mr {
    pointer_about(About::on(pd), || {
        let Wanted { memory, length, iova, access } = Wanted::of(pd, attr)?;
        let addr = match memory {
            WantedMemory::At(addr) => addr,
            WantedMemory::File { descriptor, offset } => {
                let range = FileRange { descriptor, offset, length };
                return register_file(pd, &range, iova.unwrap_or(offset), access);
            }
        };
        // SAFETY: the program that calls `ibv_reg_mr_ex` keeps the memory mapped until it deregisters it.
        let memory = unsafe { Lasting::new(addr) };
        register(pd, memory, length, iova.unwrap_or_else(|| own_iova(memory, access)), access)
    })
}

pub(crate) extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: Lasting,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    pointer_about(About::on(pd), || {
        live::<Buffer>(buf)?.check_registration(pd, addr.as_ptr(), length)?;
        let access = access as c_uint;
        register(pd, addr, length, own_iova(addr, access), access)
    })
}
