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

/// A file with a topology, for one test.
struct TopologyFile(std::path::PathBuf);

impl TopologyFile {
    fn new(name: &str, text: &str) -> TopologyFile {
        let path = std::env::temp_dir().join(format!("pumice-sim-{name}-{}.toml", std::process::id()));
        std::fs::write(&path, text).expect("the folder of temporary files is writable");
        TopologyFile(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for TopologyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const STAR: &str = "kind = \"star\"\nhosts = 5\n[link]\nrate_mbps = 40000\ndelay_ns = 1000\n\
                    [switch]\nqueue_bytes = 4000000\n\
                    [switch.ecn]\nmin_bytes = 5000\nmax_bytes = 200000\nmost_ppm = 10000\n";

#[test]
fn an_incast_fills_the_queue_of_one_port_and_dcqcn_keeps_it_short() {
    let star = TopologyFile::new("star", STAR);
    let run = |congestion: &str| {
        let arguments = [
            "--topology",
            star.path(),
            "--incast",
            "--qps",
            "4",
            "--size",
            "256K",
            "--congestion",
            congestion,
            "--json",
        ];
        let (output, again) = (sim(&arguments), sim(&arguments));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, again.stdout);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")
    };
    let of_port = |report: &serde_json::Value, name: &str, what: &str| {
        let ports = report["ports"].as_array().expect("queues");
        assert_eq!(ports.len(), 10, "one each way for each host");
        let port = ports.iter().find(|port| port["name"] == name).expect("a port of this name");
        port[what].as_u64().expect("a number")
    };
    let counted = |report: &serde_json::Value, name: &str| {
        let counters = report["counters"].as_array().expect("counters");
        counters
            .iter()
            .find(|counter| counter[0] == name)
            .and_then(|counter| counter[1].as_u64())
            .unwrap_or(0)
    };
    let (window, dcqcn) = (run("window"), run("dcqcn"));
    for report in [&window, &dcqcn] {
        assert_eq!((&report["messages_done"], &report["messages_wrong"]), (&400.into(), &0.into()));
        // All messages pass this port, with their headers.
        assert!(of_port(report, "leaf 0 to host 0", "sent_bytes") > 400 << 18);
    }
    // Only what is sent with DCQCN says that it may be marked.
    assert_eq!((of_port(&window, "leaf 0 to host 0", "marked"), counted(&window, "tx_cnp")), (0, 0));
    assert!(of_port(&dcqcn, "leaf 0 to host 0", "marked") > 0);
    assert!(counted(&dcqcn, "tx_cnp") > 0, "{dcqcn}");
    assert_eq!(counted(&dcqcn, "tx_cnp"), counted(&dcqcn, "rx_cnp"));
    let [lost, paced_drops] = [&window, &dcqcn].map(|report| of_port(report, "leaf 0 to host 0", "dropped"));
    assert!(lost > 0 && window["fabric"]["queue_drops"] == lost, "{window}");
    assert_eq!(paced_drops, 0, "{dcqcn}");
}

#[test]
fn hosts_of_a_topology_are_the_hcas() {
    let named = STAR.replace("hosts = 5", "hosts = [\"192.0.2.1\", \"192.0.2.2\", \"192.0.2.3\"]");
    let file = TopologyFile::new("named", &named);
    let output = sim(&["--topology", file.path(), "--messages", "3", "--qps", "3"]);
    assert!(output.status.success(), "{output:?}");
    let report = text(&output.stdout);
    assert!(report.starts_with("seed 1: 3 HCAs, 3 connections"), "{report}");
    for part in ["192.0.2.2  40000 Mbit/s, 1000 ns", "host 192.0.2.3 to leaf 0", "congestion: window"] {
        assert!(report.contains(part), "{part}: {report}");
    }
    for (name, text_of_file, arguments, part) in [
        ("one", STAR.replace("hosts = 5", "hosts = 1"), &[][..], "has 1 hosts, and a simulation has 2 to 64"),
        ("wrong", STAR.replace("mbps = 40000", "mbps = 0"), &[], "link.rate_mbps is 0"),
        ("rate", STAR.to_owned(), &["--rate", "1G"], "cannot be used with"),
    ] {
        let file = TopologyFile::new(name, &text_of_file);
        let output = sim(&[&["--topology", file.path()], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(part), "{name}: {output:?}");
    }
    let missing = sim(&["--topology", "/no/such/topology.toml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("/no/such/topology.toml"), "{missing:?}");
}
