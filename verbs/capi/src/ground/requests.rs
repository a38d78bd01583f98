//! Lists of work requests, as C links them, and the scatter/gather elements that they name.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::{align_of, offset_of, size_of};
use std::{ptr, slice};

use pumice_transport::types::Sge;

use super::abi::{ibv_recv_wr, ibv_send_wr, ibv_sge};
use super::arguments::Array;
use super::errno::{Errno, INVALID};

/// A program's elements are the device's: the same fields at the same offsets.
const _: () = {
    assert!(size_of::<Sge>() == size_of::<ibv_sge>() && align_of::<Sge>() == align_of::<ibv_sge>());
    assert!(offset_of!(Sge, address) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(Sge, length) == offset_of!(ibv_sge, length));
    assert!(offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey));
};

/// More elements than any device has: a number that was never the length of a list.
const MOST_ELEMENTS: usize = 1024;

/// A work request of C.
pub(crate) trait LinkedRequest {
    fn next(&self) -> *mut Self;
    /// The list of elements, and its length.
    fn list(&self) -> (*mut ibv_sge, c_int);
}

impl LinkedRequest for ibv_send_wr {
    #[inline]
    fn next(&self) -> *mut ibv_send_wr {
        self.next
    }

    #[inline]
    fn list(&self) -> (*mut ibv_sge, c_int) {
        (self.sg_list, self.num_sge)
    }
}

impl LinkedRequest for ibv_recv_wr {
    #[inline]
    fn next(&self) -> *mut ibv_recv_wr {
        self.next
    }

    #[inline]
    fn list(&self) -> (*mut ibv_sge, c_int) {
        (self.sg_list, self.num_sge)
    }
}

/// An argument: the first request of a list, of which each names the next. As with [`super::arguments`], only
/// C makes it: all requests, their lists of elements and, of requests with inline data, the memory that the
/// elements name are there until the call returns, and nothing changes them meanwhile.
#[repr(transparent)]
pub(crate) struct Requests<'a, W>(*mut W, PhantomData<&'a W>);

impl<W> Clone for Requests<'_, W> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Requests<'_, W> {}

impl<'a, W: LinkedRequest> Requests<'a, W> {
    /// The first request, and the list of the rest; none at the end.
    #[inline]
    pub(crate) fn split_first(self) -> Option<(Posted<'a, W>, Requests<'a, W>)> {
        // SAFETY: null, or a request of the program's list, which is there until the call returns.
        let first = unsafe { self.0.as_ref() }?;
        Some((Posted(first), Requests(first.next(), PhantomData)))
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_null()
    }

    /// The list without its first `count` requests.
    pub(crate) fn skip(self, count: usize) -> Requests<'a, W> {
        let mut list = self;
        for _ in 0..count {
            let Some((_, rest)) = list.split_first() else { break };
            list = rest;
        }
        list
    }
}

/// A request of a program's list.
pub(crate) struct Posted<'a, W>(&'a W);

impl<'a, W: LinkedRequest> Posted<'a, W> {
    #[inline]
    pub(crate) const fn get(&self) -> &'a W {
        self.0
    }

    /// Its elements.
    ///
    /// # Errors
    /// EINVAL: a negative number or one beyond all sense, or a null list of some.
    #[inline]
    pub(crate) fn elements(&self) -> Result<&'a [Sge], Errno> {
        let (list, count) = self.0.list();
        let count = usize::try_from(count).map_err(|_| INVALID)?;
        // SAFETY: the request is of a program's list, so the elements are there until the call returns.
        elements(unsafe { Array::new(list) }, count)
    }

    /// The memory that an element of this request names, if the request has inline data.
    #[inline]
    pub(crate) fn memory(&self, element: &Sge) -> &'a [u8] {
        if element.length == 0 {
            return &[];
        }
        let address = ptr::with_exposed_provenance(element.address as usize);
        // SAFETY: the elements of a request with inline data name memory that is there until the call
        // returns.
        unsafe { slice::from_raw_parts(address, element.length as usize) }
    }
}

/// A program's elements as the device's.
///
/// # Errors
/// EINVAL: a number beyond all sense, or a null list of some.
#[inline]
pub(crate) fn elements(list: Array<'_, ibv_sge>, count: usize) -> Result<&[Sge], Errno> {
    if count > MOST_ELEMENTS {
        return Err(
            INVALID.because(|| format!("{count} scatter/gather elements are more than any queue takes"))
        );
    }
    let list = list.get(count).map_err(|errno| {
        errno.because(|| format!("num_sge is {count}, and the scatter/gather list is NULL"))
    })?;
    // SAFETY: the layouts are the same, as asserted above.
    Ok(unsafe { slice::from_raw_parts(list.as_ptr().cast(), list.len()) })
}
