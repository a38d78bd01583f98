//! `pumice run --record` and `pumice replay` with datagrams, connection management and several devices.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;

#[path = "fault/scratch.rs"]
mod scratch;

use scratch::{LineDrivenProgram, Scratch, address, compile};

/// The only file of a folder with this extension.
fn only(folder: &Path, extension: &str) -> PathBuf {
    let files = fs::read_dir(folder).expect("a record").map(|entry| entry.expect("a file").path());
    let found: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|it| it == extension)).collect();
    let [file] = found.as_slice() else { panic!("{found:?}") };
    file.clone()
}

/// What was lost: the service, the opcode, the queue pair and the message.
type LostPacket = (String, String, u64, u64);

/// What a report says that was lost.
fn lost(report: &Path) -> BTreeSet<LostPacket> {
    lost_on(report, None)
}

/// What a report says that was lost on a device of several.
fn lost_on(report: &Path, device: Option<&str>) -> BTreeSet<LostPacket> {
    let text = fs::read_to_string(report).expect("a report");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let word = |line: &Value, field: &str| line[field].as_str().expect("a word").to_owned();
    let number = |line: &Value, field: &str| line[field].as_u64().expect("a number");
    let lost = lines.filter(|line| line["lost"] == true && line["device"].as_str() == device);
    lost.map(|line| {
        (word(&line, "service"), word(&line, "opcode"), number(&line, "qp"), number(&line, "message"))
    })
    .collect()
}

/// As if no plan but the network had lost packets of a capture: they left, and did not arrive. How many.
fn unmark(capture: &Path) -> usize {
    let mut bytes = fs::read(capture).expect("a capture");
    let mark = b"pumice: lost: ";
    let offsets: Vec<usize> =
        (0..bytes.len() - mark.len()).filter(|at| bytes[*at..].starts_with(mark)).collect();
    offsets.iter().for_each(|at| bytes[*at] = b'P');
    fs::write(capture, bytes).expect("a file of ours");
    offsets.len()
}

/// How many recorded things happened again, and how many there were, as a replay says it at the end.
fn happened_again(output_text: &str) -> [usize; 2] {
    let result =
        output_text.lines().find(|line| line.ends_with("recorded things happened again")).expect("a result");
    let numbers: Vec<usize> = result.split(' ').filter_map(|word| word.parse().ok()).collect();
    [numbers[0], numbers[1]]
}

#[test]
fn datagrams_and_messages_of_the_connection_manager_are_lost_again() {
    let scratch = Scratch::new("mixed");
    let Some(program) = compile(&scratch, "mixed") else { return };
    let own = std::process::id();
    let address = format!("127.{}.{}.1", 150 + (own >> 8 & 0x1f), own & 0xff);
    let folder = scratch.0.join("record");
    let name = folder.to_str().expect("UTF-8");
    let run = |by: &[&str]| -> Output {
        let mut command = scratch.pumice(by);
        let options = ["--addr", &address, "--tag", "one", "--"];
        command.args(options).arg(&program).args([&address, "9"]).output().expect("it can be run")
    };
    let output_text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let rules = ["drop service=ud nth=3..9+3", "drop name=req opcode=req times=1"];
    let first = run(&["run", "--record", name, "--fault", rules[0], "--fault", rules[1]]);
    assert!(first.status.success(), "{first:?}");
    assert_eq!(output_text(&first), "datagrams 0 1 3 4 6 7 9 10 11\nconnected\n");
    // A program with one device leaves the files that it always left.
    let kinds: BTreeSet<String> = fs::read_dir(&folder)
        .expect("a record")
        .filter_map(|entry| Some(entry.ok()?.path().extension()?.to_str()?.to_owned()))
        .collect();
    assert_eq!(kinds, ["exit", "faults", "order", "pcapng", "qps", "tag"].map(str::to_owned).into());
    let report = only(&folder, "faults");
    // The program made a queue pair before that of the datagrams, which never sends.
    let datagram = |message| ("ud".to_owned(), "send".to_owned(), 1, message);
    let request = ("cm".to_owned(), "req".to_owned(), 0, 0);
    let planned = BTreeSet::from([datagram(2), datagram(5), datagram(8), request]);
    assert_eq!(lost(&report), planned);

    fs::remove_file(report).expect("a file of ours");
    assert_eq!(unmark(&only(&folder, "pcapng")), 4);
    let again = run(&["replay", name]);
    let text = output_text(&again);
    assert!(text.starts_with("datagrams 0 1 3 4 6 7 9 10 11\nconnected\n"), "{again:?}");
    // On a busy machine packets may come late, and are late again.
    let numbers = happened_again(&text);
    assert!(numbers[0] == numbers[1] && numbers[0] >= 4, "{text}");
    let last = output_text(&run(&["replay", "--json", name])).lines().last().unwrap_or_default().to_owned();
    let found: serde_json::Value = serde_json::from_str(&last).expect("the last line is JSON");
    assert_eq!(found["recorded"], numbers[1], "{found}");
    assert!(found["missing"].is_array() && found["departed"].is_boolean(), "{found}");
    let replays = fs::read_dir(&folder).expect("a record").map(|entry| entry.expect("a file").path());
    let replay = replays.into_iter().find(|path| path.is_dir()).expect("a replay");
    let network = lost(&only(&replay, "faults"));
    assert!(network.is_superset(&planned), "{network:?}");
}

/// The program with two devices, and the peer of each.
struct RailsRun<'a> {
    scratch: &'a Scratch,
    program: &'a Path,
    record: &'a str,
    wire: &'a str,
    /// The last number of the first address is one more: the tests of this file run at the same time.
    base: u8,
}

/// How many datagrams come to each device: to the two of one program, and to their peers.
const EXPECTED: [u32; 4] = [12, 12, 9, 11];
/// The rules of the program with two devices.
const RULES: [&str; 3] = [
    "drop name=first device=pumice0 service=ud nth=3..9+3",
    "drop name=second device=pumice1 service=ud nth=5",
    "drop name=message device=pumice1 service=rc opcode=send message=2 packet=7 transmission=1",
];

impl RailsRun<'_> {
    /// That of a device: the two of one program, and their peers.
    fn address(&self, device: usize) -> String {
        address(self.base + 1 + device as u8)
    }

    /// Those of the program with two devices.
    fn own(&self) -> String {
        format!("{},{}", self.address(0), self.address(1))
    }

    /// Runs all three, and what they say: which datagrams came, a digest of the messages, and what a replay
    /// says besides.
    fn run(&self, by: &[&str], rules: &[&str]) -> [(Vec<String>, String); 3] {
        let with = |tag: &'static str| ["--wire", self.wire, "--tag", tag];
        let rules: Vec<&str> = rules.iter().flat_map(|rule| ["--fault", rule]).collect();
        let two = [&with("two")[..], &["--devices", "2"], &rules].concat();
        let start = |addresses: &str, options: &[&str]| {
            LineDrivenProgram::on(self.scratch, self.program, addresses, by, options)
        };
        let mut all = [
            start(&self.own(), &two),
            start(&self.address(2), &with("first peer")),
            start(&self.address(3), &with("second peer")),
        ];
        // The queue pairs of each device.
        let mut queue_pairs = |index: usize| -> String {
            let line = all[index].read_line();
            line.trim_end().split_once(' ').expect("a name and numbers").1.to_owned()
        };
        let known = [queue_pairs(0), queue_pairs(0), queue_pairs(1), queue_pairs(2)];
        for (process, device, peer) in [(0, 0, 2), (0, 1, 3), (1, 2, 0), (2, 3, 1)] {
            let (numbers, expected) = (&known[peer], EXPECTED[device]);
            all[process].send_line(&format!("{} {numbers} {expected}", self.address(peer)));
        }
        all.iter_mut().for_each(|one| one.expect_line("ready\n"));
        all.iter_mut().for_each(|one| one.send_line("go"));
        let outputs = [2, 1, 1].into_iter().zip(&mut all);
        let outputs =
            outputs.map(|(devices, one)| (0..devices).map(|_| one.read_line()).collect::<Vec<String>>());
        let outputs: Vec<Vec<String>> = outputs.collect();
        let mut outputs = outputs.into_iter();
        all.map(|one| {
            let (rest, code) = one.finish();
            // What a busy machine sends again to another process is taken for lost, and new, in a replay.
            let is_new = code == Some(1) && rest.contains("  is new: ");
            assert!(code == Some(0) || is_new, "{code:?}: {rest}");
            (outputs.next().expect("three"), rest)
        })
    }

    /// The program with two devices again, by this command; its exit code and what it said on standard error.
    fn refused(&self, options: &[&str]) -> (Option<i32>, String) {
        let command = ["replay", self.record, "--tag", "two"];
        let mut command = self.scratch.pumice(&[&command, options, &["--"]].concat());
        let output = command.arg(self.program).stdin(Stdio::null()).output().expect("it can be run");
        assert!(output.stdout.is_empty(), "the program was not run: {output:?}");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The file of the program with two devices, with this end of its name.
fn of_two(record: &Path, end: &str) -> PathBuf {
    let list = only(record, "devices");
    let process = list.file_stem().expect("a number").to_str().expect("UTF-8");
    record.join(format!("{process}{end}"))
}

/// What the rules did on each device.
fn planned() -> [(Option<&'static str>, BTreeSet<LostPacket>); 2] {
    let datagram = |message| ("ud".to_owned(), "send".to_owned(), 0, message);
    let message = ("rc".to_owned(), "send".to_owned(), 1, 2);
    [
        (Some("pumice0"), BTreeSet::from([datagram(2), datagram(5), datagram(8)])),
        (Some("pumice1"), BTreeSet::from([datagram(4), message])),
    ]
}

#[test]
fn each_device_of_a_program_loses_its_packets_again_on_both_media() {
    let scratch = Scratch::new("rails");
    let Some(program) = compile(&scratch, "rails") else { return };
    for wire in ["udp", "auto"] {
        let record = scratch.0.join(wire);
        let name = record.to_str().expect("UTF-8");
        let rails = RailsRun { scratch: &scratch, program: &program, record: name, wire, base: 10 };
        let first = rails.run(&["run", "--record", name], &RULES);
        let outputs = |all: &[(Vec<String>, String); 3]| all.clone().map(|(outputs, _)| outputs);
        for (process, datagrams) in [(1, "0 1 3 4 6 7 9 10 11"), (2, "0 1 2 3 5 6 7 8 9 10 11")] {
            let output_text = &first[process].0[0];
            assert!(
                output_text.starts_with(&format!("pumice0 got {datagrams}, 6 messages ")),
                "{wire}: {output_text}"
            );
        }
        let report = of_two(&record, ".faults");
        for (device, lost) in planned() {
            assert_eq!(lost_on(&report, device), lost, "{wire}");
        }

        // By the report of the rules, and as if the network had lost them.
        for is_network in [false, true] {
            if is_network {
                fs::remove_file(&report).expect("a file of ours");
                let marked = [".pcapng", "-pumice1.pcapng"].map(|end| unmark(&of_two(&record, end)));
                assert_eq!(marked, [3, 2], "{wire}");
            }
            let again = rails.run(&["replay", name], &[]);
            assert_eq!(outputs(&again), outputs(&first), "{wire}");
            // On a busy machine packets may come late, and are late again.
            let numbers = happened_again(&again[0].1);
            assert!(numbers[0] == numbers[1] && numbers[0] >= 5, "{wire}: {}", again[0].1);
            let replay = replay_of_two(&record);
            for (device, lost) in planned() {
                let again = lost_on(&of_two(&replay, ".faults"), device);
                assert!(again.is_superset(&lost), "{wire}: {again:?}");
            }
            fs::remove_dir_all(replay).expect("a folder of ours");
        }
    }
}

/// The folder of the replay with two devices.
fn replay_of_two(record: &Path) -> PathBuf {
    let has_list = |folder: &Path| {
        let mut files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
        files.any(|file| file.extension().is_some_and(|it| it == "devices"))
    };
    let mut all = fs::read_dir(record).expect("a record").map(|entry| entry.expect("a file").path());
    all.find(|path| path.is_dir() && has_list(path)).expect("a replay")
}

#[test]
fn a_record_with_damaged_devices_and_a_replay_with_others_are_refused() {
    let scratch = Scratch::new("rails-damaged");
    let Some(program) = compile(&scratch, "rails") else { return };
    let record = scratch.0.join("record");
    let name = record.to_str().expect("UTF-8");
    let rails = RailsRun { scratch: &scratch, program: &program, record: name, wire: "auto", base: 20 };
    rails.run(&["run", "--record", name], &RULES);
    let list = of_two(&record, ".devices");
    assert_eq!(fs::read_to_string(&list).expect("a list"), "0 pumice0\n1 pumice1\n");
    let own = rails.own();
    let two = ["--devices", "2", "--addr", &own];
    let output_text = |options: &[&str], sentence: &str| {
        let (code, output_text) = rails.refused(options);
        assert_eq!(code, Some(1), "{output_text}");
        assert!(
            output_text.contains(sentence) && output_text.trim_end().lines().count() == 1,
            "{sentence}: {output_text}"
        );
    };
    let had = "two had pumice0, pumice1 when it was recorded, and would have";
    output_text(&["--addr", &rails.address(0)], &format!("{had} pumice0: name the same devices"));
    output_text(&[&two[..], &["--device", "rail0"]].concat(), &format!("{had} rail0, rail1"));

    let report = of_two(&record, ".faults");
    let whole = fs::read_to_string(&report).expect("a report");
    fs::write(&report, whole.replace("\"pumice1\"", "\"pumice7\"")).expect("a file of ours");
    output_text(&two, "the process had no device \"pumice7\": the record is damaged, record the run again");
    fs::write(&report, whole).expect("a file of ours");
    for (damage, sentence) in [
        ("0 pumice0\n17 pumice1\n", "line 2: the number of the device is \"17\", and 1 is next"),
        ("0 pumice0\n\u{0}", "line 2: the number of the device is \"\\0\", and 1 is next"),
        ("0 pumice0\n", "it lists 1 devices, and only a process with several has a list"),
        ("0 pumice0\n1 pumice2\n", "-pumice1.pcapng: it is of a device that the process did not have"),
    ] {
        fs::write(&list, damage).expect("a file of ours");
        output_text(&two, sentence);
    }
    fs::remove_file(&list).expect("a file of ours");
    output_text(&two, "-pumice1.pcapng: it is of a device that the process did not have");
}
