//! C programs that are compiled with gcc's ThreadSanitizer, on the library as packages have it, with the
//! suppressions that users are given: no report is about pumice, and the program's own races are found.

mod kit;

use std::path::Path;
use std::process::{Command, Output};

const SUPPRESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/tsan.supp");
/// Exit code for reports.
const REPORTED: i32 = 66;

/// Runs tests/c/NAME.c with these options of the compiler. None: there is no ThreadSanitizer.
fn run(name: &str, options: &[&str]) -> Option<Output> {
    let libraries = kit::stripped_library_folder()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let program = kit::scratch(name).join(name);
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
    let flags = ["-std=gnu11", "-O1", "-g", "-fsanitize=thread", "-pthread", include];
    let mut compiler = Command::new("cc");
    compiler.args(flags).args(options).arg("-o").arg(&program).arg(source).arg("-L").arg(&libraries);
    compiler.args(["-libverbs", "-Wl,--allow-shlib-undefined"]);
    if !compiler.status().is_ok_and(|status| status.success()) {
        kit::skip("no ThreadSanitizer, or no infiniband/verbs.h: apt-get install gcc libibverbs-dev");
        return None;
    }
    // ThreadSanitizer of gcc 12 takes no addresses that newer kernels choose at random.
    let mut command = kit::on(kit::address(), "setarch");
    command.arg("-R").arg(program).env("LD_LIBRARY_PATH", &libraries).env("PUMICE_STRESS_SECONDS", "2");
    command.env("TSAN_OPTIONS", format!("exitcode={REPORTED} suppressions={SUPPRESSIONS}"));
    Some(command.output().expect("timeout(1) runs"))
}

#[test]
fn threads_on_shared_objects_give_no_report() {
    let Some(output) = run("stress", &[]) else { return };
    kit::succeeded("stress", &output);
}

#[test]
fn a_race_of_the_program_is_reported() {
    let Some(output) = run("own_race", &[]) else { return };
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(REPORTED), "{output_text}");
    assert!(output_text.contains("data race") && output_text.contains("own_race.c"), "{output_text}");
}
