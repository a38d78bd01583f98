//! `pumice replay`: a recorded run again, with what happened to its packets, and where it departed.

mod order;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use pumice_device::faults::FaultPlan;
use pumice_device::outside::output_file::{create_private_folder, write_private};
use pumice_device::settings::DEFAULT_SEED;
use serde::Serialize;
use serde_json::Value;

use crate::capture::plan::{Captured, on_the_way};
use crate::cli::ReplayOptions;
use crate::outcome::{CommandError, CommandResult, Outcome};
use crate::run::record::{self, Identity, Recorded};
use crate::run::{identity, run_beside};

/// The rule by which a replay does what the network did.
const NETWORK: &str = "network";
/// Departures that are told.
const TOLD: usize = 20;

/// Runs the command.
pub(crate) fn run(mut options: ReplayOptions, out: &mut dyn Write) -> CommandResult {
    let given = &options.run;
    let is_planned = given.faults.is_some() || !given.fault.is_empty() || given.loss.is_some();
    if is_planned || given.record.is_some() || given.capture.is_some() || given.fault_report.is_some() {
        return Err(CommandError::Usage(
            "the record says what goes wrong: leave out --faults, --fault, --loss, --fault-report, \
             --capture and --record"
                .to_owned(),
        ));
    }
    given.require.refuse("a replay")?;
    let processes = record::read(&options.folder).map_err(CommandError::Failed)?;
    let started = identity(&options.run)?;
    check_devices(&processes, &started, &options.folder)?;
    let recorded = evidence(&processes)?;
    let order = order::of(&processes).map_err(CommandError::Failed)?;
    let folder = options.folder.join(format!("replay-{}", std::process::id()));
    let made = create_private_folder(&folder).and_then(|()| {
        options.run.record = Some(folder.clone());
        let plan = folder.join("plan.jsonl");
        options.run.faults = Some(plan.clone());
        order.impose(&folder)?;
        write_private(&plan, (recorded.join("\n") + "\n").as_bytes())
    });
    made.map_err(|error| {
        CommandError::Failed(format!("{} cannot be written: {error}: free it", folder.display()))
    })?;
    if recorded.is_empty() {
        options.run.faults = None;
    } else {
        FaultPlan::parse(&recorded.join("\n"), DEFAULT_SEED)
            .map_err(|error| CommandError::Failed(format!("{}: {error}", options.folder.display())))?;
    }
    let exit_code = run_beside(&options.run)?;
    let replayed = record::read(&folder).map_err(CommandError::Failed)?;
    let tags: BTreeSet<String> = replayed.iter().map(|process| process.tag.clone()).collect();
    let mut found = Comparison::of(&recorded, &evidence(&replayed)?, &tags);
    found.ended(&processes, &started.tag, exit_code);
    found.order = order.had(&folder);
    if options.json {
        serde_json::to_writer(&mut *out, &found)?;
        writeln!(out)?;
    } else {
        found.print(out)?;
    }
    match exit_code {
        0 if found.departed || found.ended_otherwise => Ok(Outcome::Bad),
        0 => Ok(Outcome::Good),
        exit_code => {
            let sentence = format!("the program ended with {exit_code}");
            Err(CommandError::Program { sentence, exit_code })
        }
    }
}

/// What happens to packets is told by the names of devices: the program needs those that it had.
fn check_devices(processes: &[Recorded], now: &Identity, folder: &Path) -> Result<(), CommandError> {
    let mut of_tag = processes.iter().filter(|process| process.tag == now.tag).peekable();
    let Some(first) = of_tag.peek() else { return Ok(()) };
    let names: Vec<&str> = first.devices.iter().filter_map(|device| device.name.as_deref()).collect();
    let had = if names.is_empty() { "one device".to_owned() } else { names.join(", ") };
    if of_tag.any(|process| process.had(&now.devices)) {
        return Ok(());
    }
    Err(CommandError::Failed(format!(
        "{}: {} had {had} when it was recorded, and would have {}: name the same devices",
        folder.display(),
        now.tag,
        now.devices.join(", "),
    )))
}

/// What happened to packets, as lines of a report: by rules and by the network.
fn evidence(processes: &[Recorded]) -> Result<Vec<String>, CommandError> {
    let mut lines = Vec::new();
    let mut captured = Vec::new();
    for process in processes {
        lines.extend(process.report().map_err(CommandError::Failed)?);
        for device in &process.devices {
            let Some(packets) = device.packets.as_deref() else { continue };
            let queue_pairs = device.queue_pairs().map_err(CommandError::Failed)?;
            captured.push(Captured {
                tag: &process.tag,
                device: device.name.as_deref(),
                packets,
                queue_pairs,
            });
        }
    }
    lines.extend(on_the_way(captured, NETWORK)?);
    Ok(lines)
}

/// What happened to packets of these processes: the lines that name one, in a form that can be compared.
fn happened(lines: &[String], tags: &BTreeSet<String>) -> BTreeSet<String> {
    let packet = |line: &String| -> Option<String> {
        let value: Value = serde_json::from_str(line).ok()?;
        let is_of = value["tag"].as_str().is_some_and(|tag| tags.contains(tag));
        is_of.then(|| value.to_string())
    };
    lines.iter().filter_map(packet).collect()
}

/// Whether the network delivered a packet late, and did nothing else to it.
fn is_late(line: &str) -> bool {
    let value: Value = serde_json::from_str(line).unwrap_or_default();
    value["rule"] == NETWORK && value["delay_ns"].is_u64()
}

/// What happened again, and where the replay did something else.
#[derive(Debug, Serialize)]
struct Comparison {
    recorded: usize,
    happened_again: usize,
    /// Something recorded did not happen, or something new did.
    departed: bool,
    /// Lines of reports.
    missing: Vec<String>,
    new: Vec<String>,
    /// How long packets take differs in each run, and is no departure.
    late: usize,
    /// How the program ended when it was recorded, if that is known.
    recorded_exit: Option<u8>,
    /// How it has ended now.
    exit: u8,
    /// It ended otherwise than it did when it was recorded.
    ended_otherwise: bool,
    /// What came of the order of calls and arrivals.
    order: order::Had,
}

impl Comparison {
    fn of(recorded: &[String], replayed: &[String], tags: &BTreeSet<String>) -> Comparison {
        let (before, now) = (happened(recorded, tags), happened(replayed, tags));
        let missing: Vec<String> = before.difference(&now).cloned().collect();
        let (late, new): (Vec<String>, Vec<String>) =
            now.difference(&before).cloned().partition(|line| is_late(line));
        Comparison {
            recorded: before.len(),
            happened_again: before.intersection(&now).count(),
            departed: !missing.is_empty() || !new.is_empty(),
            missing,
            new,
            late: late.len(),
            recorded_exit: None,
            exit: 0,
            ended_otherwise: false,
            order: order::Had::default(),
        }
    }

    /// How the program with this tag has ended; `processes`: those that were recorded.
    fn ended(&mut self, processes: &[Recorded], tag: &str, exit: u8) {
        let of_tag = processes.iter().filter(|process| process.tag == tag);
        let known: Vec<u8> = of_tag.filter_map(|process| process.exit_code).collect();
        self.exit = exit;
        // Several programs with one tag: nothing says which of them this is.
        self.recorded_exit = known.iter().copied().find(|code| *code == exit).or(known.first().copied());
        self.ended_otherwise = self.recorded_exit.is_some_and(|code| code != exit);
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "{} of {} recorded things happened again", self.happened_again, self.recorded)?;
        let parts =
            [(&self.missing, "did not happen: the program did not come there"), (&self.new, "is new")];
        for (lines, what) in parts {
            for line in lines.iter().take(TOLD) {
                writeln!(out, "  {what}: {line}")?;
            }
            if lines.len() > TOLD {
                writeln!(out, "  {what}: and {} more", lines.len() - TOLD)?;
            }
        }
        if self.late > 0 {
            writeln!(out, "{} more packets were late", self.late)?;
        }
        self.order.print(out)?;
        if let Some(before) = self.recorded_exit.filter(|_| self.ended_otherwise) {
            let what =
                if self.exit == 0 { "what failed then has not failed now" } else { "it failed otherwise" };
            let what = if before == 0 { "it had not failed then" } else { what };
            writeln!(out, "the recorded run ended with {before}, and this one with {}: {what}", self.exit)?;
        }
        Ok(())
    }
}
