//! Children of programs that have a device: what they inherit does nothing in them, nothing hangs, and their
//! parents' traffic goes on.

mod kit;

use std::fs;
use std::path::Path;
use std::process::Command;

use pumice_calls::{Call, CallAction, CallFacts};

const SENTENCE: &str = "belongs to the parent process, and this child process can do nothing with it: the \
                        child must open the device anew";

fn program(mode: &str) -> Option<Command> {
    let program = kit::compile("inherited")?;
    let mut command = kit::on(kit::address(), program);
    command.arg(mode);
    Some(command)
}

fn run(mode: &str, wire: &str) {
    let Some(mut command) = program(mode) else { return };
    let output = command.env("PUMICE_WIRE", wire).output().expect("timeout(1) runs");
    let text = kit::succeeded(&format!("inherited {mode}, {wire}"), &output);
    assert!(text.contains(SENTENCE) || mode == "borrowed", "{text}");
}

#[test]
fn no_call_of_a_child_touches_what_it_inherited() {
    run("calls", "auto");
}

#[test]
fn no_call_of_a_child_touches_the_sockets_of_its_parent() {
    run("calls", "udp");
}

#[test]
fn a_child_opens_the_device_anew() {
    for wire in ["auto", "udp"] {
        run("opens", wire);
    }
}

#[test]
fn no_lock_of_another_thread_is_held_in_a_child() {
    for wire in ["auto", "udp"] {
        run("threads", wire);
    }
}

#[test]
fn a_child_of_vfork_changes_nothing_of_its_parent() {
    run("borrowed", "auto");
}

/// The child says nothing, because the allocator of the C library may be locked in it.
#[test]
fn a_fork_by_a_bare_system_call_is_noticed() {
    let Some(mut command) = program("bare") else { return };
    let output = command.env("PUMICE_LOG", "off").output().expect("timeout(1) runs");
    kit::succeeded("inherited bare", &output);
}

#[test]
fn children_of_pythons_multiprocessing_open_the_device_anew() {
    if !kit::exists("python3") {
        return kit::skip("no python3");
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/multiprocessing_fork.py");
    let mut command = kit::on(kit::address(), "python3");
    let output = command.arg(program).arg(kit::object()).output().expect("timeout(1) runs");
    assert!(kit::succeeded("multiprocessing", &output).contains("right"));
}

/// Exported calls that know no object of a process.
const WITHOUT_OBJECTS: &[&str] = &[
    "mrc_query_version",
    "mrc_ctl_query_version",
    "ibv_copy_ah_attr_from_kern",
    "ibv_copy_path_rec_from_kern",
    "ibv_copy_path_rec_to_kern",
    "ibv_copy_qp_attr_from_kern",
    "ibv_dofork_range",
    "ibv_dontfork_range",
    "ibv_event_type_str",
    "ibv_fork_init",
    "ibv_free_device_list",
    "ibv_get_device_guid",
    "ibv_get_device_index",
    "ibv_get_device_list",
    "ibv_get_device_name",
    "ibv_get_sysfs_path",
    "ibv_import_device",
    "ibv_is_fork_initialized",
    "ibv_node_type_str",
    "ibv_open_device",
    "ibv_port_state_str",
    "ibv_rate_to_mbps",
    "ibv_rate_to_mult",
    "ibv_read_sysfs_file",
    "ibv_register_driver",
    "ibv_resolve_eth_l2_from_gid",
    "ibv_wc_status_str",
    "rdma_create_event_channel",
    "rdma_event_str",
    "rdma_free_devices",
    "rdma_freeaddrinfo",
    "rdma_get_devices",
    "rdma_getaddrinfo",
    "rpoll",
    "rselect",
    "rsocket",
    "repoll_create",
];

/// Calls that the headers of Debian 12 lack, or that find their object as others of the list do. Calls of
/// vendors are among the latter: they begin as others, and answer only on a device that looks like theirs.
const AS_OTHERS: &[&str] = &[
    "efadv_cq_from_ibv_cq_ex",
    "efadv_create_cq",
    "efadv_create_driver_qp",
    "efadv_create_qp_ex",
    "efadv_get_max_rq_depth",
    "efadv_get_max_sq_depth",
    "efadv_qp_from_ibv_qp_ex",
    "efadv_query_ah",
    "efadv_query_device",
    "efadv_query_mr",
    "ibv_alloc_buf",
    "ibv_export_buf_dmabuf_fd",
    "ibv_free_buf",
    "ibv_qp_to_qp_ex",
    "ibv_query_port_speed",
    "ibv_query_qp_data_in_order",
    "ibv_reg_buf_mr",
    "ibv_reg_mr_ex",
    "_mlx5dv_mkey_check",
    "_mlx5dv_query_port",
    "mlx5dv_create_cq",
    "mlx5dv_create_mkey",
    "mlx5dv_create_qp",
    "mlx5dv_dci_stream_id_reset",
    "mlx5dv_destroy_mkey",
    "mlx5dv_get_clock_info",
    "mlx5dv_get_data_direct_sysfs_path",
    "mlx5dv_init_obj",
    "mlx5dv_is_supported",
    "mlx5dv_map_ah_to_qp",
    "mlx5dv_modify_qp_lag_port",
    "mlx5dv_modify_qp_sched_elem",
    "mlx5dv_modify_qp_udp_sport",
    "mlx5dv_open_device",
    "mlx5dv_qp_cancel_posted_send_wrs",
    "mlx5dv_qp_ex_from_ibv_qp_ex",
    "mlx5dv_query_device",
    "mlx5dv_query_qp_lag_port",
    "mlx5dv_reserved_qpn_alloc",
    "mlx5dv_reserved_qpn_dealloc",
    "mlx5dv_sched_leaf_create",
    "mlx5dv_sched_leaf_destroy",
    "mlx5dv_sched_leaf_modify",
    "mlx5dv_sched_node_create",
    "mlx5dv_sched_node_destroy",
    "mlx5dv_sched_node_modify",
    "mlx5dv_set_context_attr",
    "rdma_create_ep",
    "rdma_join_multicast_ex",
    "rdma_query_addrinfo",
    "rdma_resolve_addrinfo",
    "rdma_write_cm_event",
    "repoll_ctl",
    "repoll_wait",
];

#[test]
fn every_exported_call_is_made_in_a_child() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = fs::read_to_string(folder.join("tests/c/inherited.c")).expect("a file of this crate");
    let served = Call::ALL.iter().map(|call| call.row());
    let served = served.filter(|row| {
        !row.is_refused && !["", CallFacts::PRIVATE].contains(&row.version) && row.act != CallAction::Convert
    });
    let names = served.map(|row| row.name).filter(|name| {
        let is_known = WITHOUT_OBJECTS.contains(name) || AS_OTHERS.contains(name);
        !is_known && !source.contains(&format!("({name},"))
    });
    let missing: Vec<&str> = names.collect();
    assert!(missing.is_empty(), "tests/c/inherited.c does not call {missing:?} in a child");
}
