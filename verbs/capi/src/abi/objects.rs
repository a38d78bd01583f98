//! The device, the context and the objects that the library makes and programs point at.
//!
//! Objects that the library makes and programs point at. Programs read the public fields; some fields, such
//! as the locks, are used only by the real library and are unused space here.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

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

#[repr(C)]
pub(crate) struct ibv_pd {
    pub(crate) context: *mut ibv_context,
    pub(crate) handle: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_mr {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// A buffer, opaque to programs; the names are those of rdma-core's driver.h.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_buf {
    pub(crate) addr: *mut c_void,
    pub(crate) size: usize,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) dmabuf_fd: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_mw {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) rkey: u32,
    pub(crate) handle: u32,
    pub(crate) r#type: u32,
}

#[repr(C)]
pub(crate) struct ibv_comp_channel {
    pub(crate) context: *mut ibv_context,
    pub(crate) fd: c_int,
    pub(crate) refcnt: c_int,
}

#[repr(C)]
pub(crate) struct ibv_cq {
    pub(crate) context: *mut ibv_context,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: c_int,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) comp_events_completed: u32,
    pub(crate) async_events_completed: u32,
}

/// `ibv_cq_ex`; its beginning is an [`ibv_cq`].
#[repr(C)]
pub(crate) struct ibv_cq_ex {
    pub(crate) base: ibv_cq,
    pub(crate) comp_mask: u32,
    pub(crate) status: u32,
    pub(crate) wr_id: u64,
    pub(crate) start_poll: Operation,
    pub(crate) next_poll: Operation,
    pub(crate) end_poll: Operation,
    pub(crate) read_opcode: Operation,
    pub(crate) read_vendor_err: Operation,
    pub(crate) read_byte_len: Operation,
    pub(crate) read_imm_data: Operation,
    pub(crate) read_qp_num: Operation,
    pub(crate) read_src_qp: Operation,
    pub(crate) read_wc_flags: Operation,
    pub(crate) read_slid: Operation,
    pub(crate) read_sl: Operation,
    pub(crate) read_dlid_path_bits: Operation,
    pub(crate) read_completion_ts: Operation,
    pub(crate) read_cvlan: Operation,
    pub(crate) read_flow_tag: Operation,
    pub(crate) read_tm_info: Operation,
    pub(crate) read_completion_wallclock_ns: Operation,
}

#[repr(C)]
pub(crate) struct ibv_qp {
    pub(crate) context: *mut ibv_context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
    pub(crate) state: u32,
    pub(crate) qp_type: u32,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) events_completed: u32,
}

#[repr(C)]
pub(crate) struct ibv_qp_ex {
    pub(crate) qp_base: ibv_qp,
    pub(crate) comp_mask: u64,
    pub(crate) wr_id: u64,
    pub(crate) wr_flags: c_uint,
    pub(crate) wr_atomic_cmp_swp: Operation,
    pub(crate) wr_atomic_fetch_add: Operation,
    pub(crate) wr_bind_mw: Operation,
    pub(crate) wr_local_inv: Operation,
    pub(crate) wr_rdma_read: Operation,
    pub(crate) wr_rdma_write: Operation,
    pub(crate) wr_rdma_write_imm: Operation,
    pub(crate) wr_send: Operation,
    pub(crate) wr_send_imm: Operation,
    pub(crate) wr_send_inv: Operation,
    pub(crate) wr_send_tso: Operation,
    pub(crate) wr_set_ud_addr: Operation,
    pub(crate) wr_set_xrc_srqn: Operation,
    pub(crate) wr_set_inline_data: Operation,
    pub(crate) wr_set_inline_data_list: Operation,
    pub(crate) wr_set_sge: Operation,
    pub(crate) wr_set_sge_list: Operation,
    pub(crate) wr_start: Operation,
    pub(crate) wr_complete: Operation,
    pub(crate) wr_abort: Operation,
    pub(crate) wr_atomic_write: Operation,
    pub(crate) wr_flush: Operation,
}

#[repr(C)]
pub(crate) struct ibv_srq {
    pub(crate) context: *mut ibv_context,
    pub(crate) srq_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) handle: u32,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) events_completed: u32,
}

#[repr(C)]
pub(crate) struct ibv_ah {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) handle: u32,
}

#[repr(C)]
pub(crate) struct ibv_xrcd {
    pub(crate) context: *mut ibv_context,
}

#[repr(C)]
pub(crate) struct ibv_dm {
    pub(crate) context: *mut ibv_context,
    pub(crate) memcpy_to_dm: Operation,
    pub(crate) memcpy_from_dm: Operation,
    pub(crate) comp_mask: u32,
    pub(crate) handle: u32,
}

#[repr(C)]
pub(crate) struct ibv_dmah {
    pub(crate) context: *mut ibv_context,
}

#[repr(C)]
pub(crate) struct ibv_comp_cntr {
    pub(crate) context: *mut ibv_context,
    pub(crate) handle: u32,
}

#[repr(C)]
pub(crate) struct ibv_td {
    pub(crate) context: *mut ibv_context,
}
