//! The command line as users meet it: exit codes, streams, JSON.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Output};

use pumice_device::settings::WIRE;

fn pumice(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pumice")).args(arguments).output().expect("the program can be run")
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn usage_errors_exit_with_2_and_leave_standard_output_empty() {
    for arguments in [&["no-such-command"][..], &["devices", "--no-such-option"], &["doctor", "extra"]] {
        let output = pumice(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn help_and_version_exit_with_0() {
    for arguments in [&[][..], &["--help"], &["--version"], &["doctor", "--help"]] {
        let output = pumice(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert!(!output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn the_device_is_listed_with_loopback_as_a_gid_where_there_is_nothing_else() {
    let output = pumice(&["devices"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("pumice0"), "{text}");
    let devices = json(&pumice(&["devices", "--json"]));
    let gids = devices[0]["gids"].as_array().expect("a list of GIDs");
    let on_loopback = |gid: &&serde_json::Value| gid["address"] == "127.0.0.1" || gid["address"] == "::1";
    assert!(!gids.is_empty(), "{text}");
    match gids.iter().filter(on_loopback).count() {
        0 => assert!(!text.contains(" 127.0.0.1 "), "{text}"),
        loopback => {
            assert_eq!(loopback, gids.len(), "{text}");
            assert!(text.contains("0000:0000:0000:0000:0000:ffff:7f00:0001  127.0.0.1 "), "{text}");
        }
    }
    for (index, gid) in gids.iter().enumerate() {
        assert_eq!(gid["index"], index);
    }
}

/// `pumice devices -v` with these options, and what the environment says about the wire.
fn verbose_devices(options: &[&str], wire: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.args(["devices", "-v"]).args(options).env_remove(WIRE);
    command.envs(wire.map(|wire| (WIRE, wire))).output().expect("the program can be run")
}

#[test]
fn verbose_devices_say_which_wire_is_set_by_what_and_who_is_reached() {
    for (set, wire, from) in [
        (Some("auto"), "auto", WIRE),
        (Some("udp"), "udp", WIRE),
        (Some(""), "auto", "default"),
        (None, "auto", "default"),
    ] {
        let devices = json(&verbose_devices(&["--json"], set));
        let same_host = &devices[0]["same_host"];
        assert_eq!((&same_host["wire"], &same_host["wire_from"]), (&wire.into(), &from.into()), "{devices}");
        assert!(same_host["processes"].is_array() && same_host["user"].is_u64(), "{same_host}");
        // What the machine allows, it says; if it refuses, it says what to do.
        assert_eq!(same_host["shared_memory"] == true, same_host["obstacle"].is_null(), "{same_host}");
        assert_eq!(same_host["remedy"].is_null(), same_host["obstacle"].is_null(), "{same_host}");
        let text = String::from_utf8_lossy(&verbose_devices(&[], set).stdout).into_owned();
        let words =
            if from == WIRE { format!("{WIRE}={wire}: ") } else { format!("--wire {wire}, the default: ") };
        assert!(text.contains(&words) && text.contains("  shared memory  "), "{text}");
        assert!(text.contains(&format!("processes of user {} in this", same_host["user"])), "{text}");
    }
    assert!(json(&pumice(&["devices", "--json"]))[0]["same_host"].is_null(), "without -v nothing is tried");
    let output = verbose_devices(&[], Some("tcp"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("it is auto or udp"), "{output:?}");
}

#[test]
fn the_doctor_names_who_holds_the_port_and_what_to_do() {
    // An IPv4 address that the doctor looks at. Another process that uses the port on this machine keeps it.
    let report = json(&pumice(&["doctor", "--json"]));
    let findings = report["findings"].as_array().expect("a list of findings").clone();
    let ports = findings.iter().filter(|finding| finding["check"] == "UDP port 4791");
    let address: Ipv4Addr = ports
        .filter_map(|finding| finding["found"].as_str()?.split_once(": ")?.0.parse().ok())
        .next()
        .expect("an IPv4 address is looked at");
    let held = UdpSocket::bind((address, 4791));
    let output = pumice(&["doctor", "--json"]);
    let report = json(&output);
    let findings = report["findings"].as_array().expect("a list of findings");
    for finding in findings {
        assert_eq!(finding["level"] == "ok", finding["remedy"].is_null(), "{finding}");
    }
    let port = findings
        .iter()
        .find(|f| {
            let at = format!("{address}: ");
            f["check"] == "UDP port 4791" && f["found"].as_str().is_some_and(|found| found.starts_with(&at))
        })
        .expect("the address is looked at again");
    if held.is_ok() {
        let found = port["found"].as_str().unwrap_or_default();
        assert!(found.contains(&format!("(pid {})", std::process::id())), "{found}");
        assert_eq!(port["level"], "blocking");
        assert_eq!(report["works"], false);
        assert_eq!(output.status.code(), Some(1));
    }
    drop(held);

    let text = pumice(&["doctor"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("loopback") && text.contains("The device "), "{text}");
}
