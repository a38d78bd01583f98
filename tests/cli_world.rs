//! `pumice world` as users meet it.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::PathBuf;
use std::process::{Command, Output};

/// A folder of this test, which goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let folder = std::env::temp_dir().join(format!("pumice-world-cli-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        Scratch(folder)
    }

    fn world(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.arg("world").args(arguments).current_dir(&self.0).env("XDG_RUNTIME_DIR", &self.0);
        command.output().expect("the program can be run")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Two processes write into one file, which only this world has; it fails if the second one is first.
const RACE: &str = "cd /dev/shm; (sleep 0.001; echo one >> order) & (sleep 0.001; echo two >> order) & wait; \
                    read first < order; test $first = one";

#[test]
fn a_program_runs_in_the_time_of_its_world() {
    let scratch = Scratch::new("time");
    let script = "date +%s; sleep 1000; date +%s; exit 3";
    let (one, other) =
        (scratch.world(&["--", "sh", "-c", script]), scratch.world(&["--", "sh", "-c", script]));
    assert_eq!(one.status.code(), Some(3), "{one:?}");
    assert_eq!(text(&one.stdout), "1790078400\n1790079400\n");
    let said = text(&one.stderr);
    assert!(said.starts_with("pumice: certified: this run repeats (digest "), "{said}");
    assert!(said.ends_with("pumice: the program ended with 3\n"), "{said}");
    assert_eq!(one, other);
}

#[test]
fn a_search_finds_the_order_that_breaks_a_program_and_a_replay_has_it_again() {
    let scratch = Scratch::new("search");
    let found =
        scratch.world(&["search", "--seeds", "1..40", "--report", "found.xml", "--", "sh", "-c", RACE]);
    let said = text(&found.stdout);
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert!(said.starts_with("40 seeds in "), "{said}");
    assert!(said.contains("run again 3 times, the same 3 times"), "{said}");
    assert!(said.contains("it needs these departures from the plain order:\n    p"), "{said}");
    let report = std::fs::read_to_string(scratch.0.join("found.xml")).expect("the report is there");
    assert!(report.contains("<testsuite") && report.contains("exit code 1"), "{report}");
    let file = said.lines().find_map(|line| line.trim().strip_prefix("again: pumice world replay "));
    let file = file.expect("the failure is recorded");
    let again = scratch.world(&["replay", file]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    assert!(text(&again.stderr).contains("the run is that of the recording, event by event"), "{again:?}");
}

#[test]
fn a_search_that_finds_nothing_is_good() {
    let scratch = Scratch::new("nothing");
    let found = scratch.world(&["search", "--seeds", "1..3", "--shard", "1/2", "--", "true"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert!(text(&found.stdout).starts_with("1 seeds in "), "{found:?}");
}

#[test]
fn wrong_words_and_files_are_one_sentence() {
    let scratch = Scratch::new("wrong");
    std::fs::write(scratch.0.join("text"), "hello\n").expect("a file can be written");
    let cases: [(&[&str], &str); 6] = [
        (&["--seed", "x", "--", "true"], "--seed x: give a whole number from 0"),
        (&["--record", "r", "--", "true"], "leave out --record, or give --save"),
        (&["search", "--seeds", "5..1", "--", "true"], "a last seed that is no less, as in 1..500, not 5..1"),
        (&["search", "--shard", "0/2", "--", "true"], "as in 2/4; 0/2 is not that"),
        (&["replay", "text"], "text is no recording of a world"),
        (&["replay", "nowhere"], "nowhere cannot be read"),
    ];
    for (arguments, sentence) in cases {
        let refused = scratch.world(arguments);
        assert_ne!(refused.status.code(), Some(0), "{refused:?}");
        assert!(text(&refused.stderr).contains(sentence), "{arguments:?}: {refused:?}");
    }
    let missing = scratch.world(&["--", "no-such-program"]);
    assert_eq!(missing.status.code(), Some(127), "{missing:?}");
}
