//! Path migration, met by a C program on both media, in a network namespace whose loopback interface has two
//! addresses.

mod kit;

use std::path::Path;
use std::process::Command;

/// What `migration.c` expects.
const RULE: &str = "partition peer=192.0.2.1 qp=0 message=20 opcode=write";
/// What the namespace is made with.
const ADDRESSES: &str =
    "ip link set lo up && for n in 1 2; do ip addr add 192.0.2.$n/32 dev lo || exit; done";

/// A shell in a network namespace of its own; `program` is its `$0`.
fn isolated(script: &str, program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["120", "unshare", "--map-root-user", "--net", "sh", "-c", script]).arg(program);
    command
}

fn run(program: &Path, wire: &str) {
    let mut command = isolated(&format!("{ADDRESSES} && exec \"$0\""), program);
    command.env("LD_LIBRARY_PATH", kit::library_folder()).env("XDG_RUNTIME_DIR", kit::scratch("migration"));
    command.env("PUMICE_FAULT", RULE).env("PUMICE_WIRE", wire).env("PUMICE_EXPLAIN", "1");
    kit::succeeded(wire, &command.output().expect("timeout(1) runs"));
}

#[test]
fn a_transfer_goes_on_by_the_alternate_path() {
    if !isolated(ADDRESSES, Path::new("sh")).status().is_ok_and(|status| status.success()) {
        return kit::skip(
            "no network namespace of its own: unshare(1), ip(8) and user namespaces are needed",
        );
    }
    let Some(program) = kit::compile("migration") else { return };
    for wire in ["udp", "auto"] {
        run(&program, wire);
    }
}
