//! Work requests and completions.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;

use super::{ibv_ah, ibv_mw, ibv_mw_bind_info};

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_send_wr_rdma {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_send_wr_atomic {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_send_wr_ud {
    pub(crate) ah: *mut ibv_ah,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

/// Fields that the opcode and the type of queue pair select.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union ibv_send_wr_wr {
    pub(crate) rdma: ibv_send_wr_rdma,
    pub(crate) atomic: ibv_send_wr_atomic,
    pub(crate) ud: ibv_send_wr_ud,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_send_wr_bind_mw {
    pub(crate) mw: *mut ibv_mw,
    pub(crate) rkey: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_send_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_send_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: u32,
    pub(crate) send_flags: c_uint,
    /// Immediate data, or `invalidate_rkey`.
    pub(crate) imm_data: u32,
    pub(crate) wr: ibv_send_wr_wr,
    /// The field `xrc.remote_srqn`.
    pub(crate) qp_type: u32,
    pub(crate) bind_mw: ibv_send_wr_bind_mw,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_recv_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_recv_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
}

/// An operation on a list of tags. The call writes the handle of a buffer that is added.
#[repr(C)]
pub(crate) struct ibv_ops_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_ops_wr,
    pub(crate) opcode: c_uint,
    pub(crate) flags: c_int,
    pub(crate) unexpected_cnt: u32,
    pub(crate) handle: Cell<u32>,
    pub(crate) recv_wr_id: u64,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
    pub(crate) tag: u64,
    pub(crate) mask: u64,
}

const _: () = assert!(
    offset_of!(ibv_ops_wr, unexpected_cnt) == 24
        && offset_of!(ibv_ops_wr, recv_wr_id) == 32
        && offset_of!(ibv_ops_wr, tag) == 56
        && size_of::<ibv_ops_wr>() == 72
);

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_wc_tm_info {
    pub(crate) tag: u64,
    pub(crate) r#priv: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_wc {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// Immediate data, or `invalidated_rkey`.
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_async_event {
    /// A CQ, QP or SRQ; or a port number in its first bytes.
    pub(crate) element: *mut c_void,
    pub(crate) event_type: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_data_buf {
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
}

/// The 40 bytes before a received datagram.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_grh {
    pub(crate) version_tclass_flow: [u8; 4],
    pub(crate) paylen: [u8; 2],
    pub(crate) next_hdr: u8,
    pub(crate) hop_limit: u8,
    pub(crate) sgid: [u8; 16],
    pub(crate) dgid: [u8; 16],
}
