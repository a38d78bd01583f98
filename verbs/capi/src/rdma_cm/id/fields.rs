//! The structure of an identifier that programs see: `struct rdma_cm_id` and the path record that it points
//! at.
//!
//! Its fields are read and written one by one and by value, so that no reference to the program's memory
//! exists: the program may read the structure at any time and writes some fields itself.

use std::ffi::c_void;

use crate::abi::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_sa_path_rec, ibv_srq, rdma_cm_event,
    rdma_cm_id, rdma_event_channel, rdma_route,
};
use crate::entry::handles::{SharedStruct, show, shown};

/// The structure that the program's pointer leads to.
#[repr(C)]
pub(crate) struct IdFields {
    c: SharedStruct<rdma_cm_id>,
    /// Path record that `route.path_rec` points at once there is a path.
    path: SharedStruct<ibv_sa_path_rec>,
}

macro_rules! readable {
    ($($field:ident: $type:ty;)*) => {
        impl IdFields {
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
        impl IdFields {
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

impl IdFields {
    pub(crate) fn new(c: rdma_cm_id) -> IdFields {
        IdFields { c: SharedStruct::new(c), path: SharedStruct::new(ibv_sa_path_rec::default()) }
    }

    /// Writes a path into the structure.
    pub(crate) fn set_path(&self, record: ibv_sa_path_rec) {
        let path = self.path.as_ptr();
        // SAFETY: the cell lives as long as `self`, which also limits the use of the program's pointer to it.
        unsafe { path.write(record) };
        self.set_route(rdma_route { path_rec: path, num_paths: 1, ..self.route() });
    }
}
