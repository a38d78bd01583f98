//! Registered memory of a socket's own, and the program's buffers.

use std::ffi::c_int;
use std::ptr;

use libc::iovec;

use super::protocol::place::Place;
use super::protocol::ring::Piece;
use super::protocol::sending::Table;
use crate::calls::memory::{ibv_dereg_mr, ibv_reg_mr};
use crate::ground::abi::{ibv_mr, ibv_pd};
use crate::ground::arguments::Lasting;
use crate::ground::errno::{Errno, INVALID, errno};

/// `IBV_ACCESS_LOCAL_WRITE`, `IBV_ACCESS_REMOTE_WRITE`.
pub(crate) const LOCAL: c_int = 1;
pub(crate) const WRITTEN_BY_PEERS: c_int = 1 | 2;

/// Pages of our own, registered. Peers and the device write them at any time, so they are only copied from and to.
pub(crate) struct Region {
    base: *mut u8,
    length: usize,
    mr: *mut ibv_mr,
}

// SAFETY: the memory is only copied from and to.
unsafe impl Send for Region {}
// SAFETY: as above; who may write which bytes when is the protocol's business.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroes.
    ///
    /// # Errors
    /// There is no memory, or no region to be had.
    ///
    /// # Safety
    /// A live domain, which outlives the region.
    pub(crate) unsafe fn new(pd: *mut ibv_pd, length: usize, access: c_int) -> Result<Region, Errno> {
        let (protection, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, protection, kind, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(Errno(libc::ENOMEM));
        }
        // SAFETY: the caller's promise; memory of our own.
        let mr = unsafe { ibv_reg_mr(pd, Lasting::new(base), length, access) };
        let region = Region { base: base.cast(), length, mr };
        if mr.is_null() { Err(Errno(errno())) } else { Ok(region) }
    }

    /// Its bytes, for peers.
    pub(crate) fn place(&self) -> Place {
        // SAFETY: a live region; the key of one.
        let key = unsafe { (*self.mr).rkey };
        Place { address: self.base.expose_provenance() as u64, key, length: self.length as u32 }
    }

    /// The key for requests of our own.
    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: a live region.
        unsafe { (*self.mr).lkey }
    }

    /// Address of a byte, for requests of our own.
    pub(crate) fn address(&self, offset: u32) -> u64 {
        self.base.expose_provenance() as u64 + u64::from(offset)
    }

    /// So many bytes at an offset, if they are in the region.
    pub(crate) fn run(&self, offset: usize, length: usize) -> Option<*mut u8> {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.length);
        // SAFETY: within the mapping.
        inside.then(|| unsafe { self.base.add(offset) })
    }

    /// The runs of a piece of a ring.
    pub(crate) fn runs(&self, piece: &Piece) -> [(*mut u8, usize); 2] {
        let run = |offset: u32, length: u32| {
            self.run(offset as usize, length as usize)
                .map_or((ptr::null_mut(), 0), |pointer| (pointer, length as usize))
        };
        [run(piece.offset, piece.first), run(0, piece.second)]
    }

    /// Copies bytes out.
    pub(crate) fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let from = self.run(offset, N)?;
        // SAFETY: so many bytes of the mapping; the peer may write them meanwhile, and every value is one.
        Some(unsafe { ptr::read_volatile(from.cast::<[u8; N]>()) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: our own region, if there is one, and mapping; nobody uses them any more.
        unsafe {
            if !self.mr.is_null() {
                ibv_dereg_mr(self.mr);
            }
            libc::munmap(self.base.cast(), self.length);
        }
    }
}

/// Peers write into this host's tables as it has numbers.
pub(crate) const BIG_ENDIAN: bool = cfg!(target_endian = "big");

/// The table of places at the beginning of a region.
pub(crate) struct Entries<'a>(pub(crate) &'a Region);

impl Table for Entries<'_> {
    fn take(&mut self, entry: usize) -> Option<Place> {
        let offset = entry * Place::LEN;
        let place = Place::parse(&self.0.read(offset)?, BIG_ENDIAN);
        if place.length == 0 {
            return None;
        }
        let empty = self.0.run(offset, Place::LEN)?;
        // SAFETY: within the mapping; the peer writes there again only when this place is used up.
        unsafe { ptr::write_bytes(empty, 0, Place::LEN) };
        Some(place)
    }
}

/// The program's buffers, used from the first to the last.
pub(crate) struct Buffers<'a> {
    list: &'a [iovec],
    used: usize,
}

impl<'a> Buffers<'a> {
    /// A list of buffers.
    ///
    /// # Safety
    /// They are the program's, and live as long as this.
    pub(crate) const unsafe fn new(list: &'a [iovec]) -> Buffers<'a> {
        Buffers { list, used: 0 }
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        let all = self.list.iter().fold(0_usize, |sum, one| sum.saturating_add(one.iov_len));
        all.saturating_sub(self.used)
    }

    /// Leaves out the next bytes: an earlier attempt of the call has moved them.
    pub(crate) fn skip(&mut self, length: usize) {
        self.advance(length, |_, _, _| ());
    }

    /// The next bytes, run by run: `each` gets a pointer, how many, and how many came before.
    fn advance(&mut self, length: usize, mut each: impl FnMut(*mut u8, usize, usize)) {
        let mut done = 0;
        while done < length {
            let Some((first, rest)) = self.list.split_first() else { return };
            let run = (first.iov_len - self.used).min(length - done);
            if run > 0 {
                // SAFETY: within the program's buffer.
                each(unsafe { first.iov_base.cast::<u8>().add(self.used) }, run, done);
            }
            done += run;
            self.used += run;
            if self.used == first.iov_len {
                (self.list, self.used) = (rest, 0);
            }
        }
    }

    /// Copies the next bytes to `to`, which has room for so many.
    ///
    /// # Safety
    /// It has.
    pub(crate) unsafe fn gather(&mut self, to: *mut u8, length: usize) {
        self.advance(length, |from, run, before| {
            // SAFETY: the program's buffer, and the caller's promise. Nothing says that they are apart.
            unsafe { ptr::copy(from, to.add(before), run) };
        });
    }

    /// Copies so many bytes from `from` into the next buffers.
    ///
    /// # Safety
    /// There are so many bytes.
    pub(crate) unsafe fn scatter(&mut self, from: *const u8, length: usize) {
        self.advance(length, |to, run, before| {
            // SAFETY: the program's buffer, and the caller's promise.
            unsafe { ptr::copy(from.add(before), to, run) };
        });
    }
}

/// A program's list.
///
/// # Safety
/// `list` is null or has so many entries.
///
/// # Errors
/// EINVAL: a negative number, or more than any system takes; a null list of some; lengths beyond all sense.
/// EFAULT: a null buffer of some bytes.
pub(crate) unsafe fn buffers<'a>(list: *const iovec, count: c_int) -> Result<&'a [iovec], Errno> {
    /// `IOV_MAX`.
    const MOST: usize = 1024;
    let count = usize::try_from(count).ok().filter(|count| *count <= MOST).ok_or(INVALID)?;
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller's promise.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    let mut all = 0_usize;
    for one in list {
        all = all.checked_add(one.iov_len).filter(|all| *all <= isize::MAX as usize).ok_or(INVALID)?;
        if one.iov_base.is_null() && one.iov_len > 0 {
            return Err(Errno(libc::EFAULT));
        }
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_in_order_whatever_their_lengths() {
        let mut store = [[0_u8; 3], [0; 3], [0; 3]];
        let list: Vec<iovec> = store
            .iter_mut()
            .zip([3, 0, 2])
            .map(|(one, iov_len)| iovec { iov_base: one.as_mut_ptr().cast(), iov_len })
            .collect();
        // SAFETY: they live on.
        let mut into = unsafe { Buffers::new(&list) };
        assert_eq!(into.left(), 5);
        // SAFETY: so many bytes.
        unsafe {
            into.scatter(b"ab".as_ptr(), 2);
            assert_eq!(into.left(), 3);
            into.scatter(b"cdefg".as_ptr(), 5);
        }
        assert_eq!(into.left(), 0);
        // SAFETY: they live on.
        let mut from = unsafe { Buffers::new(&list) };
        let mut gathered = [0; 4];
        // SAFETY: there is room.
        unsafe { from.gather(gathered.as_mut_ptr(), 4) };
        assert_eq!(&gathered, b"abcd");
        assert_eq!(from.left(), 1);
        assert_eq!(store, [*b"abc", [0; 3], *b"de\0"]);
    }

    #[test]
    fn lists_beyond_all_sense_are_refused() {
        let huge = iovec { iov_base: ptr::dangling_mut::<u8>().cast(), iov_len: usize::MAX };
        let null = iovec { iov_base: ptr::null_mut(), iov_len: 1 };
        // SAFETY: as many entries as are said, as far as they are looked at.
        unsafe {
            assert!(buffers(ptr::null(), 0).is_ok_and(<[iovec]>::is_empty));
            assert_eq!(buffers(ptr::null(), 1).err(), Some(INVALID));
            assert_eq!(buffers(&huge, -1).err(), Some(INVALID));
            assert_eq!(buffers(&huge, 1025).err(), Some(INVALID));
            assert_eq!(buffers(&huge, 1).err(), Some(INVALID));
            assert_eq!(buffers(&null, 1).err(), Some(Errno(libc::EFAULT)));
        }
    }
}
