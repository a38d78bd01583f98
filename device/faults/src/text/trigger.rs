//! Parsing of triggers.

use pumice_platform::ordinal::Ordinal;
use pumice_platform::quantity::time_ns;
use pumice_transport::types::AsyncEventType;

use crate::calls::CallSelector;
use pumice_model::fates::trigger::{Trigger, event_word};

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
