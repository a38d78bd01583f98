//! Completions that have another status or are delayed because a fault plan says so.
//!
//! A completion is named by its work request: the n-th that was executed on its work queue. **Invariant**: no
//! rule depends on a time or a thread, except a rule that has a trigger to wait for.
//!
//! Rules about completions.

use pumice_model::fates::completion::{can_end, is_of_side};
use pumice_model::fates::trigger::Trigger;
use pumice_platform::ordinal::OrdinalSpan;
use pumice_transport::types::{QpType, WcStatus};

use crate::calls::matches_tag;
use crate::select::{RuleConditions, Span, check_ordinals};

/// Selects the completions that a rule is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionSelector {
    /// The tag of the process; `*` at its end stands for anything.
    pub tag: Option<String>,
    /// Ordinals of queue pairs.
    pub qp: Option<OrdinalSpan>,
    /// Number of times that the queue pair was reset before.
    pub connection: Option<Span>,
    /// The work queue.
    pub side: Option<WorkSide>,
    /// Classes of work requests; empty: all.
    pub opcode: Vec<CompletionClass>,
    /// Ordinals of work requests on their work queue, from 0.
    pub message: Option<Span>,
}

/// The fault of a rule about completions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompletionFault {
    /// The work request ends with another status than success.
    End {
        /// The status.
        status: WcStatus,
        /// The `vendor_err` of the completion.
        vendor_err: u32,
    },
    /// The completion comes later, and those behind it on its work queue do not come before it.
    Late {
        /// The additional time, in ns.
        delay_ns: u64,
        /// The trigger before which the completion does not come.
        until: Option<Trigger>,
    },
}

/// A rule about completions: which ones, and what happens to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletionRule {
    /// The completions that the rule is about.
    pub selector: CompletionSelector,
    /// The fault of these completions.
    pub fault: CompletionFault,
}

impl CompletionSelector {
    /// Reports whether the selector is about completions of a process with this tag.
    pub fn is_of(&self, tag: &str) -> bool {
        self.tag.as_deref().is_none_or(|wanted| matches_tag(wanted, tag))
    }

    /// Reports whether the selector matches this completion, which belongs to a process that the selector is
    /// about.
    pub fn matches(&self, key: &CompletionKey) -> bool {
        let has = |span: Option<Span>, number| span.is_none_or(|span| span.has(number));
        self.qp.is_none_or(|qp| qp.has(key.qp))
            && has(self.connection, key.connection.into())
            && has(self.message, key.message)
            && self.side.is_none_or(|side| side == key.class.side())
            && (self.opcode.is_empty() || self.opcode.contains(&key.class))
    }

    fn check(&self) -> Result<(), String> {
        check_ordinals("qp", self.qp)?;
        let spans = [("connection", self.connection), ("message", self.message)];
        for (name, span) in spans {
            if let Some(Span { first, last }) = span.filter(|span| span.last < span.first) {
                return Err(format!(
                    "{name} = {first}..{last} has no number: write the smaller number first"
                ));
            }
        }
        for class in &self.opcode {
            if self.side.is_some_and(|side| side != class.side()) {
                let (class, side) = (class.name(), class.side().name());
                return Err(format!("{class} is done by the {side} queue: write side={side}"));
            }
        }
        Ok(())
    }

    /// Returns the classes of work requests that the selector is about.
    fn classes(&self) -> impl Iterator<Item = CompletionClass> + '_ {
        let classes = CompletionClass::ALL.iter().copied();
        let is_of = |class: &CompletionClass| self.side.is_none_or(|side| side == class.side());
        classes.filter(|class| self.opcode.is_empty() || self.opcode.contains(class)).filter(is_of)
    }

    /// Returns the work queues that the selector can be about.
    fn sides(&self) -> impl Iterator<Item = WorkSide> + '_ {
        let by_class =
            |side: &WorkSide| self.opcode.is_empty() || self.opcode.iter().any(|class| class.side() == *side);
        let sides = WorkSide::ALL.iter().copied();
        sides.filter(|side| self.side.is_none_or(|wanted| wanted == *side)).filter(by_class)
    }
}

impl CompletionRule {
    /// Checks that the selected span has as many completions as the rule needs; each work request has one.
    ///
    /// # Errors
    /// The span has fewer; the sentence says what to write.
    pub(crate) fn check_count(&self, when: &RuleConditions) -> Result<(), String> {
        self.selector.message.map_or(Ok(()), |span| when.check_count(span, "message"))
    }

    /// Checks that the rule can apply to a completion and does something.
    ///
    /// # Errors
    /// The rule can apply to nothing, or does nothing; the sentence says what to write.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.selector.check()?;
        match &self.fault {
            CompletionFault::End { status: WcStatus::Success, .. } => {
                Err("success is what happens without a rule: write another status".to_owned())
            }
            CompletionFault::End { status, .. } => {
                let sides: Vec<WorkSide> = self.selector.sides().collect();
                if !sides.iter().any(|side| is_of_side(*status, *side)) {
                    let (status, sides) = (status_name(*status), sides.iter().map(|side| side.name()));
                    let sides = sides.collect::<Vec<_>>().join(", ");
                    return Err(format!("no {sides} request ends with {status}: write the other side"));
                }
                // Requests of other services cannot end with a status that those of a reliable queue pair
                // cannot end with.
                let mut classes = self.selector.classes();
                if !classes.any(|class| can_end(*status, class, QpType::Rc)) {
                    let names: Vec<&str> = self.selector.opcode.iter().map(|class| class.name()).collect();
                    let (names, status) = (names.join(" or "), status_name(*status));
                    return Err(format!("no {names} request ends with {status}: write another opcode"));
                }
                if *status == WcStatus::MwBindErr
                    && !self.selector.opcode.is_empty()
                    && !self.selector.opcode.contains(&CompletionClass::Bind)
                {
                    return Err("only bind requests end with window-bind: write opcode=bind".to_owned());
                }
                Ok(())
            }
            CompletionFault::Late { delay_ns: 0, until: None } => {
                Err("it does not say how late: write time=5ms, or until=\"rule NAME\"".to_owned())
            }
            CompletionFault::Late { .. } => Ok(()),
        }
    }
}

mod decide;

pub use decide::{CompletionFaults, CompletionVerdict};
pub use pumice_model::fates::completion::{
    CompletionClass, CompletionFate, CompletionKey, WorkSide, status_from, status_name,
};
pub use pumice_model::fates::fired::CompletionFired;
