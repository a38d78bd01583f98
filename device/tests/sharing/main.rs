//! Real processes that share one UDP port: traffic between all of them, killed ones, damaged registries,
//! wrong steering, other users, fork children.
//!
//! Each test has loopback addresses and a registry folder of its own. The processes are this test program
//! again, in the role that the test `process` gives it.

#![allow(clippy::print_stdout)] // reasons for skipping

mod bare;
mod child;
mod fleet;
mod progress;
mod ring_kills;
mod stopped;
mod users;
mod xrc;
mod xrc_child;

use std::fs;
use std::process::Command;
use std::time::Duration;

use fleet::{Fleet, Scene, Stats};
use pumice_device::port::{GsoBatch, Port, ProcessGroup, wait_readable};
use pumice_device::sharing::{SharedPort, SharedPortConfig, port_processes};
use pumice_transport::path::{Flow, Path};

/// Not a test: what a child process runs, which is told so by its environment.
#[test]
fn process() {
    match std::env::var("PUMICE_SHARING_ROLE").as_deref() {
        Ok("hca") => child::run(),
        Ok("bare") => bare::run(),
        Ok("flood") => ring_kills::run(),
        Ok("survivor") => ring_kills::survive(),
        Ok("xrc") => xrc_child::run(),
        Ok("stranger") => users::run_stranger(),
        _ => {}
    }
}

#[test]
fn eight_processes_talk_to_each_other_and_survive_kills() {
    let scene = Scene::new();
    let mut fleet = Fleet::start(&scene, 8);
    fleet.connect();
    fleet.meet();
    fleet.run(40);
    for stats in fleet.stats() {
        assert_eq!((stats.unknown_qpn, stats.rejected), (0, 0), "{stats:?}");
        assert_eq!(stats.forwarded, 0, "the steering was right: {stats:?}");
    }
    // The first of the group, one in the middle, the last.
    for victim in [0, 4, 7] {
        fleet.begin(120);
        fleet.wait_for_progress();
        fleet.kill(victim);
        fleet.finish();
        // Alone again, and nothing of what is verified may be lost or misplaced.
        fleet.run(20);
        fleet.meet();
    }
    assert_eq!(fleet.members().len(), 5);
    fleet.quit();
    assert_eq!(scene.members().len(), 0);
}

#[test]
fn wrong_steering_costs_a_detour_and_no_packet() {
    // Packets in rings are not steered.
    let scene = Scene::on_udp();
    let mut fleet = Fleet::start(&scene, 4);
    fleet.connect();
    fleet.run(10);
    fleet.missteer(0);
    fleet.run(30);
    let all: Stats = fleet.stats().into_iter().sum();
    assert!(all.forwarded > 0 && all.taken_over > 0 && all.mended > 0, "{all:?}");
    assert_eq!((all.unknown_qpn, all.rejected), (0, 0), "{all:?}");
    // Mended: what comes now finds its way. Packets on their way meanwhile may still have been astray.
    fleet.run(10);
    let before: Stats = fleet.stats().into_iter().sum();
    fleet.run(30);
    let after: Stats = fleet.stats().into_iter().sum();
    assert_eq!(after.forwarded, before.forwarded, "{after:?}");
}

#[test]
fn a_damaged_registry_does_not_stop_those_who_live_or_come() {
    let scene = Scene::new();
    let mut fleet = Fleet::start(&scene, 2);
    for (round, damage) in [&b"pumiceS1 but then nonsense"[..], &[0xa5; 40_000]].into_iter().enumerate() {
        fs::write(scene.registry(), damage).unwrap();
        fleet.add(2);
        fleet.connect();
        fleet.run(20);
        assert_eq!(fleet.members().len(), 4 + 2 * round, "all processes are in the registry again");
    }
    fleet.quit();
    assert_eq!(scene.members().len(), 0);
}

#[test]
fn starting_and_stopping_leaves_nothing_behind() {
    let scene = Scene::new();
    let mut indices = Vec::new();
    for cycle in 0..100 {
        let mut fleet = Fleet::start(&scene, 1);
        indices.push(fleet.indices()[0]);
        // Every tenth is killed.
        if cycle % 10 == 3 {
            fleet.kill(0);
        } else {
            fleet.quit();
        }
    }
    assert_eq!(indices, (1..=100).collect::<Vec<u8>>(), "no index is given again soon");
    let mut left: Vec<_> = fs::read_dir(scene.folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    left.sort();
    // The registry, the backlogs and the counters.
    let beside = |end: &str| format!("{}{end}", scene.registry().display());
    let known =
        left.len() == 3 && left[0] == scene.registry() && left[1].to_string_lossy() == beside("-backlog");
    assert!(known && left[2].to_string_lossy().starts_with(&beside("-counted")), "{left:?}");
    assert_eq!(scene.members().len(), 0);
    drop(SharedPort::open(&scene.config(scene.address())).unwrap());
}

#[test]
fn another_user_is_refused_with_a_reason() {
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } != 0 {
        return println!("SKIPPED: only root can start a process of another user");
    }
    let stranger = |scene: &Scene| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        bare::command(command, scene)
    };
    if !Command::new("setpriv").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return println!("SKIPPED: there is no setpriv");
    }
    let scene = Scene::new();
    let _port = SharedPort::open(&scene.config(scene.address())).unwrap();
    // With a folder of its own: the kernel refuses. With ours: so do we.
    let folder = format!("/tmp/pumice-sharing-stranger-{}", std::process::id());
    let own = scene.with_folder(&folder);
    let _ = fs::remove_dir_all(own.folder());
    let refusal = bare::refusal(stranger(&own));
    let Some(refusal) = refusal else {
        return println!("SKIPPED: user 65534 may not run this test program");
    };
    assert!(refusal.contains("is taken by a process of user 0"), "{refusal}");
    assert!(refusal.contains("this one runs as uid 65534"), "{refusal}");
    fs::remove_dir_all(own.folder()).unwrap();
    let refusal = bare::refusal(stranger(&scene)).unwrap();
    assert!(refusal.contains("ermission denied"), "{refusal}");
}

#[test]
fn fork_children_neither_release_an_index_nor_keep_it_for_ever() {
    let scene = Scene::new();
    let mut port = SharedPort::open(&scene.config(scene.address())).unwrap();
    let mut parent = bare::Bare::start(&scene);
    let index = parent.index();
    // A child that closes everything on its way out changes nothing: packets go where they went.
    parent.ask("fork-and-drop");
    assert_eq!(scene.members().len(), 2);
    send(&mut port, index);
    send(&mut port, 0);
    assert_eq!(receive(&mut port), 0);
    assert_eq!(port.counters().stats().forwarded, 0);
    drop(port);
    // A child that stays keeps the socket in its group, so also the index.
    let child = parent.ask("fork-and-stay").parse().unwrap();
    let child = bare::Stranger::new(child);
    parent.kill();
    assert_eq!(scene.members().iter().map(|member| member.process().value()).collect::<Vec<_>>(), [index]);

    // But nothing is sent into that dead end: packets of no process go to the lowest index that is read.
    let mut port = SharedPort::open(&scene.config(scene.address())).unwrap();
    assert!(port.process().value() > index);
    send(&mut port, 0);
    assert_eq!(receive(&mut port), 0);
    drop(port);
    let mut fleet = Fleet::start(&scene, 4);
    fleet.connect();
    fleet.run(10);
    let all: Stats = fleet.stats().into_iter().sum();
    assert_eq!((all.forwarded, all.unknown_qpn), (0, 0), "{all:?}");
    fleet.quit();
    child.kill();
    assert_eq!(scene.members().len(), 0);

    // The same when the parent leaves in good order.
    let mut parent = bare::Bare::start(&scene);
    let child = bare::Stranger::new(parent.ask("fork-and-stay").parse().unwrap());
    parent.quit();
    assert_eq!(scene.members().len(), 1);
    child.kill();
    assert_eq!(scene.members().len(), 0);
}

#[test]
fn processes_of_two_hosts_talk_over_a_veth_pair() {
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } != 0 {
        return println!("SKIPPED: only root can make network namespaces");
    }
    let Some(hosts) = fleet::TwoHosts::new() else {
        return println!("SKIPPED: network namespaces cannot be made here (ip netns)");
    };
    let scene = Scene::new();
    let mut fleet = Fleet::default();
    for (namespace, address) in hosts.iter() {
        for _ in 0..2 {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", namespace]);
            fleet.push(command, &scene.with_address(address));
        }
    }
    assert_eq!(fleet.indices(), [1, 2, 1, 2], "each host has a registry");
    fleet.connect();
    fleet.run(40);
    fleet.begin(120);
    fleet.wait_for_progress();
    fleet.kill(0);
    fleet.finish();
    fleet.run(20);
    let all: Stats = fleet.stats().into_iter().sum();
    assert_eq!(all.rejected, 0, "{all:?}");
    fleet.quit();
}

#[test]
fn the_registry_can_be_asked_who_shares() {
    let scene = Scene::new();
    let open = || SharedPort::open(&SharedPortConfig { ..scene.config(scene.address()) }).unwrap();
    let (a, b) = (open(), open());
    let found = port_processes(4791, Some(scene.folder())).unwrap();
    let own = std::process::id();
    let told: Vec<_> = found.iter().map(|sharer| (sharer.process(), sharer.pid, sharer.address)).collect();
    assert_eq!(told, [(a.process(), own, scene.address()), (b.process(), own, scene.address())]);
}

/// Sends a packet to a process index at the port's own address.
fn send(port: &mut SharedPort, index: u8) {
    let address = port.medium().address();
    let flow = Flow { source: address, destination: address, source_port: 4791, destination_port: 4791 };
    let path = Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
    let mut bytes = [0; 16];
    bytes[5] = index;
    port.transmit(0, &GsoBatch::new(&path, 16, &bytes)).unwrap();
}

/// The process index in the next packet that a port hands up.
fn receive(port: &mut SharedPort) -> u8 {
    let mut index = None;
    while index.is_none() {
        if !port.receive(0, &mut |received| index = received.bytes.get(5).copied()) {
            assert!(wait_readable(&port.descriptors(), None, Some(Duration::from_secs(60))).unwrap());
            port.woken();
        }
    }
    index.unwrap()
}
