//! Checks of the table, which `cargo test` runs: short rows, and the parsing of other programs' output. No
//! check looks at how fast anything is: the machine may be busy.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::panic::catch_unwind;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use clap::Parser;
use serde_json::Value;

use super::figure::{Figure, FigureComparison, RoundFigures, alone, at_least, at_most, beside};
use super::programs::{figure_of_ucx, free_port, is_listened_on, pair, typical_of_perftest};
use super::rows::UcxUnit;
use super::{TableOptions, run as table_run};

/// All checks, by name.
const CHECKS: &[(&str, fn())] = &[
    (
        "rows_of_the_table_are_measured_beside_what_they_are_compared_with",
        rows_of_the_table_are_measured_beside_what_they_are_compared_with,
    ),
    (
        "the_row_of_sizes_compares_the_slowest_with_the_fastest",
        the_row_of_sizes_compares_the_slowest_with_the_fastest,
    ),
    (
        "rows_of_other_programs_are_measured_or_say_what_is_missing",
        rows_of_other_programs_are_measured_or_say_what_is_missing,
    ),
    (
        "pairs_are_measured_where_there_are_processors_for_two",
        pairs_are_measured_where_there_are_processors_for_two,
    ),
    ("a_table_for_people_names_goals_and_a_busy_machine", a_table_for_people_names_goals_and_a_busy_machine),
    ("a_row_that_fails_is_named_and_the_table_fails", a_row_that_fails_is_named_and_the_table_fails),
    ("a_goal_is_held_by_the_median_of_the_ratios", a_goal_is_held_by_the_median_of_the_ratios),
    ("what_no_round_has_is_not_compared", what_no_round_has_is_not_compared),
    ("figures_are_read_from_what_programs_print", figures_are_read_from_what_programs_print),
    ("a_program_that_listens_is_seen", a_program_that_listens_is_seen),
    ("a_program_that_fails_has_last_words", a_program_that_fails_has_last_words),
];

/// Runs the checks whose name contains an argument that is no option; all, if there is none. Returns whether
/// all hold.
///
/// # Errors
/// A sentence: the results cannot be written.
pub(super) fn run(arguments: &[String]) -> Result<bool, String> {
    let without_checks =
        ["--list", "--ignored"].iter().any(|option| arguments.iter().any(|given| given == option));
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_meant = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(*filter));
    let requested = CHECKS.iter().filter(|(name, _)| !without_checks && is_meant(name));
    let (mut passed, mut failed) = (0, 0);
    let unwritten = |error: io::Error| error.to_string();
    for (name, check) in requested {
        let holds = catch_unwind(check).is_ok();
        *if holds { &mut passed } else { &mut failed } += 1;
        let word = if holds { "ok" } else { "FAILED" };
        writeln!(io::stdout(), "test {name} ... {word}").map_err(unwritten)?;
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    writeln!(io::stdout(), "\ntest result: {word}. {passed} passed; {failed} failed").map_err(unwritten)?;
    Ok(failed == 0)
}

/// Loopback addresses that nothing else uses at the same time: UDP port 4791 of an address has one owner.
fn addresses() -> [String; 2] {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    let block = NEXT.fetch_add(1, Ordering::Relaxed);
    // 127.64.0.0/10: away from the addresses that people choose.
    [1, 2].map(|end| format!("127.{}.{}.{}", 64 + high % 64, low, 1 + (block % 60) * 4 + end))
}

/// Runs the table with these options; returns whether no row failed, and what it printed.
fn table_of(addresses: &[String; 2], options: &[&str]) -> (bool, String) {
    let [own, peer] = addresses;
    let all = ["table", "--rounds", "1", "--addr", own, "--peer-addr", peer];
    let mut out = Vec::new();
    let good = table_run(&TableOptions::parse_from([&all[..], options].concat()), &mut out).expect("a table");
    (good, String::from_utf8(out).expect("text"))
}

/// Measures rows for this long; returns an object for each.
fn table(seconds: &str, rows: &[&str]) -> Vec<Value> {
    let mut options = vec!["--json", "--for", seconds];
    options.extend(rows.iter().flat_map(|row| ["--row", row]));
    let (good, text) = table_of(&addresses(), &options);
    assert!(good, "{text}");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert_eq!(lines.iter().map(|line| word(line, "row")).collect::<Vec<&str>>(), rows);
    lines
}

fn word<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn positive(report: &Value, field: &str) -> bool {
    report[field].as_f64().is_some_and(|value| value > 0.0)
}

/// Comparisons of a row that was measured, each as "figure" or "figure/with". Each has its figures, its
/// ratio, and says whether its goal holds, if it has one; one with a peer that is not here says so.
fn compared(row: &Value) -> Vec<String> {
    assert!(row["unmeasured"].is_null() && row["failed"] == false && row["rounds"] == 1, "{row}");
    assert!(row["idle_share"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)), "{row}");
    let comparisons = row["comparisons"].as_array().expect("an array");
    let name = |comparison: &Value| {
        let (figure, with) = (word(comparison, "figure"), comparison["with"].as_str());
        let measured = comparison["unmeasured"].is_null();
        assert!(measured || with.is_some_and(|with| with.starts_with("UCX")), "{comparison}");
        assert_eq!(positive(comparison, "value"), measured, "{comparison}");
        assert_eq!(positive(comparison, "ratio"), measured && with.is_some(), "{comparison}");
        let has_goal = comparison["at_most"].is_number() || comparison["at_least"].is_number();
        assert_eq!(comparison["holds"].is_boolean(), measured && has_goal, "{comparison}");
        with.map_or(figure.to_owned(), |with| format!("{figure}/{with}"))
    };
    comparisons.iter().map(name).collect()
}

fn rows_of_the_table_are_measured_beside_what_they_are_compared_with() {
    let rows = [
        (
            "send-latency",
            &["value", "value/UCX posix,cma", "value/UCX tcp", "value/cache lines", "p99/value"][..],
        ),
        ("first-messages", &["value", "p99"]),
        ("rate-list-32", &["value", "value/UCX posix,cma", "value/cache lines"]),
        ("write-1M", &["value/UCX posix,cma", "value/UCX tcp", "value/memcpy"]),
        ("sleeping", &["value/futex", "p99/p99 of the yardstick"]),
        ("connections", &["per second", "value/TCP", "p99"]),
    ];
    let lines = table("0.2", &rows.map(|(name, _)| name));
    for (line, (_, comparisons)) in lines.iter().zip(rows) {
        assert_eq!(compared(line), comparisons, "{line}");
    }
}

fn the_row_of_sizes_compares_the_slowest_with_the_fastest() {
    let lines = table("0.02", &["sizes"]);
    assert_eq!(compared(&lines[0]), ["value"]);
    let value = lines[0]["comparisons"][0]["value"].as_f64().expect("a number");
    assert!(value > 0.0 && value <= 1.0, "{value}");
}

fn rows_of_other_programs_are_measured_or_say_what_is_missing() {
    let rows = [("ucx-latency", "ucx_perftest"), ("check", "ib_send_lat"), ("trace", "ib_send_lat")];
    let lines = table("0.003", &rows.map(|(name, _)| name));
    for (line, (_, program)) in lines.iter().zip(rows) {
        match line["unmeasured"].as_str() {
            None => assert!(compared(line).iter().any(|compared| compared.starts_with("value/")), "{line}"),
            Some(reason) => assert!(reason.contains(&format!("{program} is not installed")), "{line}"),
        }
    }
}

fn pairs_are_measured_where_there_are_processors_for_two() {
    let processors = std::thread::available_parallelism().expect("Linux says it").get();
    let lines = table("0.05", &["pairs"]);
    match lines[0]["unmeasured"].as_str() {
        None => assert_eq!((compared(&lines[0]), processors >= 4), (vec!["value".to_owned()], true)),
        Some(reason) => {
            assert!(
                processors < 4 && reason.ends_with(&format!("this process may use {processors}")),
                "{reason}"
            );
        }
    }
}

fn a_table_for_people_names_goals_and_a_busy_machine() {
    let (good, text) = table_of(&addresses(), &["--row", "udp-latency", "--for", "0.6"]);
    assert!(good, "{text}");
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("NOT QUIET")).collect();
    let [.., head, value, p99] = lines[..] else { panic!("{text}") };
    assert!(
        head.starts_with("udp-latency: SEND of 8 bytes by UDP") && head.ends_with(", in us, 1 round"),
        "{text}"
    );
    assert!(
        value.starts_with("  value ") && value.contains(" plain UDP ") && value.contains("at most 1.12 x"),
        "{text}"
    );
    assert!(p99.starts_with("  p99 ") && p99.contains("at most 1.3 x"), "{text}");
    assert!(lines.iter().skip(1).all(|line| line.ends_with("holds") || line.ends_with("MISSED")), "{text}");
}

fn a_row_that_fails_is_named_and_the_table_fails() {
    let addresses = addresses();
    let _held = UdpSocket::bind((addresses[0].as_str(), 4791)).expect("an address of this check alone");
    let (good, text) = table_of(&addresses, &["--row", "udp-latency", "--json"]);
    let row: Value = serde_json::from_str(&text).expect("a row is JSON");
    assert!(!good && row["failed"] == true, "{row}");
    let comparisons = row["comparisons"].as_array().expect("an array");
    assert!(comparisons.iter().all(|comparison| comparison["holds"].is_null()), "{row}");
}

fn rounds_of(of: &[[f64; 2]]) -> Vec<RoundFigures> {
    of.iter().map(|[value, raw]| [(Figure::Value, *value), (Figure::Memcpy, *raw)].into()).collect()
}

fn a_goal_is_held_by_the_median_of_the_ratios() {
    // The ratio of the medians would be 2.0.
    let rounds = rounds_of(&[[1.0, 1.0], [2.0, 0.5], [3.0, 1.5]]);
    let compared = at_least(beside(Figure::Value, Figure::Memcpy), 2.0).of(&rounds).expect("figures");
    assert_eq!((compared.ratio, compared.holds), (Some(2.0), Some(true)));
    let spread = compared.figure;
    assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.0, 3.0));
    assert_eq!(compared.with.map(|with| with.median), Some(1.0));
    let held = |comparison: FigureComparison| comparison.of(&rounds).and_then(|compared| compared.holds);
    assert_eq!(held(at_most(beside(Figure::Value, Figure::Memcpy), 1.9)), Some(false));
    assert_eq!(held(at_most(alone(Figure::Value), 2.0)), Some(true));
    assert_eq!(held(at_least(alone(Figure::Value), 2.1)), Some(false));
    assert_eq!(held(alone(Figure::Value)), None);
}

fn what_no_round_has_is_not_compared() {
    let rounds = rounds_of(&[[1.0, 0.0]]);
    assert_eq!(beside(Figure::Value, Figure::UcxTcp).of(&rounds), None);
    assert_eq!(beside(Figure::Value, Figure::Memcpy).of(&rounds), None, "nothing by zero");
    assert_eq!(alone(Figure::P99).of(&rounds), None);
}

fn figures_are_read_from_what_programs_print() {
    let ucx = "iterations,50.0_percentile_lat,avg_lat\n \
               500,0.992,1216.820,1216.820,821.81,900.00,822,4000000\n";
    assert_eq!(figure_of_ucx(ucx, UcxUnit::Microseconds), Some(0.992));
    let bandwidth = figure_of_ucx(ucx, UcxUnit::GigabytesPerSecond).expect("a column");
    assert!((bandwidth - 0.943_718_4).abs() < 1e-9, "{bandwidth}");
    assert_eq!(figure_of_ucx(ucx, UcxUnit::MillionsPerSecond), Some(4.0));
    assert_eq!(figure_of_ucx("no figure, at all\n", UcxUnit::Microseconds), None);
    let perftest = " #bytes #iterations    t_min[usec]\n 8       1000          0.71           9.12 \
                            0.78 \t       0.80        0.05   0.99   1.30\n-----\n";
    assert_eq!(typical_of_perftest(perftest), Some(0.78));
    assert_eq!(typical_of_perftest("remote address: LID 0000\n"), None);
}

fn a_program_that_listens_is_seen() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    assert!(is_listened_on(port));
    drop(listener);
    assert!(!is_listened_on(port));
}

fn a_program_that_fails_has_last_words() {
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    };
    let port = free_port().expect("a port");
    let failed = pair(shell("echo out of luck >&2; exit 1"), shell("true"), port);
    assert_eq!(failed, Err("sh failed, and its last words are \"out of luck\"".to_owned()));
}
