//! Registered memory of a socket itself.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;

use crate::abi::plain::ForwardedStruct;
use crate::platform::errno::Errno;
use crate::rdma_cm::id::objects::Registration;
use crate::rdma_cm::id::shared::SharedDevice;
use crate::rsocket::protocol::remote_buffer::RemoteBuffer;
use crate::rsocket::protocol::ring::RingPiece;
use crate::rsocket::protocol::sending::EntryTable;

/// Flags `IBV_ACCESS_LOCAL_WRITE`, `IBV_ACCESS_REMOTE_WRITE`.
pub(crate) const LOCAL: c_int = 1;
pub(crate) const WRITTEN_BY_PEERS: c_int = 1 | 2;

/// True if this host is big-endian: peers write its tables in this byte order.
pub(crate) const BIG_ENDIAN: bool = cfg!(target_endian = "big");

/// Pages of zeroes, which are unmapped when this is dropped.
struct MappedPages {
    start: ForwardedStruct<*mut u8>,
    length: usize,
}

impl MappedPages {
    fn new(length: usize) -> Result<MappedPages, Errno> {
        let (protection, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses the address, so that no memory in use is mapped again.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Errno(libc::ENOMEM));
        }
        Ok(MappedPages { start: ForwardedStruct(start.cast()), length })
    }
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        // SAFETY: this is the mapping of `new`; runs of it borrow the region that owns it.
        unsafe { libc::munmap(self.start.0.cast(), self.length) };
    }
}

/// Registered pages of a socket itself. The fields are dropped from the first to the last.
pub(crate) struct BufferRegion {
    registration: Registration,
    pages: MappedPages,
}

/// Bytes of a region. The device and peers may write them at any time, so they are only copied.
#[derive(Clone, Copy)]
pub(crate) struct ByteRun<'a> {
    start: *mut u8,
    length: usize,
    region: PhantomData<&'a BufferRegion>,
}

impl ByteRun<'_> {
    const EMPTY: ByteRun<'static> = ByteRun { start: ptr::dangling_mut(), length: 0, region: PhantomData };

    pub(crate) const fn length(self) -> usize {
        self.length
    }

    /// Returns the address of the bytes, for copying.
    pub(crate) const fn start(self) -> *mut u8 {
        self.start
    }

    /// Copies bytes to the beginning of the run, as many as fit.
    pub(crate) fn write(self, bytes: &[u8]) {
        // SAFETY: the length is that of the shorter of both; no slice of the region exists.
        unsafe { self.start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len().min(self.length)) };
    }

    /// Copies bytes from the beginning of the run, as many as fit.
    pub(crate) fn read(self, bytes: &mut [u8]) {
        // SAFETY: as for `write`.
        unsafe { self.start.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len().min(self.length)) };
    }

    /// Returns the run behind its first bytes.
    pub(crate) fn after(self, length: usize) -> Self {
        let length = length.min(self.length);
        ByteRun { start: self.start.wrapping_add(length), length: self.length - length, ..self }
    }
}

impl BufferRegion {
    /// Allocates zeroes and registers them in the shared protection domain, which is never freed.
    ///
    /// # Errors
    /// Fails if no memory or no region is available.
    pub(crate) fn new(shared: &SharedDevice, length: usize, access: c_int) -> Result<BufferRegion, Errno> {
        let pages = MappedPages::new(length)?;
        // SAFETY: the pages outlive the registration, and this library only copies from and to them.
        let registration = unsafe { Registration::new(shared.pd(), pages.start.0.cast(), length, access) }?;
        Ok(BufferRegion { registration, pages })
    }

    /// Returns its bytes as a buffer for peers.
    pub(crate) fn remote_buffer(&self) -> RemoteBuffer {
        RemoteBuffer {
            address: self.address(0),
            key: self.registration.rkey,
            length: self.pages.length as u32,
        }
    }

    /// Returns the key for requests of this process.
    pub(crate) const fn lkey(&self) -> u32 {
        self.registration.lkey
    }

    /// Returns the address of a byte, for requests of this process.
    pub(crate) fn address(&self, offset: u32) -> u64 {
        self.pages.start.0.expose_provenance() as u64 + u64::from(offset)
    }

    /// Returns this number of bytes at an offset, if they are in the region.
    pub(crate) fn run(&self, offset: usize, length: usize) -> Option<ByteRun<'_>> {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.pages.length);
        inside.then(|| ByteRun {
            start: self.pages.start.0.wrapping_add(offset),
            length,
            region: PhantomData,
        })
    }

    /// Returns the runs of a piece of a ring.
    pub(crate) fn runs(&self, piece: &RingPiece) -> [ByteRun<'_>; 2] {
        let run =
            |offset: u32, length: u32| self.run(offset as usize, length as usize).unwrap_or(ByteRun::EMPTY);
        [run(piece.offset, piece.first), run(0, piece.second)]
    }

    /// Copies bytes out of a table.
    pub(crate) fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let run = self.run(offset, N)?;
        // SAFETY: this many bytes of the mapping exist. The peer may write them meanwhile, so the read is
        // volatile; every value is valid.
        Some(unsafe { ptr::read_volatile(run.start.cast::<[u8; N]>()) })
    }
}

/// The table of buffers at the beginning of a region.
pub(crate) struct TableEntries<'a>(pub(crate) &'a BufferRegion);

impl EntryTable for TableEntries<'_> {
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
