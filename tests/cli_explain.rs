//! `pumice explain` as users meet it.

use std::process::{Command, Output};

fn explain(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.arg("explain").args(arguments).output().expect("the program can be run")
}

fn text(output: &Output) -> String {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_status_is_explained_with_its_causes_and_what_to_look_at() {
    let found = text(&explain(&["RETRY_EXC_ERR"]));
    assert!(found.starts_with("IBV_WC_RETRY_EXC_ERR: status of a work completion, 12\n"), "{found}");
    for part in ["Usual causes:", "What to look at:", "dest_qp_num", "rq_psn"] {
        assert!(found.contains(part), "{part}: {found}");
    }
    assert_eq!(found, text(&explain(&["ibv_wc_retry_exc_err"])));
}

#[test]
fn several_names_and_negative_numbers_are_explained_together() {
    let found = text(&explain(&["-22", "CQ_ERR", "rx_bad_icrc"]));
    let titles: Vec<&str> = found.split("\n\n").filter_map(|part| part.split(':').next()).collect();
    assert_eq!(titles, ["EINVAL", "IBV_EVENT_CQ_ERR", "rx_bad_icrc"]);
}

#[test]
fn without_a_name_all_are_listed() {
    let found = text(&explain(&[]));
    for name in ["RETRY_EXC_ERR", "EOPNOTSUPP", "GID_CHANGE", "UNREACHABLE", "retransmitted_packets"] {
        assert_eq!(
            found.lines().filter(|line| line.contains(&format!(" {name} "))).count(),
            1,
            "{name}: {found}"
        );
    }
    let json = text(&explain(&["--json", "12"]));
    let all: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(all[0]["name"], "IBV_WC_RETRY_EXC_ERR");
    assert_eq!((&all[0]["kind"], &all[1]["name"]), (&"status".into(), &"ENOMEM".into()));
    assert!(all[0]["causes"].as_array().is_some_and(|causes| !causes.is_empty()), "{json}");
}

#[test]
fn an_unknown_name_is_a_usage_error_with_what_may_be_meant() {
    let output = explain(&["RETRY_EXEC"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(sentence.starts_with("pumice: ") && sentence.contains("RETRY_EXC_ERR"), "{sentence}");
}
