//! `pumice perf loop --table`: the rows of the table of goals.

mod connecting;
mod ends;
mod figure;
mod measure;
mod programs;
mod report;
pub(super) mod rows;
mod source;

use std::io::Write;

use pumice_perf::{Operation, Plan, Service, machine};

use super::options::{LOOPBACK_ADDRESSES, LoopOptions};
use super::wording::plan_in_words;
use crate::outcome::Outcome;
pub(super) use connecting::{accept, connect};
pub(super) use ends::measure_rounds;
use measure::{IDLE_SAMPLE_TIME, measure};
use report::Printer;
use rows::{PerfRow, ROWS};

/// Measures the rows and prints each as soon as it is done.
///
/// # Errors
/// A sentence.
pub(super) fn run(options: &LoopOptions, out: &mut dyn Write) -> Result<Outcome, String> {
    let addresses = options.addresses(LOOPBACK_ADDRESSES)?;
    let rounds = options.test.rounds;
    let seconds = options.test.round_seconds();
    let checked = Plan::latency(Operation::Send, Service::Rc).rounds(rounds, seconds).build();
    checked.map_err(|error| plan_in_words(&error))?;
    let mut printer = Printer::new(options.end.json);
    let mut outcome = Outcome::Good;
    let is_requested =
        |row: &&PerfRow| options.row.is_empty() || options.row.iter().any(|name| name == row.name);
    for row in ROWS.iter().filter(is_requested) {
        let idle_share = machine::idle_share(IDLE_SAMPLE_TIME);
        let measured = measure(row, addresses, rounds, seconds);
        if measured.has_failed() {
            outcome = Outcome::Bad;
        }
        printer
            .print(row, &measured, idle_share, out)
            .map_err(|error| format!("the table cannot be written: {error}"))?;
    }
    Ok(outcome)
}
