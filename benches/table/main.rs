//! The table of goals of speed: each row beside its yardsticks and UCX, in the same rounds.
//!
//! `cargo bench --bench table` measures all rows, `cargo bench --bench table -- --row NAME` one of them.
//! `cargo test` runs short rows, and looks at what is reported rather than at how fast anything is.

mod checks;
mod connecting;
mod ends;
mod figure;
mod measure;
mod process;
mod programs;
mod report;
mod rows;
mod source;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;

use clap::Parser;
use pumice_perf::{Operation, Plan, Service, machine};

use measure::{IDLE_SAMPLE_TIME, measure};
use report::Printer;
use rows::{PerfRow, ROWS};

/// Measures the rows of the table of goals
///
/// A row takes 15 seconds at most, unless --rounds or --for ask for more.
#[derive(Debug, Parser)]
struct TableOptions {
    /// Measure only this row; can be given several times
    #[arg(long, value_name = "NAME", value_parser = rows::row_names())]
    row: Vec<String>,
    /// Rounds
    #[arg(long, default_value_t = 5, value_name = "N")]
    rounds: usize,
    /// Seconds of all rounds of a row together, yardsticks not counted [default: 0.25 per round]
    #[arg(long = "for", value_name = "SECONDS")]
    duration: Option<f64>,
    /// Print one JSON object per row
    #[arg(long)]
    json: bool,
    /// Address of the device of the measuring process
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)))]
    addr: IpAddr,
    /// Address of the device of the second process
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)))]
    peer_addr: IpAddr,
    /// Given by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &arguments[..] {
        [end, task] if end == process::END => process::run_end(task).map(|()| true),
        all if all.iter().any(|argument| argument == "--bench") => {
            run(&TableOptions::parse(), &mut io::stdout())
        }
        all => checks::run(all),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(sentence) => {
            // A closed standard error is no failure.
            let _ = writeln!(io::stderr(), "table: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the rows and prints each as soon as it is done. Returns whether none has failed: a goal that is
/// missed is no failure.
///
/// # Errors
/// A sentence.
fn run(options: &TableOptions, out: &mut dyn Write) -> Result<bool, String> {
    let rounds = options.rounds;
    let seconds = options.duration.map_or(0.25, |seconds| seconds / rounds.max(1) as f64);
    let checked = Plan::latency(Operation::Send, Service::Rc).rounds(rounds, seconds).build();
    checked.map_err(|error| error.to_string())?;
    let mut printer = Printer::new(options.json);
    let mut good = true;
    let is_requested =
        |row: &&PerfRow| options.row.is_empty() || options.row.iter().any(|name| name == row.name);
    for row in ROWS.iter().filter(is_requested) {
        let idle_share = machine::idle_share(IDLE_SAMPLE_TIME);
        let measured = measure(row, [options.addr, options.peer_addr], rounds, seconds);
        good &= !measured.has_failed();
        let printed = printer.print(row, &measured, idle_share, out);
        printed.map_err(|error| format!("the table cannot be written: {error}"))?;
    }
    Ok(good)
}
