//! The structure of an identifier that programs see: `struct rdma_cm_id` and the path record that it points
//! at.
//!
//! Its fields are read and written one by one and by value, so that no reference to the program's memory
//! exists: the program reads the structure at any time and writes some fields itself.

use std::ffi::c_void;

use crate::ground::abi::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_sa_path_rec, ibv_srq, rdma_cm_event,
    rdma_cm_id, rdma_event_channel, rdma_route,
};
use crate::ground::handles::{Shown, show, shown};

/// The program's structure.
#[repr(C)]
pub(crate) struct Fields {
    c: Shown<rdma_cm_id>,
    /// What `route.path_rec` points at once there is a path.
    path: Shown<ibv_sa_path_rec>,
}

macro_rules! readable {
    ($($field:ident: $type:ty;)*) => {
        impl Fields {
            $(
                pub(crate) fn $field(&self) -> $type {
                    shown!(self.c, $field)
                }
            )*
        }
    };
}

macro_rules! writable {
    ($($field:ident, $set:ident: $type:ty;)*) => {
        impl Fields {
            $(
                pub(crate) fn $set(&self, value: $type) {
                    show!(self.c, $field = value)
                }
            )*
        }
    };
}

readable! {
    verbs: *mut ibv_context;
    context: *mut c_void;
    qp: *mut ibv_qp;
    route: rdma_route;
    ps: u32;
    event: *mut rdma_cm_event;
    send_cq_channel: *mut ibv_comp_channel;
    send_cq: *mut ibv_cq;
    recv_cq_channel: *mut ibv_comp_channel;
    recv_cq: *mut ibv_cq;
    srq: *mut ibv_srq;
    pd: *mut ibv_pd;
    qp_type: u32;
    port_num: u8;
}

writable! {
    verbs, set_verbs: *mut ibv_context;
    channel, set_channel: *mut rdma_event_channel;
    qp, set_qp: *mut ibv_qp;
    route, set_route: rdma_route;
    port_num, set_port_num: u8;
    event, set_event: *mut rdma_cm_event;
    send_cq_channel, set_send_cq_channel: *mut ibv_comp_channel;
    send_cq, set_send_cq: *mut ibv_cq;
    recv_cq_channel, set_recv_cq_channel: *mut ibv_comp_channel;
    recv_cq, set_recv_cq: *mut ibv_cq;
    srq, set_srq: *mut ibv_srq;
    pd, set_pd: *mut ibv_pd;
}

impl Fields {
    pub(crate) fn new(c: rdma_cm_id) -> Fields {
        Fields { c: Shown::new(c), path: Shown::new(ibv_sa_path_rec::default()) }
    }

    /// Shows the program a path.
    pub(crate) fn set_path(&self, record: ibv_sa_path_rec) {
        let path = self.path.as_ptr();
        // SAFETY: the cell is live as long as `self`, to which the program's pointer to it is bound as well.
        unsafe { path.write(record) };
        self.set_route(rdma_route { path_rec: path, num_paths: 1, ..self.route() });
    }
}
