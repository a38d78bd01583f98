//! Reads requirements, and refuses what is none with the nearest name.

use std::net::IpAddr;

use pumice_ground::similar::suggestion;

use super::quantity::{OPERATIONS, QUANTITIES, Quantity, STATISTICS};

/// The longest requirement, in bytes.
const MOST_BYTES: usize = 200;

/// A requirement on a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Requirement {
    /// As it was written.
    pub text: String,
    /// What is measured.
    pub quantity: Quantity,
    /// How it is compared.
    pub comparison: Comparison,
    /// With what, in the unit of the kind: a number, bytes, ns or bits in a second.
    pub value: f64,
    /// Of what part of the run.
    pub scope: Scope,
}

/// Why a text is no requirement; the sentence has the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no requirement: {why}")]
pub struct RequirementError {
    text: String,
    why: String,
}

/// How a quantity is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
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

/// The part of a run that is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Traffic with this address only.
    pub peer: Option<IpAddr>,
    /// That of devices of this name only.
    pub device: Option<String>,
}

/// Signs, the longer ones first.
const SIGNS: [(&str, Comparison); 7] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("==", Comparison::Equal),
    ("!=", Comparison::Unequal),
    ("<", Comparison::Below),
    (">", Comparison::Above),
    ("=", Comparison::Equal),
];

impl Comparison {
    /// Whether a value compares so with a limit.
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Comparison::Below => value < limit,
            Comparison::AtMost => value <= limit,
            Comparison::Above => value > limit,
            Comparison::AtLeast => value >= limit,
            Comparison::Equal => value == limit,
            Comparison::Unequal => value != limit,
        }
    }

    /// Whether it still holds if the value is larger.
    pub(super) const fn is_kept_by_more(self) -> bool {
        matches!(self, Comparison::Above | Comparison::AtLeast)
    }
}

impl Scope {
    /// In words, to be put behind a value.
    pub(super) fn in_words(&self) -> String {
        match (self.peer, &self.device) {
            (Some(peer), _) => format!(" with {peer}"),
            (None, Some(device)) => format!(" on {device}"),
            (None, None) => String::new(),
        }
    }
}

impl Requirement {
    /// What a text requires.
    ///
    /// # Errors
    /// It requires nothing that is known: a sentence with the nearest name, or the form.
    pub fn parse(text: &str) -> Result<Requirement, RequirementError> {
        parse(text).map_err(|why| RequirementError { text: text.to_owned(), why })
    }
}

fn parse(text: &str) -> Result<Requirement, String> {
    if text.len() > MOST_BYTES || text.chars().any(char::is_control) {
        return Err(format!("it has more than {MOST_BYTES} bytes, or control characters"));
    }
    let trimmed = text.trim();
    let words: Vec<&str> = trimmed.split_whitespace().collect();
    let requires = |quantity, comparison, value, scope| {
        Ok(Requirement { text: trimmed.to_owned(), quantity, comparison, value, scope })
    };
    match words[..] {
        [] => Err("it is empty: write it as \"rdma.bytes > 0\"".to_owned()),
        ["peer", address, "used"] => {
            let scope = Scope { peer: Some(self::address(address)?), device: None };
            requires(Quantity::RdmaBytes, Comparison::Above, 0.0, scope)
        }
        ["device", name, "used"] => {
            let scope = Scope { peer: None, device: Some(name.to_owned()) };
            requires(Quantity::RdmaBytes, Comparison::Above, 0.0, scope)
        }
        ["peer" | "device", ..] => {
            Err("write it as \"peer 10.0.0.2 used\" or \"device pumice0 used\"".to_owned())
        }
        ["no", ref rest @ ..] => {
            let (rest, scope) = scoped(rest)?;
            let [name] = rest else { return Err("write it as \"no retransmission\"".to_owned()) };
            requires(quantity(name)?, Comparison::Equal, 0.0, scope)
        }
        _ => {
            let (rest, scope) = scoped(&words)?;
            let joined = rest.join(" ");
            let at = joined.find(['<', '>', '=', '!']);
            let Some((name, rest)) = at.and_then(|at| joined.split_at_checked(at)) else {
                // A wrong name is what a reader has to know first.
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

/// The scope at the end of some words, and those before it.
fn scoped<'a, 'b>(words: &'a [&'b str]) -> Result<(&'a [&'b str], Scope), String> {
    match words {
        [rest @ .., "with", peer] => Ok((rest, Scope { peer: Some(address(peer)?), device: None })),
        [rest @ .., "on", device] => Ok((rest, Scope { peer: None, device: Some((*device).to_owned()) })),
        _ => Ok((words, Scope::default())),
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
    let known = STATISTICS.iter().find(|(word, _)| *word == statistic);
    let of = OPERATIONS.iter().find(|(word, _)| *word == operation);
    match (known, of) {
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
    let number = pumice_ground::quantity::scaled(text, kind.units());
    number.ok_or_else(|| format!("{text:?} is no value of {quantity}: write {}", kind.example()))
}
