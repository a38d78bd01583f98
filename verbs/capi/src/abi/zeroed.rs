//! Structures that are initialised with zeros.

use crate::abi::*;

/// # Safety
/// The value of all zero bits must be valid.
pub(crate) unsafe trait Zeroed {}

macro_rules! zero_is_valid {
    ($($structure:ty),* $(,)?) => {
        $(
            // SAFETY: numbers, pointers that may be null, and locks of the C library that are initialised
            // with zeros.
            unsafe impl $crate::abi::zeroed::Zeroed for $structure {}
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
