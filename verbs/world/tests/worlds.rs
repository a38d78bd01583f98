//! Programs in worlds: the same seed is the same run.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pumice_world::{Departure, Draws, Ended, Exit, WorldError, WorldOptions, run};

/// A folder of this test, which goes with it.
struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn new(name: &str) -> ScratchFolder {
        let folder = std::env::temp_dir().join(format!("pumice-worlds-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        ScratchFolder(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Compiles a program of this folder. `None`: this machine has no compiler.
    fn program(&self, name: &str) -> Option<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{name}.c"));
        let program = self.file(name);
        let compiled = Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source).output();
        match compiled {
            Err(_) => None,
            Ok(compiled) => {
                assert!(compiled.status.success(), "{compiled:?}");
                Some(program)
            }
        }
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A world whose output goes to a file of its own.
fn world(scratch: &ScratchFolder, seed: u64, command: &[&str]) -> WorldOptions {
    let mut options = WorldOptions::new(seed, command.iter().map(Into::into).collect());
    options.output = Some(scratch.file(&format!("output-{seed}")));
    options
}

/// Runs it, and what it printed.
fn printed(options: &WorldOptions) -> (Ended, String) {
    let ended = run(options).unwrap();
    let output = std::fs::read(options.output.as_ref().unwrap()).unwrap();
    (ended, String::from_utf8(output).unwrap())
}

/// Several seeds, each twice: the same run, byte by byte; among them so many orders.
fn repeats(name: &str, seeds: u64, least_orders: usize) {
    let scratch = ScratchFolder::new(name);
    let Some(program) = scratch.program(name) else { return };
    let mut orders = BTreeSet::new();
    for seed in 1..=seeds {
        let options = world(&scratch, seed, &[program.to_str().unwrap()]);
        let (first, second) = (printed(&options), printed(&options));
        assert_eq!(first, second, "seed {seed}");
        assert_eq!(first.0.exit, Exit::Code(0), "seed {seed}: {}", first.1);
        assert!(first.0.certificate.doubts.is_empty(), "seed {seed}: {}", first.0.certificate);
        orders.insert(first.1);
    }
    assert!(orders.len() >= least_orders, "{} orders in {seeds} seeds", orders.len());
}

#[test]
fn threads_repeat() {
    repeats("threads", 8, 4);
}

#[test]
fn processes_and_sockets_repeat() {
    repeats("server", 8, 4);
}

#[test]
fn sockets_that_share_a_port_repeat() {
    // Each world has a network of its own, and each network a random number by which the kernel would choose.
    repeats("shared_ports", 4, 1);
    let scratch = ScratchFolder::new("shared-ports-said");
    let Some(program) = scratch.program("shared_ports") else { return };
    let (_, output) = printed(&world(&scratch, 1, &[program.to_str().unwrap()]));
    let counts: Vec<Vec<u32>> =
        output.lines().map(|line| line.split(' ').map(|count| count.parse().unwrap()).collect()).collect();
    assert!(counts.iter().all(|one| one.iter().sum::<u32>() == 8), "{output}");
    assert!(counts[0].iter().filter(|count| **count > 0).count() > 1, "all sockets get datagrams: {output}");
    // The filter of the program decides while its socket is there.
    assert_eq!((counts[3].as_slice(), counts.len()), (&[0, 0, 8][..], 6), "{output}");
}

#[test]
fn facts_about_sockets_children_and_the_kernel_repeat() {
    let scratch = ScratchFolder::new("facts");
    let Some(program) = scratch.program("facts") else { return };
    let options = world(&scratch, 1, &[program.to_str().unwrap()]);
    let (first, second) = (printed(&options), printed(&options));
    assert_eq!(first, second);
    assert!(first.0.certificate.doubts.is_empty() && first.0.exit == Exit::Code(0), "{:?}", first.0);
    for line in ["tcp: state 1, rtt 0,", "processor 0, free 1\n", "files: 3 3\n", "used 0 us, 0 kB\n"] {
        assert!(first.1.contains(line), "{line}: {}", first.1);
    }
    let other = printed(&world(&scratch, 2, &[program.to_str().unwrap()]));
    let uuid = |text: &str| text.lines().find(|line| line.contains("uuid")).map(str::to_owned);
    assert!(uuid(&first.1).is_some() && uuid(&first.1) != uuid(&other.1), "{}", other.1);
    let (doubted, _) = printed(&world(&scratch, 1, &[program.to_str().unwrap(), "times"]));
    let said = doubted.certificate.to_string();
    assert!(said.contains("asked for times of packets by setsockopt"), "{said}");
}

#[test]
fn random_numbers_of_the_processor_come_from_the_seed() {
    let scratch = ScratchFolder::new("instructions");
    let Some(program) = scratch.program("random_instructions") else { return };
    let of = |seed| printed(&world(&scratch, seed, &[program.to_str().unwrap()]));
    let (first, second, other) = (of(1), of(1), of(2));
    assert_eq!(first, second);
    assert!(first.0.certificate.doubts.is_empty() && first.0.exit == Exit::Code(0), "{:?}", first.0);
    assert!(first.1 != other.1 && !first.1.is_empty(), "{}", first.1);
}

#[test]
fn what_is_read_and_written_is_in_the_digest() {
    let scratch = ScratchFolder::new("bytes");
    let file = scratch.file("read");
    let of = |text: &str| {
        std::fs::write(&file, text).unwrap();
        run(&world(&scratch, 1, &["cat", file.to_str().unwrap()])).unwrap().certificate.digest
    };
    let (one, again, other) = (of("one\n"), of("one\n"), of("two\n"));
    assert_eq!(one, again);
    assert_ne!(one, other);
}

#[test]
fn what_starts_the_program_is_no_part_of_the_run() {
    let scratch = ScratchFolder::new("starter");
    let of = |begin: &str| {
        let script = format!("{begin} exec cat /proc/sys/kernel/random/uuid");
        let mut options = world(&scratch, 1, &["sh", "-c", &script]);
        options.is_starter = true;
        let (ended, text) = printed(&options);
        (ended.certificate.to_string(), ended.virtual_ns, ended.events, text)
    };
    assert_eq!(of(""), of("read x < /etc/hostname; read y < /etc/hosts; cd /;"));
}

#[test]
fn locks_with_inheritance_robust_locks_and_signals_repeat() {
    repeats("locks", 8, 2);
    let scratch = ScratchFolder::new("locks-said");
    let Some(program) = scratch.program("locks") else { return };
    let (_, output) = printed(&world(&scratch, 1, &[program.to_str().unwrap()]));
    let wanted = "Owner died\nOwner died\nOwner died\n-1 1 1 1\n";
    assert!(output.ends_with(wanted) && !output.contains("two at a time"), "{output}");
}

#[test]
fn signals_that_are_read_repeat() {
    repeats("signal_files", 4, 1);
    let scratch = ScratchFolder::new("signal-files-said");
    let Some(program) = scratch.program("signal_files") else { return };
    let (_, output) = printed(&world(&scratch, 1, &[program.to_str().unwrap()]));
    let wanted = "read: signal 10\npoll: 1\nafter poll: signal 12\nepoll, nothing pending: 0 after 50 ms\n\
                epoll: 1\nafter epoll: signal 14\nselect: 1\nafter select: signal 17 of a child\n\
                epoll, from another process: 1\nafter epoll: signal 12\n";
    assert!(output.ends_with(wanted), "{output}");
}

#[test]
fn a_runtime_of_tokio_repeats() {
    // Examples are built with the tests, into a folder beside theirs.
    let own = std::env::current_exe().unwrap();
    let program = own.parent().unwrap().with_file_name("examples").join("tokio");
    let scratch = ScratchFolder::new("tokio");
    let mut orders = BTreeSet::new();
    for seed in 1..=6 {
        let options = world(&scratch, seed, &[program.to_str().unwrap()]);
        let (first, second) = (printed(&options), printed(&options));
        assert_eq!(first, second, "seed {seed}");
        assert!(first.0.certificate.doubts.is_empty(), "seed {seed}: {}", first.0.certificate);
        let ends = first.1.contains("slept after ") && first.1.ends_with("time out: true\n");
        assert!(ends && first.0.exit == Exit::Code(0), "seed {seed}: {}", first.1);
        orders.insert(first.1);
    }
    assert!(orders.len() >= 3, "{} orders in 6 seeds", orders.len());
}

#[test]
fn temporary_files_are_those_of_the_world() {
    let scratch = ScratchFolder::new("temporary");
    let script = "ls -A $TMPDIR; mktemp; mktemp; ls $TMPDIR | wc -l; echo $PYTHONDONTWRITEBYTECODE";
    let of = |seed| printed(&world(&scratch, seed, &["sh", "-c", script]));
    let (first, second) = (of(1), of(1));
    assert_eq!(first, second);
    assert!(first.0.certificate.doubts.is_empty(), "{}", first.0.certificate);
    assert!(first.1.starts_with("/dev/shm/tmp/tmp.") && first.1.ends_with("\n2\n1\n"), "{}", first.1);
}

#[test]
fn libraries_are_looked_for_in_the_folders_of_no_processor() {
    let scratch = ScratchFolder::new("folders");
    let script = "LD_LIBRARY_PATH=/nowhere LD_DEBUG=libs /bin/true 2>&1 | grep 'search path=/nowhere'";
    let (ended, said) = printed(&world(&scratch, 1, &["sh", "-c", script]));
    assert!(ended.exit == Exit::Code(0) && said.contains("LD_LIBRARY_PATH"), "{said}");
    for folder in ["x86-64-v3", "x86-64-v4", "haswell", "avx512_1", "xeon_phi"] {
        assert!(!said.contains(folder), "only some processors have {folder}: {said}");
    }
}

#[test]
fn threads_that_wait_for_memory_repeat() {
    repeats("spins", 4, 1);
}

#[test]
fn a_thread_that_looks_at_what_stays_ready_does_not_keep_others_from_going_on() {
    let scratch = ScratchFolder::new("stays-ready");
    let Some(program) = scratch.program("stays_ready") else { return };
    for seed in 0..4 {
        let options = world(&scratch, seed, &[program.to_str().unwrap()]);
        let (first, second) = (printed(&options), printed(&options));
        assert_eq!((first.1.as_str(), &first), ("done\n", &second), "seed {seed}");
    }
}

#[test]
fn a_child_that_becomes_a_program_ends_no_wait_for_another_child() {
    // The shell makes the second process by vfork, and waits in the kernel for that one alone.
    let scratch = ScratchFolder::new("vfork");
    let script = "/bin/true & /bin/true & /bin/true; wait";
    for seed in 0..40 {
        let mut options = world(&scratch, seed, &["sh", "-c", script]);
        options.draws = Draws { switch_ppm: 500_000, ..options.draws };
        assert_eq!(printed(&options).0.exit, Exit::Code(0), "seed {seed}");
    }
}

#[test]
fn children_are_waited_for_in_each_way_and_any_thread_executes_a_program() {
    repeats("children", 4, 1);
}

#[test]
fn writes_that_are_longer_than_the_room_for_them_repeat() {
    repeats("long_writes", 3, 1);
    let scratch = ScratchFolder::new("long-writes-tcp");
    let Some(program) = scratch.program("long_writes") else { return };
    let (ended, text) = printed(&world(&scratch, 1, &[program.to_str().unwrap(), "tcp"]));
    assert_eq!(ended.exit, Exit::Code(0), "{text}");
    let said = ended.certificate.to_string();
    assert!(said.contains("wrote more into a TCP connection than its buffers hold"), "{said}");
}

#[test]
fn time_passes_only_in_the_world() {
    let scratch = ScratchFolder::new("time");
    let begun = Instant::now();
    let script = "date +%s; sleep 3600; date +%s; timeout 5 sleep 100; echo $?";
    let (ended, output) = printed(&world(&scratch, 1, &["sh", "-c", script]));
    assert_eq!(output, "1790078400\n1790082000\n124\n");
    assert!(begun.elapsed() < Duration::from_secs(600), "an hour of the world took {:?}", begun.elapsed());
    assert!((3605..3606).contains(&(ended.virtual_ns / 1_000_000_000)), "{ended:?}");
}

#[test]
fn random_numbers_come_from_the_seed() {
    let scratch = ScratchFolder::new("chance");
    let script = "od -An -tx1 -N8 /dev/urandom; echo $$; mktemp -u";
    let of = |seed| printed(&world(&scratch, seed, &["sh", "-c", script])).1;
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn exit_codes_and_signals_are_those_of_the_program() {
    let scratch = ScratchFolder::new("exits");
    let exit = |script| printed(&world(&scratch, 1, &["sh", "-c", script])).0.exit;
    assert_eq!(exit("exit 7"), Exit::Code(7));
    assert_eq!(exit("kill -9 $$"), Exit::Signal(libc_signal::KILL));
    assert_eq!(exit("kill -TERM $$"), Exit::Signal(libc_signal::TERM));
    assert_eq!(exit("sleep 100 & kill $!; wait $!"), Exit::Code(128 + libc_signal::TERM));
}

/// Numbers of signals.
mod libc_signal {
    pub(super) const KILL: i32 = 9;
    pub(super) const TERM: i32 = 15;
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let error = run(&WorldOptions::new(1, vec!["no-such-program".into()])).unwrap_err();
    assert!(matches!(&error, WorldError::Program { program, .. } if program == "no-such-program"), "{error}");
}

#[test]
fn what_the_machine_says_is_doubted_by_name() {
    let scratch = ScratchFolder::new("doubts");
    let mut options = world(&scratch, 1, &["cat", "/proc/vmstat"]);
    let (ended, _) = printed(&options);
    let said = ended.certificate.to_string();
    assert!(said.starts_with("not certified: cat (p1.t1) read /proc/vmstat"), "{said}");
    options.strict = true;
    let error = run(&options).unwrap_err();
    assert!(matches!(error, WorldError::Strict(_)), "{error}");
}

#[test]
fn a_deadlock_says_who_waits_for_what() {
    let scratch = ScratchFolder::new("deadlock");
    let Some(program) = scratch.program("deadlock") else { return };
    let error = (1..100).find_map(|seed| run(&world(&scratch, seed, &[program.to_str().unwrap()])).err());
    let said = error.expect("no seed has the deadlock").to_string();
    assert_eq!(said.matches("futex waits for a wake of the word at 0x").count(), 3, "{said}");
}

#[test]
fn a_recording_is_compared_event_by_event() {
    let scratch = ScratchFolder::new("recording");
    let Some(program) = scratch.program("server") else { return };
    let mut options = world(&scratch, 3, &[program.to_str().unwrap()]);
    options.record = Some(scratch.file("recorded.world"));
    let recorded = run(&options).unwrap();
    (options.record, options.expected) = (None, options.record);
    assert_eq!(run(&options).unwrap(), recorded);
    options.draws = Draws { switch_ppm: 900_000, ..options.draws };
    let departed = run(&options).unwrap_err();
    let said = departed.to_string();
    assert!(matches!(departed, WorldError::Departed(_)), "{said}");
    assert!(said.contains("recorded: ") && said.contains("now:      "), "{said}");
}

#[test]
fn listed_departures_are_the_only_ones() {
    let scratch = ScratchFolder::new("departures");
    let Some(program) = scratch.program("server") else { return };
    let mut options = world(&scratch, 5, &[program.to_str().unwrap()]);
    let drawn = printed(&options);
    assert!(!drawn.0.departures.is_empty());
    options.departures = Some(drawn.0.departures.iter().map(|(point, (what, _))| (*point, *what)).collect());
    let listed = printed(&options);
    assert_eq!(listed.1, drawn.1);
    assert_eq!(listed.0.departures, drawn.0.departures);
    options.departures = Some([(0, Departure::Switch(0))].into());
    let plain = printed(&options);
    assert!(plain.0.departures.is_empty());
    options.seed = 6;
    options.output = Some(scratch.file("other"));
    assert_eq!(printed(&options).1, plain.1, "without departures all seeds have the plain order");
}

#[test]
fn a_rest_between_two_instructions_finds_what_no_point_is_between() {
    let scratch = ScratchFolder::new("race");
    let Some(program) = scratch.program("race") else { return };
    let with = |seed: u64, preempt_ppm: u32| {
        let mut options = world(&scratch, seed, &[program.to_str().unwrap()]);
        options.draws = Draws { preempt_ppm, ..options.draws };
        options
    };
    for seed in 1..=10 {
        let ended = printed(&with(seed, 0)).0;
        assert_eq!(ended.exit, Exit::Code(0), "the accesses are never interleaved without");
    }
    let found = (1..=60).find(|seed| printed(&with(*seed, 200_000)).0.exit == Exit::Code(1));
    let mut options = with(found.expect("a seed interleaves them"), 200_000);
    options.record = Some(scratch.file("recorded.world"));
    let (drawn, counter) = printed(&options);
    assert!(drawn.certificate.doubts.is_empty(), "{}", drawn.certificate);
    let is_preemption = |what: &Departure| matches!(what, Departure::Preempt { .. });
    assert!(drawn.departures.values().any(|(what, _)| is_preemption(what)));
    (options.record, options.expected) = (None, options.record);
    assert_eq!(printed(&options), (drawn.clone(), counter.clone()), "the run is that of its recording");
    options.expected = None;
    options.departures = Some(drawn.departures.iter().map(|(number, (what, _))| (*number, *what)).collect());
    let (listed, same) = printed(&options);
    assert_eq!((listed.exit, listed.certificate, same), (drawn.exit, drawn.certificate, counter));
    for (number, (what, _)) in &listed.departures {
        let location = listed.locations.get(number);
        assert!(
            !is_preemption(what) || location.is_some_and(|location| location.file == program),
            "{location:?}"
        );
    }
}

#[test]
fn threads_with_priorities_repeat_in_many_orders() {
    let scratch = ScratchFolder::new("priorities");
    let Some(program) = scratch.program("threads") else { return };
    let mut orders = BTreeSet::new();
    for seed in 1..=10 {
        let mut options = world(&scratch, seed, &[program.to_str().unwrap()]);
        options.draws = Draws { priorities: true, switch_ppm: 50_000, ..options.draws };
        let (first, second) = (printed(&options), printed(&options));
        assert_eq!(first, second, "seed {seed}");
        assert!(first.0.certificate.doubts.is_empty(), "seed {seed}: {}", first.0.certificate);
        let listed = first.0.departures.iter().map(|(number, (what, _))| (*number, *what)).collect();
        options.departures = Some(listed);
        assert_eq!(printed(&options).1, first.1, "seed {seed}: what the priorities decided is listed");
        orders.insert(first.1);
    }
    assert!(orders.len() >= 3, "{} orders", orders.len());
}

#[test]
fn a_run_ends_when_it_takes_longer_than_it_may() {
    let scratch = ScratchFolder::new("long");
    let mut options = world(&scratch, 1, &["sleep", "100"]);
    options.longest_s = Some(99);
    let ended = run(&options).unwrap_err();
    assert!(matches!(ended, WorldError::Long { seconds: 99, .. }), "{ended}");
    options.longest_s = Some(101);
    assert_eq!(run(&options).unwrap().exit, Exit::Code(0));
}
