//! Values of numbers, and of pointers that are only passed on: any bytes are valid for them.

use std::ffi::{c_int, c_void};

use libc::{linger, sockaddr_in, sockaddr_in6, sockaddr_storage, timeval};

use crate::abi::{
    ibv_path_data, ibv_qp_init_attr, mrc_qp_hint_attr, rdma_conn_param, rdma_ud_param, sockaddr_ib,
};

/// A type for which any bytes are a valid value.
///
/// # Safety
/// Any bytes must be a valid value of the type.
pub(crate) unsafe trait Plain: Sized {
    /// Reads the value at the beginning of `bytes`, with any alignment; `None` if there are too few.
    fn parse(bytes: &[u8]) -> Option<Self> {
        // SAFETY: there are enough bytes, and any bytes are a value; the read needs no alignment.
        (bytes.len() >= size_of::<Self>()).then(|| unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}

macro_rules! plain {
    ($($type:ty),* $(,)?) => {
        $(
            // SAFETY: a structure of integers and raw pointers, for which there is no invalid value.
            unsafe impl Plain for $type {}
        )*
    };
}

// SAFETY: any bytes are a raw pointer; each dereference has its own safety reason.
unsafe impl<T> Plain for *mut T {}

plain!(c_int, linger, sockaddr_in, sockaddr_in6, sockaddr_storage, sockaddr_ib, timeval);
plain!(ibv_path_data, ibv_qp_init_attr, mrc_qp_hint_attr, rdma_conn_param, rdma_ud_param);

/// A value whose pointers are only passed on, to the program or to a call, so that any thread may do it.
#[derive(Clone, Copy)]
pub(crate) struct ForwardedStruct<T>(pub(crate) T);

// SAFETY: numbers and raw pointers belong to no thread; code that dereferences a pointer is responsible for
// the access itself.
unsafe impl<T: Plain> Send for ForwardedStruct<T> {}
// SAFETY: as for `Send`; a shared value is only copied.
unsafe impl<T: Plain> Sync for ForwardedStruct<T> {}

/// Returns the bytes at a pointer in a structure that a C caller gave to the call; the caller also gives
/// their number.
///
/// # Safety
/// `data` must be null or have `length` bytes, which do not change for `'a`.
pub(crate) const unsafe fn bytes<'a>(data: *const c_void, length: usize) -> Option<&'a [u8]> {
    if data.is_null() {
        return None;
    }
    // SAFETY: by the function's own contract, the pointer is not null, and this many bytes are there.
    Some(unsafe { std::slice::from_raw_parts(data.cast(), length) })
}
