//! `pumice world`: runs a program, and all that it starts, so that the run can be repeated exactly.

mod ci_engines;
mod compare;
mod hosts;
mod merge;
mod options;
mod outcome;
mod private;
mod replay;
mod report;
mod result;
mod search;
mod seeds;
mod stop_at;
mod vary;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use pumice_device::outside::world;
use pumice_device::performance::Costs;
use pumice_device::settings::{self, DEFAULT_SEED};
use pumice_device::sharing::runtime_folder;
use pumice_world::{Draws, WorldOptions};

pub(crate) use ci_engines::{COUNT as SHARD_COUNT, INDEX as SHARD_INDEX};
pub(crate) use options::WorldCommandOptions;
use options::{Compute, WorldCommand};
use outcome::{RunOutcome, finish};

use crate::check::required::run_and_judge;
use crate::models;
use crate::outcome::{CommandError, CommandResult};
use crate::run::{RunOptions, make_links_of_build, own_program};

const PARTS: u32 = 1_000_000;
/// How many of a hundred calls let another thread go on, in a world without a model.
const DEFAULT_SWITCH: u8 = 25;

/// Runs the command.
pub(crate) fn run(options: &WorldCommandOptions, out: &mut dyn Write) -> CommandResult {
    match &options.command {
        Some(WorldCommand::Replay(replay)) => replay::run(replay),
        Some(WorldCommand::Search(search)) => search::run(search, out),
        Some(WorldCommand::Merge(merge)) => merge::run(merge, out),
        Some(WorldCommand::Compare(compare)) => compare::run(compare, out),
        Some(WorldCommand::Vary(vary)) => vary::run(vary, out),
        Some(WorldCommand::Host(host)) => hosts::run(host),
        None if options.run.require.is_empty() => run_one(options, options.run.trace.as_deref()),
        None => run_and_require(options),
    }
}

/// Runs a program in a world, and judges the requirements by its traces.
fn run_and_require(options: &WorldCommandOptions) -> CommandResult {
    let run = &options.run;
    let required = run.require.read()?;
    // In the world, the folder in which processes of pumice meet is empty. The name has the same length in
    // each run, because it stands in the environment of the program.
    let own = std::env::temp_dir().join(format!("pumice-require-{:010}", std::process::id()));
    run_and_judge(&required, run.trace.clone(), &own, &run.program, |trace| run_one(options, Some(trace)))
}

/// Runs a program in a world, with a trace if one is named. The exit code is that of the program.
fn run_one(options: &WorldCommandOptions, trace: Option<&Path>) -> CommandResult {
    let mut world = world_of(&options.run)?;
    if let Some(count) = options.hosts {
        hosts::begin_on_first(count, &options.run, &options.order.private, &mut world)?;
    }
    if let Some(trace) = trace {
        let trace = std::path::absolute(trace)
            .map_err(|error| CommandError::Failed(format!("the current folder cannot be told: {error}")))?;
        world.environment.retain(|(name, _)| name != settings::TRACE);
        world.environment.push((settings::TRACE.into(), trace.into_os_string()));
    }
    if let Some(name) = &options.model {
        let costs = Costs::of(&models::named(name)?).text();
        world.environment.retain(|(name, _)| name != world::WORLD_VARIABLE);
        world.environment.push((world::WORLD_VARIABLE.into(), costs.into()));
        world.exact_time = true;
        world.measures_computing = options.compute == Some(Compute::Measured);
    }
    let switch = options.order.switch.unwrap_or(if world.exact_time { 0 } else { DEFAULT_SWITCH });
    world.record.clone_from(&options.save);
    world.strict = options.order.strict;
    private::check(&options.order.private)?;
    world.private_folders.extend(options.order.private.iter().cloned());
    world.longest_s = options.inner.longest;
    world.output.clone_from(&options.inner.output);
    world.draws = Draws {
        switch_ppm: u32::from(switch) * (PARTS / 100),
        stall_ppm: PARTS.checked_div(options.order.stall).unwrap_or(0),
        longest_stall_ns: options.order.longest_stall * 1_000,
        preempt_ppm: PARTS.checked_div(options.order.preempt).unwrap_or(0),
        priorities: options.order.priorities,
    };
    if let Some(file) = &options.inner.departures {
        let failed = |error: std::io::Error| CommandError::Failed(format!("{}: {error}", file.display()));
        let listed = std::fs::read(file).map_err(failed)?;
        world.departures = Some(serde_json::from_slice(&listed).map_err(|error| failed(error.into()))?);
    }
    let ended = pumice_world::run(&world);
    let outcome = ended.as_ref().map_or_else(RunOutcome::of_error, |ended| Some(RunOutcome::of(ended)));
    if let Some((file, outcome)) = options.inner.outcome.as_ref().zip(outcome) {
        outcome.write(file).map_err(|error| {
            CommandError::Failed(format!("{} cannot be written: {error}", file.display()))
        })?;
    }
    finish(ended, options.order.quiet)
}

/// Returns the options of the world in which "pumice run" starts the program.
fn world_of(run: &RunOptions) -> Result<WorldOptions, CommandError> {
    if run.record.is_some() {
        let sentence = "a world repeats its run by its seed: leave out --record, or give --save";
        return Err(CommandError::Usage(sentence.to_owned()));
    }
    let seed = match run.seed.as_deref() {
        None => DEFAULT_SEED,
        Some(text) => text
            .parse()
            .map_err(|_| CommandError::Usage(format!("--seed {text}: give a whole number from 0")))?,
    };
    let own = own_program().map_err(CommandError::Failed)?;
    make_links_of_build();
    let mut command: Vec<OsString> = vec![own.into_os_string(), "run".into()];
    let switches = [("--no-preload", run.no_preload), ("--sysfs", run.sysfs), ("--rsocket", run.rsocket)];
    command.extend(switches.iter().filter(|(_, given)| *given).map(|(name, _)| OsString::from(name)));
    command.extend(run.check.exit_options().into_iter().map(OsString::from));
    command.push("--".into());
    command.extend(run.program.iter().cloned());
    let mut options = WorldOptions::new(seed, command);
    let set = run.variables().map_err(CommandError::Failed)?;
    options.environment.retain(|(name, _)| !set.iter().any(|(known, _)| name == known));
    options.environment.extend(set.into_iter().map(|(name, value)| (name.into(), value)));
    options.environment.push((world::WORLD_VARIABLE.into(), world::WITHOUT_MODEL.into()));
    let runtime = runtime_folder().map_err(|error| CommandError::Failed(error.to_string()))?;
    options.private_folders = vec![runtime];
    options.is_starter = true;
    Ok(options)
}

#[cfg(test)]
use crate::capture::replay as fuzz_replay;

#[cfg(test)]
#[path = "../../fuzz/bodies/world_result.rs"]
mod fuzzed;
