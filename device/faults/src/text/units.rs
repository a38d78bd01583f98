//! Parsing of values and of triggers as people write them.

use std::net::IpAddr;

use pumice_model::fates::trigger::{Trigger, event_word};
use pumice_platform::link_settings::{Speed, Width};
use pumice_platform::ordinal::{Ordinal, OrdinalSpan};
use pumice_platform::quantity::{probability_ppm, time_ns};
use pumice_transport::types::AsyncEventType;

use crate::calls::CallSelector;
use crate::plan::Steps;
use crate::select::{PlaneSpan, Span};

/// Parses one time, or two: "1ms..3ms".
pub(super) fn times_ns(text: &str) -> Result<(u64, u64), String> {
    let Some((from, to)) = text.split_once("..") else {
        let ns = time_ns(text)?;
        return Ok((ns, ns));
    };
    let (from, to) = (time_ns(from)?, time_ns(to)?);
    if to < from { Err(format!("{text} is no range: write the smaller time first")) } else { Ok((from, to)) }
}

/// Parses a share, and returns parts per million: "2%", "0.02".
pub(super) fn share_ppm(text: &str) -> Result<u32, String> {
    probability_ppm(text).map_err(|problem| format!("{text}: {problem}"))
}

/// Parses a whole number.
pub(super) fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.trim().parse().map_err(|_| format!("{text} is no whole number that fits: write it as 3"))
}

/// Parses a number, or a range of numbers: "3", "3..10", "3..".
pub(super) fn span(text: &str) -> Result<Span, String> {
    let wrong = |_| format!("{text} is no number and no range: write it as 3, 3..10 or 3..");
    match text.split_once("..") {
        None => Ok(Span::one(number(text).map_err(wrong)?)),
        Some((first, last)) => {
            let first = number(first).map_err(wrong)?;
            let last = if last.is_empty() { u64::MAX } else { number(last).map_err(wrong)? };
            Ok(Span { first, last })
        }
    }
}

/// Parses a plane of MRC and the number of planes: "3/8".
pub(super) fn plane(text: &str) -> Result<PlaneSpan, String> {
    let parts =
        text.split_once('/').and_then(|(plane, planes)| Some((plane.parse().ok()?, planes.parse().ok()?)));
    let wrong = || format!("{text} is no plane: write the plane and how many there are, as in 3/8");
    parts.map(|(plane, planes)| PlaneSpan { plane, planes }).ok_or_else(wrong)
}

/// Parses numbers of objects: "3", "3..10", "3..", or those of a thread: "2:0..3".
pub(super) fn ordinals(text: &str) -> Result<OrdinalSpan, String> {
    let wrong = || {
        format!("{text} is no number and no range: write it as 3, 3..10, 3.., or of one thread 2:0, 2.1:0..3")
    };
    text.parse().map_err(|_| wrong())
}

/// Parses ordinals counted from 1: "3", "3..10", "3..", "3..10+2".
pub(super) fn steps(text: &str) -> Result<Steps, String> {
    let (range, step) = match text.split_once('+') {
        Some((range, step)) => (range, number(step)?),
        None => (text, 1),
    };
    let Span { first, last } = span(range)?;
    Ok(Steps { first, last, step })
}

/// Parses a truth value.
pub(super) fn truth(text: &str) -> Result<bool, String> {
    match text {
        "true" | "yes" => Ok(true),
        "false" | "no" => Ok(false),
        _ => Err(format!("{text} is neither true nor false")),
    }
}

/// Parses the rate of a lane.
pub(super) fn speed(text: &str) -> Result<Speed, String> {
    Speed::by_word(text)
}

/// Parses a number of lanes.
pub(super) fn width(text: &str) -> Result<Width, String> {
    Width::new(number(text)?)
}

/// Parses an IP address.
pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    text.trim().parse().map_err(|_| format!("{text} is no IP address: write it as 192.0.2.7 or 2001:db8::7"))
}

/// Reports whether a report may leave a value out, because it is the default.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A sentence with the accepted forms.
const FORMS: &str = "write \"rule NAME\", \"completions 100 qp=0\", \"bytes 4096 qp=0\", \
                     \"call ibv_reg_mr 3\", \
                     \"event qp-fatal\" or \"time 2s\"";

/// Parses a trigger as its `Display` writes it.
pub(super) fn trigger(text: &str) -> Result<Trigger, String> {
    let wrong = || format!("{text} is nothing that can be waited for: {FORMS}");
    let (kind, rest) = text.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
    let rest = rest.trim();
    match kind {
        "rule" => Ok(Trigger::Rule(rest.to_owned())),
        "time" => Ok(Trigger::Time { ns: time_ns(rest)? }),
        "event" => {
            let names =
                || AsyncEventType::ALL.iter().map(|event| event_word(*event)).collect::<Vec<_>>().join(", ");
            let event = AsyncEventType::ALL.iter().copied().find(|event| event_word(*event) == rest);
            event.map(Trigger::Event).ok_or_else(|| format!("{rest} is none of {}", names()))
        }
        "call" => {
            let (call, count) = match rest.split_once(char::is_whitespace) {
                Some((call, count)) => (call, count_of(count).ok_or_else(wrong)?),
                None => (rest, 1),
            };
            CallSelector { call: call.to_owned(), ..CallSelector::default() }.check()?;
            Ok(Trigger::Calls { call: call.to_owned(), count })
        }
        "completions" | "bytes" => {
            let mut words = rest.split_whitespace();
            let count = words.next().and_then(count_of).ok_or_else(wrong)?;
            let ordinal = |word: &str| word.strip_prefix("qp=")?.parse().ok().map(|Ordinal(qp)| qp);
            let qp = match words.next().map(ordinal) {
                None => None,
                Some(qp) => Some(qp.ok_or_else(wrong)?),
            };
            if words.next().is_some() {
                return Err(wrong());
            }
            Ok(if kind == "bytes" {
                Trigger::Bytes { count, qp }
            } else {
                Trigger::Completions { count, qp }
            })
        }
        _ => Err(wrong()),
    }
}

fn count_of(word: &str) -> Option<u64> {
    word.trim().parse().ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_triggers_are_inverses() {
        for text in [
            "rule dirty cable",
            "completions 100 qp=3",
            "bytes 100 qp=2.0:3",
            "completions 1",
            "bytes 4096 qp=0",
            "call ibv_reg_mr 3",
            "call ibv_post_* 1",
            "event srq-limit",
            "time 5000000ns",
        ] {
            assert_eq!(trigger(text).unwrap().to_string(), text);
        }
        assert_eq!(trigger("time 5ms"), Ok(Trigger::Time { ns: 5_000_000 }));
        for wrong in
            ["", "rule", "completions", "completions 0", "bytes x", "bytes 1 qp", "bytes 1 qp=0 x", "now 1"]
        {
            let sentence = trigger(wrong).unwrap_err();
            assert!(sentence.contains("nothing that can be waited for: write"), "{wrong}: {sentence}");
        }
        assert!(trigger("event fire").unwrap_err().contains("is none of cq-error,"));
        assert!(trigger("call reg_mr").unwrap_err().contains("is ibv_reg_mr meant?"));
        assert!(trigger("time soon").is_err());
    }
}
