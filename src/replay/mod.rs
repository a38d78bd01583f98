//! `pumice replay`: runs a recorded run again, with the same faults of its packets, and reports departures.

mod order;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use pumice_device::faults::FaultPlan;
use pumice_device::outside::output_file::{create_private_folder, write_private};
use pumice_device::settings::DEFAULT_SEED;
use serde::Serialize;
use serde_json::Value;

use crate::capture::plan::{RecordedCapture, TransitFault, faults_in_transit};
use crate::cli::ReplayOptions;
use crate::outcome::{CommandError, CommandResult, Outcome};
use crate::run::record::{self, ProcessIdentity, RecordedProcess};
use crate::run::{identity, run_as_child};

/// Name of the rule by which a replay repeats what the network did.
const NETWORK: &str = "network";
/// Maximum number of departures that are printed.
const MAX_SHOWN_EVENTS: usize = 20;

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
    let recorded: Vec<String> = evidence(&processes)?.into_iter().map(|fault| fault.line).collect();
    let order = order::of(&processes).map_err(CommandError::Failed)?;
    let folder = options.folder.join(format!("replay-{}", std::process::id()));
    let made = create_private_folder(&folder).and_then(|()| {
        options.run.record = Some(folder.clone());
        let plan = folder.join("plan.jsonl");
        options.run.faults = Some(plan.clone());
        order.write_into(&folder)?;
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
    let exit_code = run_as_child(&options.run)?;
    let replayed = record::read(&folder).map_err(CommandError::Failed)?;
    let tags: BTreeSet<String> = replayed.iter().map(|process| process.tag.clone()).collect();
    let mut found = ReplayComparison::of(&recorded, &evidence(&replayed)?, &tags);
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

/// Checks the names of the devices: the faults of packets are recorded by them, so the program needs the same
/// names.
fn check_devices(
    processes: &[RecordedProcess],
    now: &ProcessIdentity,
    folder: &Path,
) -> Result<(), CommandError> {
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

/// Returns what happened to packets, by rules and by the network, as lines of a report.
fn evidence(processes: &[RecordedProcess]) -> Result<Vec<TransitFault>, CommandError> {
    let mut lines = Vec::new();
    let mut captured = Vec::new();
    for process in processes {
        let report = process.report().map_err(CommandError::Failed)?;
        lines.extend(report.into_iter().map(|line| TransitFault { line, is_presumed: false }));
        for device in &process.devices {
            let Some(packets) = device.packets.as_deref() else { continue };
            let queue_pairs = device.queue_pairs().map_err(CommandError::Failed)?;
            captured.push(RecordedCapture {
                tag: &process.tag,
                device: device.name.as_deref(),
                packets,
                queue_pairs,
            });
        }
    }
    lines.extend(faults_in_transit(captured, NETWORK)?);
    Ok(lines)
}

/// Returns what happened to packets of these processes: the lines that name one, in a form that can be
/// compared.
fn events_of<'a>(lines: impl Iterator<Item = &'a str>, tags: &BTreeSet<String>) -> BTreeSet<String> {
    let packet = |line: &str| -> Option<String> {
        let value: Value = serde_json::from_str(line).ok()?;
        let is_of = value["tag"].as_str().is_some_and(|tag| tags.contains(tag));
        is_of.then(|| value.to_string())
    };
    lines.filter_map(packet).collect()
}

/// Reports whether the network delivered a packet late, and did nothing else to it.
fn is_late(line: &str) -> bool {
    let value: Value = serde_json::from_str(line).unwrap_or_default();
    value["rule"] == NETWORK && value["delay_ns"].is_u64()
}

/// The comparison of the replay with the record.
#[derive(Debug, Serialize)]
struct ReplayComparison {
    recorded: usize,
    happened_again: usize,
    /// A recorded event did not happen, or a new one did.
    departed: bool,
    /// Lines of reports that are in the record only.
    missing: Vec<String>,
    new: Vec<String>,
    /// Number of packets that were late, or whose answer was: a sender that has waited long enough sends
    /// again. Times differ in each run, and are no departure.
    late: usize,
    /// Exit code of the program when it was recorded, if that is known.
    recorded_exit: Option<u8>,
    /// Exit code of the replay.
    exit: u8,
    /// The exit codes differ.
    ended_otherwise: bool,
    /// Result of imposing the order of calls and arrivals.
    order: order::ReplayedOrder,
}

impl ReplayComparison {
    fn of(recorded: &[String], replayed: &[TransitFault], tags: &BTreeSet<String>) -> ReplayComparison {
        let lines = |presumed_only: bool| {
            let wanted = replayed.iter().filter(move |fault| fault.is_presumed || !presumed_only);
            events_of(wanted.map(|fault| fault.line.as_str()), tags)
        };
        let before = events_of(recorded.iter().map(String::as_str), tags);
        let (now, presumed) = (lines(false), lines(true));
        let missing: Vec<String> = before.difference(&now).cloned().collect();
        let (late, new): (Vec<String>, Vec<String>) =
            now.difference(&before).cloned().partition(|line| is_late(line) || presumed.contains(line));
        ReplayComparison {
            recorded: before.len(),
            happened_again: before.intersection(&now).count(),
            departed: !missing.is_empty() || !new.is_empty(),
            missing,
            new,
            late: late.len(),
            recorded_exit: None,
            exit: 0,
            ended_otherwise: false,
            order: order::ReplayedOrder::default(),
        }
    }

    /// Notes the exit code of the program with this tag; `processes` are the recorded ones.
    fn ended(&mut self, processes: &[RecordedProcess], tag: &str, exit: u8) {
        let of_tag = processes.iter().filter(|process| process.tag == tag);
        let known: Vec<u8> = of_tag.filter_map(|process| process.exit_code).collect();
        self.exit = exit;
        // If several programs have one tag, it is unknown which of them this is.
        self.recorded_exit = known.iter().copied().find(|code| *code == exit).or(known.first().copied());
        self.ended_otherwise = self.recorded_exit.is_some_and(|code| code != exit);
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "{} of {} recorded things happened again", self.happened_again, self.recorded)?;
        let parts =
            [(&self.missing, "did not happen: the program did not come there"), (&self.new, "is new")];
        for (lines, what) in parts {
            for line in lines.iter().take(MAX_SHOWN_EVENTS) {
                writeln!(out, "  {what}: {line}")?;
            }
            if lines.len() > MAX_SHOWN_EVENTS {
                writeln!(out, "  {what}: and {} more", lines.len() - MAX_SHOWN_EVENTS)?;
            }
        }
        if self.late > 0 {
            writeln!(out, "{} more packets were late, or their answers", self.late)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(message: u64, is_presumed: bool) -> TransitFault {
        let line = serde_json::json!({"rule": NETWORK, "tag": "a", "message": message, "lost": true});
        TransitFault { line: line.to_string(), is_presumed }
    }

    #[test]
    fn what_was_sent_again_to_a_process_outside_is_no_departure_and_a_loss_is() {
        let (recorded, tags) = (vec![lost(0, false).line], BTreeSet::from(["a".to_owned()]));
        for (is_presumed, departed, late) in [(true, false, 1), (false, true, 0)] {
            let found = ReplayComparison::of(&recorded, &[lost(0, is_presumed), lost(1, is_presumed)], &tags);
            assert_eq!((found.departed, found.late, found.happened_again), (departed, late, 1));
        }
        assert!(ReplayComparison::of(&recorded, &[lost(1, true)], &tags).departed, "one is missing");
    }
}
