//! Values that consist of numbers and of pointers that are only passed on: any bytes are one.

use std::ffi::{c_int, c_void};

use libc::{linger, sockaddr_in, sockaddr_in6, sockaddr_storage, timeval};

use crate::ground::abi::{ibv_path_data, ibv_qp_init_attr, rdma_conn_param, rdma_ud_param, sockaddr_ib};

/// A type of which any bytes are a value.
///
/// # Safety
/// They are.
pub(crate) unsafe trait Plain: Sized {
    /// The value at the beginning of `bytes`, wherever they lie. `None`: they are too few.
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

// SAFETY: any bytes are a raw pointer, which is not followed without a reason of its own.
unsafe impl<T> Plain for *mut T {}

plain!(c_int, linger, sockaddr_in, sockaddr_in6, sockaddr_storage, sockaddr_ib, timeval);
plain!(ibv_path_data, ibv_qp_init_attr, rdma_conn_param, rdma_ud_param);

/// A value whose pointers are only passed on, to the program or to a call, so that any thread may do it.
#[derive(Clone, Copy)]
pub(crate) struct PassedOn<T>(pub(crate) T);

// SAFETY: numbers and raw pointers belong to no thread; what follows a pointer answers for the access itself.
unsafe impl<T: Plain> Send for PassedOn<T> {}
// SAFETY: as for `Send`; a shared value is only copied.
unsafe impl<T: Plain> Sync for PassedOn<T> {}

/// As many bytes as a C caller says, at a pointer in a structure that it gave to the call.
///
/// # Safety
/// `data` is null or has `length` bytes, which stay as they are for `'a`.
pub(crate) const unsafe fn bytes<'a>(data: *const c_void, length: usize) -> Option<&'a [u8]> {
    if data.is_null() {
        return None;
    }
    // SAFETY: the function's own contract: not null, and so many bytes.
    Some(unsafe { std::slice::from_raw_parts(data.cast(), length) })
}
