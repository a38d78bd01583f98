//! Flow rules, whose fields of headers are in network order, and work queues.

use std::ffi::{c_int, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::{Operation, ibv_context, ibv_cq, ibv_pd};

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_flow_attr {
    pub(crate) comp_mask: u32,
    pub(crate) r#type: u32,
    /// Size, which is not read: the specifications have sizes of their own.
    #[allow(dead_code, reason = "the structure is C's")]
    pub(crate) size: u16,
    pub(crate) priority: u16,
    pub(crate) num_of_specs: u8,
    pub(crate) port: u8,
    pub(crate) flags: u32,
}

#[repr(C)]
pub(crate) struct ibv_flow {
    pub(crate) comp_mask: u32,
    pub(crate) context: *mut ibv_context,
    pub(crate) handle: u32,
}

#[repr(C)]
pub(crate) struct ibv_wq {
    pub(crate) context: *mut ibv_context,
    pub(crate) wq_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) cq: *mut ibv_cq,
    pub(crate) wq_num: u32,
    pub(crate) handle: u32,
    pub(crate) state: u32,
    pub(crate) wq_type: u32,
    pub(crate) post_recv: Operation,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) events_completed: u32,
    pub(crate) comp_mask: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_wq_init_attr {
    pub(crate) wq_context: *mut c_void,
    pub(crate) wq_type: u32,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) cq: *mut ibv_cq,
    pub(crate) comp_mask: u32,
    pub(crate) create_flags: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_wq_attr {
    pub(crate) attr_mask: u32,
    pub(crate) wq_state: u32,
    pub(crate) curr_wq_state: u32,
    pub(crate) flags: u32,
    pub(crate) flags_mask: u32,
}

#[repr(C)]
pub(crate) struct ibv_rwq_ind_table {
    pub(crate) context: *mut ibv_context,
    pub(crate) ind_tbl_handle: c_int,
    pub(crate) ind_tbl_num: c_int,
    pub(crate) comp_mask: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_rwq_ind_table_init_attr {
    pub(crate) log_ind_tbl_size: u32,
    pub(crate) ind_tbl: *mut *mut ibv_wq,
    pub(crate) comp_mask: u32,
}

/// Defines structures of which only the layout is used: a specification is read byte by byte, at any
/// alignment.
macro_rules! layout_only {
    ($(struct $name:ident { $($field:ident: $kind:ty,)* })*) => {$(
        #[derive(Clone, Copy)]
        #[repr(C)]
        #[allow(dead_code, reason = "only its layout is used")]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind,)*
        }
    )*};
}

layout_only! {
    struct ibv_flow_eth_filter {
        dst_mac: [u8; 6],
        src_mac: [u8; 6],
        ether_type: u16,
        vlan_tag: u16,
    }
    struct ibv_flow_spec_eth {
        r#type: u32,
        size: u16,
        val: ibv_flow_eth_filter,
        mask: ibv_flow_eth_filter,
    }
    struct ibv_flow_ipv4_filter {
        src_ip: u32,
        dst_ip: u32,
    }
    struct ibv_flow_spec_ipv4 {
        r#type: u32,
        size: u16,
        val: ibv_flow_ipv4_filter,
        mask: ibv_flow_ipv4_filter,
    }
    struct ibv_flow_ipv4_ext_filter {
        src_ip: u32,
        dst_ip: u32,
        proto: u8,
        tos: u8,
        ttl: u8,
        flags: u8,
    }
    struct ibv_flow_spec_ipv4_ext {
        r#type: u32,
        size: u16,
        val: ibv_flow_ipv4_ext_filter,
        mask: ibv_flow_ipv4_ext_filter,
    }
    struct ibv_flow_ipv6_filter {
        src_ip: [u8; 16],
        dst_ip: [u8; 16],
        flow_label: u32,
        next_hdr: u8,
        traffic_class: u8,
        hop_limit: u8,
    }
    struct ibv_flow_spec_ipv6 {
        r#type: u32,
        size: u16,
        val: ibv_flow_ipv6_filter,
        mask: ibv_flow_ipv6_filter,
    }
    struct ibv_flow_tcp_udp_filter {
        dst_port: u16,
        src_port: u16,
    }
    struct ibv_flow_spec_tcp_udp {
        r#type: u32,
        size: u16,
        val: ibv_flow_tcp_udp_filter,
        mask: ibv_flow_tcp_udp_filter,
    }
    struct ibv_flow_spec_action_drop {
        r#type: u32,
        size: u16,
    }
}
