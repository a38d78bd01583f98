//! From a text to a plan.

use serde::Deserialize;
use toml::{Spanned, Table};

use super::error::TextError;
use super::fields::Fields;
use super::{report, rule};
use crate::plan::{FaultPlan, PlanError, Rule};

/// A file as TOML has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    seed: Option<u64>,
    #[serde(default)]
    rule: Vec<Spanned<Table>>,
}

impl FaultPlan {
    /// The plan that a file contains: TOML, or a report. The seed is `seed`, unless the file names one.
    ///
    /// # Errors
    /// The line, and what is wrong there.
    pub fn parse(text: &str, seed: u64) -> Result<FaultPlan, TextError> {
        if text.trim_start().starts_with('{') {
            return report::plan(text, seed);
        }
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| line_of(text, span.start));
            TextError { line, problem: error.message().to_owned() }
        })?;
        let mut plan = FaultPlan::seeded(file.seed.unwrap_or(seed));
        let mut lines = Vec::new();
        for table in file.rule {
            let line = line_of(text, table.span().start);
            lines.push(line);
            let wrong = |problem| TextError { line: Some(line), problem };
            let fields = Fields::of_table(table.into_inner()).map_err(wrong)?;
            plan = plan.with_checked(rule::rule(fields).map_err(wrong)?).map_err(|e| wrong(e.to_string()))?;
        }
        plan.check_waiting().map_err(|error| {
            let index = plan.rules().iter().position(|rule| rule.name == error.rule);
            let line = index.and_then(|index| lines.get(index).copied());
            TextError { line, problem: error.to_string() }
        })?;
        Ok(plan)
    }

    /// Also the rule that a line says: the kind of fault, then `field=value`. It may wait for a rule
    /// that comes later, so [`FaultPlan::check`] the whole.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn with_line(self, line: &str) -> Result<FaultPlan, TextError> {
        let wrong = |problem| TextError { line: None, problem };
        let rule = Fields::of_line(line).and_then(rule::rule).map_err(wrong)?;
        self.with_checked(rule).map_err(|error| wrong(error.to_string()))
    }

    /// Also this rule; one without a name gets that of its kind, and a number if that is taken.
    fn with_checked(self, mut rule: Rule) -> Result<FaultPlan, PlanError> {
        name(&mut rule, |name| self.rules().iter().any(|rule| rule.name == name));
        let plan = self.with(rule);
        plan.check_rules()?;
        Ok(plan)
    }
}

/// The rule that a line says, beside rules that have these names.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn rule_of_line(line: &str, is_taken: impl Fn(&str) -> bool) -> Result<Rule, String> {
    let mut rule = Fields::of_line(line).and_then(rule::rule)?;
    name(&mut rule, &is_taken);
    if is_taken(&rule.name) {
        return Err(format!("there is a rule \"{}\" already: give this one another name", rule.name));
    }
    FaultPlan::new().with(rule.clone()).check_rules().map_err(|error| error.to_string())?;
    Ok(rule)
}

/// Gives a rule without a name that of its kind, with a number if that is taken.
fn name(rule: &mut Rule, is_taken: impl Fn(&str) -> bool) {
    if let Some(kind) = rule.name.strip_prefix(rule::UNNAMED) {
        let numbered = |n: u32| if n == 1 { kind.to_owned() } else { format!("{kind}-{n}") };
        rule.name = (1..).map(numbered).find(|name| !is_taken(name)).unwrap_or_default();
    }
}

/// The line of an offset in a text, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}
