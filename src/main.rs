//! The pumice command line: it parses options, calls the other crates, and contains none of their work.

mod capture;
mod check;
mod cli;
mod course;
mod devices;
mod doctor;
mod explain;
mod fault;
mod hang;
mod help;
mod models;
mod mrc;
mod observe;
mod outcome;
mod perf;
mod personalities;
mod reference;
mod replay;
mod run;
mod same_host;
mod shell;
mod stat;
mod sweep;
mod top;
pub(crate) mod topology;
mod trace;
mod version;
mod world;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::FromArgMatches as _;
use rustix::process::{Resource, getrlimit};

use cli::{Cli, Command};
use outcome::{CommandError, CommandResult, Outcome, Printed, complain, end_in_errors_at_limits};

/// Stack size that the commands are built for, in bytes: the default of Linux.
const STACK_BYTES: usize = 8 << 20;
/// Smallest stack limit (`ulimit -s`) that suffices for every command, in bytes.
const MIN_STACK_BYTES: u64 = 4 << 20;

fn main() -> ExitCode {
    // The limit is meant for the program that a command starts, which inherits it.
    let limit = getrlimit(Resource::Stack).current;
    if limit.is_none_or(|bytes| bytes >= MIN_STACK_BYTES) {
        return execute();
    }
    let thread = std::thread::Builder::new().name("pumice".to_owned()).stack_size(STACK_BYTES).spawn(execute);
    match thread {
        Ok(thread) => thread.join().unwrap_or(ExitCode::from(PANICKED)),
        Err(error) => {
            complain(&format!("no memory for a stack of {} MiB: {error}", STACK_BYTES >> 20));
            Outcome::Bad.exit_code()
        }
    }
}

/// Exit code of a Rust program that panicked; the panic has printed its message.
const PANICKED: u8 = 101;

/// Makes a panic of any thread end the process with its exit code, after its message. Packages have a program
/// that cannot unwind (`scripts/build-release`), where a panic would be a signal else.
fn end_with_a_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::exit(PANICKED.into());
    }));
}

fn execute() -> ExitCode {
    end_with_a_panic();
    end_in_errors_at_limits();
    let words = help::current_spelling(std::env::args_os());
    let mut out = Printed::new(BufWriter::new(io::stdout().lock()));
    if words.len() < 2 {
        let printed = help::first_steps(&mut out).and_then(|()| out.flush());
        return if printed.is_ok() { Outcome::Good } else { Outcome::Bad }.exit_code();
    }
    let mut matches = help::grammar().get_matches_from(words);
    let cli = Cli::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit());
    match run(cli.command, &mut out) {
        Ok(outcome) => outcome.exit_code(),
        Err(error) if error.reader_left() => Outcome::Good.exit_code(),
        // The program has printed the reason itself.
        Err(error @ CommandError::ProgramEnded { .. }) => error.exit_code(),
        Err(error) => {
            // The results from before the failure are written first. If even that fails, the message on
            // stderr is all there is.
            let _ = out.flush();
            complain(&error);
            error.exit_code()
        }
    }
}

fn run(command: Command, out: &mut dyn Write) -> CommandResult {
    let outcome = match command {
        Command::Devices(options) => devices::run(&options, out),
        Command::Capture(options) => capture::run(&options, out),
        Command::Check(options) => check::check(*options, out),
        Command::Completions(options) => shell::completions(&options, out),
        Command::Course(options) => course::run(&options, out),
        Command::Doctor(options) => doctor::run(&options, out),
        Command::Explain(options) => explain::run(&options, out),
        Command::Fault(options) => fault::run(&options, out),
        Command::Hang(options) => hang::run(&options, out),
        Command::Mrc(options) => mrc::run(&options, out),
        Command::Man(options) => shell::man(&options, out),
        Command::Perf(options) => perf::run(&options, out),
        Command::Reference(options) => reference::run(&options, out),
        Command::Replay(options) => replay::run(*options, out),
        Command::Run(options) => check::run(*options),
        Command::Stat(options) => stat::run(&options, out),
        Command::Sweep(options) => sweep::run(&options, out),
        Command::Top(options) => top::run(options),
        Command::Topology(options) => topology::run(&options, out),
        Command::Trace(options) => trace::run(&options, out),
        Command::World(options) => world::run(&options, out),
    }?;
    out.flush()?;
    Ok(outcome)
}
