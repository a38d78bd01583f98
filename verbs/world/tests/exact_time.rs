//! Worlds of exact time: what programs wait for comes at the instant that the sum of its parts says.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;
use std::process::Command;

use pumice_world::{Exit, WorldOptions, run};

/// Runs a program of this folder in a world of exact time, and returns what it printed. `None`: this machine
/// has no compiler.
fn printed(name: &str, seed: u64) -> Option<String> {
    let folder = std::env::temp_dir().join(format!("pumice-exact-{}-{name}-{seed}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{name}.c"));
    let program = folder.join(name);
    let mut compiler = Command::new("cc");
    let compiled = compiler.args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source).output().ok()?;
    assert!(compiled.status.success(), "{compiled:?}");
    let mut options = WorldOptions::new(seed, vec![program.into_os_string()]);
    options.output = Some(folder.join("output"));
    options.exact_time = true;
    options.draws.switch_ppm = 0;
    let ended = run(&options).expect("the run ends");
    let output = std::fs::read_to_string(folder.join("output")).expect("it is there");
    let _ = std::fs::remove_dir_all(&folder);
    assert_eq!(ended.exit, Exit::Code(0), "{output}");
    assert!(ended.certificate.doubts.is_empty(), "{}", ended.certificate);
    Some(output)
}

#[test]
fn what_polls_wait_for_is_found_when_it_comes() {
    for seed in [1, 2] {
        let Some(output) = printed("exact", seed) else { return };
        // Twice the flight and the catch; the throw is over before the ball arrives.
        assert_eq!(output, "2180 2180\n", "seed {seed}");
    }
}

#[test]
fn threads_that_wait_for_memory_and_for_calls_come_to_their_end() {
    for (program, expected) in [("spins", "40 40\n"), ("locks", "")] {
        let Some(output) = printed(program, 1) else { return };
        assert!(output.starts_with(expected), "{program}: {output}");
    }
}

#[test]
fn sleeps_take_as_long_as_they_say_however_many_follow_each_other() {
    let Some(output) = printed("sleeps", 1) else { return };
    assert_eq!(output, "1000000 1000000\n");
}
