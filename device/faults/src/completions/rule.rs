//! Rules about completions.

use pumice_ground::ordinal::OrdinalSpan;
use pumice_transport::types::{QpType, WcStatus};

use super::key::{CompletionClass, CompletionKey, WorkSide};
use super::status::{can_end, is_of_side, status_name};
use crate::calls::matches_tag;
use crate::select::{Span, check_ordinals};
use crate::trigger::Trigger;
use crate::when::When;

/// Which completions a rule is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionSelector {
    /// The tag of the process; `*` at its end stands for anything.
    pub tag: Option<String>,
    /// Ordinals of queue pairs.
    pub qp: Option<OrdinalSpan>,
    /// How often the queue pair was reset before.
    pub connection: Option<Span>,
    /// The work queue.
    pub side: Option<WorkSide>,
    /// What the work request did; empty: anything.
    pub opcode: Vec<CompletionClass>,
    /// Ordinals of work requests on their work queue, from 0.
    pub message: Option<Span>,
}

/// What happens to a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompletionFault {
    /// The work request ends with another status than success.
    End {
        /// Which.
        status: WcStatus,
        /// What the completion has as `vendor_err`.
        vendor_err: u32,
    },
    /// The completion comes later, and those behind it on its work queue not before it.
    Late {
        /// So much.
        delay_ns: u64,
        /// And not before this.
        until: Option<Trigger>,
    },
}

/// Something that happens to completions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletionRule {
    /// Which completions.
    pub selector: CompletionSelector,
    /// What happens to them.
    pub fault: CompletionFault,
}

impl CompletionSelector {
    /// Whether it is about completions of a process with this tag.
    pub fn is_of(&self, tag: &str) -> bool {
        self.tag.as_deref().is_none_or(|wanted| matches_tag(wanted, tag))
    }

    /// Whether it is about this completion of a process that it is about.
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

    /// What the work requests do that it is about.
    fn classes(&self) -> impl Iterator<Item = CompletionClass> + '_ {
        let classes = CompletionClass::ALL.iter().copied();
        let is_of = |class: &CompletionClass| self.side.is_none_or(|side| side == class.side());
        classes.filter(|class| self.opcode.is_empty() || self.opcode.contains(class)).filter(is_of)
    }

    /// The work queues that it may be about.
    fn sides(&self) -> impl Iterator<Item = WorkSide> + '_ {
        let by_class =
            |side: &WorkSide| self.opcode.is_empty() || self.opcode.iter().any(|class| class.side() == *side);
        let sides = WorkSide::ALL.iter().copied();
        sides.filter(|side| self.side.is_none_or(|wanted| wanted == *side)).filter(by_class)
    }
}

impl CompletionRule {
    /// Whether there are so many completions: each work request has one.
    ///
    /// # Errors
    /// There are not; the sentence says what to write.
    pub(crate) fn check_count(&self, when: &When) -> Result<(), String> {
        self.selector.message.map_or(Ok(()), |span| when.check_count(span, "message"))
    }

    /// Whether the rule makes sense.
    ///
    /// # Errors
    /// It can apply to nothing, or does nothing; the sentence says what to write.
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
                // What a reliable queue pair's requests cannot end with, those of others cannot either.
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
