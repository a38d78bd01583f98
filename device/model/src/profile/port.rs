//! The part of a profile about the port.

use pumice_transport::types::Mtu;
use serde::{Deserialize, Deserializer, de};

use super::LinkLayer;
use crate::addresses::gid_table::GidTable;
use crate::addresses::pkey_table::PkeyTable;
pub use pumice_platform::link_rate::{Speed, Width};

/// The port of a device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PortProfile {
    /// The largest path MTU, also where the link could carry more.
    #[serde(deserialize_with = "mtu")]
    pub max_mtu: Mtu,
    /// The largest message in bytes; only reported.
    pub max_message_bytes: u32,
    /// The rate of a lane; only reported.
    pub speed: Speed,
    /// The number of lanes; only reported.
    #[serde(deserialize_with = "width")]
    pub width: Width,
    /// The index of the first address in the GID table.
    pub first_gid_index: u32,
    /// The number of entries of the GID table.
    pub max_gids: u32,
    /// The link layer.
    pub link_layer: LinkLayer,
    /// The partition keys by index.
    pub pkeys: Vec<u16>,
}

impl Default for PortProfile {
    fn default() -> PortProfile {
        PortProfile {
            max_mtu: Mtu::Mtu4096,
            max_message_bytes: 1 << 31,
            speed: Speed::Sdr,
            width: Width::ONE,
            first_gid_index: 0,
            max_gids: GidTable::LEN,
            link_layer: LinkLayer::default(),
            pkeys: vec![PkeyTable::DEFAULT],
        }
    }
}

pub(super) fn width<'de, D: Deserializer<'de>>(input: D) -> Result<Width, D::Error> {
    let lanes = u8::deserialize(input)?;
    Width::new(lanes).map_err(de::Error::custom)
}

pub(super) fn mtu<'de, D: Deserializer<'de>>(input: D) -> Result<Mtu, D::Error> {
    let bytes = u32::deserialize(input)?;
    Mtu::from_bytes(bytes as usize)
        .ok_or_else(|| de::Error::custom(format!("a path MTU is 256, 512, 1024, 2048 or 4096, not {bytes}")))
}
