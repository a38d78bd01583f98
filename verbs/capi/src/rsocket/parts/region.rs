//! Registered memory of a socket's own.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;

use crate::ground::errno::Errno;
use crate::ground::plain::PassedOn;
use crate::rdma_cm::id::objects::Registration;
use crate::rdma_cm::id::shared::SharedDevice;
use crate::rsocket::protocol::remote_buffer::RemoteBuffer;
use crate::rsocket::protocol::ring::Piece;
use crate::rsocket::protocol::sending::Table;

/// `IBV_ACCESS_LOCAL_WRITE`, `IBV_ACCESS_REMOTE_WRITE`.
pub(crate) const LOCAL: c_int = 1;
pub(crate) const WRITTEN_BY_PEERS: c_int = 1 | 2;

/// Peers write into this host's tables as it has numbers.
pub(crate) const BIG_ENDIAN: bool = cfg!(target_endian = "big");

/// Pages of zeroes, until they are dropped.
struct Pages {
    start: PassedOn<*mut u8>,
    length: usize,
}

impl Pages {
    fn new(length: usize) -> Result<Pages, Errno> {
        let (protection, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses the address, so that no memory in use is mapped anew.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Errno(libc::ENOMEM));
        }
        Ok(Pages { start: PassedOn(start.cast()), length })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; runs of it borrow the region that owns it.
        unsafe { libc::munmap(self.start.0.cast(), self.length) };
    }
}

/// Pages of a socket's own, registered. The fields are dropped from the first to the last.
pub(crate) struct Region {
    registration: Registration,
    pages: Pages,
}

/// Bytes of a region. The device and peers may write them at any time, so that they are only copied.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    start: *mut u8,
    length: usize,
    region: PhantomData<&'a Region>,
}

impl Run<'_> {
    const EMPTY: Run<'static> = Run { start: ptr::dangling_mut(), length: 0, region: PhantomData };

    pub(crate) const fn length(self) -> usize {
        self.length
    }

    /// Where the bytes are, for copying.
    pub(crate) const fn start(self) -> *mut u8 {
        self.start
    }

    /// Copies bytes to the beginning of the run, as many as fit.
    pub(crate) fn write(self, bytes: &[u8]) {
        // SAFETY: as many live bytes as the shorter of both has; the region is no memory that a slice can be
        // of.
        unsafe { self.start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len().min(self.length)) };
    }

    /// Copies the beginning of the run, as many bytes as fit.
    pub(crate) fn read(self, bytes: &mut [u8]) {
        // SAFETY: as for `write`.
        unsafe { self.start.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len().min(self.length)) };
    }

    /// The run behind its first bytes.
    pub(crate) fn after(self, length: usize) -> Self {
        let length = length.min(self.length);
        Run { start: self.start.wrapping_add(length), length: self.length - length, ..self }
    }
}

impl Region {
    /// Zeroes, registered in the shared protection domain, which is never freed.
    ///
    /// # Errors
    /// There is no memory, or no region to be had.
    pub(crate) fn new(shared: &SharedDevice, length: usize, access: c_int) -> Result<Region, Errno> {
        let pages = Pages::new(length)?;
        // SAFETY: the pages outlive the registration, and this library only copies from and to them.
        let registration = unsafe { Registration::new(shared.pd(), pages.start.0.cast(), length, access) }?;
        Ok(Region { registration, pages })
    }

    /// Its bytes, for peers.
    pub(crate) fn remote_buffer(&self) -> RemoteBuffer {
        RemoteBuffer {
            address: self.address(0),
            key: self.registration.rkey,
            length: self.pages.length as u32,
        }
    }

    /// The key for requests of this process.
    pub(crate) const fn lkey(&self) -> u32 {
        self.registration.lkey
    }

    /// Address of a byte, for requests of this process.
    pub(crate) fn address(&self, offset: u32) -> u64 {
        self.pages.start.0.expose_provenance() as u64 + u64::from(offset)
    }

    /// So many bytes at an offset, if they are in the region.
    pub(crate) fn run(&self, offset: usize, length: usize) -> Option<Run<'_>> {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.pages.length);
        inside.then(|| Run { start: self.pages.start.0.wrapping_add(offset), length, region: PhantomData })
    }

    /// The runs of a piece of a ring.
    pub(crate) fn runs(&self, piece: &Piece) -> [Run<'_>; 2] {
        let run = |offset: u32, length: u32| self.run(offset as usize, length as usize).unwrap_or(Run::EMPTY);
        [run(piece.offset, piece.first), run(0, piece.second)]
    }

    /// Copies bytes out of a table.
    pub(crate) fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let run = self.run(offset, N)?;
        // SAFETY: so many bytes of the mapping. The peer may write them meanwhile, so that the read is
        // volatile; every value is one.
        Some(unsafe { ptr::read_volatile(run.start.cast::<[u8; N]>()) })
    }
}

/// The table of buffers at the beginning of a region.
pub(crate) struct Entries<'a>(pub(crate) &'a Region);

impl Table for Entries<'_> {
    fn take(&mut self, entry: usize) -> Option<RemoteBuffer> {
        let offset = entry * RemoteBuffer::LEN;
        let buffer = RemoteBuffer::parse(&self.0.read(offset)?, BIG_ENDIAN);
        if buffer.length == 0 {
            return None;
        }
        // The peer writes there again only when this buffer is used up.
        self.0.run(offset, RemoteBuffer::LEN)?.write(&[0; RemoteBuffer::LEN]);
        Some(buffer)
    }
}
