//! Rates of links: the rate of a lane, and the number of lanes.

use serde::{Deserialize, Serialize};

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
