//! The parts of a profile about the port, about one of several devices, and about congestion control.

use std::net::IpAddr;

use pumice_transport::qp::{Congestion, CongestionAlgorithm, DcqcnParameters, NotificationParameters};
use pumice_transport::types::Mtu;
use serde::{Deserialize, Deserializer, de};

use super::LinkLayer;
use crate::addresses::PkeyTable;
use crate::addresses::gid_table::GidTable;
use crate::settings::LinkSettings;

pub use pumice_platform::link_settings::{Speed, Width};

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

/// The algorithm by which a sender slows down (`congestion.algorithm`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// The window shrinks at a CNP.
    #[default]
    Window,
    /// The rate falls at a CNP: DCQCN.
    Dcqcn,
}

/// The source of parameters that a profile leaves out (`congestion.preset`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// The documented defaults of ConnectX-4 and later.
    #[default]
    Connectx,
    /// The values of the paper on DCQCN.
    Paper,
}

/// The least time between CNPs on ConnectX, in µs.
const CONNECTX_CNP_INTERVAL_US: u32 = 4;

/// The congestion control of a device (`[congestion]`). A parameter that is left out has the value of the
/// preset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)] // The parameters are those of `DcqcnParameters`, which says what they are.
pub struct CongestionProfile {
    pub algorithm: Algorithm,
    pub preset: Preset,
    /// The line rate in Mbit/s; by default that of `port.speed` and `port.width`.
    pub line_rate: Option<u32>,
    pub rpg_time_reset: Option<u32>,
    pub rpg_byte_reset: Option<u32>,
    pub rpg_threshold: Option<u32>,
    pub rpg_max_rate: Option<u32>,
    pub rpg_ai_rate: Option<u32>,
    pub rpg_hai_rate: Option<u32>,
    pub rpg_gd: Option<u8>,
    pub rpg_min_dec_fac: Option<u8>,
    pub rpg_min_rate: Option<u32>,
    pub rate_to_set_on_first_cnp: Option<u32>,
    pub dce_tcp_g: Option<u16>,
    pub dce_tcp_rtt: Option<u32>,
    pub rate_reduce_monitor_period: Option<u32>,
    pub initial_alpha_value: Option<u16>,
    pub clamp_tgt_rate: Option<bool>,
    pub clamp_tgt_rate_after_time_inc: Option<bool>,
    pub max_burst_bytes: Option<u32>,
    /// The least time between CNPs in µs; by default 50, and 4 with DCQCN as on ConnectX.
    pub min_time_between_cnps: Option<u32>,
    pub cnp_dscp: Option<u8>,
}

impl CongestionProfile {
    /// Returns the congestion control of the queue pairs of a device with this port.
    pub fn of_port(&self, port: &PortProfile) -> Congestion {
        let notification = self.notification();
        match self.algorithm {
            Algorithm::Window => Congestion { algorithm: CongestionAlgorithm::Window, notification },
            Algorithm::Dcqcn => Congestion::dcqcn(self.parameters(port), notification),
        }
    }

    fn notification(&self) -> NotificationParameters {
        let plain = NotificationParameters::default();
        let interval = match (self.algorithm, self.preset) {
            (Algorithm::Dcqcn, Preset::Connectx) => CONNECTX_CNP_INTERVAL_US,
            _ => plain.min_time_between_cnps,
        };
        NotificationParameters {
            min_time_between_cnps: self.min_time_between_cnps.unwrap_or(interval),
            cnp_dscp: self.cnp_dscp.unwrap_or(plain.cnp_dscp),
        }
    }

    fn parameters(&self, port: &PortProfile) -> DcqcnParameters {
        let preset = match self.preset {
            Preset::Connectx => DcqcnParameters::CONNECTX,
            Preset::Paper => DcqcnParameters::PAPER,
        };
        let port_rate = u32::from(port.speed.lane_rate()) * 100 * u32::from(port.width.lanes());
        DcqcnParameters {
            line_rate: self.line_rate.unwrap_or(port_rate),
            rpg_time_reset: self.rpg_time_reset.unwrap_or(preset.rpg_time_reset),
            rpg_byte_reset: self.rpg_byte_reset.unwrap_or(preset.rpg_byte_reset),
            rpg_threshold: self.rpg_threshold.unwrap_or(preset.rpg_threshold),
            rpg_max_rate: self.rpg_max_rate.unwrap_or(preset.rpg_max_rate),
            rpg_ai_rate: self.rpg_ai_rate.unwrap_or(preset.rpg_ai_rate),
            rpg_hai_rate: self.rpg_hai_rate.unwrap_or(preset.rpg_hai_rate),
            rpg_gd: self.rpg_gd.unwrap_or(preset.rpg_gd),
            rpg_min_dec_fac: self.rpg_min_dec_fac.unwrap_or(preset.rpg_min_dec_fac),
            rpg_min_rate: self.rpg_min_rate.unwrap_or(preset.rpg_min_rate),
            rate_to_set_on_first_cnp: self
                .rate_to_set_on_first_cnp
                .unwrap_or(preset.rate_to_set_on_first_cnp),
            dce_tcp_g: self.dce_tcp_g.unwrap_or(preset.dce_tcp_g),
            dce_tcp_rtt: self.dce_tcp_rtt.unwrap_or(preset.dce_tcp_rtt),
            rate_reduce_monitor_period: self
                .rate_reduce_monitor_period
                .unwrap_or(preset.rate_reduce_monitor_period),
            initial_alpha_value: self.initial_alpha_value.unwrap_or(preset.initial_alpha_value),
            clamp_tgt_rate: self.clamp_tgt_rate.unwrap_or(preset.clamp_tgt_rate),
            clamp_tgt_rate_after_time_inc: self
                .clamp_tgt_rate_after_time_inc
                .unwrap_or(preset.clamp_tgt_rate_after_time_inc),
            max_burst_bytes: self.max_burst_bytes.unwrap_or(DcqcnParameters::CONNECTX.max_burst_bytes),
        }
    }
}

/// A device of a profile (`[[device]]`): its address, and the values that differ. A value that is left out is
/// as in the rest of the profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceProfile {
    /// The name. Default: the name of the first device with the next number.
    pub name: Option<String>,
    /// The address. Default: that of its interface, or one that is chosen.
    pub address: Option<IpAddr>,
    /// The network interface whose first address the device has.
    pub interface: Option<String>,
    /// The network interface that sysfs shows for the device. Default: the one that has its address.
    pub netdev: Option<String>,
    /// The node GUID, in groups of two bytes as sysfs writes it.
    #[serde(deserialize_with = "guid")]
    pub node_guid: Option<u64>,
    /// The number of the nearest NUMA node.
    pub numa_node: Option<i32>,
    /// The PCI address, such as "0000:18:00.0".
    pub pci_address: Option<String>,
    /// The vendor ID, as in the profile.
    pub vendor_id: Option<u32>,
    /// The part ID, as in the profile.
    pub part_id: Option<u32>,
    /// The board ID, as in the profile.
    pub board_id: Option<String>,
    /// The rate of a lane, as `port.speed`.
    pub speed: Option<Speed>,
    /// The number of lanes, as `port.width`.
    #[serde(deserialize_with = "some_width")]
    pub width: Option<Width>,
    /// The largest path MTU, as `port.max_mtu`.
    #[serde(deserialize_with = "some_mtu")]
    pub max_mtu: Option<Mtu>,
    /// The partition keys, as `port.pkeys`.
    pub pkeys: Option<Vec<u16>>,
    /// The link settings that differ from `link`.
    pub link: LinkSettings,
    /// The congestion control, which replaces all of `congestion`.
    pub congestion: Option<CongestionProfile>,
    /// The ports, where there are two, or where the one is written like this; otherwise the device has one.
    #[serde(rename = "port")]
    pub ports: Vec<DevicePortProfile>,
}

/// A port of a device of a profile (`[[device.port]]`): its address, and the values that differ. A value that
/// is left out is as in the device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DevicePortProfile {
    /// The address. Default: that of its interface, or one that is chosen.
    pub address: Option<IpAddr>,
    /// The network interface whose first address the port has.
    pub interface: Option<String>,
    /// The rate of a lane, as `port.speed`.
    pub speed: Option<Speed>,
    /// The number of lanes, as `port.width`.
    #[serde(deserialize_with = "some_width")]
    pub width: Option<Width>,
    /// The largest path MTU, as `port.max_mtu`.
    #[serde(deserialize_with = "some_mtu")]
    pub max_mtu: Option<Mtu>,
    /// The partition keys, as `port.pkeys`.
    pub pkeys: Option<Vec<u16>>,
}

impl DeviceProfile {
    /// Returns the number of ports.
    pub(super) fn port_count(&self) -> usize {
        self.ports.len().max(1)
    }

    /// Returns the address or the interface of a port, counted from 0.
    pub(super) fn address_and_interface(&self, index: usize) -> (Option<IpAddr>, Option<&str>) {
        match self.ports.get(index) {
            Some(port) => (port.address, port.interface.as_deref()),
            None => (self.address, self.interface.as_deref()),
        }
    }
}

fn some_width<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Width>, D::Error> {
    width(input).map(Some)
}

fn some_mtu<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Mtu>, D::Error> {
    mtu(input).map(Some)
}

fn guid<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(input)?;
    let groups: Vec<&str> = text.split(':').collect();
    let well_formed = groups.len() == 4 && groups.iter().all(|group| group.len() == 4);
    let guid = u64::from_str_radix(&groups.concat(), 16).ok().filter(|guid| well_formed && *guid != 0);
    guid.map(Some).ok_or_else(|| {
        de::Error::custom(format!("{text:?} is no GUID: write it in four groups, as 0c42:a103:0065:1a90"))
    })
}
