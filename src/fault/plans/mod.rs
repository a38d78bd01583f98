//! The actions of `pumice fault` that need no running program: check plans, list kinds, and judge reports.

mod compare;
mod json;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use pumice_device::faults::{
    CALLS_SELECTOR, COMPLETION_EVENTS_SELECTOR, COMPLETIONS_SELECTOR, FaultPlan, KINDS, READY, ReadyPlan,
    SELECTOR, WHEN, summaries,
};
use pumice_device::platform::quantity::suggestion;
use pumice_device::settings::DEFAULT_SEED;

use crate::outcome::{CommandError, CommandResult, Outcome};

/// The actions on plans and reports.
#[derive(Debug, Subcommand)]
pub(super) enum PlansAction {
    /// Check a fault plan, and list its rules
    Check {
        /// The plan: a TOML file, or a report of faults
        file: PathBuf,
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// List every kind of fault with its fields, an example, and what it imitates
    Kinds {
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// List the plans that are ready to use as --faults NAME, or print one of them
    Plans {
        /// The plan to print: a beginning for one of your own
        name: Option<String>,
        /// Print one JSON array instead of text, or one object of one plan
        #[arg(long)]
        json: bool,
    },
    /// Look whether every rule has applied to something, in one of these reports
    ///
    /// The exit code is 1 if a rule never applied: a run in which nothing went wrong tests nothing.
    Assert {
        /// Reports that --fault-report has written
        #[arg(required = true)]
        reports: Vec<PathBuf>,
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// Compare reports of several runs with the first one: same, or which message differed
    ///
    /// The exit code is 1 if a rule did another thing to the same message. Reports say which messages there
    /// were if the plan has a rule "note"; without it, everything that differs counts.
    Compare {
        /// Reports that --fault-report has written; of several processes, one file for each run
        #[arg(required = true, num_args = 2..)]
        reports: Vec<PathBuf>,
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
    },
}

/// Runs the action.
pub(super) fn run(action: &PlansAction, out: &mut dyn Write) -> CommandResult {
    match action {
        PlansAction::Check { file, json } => check(file, *json, out),
        PlansAction::Kinds { json: true } => json::kinds(out),
        PlansAction::Kinds { json: false } => list(out),
        PlansAction::Plans { name: None, json: true } => json::plans(out),
        PlansAction::Plans { name: None, json: false } => plans(out),
        PlansAction::Plans { name: Some(name), json } => plan(name, *json, out),
        PlansAction::Assert { reports, json } => assert(reports, *json, out),
        PlansAction::Compare { reports, json } => {
            let texts = reports.iter().map(|file| Ok((file, read(file)?)));
            compare::run(&texts.collect::<Result<Vec<_>, CommandError>>()?, *json, out)
        }
    }
}

fn read(file: &Path) -> Result<String, CommandError> {
    fs::read_to_string(file).map_err(|error| {
        CommandError::Usage(format!("{} cannot be read: {error}: name a file that can be", file.display()))
    })
}

fn check(file: &Path, json: bool, out: &mut dyn Write) -> CommandResult {
    let plan = FaultPlan::parse(&read(file)?, DEFAULT_SEED)
        .map_err(|error| CommandError::Usage(format!("{}: {error}", file.display())))?;
    if json {
        return json::checked(&plan, out);
    }
    let write = |out: &mut dyn Write| -> std::io::Result<()> {
        writeln!(out, "seed {}, {} rules", plan.seed(), plan.rules().len())?;
        plan.rules().iter().try_for_each(|rule| writeln!(out, "  {}", rule.name))
    };
    write(out).map_err(CommandError::Output)?;
    Ok(Outcome::Good)
}

fn list(out: &mut dyn Write) -> CommandResult {
    let write = |out: &mut dyn Write| -> std::io::Result<()> {
        for kind in KINDS {
            writeln!(out, "{}: {}", kind.name, kind.does)?;
            fields(&kind.meanings(), out)?;
            writeln!(out, "    example:  --fault '{}'", kind.example)?;
            writeln!(out, "    imitates: {}\n", kind.imitates)?;
        }
        writeln!(out, "every rule: name, and when it applies (all conditions together)")?;
        fields(WHEN, out)?;
        writeln!(out, "\nevery rule about packets: which packets (all conditions together)")?;
        fields(SELECTOR, out)?;
        writeln!(out, "\nevery rule about calls: which calls (all conditions together)")?;
        fields(CALLS_SELECTOR, out)?;
        writeln!(out, "\nevery rule about completions: which completions (all conditions together)")?;
        fields(COMPLETIONS_SELECTOR, out)?;
        writeln!(out, "\nevery rule about events of completion channels: which events")?;
        fields(COMPLETION_EVENTS_SELECTOR, out)
    };
    write(out).map_err(CommandError::Output)?;
    Ok(Outcome::Good)
}

fn fields<T: Display>(fields: &[(&str, T)], out: &mut dyn Write) -> std::io::Result<()> {
    fields.iter().try_for_each(|(name, meaning)| writeln!(out, "    {name:<14}{meaning}"))
}

fn plans(out: &mut dyn Write) -> CommandResult {
    let mut write =
        || READY.iter().try_for_each(|plan| writeln!(out, "{:<21}{}", plan.name, plan.imitates()));
    write().map_err(CommandError::Output)?;
    Ok(Outcome::Good)
}

fn plan(name: &str, json: bool, out: &mut dyn Write) -> CommandResult {
    let plan = ReadyPlan::named(name).ok_or_else(|| {
        let meant = suggestion(name, READY.iter().map(|plan| plan.name));
        CommandError::Usage(format!("{name} is no ready plan: \"pumice fault plans\" lists them{meant}"))
    })?;
    if json {
        return json::plan(plan, out);
    }
    out.write_all(plan.text.as_bytes()).map_err(CommandError::Output)?;
    Ok(Outcome::Good)
}

fn assert(reports: &[PathBuf], json: bool, out: &mut dyn Write) -> CommandResult {
    let mut all = BTreeMap::<String, u64>::new();
    for file in reports {
        let summaries = summaries(&read(file)?)
            .map_err(|error| CommandError::Usage(format!("{}: {error}", file.display())))?;
        for (rule, summary) in summaries {
            *all.entry(rule).or_default() += summary.applied;
        }
    }
    if all.is_empty() {
        let names = reports.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(CommandError::Failed(format!("{names}: there is no rule in it, so nothing was tested")));
    }
    if json {
        json::applied(&all, out)?;
    }
    let outcome = if all.values().all(|applied| *applied > 0) { Outcome::Good } else { Outcome::Bad };
    for (rule, applied) in all.iter().filter(|_| !json) {
        writeln!(out, "{applied:>8}  {rule}{}", if *applied == 0 { "  never applied" } else { "" })
            .map_err(CommandError::Output)?;
    }
    Ok(outcome)
}
