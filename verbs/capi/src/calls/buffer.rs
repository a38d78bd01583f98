//! Buffers that the device allocates for a program (`ibv_alloc_buf`), and registration by a list of what is
//! given (`ibv_reg_mr_ex`). Plain memory is what this device likes best, so that is what the buffers are.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use crate::calls::memory::{own_iova, register};
use crate::calls::protection_domain::Pd;
use crate::ground::abi::{ibv_buf, ibv_mr, ibv_mr_init_attr, ibv_pd};
use crate::ground::errno::{Errno, INVALID, NOT_SUPPORTED};
use crate::ground::handles::{Held, Identity, Listed, Shown, hand_out, live, take_back};
use crate::ground::outcome::{number, pointer, value};

/// A buffer. Its memory is the C library's.
#[repr(C)]
struct Buffer {
    c: Shown<ibv_buf>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Buffer {
    type C = ibv_buf;
}

impl Listed for Buffer {
    const KIND: &'static str = "buffer";

    fn identity(_c: &ibv_buf) -> Identity {
        Identity::NONE
    }
}

impl Buffer {
    fn c(&self) -> ibv_buf {
        // SAFETY: set once, and read only since.
        unsafe { *self.c.as_ptr() }
    }

    /// # Errors
    /// EINVAL: the range is not all of this buffer, or the domain is not the one that it was allocated for.
    fn check_registration(&self, pd: *mut ibv_pd, addr: *mut c_void, length: usize) -> Result<(), Errno> {
        let c = self.c();
        if pd != c.pd {
            return Err(INVALID.because(|| {
                "the buffer was allocated for another protection domain (ibv_alloc_buf)".into()
            }));
        }
        let offset = addr.addr().checked_sub(c.addr.addr());
        if offset.is_none_or(|offset| offset > c.size || length > c.size - offset) {
            return Err(INVALID.because(|| {
                format!(
                    "{length} bytes at {addr:p} are not all of the buffer of {} bytes at {:p}",
                    c.size, c.addr
                )
            }));
        }
        Ok(())
    }
}

/// Whole pages, as programs may give parts of a buffer other uses by page.
fn allocate(size: usize) -> Result<*mut c_void, Errno> {
    let mut memory = ptr::null_mut();
    // SAFETY: no memory is involved.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    // SAFETY: a variable; a page is a power of two.
    match unsafe { libc::posix_memalign(&mut memory, page, size) } {
        0 => Ok(memory),
        errno => Err(Errno(errno).because(|| format!("no memory for a buffer of {size} bytes"))),
    }
}

/// Allocates a buffer: its address, and in `buf` the handle by which it is registered and freed.
pub(crate) unsafe extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    buf: *mut *mut ibv_buf,
) -> *mut c_void {
    pointer(|| {
        // SAFETY: null or live.
        unsafe { live::<Pd>(pd) }?;
        if buf.is_null() {
            return Err(INVALID);
        }
        let addr = allocate(size)?;
        let c = ibv_buf { addr, size, pd, dmabuf_fd: -1 };
        // SAFETY: the caller's variable.
        unsafe { buf.write(hand_out(Buffer { c: Shown::new(c) })) };
        Ok(addr)
    })
}

pub(crate) unsafe extern "C" fn ibv_free_buf(buf: *mut ibv_buf) {
    value((), || {
        // SAFETY: null or live.
        let Ok(buffer) = (unsafe { live::<Buffer>(buf) }) else { return };
        // SAFETY: the program gives back what `ibv_alloc_buf` gave it.
        unsafe {
            libc::free(buffer.c().addr);
            take_back::<Buffer>(buf);
        }
    });
}

/// -1 and ENODATA: plain memory has no DMA-buf.
pub(crate) unsafe extern "C" fn ibv_export_buf_dmabuf_fd(buf: *mut ibv_buf) -> c_int {
    number(|| {
        // SAFETY: null or live.
        unsafe { live::<Buffer>(buf) }?;
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
    addr: *mut c_void,
    length: usize,
    iova: Option<u64>,
    access: c_uint,
}

impl Wanted {
    /// # Errors
    /// EOPNOTSUPP: an unknown bit, a DMA handle, a DMA-buf. EINVAL: what is given does not go together.
    ///
    /// # Safety
    /// The caller's structure, as long as its mask needs.
    unsafe fn of(pd: *mut ibv_pd, attr: *const ibv_mr_init_attr) -> Result<Wanted, Errno> {
        // SAFETY: the caller's promise.
        let mask = unsafe { (*attr).comp_mask };
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
            return Err(
                NOT_SUPPORTED.because(|| "ibv_reg_mr_ex refused: DMA-bufs are not supported".to_owned())
            );
        }
        if !given(MASK_ADDR) || given(MASK_FD_OFFSET) {
            return Err(mismatched("memory needs an address, and has no descriptor and no offset"));
        }
        // SAFETY: the caller's promise; the mask has the bits of these members.
        let wanted = unsafe {
            Wanted {
                addr: (*attr).addr,
                length: (*attr).length,
                iova: if given(MASK_IOVA) { Some((*attr).iova) } else { None },
                access: (*attr).access as c_uint,
            }
        };
        if given(MASK_BUF) {
            // SAFETY: null or live.
            unsafe { live::<Buffer>((*attr).buf) }?.check_registration(pd, wanted.addr, wanted.length)?;
        }
        Ok(wanted)
    }
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *mut ibv_mr_init_attr) -> *mut ibv_mr {
    pointer(|| {
        if attr.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller's promise.
        let Wanted { addr, length, iova, access } = unsafe { Wanted::of(pd, attr) }?;
        let iova = iova.unwrap_or_else(|| own_iova(addr, access));
        // SAFETY: the program keeps the range mapped.
        unsafe { register(pd, addr, length, iova, access) }
    })
}

pub(crate) unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    pointer(|| {
        // SAFETY: null or live.
        unsafe { live::<Buffer>(buf) }?.check_registration(pd, addr, length)?;
        let access = access as c_uint;
        // SAFETY: the program keeps the range mapped.
        unsafe { register(pd, addr, length, own_iova(addr, access), access) }
    })
}
