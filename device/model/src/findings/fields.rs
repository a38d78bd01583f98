//! Names and values, in the order in which they are printed.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// The value is not known, or there is none.
    Null,
    /// Yes or no.
    Flag(bool),
    /// A number.
    Number(Number),
    /// Text.
    Text(String),
    /// Several values.
    List(Vec<Value>),
    /// Names and values.
    Fields(Fields),
}

/// A list of names and values, each name once. As a JSON object they keep their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, Value)>);

impl Fields {
    /// Returns the fields that a value has as a JSON object, in that order; none if it is no object.
    pub fn of(value: &impl Serialize) -> Fields {
        // The fields are read from the text, because serde_json's own type for objects sorts them.
        let text = serde_json::to_string(value).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Adds a field at the end.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Fields {
        self.0.push((name.to_owned(), value.into()));
        self
    }

    /// Returns the names and values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Reports whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names and values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Flag(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Value {
        Value::Number(value.into())
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Number(value.into())
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::Text(value)
    }
}

impl From<Fields> for Value {
    fn from(value: Fields) -> Value {
        Value::Fields(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Value {
        Value::List(values.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Run {
        verdict: &'static str,
        call: Option<u64>,
        seconds: f64,
        left: Vec<Left>,
    }

    #[derive(Serialize)]
    struct Left {
        kind: String,
        call: String,
        nth: i32,
    }

    #[test]
    fn fields_keep_their_order_and_their_numbers() {
        let left = Left { kind: "queue pair".to_owned(), call: "ibv_create_qp".to_owned(), nth: -1 };
        let run = Run { verdict: "leak", call: None, seconds: 0.123_456_789_012_345_67, left: vec![left] };
        let fields = Fields::of(&run);
        assert_eq!(serde_json::to_string(&fields).unwrap(), serde_json::to_string(&run).unwrap());
        assert_eq!(fields.iter().map(|(name, _)| name).collect::<Vec<_>>()[..2], ["verdict", "call"]);
        assert!(Fields::of(&7).is_empty());
        // The shortest text of a number is parsed to a number with the same text.
        for bits in (0..2000_u64).map(|step| step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2) {
            let seconds = f64::from_bits(bits);
            let run = Run { verdict: "", call: Some(bits), seconds, left: Vec::new() };
            assert_eq!(
                serde_json::to_string(&Fields::of(&run)).unwrap(),
                serde_json::to_string(&run).unwrap()
            );
        }
    }

    #[test]
    fn fields_are_put_together_one_by_one() {
        let inner = Fields::default().with("z", true).with("a", None::<u64>);
        let fields = Fields::default().with("name", "x").with("list", vec![1_u64, 2]).with("inner", inner);
        let text = r#"{"name":"x","list":[1,2],"inner":{"z":true,"a":null}}"#;
        assert_eq!(serde_json::to_string(&fields).unwrap(), text);
    }
}
