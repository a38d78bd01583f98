//! Lists of work requests, as C links them, and their scatter/gather elements.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::{align_of, offset_of, size_of};
use std::{ptr, slice};

use pumice_transport::types::Sge;

use super::arguments::Array;
use crate::abi::{ibv_ops_wr, ibv_recv_wr, ibv_send_wr, ibv_sge};
use crate::log::log_warning;
use crate::platform::{Errno, INVALID};

/// The elements of C have the layout of the device's: the same fields at the same offsets.
const _: () = {
    assert!(size_of::<Sge>() == size_of::<ibv_sge>() && align_of::<Sge>() == align_of::<ibv_sge>());
    assert!(offset_of!(Sge, address) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(Sge, length) == offset_of!(ibv_sge, length));
    assert!(offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey));
};

/// Largest number of elements that is plausible: more than any device has.
const MAX_ELEMENTS: usize = 1024;

/// Number of posted requests of a list after which it is checked for a ring: more than a queue has room for.
const LONG_LIST: usize = 1 << 16;

/// A work request of C.
pub(crate) trait LinkedRequest {
    fn next(&self) -> *mut Self;
    /// Returns the list of elements, and its length.
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

impl LinkedRequest for ibv_ops_wr {
    fn next(&self) -> *mut ibv_ops_wr {
        self.next
    }

    fn list(&self) -> (*mut ibv_sge, c_int) {
        (self.sg_list, self.num_sge)
    }
}

/// An argument: the first request of a list, of which each links to the next. As with [`super::arguments`],
/// only C makes it: all requests, their lists of elements and, of requests with inline data, the memory of
/// the elements stay valid until the call returns, and do not change meanwhile.
#[repr(transparent)]
pub(crate) struct RequestList<'a, W>(*mut W, PhantomData<&'a W>);

impl<W> Clone for RequestList<'_, W> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for RequestList<'_, W> {}

impl<'a, W: LinkedRequest> RequestList<'a, W> {
    /// Returns the first request, and the list of the rest; `None` at the end.
    #[inline]
    pub(crate) fn split_first(self) -> Option<(ListedRequest<'a, W>, RequestList<'a, W>)> {
        // SAFETY: the pointer is null, or to a request of the program's list, which stays valid until the
        // call returns.
        let first = unsafe { self.0.as_ref() }?;
        Some((ListedRequest(first), RequestList(first.next(), PhantomData)))
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_null()
    }

    /// Returns the position of `refused` in this list, of which `posted` requests before it were posted. Only
    /// those are read: `next` of the refused one need not point to a request.
    #[cold]
    pub(crate) fn position_of(self, refused: RequestList<'a, W>, posted: usize) -> RefusedPosition {
        let mut list = self;
        for position in 0..posted {
            if ptr::eq(list.0, refused.0) {
                return RefusedPosition::Cyclic { first: position, length: posted - position };
            }
            let Some((_, rest)) = list.split_first() else { break };
            list = rest;
        }
        RefusedPosition::Behind(posted)
    }

    /// Refuses a list that links back to itself, after `posted` of its requests were posted. With a queue
    /// that another thread or a peer keeps empty, posting it would never end.
    ///
    /// # Errors
    /// Fails with ENOMEM if its next request is one that was posted before.
    #[inline]
    pub(crate) fn check_end(self, next: RequestList<'a, W>, posted: usize) -> Result<(), Errno> {
        let is_due = posted >= LONG_LIST && posted.is_power_of_two();
        match is_due && matches!(self.position_of(next, posted), RefusedPosition::Cyclic { .. }) {
            true => Err(Errno(libc::ENOMEM)),
            false => Ok(()),
        }
    }

    /// Returns the list without its first `count` requests.
    pub(crate) fn skip(self, count: usize) -> RequestList<'a, W> {
        let mut list = self;
        for _ in 0..count {
            let Some((_, rest)) = list.split_first() else { break };
            list = rest;
        }
        list
    }
}

/// Position in a list of the request that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusedPosition {
    /// The request comes after this many others, which were posted.
    Behind(usize),
    /// The request is one of those that were posted: from request `first`, counted from 0, `length` requests
    /// are a ring.
    Cyclic { first: usize, length: usize },
}

impl RefusedPosition {
    /// Logs that a queue was full because the list is a ring, if it is one.
    #[cold]
    pub(crate) fn log_if_ring(self) {
        if let RefusedPosition::Cyclic { first, length } = self {
            log_warning(|| {
                format!(
                    "the list of work requests is a ring: \"next\" of request {} points to request {} again; \
                     the last one's has to be NULL",
                    first + length,
                    first + 1
                )
            });
        }
    }

    /// Logs why the request at this position is none. After other requests, "next" may never have been set.
    #[cold]
    pub(crate) fn log_malformed(self, reason: &str) {
        log_warning(|| match self {
            RefusedPosition::Cyclic { .. } | RefusedPosition::Behind(0) => reason.to_owned(),
            RefusedPosition::Behind(posted) => format!(
                "request {} of the list, to which \"next\" of request {posted} points: {reason}; set \
                 \"next\" of the last request to NULL",
                posted + 1
            ),
        });
    }
}

/// A request of a program's list.
pub(crate) struct ListedRequest<'a, W>(&'a W);

impl<'a, W: LinkedRequest> ListedRequest<'a, W> {
    #[inline]
    pub(crate) const fn get(&self) -> &'a W {
        self.0
    }

    /// Returns its elements.
    ///
    /// # Errors
    /// Fails with EINVAL for the reason that [`ListedRequest::malformed_reason`] returns.
    #[inline]
    pub(crate) fn elements(&self) -> Result<&'a [Sge], Errno> {
        let (list, count) = self.0.list();
        let count = usize::try_from(count).map_err(|_| INVALID)?;
        if count > MAX_ELEMENTS {
            return Err(INVALID);
        }
        // SAFETY: the request is of a program's list, so the elements stay valid until the call returns.
        Ok(of_device(unsafe { Array::new(list) }.get(count)?))
    }

    /// Returns the reason why its elements cannot be those of a request: a negative or implausibly large
    /// number, or a null list of some.
    #[cold]
    pub(crate) fn malformed_reason(&self) -> Option<String> {
        let (list, count) = self.0.list();
        match usize::try_from(count) {
            Err(_) => Some(format!("num_sge is {count}")),
            Ok(count) if count > MAX_ELEMENTS => Some(too_many(count)),
            Ok(1..) if list.is_null() => Some(without_list(count as usize)),
            Ok(_) => None,
        }
    }

    /// Returns the memory of one element of this request, if the request has inline data.
    #[inline]
    pub(crate) fn memory(&self, element: &Sge) -> &'a [u8] {
        if element.length == 0 {
            return &[];
        }
        let address = ptr::with_exposed_provenance(element.address as usize);
        // SAFETY: the elements of a request with inline data name memory that stays valid until the call
        // returns.
        unsafe { slice::from_raw_parts(address, element.length as usize) }
    }
}

/// Returns a program's elements as the device's.
///
/// # Errors
/// Fails with EINVAL for an implausibly large number, or a null list of some.
#[inline]
pub(crate) fn elements(list: Array<'_, ibv_sge>, count: usize) -> Result<&[Sge], Errno> {
    if count > MAX_ELEMENTS {
        return Err(INVALID.because(|| too_many(count)));
    }
    let list = list.get(count).map_err(|errno| errno.because(|| without_list(count)))?;
    Ok(of_device(list))
}

#[inline]
fn of_device(list: &[ibv_sge]) -> &[Sge] {
    // SAFETY: the layouts are the same, as asserted above.
    unsafe { slice::from_raw_parts(list.as_ptr().cast(), list.len()) }
}

fn too_many(count: usize) -> String {
    format!("{count} scatter/gather elements are more than any queue takes")
}

fn without_list(count: usize) -> String {
    format!("num_sge is {count}, and the scatter/gather list is NULL")
}
