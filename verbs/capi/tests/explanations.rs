//! What programs and their users are told when something goes wrong.

mod kit;

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The lines on standard error, with the program's own numbers replaced by their names.
fn explanations(output: &Output) -> Vec<String> {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: BTreeMap<&str, &str> = stdout.lines().filter_map(|line| line.split_once('=')).collect();
    let mut text = stderr(output);
    for (name, number) in names.iter().filter(|(_, number)| number.starts_with("0x")) {
        text = text.replace(number, &format!("<{name}>"));
    }
    text.lines().map(str::to_owned).collect()
}

/// The program that makes every mistake, compiled once.
fn mistakes() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(|| kit::compile("explanations")).as_deref()
}

#[test]
fn each_usual_mistake_has_its_sentence() {
    let Some(program) = mistakes() else { return };
    let output =
        kit::on(kit::address(), program).env("PUMICE_LOG", "warn").output().expect("timeout(1) runs");
    kit::succeeded("explanations", &output);
    let lines = explanations(&output);
    let all = lines.join("\n");
    for expected in [
        "ibv_query_gid refused: GID index 1024 beyond a table of 1024",
        "QP <REFUSED>: a queue pair in state RESET takes no requests",
        "QP <REFUSED> RTR refused: attribute min_rnr_timer missing for RC",
        "QP <REFUSED> modify_qp refused: invalid argument: GID index 5 has no address; `ibv_devinfo -v` lists \
         those that have",
        "QP <LONELY> send request 0x77 failed with RETRY_EXC_ERR at PSN 0x000005: the peer answered none of 2 \
         transmissions (retry_cnt 1, timeout 10: 5 ms each); is its queue pair there, in RTR, and its address \
         right?",
        "QP <EAGER> send request 0x3 failed with RNR_RETRY_EXC_ERR at PSN 0x000064: the peer had no receive \
         request posted, 2 times in a row (rnr_retry 1)",
        "QP <GUARD> refused the peer's request at PSN 0x000064 with NAK 0x62: the range is not inside the memory \
         region (R_Key <RKEY>, 8 bytes at 0x1000)",
        "QP <INTRUDER> send request 0x4 failed with REM_ACCESS_ERR at PSN 0x000064: the peer refuses the R_Key, \
         the range or the access right",
        "QP <CARELESS> failed: a completion queue of 1 entries overran; poll it more often or make it larger",
        "QP <DEAF> dropped a datagram of QP <CALLER>: its Q_Key is 0x00000008, this queue pair's 0x00000007",
        "42 more explanations were left out, of kinds that came more than 8 times a second",
    ] {
        let line = format!("pumice: {expected}");
        assert_eq!(lines.iter().filter(|found| **found == line).count(), 1, "{line}\n---\n{all}");
    }
    let dropped = |line: &&String| {
        line.starts_with("pumice: QP <DEAF> dropped the message at PSN 0x")
            && line.ends_with(": no receive request is posted")
    };
    assert_eq!(lines.iter().filter(dropped).count(), 8, "{all}");
    assert_eq!(lines.len(), 11 + 8, "{all}");
}

#[test]
fn nothing_is_said_where_nobody_wants_to_know() {
    let Some(program) = mistakes() else { return };
    let quiet = |level: Option<&str>| {
        let mut command = kit::on(kit::address(), program);
        command.env_remove("PUMICE_EXPLAIN");
        if let Some(level) = level {
            command.env("PUMICE_LOG", level);
        }
        let output = command.output().expect("timeout(1) runs");
        kit::succeeded("explanations", &output);
        explanations(&output)
    };
    // Standard error is no terminal here.
    assert_eq!(quiet(None), Vec::<String>::new());
    let errors = quiet(Some("error"));
    assert!(
        errors.len() == 5
            && errors.iter().all(|line| line.contains("failed") || line.contains("refused the peer")),
        "{errors:?}"
    );
}

#[test]
fn what_keeps_the_device_from_opening_is_said_whatever_the_level() {
    if !kit::exists("ibv_devinfo") {
        return kit::skip("no ibv_devinfo: apt-get install ibverbs-utils");
    }
    let address = kit::address();
    let refused = |variable: &str, value: &str| {
        let mut command = kit::on(address, "ibv_devinfo");
        let output = command.env("PUMICE_LOG", "off").env(variable, value).output().expect("timeout(1) runs");
        assert!(!output.status.success(), "{variable}={value}: {output:?}");
        stderr(&output).lines().filter(|line| line.starts_with("pumice: ")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(
        refused("PUMICE_LOSS", "5"),
        "pumice: PUMICE_LOSS=5: it is more than 100 %; did you mean a percentage, with % behind it?"
    );
    assert_eq!(
        refused("PUMICE_ADDR", "192.0.2.77"),
        "pumice: PUMICE_ADDR=192.0.2.77: it is no address of this host: `ip address` lists those that are, and \
         all of 127.0.0.0/8 is"
    );
    let profile = refused("PUMICE_PROFILE", "mlx5");
    assert!(
        profile.starts_with("pumice: PUMICE_PROFILE=mlx5: it is neither a built-in profile"),
        "{profile}"
    );
    let capture = refused("PUMICE_CAPTURE", "/no/such/folder/a.pcapng");
    assert!(
        capture.starts_with(
            "pumice: PUMICE_CAPTURE=/no/such/folder/a.pcapng: packets cannot be captured there: "
        ),
        "{capture}"
    );
    let held = UdpSocket::bind((address, 4791)).expect("nobody else has the address");
    let taken = refused("PUMICE_SEED", "1");
    assert_eq!(taken.lines().count(), 1, "{taken}");
    assert!(
        taken.starts_with(&format!(
            "pumice: UDP port 4791 on {address} is taken by a process of this user (uid "
        )) && taken
            .ends_with("; stop it, choose another local address, or use a network namespace of its own"),
        "{taken}"
    );
    drop(held);
}
