//! The device, the context, and their tables of operations.

use std::ffi::{c_char, c_int, c_void};

use libc::pthread_mutex_t;

use super::Operation;

#[repr(C)]
pub(crate) struct ibv_device {
    pub(crate) _ops: [*mut c_void; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; 64],
    pub(crate) dev_name: [c_char; 64],
    pub(crate) dev_path: [c_char; 256],
    pub(crate) ibdev_path: [c_char; 256],
}

#[repr(C)]
pub(crate) struct ibv_context_ops {
    pub(crate) _compat_query_device: Operation,
    pub(crate) _compat_query_port: Operation,
    /// Five functions that programs called only with libibverbs 1.0.
    pub(crate) unused_memory: [Operation; 5],
    pub(crate) alloc_mw: Operation,
    pub(crate) bind_mw: Operation,
    pub(crate) dealloc_mw: Operation,
    pub(crate) _compat_create_cq: Operation,
    pub(crate) poll_cq: Operation,
    pub(crate) req_notify_cq: Operation,
    pub(crate) unused_queues: [Operation; 7],
    pub(crate) post_srq_recv: Operation,
    pub(crate) unused_qp: [Operation; 4],
    pub(crate) post_send: Operation,
    pub(crate) post_recv: Operation,
    pub(crate) unused_rest: [Operation; 5],
}

#[repr(C)]
pub(crate) struct ibv_context {
    pub(crate) device: *mut ibv_device,
    pub(crate) ops: ibv_context_ops,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: pthread_mutex_t,
    /// All ones: a [`verbs_context`] contains this.
    pub(crate) abi_compat: *mut c_void,
}

/// The extended operations. The structure grows at its front, so programs count back from `context` and read
/// `sz` before they call a function.
#[repr(C)]
pub(crate) struct verbs_context {
    pub(crate) free_buf: Operation,
    pub(crate) alloc_buf: Operation,
    pub(crate) dm_export_dmabuf_fd: Operation,
    pub(crate) reg_mr_ex: Operation,
    pub(crate) dealloc_dmah: Operation,
    pub(crate) alloc_dmah: Operation,
    pub(crate) query_port: Operation,
    pub(crate) advise_mr: Operation,
    pub(crate) alloc_null_mr: Operation,
    pub(crate) read_counters: Operation,
    pub(crate) attach_counters_point_flow: Operation,
    pub(crate) create_counters: Operation,
    pub(crate) destroy_counters: Operation,
    pub(crate) reg_dm_mr: Operation,
    pub(crate) alloc_dm: Operation,
    pub(crate) free_dm: Operation,
    pub(crate) modify_flow_action_esp: Operation,
    pub(crate) destroy_flow_action: Operation,
    pub(crate) create_flow_action_esp: Operation,
    pub(crate) modify_qp_rate_limit: Operation,
    pub(crate) alloc_parent_domain: Operation,
    pub(crate) dealloc_td: Operation,
    pub(crate) alloc_td: Operation,
    pub(crate) modify_cq: Operation,
    pub(crate) post_srq_ops: Operation,
    pub(crate) destroy_rwq_ind_table: Operation,
    pub(crate) create_rwq_ind_table: Operation,
    pub(crate) destroy_wq: Operation,
    pub(crate) modify_wq: Operation,
    pub(crate) create_wq: Operation,
    pub(crate) query_rt_values: Operation,
    pub(crate) create_cq_ex: Operation,
    pub(crate) r#priv: *mut c_void,
    pub(crate) query_device_ex: Operation,
    pub(crate) ibv_destroy_flow: Operation,
    pub(crate) ABI_placeholder2: Operation,
    pub(crate) ibv_create_flow: Operation,
    pub(crate) ABI_placeholder1: Operation,
    pub(crate) open_qp: Operation,
    pub(crate) create_qp_ex: Operation,
    pub(crate) get_srq_num: Operation,
    pub(crate) create_srq_ex: Operation,
    pub(crate) open_xrcd: Operation,
    pub(crate) close_xrcd: Operation,
    pub(crate) _ABI_placeholder3: u64,
    pub(crate) sz: usize,
    pub(crate) context: ibv_context,
}
