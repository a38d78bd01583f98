//! `pumice trace view`: what is in the page. How it looks and behaves in a browser is tests/trace/view.py.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pumice_device::trace::{Timeline, TimelineProcess};
use serde_json::Value;

fn pumice() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.env_remove("LD_LIBRARY_PATH");
    for variable in pumice_device::settings::VARIABLES {
        command.env_remove(variable);
    }
    command
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("view-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// Whether a program is there; if not, a test is skipped, and says so.
fn installed(program: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join(program).is_file());
    if !found {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "**** SKIPPED: no {program}");
    }
    found
}

/// The page of these traces.
fn page(traces: &[&str]) -> String {
    let output = pumice().args(["trace", "view", "-o", "-"]).args(traces).output().expect("it can be run");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", err(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What stands between two texts, each of which is there once.
fn between<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = page.split_once(begin).expect(begin);
    rest.split_once(end).expect(end).0
}

fn data(page: &str) -> Value {
    let text = between(page, "<script type=\"application/json\" id=\"data\">", "</script>");
    serde_json::from_str(text).expect("one JSON object")
}

/// A column of numbers.
fn column(table: &Value, name: &str) -> Vec<i64> {
    let values = table[name].as_array().expect(name);
    values.iter().map(|value| value.as_i64().expect(name)).collect()
}

/// Traces of a server and a client of which one packet is lost: the server's and the client's.
fn lossy_run(folder: &Path) -> [String; 2] {
    let [server_trace, client_trace] =
        ["server.trace", "client.trace"].map(|name| folder.join(name).display().to_string());
    let port = (23_000 + std::process::id() % 900).to_string();
    let end = |options: &[&str]| {
        let mut command = pumice();
        command.arg("run").args(options).args(["--", "ibv_rc_pingpong", "-d", "pumice0", "-g", "0"]);
        command.args(["-s", "100", "-n", "60", "-p", &port]);
        command
    };
    let options = ["--addr", "127.101.3.1", "--tag", "server", "--trace", server_trace.as_str()];
    let mut server = end(&options).stdout(Stdio::null()).spawn().expect("it can be run");
    let rule = "drop name=one opcode=send message=30 transmission=1";
    let options =
        ["--addr", "127.101.3.2", "--tag", "client", "--trace", client_trace.as_str(), "--fault", rule];
    // The server does not say when it listens.
    loop {
        let output = end(&options).arg("localhost").output().expect("it can be run");
        if !err(&output).contains("Couldn't connect") {
            if !output.status.success() {
                server.kill().expect("a child of ours");
            }
            assert!(output.status.success(), "{output:?}");
            break;
        }
    }
    assert!(server.wait().expect("a child of ours").success());
    [server_trace, client_trace]
}

#[test]
fn the_page_has_what_the_traces_have() {
    if !installed("ibv_rc_pingpong") {
        return;
    }
    let folder = scratch("data");
    let traces = lossy_run(&folder);
    let [server, client] = &traces;
    let found = data(&page(&[server, client]));
    let open = |name: &String| (name.clone(), File::open(name).expect("a trace"));
    let timeline = Timeline::read(traces.iter().map(open)).expect("two traces");
    let queue_pairs = |process: &TimelineProcess| process.queue_pairs.len();
    let count: usize = timeline.processes.iter().map(queue_pairs).sum();
    assert_eq!(found["queue_pairs"].as_array().map(Vec::len), Some(count));
    assert_eq!(found["processes"][1]["tag"], "client");
    assert!(found["queue_pairs"][0]["peer"] == 1 && found["queue_pairs"][1]["peer"] == 0, "{found}");
    requests_are_those_of(&timeline, &found["requests"]);
    packets_are_those_of(&timeline, &found["packets"]);
    counters_are_those_of(&timeline, &found["counters"]);
    // The lost packet: sent by the client for its request 30, without an arrival.
    let (flags, requests) = (column(&found["packets"], "flags"), column(&found["packets"], "request"));
    let lost: Vec<usize> = (0..flags.len()).filter(|row| flags[*row] & 1 != 0).collect();
    let [lost] = lost.as_slice() else { panic!("{lost:?}") };
    assert_eq!(column(&found["packets"], "took_ns")[*lost], -1);
    let request = requests[*lost] as usize;
    assert_eq!(found["requests"]["number"][request], 30);
    assert_eq!(found["requests"]["queue_pair"][request], 1);
    let stories = found["stories"].as_array().expect("a list");
    let story = stories.iter().find(|story| story[0] == request).expect("its story");
    assert!(
        story[1].as_str().is_some_and(|text| text.contains("the fault plan had lost its packet")),
        "{story}"
    );
    let moments = found["moments"].as_array().expect("a list");
    assert!(moments.iter().any(|one| one["kind"] == "fault" && one["queue_pair"] == 1), "{moments:?}");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

fn requests_are_those_of(timeline: &Timeline, found: &Value) {
    let mut wanted = Vec::new();
    for (index, qp) in timeline.processes.iter().flat_map(|one| &one.queue_pairs).enumerate() {
        for one in &qp.messages {
            let polled = one.polled_ns.map_or(-1, |at_ns| (at_ns - one.posted_ns) as i64);
            wanted.push([index as i64, 0, one.posted_ns as i64, i64::from(one.bytes), polled]);
        }
        for one in &qp.receives {
            let posted_ns = one.posted_ns.unwrap_or(one.end.at_ns);
            let polled = one.polled_ns.map_or(-1, |at_ns| (at_ns - posted_ns) as i64);
            wanted.push([index as i64, 1, posted_ns as i64, i64::from(one.bytes), polled]);
        }
    }
    let names = ["queue_pair", "is_receive", "posted_ns", "bytes", "polled_ns"];
    let columns = names.map(|name| column(found, name));
    let mut rows: Vec<_> =
        (0..columns[0].len()).map(|row| [0, 1, 2, 3, 4].map(|name: usize| columns[name][row])).collect();
    assert!(rows.is_sorted_by_key(|row| row[2]), "in the order of posts");
    assert_eq!(rows.len(), 240);
    rows.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(rows, wanted);
    // The parts of a request's time are all of it.
    let parts = found["parts"].as_array().expect("a list");
    for (row, duration_ns) in column(found, "duration_ns").into_iter().enumerate() {
        let times = parts[row].as_array().expect("pairs").iter().skip(1).step_by(2);
        assert_eq!(times.filter_map(Value::as_i64).sum::<i64>(), duration_ns, "row {row}");
    }
}

fn packets_are_those_of(timeline: &Timeline, found: &Value) {
    let mut wanted = Vec::new();
    let drawn = |end: pumice_device::trace::PacketIndex| {
        &timeline.processes[end.process].queue_pairs[end.queue_pair].packets[end.packet]
    };
    for arrow in &timeline.arrows {
        let (from, to) = (drawn(arrow.from), drawn(arrow.to));
        let took_ns = (to.at_ns - from.at_ns) as i64;
        wanted.push([from.at_ns as i64, took_ns, i64::from(from.opcode), i64::from(from.psn)]);
    }
    let mut at_ns = 0;
    let [took_ns, opcode, psn] = ["took_ns", "opcode", "psn"].map(|name| column(found, name));
    let mut rows = Vec::new();
    for (row, after_ns) in column(found, "after_ns").into_iter().enumerate() {
        at_ns += after_ns;
        if took_ns[row] >= 0 {
            rows.push([at_ns, took_ns[row], opcode[row], psn[row]]);
        }
    }
    rows.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(rows, wanted);
}

/// Times and values of the counter of this name of a queue pair.
fn values(found: &Value, queue_pair: usize, name: &str) -> Vec<(u64, u64)> {
    let counters = found.as_array().expect("a list");
    let counter = counters.iter().find(|one| {
        let of_queue_pair = one["queue_pairs"].as_array().expect("a list").contains(&queue_pair.into());
        of_queue_pair && one["name"].as_str().is_some_and(|text| text.contains(name))
    });
    let Some(counter) = counter else { return Vec::new() };
    let mut at_ns = 0;
    let times = column(counter, "after_ns").into_iter().map(|after_ns| {
        at_ns += after_ns as u64;
        at_ns
    });
    times.zip(column(counter, "value").into_iter().map(|value| value as u64)).collect()
}

fn counters_are_those_of(timeline: &Timeline, found: &Value) {
    for (index, qp) in timeline.processes.iter().flat_map(|one| &one.queue_pairs).enumerate() {
        // A value that is the one before changes nothing.
        let changes = |mut values: Vec<(u64, u64)>| {
            values.dedup_by_key(|(_, value)| *value);
            values
        };
        let trips = qp.measures.iter().filter_map(|one| Some((one.at_ns, one.rtt_ns?)));
        assert_eq!(values(found, index, "round trip"), changes(trips.collect()));
        let windows = qp.measures.iter().map(|one| (one.at_ns, one.window_packets.into()));
        assert_eq!(values(found, index, "window"), changes(windows.collect()));
        assert!(!qp.measures.is_empty(), "{index}");
        let again = qp.packets.iter().filter(|packet| packet.is_sent && packet.transmission > 1);
        let again: Vec<_> = again.zip(1..).map(|(packet, count)| (packet.at_ns, count)).collect();
        assert_eq!(values(found, index, "packets sent again"), again);
        // Everything was acknowledged and polled in the end.
        for name in ["bytes under way", "completions that wait"] {
            let values = values(found, index, name);
            assert_eq!(values.last().map(|(_, value)| *value), Some(0), "{name}: {values:?}");
            let most = if name == "bytes under way" { 100 } else { 1 };
            assert!(values.iter().any(|(_, value)| *value >= most), "{name}: {values:?}");
        }
    }
}

/// A trace whose names try to become markup.
fn hostile(folder: &Path) -> String {
    let path = folder.join("hostile.trace").display().to_string();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace/hostile.py");
    let output = Command::new("python3").arg(script).arg(&path).output().expect("Python is there");
    assert!(output.status.success(), "{}", err(&output));
    path
}

#[test]
fn the_page_loads_nothing_and_hostile_names_stay_text() {
    if !installed("python3") {
        return;
    }
    let folder = scratch("hostile");
    let page = page(&[&hostile(&folder)]);
    let found = data(&page);
    let breakout = "</script><script>window.hacked=1</script><!--\u{2028}\"\\";
    assert_eq!(found["processes"][0]["program"], breakout);
    assert_eq!(found["processes"][0]["tag"], "<img src=x onerror=window.hacked=2>");
    assert_eq!(found["requests"]["wr_id"][0], "0xffffffffffffffff");
    assert_eq!(found["moments"][0]["text"], breakout);
    // Two scripts, one style, no more: nothing of the trace became an element.
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2));
    assert_eq!((page.matches("<style>").count(), page.matches("<img").count()), (1, 0));
    // Nothing names another place.
    for address in ["http:", "https:", "ws:", "wss:", "src=", "href=", "@import", "url(", "import("] {
        let own = page.replace(between(&page, "id=\"data\">", "</script>"), "");
        assert!(!own.contains(address), "{address}");
    }
    let policy = between(&page, "http-equiv=\"Content-Security-Policy\" content=\"", "\"");
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn what_is_no_trace_makes_no_page() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let folder = scratch("bad");
    let [foreign, none, output] =
        ["foreign", "none", "page.html"].map(|name| folder.join(name).display().to_string());
    fs::write(&foreign, "<html>").expect("a new file");
    for (path, part) in [(&foreign, "it is no trace"), (&none, "cannot be read")] {
        let run = pumice().args(["trace", "view", path, "-o", &output]).output().expect("it can be run");
        let text = err(&run);
        assert_eq!(run.status.code(), Some(1), "{text}");
        assert!(text.starts_with("pumice: ") && text.contains(part) && text.lines().count() == 1, "{text}");
        assert!(!Path::new(&output).exists());
    }
    let run = pumice().args(["trace", "view"]).output().expect("it can be run");
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    if installed("python3") {
        let trace = hostile(&folder);
        // By default the page is trace.html here, and as private as the trace.
        let run =
            pumice().args(["trace", "view", &trace]).current_dir(&folder).output().expect("it can be run");
        let page = folder.join("trace.html").display().to_string();
        assert!(run.status.success() && String::from_utf8_lossy(&run.stdout).contains(&page), "{run:?}");
        let about = fs::metadata(folder.join("trace.html")).expect("a page");
        assert_eq!(about.permissions().mode() & 0o777, 0o600);
        symlink(folder.join("trace.html"), &output).expect("a link");
        let run = pumice().args(["trace", "view", &trace, "-o", &output]).output().expect("it can be run");
        assert_eq!(run.status.code(), Some(1), "{run:?}");
        assert!(err(&run).contains("symbolic link, which is not followed"), "{run:?}");
    }
    fs::remove_dir_all(&folder).expect("a folder of ours");
}
