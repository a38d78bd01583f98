//! `pumice world search` on several machines, `pumice world merge`, and planted mistakes with their corrected
//! twins.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "world/kit.rs"]
mod kit;

use std::process::Output;

use kit::{Scratch, text};

/// Fails always.
const FAILS: [&str; 4] = ["--", "sh", "-c", "echo broken 7; exit 3"];

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn each_engine_says_which_seeds_are_this_machines() {
    let engines: [(&str, &[(&str, &str)]); 4] = [
        ("PUMICE_SHARD_INDEX", &[("PUMICE_SHARD_INDEX", "1"), ("PUMICE_SHARD_COUNT", "3")]),
        ("CI_NODE_INDEX", &[("CI_NODE_INDEX", "2"), ("CI_NODE_TOTAL", "3")]),
        (
            "SLURM_ARRAY_TASK_ID",
            &[("SLURM_ARRAY_TASK_ID", "6"), ("SLURM_ARRAY_TASK_MIN", "5"), ("SLURM_ARRAY_TASK_COUNT", "3")],
        ),
        ("JOB_COMPLETION_INDEX", &[("JOB_COMPLETION_INDEX", "1"), ("PUMICE_SHARD_COUNT", "3")]),
    ];
    for (name, variables) in engines {
        let scratch = Scratch::new(name);
        let arguments = ["search", "--seeds", "1..5", "--", "sh", "-c", "test -z \"$PUMICE_SHARD_COUNT\""];
        let found = scratch.command(&arguments).envs(variables.iter().copied()).output();
        let found = found.expect("the program can be run");
        assert_eq!(code(&found), Some(0), "{found:?}");
        assert!(text(&found.stdout).starts_with("2 seeds of shard 2/3 in "), "{found:?}");
        let output_text = format!("pumice: {name} says that this is shard 2/3 of the seeds\n");
        assert_eq!(text(&found.stderr), output_text);
        let result = scratch.read("world-failures/shard-2-of-3.json");
        let result: serde_json::Value = serde_json::from_str(&result).expect("it is JSON");
        assert_eq!((&result["shard"], &result["runs"]), (&"2/3".into(), &2.into()), "{result}");
        // The option counts more than the engine, and one that is wrong is told in one sentence.
        let mut given = scratch.command(&["search", "--seeds", "1..5", "--shard", "1/1", "--", "true"]);
        let given = given.envs(variables.iter().copied()).output().expect("the program can be run");
        assert!(text(&given.stdout).starts_with("5 seeds in ") && given.stderr.is_empty(), "{given:?}");
        let (wrong, _) = variables[0];
        let refused = scratch.command(&arguments).envs(variables.iter().copied()).env(wrong, "x").output();
        let refused = refused.expect("the program can be run");
        let output_text =
            format!("pumice: {wrong}=x is no whole number from 0: correct it, or give --shard K/N");
        assert_eq!(code(&refused), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).starts_with(&output_text), "{refused:?}");
        assert_eq!(text(&refused.stderr).lines().count(), 1, "{refused:?}");
    }
}

#[test]
fn results_of_shards_are_one_result() {
    let scratch = Scratch::new("merge");
    for shard in ["1/3", "2/3", "3/3"] {
        let mut arguments = vec!["search", "--seeds", "1..6", "--shard", shard];
        arguments.extend(FAILS);
        let found = scratch.world(&arguments);
        assert_eq!(code(&found), Some(1), "{found:?}");
        assert!(text(&found.stdout).starts_with(&format!("2 seeds of shard {shard} in ")), "{found:?}");
    }
    let shards = [1, 2, 3].map(|number| format!("world-failures/shard-{number}-of-3.json"));
    let [one, two, three] = shards.each_ref().map(String::as_str);
    for format in ["json", "xml", "md", "sarif", "txt"] {
        let report = format!("report.{format}");
        let merged = scratch.world(&["merge", "--report", &report, three, one, two]);
        assert_eq!(code(&merged), Some(1), "{merged:?}");
        let output_text = text(&merged.stdout);
        assert!(
            output_text.starts_with("6 seeds in ") && output_text.contains(" s: 6 failed, in 1 way\n"),
            "{output_text}"
        );
        assert!(
            output_text.contains("\nexit code 3: broken #\n  seeds: 1, 2, 3, 4, 5, 6 (6 in all);"),
            "{output_text}"
        );
        let report = scratch.read(&report);
        match format {
            "txt" => assert_eq!(report, output_text),
            "xml" => assert!(report.contains("<testsuite") && report.contains("exit code 3"), "{report}"),
            "md" => assert!(report.contains("exit code 3: broken"), "{report}"),
            _ => {
                let report: serde_json::Value = serde_json::from_str(&report).expect("it is JSON");
                let failed = &report["failures"][0]["seeds"];
                assert!(format == "sarif" || failed.as_array().is_some_and(|seeds| seeds.len() == 6));
            }
        }
    }
    // A merged result is a result.
    let again = scratch.world(&["merge", "report.json"]);
    assert!(text(&again.stdout).starts_with("6 seeds in "), "{again:?}");
    assert_eq!(code(&scratch.world(&["merge", "--format", "json", "--report", "r", one])), Some(1));
    assert!(scratch.read("r").contains("\"missing\": [\n    2,\n    3\n  ]"), "{}", scratch.read("r"));
}

#[test]
fn a_missing_shard_is_reported_and_is_not_good() {
    let scratch = Scratch::new("missing");
    for shard in ["1/4", "3/4"] {
        let found = scratch.world(&["search", "--seeds", "1..4", "--shard", shard, "--", "true"]);
        assert_eq!(code(&found), Some(0), "{found:?}");
    }
    let (one, three) = ("world-failures/shard-1-of-4.json", "world-failures/shard-3-of-4.json");
    let merged = scratch.world(&["merge", "--report", "m.xml", one, three]);
    assert_eq!(code(&merged), Some(1), "{merged:?}");
    let output_text = text(&merged.stdout);
    assert!(
        output_text.starts_with("2 seeds in ") && output_text.contains("2 shards are missing"),
        "{output_text}"
    );
    assert!(output_text.contains(": 2, 4\n"), "{output_text}");
    assert!(scratch.read("m.xml").contains("failures=\"1\""), "{}", scratch.read("m.xml"));
    // With all of them it is good.
    for shard in ["2/4", "4/4"] {
        scratch.world(&["search", "--seeds", "1..4", "--shard", shard, "--", "true"]);
    }
    let (two, four) = ("world-failures/shard-2-of-4.json", "world-failures/shard-4-of-4.json");
    let merged = scratch.world(&["merge", one, two, three, four]);
    assert_eq!(code(&merged), Some(0), "{merged:?}");
    assert!(text(&merged.stdout).starts_with("4 seeds in "), "{merged:?}");
}

#[test]
fn wrong_results_and_words_are_one_sentence() {
    let scratch = Scratch::new("words");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(scratch.0.join(name), bytes).expect("a file can be written");
    };
    assert_eq!(
        code(&scratch.world(&["search", "--seeds", "1..1", "--result", "good", "--", "true"])),
        Some(0)
    );
    let good = scratch.read("good");
    write("other", good.replace("1..1", "1..2").as_bytes());
    write("cut", &good.as_bytes()[..good.len() / 2]);
    write("newer", good.replace("\"version\": 1", "\"version\": 2").as_bytes());
    write("many", good.replace("\"runs\": 1", "\"runs\": 18446744073709551615").as_bytes());
    write("bytes", b"{\"version\": 1, \"command\": [\"\xff\xfe\"]}");
    let cases: [(&[&str], &str); 14] = [
        (&["merge"], "<RESULT>..."),
        (&["merge", "nowhere"], "nowhere cannot be read"),
        (&["merge", "."], ". is no file"),
        (&["merge", "cut"], "cut is no result of pumice world search: EOF"),
        (&["merge", "newer"], "it is of version 2, and this pumice reads version 1"),
        (&["merge", "many"], "it ran 18446744073709551615 seeds of 1"),
        (&["merge", "bytes"], "bytes is no result of pumice world search: "),
        (&["merge", "good", "good"], "good and good are both of shard 1/1"),
        (&["merge", "good", "other"], "are of two searches: they differ in the seeds"),
        (
            &["merge", "good", "--report", "x", "--format", "yaml"],
            "give one of text, json, sarif, junit, markdown and github",
        ),
        (&["search", "--shard", "3/2", "--", "true"], "as in 2/4; 3/2 is not that"),
        (&["search", "--seeds", "1..99999999999", "--", "true"], "more seeds than a search takes"),
        (&["search", "--report", "x", "--format", "yaml", "--", "true"], "give one of text, json"),
        (&["replay", "--stop-at", "0", "good"], "events count from 1"),
    ];
    for (arguments, sentence) in cases {
        let refused = scratch.world(arguments);
        assert_eq!(code(&refused), Some(2), "{arguments:?}: {refused:?}");
        assert!(text(&refused.stderr).contains(sentence), "{arguments:?}: {refused:?}");
    }
}

#[test]
fn a_search_says_what_it_left_out() {
    let scratch = Scratch::new("left");
    let mut arguments = vec!["search", "--first", "--jobs", "1", "--seeds", "1..50", "--result", "r.json"];
    arguments.extend(FAILS);
    let found = scratch.world(&arguments);
    let output_text = text(&found.stdout);
    assert_eq!(code(&found), Some(1), "{found:?}");
    assert!(output_text.starts_with("1 seed in "), "{output_text}");
    assert!(
        output_text.contains("49 of 50 seeds were not run, because of the first failure\n"),
        "{output_text}"
    );
    assert!(scratch.read("r.json").contains("\"end\": \"first\""));
    let found = scratch.world(&["search", "--time", "0", "--seeds", "1..50", "--", "true"]);
    assert_eq!(code(&found), Some(0), "{found:?}");
    assert!(
        text(&found.stdout).contains("50 of 50 seeds were not run, because the time was over"),
        "{found:?}"
    );
}

/// One rest is what the mistake needs; what cannot be left out alone may stay beside it.
fn needs_few_departures(report: &str) {
    let needs = report.lines().filter(|line| line.starts_with("    p")).count();
    assert!(report.is_empty() || (1..=4).contains(&needs), "{report}");
}

/// The search finds the mistake, in the words of how it shows, and nothing in the corrected twin. The program
/// gets the name of the mistake, if it has several. Returns the report.
fn finds(name: &str, mistake: &str, libraries: &[&str], end: &str) -> String {
    let scratch = Scratch::new(&format!("{name}{mistake}"));
    let Some(program) = scratch.program(name, libraries) else { return String::new() };
    let Some(corrected) = scratch.program(name, &[&["-DFIXED"], libraries].concat()) else {
        return String::new();
    };
    let search = |seeds: &str, more: &[&str], program: &str| {
        scratch.world(&[&["search", "--seeds", seeds], more, &["--", program, mistake]].concat())
    };
    let found = search("1..200", &["--first", "--jobs", "1"], &program);
    let output_text = text(&found.stdout);
    assert_eq!(code(&found), Some(1), "{found:?}");
    assert!(output_text.contains(&format!("\n{end}\n  seeds: ")), "{output_text}");
    assert!(output_text.contains("run again 3 times, the same 3 times"), "{output_text}");
    let file = output_text.lines().find_map(|line| line.trim().strip_prefix("again: pumice world replay "));
    let again = scratch.world(&["replay", file.expect("the failure is recorded")]);
    assert!(!matches!(code(&again), None | Some(0)), "what was recorded fails: {again:?}");
    let found = search("1..40", &[], &corrected);
    assert_eq!(code(&found), Some(0), "{found:?}");
    assert!(text(&found.stdout).contains(" 0 failed, in 0 ways\n"), "{found:?}");
    output_text
}

#[test]
fn a_lost_wakeup_of_threads_is_found() {
    needs_few_departures(&finds("lost_wakeup", "", &[], "all threads wait for ever: none"));
}

#[test]
fn a_request_that_its_timer_ends_as_well_is_found() {
    needs_few_departures(&finds("two_ends", "", &[], "exit code 1: the request ended twice"));
}

#[test]
fn a_server_that_relies_on_the_order_of_its_clients_is_found() {
    needs_few_departures(&finds("accept_order", "", &[], "exit code 1: # clients were mistaken for others"));
}

#[test]
fn a_completion_that_comes_before_its_request_is_counted_is_found() {
    let end = "exit code 1: a completion came before its request was counted";
    finds("verbs_orders", "count", &["-libverbs"], end);
}

#[test]
fn a_signal_between_the_look_and_the_wait_is_found() {
    finds("verbs_orders", "signal", &["-libverbs"], "all threads wait for ever");
}

#[test]
fn a_program_that_relies_on_the_order_of_datagrams_is_found() {
    finds("verbs_orders", "datagrams", &["-libverbs"], "exit code 1: the datagrams came in another order");
}

#[test]
fn what_two_threads_make_at_once_is_found() {
    needs_few_departures(&finds(
        "verbs_orders",
        "create",
        &["-libverbs"],
        "exit code 1: two domains were made",
    ));
}

#[test]
fn an_event_that_comes_before_the_note_about_it_is_found() {
    let end = "exit code 1: an event came before the program noted its cause";
    finds("verbs_orders", "event", &["-libverbs"], end);
}

#[test]
fn a_refusal_that_comes_before_the_note_about_it_is_found() {
    let end = "exit code 1: a refusal came before the client waited for it";
    finds("cm_reject", "", &["-libverbs", "-lrdmacm"], end);
}
