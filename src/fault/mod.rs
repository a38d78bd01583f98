//! `pumice fault`: rules of faults that come, rest and go while programs run; plans and reports of faults.

mod options;
mod plans;
mod table;

use std::io::Write;
use std::time::Duration;

use pumice_device::faults::FaultPlan;
use pumice_device::faults::live::{LiveAnswer, LiveOrder};
use pumice_device::share::{Obeyed, ShareError, Sharer, order};

use crate::outcome::{CommandError, CommandResult, Outcome};
pub(crate) use options::FaultOptions;
use options::{Action, Target};

/// How long processes are waited for. One that lives answers within a millisecond or two.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs the command.
pub(crate) fn run(options: &FaultOptions, out: &mut dyn Write) -> CommandResult {
    let mut named = None;
    let (wanted, target, json) = match &options.action {
        Action::Plans(action) => return plans::run(action, out),
        Action::List { json, target } => return list(target, *json, out),
        Action::Add { rule, json, target } => {
            let plan = FaultPlan::new().with_line(rule);
            let plan = plan.map_err(|error| CommandError::Usage(format!("{rule}: {error}")))?;
            named = plan.rules().first().and_then(|rule| rule.device.clone());
            (LiveOrder::Add { line: rule.clone() }, target, *json)
        }
        Action::Pause { name, json, target } => (LiveOrder::Pause { rule: name.clone() }, target, *json),
        Action::Resume { name, json, target } => (LiveOrder::Resume { rule: name.clone() }, target, *json),
        Action::Clear { name, json, target } => (LiveOrder::Clear { rule: name.clone() }, target, *json),
    };
    let found = found(target, named.as_deref())?;
    if found.len() > 1 && !target.selects() {
        return Err(CommandError::Usage(ambiguous(&found)));
    }
    let chosen: Vec<Sharer> = found.iter().map(|obeyed| obeyed.sharer).collect();
    let obeyed = give(target, &wanted, &|sharer| chosen.contains(sharer))?;
    if json {
        table::changes_json(&obeyed, out)?;
    } else {
        for one in &obeyed {
            table::change(one, &wanted, out)?;
        }
    }
    let all_did = obeyed.iter().all(table::did);
    Ok(if all_did { Outcome::Good } else { Outcome::Bad })
}

fn list(target: &Target, json: bool, out: &mut dyn Write) -> CommandResult {
    let found = found(target, None)?;
    if json {
        table::json(&found, out)?
    } else {
        table::print(&found, out).map_err(CommandError::Output)?
    }
    let silent = found.iter().any(|obeyed| obeyed.answer.is_none());
    Ok(if silent { Outcome::Bad } else { Outcome::Good })
}

/// The processes that the target names; with several devices, one for each. `named`: the device of a rule.
fn found(target: &Target, named: Option<&str>) -> Result<Vec<Obeyed>, CommandError> {
    let is_wanted = |sharer: &Sharer| target.pid.is_none_or(|pid| sharer.pid == pid);
    let mut found = give(target, &LiveOrder::List, &is_wanted)?;
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

fn has_tag(answer: &LiveAnswer, wanted: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(start) => answer.tag.starts_with(start),
        None => answer.tag == wanted,
    }
}

fn give(
    target: &Target,
    wanted: &LiveOrder,
    is_asked: &dyn Fn(&Sharer) -> bool,
) -> Result<Vec<Obeyed>, CommandError> {
    let bytes = wanted.encode().map_err(CommandError::Usage)?;
    let failed = |error: ShareError| CommandError::Failed(format!("the processes cannot be asked: {error}"));
    order(target.port, target.registry.as_deref(), PATIENCE, &bytes, is_asked).map_err(failed)
}

fn ambiguous(found: &[Obeyed]) -> String {
    let all: Vec<String> = found.iter().map(table::title).collect();
    format!(
        "{} processes run: name one with --pid or --tag, or all with --all: {}",
        all.len(),
        all.join("; ")
    )
}
