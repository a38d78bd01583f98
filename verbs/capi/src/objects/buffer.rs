//! Buffers that the device allocates for a program. Plain memory is what this device likes best, so that is
//! what they are.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use crate::ground::abi::{ibv_buf, ibv_pd};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::handles::{Held, Identity, Listed, Shown, shown};

/// Bytes of [`Pages`].
const PAGES_BYTES: usize = 1 << 16;

/// The largest page that kernels have, or several: programs may give parts of a buffer other uses by page.
#[repr(C, align(65536))]
struct Pages([u8; PAGES_BYTES]);

/// A buffer. Its memory goes with it.
#[repr(C)]
pub(crate) struct Buffer {
    c: Shown<ibv_buf>,
    _memory: Vec<MaybeUninit<Pages>>,
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
    /// A buffer of whole pages for a protection domain.
    ///
    /// # Errors
    /// ENOMEM: there is no memory.
    pub(crate) fn new(pd: *mut ibv_pd, size: usize) -> Result<Buffer, Errno> {
        let mut memory: Vec<MaybeUninit<Pages>> = Vec::new();
        memory
            .try_reserve_exact(size.div_ceil(PAGES_BYTES).max(1))
            .map_err(|_| Errno(libc::ENOMEM).because(|| format!("no memory for a buffer of {size} bytes")))?;
        let c = ibv_buf { addr: memory.as_mut_ptr().cast(), size, pd, dmabuf_fd: -1 };
        Ok(Buffer { c: Shown::new(c), _memory: memory })
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> *mut c_void {
        shown!(self.c, addr)
    }

    /// # Errors
    /// EINVAL: the range is not all of this buffer, or the domain is not the one that it was allocated for.
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
