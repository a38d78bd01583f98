//! `pumice check`, and exit codes that depend on findings.

mod live;
pub(crate) mod required;

use std::fs;
use std::io::Write;

use clap::{Args, Subcommand};
use pumice_device::settings::{CHECK_MARK, Marks};
use pumice_device::sharing::runtime_folder;

use crate::outcome::{CommandError, CommandResult, Outcome};
use crate::run::{self, RunOptions, run_as_child_with};

/// Options of `pumice check`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct CheckCommandOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(subcommand)]
    action: Option<CheckAction>,
}

#[derive(Debug, Subcommand)]
enum CheckAction {
    /// Say what programs that run already do wrong with verbs, without having started them by "pumice check"
    ///
    /// They are looked at for a while, and not stopped. What only their calls tell is not judged. The exit
    /// code is 1 if an error or a warning was found, or a program was not checked.
    Live(live::LiveCheckOptions),
}

/// Runs `pumice check`, which is `pumice run --check`.
pub(crate) fn check(options: CheckCommandOptions, out: &mut dyn Write) -> CommandResult {
    if let Some(CheckAction::Live(options)) = &options.action {
        return live::run(options, out);
    }
    let mut options = options.run;
    options.check.check.get_or_insert_with(|| "1".to_owned());
    run(options)
}

/// Runs `pumice run`; the program is a child process if its findings may change the exit code.
pub(crate) fn run(options: RunOptions) -> CommandResult {
    let code = options.check.exit_code();
    match (code, options.require.requirements.is_empty()) {
        (Some(code), true) => run_program(&options, code),
        (None, true) => run::run(&options),
        (Some(code), false) => required::run(options, |options| run_program(options, code)),
        (None, false) => required::run(options, required::run_with_traces),
    }
}

/// Runs the program as a child process. Returns its exit code, or `code` if it ended well and one of its
/// processes had a finding.
fn run_program(options: &RunOptions, code: u8) -> CommandResult {
    let runtime = runtime_folder().map_err(|error| CommandError::Failed(error.to_string()))?;
    let mark = runtime.join(format!("check-{}", std::process::id()));
    Marks::create(&mark).map_err(|error| {
        CommandError::Failed(format!("{} cannot be written: {error}: make room", mark.display()))
    })?;
    let outcome = run_as_child_with(options, &[(CHECK_MARK, &mark)]);
    let marks = Marks::read(&mark);
    let _ = fs::remove_file(&mark);
    let ended = outcome?;
    let marks = marks.map_err(|error| {
        CommandError::Failed(format!("{} cannot be read: {error}: run it again", mark.display()))
    })?;
    match ended {
        0 if options.check.fails(marks) => {
            let sentence = format!("the program ended well, and something was found: exit code {code}");
            Err(CommandError::Program { sentence, exit_code: code })
        }
        0 if !marks.has_device && marks.worst.is_none() => {
            let sentence = format!(
                "the program ended well, and no process of it opened a device, so nothing was checked: exit \
                 code {code}; see that the test that uses RDMA ran, and that it takes libibverbs from pumice \
                 (pumice doctor)"
            );
            Err(CommandError::Program { sentence, exit_code: code })
        }
        0 if marks.lacks_report => {
            let sentence = "the program ended well, and its report of checks is not complete";
            Err(CommandError::Failed(sentence.to_owned()))
        }
        0 => Ok(Outcome::Good),
        exit_code => {
            let sentence = format!("the program ended with {exit_code}");
            Err(CommandError::Program { sentence, exit_code })
        }
    }
}
