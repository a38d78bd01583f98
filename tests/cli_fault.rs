//! `pumice fault`: rules that come and go while unmodified programs run.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

#[path = "fault/scratch.rs"]
mod scratch;

use scratch::{LineDrivenProgram, Scratch, compile};

#[test]
fn a_program_without_a_plan_takes_rules_and_gives_them_up() {
    let scratch = Scratch::new("alone");
    let Some(program) = compile(&scratch, "paced") else { return };
    let report = scratch.0.join("report");
    let report_text = report.to_str().expect("UTF-8");
    let mut paced =
        LineDrivenProgram::alone(&scratch, &program, 1, &["--tag", "one", "--fault-report", report_text]);
    paced.sends(5);
    assert!(scratch.rules(&[]).is_empty() && !report.exists(), "nothing is written without rules");

    let (code, out, output_text) = scratch.fault(&["add", "drop opcode=send nth=3"]);
    assert_eq!(code, Some(0), "{output_text}");
    assert!(out.ends_with("(paced) tag one: added drop\n"), "{out}");
    paced.sends(10);
    let rules = scratch.rules(&["--tag", "o*"]);
    // The third is sent twice, and both are met.
    assert_eq!((&rules[0]["met"], &rules[0]["applied"]), (&11.into(), &1.into()), "{rules:?}");
    assert_eq!((&rules[0]["live"], &rules[0]["does"]), (&true.into(), &"drop opcode=send nth=3".into()));

    assert_eq!(scratch.fault(&["add", "duplicate name=twice opcode=send"]).0, Some(0));
    assert_eq!(scratch.fault(&["pause", "twice"]).0, Some(0));
    paced.sends(4);
    assert_eq!(scratch.rules(&[])[1]["met"], 0);
    assert_eq!(scratch.fault(&["resume"]).0, Some(0));
    paced.sends(4);
    let twice = &scratch.rules(&[])[1];
    assert_eq!((&twice["met"], &twice["applied"]), (&4.into(), &4.into()));
    let (_, shown, _) = scratch.fault(&["list"]);
    assert!(shown.contains("  twice  met 4, applied 4, live: duplicate name=twice"), "{shown}");
    assert_eq!(scratch.fault(&["clear"]).0, Some(0));
    assert!(scratch.rules(&[]).is_empty());
    paced.sends(3);
    // Where traffic stands is found again.
    assert_eq!(scratch.fault(&["add", "drop name=again opcode=send nth=2"]).0, Some(0));
    paced.sends(3);
    assert_eq!(scratch.rules(&[])[0]["applied"], 1);
    paced.ends();

    let text = fs::read_to_string(&report).expect("the report of a program that took rules");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["process"], &lines[0]["rules"]), (&"one".into(), &Value::Array(Vec::new())));
    assert_eq!((&lines[1]["live"], &lines[1]["line"]), (&"added".into(), &"drop opcode=send nth=3".into()));
    assert_eq!((&lines[1]["rule"], &lines[1]["after_queue_pairs"]), (&"drop".into(), &1.into()));
    assert_eq!(lines[1]["note"], "this moment is not reproducible");
    let lost = (&lines[2]["rule"], &lines[2]["message"], &lines[2]["lost"]);
    assert_eq!(lost, (&"drop".into(), &7.into(), &true.into()), "the third after five");
    // The report is a plan: with it the same messages are lost in a run from the beginning.
    let checked = scratch.pumice(&["fault", "check", report_text]).output().expect("it can be run");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let mut again =
        LineDrivenProgram::alone(&scratch, &program, 1, &["--tag", "one", "--faults", report_text]);
    again.sends(40);
    let rules = scratch.rules(&[]);
    let applied = |name: &str| rules.iter().find(|rule| rule["name"] == name).map(|rule| &rule["applied"]);
    assert_eq!((applied("drop"), applied("again")), (Some(&1.into()), Some(&1.into())), "{rules:?}");
    again.ends();
}

#[test]
fn of_several_processes_one_has_to_be_named() {
    let scratch = Scratch::new("several");
    let Some(program) = compile(&scratch, "paced") else { return };
    let mut one = LineDrivenProgram::alone(
        &scratch,
        &program,
        2,
        &["--tag", "one", "--fault", "drop opcode=ack nth=1"],
    );
    let mut other = LineDrivenProgram::alone(&scratch, &program, 3, &["--tag", "other"]);
    let (code, _, output_text) = scratch.fault(&["add", "drop opcode=send nth=1"]);
    assert_eq!(code, Some(2), "{output_text}");
    for part in ["2 processes run", "--pid", "tag one", "tag other", &one.child.id().to_string()] {
        assert!(output_text.contains(part), "{output_text}");
    }
    assert!(scratch.rules(&["--tag", "other"]).is_empty());
    let pid = other.child.id().to_string();
    assert_eq!(scratch.fault(&["add", "drop name=x opcode=send nth=1", "--pid", &pid]).0, Some(0));
    assert_eq!(scratch.fault(&["add", "drop name=y opcode=send nth=2", "--all"]).0, Some(0));
    one.sends(2);
    other.sends(2);
    let count = |tag: &str| {
        scratch.rules(&["--tag", tag]).iter().map(|rule| rule["applied"] == 1).collect::<Vec<_>>()
    };
    assert_eq!((count("one"), count("other")), (vec![true; 2], vec![true; 2]));

    let (code, out, _) = scratch.fault(&["pause", "x", "--all", "--json"]);
    assert_eq!(code, Some(1), "{out}");
    let changes: Vec<Value> = serde_json::from_str(&out).expect("JSON");
    let of = |tag: &str| changes.iter().find(|change| change["tag"] == tag).expect("it was asked");
    assert_eq!((&of("one")["done"], &of("other")["done"]), (&false.into(), &true.into()), "{out}");
    assert_eq!(of("other")["changed"], serde_json::json!(["x"]));
    assert!(of("one")["refused"].as_str().is_some_and(|why| why.contains("no rule \"x\"")), "{out}");

    let (code, out, _) = scratch.fault(&["clear", "x", "--all"]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("tag one: refused: there is no rule \"x\": it has drop, y\n"), "{out}");
    assert!(out.contains("tag other: cleared x\n"), "{out}");
    let (code, out, _) = scratch.fault(&["add", "drop tag=third", "--tag", "one"]);
    assert!(code == Some(1) && out.contains("this one has one"), "{out}");
    let (code, _, output_text) = scratch.fault(&["add", "dorp", "--all"]);
    assert!(code == Some(2) && output_text.contains("dorp is no kind of fault"), "{output_text}");
    let (code, _, output_text) = scratch.fault(&["list", "--tag", "third"]);
    assert!(code == Some(1) && output_text.contains("with the tag third"), "{output_text}");
    one.ends();
    other.ends();
}

/// The packets of a capture, and the totals.
fn captured(scratch: &Scratch, file: &Path) -> (Vec<Value>, Value) {
    let output = scratch.pumice(&["capture", "--json"]).arg(file).output().expect("it can be run");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let totals = lines.pop().expect("totals");
    (lines, totals)
}

#[test]
fn a_capture_has_what_a_plan_lost_and_says_what_it_harmed() {
    let scratch = Scratch::new("marks");
    let Some(program) = compile(&scratch, "paced") else { return };
    let file = scratch.0.join("capture");
    let options =
        ["--capture", file.to_str().expect("UTF-8"), "--fault", "drop name=third opcode=send nth=3"];
    let more = ["--fault", "duplicate opcode=send nth=6", "--fault", "corrupt opcode=send nth=8 bit=100"];
    let mut paced = LineDrivenProgram::alone(&scratch, &program, 4, &[&options[..], &more].concat());
    paced.sends(10);
    paced.ends();
    let (packets, totals) = captured(&scratch, &file);
    assert_eq!(totals["lost"], 1);
    let output_text = |psn: u32| -> Vec<&str> {
        let sends = packets.iter().filter(|one| one["psn"] == psn && one["opcode"] == "RC_SEND_ONLY");
        sends.filter_map(|one| one["comments"][0].as_str()).collect()
    };
    let of = |psn: u32, transmission: u32| {
        format!(
            "send of message {psn}, packet {psn}, transmission {transmission} (queue pair 0, connection 0)"
        )
    };
    assert_eq!(output_text(2), [format!("pumice: lost: fault \"third\" loses {}", of(2, 1))]);
    let lost =
        packets.iter().find(|one| one["comments"][0].as_str().is_some_and(|text| text.contains("third")));
    assert_eq!(lost.map(|one| &one["icrc"]), Some(&"ok".into()), "it is whole");
    // The third is met twice.
    let twice = format!("pumice: harmed: fault \"duplicate\" sends 1 more of {}", of(4, 1));
    assert_eq!(output_text(4), [&twice, &twice]);
    assert_eq!(output_text(6), [format!("pumice: harmed: fault \"corrupt\" corrupts {}", of(6, 1))]);
    assert!(output_text(0).is_empty() && output_text(9).is_empty());
}

/// Messages of each round of two ends: as many as there is room for.
const ROUND: u32 = 4;
const ROUNDS: u32 = 40;

/// Runs two ends with these options each, where `%` stands for the name of the end; their addresses end in
/// `number` and the next one.
fn run_pair(scratch: &Scratch, program: &Path, number: u8, options: &[&str]) {
    for (rest, code) in pair_by(scratch, program, number, &["run"], options) {
        assert_eq!(code, Some(0), "{rest}");
    }
}

/// The same by this command; what the ends say last.
fn pair_by(
    scratch: &Scratch,
    program: &Path,
    number: u8,
    by: &[&str],
    options: &[&str],
) -> [(String, Option<i32>); 2] {
    pair_at(scratch, program, [number, number + 1], by, options)
}

/// The same with these addresses.
fn pair_at(
    scratch: &Scratch,
    program: &Path,
    [of_sender, of_receiver]: [u8; 2],
    by: &[&str],
    options: &[&str],
) -> [(String, Option<i32>); 2] {
    let mut ends = [("sender", of_sender), ("receiver", of_receiver)].map(|(name, number)| {
        let options: Vec<String> = options.iter().map(|option| option.replace('%', name)).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        LineDrivenProgram::begin(scratch, program, number, by, &[&["--tag", name], &options[..]].concat())
    });
    let [of_sender, of_receiver] = ends.each_mut().map(LineDrivenProgram::read_line);
    let [sender, receiver] = &mut ends;
    sender.send_line(of_receiver.trim());
    receiver.send_line(of_sender.trim());
    sender.expect_line("ready\n");
    receiver.expect_line("ready\n");
    for _ in 0..ROUNDS {
        receiver.run_command("recv ", ROUND);
        sender.run_command("send ", ROUND);
        receiver.run_command("wait ", ROUND);
    }
    ends.map(LineDrivenProgram::finish)
}

/// The requests that were lost, as a report names them.
fn lost_requests(report: &Path) -> Vec<[u64; 3]> {
    let text = fs::read_to_string(report).expect("a report");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let lost = lines.filter(|line| line["lost"] == true && line["side"] == "requester");
    let mut lost: Vec<[u64; 3]> = lost
        .map(|line| {
            ["message", "packet", "transmission"].map(|field| line[field].as_u64().expect("a number"))
        })
        .collect();
    lost.sort_unstable();
    lost
}

#[test]
fn the_plan_of_two_captures_loses_the_same_packets_again() {
    let scratch = Scratch::new("again");
    let Some(program) = compile(&scratch, "pair") else { return };
    let path = |name: &str| scratch.0.join(name).to_str().expect("UTF-8").to_owned();
    let (capture, report) = (path("%.pcapng"), path("%.first"));
    run_pair(&scratch, &program, 5, &["--loss", "0.08", "--capture", &capture, "--fault-report", &report]);
    let first = lost_requests(&scratch.0.join("sender.first"));
    assert!(first.len() >= 3, "{first:?}");

    let made =
        scratch.pumice(&["capture", &path("sender.pcapng"), &path("receiver.pcapng"), "--faults"]).output();
    let made = made.expect("it can be run");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let plan = String::from_utf8(made.stdout).expect("text");
    for part in ["# * tag:", "# * qp:", "# * message, packet:"] {
        assert!(plan.contains(part), "{plan}");
    }
    assert!(!plan.contains("# * sides:") && !plan.contains("# * fates:"), "these are known: {plan}");
    fs::write(scratch.0.join("plan.toml"), &plan).expect("the folder is writable");
    let checked = scratch.pumice(&["fault", "check", &path("plan.toml")]).output().expect("it can be run");
    assert!(checked.status.success(), "{plan}{}", String::from_utf8_lossy(&checked.stderr));

    let report = path("%.second");
    run_pair(&scratch, &program, 5, &["--faults", &path("plan.toml"), "--fault-report", &report]);
    // What the network itself lost of the first run, as on a busy machine, is in the plan besides.
    let second = lost_requests(&scratch.0.join("sender.second"));
    assert!(first.iter().all(|lost| second.contains(lost)), "{first:?} {second:?} {plan}");
    let is_of_requests =
        |rule: &&str| rule.contains("do = \"drop\"") && rule.contains("side = \"requester\"");
    assert_eq!(second.len(), plan.split("[[rule]]").filter(is_of_requests).count(), "{plan}");
}

#[test]
fn the_plan_of_one_capture_takes_what_was_sent_again_for_lost() {
    let scratch = Scratch::new("one-side");
    let Some(program) = compile(&scratch, "pair") else { return };
    let path = |name: &str| scratch.0.join(name).to_str().expect("UTF-8").to_owned();
    let (capture, report) = (path("%.pcapng"), path("%.first"));
    let fault = "drop opcode=send nth=20..100+20";
    run_pair(&scratch, &program, 7, &["--fault", fault, "--capture", &capture, "--fault-report", &report]);
    let made =
        scratch.pumice(&["capture", &path("sender.pcapng"), "--faults"]).output().expect("it can be run");
    let plan = String::from_utf8(made.stdout).expect("text");
    assert!(made.status.success() && plan.contains("# * fates:"), "{plan}");
    for [message, packet, transmission] in lost_requests(&scratch.0.join("sender.first")) {
        let rule = format!("message = \"{message}\"\npacket = {packet}\ntransmission = {transmission}\n");
        assert!(plan.contains(&rule), "{message}: {plan}");
    }
}

/// The file of a record that belongs to the process with this tag.
fn of_record(folder: &Path, tag: &str, extension: &str) -> PathBuf {
    let files = fs::read_dir(folder).expect("a record").map(|entry| entry.expect("a file").path());
    let is_of = |file: &PathBuf| fs::read_to_string(file).is_ok_and(|text| text == tag);
    let tags = files.filter(|file| file.extension().is_some_and(|extension| extension == "tag"));
    tags.filter(is_of).map(|file| file.with_extension(extension)).next().expect("a process with this tag")
}

/// The folder of the newest replay of a record by a process with this tag.
fn replay_of(folder: &Path, tag: &str) -> PathBuf {
    let files = fs::read_dir(folder).expect("a record").map(|entry| entry.expect("a file").path());
    let has = |replay: &PathBuf| {
        let files = fs::read_dir(replay).into_iter().flatten().map(|entry| entry.expect("a file").path());
        files.filter(|file| fs::read_to_string(file).is_ok_and(|text| text == tag)).count() > 0
    };
    files.filter(|file| file.is_dir()).find(has).expect("a replay")
}

/// A replay says that all recorded things happened again, and that they were so many. On a busy machine the
/// network may lose more, in the record and in the replay, which then says so and ends with 1.
fn assert_all_again((output_text, code): &(String, Option<i32>), least: usize) {
    let line =
        output_text.lines().find(|line| line.ends_with("recorded things happened again")).expect("a result");
    let mut numbers = line.split(' ').filter_map(|word| word.parse::<usize>().ok());
    let (again, recorded) = (numbers.next(), numbers.next());
    assert!(again == recorded && again >= Some(least), "{output_text}");
    let is_new = output_text.contains("is new");
    assert_eq!(*code, Some(i32::from(is_new)), "{output_text}");
}

#[test]
fn a_recorded_run_loses_the_same_packets_when_it_is_replayed() {
    let scratch = Scratch::new("record");
    let Some(program) = compile(&scratch, "pair") else { return };
    let folder = scratch.0.join("record");
    let name = folder.to_str().expect("UTF-8");
    let fault = "drop name=some chance=0.08 side=requester";
    run_pair(&scratch, &program, 9, &["--record", name, "--fault", fault]);
    let report = of_record(&folder, "sender", "faults");
    let first = lost_requests(&report);
    assert!(first.len() >= 3, "{first:?}");
    let [of_sender, _] = pair_by(&scratch, &program, 9, &["replay", name], &[]);
    assert_all_again(&of_sender, first.len());
    let replay = replay_of(&folder, "sender");
    let again = lost_requests(&of_record(&replay, "sender", "faults"));
    assert!(first.iter().all(|lost| again.contains(lost)), "{first:?} {again:?}");
    for tag in ["sender", "receiver"] {
        fs::remove_dir_all(replay_of(&folder, tag)).expect("a folder of ours");
    }

    // As if no plan but the network had lost them: they left, and did not arrive.
    fs::remove_file(report).expect("a file of ours");
    let capture = of_record(&folder, "sender", "pcapng");
    let mut bytes = fs::read(&capture).expect("a capture");
    let mark = b"pumice: lost: ";
    let offsets: Vec<usize> =
        (0..bytes.len() - mark.len()).filter(|at| bytes[*at..].starts_with(mark)).collect();
    for at in offsets {
        bytes[at] = b'P';
    }
    fs::write(&capture, bytes).expect("a file of ours");
    let [of_sender, _] = pair_by(&scratch, &program, 9, &["replay", name], &[]);
    assert_all_again(&of_sender, first.len());
    let report = of_record(&replay_of(&folder, "sender"), "sender", "faults");
    let again = lost_requests(&report);
    assert!(first.iter().all(|lost| again.contains(lost)), "{first:?} {again:?}");
    let text = fs::read_to_string(report).expect("a report");
    assert!(text.contains("\"rule\":\"network\""), "{text}");
}

#[test]
fn processes_with_one_address_are_recorded_and_a_replay_sees_no_loss_that_was_none() {
    let scratch = Scratch::new("one-address");
    let Some(program) = compile(&scratch, "pair") else { return };
    let folder = scratch.0.join("record");
    let name = folder.to_str().expect("UTF-8");
    let fault = "drop name=some chance=0.08 side=requester";
    let options = ["--record", name, "--fault", fault];
    for (rest, code) in pair_at(&scratch, &program, [21, 21], &["run"], &options) {
        assert_eq!(code, Some(0), "{rest}");
    }
    let lost = lost_requests(&of_record(&folder, "sender", "faults"));
    for (end, least) in
        pair_at(&scratch, &program, [21, 21], &["replay", name], &[]).iter().zip([lost.len(), 0])
    {
        assert_all_again(end, least);
        // On a busy machine some are sent again. All are 160 requests, of which twenty would be told.
        assert!(!end.0.contains("is new: and "), "{}", end.0);
    }
}

/// What `pumice stat` says of a counter, all processes that run this program together.
fn counted(scratch: &Scratch, program: &str, counter: &str) -> u64 {
    let output = scratch.pumice(&["stat", "--json"]).output().expect("it can be run");
    let all: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let processes = all.as_array().map(Vec::as_slice).unwrap_or_default();
    let own = processes.iter().filter(|process| process["program"] == program);
    own.filter_map(|process| process["counters"][counter].as_u64()).sum()
}

/// RNR NAKs that a rule of this name answered with, by a report.
fn answers(report: &Path, rule: &str) -> usize {
    let text = fs::read_to_string(report).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.filter(|line| line["rule"] == rule && line["answered"] == "rnr").count()
}

#[test]
fn a_record_has_the_children_of_a_program_and_a_receiver_that_was_not_ready() {
    let scratch = Scratch::new("children");
    let Some(program) = compile(&scratch, "pair") else { return };
    let folder = scratch.0.join("record");
    let name = folder.to_str().expect("UTF-8");
    // The shell does not become the program: it has something to do after it. The timer is 82 ms.
    let script = scratch.0.join("child.sh");
    fs::write(&script, format!("{} 26\nexit $?\n", program.display())).expect("the folder is writable");
    let start = |by: &[&str], tag: &str, number: u8| {
        let options = ["--tag", tag, "--", "/bin/sh"];
        LineDrivenProgram::begin(&scratch, &script, number, by, &options)
    };
    let meet = |by: &[&str]| {
        let (mut sender, mut receiver) = (start(by, "sender", 11), start(by, "receiver", 12));
        let (of_sender, of_receiver) = (sender.read_line(), receiver.read_line());
        sender.send_line(of_receiver.trim());
        receiver.send_line(of_sender.trim());
        sender.expect_line("ready\n");
        receiver.expect_line("ready\n");
        (sender, receiver)
    };
    let (mut sender, mut receiver) = meet(&["run", "--record", name]);
    sender.send_line("send 1");
    while counted(&scratch, "pair", "rx_rnr_nak") == 0 {}
    receiver.run_command("recv ", 1);
    sender.expect_line("done 1\n");
    receiver.run_command("wait ", 1);
    sender.ends();
    receiver.ends();
    let pcapng = |folder: &Path| {
        let files = fs::read_dir(folder).expect("a record").map(|entry| entry.expect("a file").path());
        files.filter(|file| file.extension().is_some_and(|it| it == "pcapng")).collect::<Vec<_>>()
    };
    let captures = pcapng(&folder);
    assert!(captures.iter().all(|file| file.with_extension("tag").exists()), "{captures:?}");

    let (mut sender, mut receiver) = meet(&["replay", name]);
    receiver.run_command("recv ", 1);
    sender.run_command("send ", 1);
    receiver.run_command("wait ", 1);
    let (output_text, code) = sender.finish();
    assert_eq!(code, Some(i32::from(output_text.contains("is new"))), "{output_text}");
    assert!(!output_text.contains("did not happen"), "{output_text}");
    receiver.finish();
    let replay = replay_of(&folder, "sender");
    let refused: usize =
        pcapng(&replay).iter().map(|file| answers(&file.with_extension("faults"), "network")).sum();
    assert!(refused >= 1, "{output_text}");
}
