//! The calls of mlx5 (`<infiniband/mlx5dv.h>`), of which few answer, on a device that looks like mlx5.

use crate::row::CallFamily;

pub(crate) const FAMILY: CallFamily = CallFamily::Vendor("mlx5 (ConnectX)");
pub(crate) const V1_0: &str = "MLX5_1.0";
pub(crate) const V1_1: &str = "MLX5_1.1";
pub(crate) const V1_2: &str = "MLX5_1.2";
pub(crate) const V1_3: &str = "MLX5_1.3";
pub(crate) const V1_4: &str = "MLX5_1.4";
pub(crate) const V1_5: &str = "MLX5_1.5";
pub(crate) const V1_6: &str = "MLX5_1.6";
pub(crate) const V1_7: &str = "MLX5_1.7";
pub(crate) const V1_8: &str = "MLX5_1.8";
pub(crate) const V1_9: &str = "MLX5_1.9";
pub(crate) const V1_10: &str = "MLX5_1.10";
pub(crate) const V1_11: &str = "MLX5_1.11";
pub(crate) const V1_12: &str = "MLX5_1.12";
pub(crate) const V1_13: &str = "MLX5_1.13";
pub(crate) const V1_14: &str = "MLX5_1.14";
pub(crate) const V1_15: &str = "MLX5_1.15";
pub(crate) const V1_16: &str = "MLX5_1.16";
pub(crate) const V1_17: &str = "MLX5_1.17";
pub(crate) const V1_18: &str = "MLX5_1.18";
pub(crate) const V1_19: &str = "MLX5_1.19";
pub(crate) const V1_20: &str = "MLX5_1.20";
pub(crate) const V1_21: &str = "MLX5_1.21";
pub(crate) const V1_22: &str = "MLX5_1.22";
pub(crate) const V1_23: &str = "MLX5_1.23";
pub(crate) const V1_24: &str = "MLX5_1.24";
pub(crate) const V1_25: &str = "MLX5_1.25";
pub(crate) const V1_25_1: &str = "MLX5_1.25.1";
pub(crate) const V1_26: &str = "MLX5_1.26";
pub(crate) const V1_27: &str = "MLX5_1.27";
pub(crate) use crate::vendors::*;

macro_rules! rows {
    ($then:ident $left:tt $($rows:tt)*) => { $then! { $left $($rows)* mlx5 {
        mlx5dv_query_device: errno(V1_0).queries(Context).for_vendor_device(CONNECTX).probe(),
        mlx5dv_create_cq: null(V1_1).creates(CompletionQueue, Context)
            .for_vendor_device(CONNECTX).fails(MAKE),
        mlx5dv_alloc_dm: null(V1_10).replacement(DEVICE_MEMORY),
        mlx5dv_create_mkey: null(V1_10).queries(Domain).for_vendor_device(CONNECTX),
        mlx5dv_destroy_mkey: errno(V1_10).for_vendor_device(CONNECTX),
        mlx5dv_dr_action_create_dest_ibv_qp: null(V1_10).replacement(FLOWS),
        mlx5dv_dr_action_create_dest_table: null(V1_10).replacement(FLOWS),
        mlx5dv_dr_action_create_dest_vport: null(V1_10).replacement(FLOWS),
        mlx5dv_dr_action_create_drop: null(V1_10).replacement(FLOWS),
        mlx5dv_dr_action_create_flow_counter: null(V1_10).replacement(FLOWS),
        mlx5dv_dr_action_create_modify_header: null(V1_10).replacement(FLOWS),
        mlx5dv_dr_action_create_packet_reformat: null(V1_10).replacement(FLOWS),
        mlx5dv_dr_action_create_tag: null(V1_10).replacement(FLOWS),
        mlx5dv_dr_action_destroy: errno(V1_10).replacement(FLOWS),
        mlx5dv_dr_domain_create: null(V1_10).replacement(FLOWS),
        mlx5dv_dr_domain_destroy: errno(V1_10).replacement(FLOWS),
        mlx5dv_dr_domain_sync: errno(V1_10).replacement(FLOWS),
        mlx5dv_dr_matcher_create: null(V1_10).replacement(FLOWS),
        mlx5dv_dr_matcher_destroy: errno(V1_10).replacement(FLOWS),
        mlx5dv_dr_rule_create: null(V1_10).replacement(FLOWS),
        mlx5dv_dr_rule_destroy: errno(V1_10).replacement(FLOWS),
        mlx5dv_dr_table_create: null(V1_10).replacement(FLOWS),
        mlx5dv_dr_table_destroy: errno(V1_10).replacement(FLOWS),
        mlx5dv_qp_ex_from_ibv_qp_ex: null(V1_10).queries(QueuePair).for_vendor_device(DC),
        mlx5dv_devx_create_event_channel: null(V1_11).replacement(DEVX),
        mlx5dv_devx_destroy_event_channel: errno(V1_11).replacement(DEVX),
        mlx5dv_devx_get_event: minus(V1_11).replacement(DEVX).probe(),
        mlx5dv_devx_subscribe_devx_event: errno(V1_11).replacement(DEVX),
        mlx5dv_devx_subscribe_devx_event_fd: errno(V1_11).replacement(DEVX),
        mlx5dv_alloc_var: null(V1_12).replacement(LIBIBVERBS),
        mlx5dv_dr_action_create_flow_meter: null(V1_12).replacement(FLOWS),
        mlx5dv_dr_action_modify_flow_meter: errno(V1_12).replacement(FLOWS),
        mlx5dv_dump_dr_domain: errno(V1_12).replacement(FLOWS),
        mlx5dv_dump_dr_matcher: errno(V1_12).replacement(FLOWS),
        mlx5dv_dump_dr_rule: errno(V1_12).replacement(FLOWS),
        mlx5dv_dump_dr_table: errno(V1_12).replacement(FLOWS),
        mlx5dv_free_var: errno(V1_12).replacement(LIBIBVERBS),
        mlx5dv_pp_alloc: null(V1_13).replacement(LIBIBVERBS),
        mlx5dv_pp_free: errno(V1_13).replacement(LIBIBVERBS),
        mlx5dv_dr_action_create_default_miss: null(V1_14).replacement(FLOWS),
        mlx5dv_dr_domain_set_reclaim_device_memory: errno(V1_14).replacement(FLOWS),
        mlx5dv_modify_qp_lag_port: errno(V1_14).changes(QueuePair).for_vendor_device(CONNECTX),
        mlx5dv_query_qp_lag_port: errno(V1_14).queries(QueuePair).for_vendor_device(CONNECTX).probe(),
        mlx5dv_dr_action_create_dest_devx_tir: null(V1_15).replacement(DEVX),
        mlx5dv_dr_action_create_dest_array: null(V1_16).replacement(FLOWS),
        mlx5dv_dr_action_create_flow_sampler: null(V1_16).replacement(FLOWS),
        mlx5dv_dr_action_create_aso: null(V1_17).replacement(FLOWS),
        mlx5dv_dr_action_create_pop_vlan: null(V1_17).replacement(FLOWS),
        mlx5dv_dr_action_create_push_vlan: null(V1_17).replacement(FLOWS),
        mlx5dv_dr_action_modify_aso: errno(V1_17).replacement(FLOWS),
        mlx5dv_modify_qp_sched_elem: errno(V1_17).changes(QueuePair).for_vendor_device(CONNECTX),
        mlx5dv_modify_qp_udp_sport: errno(V1_17).changes(QueuePair).for_vendor_device(CONNECTX),
        mlx5dv_sched_leaf_create: null(V1_17).queries(Context).for_vendor_device(CONNECTX),
        mlx5dv_sched_leaf_destroy: errno(V1_17).for_vendor_device(CONNECTX),
        mlx5dv_sched_leaf_modify: errno(V1_17).for_vendor_device(CONNECTX),
        mlx5dv_sched_node_create: null(V1_17).queries(Context).for_vendor_device(CONNECTX),
        mlx5dv_sched_node_destroy: errno(V1_17).for_vendor_device(CONNECTX),
        mlx5dv_sched_node_modify: errno(V1_17).for_vendor_device(CONNECTX),
        mlx5dv_reserved_qpn_alloc: errno(V1_18).queries(Context).for_vendor_device(CONNECTX),
        mlx5dv_reserved_qpn_dealloc: errno(V1_18).queries(Context).for_vendor_device(CONNECTX),
        _mlx5dv_query_port: errno(V1_19).queries(Context).for_vendor_device(CONNECTX).probe(),
        mlx5dv_devx_umem_reg_ex: null(V1_19).replacement(DEVX),
        mlx5dv_dm_map_op_addr: null(V1_19).replacement(DEVICE_MEMORY),
        mlx5dv_init_obj: errno(V1_2).for_vendor_device(CONNECTX),
        mlx5dv_set_context_attr: errno(V1_2).queries(Context).for_vendor_device(CONNECTX),
        _mlx5dv_mkey_check: errno(V1_20).for_vendor_device(CONNECTX).probe(),
        mlx5dv_dr_domain_allow_duplicate_rules: errno(V1_20).replacement(FLOWS),
        mlx5dv_map_ah_to_qp: errno(V1_20).changes(AddressHandle).for_vendor_device(DC),
        mlx5dv_qp_cancel_posted_send_wrs: negative(V1_20).for_vendor_device(CONNECTX),
        mlx5dv_crypto_login: errno(V1_21).replacement(LIBIBVERBS),
        mlx5dv_crypto_login_query_state: errno(V1_21).replacement(LIBIBVERBS).probe(),
        mlx5dv_crypto_logout: errno(V1_21).replacement(LIBIBVERBS),
        mlx5dv_dci_stream_id_reset: errno(V1_21).changes(QueuePair).for_vendor_device(DC),
        mlx5dv_dek_create: null(V1_21).replacement(LIBIBVERBS),
        mlx5dv_dek_destroy: errno(V1_21).replacement(LIBIBVERBS),
        mlx5dv_dek_query: errno(V1_21).replacement(LIBIBVERBS),
        mlx5dv_dr_action_create_dest_ib_port: null(V1_21).replacement(FLOWS),
        mlx5dv_dr_matcher_set_layout: errno(V1_21).replacement(FLOWS),
        mlx5dv_get_vfio_device_list: null(V1_21).replacement(LIBIBVERBS).probe(),
        mlx5dv_vfio_get_events_fd: minus(V1_21).replacement(LIBIBVERBS).probe(),
        mlx5dv_vfio_process_events: errno(V1_21).replacement(LIBIBVERBS),
        mlx5dv_dr_aso_other_domain_link: errno(V1_22).replacement(FLOWS),
        mlx5dv_dr_aso_other_domain_unlink: errno(V1_22).replacement(FLOWS),
        mlx5dv_devx_alloc_msi_vector: null(V1_23).replacement(DEVX),
        mlx5dv_devx_create_eq: null(V1_23).replacement(DEVX),
        mlx5dv_devx_destroy_eq: errno(V1_23).replacement(DEVX),
        mlx5dv_devx_free_msi_vector: errno(V1_23).replacement(DEVX),
        mlx5dv_create_steering_anchor: null(V1_24).replacement(LIBIBVERBS),
        mlx5dv_crypto_login_create: null(V1_24).replacement(LIBIBVERBS),
        mlx5dv_crypto_login_destroy: errno(V1_24).replacement(LIBIBVERBS),
        mlx5dv_crypto_login_query: errno(V1_24).replacement(LIBIBVERBS),
        mlx5dv_destroy_steering_anchor: errno(V1_24).replacement(LIBIBVERBS),
        mlx5dv_dr_action_create_dest_root_table: null(V1_24).replacement(FLOWS),
        mlx5dv_create_qp: null(V1_3).creates(QueuePair, Context).for_vendor_device(DC).fails(MAKE),
        mlx5dv_create_wq: null(V1_3).replacement(WORK_QUEUES),
        mlx5dv_get_clock_info: errno(V1_4).queries(Context).for_vendor_device(CONNECTX).probe(),
        mlx5dv_create_flow_action_esp: null(V1_5).replacement(FLOWS),
        mlx5dv_create_flow: null(V1_6).replacement(FLOWS),
        mlx5dv_create_flow_matcher: null(V1_6).replacement(FLOWS),
        mlx5dv_destroy_flow_matcher: errno(V1_6).replacement(FLOWS),
        mlx5dv_create_flow_action_modify_header: null(V1_7).replacement(FLOWS),
        mlx5dv_create_flow_action_packet_reformat: null(V1_7).replacement(FLOWS),
        mlx5dv_devx_alloc_uar: null(V1_7).replacement(DEVX),
        mlx5dv_devx_free_uar: errno(V1_7).replacement(DEVX),
        mlx5dv_devx_general_cmd: errno(V1_7).replacement(DEVX),
        mlx5dv_devx_obj_create: null(V1_7).replacement(DEVX),
        mlx5dv_devx_obj_destroy: errno(V1_7).replacement(DEVX),
        mlx5dv_devx_obj_modify: errno(V1_7).replacement(DEVX),
        mlx5dv_devx_obj_query: errno(V1_7).replacement(DEVX),
        mlx5dv_devx_query_eqn: errno(V1_7).replacement(DEVX).probe(),
        mlx5dv_devx_umem_dereg: errno(V1_7).replacement(DEVX),
        mlx5dv_devx_umem_reg: null(V1_7).replacement(DEVX),
        mlx5dv_open_device: null(V1_7).creates(Context, Device).for_vendor_device(CONNECTX).probe(),
        mlx5dv_devx_cq_modify: errno(V1_8).replacement(DEVX),
        mlx5dv_devx_cq_query: errno(V1_8).replacement(DEVX),
        mlx5dv_devx_ind_tbl_modify: errno(V1_8).replacement(DEVX),
        mlx5dv_devx_ind_tbl_query: errno(V1_8).replacement(DEVX),
        mlx5dv_devx_qp_modify: errno(V1_8).replacement(DEVX),
        mlx5dv_devx_qp_query: errno(V1_8).replacement(DEVX),
        mlx5dv_devx_srq_modify: errno(V1_8).replacement(DEVX),
        mlx5dv_devx_srq_query: errno(V1_8).replacement(DEVX),
        mlx5dv_devx_wq_modify: errno(V1_8).replacement(DEVX),
        mlx5dv_devx_wq_query: errno(V1_8).replacement(DEVX),
        mlx5dv_is_supported: plain(V1_8).queries(Device).for_vendor_device(CONNECTX).probe(),
        mlx5dv_devx_create_cmd_comp: null(V1_9).replacement(DEVX),
        mlx5dv_devx_destroy_cmd_comp: errno(V1_9).replacement(DEVX),
        mlx5dv_devx_get_async_cmd_comp: errno(V1_9).replacement(DEVX).probe(),
        mlx5dv_devx_obj_query_async: errno(V1_9).replacement(DEVX).probe(),
        mlx5dv_get_data_direct_sysfs_path: errno(V1_25).queries(Context).for_vendor_device(CONNECTX).probe(),
        mlx5dv_reg_dmabuf_mr: null(V1_25).replacement(DMA_BUFS),
        __mlx5dv_create_flow: null(V1_25_1).replacement(FLOWS),
        mlx5dv_devx_uar_export_dmabuf_fd: minus(V1_26).replacement(DEVX),
        _mlx5dv_get_export_sizes: errno(V1_27).replacement(LIBIBVERBS).probe(),
        mlx5dv_devx_obj_export: errno(V1_27).replacement(DEVX),
        mlx5dv_devx_obj_import: null(V1_27).replacement(DEVX),
        mlx5dv_devx_obj_unimport: plain(V1_27).replacement(DEVX),
        mlx5dv_devx_umem_export: errno(V1_27).replacement(DEVX),
        mlx5dv_devx_umem_import: null(V1_27).replacement(DEVX),
        mlx5dv_devx_umem_unimport: plain(V1_27).replacement(DEVX),
        mlx5dv_var_export: errno(V1_27).replacement(LIBIBVERBS),
        mlx5dv_var_import: null(V1_27).replacement(LIBIBVERBS),
        mlx5dv_var_unimport: plain(V1_27).replacement(LIBIBVERBS),
    } } };
}
pub(crate) use rows;
