//! Structures and constants of OFED 1.x that verbs.h of today does not have. `include/pumice/ofed_xrc.h` is
//! the header.

use super::{ibv_qp_init_attr, ibv_xrcd};

/// `IBV_QPT_XRC`.
pub(crate) const QPT_XRC: u32 = 5;
/// `IBV_XRC_QP_EVENT_FLAG`: the event is one of a receive queue pair, and its element a number.
pub(crate) const EVENT_FLAG: u32 = 0x8000_0000;

/// `struct ibv_qp_init_attr` as it was.
#[repr(C)]
pub(crate) struct ofed_qp_init_attr {
    pub(crate) base: ibv_qp_init_attr,
    pub(crate) xrc_domain: *mut ibv_xrcd,
}

const _: () = assert!(std::mem::offset_of!(ofed_qp_init_attr, xrc_domain) == 64);
