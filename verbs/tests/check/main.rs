//! `DeviceOptions::check` on programs with planted mistakes, and on the same programs without them.

mod planted;

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use planted::{PROGRAMS, PlantedEnd};
use pumice_verbs::{CheckOptions, Device, DeviceOptions, FabricConfig, Frame, ReportEntry, Simulation};

/// What the child process of a test is told by.
const PLANTED: &str = "PUMICE_TEST_PLANTED";

/// An address that no other test uses.
fn address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let own = std::process::id();
    IpAddr::from([127, 150 + (own >> 8 & 0x3f) as u8, own as u8, NEXT.fetch_add(1, Ordering::Relaxed)])
}

fn options() -> DeviceOptions {
    DeviceOptions::new().addresses([address()])
}

/// The line of the planted mistake of this kind.
fn planted_line(kind: &str) -> u32 {
    let mark = format!("// BUG: {kind}");
    let source = include_str!("planted.rs");
    let found = source.lines().zip(1..).find(|(line, _)| line.ends_with(&mark));
    found.expect("the source says where it is").1
}

/// Whether a finding has a frame in this line of the programs, in its stack or in another that belongs to it.
fn is_at(entry: &ReportEntry, line: u32) -> bool {
    let related = entry.related.iter().flat_map(|stack| &stack.frames);
    let is_here = |frame: &Frame| {
        frame.line == Some(line)
            && frame.file.as_deref().is_some_and(|file| file.ends_with("check/planted.rs"))
    };
    entry.frames.iter().chain(related).any(is_here)
}

fn kinds(entries: &[ReportEntry]) -> Vec<&'static str> {
    entries.iter().map(|entry| entry.finding.kind.name).collect()
}

/// What a program was found to do wrong on a device.
fn found(device: Device, kind: &str, is_fixed: bool) -> Vec<ReportEntry> {
    let (_, program) = PROGRAMS.into_iter().find(|(name, _)| *name == kind).expect("a program");
    let end = PlantedEnd::new(device).unwrap();
    program(&end, is_fixed).unwrap();
    end.device.findings()
}

fn assert_found(kind: &str, entries: &[ReportEntry]) {
    let line = planted_line(kind);
    assert_eq!(kinds(entries), [kind], "{entries:#?}");
    assert!(is_at(&entries[0], line), "{kind} at {line}: {entries:#?}");
    // The innermost frame is one of the program's, not one of this crate's.
    let innermost = entries[0].frames.first().and_then(|frame| frame.function.clone()).unwrap_or_default();
    assert!(innermost.contains("planted::"), "{kind}: {innermost}");
}

#[test]
fn planted_mistakes_are_found_at_their_lines_and_nothing_else_is() {
    for (kind, _) in PROGRAMS {
        let check = CheckOptions::new().quiet().slow_paths();
        let device = Device::open(options().check(check)).unwrap();
        assert_found(kind, &found(device, kind, false));
    }
}

#[test]
fn nothing_is_found_where_the_mistakes_are_mended_or_nothing_is_checked() {
    for (kind, _) in PROGRAMS {
        let check = CheckOptions::new().quiet().slow_paths();
        let device = Device::open(options().check(check)).unwrap();
        let entries = found(device, kind, true);
        assert!(entries.is_empty(), "{kind}: {entries:#?}");
    }
    let device = Device::open(options()).unwrap();
    assert!(found(device, "timeout-for-ever", false).is_empty());
}

#[test]
fn mistakes_are_found_in_virtual_time_too() {
    for (kind, _) in PROGRAMS {
        for is_fixed in [false, true] {
            let simulation = Simulation::new(FabricConfig::default());
            let check = CheckOptions::new().quiet().slow_paths();
            let options = DeviceOptions::new().addresses([[10, 0, 0, 1].into()]).check(check);
            let entries = found(simulation.device_with(options).unwrap(), kind, is_fixed);
            if is_fixed {
                assert!(entries.is_empty(), "{kind}: {entries:#?}");
            } else {
                assert_found(kind, &entries);
            }
        }
    }
}

#[test]
fn suppressed_findings_are_left_out_and_wrong_lines_are_refused() {
    let check = CheckOptions::new().quiet();
    let known = check.clone().suppress("kind=timeout-* function=*timeout_for_ever").unwrap();
    let device = Device::open(options().check(known)).unwrap();
    assert!(found(device, "timeout-for-ever", false).is_empty());
    let refused = check.suppress("where=main").unwrap_err().to_string();
    assert!(refused.contains("line 1"), "{refused}");
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

#[test]
fn devices_of_a_process_share_a_report_that_is_written_when_they_are_dropped() {
    let report = scratch("check-report").join("found.json");
    let check = CheckOptions::new().quiet().report(&report);
    let devices = [(); 2].map(|()| Device::open(options().check(check.clone())).unwrap());
    for (device, kind) in devices.into_iter().zip(["timeout-for-ever", "cq-too-small"]) {
        found(device, kind, false);
    }
    let text = fs::read_to_string(report).expect("a report");
    for kind in ["timeout-for-ever", "cq-too-small"] {
        assert_eq!(text.matches(&format!("\"kind\": \"{kind}\"")).count(), 1, "{text}");
    }
}

/// Not a test: what the next one runs as a process of its own.
#[test]
fn planted_program() {
    let Ok(kind) = std::env::var(PLANTED) else { return };
    let (_, program) = PROGRAMS.into_iter().find(|(name, _)| *name == kind).expect("a program");
    let end = PlantedEnd::new(Device::open(options()).unwrap()).unwrap();
    program(&end, false).unwrap();
}

#[test]
fn the_environment_asks_for_a_check() {
    let report = scratch("check-environment").join("%p.sarif");
    let run = |check: &str| {
        let own = std::env::current_exe().expect("a test knows its program");
        let mut command = Command::new(own);
        command.args(["--exact", "planted_program", "--nocapture"]).env(PLANTED, "cq-too-small");
        command.env("PUMICE_CHECK", check).env("PUMICE_CHECK_REPORT", &report).output().expect("it runs")
    };
    let output = run("1");
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr_text}");
    let line = planted_line("cq-too-small");
    assert!(
        stderr_text.contains("pumice: cq-too-small: ")
            && stderr_text.contains(&format!("planted.rs:{line})")),
        "{stderr_text}"
    );
    assert!(stderr_text.contains("pumice: check: 1 finding"), "{stderr_text}");
    let files = fs::read_dir(report.parent().expect("a folder")).expect("it is there");
    let [file] =
        files.map(|file| file.expect("a file").path()).collect::<Vec<_>>().try_into().expect("one file");
    let text = fs::read_to_string(file).expect("a report");
    assert!(text.contains("\"ruleId\": \"cq-too-small\""), "{text}");
    let wrong = run("often");
    let stderr_text = String::from_utf8_lossy(&wrong.stderr);
    assert!(
        !wrong.status.success() && stderr_text.contains("PUMICE_CHECK") && stderr_text.contains("often"),
        "{stderr_text}"
    );
}
