//! `pumice hang`: who waits for whom, and what holds all of them, seen from outside and at once.

mod draw;
mod look;
mod options;
mod text;

use std::fs;
use std::io::Write;
use std::path::Path;

use pumice_device::waits::{Graph, Standing, graph};
use serde::Serialize;

use crate::outcome::{CommandError, CommandResult, Outcome};
use look::Looks;
pub(crate) use options::HangOptions;

/// Runs the command.
pub(crate) fn run(options: &HangOptions, out: &mut dyn Write) -> CommandResult {
    let mut looks = look::look(options)?;
    let own = looks.host.clone();
    for file in &options.with {
        let other = read(file)?;
        looks.before.extend(on_host(other.before, &other.host, &own));
        looks.processes.extend(on_host(other.processes, &other.host, &own));
    }
    let found = graph(&looks.before, &looks.processes);
    if options.json {
        json(&looks, &found, out)?;
    } else {
        text::write(&looks.processes, &found, out)?;
    }
    if let Some(file) = &options.svg {
        save(file, &draw::svg(&looks.processes, &found))?;
    }
    if let Some(file) = &options.dot {
        save(file, &draw::dot(&looks.processes, &found))?;
    }
    Ok(if found.verdicts.is_empty() { Outcome::Good } else { Outcome::Bad })
}

/// The processes of another host; those of this one are not there a second time.
fn on_host<'a>(all: Vec<Standing>, host: &'a str, own: &str) -> impl Iterator<Item = Standing> + use<'a> {
    let is_other = host != own;
    all.into_iter().filter(move |_| is_other).map(move |one| {
        let host = if one.host.is_empty() { host.to_owned() } else { one.host.clone() };
        Standing { host, ..one }
    })
}

fn json(looks: &Looks, found: &Graph, out: &mut dyn Write) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct Whole<'a> {
        #[serde(flatten)]
        looks: &'a Looks,
        #[serde(flatten)]
        graph: &'a Graph,
    }
    serde_json::to_writer_pretty(&mut *out, &Whole { looks, graph: found })?;
    writeln!(out)?;
    Ok(())
}

fn read(file: &Path) -> Result<Looks, CommandError> {
    let refuse = |what: String| {
        let remedy = "name a file that `pumice hang --json` has written on another host";
        CommandError::Failed(format!("{}: {what}: {remedy}", file.display()))
    };
    let text = fs::read_to_string(file).map_err(|error| refuse(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))
}

fn save(file: &Path, picture: &str) -> Result<(), CommandError> {
    fs::write(file, picture)
        .map_err(|error| CommandError::Failed(format!("{} cannot be written: {error}", file.display())))
}
