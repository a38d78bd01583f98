//! What a profile says about the port.

use pumice_transport::types::Mtu;
use serde::{Deserialize, Deserializer, de};

use crate::addresses::pkey_table::PkeyTable;

/// The port of a device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PortProfile {
    /// Largest path MTU, also where the link could carry more.
    #[serde(deserialize_with = "mtu")]
    pub max_mtu: Mtu,
    /// Largest message in bytes; only reported.
    pub max_message_bytes: u32,
    /// Rate of a lane; only reported.
    pub speed: Speed,
    /// Lanes; only reported.
    #[serde(deserialize_with = "width")]
    pub width: Width,
    /// Partition keys by index.
    pub pkeys: Vec<u16>,
}

impl Default for PortProfile {
    fn default() -> PortProfile {
        PortProfile {
            max_mtu: Mtu::Mtu4096,
            max_message_bytes: 1 << 31,
            speed: Speed::Sdr,
            width: Width(1),
            pkeys: vec![PkeyTable::DEFAULT],
        }
    }
}

/// Rate of a lane; discriminants are `ibv_port_attr::active_speed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
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

impl Speed {
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Width(u8);

/// Lanes, and `ibv_port_attr::active_width`.
const WIDTHS: [(u8, u8); 5] = [(1, 1), (2, 16), (4, 2), (8, 4), (12, 8)];

impl Width {
    /// The number itself.
    pub const fn lanes(self) -> u8 {
        self.0
    }

    /// `ibv_port_attr::active_width`.
    pub fn verbs_number(self) -> u8 {
        WIDTHS.iter().find(|(lanes, _)| *lanes == self.0).map_or(1, |(_, number)| *number)
    }
}

pub(super) fn width<'de, D: Deserializer<'de>>(input: D) -> Result<Width, D::Error> {
    let lanes = u8::deserialize(input)?;
    if WIDTHS.iter().any(|(known, _)| *known == lanes) {
        return Ok(Width(lanes));
    }
    Err(de::Error::custom(format!("a port has 1, 2, 4, 8 or 12 lanes, not {lanes}")))
}

pub(super) fn mtu<'de, D: Deserializer<'de>>(input: D) -> Result<Mtu, D::Error> {
    let bytes = u32::deserialize(input)?;
    Mtu::from_bytes(bytes as usize)
        .ok_or_else(|| de::Error::custom(format!("a path MTU is 256, 512, 1024, 2048 or 4096, not {bytes}")))
}
