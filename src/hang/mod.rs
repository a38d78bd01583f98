//! `pumice hang`: who waits for whom, and what holds all of them, seen from outside and at once.

mod draw;
mod hosts;
mod look;
mod options;
mod text;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::thread;

use pumice_device::waits::{Graph, Standing, graph};
use serde::Serialize;

use crate::outcome::{CommandError, CommandResult, Outcome};
use hosts::Asked;
use look::Looks;
pub(crate) use options::HangOptions;

/// Runs the command.
pub(crate) fn run(options: &HangOptions, out: &mut dyn Write) -> CommandResult {
    let (own, asked) = thread::scope(|scope| {
        // All hosts look at one time.
        let asked = scope.spawn(|| hosts::ask(options));
        (look::look(options), asked.join())
    });
    let asked = asked.unwrap_or_else(|_| Err("the other hosts could not be asked".to_owned()));
    let (mut looks, mut asked) = (own?, asked.map_err(CommandError::Usage)?);
    let own = looks.host.clone();
    for file in &options.with {
        let other = read(file)?;
        looks.before.extend(on_host(other.before, &other.host, &own));
        looks.processes.extend(on_host(other.processes, &other.host, &own));
    }
    for one in &mut asked {
        if let Some(other) = one.looks.take() {
            looks.add(other, &one.host);
        }
    }
    let found = graph(&looks.before, &looks.processes);
    let silent: Vec<&Asked> = asked.iter().filter(|one| one.problem.is_some()).collect();
    if options.json {
        json(&looks, &asked, &found, out)?;
    } else {
        for one in &silent {
            let problem = one.problem.as_deref().unwrap_or_default();
            writeln!(out, "host {} is not known: {problem}", one.host)?;
        }
        text::write(&looks.processes, &found, out)?;
    }
    if let Some(file) = &options.svg {
        save(file, &draw::svg(&looks.processes, &found))?;
    }
    if let Some(file) = &options.dot {
        save(file, &draw::dot(&looks.processes, &found))?;
    }
    Ok(if found.verdicts.is_empty() && silent.is_empty() { Outcome::Good } else { Outcome::Bad })
}

/// The processes of another host; those of this one are not there a second time.
fn on_host<'a>(all: Vec<Standing>, host: &'a str, own: &str) -> impl Iterator<Item = Standing> + use<'a> {
    let is_other = host != own;
    all.into_iter().filter(move |_| is_other).map(move |one| {
        let host = if one.host.is_empty() { host.to_owned() } else { one.host.clone() };
        Standing { host, ..one }
    })
}

fn json(looks: &Looks, asked: &[Asked], found: &Graph, out: &mut dyn Write) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct Whole<'a> {
        #[serde(flatten)]
        looks: &'a Looks,
        hosts: &'a [Asked],
        #[serde(flatten)]
        graph: &'a Graph,
    }
    serde_json::to_writer_pretty(&mut *out, &Whole { looks, hosts: asked, graph: found })?;
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
