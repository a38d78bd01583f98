//! Performance models: the time that an adapter, its host and its network take, as data with sources.
//!
//! [`PerformanceModel`] is the data, [`sum`] computes from it what a benchmark prints, and [`Costs`] is
//! what a device in a world charges, message by message.
//!
//! A performance model as data, and the numbers that it can have.

use std::collections::BTreeMap;

use pumice_platform::quantity::suggestion;
use serde::Deserialize;

use crate::profile::sentence;

/// A number of a performance model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // KEYS says what each is
pub enum Key {
    Post,
    Poll,
    Register,
    Doorbell,
    InlineBytes,
    Fetch,
    Send,
    Virtual,
    Receive,
    Byte,
    Message,
    AdapterMessage,
    Packet,
    PcieGbit,
    Acknowledge,
    Read,
    ReadGbit,
    Atomic,
    AtomicSerial,
    Contexts,
    ContextMiss,
    RateGbit,
    HeaderBytes,
    Cable,
    Switch,
    Mtu,
}

/// A row of the table of numbers.
#[derive(Debug, Clone, Copy)]
pub struct KeyInfo {
    /// The number.
    pub key: Key,
    /// Its name in a file; the unit is the last part.
    pub name: &'static str,
    /// The meaning of the number.
    pub what: &'static str,
}

macro_rules! keys {
    ($($key:ident $name:literal $what:literal)*) => {
        /// All numbers, in the order of [`Key`].
        pub const KEYS: &[KeyInfo] = &[$(KeyInfo { key: Key::$key, name: $name, what: $what }),*];
    };
}

keys! {
    Post "post_ns" "the processor posts a request (each call of ibv_post_send)"
    Poll "poll_ns" "a poll that finds completions; a poll in vain waits for the next arrival"
    Register "register_ns" "the processor registers memory"
    Doorbell "doorbell_ns" "the doorbell crosses PCIe"
    InlineBytes "inline_bytes" "the longest message that the doorbell carries"
    Fetch "fetch_ns" "the adapter fetches a longer message from memory by PCIe"
    Send "send_ns" "the sender's adapter handles a request"
    Virtual "virtual_ns" "the same in addition, for an adapter that a virtual machine has"
    Receive "receive_ns" "the receiver's adapter handles a packet, and writes it to memory by PCIe"
    Byte "byte_ns" "each byte of a message's first packet, which all stages store and pass on"
    Message "message_ns" "the shortest time between two messages of one queue pair"
    AdapterMessage "adapter_message_ns" "the shortest time between two messages of the adapter"
    Packet "packet_ns" "the shortest time between two packets"
    PcieGbit "pcie_gbit" "rate of the PCIe slot, of which headers take a ninth"
    Acknowledge "acknowledge_ns" "an acknowledgement, apart from the network, up to the completion"
    Read "read_ns" "the response of a READ, apart from the network, up to the completion"
    ReadGbit "read_gbit" "the highest rate of READs of one queue pair"
    Atomic "atomic_ns" "the response of an atomic, apart from the network"
    AtomicSerial "atomic_serial_ns" "the shortest time between two atomics"
    Contexts "contexts" "the number of queue pairs that the adapter keeps at hand"
    ContextMiss "context_miss_ns" "each message in addition, where a queue pair is not at hand"
    RateGbit "rate_gbit" "rate of the link"
    HeaderBytes "header_bytes" "what a packet takes on the link beside its payload"
    Cable "cable_ns" "the cables between two adapters, and their ports"
    Switch "switch_ns" "the switch between two adapters"
    Mtu "mtu_bytes" "payload of a full packet"
}

impl Key {
    /// Returns the number of a name.
    pub fn of(name: &str) -> Option<Key> {
        KEYS.iter().find(|row| row.name == name).map(|row| row.key)
    }

    /// Returns its name in a file.
    pub fn name(self) -> &'static str {
        KEYS.get(self as usize).map_or("", |row| row.name)
    }
}

/// A number, and where it is from.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The number, in the unit that its key names.
    pub value: f64,
    /// The source of the number.
    pub source: String,
    /// True if no source has measured it.
    #[serde(default)]
    pub guess: bool,
}

/// A place of the two ends of a connection, which changes some of the numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The place, in words.
    pub about: String,
    /// Numbers that differ from those of the model.
    pub figures: BTreeMap<Key, Figure>,
}

/// A performance model.
#[derive(Debug, Clone, PartialEq)]
pub struct PerformanceModel {
    /// The name.
    pub name: String,
    /// The modelled hardware, and the places of its two ends.
    pub about: String,
    /// The numbers. One that is absent is 0: it takes no time, or limits nothing.
    pub figures: BTreeMap<Key, Figure>,
    /// Other placements, by name.
    pub placements: BTreeMap<String, Placement>,
}

/// A model that cannot be used, in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ModelError(pub String);

/// A built-in model.
#[derive(Debug, Clone, Copy)]
pub struct BuiltInModel {
    /// The name, for `--model NAME`.
    pub name: &'static str,
    /// The text of its file.
    pub text: &'static str,
}

macro_rules! models {
    ($($name:literal)*) => {
        /// The built-in models.
        pub const BUILT_IN_MODELS: &[BuiltInModel] =
            &[$(BuiltInModel { name: $name, text: include_str!(concat!($name, ".toml")) }),*];
    };
}

models! {
    "connectx-5"
    "connectx-6"
    "connectx-7"
    "efa"
    "rxe"
    "wire"
}

/// Largest number of a model. Sums of such times stay far below what a clock can hold.
const MAX_VALUE: f64 = 1e9;

/// A file of a model; other tables of a profile are none of its concern.
#[derive(Deserialize)]
struct ModelFile {
    model: toml::Table,
}

impl PerformanceModel {
    /// Returns a built-in model.
    pub fn built_in(name: &str) -> Option<PerformanceModel> {
        let found = BUILT_IN_MODELS.iter().find(|model| model.name == name)?;
        PerformanceModel::parse(found.text).ok()
    }

    /// Reads a model from the table `[model]` of a text.
    ///
    /// # Errors
    /// Fails if the text is no TOML, with the line; or with the key that has no meaning, or whose value is
    /// out of bounds.
    pub fn parse(text: &str) -> Result<PerformanceModel, ModelError> {
        let file: ModelFile = toml::from_str(text).map_err(|error| ModelError(sentence(&error, text)))?;
        let mut model = PerformanceModel {
            name: String::new(),
            about: String::new(),
            figures: BTreeMap::new(),
            placements: BTreeMap::new(),
        };
        for (key, value) in file.model {
            match (key.as_str(), value) {
                ("name", toml::Value::String(text)) => model.name = text,
                ("about", toml::Value::String(text)) => model.about = text,
                ("placement", toml::Value::Table(placements)) => {
                    for (name, table) in placements {
                        let placement = placement(&format!("model.placement.{name}"), table)?;
                        model.placements.insert(name, placement);
                    }
                }
                (_, value) => {
                    let (key, figure) = figure("model", &key, value)?;
                    model.figures.insert(key, figure);
                }
            }
        }
        if model.name.is_empty() {
            return Err(ModelError("model.name is missing: give the model a name".to_owned()));
        }
        Ok(model)
    }

    /// Returns the model with its ends at another place.
    ///
    /// # Errors
    /// Fails if the model has no such placement; the sentence lists those that it has.
    pub fn placed(mut self, name: &str) -> Result<PerformanceModel, ModelError> {
        let Some(placement) = self.placements.remove(name) else {
            let names: Vec<&str> = self.placements.keys().map(String::as_str).collect();
            let has = match names.is_empty() {
                true => "it has only one".to_owned(),
                false => format!("it has {}", names.join(", ")),
            };
            return Err(ModelError(format!("the model {} has no placement {name:?}: {has}", self.name)));
        };
        self.name = format!("{}:{name}", self.name);
        self.about = placement.about;
        self.figures.extend(placement.figures);
        Ok(self)
    }

    /// Returns a number; 0 if the model does not have it.
    pub fn value(&self, key: Key) -> f64 {
        self.figures.get(&key).map_or(0.0, |figure| figure.value)
    }
}

fn placement(at: &str, table: toml::Value) -> Result<Placement, ModelError> {
    let toml::Value::Table(table) = table else {
        return Err(ModelError(format!("{at}: give a table with numbers")));
    };
    let mut placement = Placement { about: String::new(), figures: BTreeMap::new() };
    for (key, value) in table {
        match (key.as_str(), value) {
            ("about", toml::Value::String(text)) => placement.about = text,
            (_, value) => {
                let (key, figure) = figure(at, &key, value)?;
                placement.figures.insert(key, figure);
            }
        }
    }
    Ok(placement)
}

fn figure(at: &str, name: &str, value: toml::Value) -> Result<(Key, Figure), ModelError> {
    let Some(key) = Key::of(name) else {
        let meant = suggestion(name, KEYS.iter().map(|row| row.name));
        return Err(ModelError(format!("{at}.{name} is no number of a model{meant}")));
    };
    let figure: Figure = value.try_into().map_err(|error: toml::de::Error| {
        let message = error.message().trim().replace('\n', ", ");
        ModelError(format!("{at}.{name}: {message}; write {{ value = 75, source = \"where from\" }}"))
    })?;
    if !(0.0..=MAX_VALUE).contains(&figure.value) {
        return Err(ModelError(format!("{at}.{name} is {}: give 0 to {MAX_VALUE}", figure.value)));
    }
    if figure.source.trim().is_empty() {
        return Err(ModelError(format!("{at}.{name} has an empty source: say where the number is from")));
    }
    Ok((key, figure))
}

mod arrivals;
pub mod sum;

pub use arrivals::{ArrivalTimes, CostedPacket};

pub use sum::{Cost, Costs};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_row() {
        for (index, row) in KEYS.iter().enumerate() {
            assert_eq!(row.key as usize, index, "{}", row.name);
            assert_eq!(Key::of(row.name), Some(row.key));
        }
        assert_eq!(Key::of("speed"), None);
    }

    fn refused(text: &str) -> String {
        PerformanceModel::parse(text).expect_err("it is wrong").0
    }

    #[test]
    fn every_built_in_model_is_right_at_each_placement() {
        for built_in in BUILT_IN_MODELS {
            let model = PerformanceModel::parse(built_in.text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(model.name, built_in.name);
            assert!(!model.about.is_empty(), "{}", model.name);
            for name in model.placements.keys() {
                let placed = model.clone().placed(name).expect("it has it");
                assert!(!placed.about.is_empty(), "{}", placed.name);
            }
        }
    }

    #[test]
    fn an_error_names_the_key() {
        assert_eq!(refused("[mode]"), "line 1: missing field `model`");
        assert_eq!(refused("[model]"), "model.name is missing: give the model a name");
        let unknown = refused("[model]\nname = \"x\"\npost_n = { value = 1, source = \"s\" }");
        assert_eq!(unknown, "model.post_n is no number of a model; did you mean post_ns?");
        let bare = refused("[model]\nname = \"x\"\npost_ns = 75");
        assert!(bare.starts_with("model.post_ns: ") && bare.contains("source = "), "{bare}");
        let negative = refused("[model]\nname = \"x\"\npost_ns = { value = -1.0, source = \"s\" }");
        assert_eq!(negative, "model.post_ns is -1: give 0 to 1000000000");
        let empty = refused("[model.placement.a]\ncable_ns = { value = 1, source = \" \" }");
        assert!(empty.starts_with("model.placement.a.cable_ns has an empty source"), "{empty}");
    }

    #[test]
    fn a_placement_changes_its_numbers_and_leaves_the_others() {
        let text = "[model]\nname = \"x\"\npost_ns = { value = 5, source = \"s\" }\n\
                    cable_ns = { value = 7, source = \"s\" }\n\
                    [model.placement.near]\nabout = \"near\"\ncable_ns = { value = 0, source = \"s\" }\n";
        let near = PerformanceModel::parse(text).and_then(|model| model.placed("near")).expect("it is there");
        assert_eq!([near.value(Key::Post), near.value(Key::Cable), near.value(Key::Fetch)], [5.0, 0.0, 0.0]);
        assert_eq!(near.name, "x:near");
        let far = PerformanceModel::parse(text).and_then(|model| model.placed("far"));
        assert_eq!(far.expect_err("none").0, "the model x has no placement \"far\": it has near");
    }
}
