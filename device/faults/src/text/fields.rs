//! The fields of one rule, read from each text form of a rule.

use std::collections::BTreeMap;

use pumice_platform::quantity::suggestion;
use toml::{Table, Value};

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
