//! The conditions under which a rule applies.

use super::select::Span;

/// A probability of 1, in parts per million.
const ALWAYS_PPM: u32 = 1_000_000;

/// Selects every `step`-th of what a rule is about, from the first to the last, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// The first ordinal.
    pub first: u64,
    /// The last ordinal.
    pub last: u64,
    /// The distance from one to the next, at least 1.
    pub step: u64,
}

impl Steps {
    pub(super) const fn has(self, ordinal: u64) -> bool {
        let step = if self.step == 0 { 1 } else { self.step };
        ordinal >= self.first && ordinal <= self.last && (ordinal - self.first).is_multiple_of(step)
    }
}

/// Good and bad stretches (the model of Gilbert and Elliott): the rule applies in bad ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bursts {
    /// Probability that a bad stretch begins with a packet, in parts per million.
    pub begin_ppm: u32,
    /// Probability that a bad stretch ends with a packet, in parts per million.
    pub end_ppm: u32,
}

/// The conditions of a rule, all of which have to hold. What a rule is about is counted along one kind of
/// traffic (requests, answers, ACKs, NAKs) of one connection of one queue pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuleConditions {
    /// The ordinals to which the rule applies.
    pub steps: Option<Steps>,
    /// The share to which the rule applies at random, in parts per million.
    pub chance_ppm: Option<u32>,
    /// The bad stretches in which the rule applies.
    pub bursts: Option<Bursts>,
    /// The largest number of times that the rule applies.
    pub times: Option<u64>,
}

impl RuleConditions {
    /// Reports whether the rule applies to everything that it is about.
    pub(super) fn is_always(&self) -> bool {
        let chance = self.chance_ppm.is_none_or(|ppm| ppm == ALWAYS_PPM);
        chance && self.steps.is_none() && self.bursts.is_none() && self.times.is_none()
    }

    /// Checks that the conditions make sense together.
    ///
    /// # Errors
    /// The conditions can never hold; the sentence says what to write.
    pub(super) fn check(&self) -> Result<(), String> {
        let chances = [self.chance_ppm, self.bursts.map(|bursts| bursts.begin_ppm)];
        if chances.into_iter().flatten().any(|ppm| ppm > ALWAYS_PPM) {
            return Err("a chance is more than 100 %: write at most 100%".to_owned());
        }
        if chances.contains(&Some(0)) && self.chance_ppm.is_some_and(|ppm| ppm == 0) {
            return Err("a chance of 0 never applies: remove the rule, or write a chance above 0".to_owned());
        }
        if self.bursts.is_some_and(|bursts| bursts.begin_ppm == 0) {
            return Err("bad stretches with a chance of 0 never begin: write a chance above 0".to_owned());
        }
        if self.times == Some(0) {
            return Err("times = 0 never applies: remove the rule, or write at least 1".to_owned());
        }
        match self.steps {
            Some(Steps { first: 0, .. }) => Err("counting begins with 1: write 1 for the first".to_owned()),
            Some(Steps { first, last, .. }) if last < first => {
                Err(format!("from {first} to {last} there is nothing: write the smaller number first"))
            }
            Some(Steps { step: 0, .. }) => Err("a step of 0 does not go on: write at least 1".to_owned()),
            _ => Ok(()),
        }
    }

    /// Checks that a span has as many things as the rule counts.
    ///
    /// # Errors
    /// The first one to which the rule applies is beyond the span.
    pub(crate) fn check_count(&self, span: Span, field: &str) -> Result<(), String> {
        let there = span.last.saturating_sub(span.first).saturating_add(1);
        match self.steps {
            Some(steps) if steps.first > there => Err(format!(
                "{field}={span} is {there} at most on each connection, and nth begins with {}: of these \
                 there is none, write nth=1 or leave it out",
                steps.first
            )),
            _ => Ok(()),
        }
    }
}
