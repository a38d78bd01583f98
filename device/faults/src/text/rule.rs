//! From fields to a rule.

use pumice_ground::link_words::LinkSettings;
use pumice_ground::quantity::time_ns;
use pumice_ground::similar::suggestion;
use pumice_transport::mad::RejectReason;

use super::fields::{DO, Fields, unknown};
use super::kinds::{
    CALLS_SELECTOR, COMPLETION_EVENTS_SELECTOR, COMPLETIONS_SELECTOR, FaultKind, KINDS, WHEN,
};
use super::trigger::trigger;
use super::units::{address, number, ordinals, share_ppm, span, speed, steps, times_ns, truth, width};
use super::{completion, completion_event};
use crate::action::{Delay, Fault};
use crate::answer::{answer, reason, timer_code};
use crate::calls::{CallFault, CallRule, CallSelector, errno_from};
use crate::identity::{PacketClass, PacketService, side_by_name};
use crate::incident::{Details, Incident};
use crate::plan::{Bursts, PacketRule, Rule, Steps, What, When};
use crate::rejection::private_data;
use crate::select::PacketSelector;

/// Before the kind: the name of a rule that was given none. It is in no name that is given.
pub(super) const UNNAMED: &str = "\u{0}";
/// How long a packet waits for those that overtake it, if nothing is said.
const WITHIN_NS: u64 = 10_000_000;
/// The reason of a REJ that a program sends.
const CONSUMER_REJECT: u16 = RejectReason::CONSUMER.0;
/// The kind that happens once in a process, unless `times` says more.
const EVENT: &str = "event";
/// Longest name of a rule.
const MAX_NAME_BYTES: usize = 100;

/// The rule that the fields say.
///
/// # Errors
/// What is wrong, and the remedy.
pub(super) fn rule(mut fields: Fields) -> Result<Rule, String> {
    let name = fields.take("name");
    let in_words = name.as_ref().map_or_else(String::new, |name| format!("rule \"{name}\": "));
    whole(name, &mut fields).map_err(|problem| format!("{in_words}{problem}"))
}

fn whole(name: Option<String>, fields: &mut Fields) -> Result<Rule, String> {
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
        What::CompletionEvent(Box::new(completion_event::rule(kind, fields)?))
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

fn when(fields: &mut Fields) -> Result<When, String> {
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
    Ok(When { steps, chance_ppm, bursts, times: fields.take_as("times", number)? })
}

fn selector(fields: &mut Fields) -> Result<PacketSelector, String> {
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
    })
}

fn call_rule(kind: &FaultKind, fields: &mut Fields) -> Result<CallRule, String> {
    let call = fields.take("call").ok_or("it does not say which call: write call=ibv_reg_mr, or call=*")?;
    let selector = CallSelector { tag: fields.take("tag"), call, qp: fields.take_as("qp", ordinals)? };
    let fault = if kind.name == "slow" {
        let ns = fields.take_as("time", time_ns)?.ok_or("it does not say how much longer: write time=5ms")?;
        CallFault::Delay { ns }
    } else {
        let errno = fields.take_as("errno", errno_from)?;
        CallFault::Fail { errno, force: fields.take_as("force", truth)?.unwrap_or(false) }
    };
    Ok(CallRule { selector, fault })
}

fn fault(kind: &FaultKind, fields: &mut Fields) -> Result<Fault, String> {
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
        "reject" => Fault::Reject {
            reason: fields.take_as("reason", reason)?.unwrap_or(CONSUMER_REJECT),
            private_data: fields.take_as("private-data", private_data)?.unwrap_or_default(),
        },
        "unreachable" => Fault::Unreachable,
        "note" => Fault::Note,
        "event" => Fault::Happen(incident(fields)?),
        "answer" => {
            let with = fields.take("with").ok_or("it does not say which answer: write with=rnr")?;
            let timer_code = fields.take_as("timer", |text| timer_code(time_ns(text)?))?;
            answer(&with, timer_code).map_err(|problem| format!("with: {problem}"))?
        }
        _ => Fault::Partition { for_ns: fields.take_as("time", time_ns)? },
    })
}

fn incident(fields: &mut Fields) -> Result<Incident, String> {
    let word = fields.take("kind").ok_or("it does not say which event: write kind=port-down")?;
    let object = match Incident::object_field(&word) {
        Some(field) => fields.take_as(field, number)?,
        None => None,
    };
    let to = if word == "gid-move" { fields.take_as("to", number)? } else { None };
    let for_ns = if Incident::has_time(&word) { fields.take_as("time", time_ns)? } else { None };
    let (speed, width) = if Incident::has_rate(&word) {
        (fields.take_as("speed", speed)?, fields.take_as("width", width)?)
    } else {
        (None, None)
    };
    let port = if Incident::has_port(&word) { fields.take_as("port", number)? } else { None };
    let link = if Incident::has_link(&word) { link(fields)? } else { None };
    let details = Details { object, to, for_ns, speed, width, port, link };
    let incident = Incident::of(&word, details).map_err(|e| format!("kind: {e}"))?;
    let others = ["cq", "srq", "gid", "to", "time", "speed", "width", "port", "way"];
    for field in others.into_iter().chain(LinkSettings::WORDS) {
        if fields.take(field).is_some() {
            return Err(format!("{word} has no {field}: remove it"));
        }
    }
    Ok(incident)
}

/// What the words of a link say, in one direction or both; none if there are no such words.
fn link(fields: &mut Fields) -> Result<Option<LinkSettings>, String> {
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

fn delay(fields: &mut Fields) -> Result<Delay, String> {
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
