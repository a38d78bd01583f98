//! C programs under valgrind, with the suppressions that users are given: no report is left, so that what
//! valgrind says about a program on pumice is about the program.

mod kit;

use std::path::Path;
use std::process::Command;

const SUPPRESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/valgrind.supp");
/// Exit code for reports of valgrind.
const REPORTED: &str = "--error-exitcode=99";

fn under_valgrind(name: &str) {
    if !kit::exists("valgrind") {
        return kit::skip("there is no valgrind: apt-get install valgrind");
    }
    assert!(Path::new(SUPPRESSIONS).exists());
    let Some(program) = kit::compile(name) else { return };
    let mut command: Command = kit::on(kit::address(), "valgrind");
    command.args(["--quiet", REPORTED, &format!("--suppressions={SUPPRESSIONS}")]).arg(program);
    kit::succeeded(name, &command.output().expect("timeout(1) runs"));
}

#[test]
fn the_data_path_gives_no_report() {
    under_valgrind("data_path");
}

#[test]
fn events_and_regions_give_no_report() {
    under_valgrind("events");
    under_valgrind("regions");
}

#[test]
fn the_connection_manager_gives_no_report() {
    under_valgrind("identifiers");
}

#[test]
fn sending_what_was_never_written_gives_no_report() {
    under_valgrind("uninitialised");
}
