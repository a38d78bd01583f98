//! Parsing of plans from text.

use serde::Deserialize;
use toml::{Spanned, Table};

use super::error::TextError;
use super::fields::RuleFields;
use super::{report, rule};
use crate::plan::{FaultPlan, PlanError, Rule};

/// The content of a TOML file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    seed: Option<u64>,
    #[serde(default)]
    rule: Vec<Spanned<Table>>,
}

impl FaultPlan {
    /// Parses the content of a file: TOML, or a report. The seed is `seed`, unless the file names one.
    ///
    /// # Errors
    /// The line, and what is wrong there.
    pub fn parse(text: &str, seed: u64) -> Result<FaultPlan, TextError> {
        if text.trim_start().starts_with('{') {
            return report::plan(text, seed);
        }
        let file: PlanFile = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| line_of(text, span.start));
            TextError { line, problem: error.message().to_owned() }
        })?;
        let mut plan = FaultPlan::seeded(file.seed.unwrap_or(seed));
        let mut lines = Vec::new();
        for table in file.rule {
            let line = line_of(text, table.span().start);
            lines.push(line);
            let wrong = |problem| TextError { line: Some(line), problem };
            let fields = RuleFields::of_table(table.into_inner()).map_err(wrong)?;
            plan = plan.with_checked(rule::rule(fields).map_err(wrong)?).map_err(|e| wrong(e.to_string()))?;
        }
        plan.check_waiting().map_err(|error| {
            let index = plan.rules().iter().position(|rule| rule.name == error.rule);
            let line = index.and_then(|index| lines.get(index).copied());
            TextError { line, problem: error.to_string() }
        })?;
        Ok(plan)
    }

    /// Adds the rule that a line describes: the kind of fault, then `field=value`. The rule may wait for a
    /// rule that is added later, so [`FaultPlan::check`] the whole plan in the end.
    ///
    /// # Errors
    /// The text is no rule, or the rule cannot be used.
    pub fn with_line(self, line: &str) -> Result<FaultPlan, TextError> {
        let wrong = |problem| TextError { line: None, problem };
        let rule = RuleFields::of_line(line).and_then(rule::rule).map_err(wrong)?;
        self.with_checked(rule).map_err(|error| wrong(error.to_string()))
    }

    /// Adds a rule; one without a name gets the name of its kind, with a number if that is taken.
    fn with_checked(self, mut rule: Rule) -> Result<FaultPlan, PlanError> {
        name(&mut rule, |name| self.rules().iter().any(|rule| rule.name == name));
        let plan = self.with(rule);
        plan.check_rules()?;
        Ok(plan)
    }
}

/// Returns the rule that a line describes, to be added to rules for whose names `is_taken` is true.
///
/// # Errors
/// The text is no rule, or its name is taken.
pub(crate) fn rule_of_line(line: &str, is_taken: impl Fn(&str) -> bool) -> Result<Rule, String> {
    let mut rule = RuleFields::of_line(line).and_then(rule::rule)?;
    name(&mut rule, &is_taken);
    if is_taken(&rule.name) {
        return Err(format!("there is a rule \"{}\" already: give this one another name", rule.name));
    }
    FaultPlan::new().with(rule.clone()).check_rules().map_err(|error| error.to_string())?;
    Ok(rule)
}

/// Names a rule without a name after its kind, with a number if that is taken.
fn name(rule: &mut Rule, is_taken: impl Fn(&str) -> bool) {
    if let Some(kind) = rule.name.strip_prefix(rule::UNNAMED) {
        let numbered = |n: u32| if n == 1 { kind.to_owned() } else { format!("{kind}-{n}") };
        rule.name = (1..).map(numbered).find(|name| !is_taken(name)).unwrap_or_default();
    }
}

/// Returns the line of an offset in a text, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}
