//! Requirements on a run: sentences such as `rdma.bytes > 1GB`, `no retransmission`, `p99(send) < 50us` or
//! `peer 10.0.0.2 used`, which traces bear out or not.
//!
//! The grammar, of which blanks separate the words:
//!
//! ```text
//! requirement = quantity comparison value scope | "no" quantity scope
//!             | "peer" address "used" | "device" name "used"
//! quantity    = a name of the table, or statistic "(" operation ")"
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

use pumice_events::findings::{Family, Fields, Finding, FindingKind, Level};

use super::timeline::Timeline;

pub use grammar::{Comparison, Requirement, RequirementError, Scope};
pub use quantity::{QUANTITIES, Quantity, QuantityInfo, QuantityKind};

/// A requirement that the traces bear out.
static MET: FindingKind =
    FindingKind::new("requirement-met", Family::Messages, Level::Ok, "The traces bear out a requirement.");
/// A requirement that they do not bear out.
static NOT_MET: FindingKind = FindingKind::new(
    "requirement-not-met",
    Family::Messages,
    Level::Error,
    "The traces do not bear out a requirement.",
);

/// The kinds of findings that requirements make.
pub const REQUIREMENT_KINDS: [&FindingKind; 2] = [&MET, &NOT_MET];

/// Whether traces bear out a requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The requirement, as it was written.
    pub requirement: String,
    /// They do.
    pub is_met: bool,
    /// What was measured; empty if there was nothing to measure.
    pub measured: String,
    /// What was measured and why that is not enough, in a sentence.
    pub sentence: String,
}

impl Verdict {
    /// The finding that it is.
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
    /// Whether traces bear it out. `missing`: records that the traces do not have, because there was no room.
    pub fn judge(&self, timeline: &Timeline, missing: u64) -> Verdict {
        let Some(value) = measured::of(timeline, self.quantity, &self.scope) else {
            let what = self.quantity.of_what();
            return self.verdict(false, String::new(), format!("there is none: no {what} is in the traces"));
        };
        let kind = self.quantity.kind();
        let shown = kind.shown(value);
        let is_met = self.comparison.holds(value, self.value);
        // What is missing can only add to a count.
        let is_sure = missing == 0 || (is_met && self.comparison.is_kept_by_more());
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

    fn verdict(&self, is_met: bool, measured: String, sentence: String) -> Verdict {
        Verdict { requirement: self.text.clone(), is_met, measured, sentence }
    }
}
