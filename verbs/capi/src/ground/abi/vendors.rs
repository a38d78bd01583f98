//! Structures of efadv.h and mlx5dv.h, of rdma-core 65.

use super::Operation;

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

/// The beginning of `struct mlx5dv_context`: what follows is written only where a program asks for it.
#[repr(C)]
pub(crate) struct mlx5dv_context {
    pub(crate) version: u8,
    pub(crate) flags: u64,
    pub(crate) comp_mask: u64,
}

#[repr(C)]
pub(crate) struct mlx5dv_context_attr {
    pub(crate) flags: u32,
    pub(crate) comp_mask: u64,
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
    /// Where the queue lies, which programs may choose on an adapter.
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
