//! Structures of efadv.h and mlx5dv.h, of rdma-core 65.

use super::{Operation, ibv_context, ibv_pd};

#[repr(C)]
pub(crate) struct efadv_device_attr {
    pub(crate) comp_mask: u64,
    pub(crate) max_sq_wr: u32,
    pub(crate) max_rq_wr: u32,
    pub(crate) max_sq_sge: u16,
    pub(crate) max_rq_sge: u16,
    pub(crate) inline_buf_size: u16,
    pub(crate) inline_buf_size_ex: u16,
    pub(crate) device_caps: u32,
    pub(crate) max_rdma_size: u32,
}

#[repr(C)]
pub(crate) struct efadv_ah_attr {
    pub(crate) comp_mask: u64,
    pub(crate) ahn: u16,
    pub(crate) reserved: [u8; 6],
}

/// The whole `struct mlx5dv_context` of rdma-core 65, of which programs may have only the beginning.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_context {
    pub(crate) version: u8,
    pub(crate) flags: u64,
    pub(crate) comp_mask: u64,
    pub(crate) cqe_comp_caps: mlx5dv_cqe_comp_caps,
    pub(crate) of_rings: [u32; 13],
    pub(crate) dc_odp_caps: u32,
    pub(crate) hca_core_clock: u64,
    pub(crate) num_lag_ports: u8,
    pub(crate) sig_caps: mlx5dv_sig_caps,
    /// Exponents of the number of streams, and of the number that may fail.
    pub(crate) dci_streams_caps: [u8; 2],
    pub(crate) max_wr_memcpy_length: u64,
    pub(crate) crypto_caps: [u64; 2],
    pub(crate) max_dc_rd_atom: u64,
    pub(crate) max_dc_init_rd_atom: u64,
    pub(crate) reg_c0: u64,
    pub(crate) ooo_recv_wrs_caps: mlx5dv_ooo_recv_wrs_caps,
}

/// Bits for block sizes, kinds of signatures, guards of T10-DIF, and CRCs.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_sig_caps {
    pub(crate) block_size: u64,
    pub(crate) block_prot: u32,
    pub(crate) t10dif_bg: u16,
    pub(crate) crc_type: u16,
}

/// Number of completions that may be packed into one, and bits of the formats for that.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_cqe_comp_caps {
    pub(crate) max_num: u32,
    pub(crate) supported_format: u32,
}

/// Number of receive requests of a queue pair whose data may arrive out of order, by its type.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_ooo_recv_wrs_caps {
    pub(crate) max_rc: u32,
    pub(crate) max_xrc: u32,
    pub(crate) max_dct: u32,
    pub(crate) max_ud: u32,
    pub(crate) max_uc: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_cq_init_attr {
    pub(crate) comp_mask: u64,
    pub(crate) cqe_comp_res_format: u8,
    pub(crate) flags: u32,
    pub(crate) cqe_size: u16,
}

/// Parameters with which programs convert timestamps of completions to time:
/// `nsec + ((stamp - last_cycles) * mult + frac >> shift)`.
#[repr(C)]
pub(crate) struct mlx5dv_clock_info {
    pub(crate) nsec: u64,
    pub(crate) last_cycles: u64,
    pub(crate) frac: u64,
    pub(crate) mult: u32,
    pub(crate) shift: u32,
    pub(crate) mask: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_sched_attr {
    pub(crate) parent: *mut mlx5dv_sched_node,
    pub(crate) flags: u32,
    pub(crate) bw_share: u32,
    pub(crate) max_avg_bw: u32,
    pub(crate) comp_mask: u64,
}

/// A scheduling node, of which programs see only a pointer.
#[repr(C)]
pub(crate) struct mlx5dv_sched_node {
    pub(crate) context: *mut ibv_context,
}

/// A scheduling leaf, of which programs see only a pointer.
#[repr(C)]
pub(crate) struct mlx5dv_sched_leaf {
    pub(crate) context: *mut ibv_context,
}

/// `struct mlx5dv_qp_init_attr`, with `dc_init_attr` in it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_qp_init_attr {
    pub(crate) comp_mask: u64,
    pub(crate) create_flags: u32,
    pub(crate) padding: u32,
    pub(crate) dc_type: u32,
    /// Access key of a target, or two exponents of an initiator, in the first bytes.
    pub(crate) dc_union: u64,
    pub(crate) send_ops_flags: u64,
}

/// `struct mlx5dv_qp_ex`: entries that are not here are NULL.
#[repr(C)]
pub(crate) struct mlx5dv_qp_ex {
    pub(crate) comp_mask: u64,
    pub(crate) wr_set_dc_addr: Operation,
    pub(crate) wr_mr_interleaved: Operation,
    pub(crate) wr_mr_list: Operation,
    pub(crate) wr_mkey_configure: Operation,
    pub(crate) wr_set_mkey_access_flags: Operation,
    pub(crate) wr_set_mkey_layout_list: Operation,
    pub(crate) wr_set_mkey_layout_interleaved: Operation,
    pub(crate) wr_set_mkey_sig_block: Operation,
    pub(crate) wr_raw_wqe: Operation,
    pub(crate) wr_set_dc_addr_stream: Operation,
    pub(crate) wr_memcpy: Operation,
    pub(crate) wr_set_mkey_crypto: Operation,
}

#[repr(C)]
pub(crate) struct mlx5dv_mkey_init_attr {
    pub(crate) pd: *mut ibv_pd,
    pub(crate) create_flags: u32,
    pub(crate) max_entries: u16,
}

/// A memory key, of which programs see only the keys.
#[repr(C)]
pub(crate) struct mlx5dv_mkey {
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    pub(crate) context: *mut ibv_context,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_mkey_conf_attr {
    pub(crate) conf_flags: u32,
    pub(crate) comp_mask: u64,
}

/// A pointer to a `mlx5dv_sig_t10dif` or a `mlx5dv_sig_crc`, according to the type.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_sig_block_domain {
    pub(crate) sig_type: u32,
    pub(crate) sig: *const std::ffi::c_void,
    pub(crate) block_size: u32,
    pub(crate) comp_mask: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_sig_t10dif {
    pub(crate) bg_type: u32,
    pub(crate) bg: u16,
    pub(crate) app_tag: u16,
    pub(crate) ref_tag: u32,
    pub(crate) flags: u16,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_sig_crc {
    pub(crate) r#type: u32,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_sig_block_attr {
    pub(crate) mem: *const mlx5dv_sig_block_domain,
    pub(crate) wire: *const mlx5dv_sig_block_domain,
    pub(crate) flags: u32,
    pub(crate) check_mask: u8,
    pub(crate) copy_mask: u8,
    pub(crate) comp_mask: u64,
}

/// Details of the error, of the only kind: signatures.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_mkey_err {
    pub(crate) err_type: u32,
    pub(crate) actual_value: u64,
    pub(crate) expected_value: u64,
    pub(crate) offset: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_mr_interleaved {
    pub(crate) addr: u64,
    pub(crate) bytes_count: u32,
    pub(crate) bytes_skip: u32,
    pub(crate) lkey: u32,
}

#[repr(C)]
pub(crate) struct mlx5dv_context_attr {
    pub(crate) flags: u32,
    pub(crate) comp_mask: u64,
}

/// `struct mlx5dv_obj` up to its protection domain, which comes after six other kinds.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_obj {
    pub(crate) others: [[*mut std::ffi::c_void; 2]; 6],
    pub(crate) pd: mlx5dv_obj_pd,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_obj_pd {
    pub(crate) r#in: *mut ibv_pd,
    pub(crate) out: *mut mlx5dv_pd,
}

#[repr(C)]
pub(crate) struct mlx5dv_pd {
    pub(crate) pdn: u32,
    pub(crate) comp_mask: u64,
}

/// `struct mlx5dv_ctx_allocators`: functions of the program with which a driver may allocate memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_ctx_allocators {
    pub(crate) functions: [Operation; 2],
    pub(crate) data: *mut std::ffi::c_void,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct efadv_qp_init_attr {
    pub(crate) comp_mask: u64,
    pub(crate) driver_qp_type: u32,
    pub(crate) flags: u16,
    pub(crate) sl: u8,
    pub(crate) reserved: u8,
    pub(crate) wr_flags: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct efadv_cq_init_attr {
    pub(crate) comp_mask: u64,
    pub(crate) wc_flags: u64,
    /// Memory of the queue, which programs may choose on an adapter.
    pub(crate) memory: [u64; 5],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct efadv_mr_attr {
    pub(crate) comp_mask: u64,
    pub(crate) ic_id_validity: u16,
    pub(crate) recv_ic_id: u16,
    pub(crate) rdma_read_ic_id: u16,
    pub(crate) rdma_recv_ic_id: u16,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct efadv_sq_depth_attr {
    pub(crate) comp_mask: u64,
    pub(crate) flags: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_rdma_sge: u32,
    pub(crate) max_inline_data: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct efadv_rq_depth_attr {
    pub(crate) comp_mask: u64,
    pub(crate) max_recv_sge: u32,
}

#[repr(C)]
pub(crate) struct efadv_qp {
    pub(crate) comp_mask: u64,
    pub(crate) wr_set_processing_hints: Operation,
}

#[repr(C)]
pub(crate) struct efadv_cq {
    pub(crate) comp_mask: u64,
    pub(crate) wc_read_sgid: Operation,
    pub(crate) wc_is_unsolicited: Operation,
}
