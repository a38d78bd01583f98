//! Worlds as performance tests: requirements on the time of a run, comparisons of two runs, runs with several
//! parameters, and the time that computing takes.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "world/kit.rs"]
mod kit;

use std::path::Path;
use std::process::Output;

use kit::{Scratch, text};
use pumice_device::performance::{Key, PerformanceModel};

const MODEL: [&str; 4] = ["--model", "connectx-7", "--addr", "127.0.0.1"];

/// Compiles the program; `None`: this machine lacks a compiler or headers.
fn rounds(scratch: &Scratch) -> Option<String> {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        eprintln!("**** SKIPPED: apt-get install libibverbs-dev");
        return None;
    }
    let program = scratch.program("rounds", &["-libverbs"])?;
    std::fs::rename(scratch.0.join(program), scratch.0.join("rounds")).expect("the same folder");
    Some("./rounds".to_owned())
}

/// Runs the program with these words in a world, and puts its trace into a folder of this name.
fn traced(scratch: &Scratch, folder: &str, words: &[&str]) -> Output {
    std::fs::create_dir_all(scratch.0.join(folder)).expect("a folder");
    let trace = format!("{folder}/%p.trace");
    let ran = scratch.world(&[&MODEL[..], &["--trace", &trace, "--", "./rounds"], words].concat());
    assert!(ran.status.success() && text(&ran.stderr).contains("pumice: certified"), "{}", text(&ran.stderr));
    ran
}

/// Compares two runs; returns the exit code and what is printed.
fn compared(scratch: &Scratch, more: &[&str]) -> (i32, String) {
    let ran = scratch.world(&[&["compare"], more].concat());
    (ran.status.code().unwrap_or(-1), text(&ran.stdout) + &text(&ran.stderr))
}

#[test]
fn requirements_on_the_time_of_a_model_are_judged() {
    let scratch = Scratch::new("require");
    if rounds(&scratch).is_none() {
        return;
    }
    let run = |requirements: &[&str]| {
        let required: Vec<&str> = requirements.iter().flat_map(|one| ["--require", *one]).collect();
        let report = ["--require-report", "report.xml"];
        scratch.world(&[&MODEL[..], &required, &report, &["--", "./rounds"]].concat())
    };
    let met = run(&["p99(latency of SEND) <= 3us", "no rnr"]);
    let said = text(&met.stderr);
    assert!(met.status.success() && said.contains("pumice: certified"), "{said}");
    assert!(said.contains("met: p99(latency of SEND) <= 3us: p99(latency of send) is 2.91 us"), "{said}");
    // The model is exact: so is the figure. The digest is the same, wherever the traces are.
    assert_eq!(said, text(&run(&["p99(latency of SEND) <= 3us", "no rnr"]).stderr));
    let missed = run(&["p99(latency of SEND) <= 2us"]);
    let said = text(&missed.stderr);
    assert_eq!(missed.status.code(), Some(1), "{said}");
    assert!(said.contains("NOT MET: p99(latency of SEND) <= 2us"), "{said}");
    assert!(scratch.read("report.xml").contains("<failure"), "{}", scratch.read("report.xml"));
    let wrong = run(&["p99(latency of SENT) <= 1us"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
    assert!(text(&wrong.stderr).contains("sent is no operation"), "{}", text(&wrong.stderr));
}

#[test]
fn what_made_a_run_slower_is_said() {
    let scratch = Scratch::new("compare");
    if rounds(&scratch).is_none() {
        return;
    }
    traced(&scratch, "old", &[]);
    traced(&scratch, "same", &[]);
    assert_eq!(compared(&scratch, &["old", "same", "--tolerance", "0"]).0, 0);
    // This makes the run no slower: the first message of a list leaves sooner alone.
    traced(&scratch, "each", &["each"]);
    assert_eq!(compared(&scratch, &["old", "each"]).0, 0);
    for (word, reason) in [
        ("copied", "80 were posted inline before, 0 now: the adapter has to fetch their payload"),
        ("late", "waited after an RNR NAK, 0 before"),
        ("registers", "memory is registered 19 times between"),
        ("waits", "60 round trips more one after the other"),
        ("waits", "80 doorbells for 80 send requests, 20 before"),
    ] {
        traced(&scratch, word, &[word]);
        let (code, said) = compared(&scratch, &["old", word]);
        assert_eq!(code, 1, "{word}: {said}");
        assert!(said.contains("SLOWER: run: ") && said.contains(reason), "{word}: {said}");
        eprintln!("{word}: {said}");
    }
    // The run is faster, though each message of a list takes longer than one alone.
    let (_, said) = compared(&scratch, &["waits", "old"]);
    assert!(said.starts_with("ok: run: "), "{said}");
}

#[test]
fn a_comparison_has_the_formats_of_other_reports_and_reads_recordings() {
    let scratch = Scratch::new("compare-formats");
    if rounds(&scratch).is_none() {
        return;
    }
    for (name, words) in [("old", &[][..]), ("new", &["waits"])] {
        let (save, trace) = (format!("{name}.world"), format!("{name}-%p.trace"));
        let options = ["--save", &save, "--trace", &trace, "--", "./rounds"];
        let ran = scratch.world(&[&MODEL[..], &options, words].concat());
        assert!(ran.status.success(), "{}", text(&ran.stderr));
    }
    let (code, annotations) = compared(&scratch, &["old.world", "new.world", "--format", "github"]);
    assert_eq!(code, 1, "{annotations}");
    assert!(
        annotations.starts_with("::error title=pumice world compare%3A run-slower::run: "),
        "{annotations}"
    );
    let (_, json) = compared(&scratch, &["old-%p.trace", "new-%p.trace", "--format", "json"]);
    let object: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!((&object["is_good"], &object["is_slower"]), (&false.into(), &true.into()));
    let report = ["old.world", "new.world", "--report", "compared.xml"];
    assert_eq!(compared(&scratch, &report).0, 1);
    assert!(scratch.read("compared.xml").contains("<failure"), "{}", scratch.read("compared.xml"));
    let (code, said) = compared(&scratch, &["none.trace", "new.world"]);
    assert_eq!((code, said.lines().count()), (2, 1), "{said}");
}

/// Says how long the program runs in a world of the model, with these options of the world.
fn duration(scratch: &Scratch, more: &[&str], words: &[&str]) -> String {
    let required = ["--require", "duration < 0ns"];
    let ran = scratch.world(&[&MODEL[..], more, &required, &["--", "./rounds"], words].concat());
    text(&ran.stderr)
}

/// The duration that was said, in us.
fn us(said: &str) -> f64 {
    let (_, behind) = said.split_once("duration is ").unwrap_or_else(|| panic!("{said}"));
    let (number, rest) = behind.split_once(' ').expect("a unit");
    let scale = if rest.starts_with("us") { 1.0 } else { 1e3 };
    number.parse::<f64>().expect("a number") * scale
}

#[test]
fn a_message_that_its_request_does_not_carry_is_fetched_by_the_adapter() {
    const MESSAGES: f64 = 80.0;
    let scratch = Scratch::new("fetch");
    if rounds(&scratch).is_none() {
        return;
    }
    let model = PerformanceModel::built_in("connectx-7").expect("it is built in");
    let [inline, fetched] =
        [&["waits"][..], &["waits", "copied"]].map(|words| us(&duration(&scratch, &[], words)));
    // Each message waits for the one before it, so that the run takes all the fetches longer.
    let fetches = MESSAGES * model.value(Key::Fetch) / 1e3;
    assert!((fetched - inline - fetches).abs() < 0.02, "{inline} {fetched} {fetches}");
}

#[test]
fn computing_takes_what_the_program_says_or_what_is_measured() {
    let scratch = Scratch::new("compute");
    if rounds(&scratch).is_none() {
        return;
    }
    let (free, said) = (us(&duration(&scratch, &[], &[])), duration(&scratch, &[], &["computes"]));
    assert!(said.contains("pumice: certified"), "{said}");
    // The last of the 20 rounds computes when all messages are there.
    let more = us(&said) - free;
    assert!((1_899.0..2_001.0).contains(&more), "{more} us: {said}");
    let measured = duration(&scratch, &["--compute", "measured"], &[]);
    let doubt =
        "not certified: rounds (p1.t1) needs the processor time that its computing is measured to take";
    assert!(measured.contains(doubt), "{measured}");
}

#[test]
fn a_program_is_run_at_each_point_of_a_grid() {
    let scratch = Scratch::new("vary");
    if rounds(&scratch).is_none() {
        return;
    }
    let vary = |more: &[&str]| {
        let ran = scratch.world(&[&["vary", "--model", "connectx-7", "--addr", "127.0.0.1"], more].concat());
        (ran.status.code(), text(&ran.stdout), text(&ran.stderr))
    };
    let program = ["--", "sh", "-c", "./rounds waits && echo took 7 rounds"];
    let files = ["--data", "x.json", "--chart", "x.svg"];
    let grid = ["--delay", "1us,2us,2500ns,3us,4us,5us", "--loss", "0,1%"];
    let (code, table, said) = vary(&[&grid[..], &files, &program].concat());
    assert_eq!(code, Some(0), "{table}{said}");
    let document: serde_json::Value = serde_json::from_str(&scratch.read("x.json")).expect("it is JSON");
    let times: Vec<u64> =
        (0..12).map(|at| document["points"][at]["world_ns"].as_u64().expect("a time")).collect();
    // 80 messages wait for their acknowledgements: each passes two links out, and two back.
    let steps: Vec<u64> = (1..6).map(|at| times[2 * at] - times[2 * at - 2]).collect();
    assert_eq!(steps, [320_000, 160_000, 160_000, 320_000, 320_000], "{table}");
    assert!(times[1] > times[0], "a lost packet takes time: {table}");
    assert_eq!(scratch.read("x.svg").matches("<polyline").count(), 2);
    let (_, again, _) = vary(&[&grid[..], &program].concat());
    assert_eq!(table, again);
    // The same without a model.
    let (links, data) = (["vary", "--addr", "127.0.0.1"], ["--data", "y.json"]);
    let ran = scratch.world(&[&links[..], &grid[..2], &data, &program].concat());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let document: serde_json::Value = serde_json::from_str(&scratch.read("y.json")).expect("it is JSON");
    let of_links: Vec<u64> =
        (0..6).map(|at| document["points"][at]["world_ns"].as_u64().expect("a time")).collect();
    let steps_of_links: Vec<u64> = of_links.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(steps_of_links, steps);
    let (code, table, _) = vary(&[&["--delay", "1us,2us", "--figure", "took"], &program[..]].concat());
    assert_eq!((code, table.as_str()), (Some(0), "delay  took\n1us    7\n2us    7\n"));
    let shard = ["--delay", "1us,2us", "--figure", "took", "--shard", "1/2"];
    assert_eq!(vary(&[&shard[..], &program].concat()).1, "delay  took\n1us    7\n");
    let (code, table, _) = vary(&["--delay", "1us", "--", "sh", "-c", "exit 3"]);
    assert_eq!(
        (code, table.as_str()),
        (Some(1), "delay  time of the world in us\n1us    none: exit code 3\n")
    );
    assert_eq!(vary(&["--", "true"]).0, Some(2));
}
