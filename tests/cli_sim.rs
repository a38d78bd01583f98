//! `pumice sim` as users meet it: reproducible, honest, and clear about wrong flags.

use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pumice"))
        .arg("sim")
        .args(arguments)
        .output()
        .expect("the program can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const FAULTY: [&str; 12] = [
    "--loss",
    "1%",
    "--reorder",
    "0.5%",
    "--duplicate",
    "1e-2",
    "--corrupt",
    "0.2%",
    "--jitter",
    "5us",
    "--messages",
    "40",
];

#[test]
fn the_same_seed_gives_the_same_report_and_another_seed_another() {
    for operation in ["write", "read", "send", "atomic", "mixed"] {
        let run = |seed: &str| {
            let output =
                sim(&[&FAULTY[..], &["--seed", seed, "--op", operation, "--hcas", "3", "--qps", "4"]]
                    .concat());
            assert!(output.status.success(), "{operation}: {output:?}");
            text(&output.stdout)
        };
        let first = run("7");
        assert_eq!(first, run("7"), "{operation}");
        assert_ne!(first, run("8"), "{operation}");
        assert!(first.contains("160 of 160 done, 0 wrong"), "{first}");
        assert!(first.ends_with("every byte arrived as it was sent\n"), "{first}");
    }
}

#[test]
fn the_report_of_a_seed_is_the_same_on_every_machine() {
    let output = sim(&["--seed", "1", "--loss", "1%", "--op", "mixed", "--messages", "50", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["messages_done"], 50);
    assert_eq!(report["messages_wrong"], 0);
    assert!(report["fabric"]["lost"].as_u64().is_some_and(|lost| lost > 0), "{report}");
    let again = sim(&["--seed", "1", "--loss", "1%", "--op", "mixed", "--messages", "50", "--json"]);
    assert_eq!(output.stdout, again.stdout);
}

#[test]
fn a_network_that_loses_everything_is_reported_and_exits_with_1() {
    let output = sim(&["--loss", "100%", "--messages", "3"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = text(&output.stdout);
    assert!(report.contains("RETRY_EXC_ERR") && report.contains("NOT everything arrived"), "{report}");
}

#[test]
fn wrong_flags_are_answered_with_a_sentence() {
    for (arguments, part) in [
        (&["--loss", "7"][..], "percentage"),
        (&["--loss", "often"], "1%, 0.5% or 1e-3"),
        (&["--delay", "10"], "10us"),
        (&["--rate", "fast"], "10G"),
        (&["--size", "2G"], "at most 1G"),
        (&["--mtu", "1500"], "choose 256, 512, 1024, 2048 or 4096"),
        (&["--hcas", "1"], "2..=64"),
        (&["--op", "shout"], "write"),
    ] {
        let output = sim(arguments);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(part), "{arguments:?}: {output:?}");
    }
}

#[test]
fn a_capture_holds_what_the_first_device_sent_and_received() {
    let file = std::env::temp_dir().join(format!("pumice-sim-{}.pcapng", std::process::id()));
    let path = file.to_str().expect("a path in UTF-8");
    let output = sim(&["--messages", "2", "--size", "8K", "--capture", path]);
    assert!(output.status.success(), "{output:?}");
    let decoded = Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args(["capture", path])
        .output()
        .expect("the program can be run");
    let _ = std::fs::remove_file(&file);
    let listing = text(&decoded.stdout);
    assert!(decoded.status.success(), "{listing}");
    assert!(listing.contains("10.0.0.1") && listing.contains("10.0.0.2"), "{listing}");
    let refused = sim(&["--capture", "/no/such/folder/x.pcapng"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("/no/such/folder"), "{refused:?}");
}
