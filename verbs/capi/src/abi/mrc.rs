//! Structures of libmrc (`mrc.h` and `mrc_ctl.h`, version 1.0.1 of the API).

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::{ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_qp_cap};

/// Bytes of a vendor's configuration.
pub(crate) const VENDOR_CFG_BYTES: usize = 128;

/// A context of libmrc; programs do not look inside.
#[repr(C)]
pub(crate) struct mrc_context {
    /// Its context of verbs.
    pub(crate) context: *mut ibv_context,
}

/// A hint; programs do not look inside.
#[repr(C)]
pub(crate) struct mrc_qp_hint {
    /// Its context of verbs.
    pub(crate) context: *mut ibv_context,
}

/// An MRC queue pair; programs do not look inside. Some libraries take its first word for an `ibv_qp`, and
/// here it is one.
#[repr(C)]
pub(crate) struct mrc_qp {
    pub(crate) qp: *mut ibv_qp,
    /// Its context of verbs.
    pub(crate) context: *mut ibv_context,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_wimm_limits {
    pub(crate) max_wimm: u16,
    pub(crate) max_wimm_dest: u16,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_mpr_limits {
    pub(crate) max_mpr: u8,
    pub(crate) mpr_resolution: u8,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_qp_limits {
    pub(crate) max_qp_hint: u32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_device_attr {
    pub(crate) mrc_protocol_version: u32,
    pub(crate) wimm_attr: mrc_wimm_limits,
    pub(crate) mpr_attr: mrc_mpr_limits,
    pub(crate) qp_attr: mrc_qp_limits,
    pub(crate) cap: u32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_context_attr {
    pub(crate) mrc_api_version_used: u32,
    pub(crate) mrc_vendor_api_version_used: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mrc_qp_hint_attr {
    pub(crate) num_qps_per_peer: c_int,
    pub(crate) num_send_peers: c_int,
    pub(crate) num_remote_recv_peers: c_int,
    pub(crate) vendor_cfg: [u8; VENDOR_CFG_BYTES],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mrc_qp_hint_init_attr {
    pub(crate) attr: mrc_qp_hint_attr,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mrc_qp_init_attr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) sq_sig_all: c_int,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) send_ops_flags: u64,
    pub(crate) protocol_version: u32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_mpr {
    pub(crate) mpr: u8,
    pub(crate) mpr_dest: u8,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_profile_ids {
    pub(crate) ev_profile_id: u64,
    pub(crate) cc_profile_id: u64,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_retry {
    pub(crate) linear_cnt: u8,
    pub(crate) exp_cnt: u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mrc_qp_attr {
    pub(crate) mpr: mrc_mpr,
    pub(crate) wimm: mrc_wimm_limits,
    pub(crate) timeout: u8,
    pub(crate) profile: mrc_profile_ids,
    pub(crate) retry: mrc_retry,
    pub(crate) qp_hint: *mut mrc_qp_hint,
    pub(crate) cap: u32,
    pub(crate) vendor_cfg: [u8; VENDOR_CFG_BYTES],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mrc_async_event {
    /// A completion queue, an MRC queue pair or the number of a port.
    pub(crate) element: *mut c_void,
    pub(crate) event_type: u32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_ctl_ev_limits {
    pub(crate) ev_max_fmt_profiles: u32,
    pub(crate) ev_max_profiles: u32,
    pub(crate) ev_max_count: u32,
    pub(crate) ev_free_count: u32,
    pub(crate) ev_max_count_profile: u32,
    pub(crate) ev_count_align: u32,
    pub(crate) ev_max_width: u32,
    pub(crate) ev_fmt_mode_mask: u32,
    pub(crate) ev_mode_mask: u32,
    pub(crate) ev_op_max_entries: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mrc_ctl_cc_limits {
    pub(crate) cc_max_profiles: u32,
    /// Names of algorithms, and NULL behind them.
    pub(crate) algorithms: *const *const c_char,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mrc_ctl_device_attr {
    pub(crate) mrc_ctl_protocol_version: u32,
    pub(crate) ev: mrc_ctl_ev_limits,
    pub(crate) cc: mrc_ctl_cc_limits,
    pub(crate) phy_port_mask: u32,
    pub(crate) opt_attr: u32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_ctl_port_attr {
    pub(crate) port_admin_state: u32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_ctl_ev_fmt_field {
    pub(crate) width: u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mrc_ctl_ev_fmt_op {
    pub(crate) op: u32,
    pub(crate) fmt_fields: *mut mrc_ctl_ev_fmt_field,
    pub(crate) fmt_field_count: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mrc_ctl_ev_fmt_profile_attr {
    pub(crate) profile_state: u32,
    pub(crate) cur_profile_state: u32,
    pub(crate) ev_fmt_mode: u32,
    pub(crate) ev_fmt_op: mrc_ctl_ev_fmt_op,
    pub(crate) vendor_cfg: [u8; VENDOR_CFG_BYTES],
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct mrc_ctl_ev {
    pub(crate) val: [u8; 32],
    pub(crate) port: u8,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_ctl_ev_field {
    pub(crate) width: u32,
    pub(crate) init_val: u32,
    pub(crate) min_val: u32,
    pub(crate) max_val: u32,
    pub(crate) mask: u32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_ctl_ev_op_entry {
    pub(crate) ev: mrc_ctl_ev,
    pub(crate) ev_new: mrc_ctl_ev,
    pub(crate) state: u32,
    pub(crate) flags: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mrc_ctl_ev_op {
    pub(crate) op: u32,
    pub(crate) entries: *mut mrc_ctl_ev_op_entry,
    pub(crate) entry_count: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mrc_ctl_ev_fields_op {
    pub(crate) op: u32,
    pub(crate) fields: *mut mrc_ctl_ev_field,
    pub(crate) field_count: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mrc_ctl_ev_profile_attr {
    pub(crate) profile_state: u32,
    pub(crate) cur_profile_state: u32,
    pub(crate) ev_mode: u32,
    pub(crate) ev_fmt_profile_id: u64,
    pub(crate) ev_count: u32,
    pub(crate) ev_min_active: u32,
    pub(crate) ev_event_mask: c_int,
    pub(crate) ev_op: mrc_ctl_ev_op,
    pub(crate) ev_fields_op: mrc_ctl_ev_fields_op,
    pub(crate) vendor_cfg: [u8; VENDOR_CFG_BYTES],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mrc_ctl_cc_profile_attr {
    pub(crate) profile_state: u32,
    pub(crate) cur_profile_state: u32,
    pub(crate) algorithm: *const c_char,
    pub(crate) cc_config: *const c_void,
    pub(crate) vendor_cfg: [u8; VENDOR_CFG_BYTES],
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_ctl_cc_nscc_cfg {
    pub(crate) disable_qa: u8,
    pub(crate) adjust_bytes_threshold: u32,
    pub(crate) adjust_period_threshold: u32,
    pub(crate) base_rtt: u32,
    pub(crate) eta: f32,
    pub(crate) fi: f32,
    pub(crate) fi_scale: f32,
    pub(crate) gamma: f32,
    pub(crate) max_md_jump: f32,
    pub(crate) max_cwnd: u32,
    pub(crate) qa_gate: u8,
    pub(crate) qa_threshold: u32,
    pub(crate) target_delay: u32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_ctl_ev_event {
    pub(crate) profile_id: u64,
    pub(crate) ev: mrc_ctl_ev,
    pub(crate) drop_count: u32,
    pub(crate) state: u32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_ctl_ep_req {
    pub(crate) req_id: u16,
    pub(crate) sgid: ibv_gid,
    pub(crate) dgid: ibv_gid,
    pub(crate) ev_fmt_mode: u32,
    pub(crate) req_ev: mrc_ctl_ev,
    /// Ports that are up, of a port status update.
    pub(crate) op: u32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct mrc_ctl_ep_rsp {
    pub(crate) req_id: u16,
    pub(crate) port: u8,
    pub(crate) rtt: c_uint,
    pub(crate) adj_svc_time: u8,
}
