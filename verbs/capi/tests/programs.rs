//! C programs on the object.

mod kit;

use std::fs;
use std::path::Path;
use std::process::Command;

fn run(name: &str) {
    let Some(program) = kit::compile(name) else { return };
    let output = kit::on(kit::address(), program).output().expect("timeout(1) runs");
    kit::succeeded(name, &output);
}

#[test]
fn wrong_arguments_are_refused_with_their_errno() {
    run("refusals");
}

/// Each seed is another program of 20,000 calls; a failure prints the seed.
#[test]
fn calls_in_any_order_with_any_arguments_are_served_or_refused() {
    let Some(program) = kit::compile("misuse") else { return };
    for seed in 1..=8 {
        let mut command = kit::on(kit::address(), &program);
        let output = command.args([&seed.to_string(), "20000"]).output().expect("timeout(1) runs");
        kit::succeeded(&format!("misuse {seed} 20000"), &output);
    }
}

#[test]
fn handles_are_checked_and_a_second_destruction_is_an_error() {
    run("handles");
}

#[test]
fn each_limit_of_a_profile_is_kept_by_a_table_of_its_own() {
    let Some(program) = kit::compile("limits") else { return };
    let profile = kit::scratch("limits-profile").join("small.toml");
    let limits = "max_pd = 9\nmax_mr = 10\nmax_ah = 11\nmax_cq = 12\nmax_cqe = 200\nmax_qp = 13\n\
                  max_qp_wr = 50\nmax_sge = 5\nmax_srq = 14\nmax_srq_wr = 60\nmax_srq_sge = 6\n";
    std::fs::write(&profile, format!("[limits]\n{limits}")).expect("the target folder is writable");
    let output = kit::on(kit::address(), &program).env("PUMICE_PROFILE", &profile).output();
    kit::succeeded("limits", &output.expect("timeout(1) runs"));
}

#[test]
fn every_operation_arrives() {
    run("data_path");
}

#[test]
fn registered_memory_is_counted_where_a_limit_is_asked_for() {
    let Some(program) = kit::compile("memlock") else { return };
    let bytes = (8 * pumice_device::outside::process::page_bytes()).to_string();
    for (memlock_kind, memlock) in [("none", ""), ("bytes", &*bytes), ("ulimit", "ulimit")] {
        let output =
            kit::on(kit::address(), &program).arg(memlock_kind).env("PUMICE_MEMLOCK", memlock).output();
        let output_text = kit::succeeded(memlock_kind, &output.expect("timeout(1) runs"));
        let is_reported =
            output_text.contains("an adapter pins its pages") && output_text.contains("permits 32 KiB");
        assert!(memlock_kind == "none" || is_reported || bytes != "32768", "{output_text}");
    }
}

/// An option says it, or `answers_arp` of the host in a topology; the sentence names the address.
#[test]
fn nobody_connects_to_a_host_that_answers_no_arp_on_purpose() {
    let Some(program) = kit::compile("no_neighbour") else { return };
    let (own, silent, there) = (kit::address(), kit::address().to_string(), kit::address().to_string());
    let topology = kit::scratch("no-neighbour").join("star.toml");
    let hosts = format!("[\"{own}\", \"{there}\", {{ address = \"{silent}\", answers_arp = false }}]");
    let text = format!(
        "kind = \"star\"\nhosts = {hosts}\n[link]\nrate_mbps = 1000\ndelay_ns = 1000\n\
         [switch]\nqueue_bytes = 200000\n"
    );
    fs::write(&topology, text).expect("the target folder is writable");
    let output_of = |name: &str, value: &std::ffi::OsStr| {
        let mut command = kit::on(own, &program);
        let output = command.args([&silent, &there]).env(name, value).output();
        let output_text = kit::succeeded(name, &output.expect("timeout(1) runs"));
        assert!(output_text.contains(&format!("no host answers ARP for {silent}: ")), "{output_text}");
        output_text
    };
    assert!(output_of("PUMICE_NO_NEIGHBOUR", silent.as_ref()).contains("--no-neighbour"));
    assert!(output_of("PUMICE_TOPOLOGY", topology.as_os_str()).contains("answers_arp in the topology"));
}

#[test]
fn completion_counters_count_what_they_are_attached_for() {
    let Some(program) = kit::compile("completion_counters") else { return };
    for (profile, counted) in [("default", "all"), ("efa", "some"), ("rxe", "none"), ("connectx-7", "none")] {
        let output = kit::on(kit::address(), &program).arg(counted).env("PUMICE_PROFILE", profile).output();
        kit::succeeded(profile, &output.expect("timeout(1) runs"));
    }
    // Completions, data and so counters come in another order.
    let output = kit::on(kit::address(), &program).arg("all").env("PUMICE_SHUFFLE", "3").output();
    kit::succeeded("shuffled", &output.expect("timeout(1) runs"));
}

#[test]
fn events_wake_programs() {
    let Some(program) = kit::compile("events") else { return };
    for profile in ["default", "connectx", "rxe"] {
        let output = kit::on(kit::address(), &program).env("PUMICE_PROFILE", profile).output();
        kit::succeeded(&format!("events, {profile}"), &output.expect("timeout(1) runs"));
    }
}

/// The program says what it compares, and prints a line for each way of sleeping.
fn wake_up(loss: &str) {
    let Some(program) = kit::compile("wakeups") else { return };
    let output = kit::on(kit::address(), &program).env("PUMICE_LOSS", loss).output();
    kit::succeeded("wakeups", &output.expect("timeout(1) runs"));
}

#[test]
fn programs_that_sleep_wake_up_when_a_message_comes() {
    wake_up("0");
}

#[test]
fn programs_that_sleep_wake_up_when_a_lost_message_was_sent_again() {
    wake_up("0.01");
}

#[test]
fn xrc_domains_targets_and_their_openers_work_by_todays_calls() {
    run("xrc");
}

/// The sentences of OFED 1.x's manual page ibv_query_xrc_rcv_qp(3) are marked S1 to S8 in the program.
#[test]
fn xrc_receive_queue_pairs_work_by_the_calls_of_ofed() {
    run("ofed_xrc");
}

#[test]
fn regions_are_paged_on_demand() {
    run("on_demand");
}

/// The program says what the argument is.
#[test]
fn pages_that_a_handler_fills_are_there_when_a_registration_returns() {
    let Some(program) = kit::compile("missing_pages") else { return };
    for mode in ["user", "all"] {
        let output = kit::on(kit::address(), &program).arg(mode).output().expect("timeout(1) runs");
        if output.status.code() == Some(77) {
            kit::skip("the kernel has no userfaultfd for this user, of faults of system calls too");
            continue;
        }
        kit::succeeded(&format!("missing_pages {mode}"), &output);
    }
}

#[test]
fn objects_that_are_made_and_destroyed_leave_no_memory_behind() {
    let Some(program) = kit::compile("growth") else { return };
    for wire in ["", "udp"] {
        let mut command = kit::on(kit::address(), &program);
        command.env("PUMICE_WIRE", wire);
        // The program says why.
        command.env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");
        kit::succeeded(&format!("growth {wire}"), &command.output().expect("timeout(1) runs"));
    }
}

#[test]
fn calls_that_make_objects_fail_with_enomem_where_the_address_space_ends() {
    let Some(program) = kit::compile("no_memory") else { return };
    for wire in ["", "udp"] {
        let output = kit::on(kit::address(), &program).env("PUMICE_WIRE", wire).output();
        kit::succeeded(&format!("no_memory {wire}"), &output.expect("timeout(1) runs"));
    }
}

#[test]
fn the_calls_of_rdma_core_65_are_served_or_refused_as_documented() {
    run("newest_calls");
}

/// Messages leave in an order that a seed says, and each is waited for.
#[test]
fn a_device_that_looks_like_efa_has_its_calls_and_srd() {
    let Some(program) = kit::compile("efa") else { return };
    for loss in ["0", "20%"] {
        let mut command = kit::on(kit::address(), &program);
        let output = command.env("PUMICE_DEVICE", "efa").env("PUMICE_LOSS", loss).output();
        kit::succeeded(&format!("efa, loss {loss}"), &output.expect("timeout(1) runs"));
    }
}

/// Three seeds find the mistake; the program without it passes with all.
#[test]
fn a_program_that_needs_the_order_of_srd_fails_with_one_of_three_seeds() {
    let Some(program) = kit::compile("srd_order") else { return };
    let ends = |seed: u32, order: &str, is_fixed: bool| {
        let mut command = kit::on(kit::address(), &program);
        command
            .env("PUMICE_DEVICE", "efa")
            .env("PUMICE_SEED", seed.to_string())
            .env("PUMICE_SRD_ORDER", order);
        if is_fixed {
            command.env("FIXED", "yes");
        }
        command.output().expect("timeout(1) runs").status.code()
    };
    let seeds = [1, 2, 3];
    assert!(seeds.iter().any(|seed| ends(*seed, "seed", false) == Some(3)), "no seed finds it");
    assert_eq!(ends(1, "in-order", false), Some(0));
    for seed in seeds {
        assert_eq!(ends(seed, "seed", true), Some(0), "seed {seed}");
    }
}

/// Two targets, an initiator, streams, and their errors.
#[test]
fn a_device_that_looks_like_a_connectx_has_initiators_and_targets_of_dc() {
    let Some(program) = kit::compile("dc") else { return };
    for loss in ["0", "5%"] {
        let mut command = kit::on(kit::address(), &program);
        let output = command.env("PUMICE_DEVICE", "connectx-7").env("PUMICE_LOSS", loss).output();
        kit::succeeded(&format!("dc, loss {loss}"), &output.expect("timeout(1) runs"));
    }
}

/// Layouts, copies and raw requests.
#[test]
fn a_device_that_looks_like_a_connectx_has_indirect_keys_copies_and_raw_requests() {
    let Some(program) = kit::compile("mkeys") else { return };
    for loss in ["0", "5%"] {
        let mut command = kit::on(kit::address(), &program);
        let output = command.env("PUMICE_DEVICE", "connectx-7").env("PUMICE_LOSS", loss).output();
        kit::succeeded(&format!("mkeys, loss {loss}"), &output.expect("timeout(1) runs"));
    }
}

/// What a bond says of its ports, and that other devices have none.
#[test]
fn a_profile_of_a_bond_has_ports_for_queue_pairs() {
    let Some(program) = kit::compile("lag") else { return };
    let profile = kit::scratch("lag-profile").join("bond.toml");
    let vendor_profile = "vendor_id = 0x02c9\npart_id = 4129\ndv = \"calls\"\n";
    for (lag_ports, words) in [(2, &[][..]), (0, &["none"])] {
        let text = format!("{vendor_profile}lag_ports = {lag_ports}\n");
        std::fs::write(&profile, text).expect("the target folder is writable");
        let output = kit::on(kit::address(), &program).args(words).env("PUMICE_PROFILE", &profile).output();
        kit::succeeded(&format!("lag, {lag_ports} ports"), &output.expect("timeout(1) runs"));
    }
}

#[test]
fn a_device_that_looks_like_a_connectx_takes_what_mlx5_lets_programs_say() {
    let Some(program) = kit::compile("mlx5") else { return };
    let output = kit::on(kit::address(), &program).env("PUMICE_DEVICE", "connectx-7").output();
    kit::succeeded("mlx5", &output.expect("timeout(1) runs"));
}

#[test]
fn descriptors_are_readable_while_there_are_events_and_never_writable() {
    run("descriptors");
}

#[test]
fn threads_are_cancelled_where_they_wait_and_nowhere_else() {
    run("cancellation");
}

#[test]
fn device_memory_is_allocated_copied_and_registered() {
    run("device_memory");
}

#[test]
fn tags_of_messages_are_matched() {
    run("tags");
}

#[test]
fn raw_packets_need_a_right() {
    let Some(program) = kit::compile("raw_packets") else { return };
    let output = kit::on(kit::address(), program).arg("forbidden").output();
    kit::succeeded("raw_packets forbidden", &output.expect("timeout(1) runs"));
}

/// On the loopback interface, which returns what is sent there, and on one end of a cable.
#[test]
fn raw_packets_and_flow_rules_work_in_a_network_namespace() {
    let Some(program) = kit::compile("raw_packets") else { return };
    let unshared = |script: &str| {
        let mut command = kit::on(kit::address(), "unshare");
        command.args(["--map-root-user", "--net", "sh", "-c", script]).arg(&program);
        command.output().expect("timeout(1) runs")
    };
    let lo = "ip link set lo up";
    let cable = "ip link add v0 type veth peer name v1 && ip addr add 192.0.2.9/24 dev v0 && \
                 ip link set v0 up && ip link set v1 up";
    for (what, prepare, run) in [
        ("loopback", lo.to_owned(), "exec \"$0\""),
        ("cable", format!("{lo} && {cable}"), "PUMICE_ADDR=192.0.2.9 exec \"$0\" peer v1"),
    ] {
        if !unshared(&prepare).status.success() {
            kit::skip(
                "no network namespace of its own: unshare(1), ip(8), user namespaces and veth are needed",
            );
            continue;
        }
        kit::succeeded(&format!("raw_packets, {what}"), &unshared(&format!("{prepare} && {run}")));
    }
}

#[test]
fn memory_that_a_program_has_given_back_is_not_touched() {
    let Some(program) = kit::compile("given_back") else { return };
    for copy in ["cached", "streaming"] {
        let output = kit::on(kit::address(), &program).env("PUMICE_COPY", copy).output();
        kit::succeeded(&format!("given_back {copy}"), &output.expect("timeout(1) runs"));
    }
}

/// The program says what the arguments are.
#[test]
fn memory_that_goes_away_while_it_is_registered_ends_requests_only() {
    let Some(program) = kit::compile("vanished") else { return };
    for mode in ["none", "before", "after", "blocked"] {
        let output = kit::on(kit::address(), &program).arg(mode).output();
        kit::succeeded(&format!("vanished {mode}"), &output.expect("timeout(1) runs"));
    }
}

/// The program says what the argument is: a library with calls and data of its own.
#[test]
fn memory_that_goes_away_by_system_calls_of_the_programs_own_is_not_touched() {
    const LIBRARY: &str = "
        char buffer[8 * 4096] __attribute__((aligned(4096))) = {1};
        long give_back(void *at, unsigned long bytes) {
            long number = 11;
            #if defined __x86_64__
            __asm__ volatile(\"syscall\" : \"+a\"(number) : \"D\"(at), \"S\"(bytes)
                             : \"rcx\", \"r11\", \"memory\");
            #endif
            return number;
        }";
    let Some(program) = kit::compile("own_calls") else { return };
    let folder = kit::scratch("own_calls_library");
    let (source, library) = (folder.join("library.c"), folder.join("library.so"));
    fs::write(&source, LIBRARY).unwrap();
    kit::build(Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source));
    for wire in ["auto", "udp"] {
        let output = kit::on(kit::address(), &program).arg(&library).env("PUMICE_WIRE", wire).output();
        kit::succeeded(&format!("own_calls by {wire}"), &output.expect("timeout(1) runs"));
    }
}

#[test]
fn the_manual_pages_of_poll_cq_post_recv_and_req_notify_cq_hold() {
    run("manual");
}

#[test]
fn domains_are_separate_and_destroyed_in_order() {
    run("domains");
}

#[test]
fn devices_and_their_objects_are_imported() {
    run("import");
}

#[test]
fn a_series_is_posted_whole_or_not_at_all() {
    run("series");
}

#[test]
fn objects_of_another_context_are_refused() {
    run("contexts");
}

#[test]
fn queues_follow_their_manual_pages() {
    run("queues");
}

#[test]
fn regions_change_and_windows_open_them() {
    run("regions");
}

#[test]
fn the_gid_table_follows_the_hosts_addresses() {
    let Some(program) = kit::compile("addresses") else { return };
    // All addresses of the program's own network namespace.
    let all = |program: &Path| {
        let mut command = kit::on(kit::address(), program);
        command.env_remove("PUMICE_ADDR");
        command
    };
    let mut lids = all(&program);
    lids.env("PUMICE_LID", "1");
    let mut one = all(&program);
    one.env("PUMICE_ADDR", "10.77.0.1");
    for (name, mut command) in [("all addresses", all(&program)), ("LIDs", lids), ("one address", one)] {
        let output = command.output().expect("timeout(1) runs");
        if output.status.code() == Some(77) {
            return kit::skip(
                "a network namespace of its own needs root, and changing addresses the program ip(8)",
            );
        }
        kit::succeeded(name, &output);
    }
}

#[test]
fn loopback_is_reached_beside_real_addresses_and_link_local_ones_over_their_link() {
    let Some(program) = kit::compile("loopback") else { return };
    let mut command = kit::on(kit::address(), program);
    let output = command.env_remove("PUMICE_ADDR").output().expect("timeout(1) runs");
    if output.status.code() == Some(77) {
        return kit::skip(
            "network namespaces of its own need root, and interfaces the program ip(8) and the kernel's veth",
        );
    }
    kit::succeeded("loopback", &output);
}

#[test]
fn asynchronous_events_arrive_late_and_are_acknowledged() {
    run("async_events");
}

#[test]
fn bad_input_is_refused_and_leaves_nothing() {
    run("bad_input");
}

#[test]
fn every_transition_takes_what_it_needs_and_nothing_else() {
    run("transitions");
}

#[test]
fn threads_on_shared_objects_lose_nothing() {
    run("stress");
}

#[test]
fn a_thread_that_polls_under_a_spin_lock_does_not_keep_it_from_another() {
    run("lock_around_polls");
}

#[test]
fn calls_of_rdma_cm_wait_for_acknowledgements_and_answers_that_fail_reach_the_peer() {
    run("acknowledgements");
}

#[test]
fn connections_by_address_report_their_events_in_order() {
    run("connections");
}

#[test]
fn identifiers_join_and_leave_multicast_groups() {
    run("multicast_groups");
}

#[test]
fn identifiers_have_shared_receive_queues_paths_and_addresses_by_gid() {
    run("identifiers");
}

#[test]
fn endpoints_options_and_early_requests() {
    run("endpoints");
}

#[test]
fn processes_that_exit_or_fork_leave_their_peers_informed() {
    run("processes");
}

#[test]
fn rsockets_carry_what_is_written_and_end_as_they_should() {
    run("rsockets");
}

#[test]
fn an_xrc_receive_queue_pair_serves_several_processes_and_outlives_its_maker() {
    run("ofed_xrc_shared");
}
