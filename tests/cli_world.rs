//! `pumice world` as users meet it.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "world/kit.rs"]
mod kit;

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use kit::{Scratch, text};

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
    let output_text = text(&one.stderr);
    assert!(output_text.starts_with("pumice: certified: this run repeats (digest "), "{output_text}");
    assert!(output_text.ends_with("pumice: the program ended with 3\n"), "{output_text}");
    assert_eq!(one, other);
}

#[test]
fn a_world_has_a_runtime_folder_of_its_own_also_below_shared_memory() {
    let scratch = Scratch::new("runtime");
    let folder = Path::new("/dev/shm").join(format!("pumice-world-runtime-{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&folder).expect("a folder can be made in memory");
    let arguments = ["--", "sh", "-c", "ls -d \"$XDG_RUNTIME_DIR\"/pumice/sysfs*/ | wc -l"];
    let mut command = scratch.command(&arguments);
    let ran = command.env("XDG_RUNTIME_DIR", &folder).output().expect("the program can be run");
    std::fs::remove_dir_all(&folder).expect("it is ours");
    assert_eq!(text(&ran.stdout), "1\n", "the tree of this run is in it, and no other: {ran:?}");
    assert!(text(&ran.stderr).starts_with("pumice: certified: "), "{ran:?}");
}

#[test]
fn the_first_run_of_a_build_does_as_the_second_one() {
    let scratch = Scratch::new("first");
    let built = Path::new(env!("CARGO_BIN_EXE_pumice"));
    let pumice = scratch.0.join("pumice");
    std::fs::copy(built, &pumice).expect("the program can be copied");
    for object in ["libpumice.so", "libpumice_sysfs.so", "libpumice_check.so"] {
        let from = built.with_file_name("deps").join(object);
        std::fs::copy(from, scratch.0.join(object)).expect("cargo built it for the tests");
    }
    let run = || {
        let mut command = Command::new(&pumice);
        command.args(["world", "--", "true"]).current_dir(&scratch.0).env("XDG_RUNTIME_DIR", &scratch.0);
        command.output().expect("the program can be run")
    };
    let first = run();
    assert!(text(&first.stderr).starts_with("pumice: certified: "), "{first:?}");
    assert!(scratch.0.join("pumice-links").is_dir(), "this is what the first run makes");
    assert_eq!(first, run());
}

#[test]
fn a_slow_machine_replays_what_a_fast_one_recorded() {
    let scratch = Scratch::new("slow");
    let file = scratch.0.join("rounds");
    // The program does not read the number by a call, because a replay compares what calls read.
    let script = "import mmap; f = open('rounds'); m = mmap.mmap(f.fileno(), 8, prot=mmap.PROT_READ)\n\
                  for i in range(int(m[:8])): pass\nprint('done')";
    let world = |rounds: &str, arguments: &[&str]| {
        std::fs::write(&file, format!("{rounds}\n")).expect("the file can be written");
        scratch.world(arguments)
    };
    let recorded = world("00001000", &["--save", "fast.world", "--", "python3", "-c", script]);
    assert!(text(&recorded.stderr).starts_with("pumice: certified: "), "{recorded:?}");
    // A second or more without a call, which ends the turn of a thread in a run that is no replay.
    let again = world("50000000", &["replay", "fast.world"]);
    assert!(text(&again.stderr).contains("the run is that of the recording, event by event"), "{again:?}");
}

#[test]
fn a_search_finds_the_order_that_breaks_a_program_and_a_replay_has_it_again() {
    let scratch = Scratch::new("search");
    let found =
        scratch.world(&["search", "--seeds", "1..40", "--report", "found.xml", "--", "sh", "-c", RACE]);
    let output_text = text(&found.stdout);
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert!(output_text.starts_with("40 seeds in "), "{output_text}");
    assert!(output_text.contains("run again 3 times, the same 3 times"), "{output_text}");
    assert!(output_text.contains("it needs these departures from the plain order:\n    p"), "{output_text}");
    let report = std::fs::read_to_string(scratch.0.join("found.xml")).expect("the report is there");
    assert!(report.contains("<testsuite") && report.contains("exit code 1"), "{report}");
    let file = output_text.lines().find_map(|line| line.trim().strip_prefix("again: pumice world replay "));
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
    assert!(text(&found.stdout).starts_with("1 seed of shard 1/2 in "), "{found:?}");
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

/// A run stops where it is told to, and a debugger looks at its processes.
#[test]
fn a_debugger_looks_at_a_run_that_stopped_at_an_event() {
    let scratch = Scratch::new("debugger");
    let Some(program) = scratch.program("accept_order", &[]) else { return };
    let found = scratch.world(&["search", "--first", "--seeds", "1..200", "--", &program]);
    let output_text = text(&found.stdout);
    let file = output_text.lines().find_map(|line| line.trim().strip_prefix("again: pumice world replay "));
    let file = file.unwrap_or_else(|| panic!("no failure: {found:?}"));
    // The line of an event is its number, because the first one is about the program.
    let recorded = std::fs::read(scratch.0.join(file)).expect("the recording is there");
    let recorded = text(&recorded);
    let waits = recorded.lines().enumerate().filter(|(_, line)| line.contains(" p1.t1 wait4 "));
    let (event, _) = waits.last().expect("the program waits for its children");
    let event = event.to_string();

    let too_late = scratch.world(&["replay", file, "--stop-at", "99999999"]);
    assert_eq!(too_late.status.code(), Some(2), "{too_late:?}");
    assert!(text(&too_late.stderr).contains("--stop-at 99999999: the run has "), "{too_late:?}");

    let mut replay = scratch.command(&["replay", file, "--stop-at", &event]);
    let mut replay = replay.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it can be run");
    let mut lines = BufReader::new(replay.stderr.take().expect("a pipe")).lines();
    let mut lines = lines.by_ref().map_while(Result::ok);
    let stopped = lines.find(|line| line.contains("stopped at event "));
    assert_eq!(stopped, Some(format!("pumice: stopped at event {event}: p1.t1 wait4")));
    let process = lines.find_map(|line| line.split_once(": gdb -p ").map(|(_, process)| process.to_owned()));
    let process = process.expect("the process is named");
    let gdb = Command::new("gdb")
        .args(["--batch", "--nx", "-ex", "backtrace", "-p", &process])
        .env("DEBUGINFOD_URLS", "")
        .stdin(Stdio::null())
        .output();
    match gdb {
        Err(_) => eprintln!("**** SKIPPED: gdb is not installed"),
        Ok(gdb) => {
            let shown = text(&gdb.stdout);
            let is_forbidden = text(&gdb.stderr).contains("Operation not permitted");
            if is_forbidden {
                eprintln!("**** SKIPPED: this machine lets no debugger attach to processes");
            } else {
                let is_main = |line: &str| line.contains("main () at ") && line.contains("accept_order.c:");
                assert!(shown.lines().any(is_main), "{gdb:?}");
            }
        }
    }
    let end = Command::new("kill").args(["-INT", &replay.id().to_string()]).status();
    assert!(end.is_ok_and(|end| end.success()));
    assert!(replay.wait().expect("it ends").success());
    // The kernel ends them after that.
    let exited = Command::new("timeout").args(["60", "tail", "-f", "/dev/null", "--pid", &process]).status();
    assert!(exited.is_ok_and(|exited| exited.success()), "process {process} outlives its supervisor");
}

#[test]
fn a_wait_for_an_event_that_nobody_sends_ends_the_run_with_its_reason() {
    let scratch = Scratch::new("nothing-comes");
    let Some(program) = scratch.program("nothing_comes", &["-lrdmacm", "-libverbs"]) else { return };
    for (argument, waits) in [
        ("cq", "a completion event of descriptor N (ibv_get_cq_event)"),
        ("cm", "an event of a connection from descriptor N (rdma_get_cm_event)"),
    ] {
        let ran = scratch.world(&["--seed", "3", "--", &program, argument]);
        let (printed, said) = (text(&ran.stdout), text(&ran.stderr));
        let descriptor = printed.trim().strip_prefix("descriptor ").expect("the program waits");
        assert_eq!(ran.status.code(), Some(1), "{said}");
        assert!(said.contains("the run cannot go on: all threads wait"), "{said}");
        assert!(said.contains(&waits.replace('N', descriptor)), "{said}");
    }
}

#[test]
fn addresses_do_not_depend_on_the_environment() {
    let scratch = Scratch::new("addresses");
    let Some(program) = scratch.program("addresses", &[]) else { return };
    let run = |length: usize| {
        let mut command = scratch.command(&["--seed", "3", "--", &program]);
        let ran = command.env("MORE_OF_IT", "x".repeat(length)).output().expect("the program can be run");
        assert!(ran.status.success(), "{ran:?}");
        assert!(text(&ran.stderr).contains("pumice: certified: this run repeats"), "{ran:?}");
        format!("{}{}", text(&ran.stdout), text(&ran.stderr))
    };
    let first = run(0);
    assert!(first.starts_with("0x7ff"), "{first}");
    for length in [1, 100, 5000] {
        assert_eq!(first, run(length), "with {length} bytes more in the environment");
    }
}

#[test]
fn niceness_and_the_time_since_the_start_are_those_of_the_world() {
    let scratch = Scratch::new("niceness");
    let program = "nice; nice -n 3 nice; sleep 5; cat /proc/uptime /proc/loadavg /proc/self/statm";
    let run = |niceness: &str| {
        let world = scratch.command(&["--seed", "3", "--", "sh", "-c", program]);
        let mut command = Command::new("nice");
        command.args(["-n", niceness]).arg(world.get_program()).args(world.get_args());
        for (name, value) in world.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let ran = command.current_dir(&scratch.0).output().expect("the program can be run");
        assert!(text(&ran.stderr).contains("pumice: certified: this run repeats"), "{ran:?}");
        format!("{}{}", text(&ran.stdout), text(&ran.stderr))
    };
    let first = run("0");
    assert!(first.starts_with("0\n3\n1005."), "{first}");
    assert!(first.contains("\n0.00 0.00 0.00 1/1 1\n0 0 0 0 0 0 0\n"), "{first}");
    assert_eq!(first, run("4"));
}

/// Each end of a FIFO waits for the other one: first the writer, then the reader, then with the end open.
const FIFOS: &str = "\
mkfifo one
(echo to the reader > one &)
sleep 0.1
cat one
(cat one > out; echo done >> out) &
sleep 0.1
echo to the file > one
wait
cat out
exec 3<>one
echo by both >&3
read line < one
echo \"$line\"
";

#[test]
fn the_ends_of_a_fifo_wait_for_each_other() {
    let scratch = Scratch::new("fifo");
    let ran = scratch.world(&["--", "sh", "-c", FIFOS]);
    assert_eq!(text(&ran.stdout), "to the reader\nto the file\ndone\nby both\n", "{}", text(&ran.stderr));
    assert!(text(&ran.stderr).contains("pumice: certified"), "{}", text(&ran.stderr));
    let alone = scratch.world(&["--", "sh", "-c", "mkfifo two; cat two"]);
    assert!(!alone.status.success());
    let said = text(&alone.stderr);
    assert!(said.contains("cannot go on") && said.contains("waits for a writer of a FIFO"), "{said}");
}

/// A replay stops at a call that is given by its name, and where the program exits.
#[test]
fn a_replay_stops_at_a_call_and_at_the_exit() {
    let scratch = Scratch::new("stop-at");
    let recorded = scratch.world(&["--save", "run", "--", "sh", "-c", "echo a; echo b; true | cat; exit 4"]);
    assert_eq!(recorded.status.code(), Some(4), "{recorded:?}");
    let recorded = scratch.read("run");
    let events = |call: &str| -> Vec<usize> {
        recorded
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains(call))
            .map(|(number, _)| number)
            .collect()
    };
    let exits = events(" p1.t1 exit_group ");
    for (stop_at, call, event) in [
        ("exit", "exit_group", exits.last().copied()),
        ("p1.t1 write 2", "write", events(" p1.t1 write ").get(1).copied()),
        ("exit_group", "exit_group", events(" exit_group ").first().copied()),
    ] {
        let event = event.unwrap_or_else(|| panic!("{stop_at}: {recorded}"));
        let mut replay = scratch.command(&["replay", "run", "--stop-at", stop_at]);
        let mut replay = replay.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it can be run");
        let mut lines = BufReader::new(replay.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
        let stopped = lines.find(|line| line.contains("stopped at event ")).unwrap_or_default();
        assert!(stopped.starts_with(&format!("pumice: stopped at event {event}: ")), "{stop_at}: {stopped}");
        assert!(stopped.ends_with(&format!(" {call}")), "{stop_at}: {stopped}");
        assert!(lines.any(|line| line.contains("end this with ^C")), "{stop_at}");
        let end = Command::new("kill").args(["-INT", &replay.id().to_string()]).status();
        assert!(end.is_ok_and(|end| end.success()));
        assert!(replay.wait().expect("it ends").success());
    }
    for (stop_at, sentence) in [
        ("p9.t1 write", "the recorded run has 0 calls write of p9.t1"),
        ("write 99", "the recorded run has 2 calls write"),
        ("p1 write 2 3", "or [THREAD] CALL [NUMBER]"),
    ] {
        let refused = scratch.world(&["replay", "run", "--stop-at", stop_at]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(sentence), "{stop_at}: {refused:?}");
    }
}
