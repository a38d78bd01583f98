//! Prints rules and processes. Names and tags come from other processes: control characters are replaced,
//! because they could move the cursor of a terminal.

use std::io::{self, Write};

use pumice_device::faults::live::{FaultCommand, RuleStatus};
use pumice_device::sharing::FaultCommandReply;
use serde::Serialize;

use crate::observe::{plain, program};
use crate::outcome::CommandError;

const NO_ANSWER: &str =
    "does not answer: it is stopped, or just begins or ends, or is of an older version; try again";

/// Describes a process in a few words.
pub(super) fn title(obeyed: &FaultCommandReply) -> String {
    let pid = obeyed.sharer.pid;
    let name = program(pid).unwrap_or_else(|| "?".to_owned());
    match &obeyed.answer {
        Some(answer) => format!("process {pid} ({name}) tag {}", plain(&answer.tag)),
        None => format!("process {pid} ({name})"),
    }
}

/// Prints the rules of processes.
pub(super) fn print(found: &[FaultCommandReply], out: &mut dyn Write) -> io::Result<()> {
    for obeyed in found {
        let Some(answer) = &obeyed.answer else {
            writeln!(out, "{} {NO_ANSWER}", title(obeyed))?;
            continue;
        };
        writeln!(out, "{}  {}  seed {}", title(obeyed), obeyed.sharer.address, answer.seed)?;
        if answer.rules.is_empty() {
            writeln!(out, "  no rules")?;
        }
        let widest = answer.rules.iter().map(|rule| rule.name.chars().count()).max().unwrap_or(0);
        for RuleStatus { name, does, live, paused, met, applied } in &answer.rules {
            let name = plain(name);
            let live = if *live { ", live" } else { "" };
            let paused = if *paused { ", paused" } else { "" };
            writeln!(out, "  {name:<widest$}  met {met}, applied {applied}{live}{paused}: {}", plain(does))?;
        }
        if answer.left_out > 0 {
            writeln!(out, "  and {} more rules", answer.left_out)?;
        }
    }
    Ok(())
}

/// Reports whether the process carried out the order.
pub(super) fn has_obeyed(obeyed: &FaultCommandReply) -> bool {
    obeyed.answer.as_ref().is_some_and(|answer| answer.refused.is_none())
}

/// Prints the result of an order.
pub(super) fn change(
    obeyed: &FaultCommandReply,
    wanted: &FaultCommand,
    out: &mut dyn Write,
) -> io::Result<()> {
    let title = title(obeyed);
    let Some(answer) = &obeyed.answer else {
        return writeln!(out, "{title} {NO_ANSWER}");
    };
    if let Some(why) = &answer.refused {
        return writeln!(out, "{title}: refused: {}", plain(why));
    }
    let what = match wanted {
        FaultCommand::List => "has",
        FaultCommand::Add { .. } => "added",
        FaultCommand::Pause { .. } => "paused",
        FaultCommand::Resume { .. } => "resumed",
        FaultCommand::Clear { .. } => "cleared",
    };
    let names: Vec<String> = answer.changed.iter().map(|name| plain(name)).collect();
    let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    writeln!(out, "{title}: {what} {names}")
}

/// Writes the result of an order at each process as a JSON array.
pub(super) fn changes_json(obeyed: &[FaultCommandReply], out: &mut dyn Write) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct ChangedProcess<'a> {
        pid: u32,
        program: Option<String>,
        /// Tag of the process; null if it did not answer.
        tag: Option<&'a str>,
        done: bool,
        refused: Option<&'a str>,
        /// Names of the rules that changed.
        changed: &'a [String],
    }
    let all: Vec<ChangedProcess<'_>> = obeyed
        .iter()
        .map(|one| ChangedProcess {
            pid: one.sharer.pid,
            program: program(one.sharer.pid),
            tag: one.answer.as_ref().map(|answer| answer.tag.as_str()),
            done: has_obeyed(one),
            refused: one.answer.as_ref().and_then(|answer| answer.refused.as_deref()),
            changed: one.answer.as_ref().map_or(&[], |answer| &answer.changed),
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)?;
    Ok(())
}

/// Writes the rules of processes as a JSON array.
pub(super) fn json(found: &[FaultCommandReply], out: &mut dyn Write) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct ProcessEntry<'a> {
        pid: u32,
        program: Option<String>,
        process_index: u8,
        address: std::net::IpAddr,
        /// Tag of the process; null if it did not answer.
        tag: Option<&'a str>,
        seed: Option<u64>,
        rules: &'a [RuleStatus],
    }
    let processes: Vec<ProcessEntry<'_>> = found
        .iter()
        .map(|FaultCommandReply { sharer, answer }| ProcessEntry {
            pid: sharer.pid,
            program: program(sharer.pid),
            process_index: sharer.process().value(),
            address: sharer.address,
            tag: answer.as_ref().map(|answer| answer.tag.as_str()),
            seed: answer.as_ref().map(|answer| answer.seed),
            rules: answer.as_ref().map_or(&[], |answer| &answer.rules),
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &processes)?;
    writeln!(out)?;
    Ok(())
}
