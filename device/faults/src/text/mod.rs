//! The text forms of plans: TOML files, single lines, and reports, which are plans as well.
//!
//! All forms have the same fields. A file has a `[[rule]]` table for each rule; a line has the kind of fault
//! first and then `field=value`; a report has a JSON object for each thing that a rule applied to.
//!
//! Parsing of plans from text, and building of rules from fields.

use pumice_model::fates::details::{DetailField, Details};
use pumice_model::fates::fired::{errno_from, private_data};
use pumice_model::fates::incident::{Incident, IncidentKind};
use pumice_model::fates::{PacketClass, PacketService, side_by_name};
use pumice_platform::link_settings::LinkSettings;
use pumice_platform::quantity::{suggestion, time_ns};
use pumice_transport::mad::RejectReason;
use pumice_transport::types::QpState;
use serde::Deserialize;
use toml::{Spanned, Table};

use self::fields::{DO, RuleFields, unknown};
use self::kinds::EVENT;
use self::units::{
    address, number, ordinals, plane, share_ppm, span, speed, steps, times_ns, trigger, truth, width,
};
use crate::action::{Delay, Fault};
use crate::answer::{answer, reason, timer_code};
use crate::calls::{CallFault, CallRule, CallSelector};
use crate::plan::{Bursts, FaultPlan, PacketRule, PlanError, Rule, RuleConditions, Steps, What};
use crate::select::PacketSelector;

/// The beginning of the name of a rule that has no name yet; the kind follows. It is in no name that a user
/// can give.
const UNNAMED: &str = "\u{0}";
/// The longest time that a packet waits for those that overtake it if the rule names none, in ns.
const WITHIN_NS: u64 = 10_000_000;
/// The number of the reason in a REJ that a program sends.
const CONSUMER_REJECT: u16 = RejectReason::CONSUMER.0;
/// The longest name of a rule, in bytes.
const MAX_NAME_BYTES: usize = 100;

/// Builds the rule that the fields describe.
///
/// # Errors
/// The problem, and the remedy.
fn rule(mut fields: RuleFields) -> Result<Rule, String> {
    let name = fields.take("name");
    let in_words = name.as_ref().map_or_else(String::new, |name| format!("rule \"{name}\": "));
    whole(name, &mut fields).map_err(|problem| format!("{in_words}{problem}"))
}

fn whole(name: Option<String>, fields: &mut RuleFields) -> Result<Rule, String> {
    let kinds = || KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
    let word = fields
        .take(DO)
        .ok_or_else(|| format!("it does not say what happens: write do = one of {}", kinds()))?;
    let kind = KINDS.iter().find(|kind| kind.name == word);
    let kind = kind.ok_or_else(|| {
        let meant = suggestion(&word, KINDS.iter().map(|kind| kind.name));
        format!("{word} is no kind of fault: write one of {}{meant}", kinds())
    })?;
    let name = match name {
        Some(name) if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(char::is_control) => {
            return Err(format!("a name has 1 to {MAX_NAME_BYTES} bytes and no control characters"));
        }
        Some(name) => name,
        None => format!("{UNNAMED}{}", kind.name),
    };
    let after = fields.take_as("after", trigger)?;
    let device = fields.take("device");
    let mut when = when(fields)?;
    if kind.name == EVENT && when.times.is_none() {
        when.times = Some(1);
    }
    let what = if std::ptr::eq(kind.about, CALLS_SELECTOR) {
        What::Call(Box::new(call_rule(kind, fields)?))
    } else if std::ptr::eq(kind.about, COMPLETIONS_SELECTOR) {
        What::Completion(Box::new(completion::rule(kind, fields)?))
    } else if std::ptr::eq(kind.about, COMPLETION_EVENTS_SELECTOR) {
        What::CompletionEvent(Box::new(completion::rule_about_event(kind, fields)?))
    } else {
        let (selector, fault) = (selector(fields)?, fault(kind, fields)?);
        What::Packet(Box::new(PacketRule { selector, fault }))
    };
    if let Some(unknown) = fields.left() {
        return Err(unknown_field(unknown, kind));
    }
    Ok(Rule { name, device, after, when, what })
}

fn unknown_field(unknown: &str, kind: &FaultKind) -> String {
    let of_others = KINDS.iter().filter(|other| other.fields.iter().any(|(name, _)| *name == unknown));
    let of_others: Vec<&str> = of_others.map(|other| other.name).collect();
    if !of_others.is_empty() {
        return format!("{unknown} is a field of {}, not of {}: remove it", of_others.join(", "), kind.name);
    }
    let all = kind.fields.iter().chain(WHEN).chain(kind.about).map(|(name, _)| *name);
    let all: Vec<&str> = all.collect();
    let meant = suggestion(unknown, all.iter().copied());
    format!("{unknown} is no field of {}: it has name, {}{meant}", kind.name, all.join(", "))
}

fn when(fields: &mut RuleFields) -> Result<RuleConditions, String> {
    let nth = fields.take_as("nth", steps)?;
    let every = fields.take_as("every", number::<u64>)?;
    let steps = match (nth, every) {
        (Some(_), Some(_)) => {
            return Err("nth and every exclude each other: write nth=first..last+step".to_owned());
        }
        (None, Some(every)) => Some(Steps { first: every, last: u64::MAX, step: every }),
        (nth, None) => nth,
    };
    let chance_ppm = fields.take_as("chance", share_ppm)?;
    let begin_ppm = fields.take_as("burst-begin", share_ppm)?;
    let end_ppm = fields.take_as("burst-end", share_ppm)?;
    let bursts = match (begin_ppm, end_ppm) {
        (None, None) => None,
        (Some(begin_ppm), Some(end_ppm)) => Some(Bursts { begin_ppm, end_ppm }),
        _ => return Err("burst-begin and burst-end need each other: write both".to_owned()),
    };
    Ok(RuleConditions { steps, chance_ppm, bursts, times: fields.take_as("times", number)? })
}

fn selector(fields: &mut RuleFields) -> Result<PacketSelector, String> {
    let service = |name: &str| {
        PacketService::by_name(name)
            .ok_or_else(|| unknown(name, PacketService::ALL.iter().map(|one| one.name())))
    };
    let class = |name: &str| {
        PacketClass::by_name(name).ok_or_else(|| unknown(name, PacketClass::ALL.iter().map(|one| one.name())))
    };
    let sides = ["requester", "responder", "notification"];
    Ok(PacketSelector {
        tag: fields.take("tag"),
        qp: fields.take_as("qp", ordinals)?,
        connection: fields.take_as("connection", ordinals)?,
        peer: fields.take_list("peer", address)?,
        service: fields.take_list("service", service)?,
        side: fields
            .take_as("side", |name| side_by_name(name).ok_or_else(|| unknown(name, sides.into_iter())))?,
        opcode: fields.take_list("opcode", class)?,
        message: fields.take_as("message", span)?,
        packet: fields.take_as("packet", span)?,
        transmission: fields.take_as("transmission", span)?,
        source_port: fields.take_as("source-port", span)?,
        plane: fields.take_as("plane", plane)?,
    })
}

fn call_rule(kind: &FaultKind, fields: &mut RuleFields) -> Result<CallRule, String> {
    let call = fields.take("call").ok_or("it does not say which call: write call=ibv_reg_mr, or call=*")?;
    let (tag, qp, to) = (fields.take("tag"), fields.take_as("qp", ordinals)?, fields.take_as("to", state)?);
    let selector = CallSelector { tag, call, qp, to };
    let fault = if kind.name == "slow" {
        let ns = fields.take_as("time", time_ns)?.ok_or("it does not say how much longer: write time=5ms")?;
        CallFault::Delay { ns }
    } else {
        let errno = fields.take_as("errno", errno_from)?;
        // The field is read and ignored, since every errno is accepted: older plans have it.
        fields.take_as("force", truth)?;
        CallFault::Fail { errno }
    };
    Ok(CallRule { selector, fault })
}

/// Returns the state of a queue pair that a word names.
fn state(word: &str) -> Result<QpState, String> {
    let named = QpState::ALL.into_iter().find(|state| state.name().eq_ignore_ascii_case(word));
    named.ok_or_else(|| unknown(word, ["reset", "init", "rtr", "rts", "sqd", "sqe", "err"].into_iter()))
}

fn fault(kind: &FaultKind, fields: &mut RuleFields) -> Result<Fault, String> {
    Ok(match kind.name {
        "drop" => Fault::Drop,
        "duplicate" => Fault::Duplicate { copies: fields.take_as("copies", number)?.unwrap_or(1) },
        "delay" => Fault::Delay(delay(fields)?),
        "reorder" => Fault::Reorder {
            packets: fields.take_as("packets", number)?.unwrap_or(1),
            within_ns: fields.take_as("within", time_ns)?.unwrap_or(WITHIN_NS),
        },
        "corrupt" => Fault::Corrupt {
            bits: fields.take_as("bits", number)?.unwrap_or(1),
            first: fields.take_as("bit", number)?,
            sealed: fields.take_as("sealed", truth)?.unwrap_or(false),
        },
        "truncate" => Fault::Truncate { bytes: fields.take_as("bytes", number)? },
        "mark" => Fault::Mark,
        "trim" => Fault::Trim { last_hop: fields.take_as("last-hop", truth)?.unwrap_or(false) },
        "reflect" => {
            let mark = fields
                .take_as("mark", path_mark)?
                .ok_or("it does not say which mark: write mark=always-skip")?;
            Fault::Reflect { mark }
        }
        "reject" => Fault::Reject {
            reason: fields.take_as("reason", reason)?.unwrap_or(CONSUMER_REJECT),
            private_data: fields.take_as("private-data", private_data)?.unwrap_or_default(),
        },
        "unreachable" => Fault::Unreachable,
        "note" => Fault::Note,
        EVENT => Fault::Happen(incident(fields)?),
        "answer" => {
            let with = fields.take("with").ok_or("it does not say which answer: write with=rnr")?;
            let timer_code = fields.take_as("timer", |text| timer_code(time_ns(text)?))?;
            answer(&with, timer_code).map_err(|problem| format!("with: {problem}"))?
        }
        _ => Fault::Partition { for_ns: fields.take_as("time", time_ns)? },
    })
}

/// Returns the mark of a path that a word names.
fn path_mark(word: &str) -> Result<u8, String> {
    let words = ["none", "skip-once", "always-skip"];
    let named = (0..).zip(words).find(|(_, name)| *name == word);
    named.map(|(mark, _)| mark).ok_or_else(|| unknown(word, words.into_iter()))
}

fn incident(fields: &mut RuleFields) -> Result<Incident, String> {
    let word = fields.take("kind").ok_or("it does not say which event: write kind=port-down")?;
    let mut details = Details::default();
    for field in IncidentKind::of(&word).map(IncidentKind::fields).unwrap_or_default() {
        match field {
            DetailField::Cq => details.object = fields.take_as("cq", number)?,
            DetailField::Srq => details.object = fields.take_as("srq", number)?,
            DetailField::Gid => details.object = fields.take_as("gid", number)?,
            DetailField::To => details.to = fields.take_as("to", number)?,
            DetailField::Time => details.for_ns = fields.take_as("time", time_ns)?,
            DetailField::Speed => details.speed = fields.take_as("speed", speed)?,
            DetailField::Width => details.width = fields.take_as("width", width)?,
            DetailField::Port => details.port = fields.take_as("port", number)?,
            DetailField::Link => details.link = link(fields)?,
        }
    }
    let incident = Incident::of(&word, details).map_err(|e| format!("kind: {e}"))?;
    for field in DetailField::ALL.into_iter().flat_map(DetailField::words) {
        if fields.take(field).is_some() {
            return Err(format!("{word} has no {field}: remove it"));
        }
    }
    Ok(incident)
}

/// Returns the link settings that the fields describe, in one direction or both; `None` if there are no such
/// fields.
fn link(fields: &mut RuleFields) -> Result<Option<LinkSettings>, String> {
    let way = fields.take("way").unwrap_or_else(|| "both".to_owned());
    let front = match way.as_str() {
        "both" => "",
        "egress" => "egress.",
        "ingress" => "ingress.",
        _ => return Err(format!("way: {}", unknown(&way, ["egress", "ingress", "both"].into_iter()))),
    };
    let mut parts = Vec::new();
    for word in LinkSettings::WORDS {
        if let Some(value) = fields.take(word) {
            parts.push((format!("{front}{word}"), value));
        }
    }
    let is_said = !parts.is_empty();
    LinkSettings::of_parts(parts).map(|link| is_said.then_some(link))
}

fn delay(fields: &mut RuleFields) -> Result<Delay, String> {
    let time = fields.take_as("time", times_ns)?;
    let mean = fields.take_as("mean", time_ns)?;
    let deviation = fields.take_as("deviation", time_ns)?;
    let least = fields.take_as("least", time_ns)?;
    let correlation = fields.take_as("correlation", share_ppm)?;
    let correlation_ppm = correlation.unwrap_or(0);
    match (time, mean, deviation, least) {
        (Some((from, to)), None, None, None) if from == to => {
            if correlation.is_some() {
                return Err("a fixed time has no correlation: remove it, or write time=1ms..3ms".to_owned());
            }
            Ok(Delay::Fixed { ns: from })
        }
        (Some((from_ns, to_ns)), None, None, None) => Ok(Delay::Uniform { from_ns, to_ns, correlation_ppm }),
        (None, Some(mean_ns), Some(deviation_ns), None) => {
            Ok(Delay::Normal { mean_ns, deviation_ns, correlation_ppm })
        }
        (None, None, None, Some(least_ns)) => Ok(Delay::Pareto { least_ns, correlation_ppm }),
        _ => Err("a delay has one of: time=1ms, time=1ms..3ms, mean=1ms with deviation=200us, least=1ms"
            .to_owned()),
    }
}

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
            plan = plan.with_checked(rule(fields).map_err(wrong)?).map_err(|e| wrong(e.to_string()))?;
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
        let rule = RuleFields::of_line(line).and_then(rule).map_err(wrong)?;
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
    let mut rule = RuleFields::of_line(line).and_then(rule)?;
    name(&mut rule, &is_taken);
    if is_taken(&rule.name) {
        return Err(format!("there is a rule \"{}\" already: give this one another name", rule.name));
    }
    FaultPlan::new().with(rule.clone()).check_rules().map_err(|error| error.to_string())?;
    Ok(rule)
}

/// Names a rule without a name after its kind, with a number if that is taken.
fn name(rule: &mut Rule, is_taken: impl Fn(&str) -> bool) {
    if let Some(kind) = rule.name.strip_prefix(UNNAMED) {
        let numbered = |n: u32| if n == 1 { kind.to_owned() } else { format!("{kind}-{n}") };
        rule.name = (1..).map(numbered).find(|name| !is_taken(name)).unwrap_or_default();
    }
}

/// Returns the line of an offset in a text, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}

mod compare;
mod completion;
mod fields;
mod kinds;
mod report;
mod units;

pub use compare::{Comparison, Difference, compare};
pub use completion::{CompletionEventLine, CompletionLine};
pub use fields::{NthField, OrdinalField, TextError};
pub use kinds::{
    CALLS_SELECTOR, COMPLETION_EVENTS_SELECTOR, COMPLETIONS_SELECTOR, FaultKind, KINDS, SELECTOR, WHEN,
};
pub use report::{ReportLine, Summary, summaries};

/// The longest text of a plan, in bytes. A report of a long run is a plan, too.
pub const MAX_PLAN_BYTES: u64 = 256 << 20;

#[cfg(test)]
mod tests;
