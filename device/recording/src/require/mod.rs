//! Requirements on a run: sentences such as `rdma.bytes > 1GB`, `no retransmission`, `p99(send) < 50us` or
//! `peer 10.0.0.2 used`, which are checked against traces.
//!
//! The grammar, whose words are separated by blanks:
//!
//! ```text
//! requirement = quantity comparison value scope | "no" quantity scope
//!             | "peer" address "used" | "device" name "used"
//! quantity    = a name of the table, or statistic "(" operation ")"
//!             | statistic "(latency of " operation ")"
//! statistic   = "min" | "mean" | "max" | "p50" | "p90" | "p99" | "p99.9"
//! operation   = "message" | "send" | "write" | "read" | "atomic"
//! comparison  = "<" | "<=" | ">" | ">=" | "==" | "!="
//! scope       = nothing | "with" address | "on" device
//! ```

mod grammar;
mod measured;
mod quantity;
#[cfg(test)]
mod tests;

use pumice_model::findings::{Fields, Finding, FindingFamily, FindingKind, Level};

use super::timeline::Timeline;

pub use grammar::{Requirement, RequirementComparison, RequirementError, RequirementScope};
pub use quantity::{QUANTITIES, Quantity, QuantityInfo, QuantityKind};

/// A requirement that the traces meet.
static MET: FindingKind = FindingKind::new(
    "requirement-met",
    FindingFamily::Messages,
    Level::Ok,
    "The traces bear out a requirement.",
);
/// A requirement that the traces do not meet.
static NOT_MET: FindingKind = FindingKind::new(
    "requirement-not-met",
    FindingFamily::Messages,
    Level::Error,
    "The traces do not bear out a requirement.",
);

/// The kinds of findings that requirements make.
pub const REQUIREMENT_KINDS: [&FindingKind; 2] = [&MET, &NOT_MET];

/// The verdict on a requirement: whether traces meet it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequirementVerdict {
    /// The requirement, as it was written.
    pub requirement: String,
    /// The traces meet the requirement.
    pub is_met: bool,
    /// The measured value in words; empty if there was nothing to measure.
    pub measured: String,
    /// A sentence that says what was measured and, if that does not suffice, why.
    pub sentence: String,
}

impl RequirementVerdict {
    /// Returns the verdict as a finding.
    pub fn to_finding(&self) -> Finding {
        let kind = if self.is_met { &MET } else { &NOT_MET };
        let evidence = Fields::default()
            .with("requirement", self.requirement.as_str())
            .with("is_met", self.is_met)
            .with("measured", self.measured.as_str());
        Finding::new(kind, self.requirement.as_str(), self.sentence.as_str()).with_evidence(evidence)
    }
}

impl Requirement {
    /// Judges the requirement by traces. `missing` is the number of records that the traces lack because
    /// there was no room.
    pub fn judge(&self, timeline: &Timeline, missing: u64) -> RequirementVerdict {
        let Some(value) = measured::of(timeline, self.quantity, &self.scope) else {
            let what = self.quantity.needed_records();
            return self.verdict(false, String::new(), format!("there is none: no {what} is in the traces"));
        };
        let kind = self.quantity.kind();
        let shown = kind.shown(value);
        let is_met = self.comparison.holds(value, self.value);
        // Missing records can only add to a count.
        let is_sure = missing == 0 || (is_met && self.comparison.holds_for_larger());
        let what = self.quantity.to_string();
        if is_met && !is_sure {
            let why = format!(
                "{what} is {shown} at least, but {missing} records are missing: record it with a larger \
                 --trace-limit"
            );
            return self.verdict(false, shown, why);
        }
        let sentence = match (is_met, value == 0.0 && self.quantity == Quantity::RdmaBytes) {
            (false, true) => format!(
                "{what} is {shown}: nothing moved by RDMA{} (the program used something else, such as TCP, \
                 or opened no device of pumice)",
                self.scope.in_words()
            ),
            _ => format!("{what} is {shown}{}", self.scope.in_words()),
        };
        self.verdict(is_met, shown, sentence)
    }

    fn verdict(&self, is_met: bool, measured: String, sentence: String) -> RequirementVerdict {
        RequirementVerdict { requirement: self.text.clone(), is_met, measured, sentence }
    }
}
