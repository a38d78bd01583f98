//! Ordinals of objects and calls in reports: a number, or text where it names a thread.

use std::fmt;

use pumice_platform::ordinal::{CallOrdinal, InvalidOrdinal, Ordinal};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
