//! Values that any bytes are valid for, and structures that are initialised with zeros.

use std::ffi::{c_int, c_void};

use libc::{linger, sockaddr_in, sockaddr_in6, sockaddr_storage, timeval};

use crate::abi::{
    ibv_path_data, ibv_qp_init_attr, mrc_qp_hint_attr, rdma_conn_param, rdma_ud_param, sockaddr_ib, *,
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

/// # Safety
/// The value of all zero bits must be valid.
pub(crate) unsafe trait Zeroed {}

macro_rules! zero_is_valid {
    ($($structure:ty),* $(,)?) => {
        $(
            // SAFETY: numbers, pointers that may be null, and locks of the C library that are initialised
            // with zeros.
            unsafe impl $crate::abi::plain::Zeroed for $structure {}
        )*
    };
}

zero_is_valid! {
    libc::addrinfo, ibv_cq_ex, ibv_device, ibv_device_attr, ibv_device_attr_ex, ibv_grh, ibv_qp_ex,
    ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_srq_init_attr_ex, libc::sigaction, libc::sigset_t, libc::stat,
    rdma_addrinfo, rdma_cm_event, rdma_cm_id,
    ibv_wq, rdma_conn_param, rdma_ud_param, libc::sockaddr_storage, verbs_context,
    efadv_qp_init_attr, efadv_cq_init_attr, efadv_mr_attr, efadv_sq_depth_attr, efadv_rq_depth_attr,
    mlx5dv_context, mlx5dv_qp_ex, mrc_qp_attr, mrc_qp_init_attr, mrc_qp_hint_attr,
}
pub(crate) use zero_is_valid;

/// Returns an empty structure of numbers and pointers.
pub(crate) const fn zeroed<T: Zeroed>() -> T {
    // SAFETY: the implementation of the trait guarantees it.
    unsafe { std::mem::zeroed() }
}
