//! Numbers of objects in reports: a number, or text where it names a thread.

use std::fmt;

use pumice_ground::ordinal::{NoOrdinal, Ordinal};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The ordinal of an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OrdinalField(pub(super) u32);

/// As it stands in a line.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u32),
    Text(String),
}

impl Serialize for OrdinalField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match Ordinal(self.0).parts() {
            (None, number) => serializer.serialize_u32(number),
            (Some(_), _) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for OrdinalField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OrdinalField, D::Error> {
        let found = match Written::deserialize(deserializer)? {
            Written::Number(number) => number.to_string().parse(),
            Written::Text(text) => text.parse(),
        };
        found.map(|Ordinal(number)| OrdinalField(number)).map_err(|NoOrdinal| D::Error::custom("no ordinal"))
    }
}

impl fmt::Display for OrdinalField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ordinal(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_one_and_what_names_a_thread_is_text() {
        for (written, shown) in [("3", "3"), ("\"2.0:1\"", "2.0:1")] {
            let field: OrdinalField = serde_json::from_str(written).expect(written);
            assert_eq!(
                (serde_json::to_string(&field).ok().as_deref(), field.to_string()),
                (Some(written), shown.to_owned())
            );
        }
        for wrong in ["-1", "4294967295", "\"\"", "\"x:1\"", "null"] {
            assert!(serde_json::from_str::<OrdinalField>(wrong).is_err(), "{wrong}");
        }
    }
}
