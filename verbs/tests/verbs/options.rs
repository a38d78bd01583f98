//! `DeviceOptions` in simulations: traces, captures, faults and their report, tags, names.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_device::trace::{Item, Timeline, TraceReader};
use pumice_verbs::{DeviceOptions, FabricConfig, FaultPlan, Limits, Mtu, SendRequest, Simulation};

use crate::kit::{TestSide, connected};

const MESSAGES: u64 = 20;

pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

/// Writes messages from a device with these options to one without any.
fn write_messages(options: DeviceOptions) {
    let simulation = Simulation::new(FabricConfig::default());
    let a = TestSide::new(simulation.device_with(options.addresses([address(1)])).unwrap());
    let b = TestSide::new(simulation.device(address(2)).unwrap());
    let (qp, _peer) = connected(&a, &b);
    for wr_id in 0..MESSAGES {
        let local = [a.memory.slice(..100).unwrap()];
        let target = b.memory.remote().slice(..100).unwrap();
        qp.post_send(&SendRequest::write(&local, target).wr_id(wr_id).signaled()).unwrap();
        a.expect(wr_id);
    }
}

#[test]
fn a_trace_has_every_message_and_is_the_same_in_every_run() {
    let folder = scratch("trace");
    let trace = |name: &str| {
        let file = folder.join(name);
        write_messages(DeviceOptions::new().tag("one").trace(&file));
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only this user may read it");
        file
    };
    let (file, again) = (trace("first"), trace("again"));
    let name = String::from("first");
    let timeline = Timeline::read([(name, File::open(&file).unwrap())]).unwrap();
    let [process] = timeline.processes.as_slice() else { panic!("one process") };
    let [qp] = process.queue_pairs.as_slice() else { panic!("one queue pair") };
    assert_eq!((process.header.tag.as_str(), qp.ordinal, qp.service.as_str()), ("one", 0, "RC"));
    let written: Vec<(u64, u32)> = qp.messages.iter().map(|one| (one.wr_id, one.bytes)).collect();
    assert_eq!(written, (0..MESSAGES).map(|wr_id| (wr_id, 100)).collect::<Vec<_>>());
    assert!(qp.messages.iter().all(|one| one.end.is_some() && one.acknowledged_ns > Some(one.posted_ns)));
    // Virtual time: the records are those of the other run, to the nanosecond.
    assert_eq!(records(&file), records(&again));
    assert!(records(&file).len() as u64 > 4 * MESSAGES);
}

fn records(file: &Path) -> Vec<String> {
    let mut reader = TraceReader::open(File::open(file).unwrap()).unwrap();
    let mut all = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Record(at_ns, record) = item {
            all.push(format!("{at_ns} {record:?}"));
        }
    }
    assert!(reader.header().is_ended);
    all
}

#[test]
fn a_trace_is_bounded_and_counts_what_it_leaves_out() {
    let file = scratch("trace-limit").join("trace");
    write_messages(DeviceOptions::new().trace(&file).trace_limit_bytes(2000));
    let reader = TraceReader::open(File::open(&file).unwrap()).unwrap();
    assert!(reader.header().omitted_records > 0);
    assert!(fs::metadata(&file).unwrap().len() <= 2000);
    let nowhere = scratch("trace-nowhere").join("no folder").join("trace");
    let simulation = Simulation::new(FabricConfig::default());
    let options = DeviceOptions::new().addresses([address(1)]).trace(nowhere);
    let refused = simulation.device_with(options).unwrap_err().to_string();
    assert!(refused.contains("write the trace"), "{refused}");
}

#[test]
fn faults_their_report_and_captures_work_in_virtual_time() {
    let folder = scratch("options");
    let (report, capture) = (folder.join("faults.jsonl"), folder.join("packets.pcapng"));
    let sentences = Arc::new(Mutex::new(Vec::new()));
    let sentence_log = Arc::clone(&sentences);
    let plan = FaultPlan::seeded(7).with_line("drop opcode=write nth=3").unwrap();
    let options = DeviceOptions::new().tag("one").faults(plan).fault_report(&report).capture(&capture);
    write_messages(options.explain_faults(move |sentence| {
        sentence_log.lock().unwrap_or_else(PoisonError::into_inner).push(sentence.to_owned());
    }));
    let text = fs::read_to_string(report).unwrap();
    let line = "\"rule\":\"drop\",\"tag\":\"one\",\"service\":\"rc\",\"qp\":0,\"connection\":0,\"side\":\
                \"requester\",\"opcode\":\"write\",\"message\":2,";
    assert!(text.contains(line) && text.ends_with("{\"process\":\"one\",\"never\":[]}\n"), "{text}");
    let bytes = fs::read(capture).unwrap();
    let lost = b"pumice: lost: fault \"drop\" loses write of message 2";
    assert!(bytes.windows(lost.len()).any(|part| part == lost));
    let sentences = sentences.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(
        sentences.iter().any(|sentence| sentence.starts_with("fault \"drop\" loses write")),
        "{sentences:?}"
    );
}

#[test]
fn names_limits_and_mtus_are_those_that_were_asked_for() {
    let simulation = Simulation::new(FabricConfig::default());
    let limits = Limits { max_cqe: 10, ..Limits::default() };
    let options = DeviceOptions::new().name("mine").limits(limits).active_mtu(Mtu::Mtu512);
    let device = simulation.device_with(options.addresses([address(1), address(2)])).unwrap();
    assert_eq!((device.name(), device.active_mtu(), device.gids().len()), ("mine", Mtu::Mtu512, 2));
    assert!(device.completion_queue(10).is_ok() && device.completion_queue(11).is_err());
    let other = simulation.device(address(3)).unwrap();
    assert_eq!(other.name(), "pumice1", "by the order in which they were made");
    assert!(simulation.device_with(DeviceOptions::new()).is_err(), "without an address");
}
