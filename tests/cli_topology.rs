//! `pumice topology`, and topologies that `pumice run` refuses.

#[path = "scratch/file.rs"]
mod file;

use std::process::{Command, Output};

use serde_json::Value;

use file::{path_of, scratch};

fn pumice(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pumice")).args(arguments).output().unwrap()
}

fn texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

const STAR: &str = "kind = \"star\"\nhosts = [\n\"127.77.0.2\",\n\
                    { address = \"127.77.0.3\", rate_mbps = 100 }]\n\
                    [link]\nrate_mbps = 1000\ndelay_ns = 5000\n[switch]\nqueue_bytes = 200000\n";

#[test]
fn a_star_is_drawn_and_its_ports_are_listed() {
    let file = scratch("star.toml", STAR);
    let (code, out, output_text) = texts(&pumice(&["topology", path_of(&file)]));
    assert_eq!((code, output_text.as_str()), (Some(0), ""));
    let drawn = "switch ─┬─ 127.77.0.2  1000 Mbit/s, 5000 ns\n        └─ 127.77.0.3  100 Mbit/s, 5000 ns\n\
                 each port has a queue of 200000 bytes, marks no packet, and loses what does not fit\n\n";
    assert!(out.starts_with(drawn), "{out}");
    assert!(out.contains("\nleaf 0 to host 127.77.0.3 "), "{out}");
    let (code, out, _) = texts(&pumice(&["topology", "--json", "--reset", path_of(&file)]));
    let whole: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &whole["kind"], &whole["hosts"][1]["rate_mbps"]),
        (Some(0), &"star".into(), &100.into())
    );
    assert_eq!((whole["ports"].as_array().unwrap().len(), &whole["ports"][0]["packets"]), (4, &0.into()));
}

#[test]
fn two_tiers_are_drawn_too() {
    let text = STAR.replace("star", "two-tier").replace("hosts", "leaves = 2\nspines = 2\nhosts")
        + "[switch.pause]\nxoff_bytes = 100000\nxon_bytes = 50000\n";
    let file = scratch("two-tier.toml", &text);
    let (code, out, output_text) = texts(&pumice(&["topology", path_of(&file)]));
    assert_eq!((code, output_text.as_str()), (Some(0), ""));
    let drawn = "spine 0   spine 1\n  │  1000 Mbit/s, 5000 ns from each leaf to each spine\n\
                 leaf 0 ─── 127.77.0.2  1000 Mbit/s, 5000 ns\nleaf 1 ─── 127.77.0.3  100 Mbit/s, 5000 ns\n";
    assert!(out.starts_with(drawn), "{out}");
    assert!(out.contains("pauses senders above 100000 bytes until 50000 are left\n"), "{out}");
}

#[test]
fn three_tiers_are_drawn_by_pods() {
    let tiers = "leaves = 2\npods = 2\nspines = 4\ncores = 4\nhosts";
    let text = STAR.replace("star", "three-tier").replace("hosts", tiers);
    let file = scratch("three-tier.toml", &text);
    let (code, out, output_text) = texts(&pumice(&["topology", path_of(&file)]));
    assert_eq!((code, output_text.as_str()), (Some(0), ""));
    let drawn = "core 0   core 1   core 2   core 3\n  │  1000 Mbit/s, 5000 ns from each spine to 2 of them\n\
                 spine 0   spine 1\n  │  1000 Mbit/s, 5000 ns from each leaf to each spine\n\
                 leaf 0 ─── 127.77.0.2  1000 Mbit/s, 5000 ns\n\
                 spine 2   spine 3\n  │  1000 Mbit/s, 5000 ns from each leaf to each spine\n\
                 leaf 1 ─── 127.77.0.3  100 Mbit/s, 5000 ns\n";
    assert!(out.starts_with(drawn), "{out}");
}

#[test]
fn what_is_wrong_is_one_sentence_with_the_line() {
    for (wrong, right, output_text) in [
        ("star", "ring", "line 1: unknown variant `ring`, expected one of `star`, `two-tier`, `three-tier`"),
        ("127.77.0.2", "host-a", "line 3: \"host-a\" is no address of a host"),
        ("127.77.0.2", "127.77.0.3", "line 4: 127.77.0.3 is the address of two hosts, number 0 and number 1"),
        ("rate_mbps = 1000", "rate_mbps = 0", "line 6: link.rate_mbps is 0, and must be from 1 to 1600000"),
        ("[switch]", "[switches]", "line 8: unknown field `switches`"),
    ] {
        let file = scratch("bad.toml", &STAR.replacen(wrong, right, 1));
        for arguments in
            [&["topology", path_of(&file)][..], &["run", "--topology", path_of(&file), "--", "true"][..]]
        {
            let (code, out, sentence) = texts(&pumice(arguments));
            assert_eq!((code, out.as_str()), (Some(2), ""), "{sentence}");
            assert!(sentence.contains(output_text) && sentence.matches('\n').count() == 1, "{sentence}");
        }
    }
    let file = scratch("good.toml", STAR);
    let (code, _, sentence) =
        texts(&pumice(&["run", "--addr", "127.77.0.9", "--topology", path_of(&file), "--", "true"]));
    assert_eq!(code, Some(2), "{sentence}");
    let output_text = "no address of pumice0 (127.77.0.9) is one of its hosts (127.77.0.2, 127.77.0.3)";
    assert!(sentence.contains("--topology ") && sentence.contains(output_text), "{sentence}");
    let (code, _, sentence) = texts(&pumice(&["topology", "/nowhere.toml"]));
    assert_eq!((code, sentence.matches('\n').count()), (Some(2), 1), "{sentence}");
    assert!(sentence.contains("/nowhere.toml: the file cannot be read: No such file"), "{sentence}");
}
