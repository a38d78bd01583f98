//! What `pumice fault` finds out, as JSON.

use std::collections::BTreeMap;
use std::io::Write;

use pumice_device::faults::{
    CALLS_SELECTOR, COMPLETION_EVENTS_SELECTOR, COMPLETIONS_SELECTOR, FaultPlan, KINDS, READY, ReadyPlan,
    SELECTOR, WHEN,
};
use serde::Serialize;

use crate::outcome::{CommandResult, Outcome};

/// A field of a rule.
#[derive(Debug, Serialize)]
struct Field {
    name: &'static str,
    meaning: &'static str,
}

fn fields(fields: &[(&'static str, &'static str)]) -> Vec<Field> {
    fields.iter().map(|&(name, meaning)| Field { name, meaning }).collect()
}

#[derive(Debug, Serialize)]
struct Plan {
    name: &'static str,
    imitates: String,
    /// As TOML.
    plan: &'static str,
}

impl Plan {
    fn of(plan: &ReadyPlan) -> Plan {
        Plan { name: plan.name, imitates: plan.imitates(), plan: plan.text }
    }
}

/// Writes a value.
pub(super) fn write(value: &impl Serialize, out: &mut dyn Write) -> CommandResult {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;
    Ok(Outcome::Good)
}

/// A plan that is right.
pub(super) fn checked(plan: &FaultPlan, out: &mut dyn Write) -> CommandResult {
    #[derive(Serialize)]
    struct Checked<'a> {
        seed: u64,
        rules: Vec<&'a str>,
    }
    let rules = plan.rules().iter().map(|rule| rule.name.as_str()).collect();
    write(&Checked { seed: plan.seed(), rules }, out)
}

/// All kinds of faults, and the fields that rules of every kind have.
pub(super) fn kinds(out: &mut dyn Write) -> CommandResult {
    #[derive(Serialize)]
    struct KindEntry {
        name: &'static str,
        does: &'static str,
        fields: Vec<Field>,
        example: &'static str,
        imitates: &'static str,
    }
    #[derive(Serialize)]
    struct All {
        kinds: Vec<KindEntry>,
        when: Vec<Field>,
        packets: Vec<Field>,
        calls: Vec<Field>,
        completions: Vec<Field>,
        completion_events: Vec<Field>,
    }
    let kinds = KINDS.iter().map(|kind| KindEntry {
        name: kind.name,
        does: kind.does,
        fields: fields(kind.fields),
        example: kind.example,
        imitates: kind.imitates,
    });
    let all = All {
        kinds: kinds.collect(),
        when: fields(WHEN),
        packets: fields(SELECTOR),
        calls: fields(CALLS_SELECTOR),
        completions: fields(COMPLETIONS_SELECTOR),
        completion_events: fields(COMPLETION_EVENTS_SELECTOR),
    };
    write(&all, out)
}

/// All ready plans.
pub(super) fn plans(out: &mut dyn Write) -> CommandResult {
    write(&READY.iter().map(Plan::of).collect::<Vec<_>>(), out)
}

/// One of them.
pub(super) fn plan(plan: &ReadyPlan, out: &mut dyn Write) -> CommandResult {
    write(&Plan::of(plan), out)
}

/// How often each rule applied.
pub(super) fn applied(rules: &BTreeMap<String, u64>, out: &mut dyn Write) -> CommandResult {
    #[derive(Serialize)]
    struct Applied<'a> {
        /// Every rule applied.
        all_applied: bool,
        rules: &'a BTreeMap<String, u64>,
    }
    write(&Applied { all_applied: rules.values().all(|applied| *applied > 0), rules }, out)
}
