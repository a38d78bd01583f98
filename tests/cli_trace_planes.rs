//! What traces say of the planes of MRC queue pairs: `pumice trace why` and `pumice trace view`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn pumice() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    for variable in pumice_device::settings::VARIABLES {
        command.env_remove(variable);
    }
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// `tests/trace/planes.c`; none if it cannot be compiled here.
fn program(folder: &Path) -> Option<PathBuf> {
    if !Path::new("/usr/include/infiniband/verbs.h").exists()
        || Command::new("cc").arg("--version").output().is_err()
    {
        eprintln!("**** SKIPPED: apt-get install gcc libibverbs-dev");
        return None;
    }
    let program = folder.join("planes");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace/planes.c");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Werror", "-O1", "-o"]).arg(&program).arg(source).arg("-libverbs");
    let output = cc.output().expect("cc runs");
    assert!(output.status.success(), "{}", text(&output));
    Some(program)
}

/// Runs the program on eight planes with these rules, and returns its trace. It runs in a world, where a busy
/// machine makes no packet late.
fn traced(folder: &Path, program: &Path, name: &str, rules: &[&str]) -> String {
    let trace = folder.join(name).display().to_string();
    let mut command = pumice();
    command.args(["world", "--addr", "127.108.7.1", "--planes", "8", "--trace", &trace]);
    for rule in rules {
        command.args(["--fault", rule]);
    }
    let output = command.arg("--").arg(program).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output));
    trace
}

fn json(arguments: &[&str]) -> Value {
    let output = pumice().args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)))
}

/// The data of the page of a trace.
fn page_data(trace: &str) -> Value {
    let page = pumice().args(["trace", "view", "-o", "-", trace]).output().expect("it runs");
    let page = String::from_utf8(page.stdout).expect("UTF-8");
    let (_, rest) = page.split_once("id=\"data\">").expect("it has data");
    serde_json::from_str(rest.split_once("</script>").expect("it ends").0).expect("JSON")
}

/// The planes that have tracks in the page of a trace, each with the fewest GOOD paths and the most.
fn tracks(trace: &str) -> Vec<(String, i64, i64)> {
    let data = page_data(trace);
    let counters = data["counters"].as_array().expect("a list");
    let planes = counters.iter().filter(|counter| counter["unit"] == "paths");
    let range = |counter: &Value| {
        let values = counter["value"].as_array().expect("a list").iter().map(|value| value.as_i64().unwrap());
        let values: Vec<i64> = values.collect();
        let name = counter["name"].as_str().expect("a name").to_owned();
        (name, *values.iter().min().unwrap(), *values.iter().max().unwrap())
    };
    planes.map(range).collect()
}

/// A folder of a test, and the program in it.
fn scratch(name: &str) -> Option<(PathBuf, PathBuf)> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    let program = program(&folder)?;
    Some((folder, program))
}

#[test]
fn the_plane_that_loses_packets_is_named_with_what_it_cost() {
    let Some((folder, program)) = scratch("planes") else { return };
    let lossy = traced(&folder, &program, "lossy.trace", &["drop name=dull plane=3/8 opcode=write times=60"]);
    let planes = json(&["trace", "why", &lossy, "--json"]);
    let first = &planes["planes"][0];
    assert_eq!(first["plane"], 3, "{planes}");
    let number = |name: &str| first[name].as_u64().unwrap_or_else(|| panic!("{name}: {first}"));
    assert!(number("repeated") == 60 && number("packets") > number("repeated"), "{first}");
    assert!(number("waited_ns") > 0 && number("worst_source_port") % 8 == 3, "{first}");
    let said = pumice().args(["trace", "why", &lossy]).output().expect("it runs");
    let paragraph =
        format!("{} of its {} data packets had to leave again", number("repeated"), number("packets"));
    assert!(text(&said).contains(&paragraph) && text(&said).contains("Plane 3 of QP"), "{}", text(&said));

    // The page shows where packets went, by their names.
    let data = page_data(&lossy);
    assert_eq!((&data["queue_pairs"][0]["peer"], &data["queue_pairs"][1]["peer"]), (&1.into(), &0.into()));
    assert!(
        data["packets"]["opcodes"].to_string().contains("MRC WRITE Middle"),
        "{}",
        data["packets"]["opcodes"]
    );
    let took = data["packets"]["took_ns"].as_array().expect("a list");
    assert!(took.iter().filter(|ns| ns.as_i64() >= Some(0)).count() > 2000, "arrivals of data are joined");
    // Requests are on it, with their times.
    assert!(data["requests"].to_string().len() > 1000, "{}", data["requests"]);
    // Both queue pairs have a track for each plane, in the page of any trace.
    let tracks = tracks(&lossy);
    assert_eq!(tracks.len(), 16, "{tracks:?}");
    assert!(tracks.iter().all(|(name, _, most)| name.ends_with("GOOD paths") && *most > 0), "{tracks:?}");
    std::fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn requests_of_mrc_are_judged_as_those_of_rc() {
    let Some((folder, program)) = scratch("judged") else { return };
    let rules =
        &["drop name=gone opcode=write message=9 times=1", "trim name=cut opcode=write message=20 times=1"];
    let trace = traced(&folder, &program, "judged.trace", rules);
    let requirements = [
        "messages == 64",
        "no failure",
        "no unfinished",
        "retransmissions == 2",
        "rdma.sent == 2MiB",
        "rdma.received == 2MiB",
        "max(write) < 10s",
    ];
    let mut require = pumice();
    require.args(["trace", "require", &trace]);
    for one in requirements {
        require.args(["--require", one]);
    }
    let output = require.output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output));
    let causes = text(&pumice().args(["trace", "why", &trace]).output().expect("it runs"));
    for (words, rule) in
        [("lost a packet of request 9", "gone"), ("cut off the data of a packet of request 20", "cut")]
    {
        let sentence = format!("the rule \"{rule}\" of the fault plan {words}");
        assert!(causes.contains(&sentence), "{sentence}: {causes}");
    }
    assert!(causes.contains("until a lost packet was missed"), "{causes}");
    let listed = text(&pumice().args(["trace", "list", &trace]).output().expect("it runs"));
    for words in ["StateChanged { qp: 0, from: 2, to: 3, by: 0,", "proof: 3 }", "state: 1 }"] {
        assert!(listed.contains(words), "{words}: {listed}");
    }
    std::fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn a_trimmed_packet_is_refused_at_once_and_leaves_again() {
    let Some((folder, program)) = scratch("trims") else { return };
    let rules = &["trim plane=3/8 opcode=write times=20"];
    let trimmed = traced(&folder, &program, "trimmed.trace", rules);
    let opcodes = &page_data(&trimmed)["packets"]["opcodes"];
    assert!(opcodes.to_string().contains("MRC Reliability NACK"), "{opcodes}");
    let planes = json(&["trace", "why", &trimmed, "--json"]);
    let of_three = planes["planes"].as_array().expect("a list").iter().find(|plane| plane["plane"] == 3);
    assert!(of_three.is_some_and(|plane| plane["repeated"] == 20), "{planes}");
    std::fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn a_path_of_which_a_wrong_state_is_reflected_is_left() {
    let Some((folder, program)) = scratch("reflects") else { return };
    let trace =
        traced(&folder, &program, "reflected.trace", &["reflect mark=always-skip opcode=ack times=200"]);
    let tracks = tracks(&trace);
    let left: i64 = tracks.iter().map(|(_, least, most)| most - least).sum();
    assert!(left >= 16, "{tracks:?}");
    std::fs::remove_dir_all(&folder).expect("a folder of ours");
}
