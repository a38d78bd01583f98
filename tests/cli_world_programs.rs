//! `pumice world` with programs of other projects: the same seed is the same run.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "world/kit.rs"]
mod kit;

use std::path::Path;
use std::process::Command;

use kit::{Scratch, text};

/// Whether a program is installed; a sentence if not.
fn has(program: &str) -> bool {
    let folders = ["/usr/bin", "/usr/local/bin"].map(Path::new);
    let is_there = folders.iter().any(|folder| folder.join(program).exists());
    if !is_there {
        eprintln!("**** SKIPPED: {program} is not installed");
    }
    is_there
}

/// So many runs of a seed are certified and equal, in output and digest; what they print.
fn repeats(scratch: &Scratch, runs: u32, arguments: &[&str]) -> String {
    let run = || scratch.world(&[&["--seed", "7"], arguments].concat());
    let sides = |ran: &std::process::Output| format!("{}{}", text(&ran.stdout), text(&ran.stderr));
    let first = run();
    assert!(first.status.success(), "{}{}", text(&first.stdout), text(&first.stderr));
    assert!(text(&first.stderr).contains("pumice: certified: this run repeats"), "{}", text(&first.stderr));
    for run_number in 1..runs {
        let again = run();
        assert_eq!(sides(&first), sides(&again), "run {run_number}");
    }
    text(&first.stdout)
}

#[test]
fn ranks_of_open_mpi_repeat() {
    if !has("mpirun") || !has("mpicc") {
        return;
    }
    let scratch = Scratch::new("mpi");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/world/ranks.c");
    let compiled = Command::new("mpicc").arg("-o").arg(scratch.0.join("ranks")).arg(source).output();
    let compiled = compiled.expect("mpicc can be run");
    assert!(compiled.status.success(), "{compiled:?}");
    let mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "./ranks"];
    for options in [&["--"][..], &["--addr", "127.0.0.1", "--"]] {
        let printed = repeats(&scratch, 3, &[options, &mpirun].concat());
        assert!(printed.contains("rank 1 of 2: sum 1, barrier "), "{printed}");
    }
}

#[test]
fn pytest_repeats() {
    if !has("pytest") {
        return;
    }
    let scratch = Scratch::new("pytest");
    let tests = "import random, threading, time\n\
                 def test_files(tmp_path):\n    \
                     (tmp_path / 'file').write_text('text')\n    \
                     print(tmp_path, random.random(), hash('text'))\n\
                 def test_threads(capsys):\n    \
                     done = []\n    \
                     def work(number):\n        \
                         time.sleep(0.01)\n        \
                         done.append(number)\n    \
                     threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]\n    \
                     for thread in threads: thread.start()\n    \
                     for thread in threads: thread.join()\n    \
                     with capsys.disabled(): print(done, time.time())\n";
    std::fs::create_dir(scratch.0.join("cases")).expect("a folder can be made");
    std::fs::write(scratch.0.join("cases/test_cases.py"), tests).expect("a file can be written");
    let printed = repeats(&scratch, 3, &["--", "pytest", "-q", "-s", "cases"]);
    assert!(printed.contains("2 passed"), "{printed}");
    assert!(printed.contains("/dev/shm/tmp/pytest-of-"), "{printed}");
}

#[test]
fn a_test_of_ucx_repeats() {
    if !has("ucx_perftest") {
        return;
    }
    let scratch = Scratch::new("ucx");
    let pair = "export UCX_TLS=rc UCX_NET_DEVICES=pumice0:1; ucx_perftest > server & sleep 1; \
                ucx_perftest 127.0.0.1 -t tag_lat -n 200 -w 20; wait; cat server";
    let printed = repeats(&scratch, 3, &["--addr", "127.0.0.1", "--", "sh", "-c", pair]);
    assert!(printed.contains("Final:"), "{printed}");
}
