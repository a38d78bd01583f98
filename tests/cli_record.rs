//! `pumice run --record` and `pumice replay` with datagrams and connection management.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

#[path = "fault/place.rs"]
mod place;

use place::{Place, compile};

/// The only file of a folder with this extension.
fn only(folder: &Path, extension: &str) -> PathBuf {
    let files = fs::read_dir(folder).expect("a record").map(|entry| entry.expect("a file").path());
    let found: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|it| it == extension)).collect();
    let [file] = found.as_slice() else { panic!("{found:?}") };
    file.clone()
}

/// What a report says that was lost: the service, the opcode, the queue pair and the message.
fn lost(report: &Path) -> BTreeSet<(String, String, u64, u64)> {
    let text = fs::read_to_string(report).expect("a report");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let word = |line: &Value, field: &str| line[field].as_str().expect("a word").to_owned();
    let number = |line: &Value, field: &str| line[field].as_u64().expect("a number");
    let lost = lines.filter(|line| line["lost"] == true);
    lost.map(|line| {
        (word(&line, "service"), word(&line, "opcode"), number(&line, "qp"), number(&line, "message"))
    })
    .collect()
}

#[test]
fn datagrams_and_messages_of_the_connection_manager_are_lost_again() {
    let place = Place::new("mixed");
    let Some(program) = compile(&place, "mixed") else { return };
    let own = std::process::id();
    let address = format!("127.{}.{}.1", 150 + (own >> 8 & 0x1f), own & 0xff);
    let folder = place.0.join("record");
    let name = folder.to_str().expect("UTF-8");
    let run = |by: &[&str]| -> Output {
        let mut command = place.pumice(by);
        let options = ["--addr", &address, "--tag", "one", "--"];
        command.args(options).arg(&program).arg(&address).output().expect("it can be run")
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let rules = ["drop service=ud nth=3..9+3", "drop name=req opcode=req times=1"];
    let first = run(&["run", "--record", name, "--fault", rules[0], "--fault", rules[1]]);
    assert!(first.status.success(), "{first:?}");
    assert_eq!(said(&first), "datagrams 0 1 3 4 6 7 9 10 11\nconnected\n");
    let report = only(&folder, "faults");
    // The program made a queue pair before that of the datagrams, which never sends.
    let datagram = |message| ("ud".to_owned(), "send".to_owned(), 1, message);
    let request = ("cm".to_owned(), "req".to_owned(), 0, 0);
    let planned = BTreeSet::from([datagram(2), datagram(5), datagram(8), request]);
    assert_eq!(lost(&report), planned);

    // As if no plan but the network had lost them: they left, and did not arrive.
    fs::remove_file(report).expect("a file of ours");
    let capture = only(&folder, "pcapng");
    let mut bytes = fs::read(&capture).expect("a capture");
    let mark = b"pumice: lost: ";
    let places: Vec<usize> =
        (0..bytes.len() - mark.len()).filter(|at| bytes[*at..].starts_with(mark)).collect();
    assert_eq!(places.len(), 4);
    places.into_iter().for_each(|at| bytes[at] = b'P');
    fs::write(&capture, bytes).expect("a file of ours");

    let again = run(&["replay", name]);
    let text = said(&again);
    assert!(text.starts_with("datagrams 0 1 3 4 6 7 9 10 11\nconnected\n"), "{again:?}");
    // On a busy machine packets may come late, and are late again.
    let result =
        text.lines().find(|line| line.ends_with("recorded things happened again")).expect("a result");
    let numbers: Vec<usize> = result.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[0] == numbers[1] && numbers[0] >= 4, "{text}");
    let last = said(&run(&["replay", "--json", name])).lines().last().unwrap_or_default().to_owned();
    let found: serde_json::Value = serde_json::from_str(&last).expect("the last line is JSON");
    assert_eq!(found["recorded"], numbers[1], "{found}");
    assert!(found["missing"].is_array() && found["departed"].is_boolean(), "{found}");
    let replays = fs::read_dir(&folder).expect("a record").map(|entry| entry.expect("a file").path());
    let replay = replays.into_iter().find(|path| path.is_dir()).expect("a replay");
    let network = lost(&only(&replay, "faults"));
    assert!(network.is_superset(&planned), "{network:?}");
}
