//! C programs under valgrind, with the suppressions that users are given: no report is left, so that what
//! valgrind says about a program on pumice is about the program.

mod kit;

use std::path::Path;
use std::process::Command;

const SUPPRESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/valgrind.supp");
/// Exit code for reports of valgrind.
const REPORTED: &str = "--error-exitcode=99";

fn under_valgrind(name: &str) {
    reports_nothing(name, None, "");
}

/// `libraries`: a folder with another object than the usual one.
fn reports_nothing(name: &str, libraries: Option<&Path>, wire: &str) {
    if !kit::exists("valgrind") {
        return kit::skip("there is no valgrind: apt-get install valgrind");
    }
    assert!(Path::new(SUPPRESSIONS).exists());
    let Some(program) = kit::compile(name) else { return };
    let mut command: Command = kit::on(kit::address(), "valgrind");
    command.args(["--quiet", REPORTED, &format!("--suppressions={SUPPRESSIONS}")]).arg(program);
    command.env("PUMICE_WIRE", wire);
    if let Some(libraries) = libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    kit::succeeded(name, &command.output().expect("timeout(1) runs"));
}

/// Packages have a library without names of functions.
#[test]
fn a_stripped_library_gives_no_report_on_either_medium() {
    let Some(libraries) = kit::stripped_library_folder() else { return };
    for name in ["data_path", "uninitialised", "regions"] {
        for wire in ["", "udp"] {
            reports_nothing(name, Some(&libraries), wire);
        }
    }
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
