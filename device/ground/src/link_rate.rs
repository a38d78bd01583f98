//! Rates of links: so much a lane, and so many lanes.

use serde::{Deserialize, Serialize};

/// Rate of a lane; discriminants are `ibv_port_attr::active_speed`.
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

/// The words for speeds, as profiles and fault plans have them.
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
    /// The word for it.
    pub fn word(self) -> &'static str {
        SPEEDS.iter().find(|(_, speed)| *speed == self).map_or("", |(word, _)| word)
    }

    /// The speed of a word.
    ///
    /// # Errors
    /// There is none.
    pub fn by_word(word: &str) -> Result<Speed, String> {
        let words = || SPEEDS.map(|(word, _)| word).join(", ");
        let found = SPEEDS.iter().find(|(known, _)| *known == word).map(|(_, speed)| *speed);
        found.ok_or_else(|| format!("{word} is no speed of a lane: write one of {}", words()))
    }

    /// Rate of a lane in units of 100 Mbit/s, as Linux counts it (`ibv_query_port_speed`).
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

/// Number of lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Width(u8);

/// Lanes, and `ibv_port_attr::active_width`.
const WIDTHS: [(u8, u8); 5] = [(1, 1), (2, 16), (4, 2), (8, 4), (12, 8)];

impl Width {
    /// One lane.
    pub const ONE: Width = Width(1);

    /// So many lanes.
    ///
    /// # Errors
    /// No port has so many.
    pub fn new(lanes: u8) -> Result<Width, String> {
        let is_known = WIDTHS.iter().any(|(known, _)| *known == lanes);
        is_known
            .then_some(Width(lanes))
            .ok_or_else(|| format!("a port has 1, 2, 4, 8 or 12 lanes, not {lanes}"))
    }

    /// The number itself.
    pub const fn lanes(self) -> u8 {
        self.0
    }

    /// `ibv_port_attr::active_width`.
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
