//! What a rule waits for before it begins.

use std::fmt;
use std::str::FromStr;

/// Something in a process after which a rule begins.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trigger {
    /// The rule of this name has applied.
    Rule(String),
    /// So many work requests have been carried out, whether they make a completion or not.
    Completions {
        /// How many, at least 1.
        count: u64,
        /// On the queue pair with this ordinal; `None`: on all together.
        qp: Option<u32>,
    },
    /// So many bytes were moved by work requests that have been carried out.
    Bytes {
        /// How many, at least 1.
        count: u64,
        /// On the queue pair with this ordinal; `None`: on all together.
        qp: Option<u32>,
    },
}

/// Something that rules may wait for has happened.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Occurrence<'a> {
    /// A rule applied.
    Rule(&'a str),
    /// A work request of the queue pair with this ordinal was carried out.
    WorkRequest { qp: u32, length_bytes: u32 },
}

impl Trigger {
    /// How much has to happen.
    pub(super) const fn amount(&self) -> u64 {
        match self {
            Trigger::Rule(_) => 1,
            Trigger::Completions { count, .. } | Trigger::Bytes { count, .. } => *count,
        }
    }

    /// How much of it an occurrence is.
    pub(super) fn amount_of(&self, occurrence: Occurrence<'_>) -> u64 {
        let is_on = |wanted: Option<u32>, qp: u32| wanted.is_none_or(|wanted| wanted == qp);
        match (self, occurrence) {
            (Trigger::Rule(name), Occurrence::Rule(rule)) => u64::from(name == rule),
            (Trigger::Completions { qp: wanted, .. }, Occurrence::WorkRequest { qp, .. }) => {
                u64::from(is_on(*wanted, qp))
            }
            (Trigger::Bytes { qp: wanted, .. }, Occurrence::WorkRequest { qp, length_bytes }) => {
                if is_on(*wanted, qp) { length_bytes.into() } else { 0 }
            }
            (_, _) => 0,
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |f: &mut fmt::Formatter<'_>, what: &str, count: u64, qp: Option<u32>| match qp {
            Some(qp) => write!(f, "{what} {count} qp={qp}"),
            None => write!(f, "{what} {count}"),
        };
        match self {
            Trigger::Rule(name) => write!(f, "rule {name}"),
            Trigger::Completions { count, qp } => counted(f, "completions", *count, *qp),
            Trigger::Bytes { count, qp } => counted(f, "bytes", *count, *qp),
        }
    }
}

/// What can be written.
const FORMS: &str = "write \"rule NAME\", \"completions 100 qp=0\" or \"bytes 4096 qp=0\"";

impl FromStr for Trigger {
    type Err = String;

    /// The trigger that a text says, as [`Trigger`]'s `Display` writes it.
    fn from_str(text: &str) -> Result<Trigger, String> {
        let wrong = || format!("{text} is nothing that can be waited for: {FORMS}");
        let (kind, rest) = text.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
        let rest = rest.trim();
        match kind {
            "rule" => Ok(Trigger::Rule(rest.to_owned())),
            "completions" | "bytes" => {
                let mut words = rest.split_whitespace();
                let count = words.next().and_then(|word| word.parse().ok()).filter(|count| *count > 0);
                let count = count.ok_or_else(wrong)?;
                let qp = words.next().map(|word| word.strip_prefix("qp=").and_then(|qp| qp.parse().ok()));
                let qp = match qp {
                    None => None,
                    Some(qp) => Some(qp.ok_or_else(wrong)?),
                };
                if words.next().is_some() {
                    return Err(wrong());
                }
                Ok(match kind {
                    "bytes" => Trigger::Bytes { count, qp },
                    _ => Trigger::Completions { count, qp },
                })
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_triggers_are_inverses() {
        for text in
            ["rule dirty cable", "completions 100 qp=3", "completions 1", "bytes 4096 qp=0", "bytes 7"]
        {
            assert_eq!(text.parse::<Trigger>().unwrap().to_string(), text);
        }
        for wrong in
            ["", "rule", "completions", "completions 0", "bytes x", "bytes 1 qp", "bytes 1 qp=0 x", "now 1"]
        {
            let sentence = wrong.parse::<Trigger>().unwrap_err();
            assert!(sentence.contains("nothing that can be waited for: write"), "{wrong}: {sentence}");
        }
    }
}
