//! Memory of sockets: the program's buffers, mappings for the peer, and registered memory of a socket itself.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr;

use libc::{iovec, msghdr};

use crate::abi::plain::ForwardedStruct;
use crate::platform::{Errno, INVALID};
use crate::rdma_cm::id::objects::Registration;
use crate::rdma_cm::id::shared::SharedDevice;
use crate::rsocket::protocol::halves::EntryTable;
use crate::rsocket::protocol::ring::{Mapping, RemoteBuffer, RingPiece};

/// A program's pointer to data or to room for data, as a call gets it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct DataPointer(*mut c_void);

/// A program's pointer to a list of buffers, as a call gets it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct VectorsPointer(*const iovec);

/// A buffer of the program, which has as many bytes as it says.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Vector(iovec);

impl DataPointer {
    /// Returns the buffer of this length.
    pub(crate) const fn vector(self, length: usize) -> Vector {
        Vector(iovec { iov_base: self.0, iov_len: length })
    }

    pub(crate) const fn as_ptr(self) -> *mut c_void {
        self.0
    }
}

impl VectorsPointer {
    /// Returns the list of a message.
    pub(crate) const fn of_message(message: &msghdr) -> VectorsPointer {
        VectorsPointer(message.msg_iov)
    }

    /// Returns the list of this number of entries.
    ///
    /// # Errors
    /// Fails with EINVAL for a negative number, one beyond the limit of any system, or a null list of some,
    /// and as [`check`].
    pub(crate) fn list<'a>(self, count: c_int) -> Result<&'a [Vector], Errno> {
        /// The limit `IOV_MAX`.
        const MOST: usize = 1024;
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST).ok_or(INVALID)?;
        if count == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the program's list has this many entries until its call returns.
        check(unsafe { std::slice::from_raw_parts(self.0.cast::<Vector>(), count) })
    }
}

/// Checks a list, and returns it.
///
/// # Errors
/// Fails with EINVAL for lengths beyond all memory, and with EFAULT for a null buffer of some bytes.
pub(crate) fn check(list: &[Vector]) -> Result<&[Vector], Errno> {
    let mut all = 0_usize;
    for Vector(one) in list {
        all = all.checked_add(one.iov_len).filter(|all| *all <= isize::MAX as usize).ok_or(INVALID)?;
        if one.iov_base.is_null() && one.iov_len > 0 {
            return Err(Errno(libc::EFAULT));
        }
    }
    Ok(list)
}

/// The program's buffers, used from the first to the last.
pub(crate) struct Buffers<'a> {
    list: &'a [Vector],
    used: usize,
}

impl<'a> Buffers<'a> {
    /// Creates the buffers of a list that was checked.
    pub(crate) const fn new(list: &'a [Vector]) -> Buffers<'a> {
        Buffers { list, used: 0 }
    }

    /// Returns the number of bytes that are left.
    pub(crate) fn left(&self) -> usize {
        let all = self.list.iter().fold(0_usize, |sum, one| sum.saturating_add(one.0.iov_len));
        all.saturating_sub(self.used)
    }

    /// Skips the next bytes, which an earlier attempt of the call has moved.
    pub(crate) fn skip(&mut self, length: usize) {
        self.advance(length, |_, _, _| ());
    }

    /// Advances over the next bytes, run by run: `each` gets a pointer, the length, and the number of bytes
    /// before.
    fn advance(&mut self, length: usize, mut each: impl FnMut(*mut u8, usize, usize)) {
        let mut done = 0;
        while done < length {
            let Some((Vector(first), rest)) = self.list.split_first() else { return };
            let run = (first.iov_len - self.used).min(length - done);
            if run > 0 {
                each(first.iov_base.cast::<u8>().wrapping_add(self.used), run, done);
            }
            done += run;
            self.used += run;
            if self.used == first.iov_len {
                (self.list, self.used) = (rest, 0);
            }
        }
    }

    /// Copies the next bytes to a region.
    pub(crate) fn gather(&mut self, to: ByteRun<'_>) {
        self.advance(to.length(), |from, run, before| {
            // SAFETY: live bytes of the program's buffer, and a part of the run; they may overlap.
            unsafe { ptr::copy(from, to.start().wrapping_add(before), run) };
        });
    }

    /// Copies the next bytes to a slice.
    pub(crate) fn gather_into(&mut self, to: &mut [u8]) {
        let (start, length) = (to.as_mut_ptr(), to.len());
        self.advance(length, |from, run, before| {
            // SAFETY: live bytes of the program's buffer, and a part of the slice; they may overlap.
            unsafe { ptr::copy(from, start.wrapping_add(before), run) };
        });
    }

    /// Copies bytes of a region into the next buffers.
    pub(crate) fn scatter(&mut self, from: ByteRun<'_>) {
        self.advance(from.length(), |to, run, before| {
            // SAFETY: a part of the run, and room in the program's buffer; they may overlap.
            unsafe { ptr::copy(from.start().wrapping_add(before), to, run) };
        });
    }

    /// Copies a slice into the next buffers.
    pub(crate) fn scatter_from(&mut self, from: &[u8]) {
        self.advance(from.len(), |to, run, before| {
            // SAFETY: a part of the slice, and room in the program's buffer; they may overlap.
            unsafe { ptr::copy(from.as_ptr().wrapping_add(before), to, run) };
        });
    }
}

/// A registered buffer of the program.
pub(crate) struct MappedBuffer {
    /// Address and length of the program's buffer.
    pub(crate) buffer: (usize, usize),
    /// Registration of the buffer, which ends when this is dropped.
    pub(crate) _registration: Registration,
    /// Entry for the peer's table, and its index; `None` if the mapping is for this side only.
    pub(crate) entry: Option<(u16, Mapping)>,
    pub(crate) is_sent: bool,
}

/// The mappings of a socket.
#[derive(Default)]
pub(crate) struct Mappings(pub(crate) Vec<MappedBuffer>);

impl Mappings {
    /// Returns an entry of the peer's table that is not in use.
    pub(crate) fn free_entry(&self, entries: u16) -> Option<u16> {
        let taken = |index| self.0.iter().any(|map| map.entry.is_some_and(|(entry, _)| entry == index));
        (0..entries).find(|index| !taken(*index))
    }

    /// Returns the first mapping that was not sent to the peer yet.
    pub(crate) fn first_unsent(&self) -> Option<(u16, Mapping)> {
        self.0.iter().find(|map| !map.is_sent).and_then(|map| map.entry)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_in_order_whatever_their_lengths() {
        let mut store = [[0_u8; 3], [0; 3], [0; 3]];
        let list: Vec<Vector> = store
            .iter_mut()
            .zip([3, 0, 2])
            .map(|(one, length)| DataPointer(one.as_mut_ptr().cast()).vector(length))
            .collect();
        let mut into = Buffers::new(&list);
        assert_eq!(into.left(), 5);
        into.scatter_from(b"ab");
        assert_eq!(into.left(), 3);
        into.scatter_from(b"cdefg");
        assert_eq!(into.left(), 0);
        let mut from = Buffers::new(&list);
        let mut gathered = [0; 4];
        from.gather_into(&mut gathered);
        assert_eq!(&gathered, b"abcd");
        assert_eq!(from.left(), 1);
        assert_eq!(store, [*b"abc", [0; 3], *b"de\0"]);
    }

    #[test]
    fn lists_beyond_all_sense_are_refused() {
        let huge = DataPointer(ptr::dangling_mut::<u8>().cast()).vector(usize::MAX);
        let null = DataPointer(ptr::null_mut()).vector(1);
        let list = |pointer: *const Vector, count| VectorsPointer(pointer.cast()).list(count).map(<[_]>::len);
        assert_eq!(list(ptr::null(), 0), Ok(0));
        assert_eq!(list(ptr::null(), 1), Err(INVALID));
        assert_eq!(list(&huge, -1), Err(INVALID));
        assert_eq!(list(&huge, 1025), Err(INVALID));
        assert_eq!(list(&huge, 1), Err(INVALID));
        assert_eq!(list(&null, 1), Err(Errno(libc::EFAULT)));
    }
}
