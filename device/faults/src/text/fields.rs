//! The fields of one rule, read from each text form of a rule, ordinals of objects and calls, and errors in
//! the text.

use std::collections::BTreeMap;
use std::fmt;

use pumice_platform::ordinal::{CallOrdinal, InvalidOrdinal, Ordinal};
use pumice_platform::quantity::suggestion;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::{Table, Value};

/// The reason why a text is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct TextError {
    /// The line, from 1; `None` if the error is about the whole text.
    pub line: Option<usize>,
    /// The problem, and the remedy.
    pub problem: String,
}

impl std::fmt::Display for TextError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

/// The ordinal of an object, in a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrdinalField(pub u32);

/// The ordinal of a call, in a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NthField(pub u64);

/// The form of an ordinal in a line.
#[derive(Deserialize)]
#[serde(untagged)]
enum OrdinalText {
    Number(u64),
    Text(String),
}

impl OrdinalText {
    /// Returns the ordinal as text.
    fn text(self) -> String {
        match self {
            OrdinalText::Number(number) => number.to_string(),
            OrdinalText::Text(text) => text,
        }
    }
}

/// Returns the error for a line of a report whose ordinal cannot be read.
fn wrong<E: serde::de::Error>(InvalidOrdinal: InvalidOrdinal) -> E {
    E::custom("no ordinal")
}

impl Serialize for OrdinalField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match Ordinal(self.0).parts() {
            (None, number) => serializer.serialize_u32(number),
            (Some(_), _) => serializer.collect_str(self),
        }
    }
}

impl Serialize for NthField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match CallOrdinal(self.0).parts() {
            (None, number) => serializer.serialize_u64(number),
            (Some(_), _) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for OrdinalField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OrdinalField, D::Error> {
        let Ordinal(number) = OrdinalText::deserialize(deserializer)?.text().parse().map_err(wrong)?;
        Ok(OrdinalField(number))
    }
}

impl<'de> Deserialize<'de> for NthField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NthField, D::Error> {
        let CallOrdinal(number) = OrdinalText::deserialize(deserializer)?.text().parse().map_err(wrong)?;
        Ok(NthField(number))
    }
}

impl fmt::Display for OrdinalField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ordinal(self.0).fmt(f)
    }
}

impl fmt::Display for NthField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        CallOrdinal(self.0).fmt(f)
    }
}

/// The field that names the kind of fault.
pub(super) const DO: &str = "do";

/// The fields of a rule that were not read yet.
#[derive(Debug, Default)]
pub(super) struct RuleFields(BTreeMap<String, String>);

impl RuleFields {
    /// Returns the fields of a TOML table.
    pub(super) fn of_table(table: Table) -> Result<RuleFields, String> {
        let mut fields = RuleFields::default();
        for (name, value) in table {
            let value = plain(&value).ok_or_else(|| {
                format!("{name} is a table or a date: write a number, a text, or a list of them")
            })?;
            fields.0.insert(name, value);
        }
        Ok(fields)
    }

    /// Returns the fields of a line: the kind, then `field=value`. A value with spaces is between double
    /// quotes.
    pub(super) fn of_line(line: &str) -> Result<RuleFields, String> {
        let mut fields = RuleFields::default();
        for word in words(line)? {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, value),
                None if fields.0.is_empty() => (DO, word.as_str()),
                None => {
                    return Err(format!("{word} has no value: write field=value, as in qp=0"));
                }
            };
            if fields.0.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(format!("{name} stands there twice: write it once"));
            }
        }
        Ok(fields)
    }

    /// Takes the value of a field, which then counts as read.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// Takes the value of a field, parsed by `read`.
    pub(super) fn take_as<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        self.take(name).map(|value| read(&value).map_err(|problem| format!("{name}: {problem}"))).transpose()
    }

    /// Takes the values of a field that is a list.
    pub(super) fn take_list<T>(
        &mut self,
        name: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let Some(list) = self.take(name) else { return Ok(Vec::new()) };
        list.split(',')
            .map(|value| read(value.trim()).map_err(|problem| format!("{name}: {problem}")))
            .collect()
    }

    /// Returns a field that was not read.
    pub(super) fn left(&self) -> Option<&str> {
        self.0.keys().next().map(String::as_str)
    }
}

/// Returns a sentence that says that a name is none of the known ones.
pub(super) fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let meant = suggestion(name, known.iter().copied());
    format!("{name} is none of {}{meant}", known.join(", "))
}

/// Splits a line into words; double quotes hold words together.
fn words(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if quoted {
        return Err("a double quote has no end: write another one behind the value".to_owned());
    }
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

/// Returns a value as people write it in a line.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(truth) => Some(truth.to_string()),
        Value::Array(values) => {
            let parts: Option<Vec<String>> = values.iter().map(plain).collect();
            parts.map(|parts| parts.join(","))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_one_and_what_names_a_thread_is_text() {
        for (written, shown) in [("3", "3"), ("\"2.0:1\"", "2.0:1")] {
            let object: OrdinalField = serde_json::from_str(written).expect(written);
            let call: NthField = serde_json::from_str(written).expect(written);
            assert_eq!(serde_json::to_string(&object).expect("JSON"), written);
            assert_eq!(serde_json::to_string(&call).expect("JSON"), written);
            assert_eq!((object.to_string(), call.to_string()), (shown.to_owned(), shown.to_owned()));
        }
        for wrong in ["-1", "\"\"", "\"x:1\"", "null"] {
            assert!(serde_json::from_str::<OrdinalField>(wrong).is_err(), "{wrong}");
            assert!(serde_json::from_str::<NthField>(wrong).is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<OrdinalField>("4294967295").is_err());
    }
}
