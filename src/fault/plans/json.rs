//! JSON output of `pumice fault`.

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
struct FieldJson {
    name: &'static str,
    meaning: String,
}

fn fields<T: ToString>(fields: &[(&'static str, T)]) -> Vec<FieldJson> {
    fields.iter().map(|(name, meaning)| FieldJson { name, meaning: meaning.to_string() }).collect()
}

#[derive(Debug, Serialize)]
struct ReadyPlanJson {
    name: &'static str,
    imitates: String,
    /// Text of the plan in TOML.
    plan: &'static str,
}

impl ReadyPlanJson {
    fn of(plan: &ReadyPlan) -> ReadyPlanJson {
        ReadyPlanJson { name: plan.name, imitates: plan.imitates(), plan: plan.text }
    }
}

/// Writes a value.
pub(super) fn write(value: &impl Serialize, out: &mut dyn Write) -> CommandResult {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;
    Ok(Outcome::Good)
}

/// Writes the rules of a valid plan.
pub(super) fn checked(plan: &FaultPlan, out: &mut dyn Write) -> CommandResult {
    #[derive(Serialize)]
    struct CheckedPlanJson<'a> {
        seed: u64,
        rules: Vec<&'a str>,
    }
    let rules = plan.rules().iter().map(|rule| rule.name.as_str()).collect();
    write(&CheckedPlanJson { seed: plan.seed(), rules }, out)
}

/// Writes all kinds of faults, and the fields that rules of every kind have.
pub(super) fn kinds(out: &mut dyn Write) -> CommandResult {
    #[derive(Serialize)]
    struct KindJson {
        name: &'static str,
        does: &'static str,
        fields: Vec<FieldJson>,
        example: &'static str,
        imitates: &'static str,
    }
    #[derive(Serialize)]
    struct KindsJson {
        kinds: Vec<KindJson>,
        when: Vec<FieldJson>,
        packets: Vec<FieldJson>,
        calls: Vec<FieldJson>,
        completions: Vec<FieldJson>,
        completion_events: Vec<FieldJson>,
    }
    let kinds = KINDS.iter().map(|kind| KindJson {
        name: kind.name,
        does: kind.does,
        fields: fields(&kind.meanings()),
        example: kind.example,
        imitates: kind.imitates,
    });
    let all = KindsJson {
        kinds: kinds.collect(),
        when: fields(WHEN),
        packets: fields(SELECTOR),
        calls: fields(CALLS_SELECTOR),
        completions: fields(COMPLETIONS_SELECTOR),
        completion_events: fields(COMPLETION_EVENTS_SELECTOR),
    };
    write(&all, out)
}

/// Writes all ready plans.
pub(super) fn plans(out: &mut dyn Write) -> CommandResult {
    write(&READY.iter().map(ReadyPlanJson::of).collect::<Vec<_>>(), out)
}

/// Writes one ready plan.
pub(super) fn plan(plan: &ReadyPlan, out: &mut dyn Write) -> CommandResult {
    write(&ReadyPlanJson::of(plan), out)
}

/// Writes how often each rule applied.
pub(super) fn applied(rules: &BTreeMap<String, u64>, out: &mut dyn Write) -> CommandResult {
    #[derive(Serialize)]
    struct AppliedRulesJson<'a> {
        /// Every rule applied.
        all_applied: bool,
        rules: &'a BTreeMap<String, u64>,
    }
    write(&AppliedRulesJson { all_applied: rules.values().all(|applied| *applied > 0), rules }, out)
}
