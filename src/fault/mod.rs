//! `pumice fault`: adds, pauses, resumes and removes rules of running programs; checks plans and reports of
//! faults.

mod options;
mod plans;
mod table;

use std::io::Write;
use std::time::Duration;

use pumice_device::faults::FaultPlan;
use pumice_device::faults::live::{FaultCommand, FaultReply};
use pumice_device::sharing::{FaultCommandReply, PortProcess, SharingError, order};

use crate::outcome::{CommandError, CommandResult, Outcome};
pub(crate) use options::FaultOptions;
use options::{FaultAction, FaultTarget};

/// Time for which answers of processes are awaited. A live process answers within a millisecond or two.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the command.
pub(crate) fn run(options: &FaultOptions, out: &mut dyn Write) -> CommandResult {
    let mut named = None;
    let (wanted, target, json) = match &options.action {
        FaultAction::Plans(action) => return plans::run(action, out),
        FaultAction::List { json, target } => return list(target, *json, out),
        FaultAction::Add { rule, json, target } => {
            let plan = FaultPlan::new().with_line(rule);
            let plan = plan.map_err(|error| CommandError::Usage(format!("{rule}: {error}")))?;
            named = plan.rules().first().and_then(|rule| rule.device.clone());
            (FaultCommand::Add { line: rule.clone() }, target, *json)
        }
        FaultAction::Pause { name, json, target } => {
            (FaultCommand::Pause { rule: name.clone() }, target, *json)
        }
        FaultAction::Resume { name, json, target } => {
            (FaultCommand::Resume { rule: name.clone() }, target, *json)
        }
        FaultAction::Clear { name, json, target } => {
            (FaultCommand::Clear { rule: name.clone() }, target, *json)
        }
    };
    let found = found(target, named.as_deref())?;
    if found.len() > 1 && !target.selects() {
        return Err(CommandError::Usage(ambiguous(&found)));
    }
    let chosen: Vec<PortProcess> = found.iter().map(|obeyed| obeyed.sharer).collect();
    let obeyed = send_change(target, &wanted, &|sharer| chosen.contains(sharer))?;
    if json {
        table::changes_json(&obeyed, out)?;
    } else {
        for one in &obeyed {
            table::change(one, &wanted, out)?;
        }
    }
    let all_did = obeyed.iter().all(table::has_obeyed);
    Ok(if all_did { Outcome::Good } else { Outcome::Bad })
}

fn list(target: &FaultTarget, json: bool, out: &mut dyn Write) -> CommandResult {
    let found = found(target, None)?;
    if json {
        table::json(&found, out)?
    } else {
        table::print(&found, out).map_err(CommandError::Output)?
    }
    let silent = found.iter().any(|obeyed| obeyed.answer.is_none());
    Ok(if silent { Outcome::Bad } else { Outcome::Good })
}

/// Returns the processes that the target names, one entry for each device. `named` is the device in a rule.
fn found(target: &FaultTarget, named: Option<&str>) -> Result<Vec<FaultCommandReply>, CommandError> {
    let is_wanted = |sharer: &PortProcess| target.pid.is_none_or(|pid| sharer.pid == pid);
    let mut found = send_change(target, &FaultCommand::List, &is_wanted)?;
    if let Some(tag) = &target.tag {
        found.retain(|obeyed| obeyed.answer.as_ref().is_some_and(|answer| has_tag(answer, tag)));
    }
    let of_these = found.len();
    for device in named.into_iter().chain(target.device.as_deref()) {
        found.retain(|obeyed| obeyed.answer.as_ref().is_some_and(|answer| answer.device == device));
    }
    if !found.is_empty() {
        return Ok(found);
    }
    if of_these > 0 {
        let device = named.or(target.device.as_deref()).unwrap_or_default();
        return Err(CommandError::Failed(format!("no process has a device {device}: pumice stat shows all")));
    }
    let which = match (target.pid, &target.tag) {
        (Some(pid), _) => format!("no process {pid} of this user shares"),
        (_, Some(tag)) => format!("no process of this user with the tag {tag} shares"),
        _ => "no process of this user shares".to_owned(),
    };
    Err(CommandError::Failed(format!(
        "{which} UDP port {}: start the program first (pumice stat shows those that run)",
        target.port
    )))
}

fn has_tag(answer: &FaultReply, wanted: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(start) => answer.tag.starts_with(start),
        None => answer.tag == wanted,
    }
}

fn send_change(
    target: &FaultTarget,
    wanted: &FaultCommand,
    is_selected: &dyn Fn(&PortProcess) -> bool,
) -> Result<Vec<FaultCommandReply>, CommandError> {
    let bytes = wanted.encode().map_err(CommandError::Usage)?;
    let failed =
        |error: SharingError| CommandError::Failed(format!("the processes cannot be asked: {error}"));
    order(target.port, target.registry.as_deref(), TIMEOUT, &bytes, is_selected).map_err(failed)
}

fn ambiguous(found: &[FaultCommandReply]) -> String {
    let all: Vec<String> = found.iter().map(table::title).collect();
    format!(
        "{} processes run: name one with --pid or --tag, or all with --all: {}",
        all.len(),
        all.join("; ")
    )
}
