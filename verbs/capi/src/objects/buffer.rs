//! Buffers that the device allocates for a program. They are plain memory, which this device accesses
//! fastest.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use crate::abi::{ibv_buf, ibv_pd};
use crate::entry::handles::{CObject, HandleIdentity, RegisteredObject, SharedStruct, shown};
use crate::platform::errno::{Errno, INVALID};

/// Length of [`BufferPages`] in bytes.
const PAGES_BYTES: usize = 1 << 16;

/// Memory of the largest page that kernels have, or of several pages: programs may give parts of a buffer
/// other uses by page.
#[repr(C, align(65536))]
struct BufferPages([u8; PAGES_BYTES]);

/// A buffer, which owns its memory.
#[repr(C)]
pub(crate) struct Buffer {
    c: SharedStruct<ibv_buf>,
    _memory: Vec<MaybeUninit<BufferPages>>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Buffer {
    type C = ibv_buf;
}

impl RegisteredObject for Buffer {
    const KIND: &'static str = "buffer";

    fn identity(_c: &ibv_buf) -> HandleIdentity {
        HandleIdentity::NONE
    }
}

impl Buffer {
    /// Creates a buffer of whole pages for a protection domain.
    ///
    /// # Errors
    /// Fails with ENOMEM if there is no memory.
    pub(crate) fn new(pd: *mut ibv_pd, size: usize) -> Result<Buffer, Errno> {
        let mut memory: Vec<MaybeUninit<BufferPages>> = Vec::new();
        memory
            .try_reserve_exact(size.div_ceil(PAGES_BYTES).max(1))
            .map_err(|_| Errno(libc::ENOMEM).because(|| format!("no memory for a buffer of {size} bytes")))?;
        let c = ibv_buf { addr: memory.as_mut_ptr().cast(), size, pd, dmabuf_fd: -1 };
        Ok(Buffer { c: SharedStruct::new(c), _memory: memory })
    }

    /// Returns the address of its first byte.
    pub(crate) fn address(&self) -> *mut c_void {
        shown!(self.c, addr)
    }

    /// # Errors
    /// Fails with EINVAL if the range is not all of this buffer, or if the domain is not the one that it was
    /// allocated for.
    pub(crate) fn check_registration(
        &self,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
    ) -> Result<(), Errno> {
        if pd != shown!(self.c, pd) {
            return Err(INVALID.because(|| {
                "the buffer was allocated for another protection domain (ibv_alloc_buf)".into()
            }));
        }
        let (begin, size) = (self.address(), shown!(self.c, size));
        let offset = addr.addr().checked_sub(begin.addr());
        if offset.is_none_or(|offset| offset > size || length > size - offset) {
            return Err(INVALID.because(|| {
                format!("{length} bytes at {addr:p} are not all of the buffer of {size} bytes at {begin:p}")
            }));
        }
        Ok(())
    }
}
