//! Calls of librdmacm and libibverbs on pumice and on the kernel's rdma_rxe, line by line: the probes of
//! `tests/probes` print what calls return and which events come. rxe's lines are in
//! `tests/golden/6.12/probes.txt` (`scripts/accept/rxe probes` prints them anew); pumice's are the same, but
//! for those that docs/rdma_rxe.md lists.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

/// A network with the device's address, and room for one where no host is.
const NETWORK: &str = "set -e
ip link set lo up
ip link add probe0 mtu 4500 type veth peer name probe1 mtu 4500
ip address add 10.9.0.1/24 dev probe0
ip address add fd00:9::1/64 dev probe0 nodad
ip link set probe1 up
ip link set probe0 up
";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a script in a network namespace of its own; `None`: there can be none.
fn in_a_network(script: &str) -> Option<Output> {
    let text = format!("{NETWORK}{script}");
    let ways: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
    let is_possible = |way: &&&[&str]| {
        let output = Command::new("unshare").args(**way).args(["sh", "-c", NETWORK]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let way = ways.iter().find(is_possible)?;
    let runtime = Path::new(env!("CARGO_TARGET_TMPDIR")).join("connection-probes-runtime");
    fs::create_dir_all(&runtime).expect("the target folder is writable");
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "300", "unshare"]).args(*way).args(["sh", "-c", &text]);
    command.env("XDG_RUNTIME_DIR", runtime);
    for variable in pumice_device::settings::VARIABLES {
        command.env_remove(variable);
    }
    Some(command.output().expect("timeout(1) runs"))
}

/// What each probe says, in order. Probes of one name are numbered.
fn lines(text: &str) -> Vec<(String, String)> {
    let mut seen = BTreeMap::<&str, u32>::new();
    let parts = text.lines().filter_map(|line| line.split_once(": "));
    let numbered = parts.map(|(name, says)| {
        let count = seen.entry(name).or_default();
        *count += 1;
        let name = if *count == 1 { name.to_owned() } else { format!("{name} #{count}") };
        (name, says.to_owned())
    });
    numbered.collect()
}

/// The rows of the table in docs/rdma_rxe.md: what rxe says, and what pumice says.
fn differences() -> BTreeMap<String, (String, String)> {
    let text = fs::read_to_string(root().join("docs/rdma_rxe.md")).expect("the page is there");
    let (_, section) =
        text.split_once("\n## Calls of librdmacm and libibverbs").expect("it has this section");
    let rows = section.lines().take_while(|line| !line.starts_with("## ")).filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
        let [name, rxe, pumice, why] = cells.as_slice() else { panic!("four cells: {line}") };
        assert!(!why.is_empty(), "{line}");
        (*name != "Probe" && !name.starts_with("--")).then(|| {
            let plain = |cell: &str| cell.trim_matches('`').to_owned();
            (plain(name), (plain(rxe), plain(pumice)))
        })
    });
    rows.collect()
}

#[test]
fn calls_do_what_they_do_on_rdma_rxe_but_for_what_is_explained() {
    let skip = |why: &str| {
        let _ = writeln!(std::io::stderr(), "**** SKIPPED: {why}");
    };
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return skip("apt-get install gcc librdmacm-dev");
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("connection-probes");
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .args(
            ["main", "probe", "addresses", "connections", "datagrams", "verbs"]
                .map(|part| root().join(format!("tests/probes/{part}.c"))),
        )
        .args(["-lrdmacm", "-libverbs"])
        .output();
    let compiled = match compiled {
        Ok(compiled) => compiled,
        Err(_) => return skip("apt-get install gcc"),
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let script = format!(
        "exec '{}' run --log off -- '{}' 10.9.0.1 10.9.0.77",
        env!("CARGO_BIN_EXE_pumice"),
        program.display()
    );
    let Some(output) = in_a_network(&script) else {
        return skip("unshare(1), ip(8) and veth are needed for a network of its own");
    };
    let stdout_text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout_text}\n{}", String::from_utf8_lossy(&output.stderr));
    let golden = fs::read_to_string(root().join("tests/golden/6.12/probes.txt")).expect("it is there");
    let (of_rxe, of_pumice) = (lines(&golden), lines(&stdout_text));
    let names = |lines: &[(String, String)]| lines.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&of_pumice), names(&of_rxe), "the probes are the same");
    let mut explained = differences();
    let mut unexplained = Vec::new();
    for ((name, rxe), (_, pumice)) in of_rxe.iter().zip(&of_pumice) {
        match explained.remove(name) {
            Some((of_rxe, of_pumice)) if *rxe == of_rxe && *pumice == of_pumice && rxe != pumice => {}
            None if rxe == pumice => {}
            _ => unexplained.push(format!("{name}: rdma_rxe {rxe:?}, pumice {pumice:?}")),
        }
    }
    assert!(unexplained.is_empty(), "not in docs/rdma_rxe.md, or otherwise:\n{}", unexplained.join("\n"));
    assert!(explained.is_empty(), "docs/rdma_rxe.md explains what is no difference: {explained:?}");
}
