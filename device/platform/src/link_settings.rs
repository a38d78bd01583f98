//! The link settings in environment variables, profiles and fault plans: rates, delays, marking of queues.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

use super::quantity::{probability_ppm, rate, size, time_ns};

/// The rule by which a queue marks the packets that join it, by the bytes in front of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EcnMarking {
    /// Every packet is marked when there are more than this many bytes.
    Above(u64),
    /// Packets are marked as by switches for DCQCN (random early detection by the present length): no packet
    /// up to `min_bytes`, all above `max_bytes`, and between the two with a probability that grows from 0 to
    /// `most_ppm`.
    Ramp {
        /// Number of bytes up to which no packet is marked.
        min_bytes: u64,
        /// Number of bytes above which each packet is marked.
        max_bytes: u64,
        /// Probability at `max_bytes`, in parts per million.
        most_ppm: u32,
    },
}

/// The rate of a lane; discriminants are those of `ibv_port_attr::active_speed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u32)]
pub enum Speed {
    /// 2.5 Gbit/s.
    Sdr = 1,
    /// 5 Gbit/s.
    Ddr = 2,
    /// 10 Gbit/s.
    Qdr = 4,
    /// 10.3125 Gbit/s with another encoding.
    Fdr10 = 8,
    /// 14 Gbit/s.
    Fdr = 16,
    /// 25 Gbit/s.
    Edr = 32,
    /// 50 Gbit/s.
    Hdr = 64,
    /// 100 Gbit/s.
    Ndr = 128,
    /// 200 Gbit/s.
    Xdr = 256,
}

/// The names of speeds in profiles and fault plans.
const SPEEDS: [(&str, Speed); 9] = [
    ("sdr", Speed::Sdr),
    ("ddr", Speed::Ddr),
    ("qdr", Speed::Qdr),
    ("fdr10", Speed::Fdr10),
    ("fdr", Speed::Fdr),
    ("edr", Speed::Edr),
    ("hdr", Speed::Hdr),
    ("ndr", Speed::Ndr),
    ("xdr", Speed::Xdr),
];

impl Speed {
    /// Returns the name of the speed.
    pub fn word(self) -> &'static str {
        SPEEDS.iter().find(|(_, speed)| *speed == self).map_or("", |(word, _)| word)
    }

    /// Returns the speed of a name.
    ///
    /// # Errors
    /// No speed has this name.
    pub fn by_word(word: &str) -> Result<Speed, String> {
        let words = || SPEEDS.map(|(word, _)| word).join(", ");
        let found = SPEEDS.iter().find(|(known, _)| *known == word).map(|(_, speed)| *speed);
        found.ok_or_else(|| format!("{word} is no speed of a lane: write one of {}", words()))
    }

    /// Returns the rate of a lane in units of 100 Mbit/s, as Linux counts it (`ibv_query_port_speed`).
    pub const fn lane_rate(self) -> u16 {
        match self {
            Speed::Sdr => 25,
            Speed::Ddr => 50,
            Speed::Qdr | Speed::Fdr10 => 100,
            Speed::Fdr => 140,
            Speed::Edr => 250,
            Speed::Hdr => 500,
            Speed::Ndr => 1000,
            Speed::Xdr => 2000,
        }
    }
}

/// The number of lanes of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Width(u8);

/// The possible numbers of lanes, each with its value of `ibv_port_attr::active_width`.
const WIDTHS: [(u8, u8); 5] = [(1, 1), (2, 16), (4, 2), (8, 4), (12, 8)];

impl Width {
    /// A width of one lane.
    pub const ONE: Width = Width(1);

    /// Returns the width of this many lanes.
    ///
    /// # Errors
    /// No port has this many lanes.
    pub fn new(lanes: u8) -> Result<Width, String> {
        let is_known = WIDTHS.iter().any(|(known, _)| *known == lanes);
        is_known
            .then_some(Width(lanes))
            .ok_or_else(|| format!("a port has 1, 2, 4, 8 or 12 lanes, not {lanes}"))
    }

    /// Returns the number of lanes.
    pub const fn lanes(self) -> u8 {
        self.0
    }

    /// Returns the value of `ibv_port_attr::active_width`.
    pub fn verbs_number(self) -> u8 {
        WIDTHS.iter().find(|(lanes, _)| *lanes == self.0).map_or(1, |(_, number)| *number)
    }
}

/// The longest delay and the longest jitter, in ns.
pub const MAX_DELAY_NS: u64 = 10_000_000_000;
/// The possible lengths of a queue, in bytes: it has room for at least two packets of the longest kind.
pub const QUEUE_BYTES: std::ops::RangeInclusive<u64> = 9 << 10..=64 << 20;
#[doc(hidden)]
pub const WORDS: &str = "rate, delay, jitter, queue and ecn, and the same behind egress. or ingress.";

/// The settings of the two directions of a link, as far as they are given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LinkSettings {
    /// The direction from the device into the network.
    pub egress: DirectionSettings,
    /// The direction from the network to the device.
    pub ingress: DirectionSettings,
}

/// The settings of one direction of a link, as far as they are given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct DirectionSettings {
    /// The rate, in bits per second.
    pub rate_bits_per_second: Option<u64>,
    /// The time from the last bit sent to arrival, in ns.
    pub delay_ns: Option<u64>,
    /// The largest random addition to the delay, in ns.
    pub jitter_ns: Option<u64>,
    /// The room for packets that wait or are being sent, in bytes.
    pub queue_bytes: Option<u64>,
    /// The rule by which packets are marked; only for ingress.
    pub ecn: Option<EcnMarking>,
}

impl LinkSettings {
    /// Parses one line of settings: `rate=10Gbit,delay=5us,ingress.queue=256KiB`.
    ///
    /// # Errors
    /// A sentence that names the part that is wrong.
    pub fn parse(text: &str) -> Result<LinkSettings, String> {
        let mut parts = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (word, value) = part.split_once('=').ok_or_else(|| {
                format!("{part:?} says nothing of a link: write it as rate=10Gbit,delay=5us")
            })?;
            parts.push((word.trim().to_owned(), value.trim().to_owned()));
        }
        LinkSettings::of_parts(parts)
    }

    /// The names of settings without a direction in front.
    pub const WORDS: [&'static str; 5] = ["rate", "delay", "jitter", "queue", "ecn"];

    /// Returns the settings given by names and values. A setting of one direction wins over one of both.
    pub fn of_parts(mut parts: Vec<(String, String)>) -> Result<LinkSettings, String> {
        let mut link = LinkSettings::default();
        parts.sort_by_key(|(word, _)| word.contains('.'));
        for (word, value) in &parts {
            link.set(word, value).map_err(|problem| format!("{word}={value}: {problem}"))?;
        }
        Ok(link)
    }

    #[doc(hidden)]
    pub fn set(&mut self, word: &str, value: &str) -> Result<(), String> {
        match word.split_once('.') {
            Some(("egress", "ecn")) => Err("the adapter's own queue, that of egress, marks nothing: \
                                            write ingress.ecn, or ecn"
                .to_owned()),
            Some(("egress", of_way)) => self.egress.set(of_way, value),
            Some(("ingress", of_way)) => self.ingress.set(of_way, value),
            Some(_) => Err(format!("a link has the words {WORDS}")),
            None if word == "ecn" => self.ingress.set(word, value),
            None => {
                self.egress.set(word, value)?;
                self.ingress.set(word, value)
            }
        }
    }

    /// Returns these settings, completed by those of `other`.
    #[must_use]
    pub fn or(&self, other: &LinkSettings) -> LinkSettings {
        LinkSettings { egress: self.egress.or(&other.egress), ingress: self.ingress.or(&other.ingress) }
    }

    /// Checks that the settings make sense together.
    ///
    /// # Errors
    /// A sentence that names the settings.
    pub fn check(&self) -> Result<(), String> {
        for (name, way) in [("egress", &self.egress), ("ingress", &self.ingress)] {
            if way.rate_bits_per_second.is_none() {
                let alone = [(way.queue_bytes.is_some(), "queue"), (way.ecn.is_some(), "ecn")];
                if let Some((_, word)) = alone.iter().find(|(is_said, _)| *is_said) {
                    return Err(format!(
                        "{name} has {word} and no rate, so no queue comes about: say a \
                         rate, such as rate=10Gbit"
                    ));
                }
            }
            let least_bytes = match way.ecn {
                Some(EcnMarking::Above(bytes)) => bytes,
                Some(EcnMarking::Ramp { min_bytes, .. }) => min_bytes,
                None => continue,
            };
            if let Some(queue_bytes) = way.queue_bytes.filter(|queue_bytes| *queue_bytes <= least_bytes) {
                return Err(format!(
                    "ecn marks above {least_bytes} bytes, and the queue has {queue_bytes}: no packet would \
                     be marked; say a smaller ecn or a longer queue"
                ));
            }
        }
        Ok(())
    }
}

/// Writes the line that [`LinkSettings::parse`] reads.
impl fmt::Display for LinkSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (egress, ingress) = (self.egress.parts(), self.ingress.parts());
        let mut comma = "";
        for ((word, of_egress), (_, of_ingress)) in egress.into_iter().zip(ingress) {
            let said = match (of_egress, of_ingress) {
                (Some(one), Some(other)) if one == other => vec![(word.to_owned(), one)],
                (one, other) => [("egress.", one), ("ingress.", other)]
                    .into_iter()
                    .filter_map(|(way, value)| Some((format!("{way}{word}"), value?)))
                    .collect(),
            };
            for (word, value) in said {
                write!(f, "{comma}{word}={value}")?;
                comma = ",";
            }
        }
        Ok(())
    }
}

impl DirectionSettings {
    /// Returns the names of the settings and their exact values.
    pub fn parts(&self) -> [(&'static str, Option<String>); 5] {
        let ecn = self.ecn.map(|ecn| match ecn {
            EcnMarking::Above(bytes) => bytes.to_string(),
            EcnMarking::Ramp { min_bytes, max_bytes, most_ppm } => {
                format!("{min_bytes}..{max_bytes}@{}.{:04}%", most_ppm / 10_000, most_ppm % 10_000)
            }
        });
        let rate = self.rate_bits_per_second.map(|rate| format!("{}.{:03}Kbit", rate / 1_000, rate % 1_000));
        let rate = rate.map(|text| text.replace(".000Kbit", "Kbit"));
        [
            ("rate", rate),
            ("delay", self.delay_ns.map(|ns| format!("{ns}ns"))),
            ("jitter", self.jitter_ns.map(|ns| format!("{ns}ns"))),
            ("queue", self.queue_bytes.map(|bytes| bytes.to_string())),
            ("ecn", ecn),
        ]
    }

    #[doc(hidden)]
    pub fn set(&mut self, word: &str, value: &str) -> Result<(), String> {
        match word {
            "rate" => self.rate_bits_per_second = Some(rate(value)?),
            "delay" => self.delay_ns = Some(time(value)?),
            "jitter" => self.jitter_ns = Some(time(value)?),
            "queue" => self.queue_bytes = Some(queue(value)?),
            "ecn" => self.ecn = Some(ecn(value)?),
            _ => return Err(format!("a link has the words {WORDS}")),
        }
        Ok(())
    }

    #[doc(hidden)]
    pub fn or(&self, other: &DirectionSettings) -> DirectionSettings {
        DirectionSettings {
            rate_bits_per_second: self.rate_bits_per_second.or(other.rate_bits_per_second),
            delay_ns: self.delay_ns.or(other.delay_ns),
            jitter_ns: self.jitter_ns.or(other.jitter_ns),
            queue_bytes: self.queue_bytes.or(other.queue_bytes),
            ecn: self.ecn.or(other.ecn),
        }
    }
}

#[doc(hidden)]
pub fn time(value: &str) -> Result<u64, String> {
    time_ns(value).and_then(|ns| {
        if ns <= MAX_DELAY_NS { Ok(ns) } else { Err(format!("{value} is too long: write at most 10s")) }
    })
}

#[doc(hidden)]
pub fn queue(value: &str) -> Result<u64, String> {
    size(value)
        .filter(|bytes| QUEUE_BYTES.contains(bytes))
        .ok_or_else(|| format!("{value} is no size from 9KiB to 64MiB: write it as 256KiB"))
}

/// Parses a threshold: `64KiB`, or as switches have it for DCQCN: `20KiB..200KiB@10%`.
pub fn ecn(value: &str) -> Result<EcnMarking, String> {
    let wrong = || {
        format!("{value} is no threshold: write it as 64KiB, or as 20KiB..200KiB@10% for a share that grows")
    };
    let Some((from, rest)) = value.split_once("..") else {
        return size(value).map(EcnMarking::Above).ok_or_else(wrong);
    };
    let (to, share) = rest.split_once('@').ok_or_else(wrong)?;
    let (min_bytes, max_bytes) = (size(from).ok_or_else(wrong)?, size(to).ok_or_else(wrong)?);
    if max_bytes < min_bytes {
        return Err(format!("{value} ends before it begins: write the smaller size first"));
    }
    let most_ppm = probability_ppm(share).map_err(|problem| format!("{share}: {problem}"))?;
    Ok(EcnMarking::Ramp { min_bytes, max_bytes, most_ppm })
}

impl<'de> Deserialize<'de> for LinkSettings {
    /// Reads a table of texts, in which `egress` and `ingress` are such tables.
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<LinkSettings, D::Error> {
        let mut parts = Vec::new();
        let mut take = |word: String, value: &toml::Value| match value.as_str() {
            Some(text) => {
                parts.push((word, text.to_owned()));
                Ok(())
            }
            None => Err(de::Error::custom(format!(
                "{word} of a link is a text with a unit, such as rate = \"10Gbit\" or delay = \"5us\""
            ))),
        };
        for (word, value) in toml::Table::deserialize(input)? {
            let Some(table) = value.as_table() else {
                take(word, &value)?;
                continue;
            };
            for (of_way, value) in table {
                take(format!("{word}.{of_way}"), value)?;
            }
        }
        LinkSettings::of_parts(parts).map_err(|problem| de::Error::custom(format!("link: {problem}")))
    }
}

#[cfg(test)]
#[path = "link_words_tests.rs"]
mod link_settings_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_speeds_are_inverses() {
        for (word, speed) in SPEEDS {
            assert_eq!((Speed::by_word(word), speed.word()), (Ok(speed), word));
        }
        assert!(Speed::by_word("fast").unwrap_err().contains("sdr, ddr"));
        assert!(Width::new(3).unwrap_err().contains("not 3"));
    }
}
