//! Parses requirements, and rejects a wrong one with the nearest name.

use std::net::IpAddr;

use pumice_platform::quantity::suggestion;

use super::quantity::{DELIVERY, OPERATIONS, QUANTITIES, Quantity, STATISTICS};

/// Maximum length of a requirement, in bytes.
const MAX_BYTES: usize = 200;

/// A requirement on a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Requirement {
    /// Text of the requirement, as it was written.
    pub text: String,
    /// Quantity that is measured.
    pub quantity: Quantity,
    /// Comparison of the quantity with the value.
    pub comparison: RequirementComparison,
    /// Value that the quantity is compared with, in the base unit of its kind: a number, bytes, ns or bits
    /// per second.
    pub value: f64,
    /// Part of the run that is measured.
    pub scope: RequirementScope,
}

/// The reason why a text is no requirement; the sentence includes the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no requirement: {why}")]
pub struct RequirementError {
    text: String,
    why: String,
}

/// A comparison of a quantity with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequirementComparison {
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
    /// `==`
    Equal,
    /// `!=`
    Unequal,
}

/// The part of a run that a requirement is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequirementScope {
    /// Address whose traffic counts; `None` for all traffic.
    pub peer: Option<IpAddr>,
    /// Name of the devices that count; `None` for all devices.
    pub device: Option<String>,
}

/// Comparison signs, the longer ones first.
const SIGNS: [(&str, RequirementComparison); 7] = [
    ("<=", RequirementComparison::AtMost),
    (">=", RequirementComparison::AtLeast),
    ("==", RequirementComparison::Equal),
    ("!=", RequirementComparison::Unequal),
    ("<", RequirementComparison::Below),
    (">", RequirementComparison::Above),
    ("=", RequirementComparison::Equal),
];

impl RequirementComparison {
    /// Reports whether the comparison of a value with a limit holds.
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            RequirementComparison::Below => value < limit,
            RequirementComparison::AtMost => value <= limit,
            RequirementComparison::Above => value > limit,
            RequirementComparison::AtLeast => value >= limit,
            RequirementComparison::Equal => value == limit,
            RequirementComparison::Unequal => value != limit,
        }
    }

    /// Reports whether a comparison that holds also holds for every larger value.
    pub(super) const fn holds_for_larger(self) -> bool {
        matches!(self, RequirementComparison::Above | RequirementComparison::AtLeast)
    }
}

impl RequirementScope {
    /// Returns the scope in words, to follow a value.
    pub(super) fn in_words(&self) -> String {
        match (self.peer, &self.device) {
            (Some(peer), _) => format!(" with {peer}"),
            (None, Some(device)) => format!(" on {device}"),
            (None, None) => String::new(),
        }
    }
}

impl Requirement {
    /// Parses a requirement.
    ///
    /// # Errors
    /// The text is no known requirement; the sentence gives the nearest name, or the form.
    pub fn parse(text: &str) -> Result<Requirement, RequirementError> {
        parse(text).map_err(|why| RequirementError { text: text.to_owned(), why })
    }
}

fn parse(text: &str) -> Result<Requirement, String> {
    if text.len() > MAX_BYTES || text.chars().any(char::is_control) {
        return Err(format!("it has more than {MAX_BYTES} bytes, or control characters"));
    }
    let trimmed = text.trim();
    let words: Vec<&str> = trimmed.split_whitespace().collect();
    let requires = |quantity, comparison, value, scope| {
        Ok(Requirement { text: trimmed.to_owned(), quantity, comparison, value, scope })
    };
    match words[..] {
        [] => Err("it is empty: write it as \"rdma.bytes > 0\"".to_owned()),
        ["peer", address, "used"] => {
            let scope = RequirementScope { peer: Some(self::address(address)?), device: None };
            requires(Quantity::RdmaBytes, RequirementComparison::Above, 0.0, scope)
        }
        ["device", name, "used"] => {
            let scope = RequirementScope { peer: None, device: Some(name.to_owned()) };
            requires(Quantity::RdmaBytes, RequirementComparison::Above, 0.0, scope)
        }
        ["peer" | "device", ..] => {
            Err("write it as \"peer 10.0.0.2 used\" or \"device pumice0 used\"".to_owned())
        }
        ["no", ref rest @ ..] => {
            let (rest, scope) = scoped(rest)?;
            let [name] = rest else { return Err("write it as \"no retransmission\"".to_owned()) };
            requires(quantity(name)?, RequirementComparison::Equal, 0.0, scope)
        }
        _ => {
            let (rest, scope) = scoped(&words)?;
            let joined = rest.join(" ");
            let at = joined.find(['<', '>', '=', '!']);
            let Some((name, rest)) = at.and_then(|at| joined.split_at_checked(at)) else {
                // A wrong name is reported before the missing comparison.
                quantity(&joined)?;
                return Err(format!("it compares {joined} with nothing: write it as \"{joined} > 0\""));
            };
            let sign = SIGNS.into_iter().find(|(sign, _)| rest.starts_with(sign));
            let Some((sign, comparison)) = sign else {
                return Err("the comparison is none of <, <=, >, >=, == and !=".to_owned());
            };
            let quantity = quantity(name.trim())?;
            let value = value(quantity, rest.get(sign.len()..).unwrap_or_default().trim())?;
            requires(quantity, comparison, value, scope)
        }
    }
}

/// Splits the scope off the end of some words, and returns the words before it.
fn scoped<'a, 'b>(words: &'a [&'b str]) -> Result<(&'a [&'b str], RequirementScope), String> {
    match words {
        [rest @ .., "with", peer] => {
            Ok((rest, RequirementScope { peer: Some(address(peer)?), device: None }))
        }
        [rest @ .., "on", device] => {
            Ok((rest, RequirementScope { peer: None, device: Some((*device).to_owned()) }))
        }
        _ => Ok((words, RequirementScope::default())),
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text} is no address: write it as 10.0.0.2 or fd00::2"))
}

fn quantity(name: &str) -> Result<Quantity, String> {
    let known = QUANTITIES.iter().find(|info| info.name == name || info.aliases.contains(&name));
    if let Some(known) = known {
        return Ok(known.quantity);
    }
    if let Some((statistic, operation)) = name.split_once('(') {
        return latency(statistic.trim(), operation.trim_end().trim_end_matches(')').trim());
    }
    if STATISTICS.iter().any(|(word, _)| *word == name) {
        return Err(format!("{name} of what? Write it as \"{name}(send)\""));
    }
    let names =
        QUANTITIES.iter().flat_map(|info| std::iter::once(info.name).chain(info.aliases.iter().copied()));
    let near = suggestion(name, names);
    let all = QUANTITIES.iter().map(|info| info.name).collect::<Vec<_>>().join(", ");
    Err(format!("there is no quantity {name}{near} Known are: {all}, and p99(send) and the like").replacen(
        &format!("{name} Known"),
        &format!("{name}. Known"),
        1,
    ))
}

fn latency(statistic: &str, operation: &str) -> Result<Quantity, String> {
    let (is_delivery, operation) = match operation.strip_prefix(DELIVERY) {
        Some(operation) => (true, operation.trim_start().to_ascii_lowercase()),
        None => (false, operation.to_owned()),
    };
    let operation = operation.as_str();
    let known = STATISTICS.iter().find(|(word, _)| *word == statistic);
    let of = OPERATIONS.iter().find(|(word, _)| *word == operation);
    match (known, of) {
        (Some((_, statistic)), Some((_, operation))) if is_delivery => {
            Ok(Quantity::Delivery(*statistic, *operation))
        }
        (Some((_, statistic)), Some((_, operation))) => Ok(Quantity::Latency(*statistic, *operation)),
        (None, _) => {
            let words = STATISTICS.map(|(word, _)| word);
            let near = suggestion(statistic, words);
            Err(format!("{statistic} is no statistic: write one of {}{near}", words.join(", ")))
        }
        (_, None) => {
            let words = OPERATIONS.map(|(word, _)| word);
            let near = suggestion(operation, words);
            Err(format!("{operation} is no operation: write one of {}{near}", words.join(", ")))
        }
    }
}

fn value(quantity: Quantity, text: &str) -> Result<f64, String> {
    let kind = quantity.kind();
    let number = pumice_platform::quantity::scaled(text, kind.units());
    number.ok_or_else(|| format!("{text:?} is no value of {quantity}: write {}", kind.example()))
}
