//! `pumice world --hosts`: programs on several hosts of a world, which ssh and mpirun start.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "world/kit.rs"]
mod kit;

use std::path::Path;
use std::process::{Command, Output};

use kit::{Scratch, text};

fn has(program: &str) -> bool {
    let is_there = Path::new("/usr/bin").join(program).exists();
    if !is_there {
        eprintln!("**** SKIPPED: {program} is not installed");
    }
    is_there
}

/// A certified run; what it prints.
fn certified(ran: &Output) -> String {
    let (output, errors) = (text(&ran.stdout), text(&ran.stderr));
    assert!(ran.status.success() && errors.contains("pumice: certified"), "{output}{errors}");
    output
}

/// What two certified runs print, which have the same digest.
fn twice(scratch: &Scratch, arguments: &[&str]) -> String {
    let [first, second] = [scratch.world(arguments), scratch.world(arguments)];
    let printed = certified(&first);
    assert_eq!(printed, certified(&second));
    assert_eq!(text(&first.stderr), text(&second.stderr));
    printed
}

const SESSIONS: &str = "\
echo \"begins on $(hostname), $PUMICE_ADDR\"
echo mine > /dev/shm/file
ssh host2 'hostname; echo $PUMICE_ADDR; ls /dev/shm; echo yours > /dev/shm/file'
ssh -n me@127.1.0.2 cat /dev/shm/file $TMPDIR/none
echo \"cat: $?\"
echo 'cat /dev/shm/file; ssh host1 cat /dev/shm/file' | ssh host3
ssh host2 ssh -x host3 \"'ssh localhost hostname'\"
getent hosts host3
ssh host4 true
echo \"no host: $?\"
";

#[test]
fn hosts_have_names_addresses_and_shared_memory_of_their_own() {
    let scratch = Scratch::new("hosts-ssh");
    let ran = scratch.world(&["--hosts", "3", "--", "sh", "-c", SESSIONS]);
    let printed = certified(&ran);
    let lines: Vec<&str> = printed.lines().collect();
    let expected = [
        "begins on host1, 127.1.0.1",
        "host2",
        "127.1.0.2",
        "tmp",
        "yours",
        "cat: 1",
        "mine",
        "host3",
        "127.1.0.3       host3",
        "no host: 255",
    ];
    assert_eq!(lines, expected, "{}", text(&ran.stderr));
    let errors = text(&ran.stderr);
    assert!(errors.contains("cat: /dev/shm/tmp/none: No such file or directory"), "{errors}");
    assert!(errors.contains("cat: /dev/shm/file: No such file or directory"), "{errors}");
    assert!(errors.contains("Could not resolve hostname host4"), "{errors}");
    assert!(!Path::new(&scratch.0.join("pumice/hosts")).exists(), "the files of hosts are the world's");
}

#[test]
fn a_host_is_entered_in_worlds_alone() {
    let scratch = Scratch::new("hosts-usage");
    let refused = |arguments: &[&str]| {
        let ran = scratch.world(arguments);
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}: {}", text(&ran.stderr));
        text(&ran.stderr)
    };
    assert!(refused(&["--hosts", "0", "--", "true"]).contains("1..=1024"));
    assert!(refused(&["--hosts", "2", "--addr", "127.0.0.2", "--", "true"]).contains("--addr"));
    assert!(refused(&["host", "--folder", "/nowhere", "--", "host1"]).contains("only programs in a world"));
    let star = "kind = \"star\"\nhosts = [\"127.0.0.2\"]\n[link]\nrate_mbps = 1000\ndelay_ns = 0\n\
                [switch]\nqueue_bytes = 100000\n";
    std::fs::write(scratch.0.join("star.toml"), star).expect("a file can be written");
    let few = refused(&["--hosts", "2", "--topology", "star.toml", "--", "true"]);
    assert!(few.contains("the topology has 1 addresses, and 2 are needed"), "{few}");
}

#[test]
fn the_number_of_hosts_varies() {
    let scratch = Scratch::new("hosts-vary");
    let count = "echo \"lines: $(grep -c '^127.1.' /etc/hosts)\"";
    let ran = scratch.world(&["vary", "--hosts", "2..5", "--figure", "lines:", "--", "sh", "-c", count]);
    assert_eq!(text(&ran.stdout), "hosts  lines:\n2      2\n3      3\n4      4\n5      5\n");
    assert!(ran.status.success(), "{}", text(&ran.stderr));
}

/// Server on host2 and client on host1.
const LATENCY: &str = "\
ssh host2 ib_send_lat -d pumice0 -F -n 100 > server.log &
sleep 0.1
ib_send_lat -d pumice0 -F -n 100 host2
wait
";

#[test]
fn a_message_between_hosts_takes_what_the_links_say() {
    if !has("ib_send_lat") {
        return;
    }
    let scratch = Scratch::new("hosts-latency");
    let world = ["--hosts", "2", "--model", "wire", "--delay", "1us", "--", "sh", "-c", LATENCY];
    let printed = twice(&scratch, &world);
    let row = printed.lines().rev().find(|line| line.trim_start().starts_with('2'));
    let row: Vec<&str> = row.expect("a row of the table").split_whitespace().collect();
    // Bytes, iterations, least, most and typical latency: out by one link, in by the other.
    assert_eq!(row.get(..5), Some(&["2", "100", "2.00", "2.00", "2.00"][..]), "{printed}");
}

/// Compiles the program that measures as OSU's do, with a compiler of this name, as `osu`.
fn compile_osu(scratch: &Scratch, compiler: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/world/osu.c");
    let compiled = Command::new(compiler).arg("-o").arg(scratch.0.join("osu")).arg(source).output();
    let compiled = compiled.expect("the compiler can be run");
    assert!(compiled.status.success(), "{compiled:?}");
}

/// Makes an allreduce of 8 bytes with four ranks on as many hosts, twice; `launcher` starts them.
fn reduces(scratch: &Scratch, launcher: &[&str]) {
    let environment = "OMPI_MCA_pml=ucx UCX_NET_DEVICES=pumice0:1 UCX_TLS=rc_v,self exec \"$@\"";
    let world = ["--hosts", "4", "--model", "connectx-7", "--", "sh", "-c", environment, "sh"];
    let printed = twice(scratch, &[&world[..], launcher, &["-n", "4", "./osu", "allreduce", "8"]].concat());
    assert!(printed.contains("4 ranks on host1 host2 host3 host4"), "{printed}");
    let row = printed.lines().find(|line| line.starts_with("8 ")).unwrap_or_else(|| panic!("{printed}"));
    let us: f64 = row.split_whitespace().nth(1).and_then(|us| us.parse().ok()).expect("a number");
    // Two rounds, each of which is a message with 8 bytes: 1.27 us by the sum of the model.
    assert!((2.5..2.8).contains(&us), "{printed}");
}

#[test]
fn ranks_of_open_mpi_on_four_hosts_repeat() {
    if !has("mpirun") || !has("mpicc") {
        return;
    }
    let scratch = Scratch::new("hosts-mpi");
    compile_osu(&scratch, "mpicc");
    reduces(&scratch, &["mpirun", "--allow-run-as-root", "--map-by", "node"]);
}

#[test]
fn ranks_of_mpich_on_four_hosts_repeat() {
    if !has("mpiexec.hydra") || !has("mpicc.mpich") {
        return;
    }
    let scratch = Scratch::new("hosts-mpich");
    compile_osu(&scratch, "mpicc.mpich");
    reduces(&scratch, &["mpiexec.hydra", "-ppn", "1"]);
}

#[test]
fn launchers_hear_nothing_of_a_job_of_the_machine() {
    let scratch = Scratch::new("hosts-job");
    let shown = "env | grep -E '^(SLURM|PBS|LSB|PE)_' | sort";
    let mut command = scratch.command(&["--hosts", "2", "--", "sh", "-c", shown]);
    for name in
        ["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_ARRAY_TASK_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE"]
    {
        command.env(name, "5");
    }
    let ran = command.output().expect("the program can be run");
    assert_eq!(certified(&ran), "SLURM_ARRAY_TASK_ID=5\n");
}
