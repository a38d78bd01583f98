//! `pumice stat` and the processes that it asks.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::{Hca, HcaConfig, QpInit};
use pumice_device::platform::clock::Clock;
use pumice_device::port::UdpConfig;
use pumice_device::resources::CqSetup;
use pumice_device::sharing::{SharedPort, SharedPortConfig};
use pumice_transport::host::Counter;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{Mtu, QpCapacity, QpState, QpType};
use pumice_transport::wire::Qpn;
use serde_json::Value;

/// A registry and a UDP port of their own.
struct TestRegistry {
    folder: PathBuf,
    port: u16,
}

impl TestRegistry {
    fn new(name: &str, number: u16) -> TestRegistry {
        let folder = std::env::temp_dir().join(format!("pumice-stat-{name}-{}", std::process::id()));
        TestRegistry { folder, port: 28_000 + number + (std::process::id() % 400) as u16 * 2 }
    }

    fn open(&self) -> SharedPort {
        let address = IpAddr::V4(Ipv4Addr::new(127, 108, 4, 1));
        let udp = UdpConfig { port: self.port, ..UdpConfig::new(address) };
        let config = SharedPortConfig { folder: Some(self.folder.clone()), ..SharedPortConfig::new(udp) };
        SharedPort::open(&config).expect("a port of our own")
    }

    fn stat(&self, options: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.arg("stat").arg("--registry").arg(&self.folder).arg("--port").arg(self.port.to_string());
        command.args(options).output().expect("the program runs")
    }
}

impl Drop for TestRegistry {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(Path::new(&self.folder));
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn hca(port: SharedPort) -> Hca {
    let gid = GidEntry::new(port.medium().address(), "lo", 1, Mtu::Mtu4096);
    let config = HcaConfig { process: port.process(), ..HcaConfig::new("pumice0", vec![gid]) };
    Hca::open(config, Box::new(port), Clock::monotonic()).expect("a device")
}

#[test]
fn counters_of_running_processes_are_shown() {
    let registry = TestRegistry::new("running", 0);
    let (one, other) = (registry.open(), registry.open());
    let indexes = [one.process().value(), other.process().value()];
    let devices = [hca(one), hca(other)];
    devices[1].counters().add(Counter::RxBadIcrc, 41);
    let output = registry.stat(&["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let all = all.as_array().expect("an array");
    assert_eq!(all.len(), 2);
    for (process, index) in all.iter().zip(indexes) {
        assert_eq!((&process["pid"], &process["process_index"]), (&std::process::id().into(), &index.into()));
        assert_eq!(process["address"], "127.108.4.1");
        assert!(process["program"].as_str().is_some_and(|name| !name.is_empty()));
    }
    assert_eq!(all[0]["counters"]["rx_bad_icrc"], 0);
    assert_eq!(all[1]["counters"]["rx_bad_icrc"], 41);
    assert!(all[1]["counters"]["share_rejected"].is_u64());
    let output = registry.stat(&[]);
    let shown = text(&output);
    assert!(output.status.success() && shown.contains("packets with a wrong ICRC"), "{shown}");
    assert!(shown.contains(&format!("process {} (", std::process::id())), "{shown}");
    // Counters that are asked for while they change do not go back.
    devices[1].counters().add(Counter::RxBadIcrc, 1);
    let shown = text(&registry.stat(&["--all", "--pid", &std::process::id().to_string()]));
    assert!(shown.contains("42") && shown.contains("rx_bad_pkey"), "{shown}");
}

#[test]
fn a_process_with_many_queue_pairs_is_asked_page_by_page() {
    let registry = TestRegistry::new("many", 2);
    let device = hca(registry.open());
    let pd = device.alloc_pd().expect("a PD");
    let setup = CqSetup { depth: 16, ..CqSetup::default() };
    let cq = device.create_cq(setup).expect("a CQ").handle();
    let (max_send_wr, max_recv_wr) = (4, 4);
    let capacity = QpCapacity { max_send_wr, max_recv_wr, max_send_sge: 1, ..QpCapacity::default() };
    let mut numbers: Vec<u64> = (0..400)
        .map(|_| {
            let init = QpInit {
                qp_type: QpType::Rc,
                pd: Some(pd),
                send_cq: Some(cq),
                recv_cq: Some(cq),
                srq: None,
                xrcd: None,
                capacity,
                signal_all: true,
                cookie: 0,
            };
            u64::from(device.create_qp(&init).expect("a queue pair").0.value())
        })
        .collect();
    // The last one goes to ERR, which is said in words.
    let last = Qpn::new(numbers[399] as u32);
    let state =
        |state: QpState| QpAttributes { qp_state: state as u32, port_num: 1, ..QpAttributes::default() };
    let init =
        AttributeMask::STATE | AttributeMask::PKEY_INDEX | AttributeMask::PORT | AttributeMask::ACCESS_FLAGS;
    device.modify_qp(last, &state(QpState::Init), init).expect("INIT");
    device.modify_qp(last, &state(QpState::Err), AttributeMask::STATE).expect("ERR");
    numbers.sort_unstable();
    let all: Value = serde_json::from_slice(&registry.stat(&["--json"]).stdout).expect("JSON");
    let objects = &all[0]["objects"];
    let qps = objects["qps"].as_array().expect("an array");
    let shown: Vec<u64> = qps.iter().map(|qp| qp["qpn"].as_u64().expect("a number")).collect();
    let failed = qps.iter().find(|qp| qp["qpn"] == last.value()).expect("it is listed");
    assert_eq!(failed["state"], "ERR");
    assert!(failed["last_error"].as_str().is_some_and(|words| words.contains("modify")), "{failed}");
    assert_eq!(shown, numbers, "each once, in order");
    assert_eq!((&objects["totals"]["qps"], &objects["cqs"][0]["users"]), (&400.into(), &800.into()));
    let text = text(&registry.stat(&[]));
    assert!(text.contains("and 384 more queue pairs (--all shows more)"), "{text}");
}

#[test]
fn a_process_that_does_not_answer_is_reported() {
    let registry = TestRegistry::new("silent", 1);
    // No thread drives it.
    let _port = registry.open();
    let output = registry.stat(&["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(all[0]["counters"], Value::Null);
    assert!(text(&registry.stat(&[])).contains("does not answer"));
}

#[test]
fn without_processes_there_is_nothing_to_show() {
    let registry = TestRegistry::new("alone", 800);
    let output = registry.stat(&[]);
    assert!(output.status.success() && text(&output).contains("no process"), "{}", text(&output));
    let output = registry.stat(&["--json"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "[]");
    let output = registry.stat(&["--pid", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("no process 1"), "{}", text(&output));
}
