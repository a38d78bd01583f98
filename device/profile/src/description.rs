//! Everything that a profile says.

use pumice_faults::shuffle::Placement;
use pumice_ground::limits::Limits;
use serde::Deserialize;

use super::{
    Capabilities, CongestionProfile, DevicePortProfile, DeviceProfile, DirectCalls, NodeType, PortProfile,
    QueuePairKinds, Refusals,
};
use crate::settings::LinkSettings;

/// Whether atomics are atomic; discriminants are those of `ibv_atomic_cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u32)]
pub enum Atomics {
    /// There are none, says the device. (They work nevertheless.)
    None = 0,
    /// Among the queue pairs of the device.
    Hca = 1,
}

/// What the device is like.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// IEEE OUI of the vendor, 24 bits.
    pub vendor_id: u32,
    /// The vendor's number for the device.
    pub part_id: u32,
    /// Hardware version.
    pub hw_ver: u32,
    /// Firmware version; at most 63 bytes.
    pub fw_ver: String,
    /// The vendor's name for the board; at most 63 bytes.
    pub board_id: String,
    /// What the node is called.
    pub node: NodeType,
    /// Name of the driver that sysfs shows; empty: none.
    pub driver: String,
    /// Whether programs get the vendor's calls.
    pub dv: DirectCalls,
    /// Ports of a bond that the device looks like; 0: it looks like none.
    pub lag_ports: u8,
    /// Kinds of queue pairs that programs may make.
    pub queue_pairs: QueuePairKinds,
    /// Calls that are refused with EOPNOTSUPP.
    pub refuses: Refusals,
    /// Flags of `ibv_device_attr::device_cap_flags`.
    pub capabilities: Capabilities,
    /// `ibv_device_attr::atomic_cap`.
    pub atomics: Atomics,
    /// Largest memory region in bytes; only reported.
    pub max_mr_size: u64,
    /// A bit for each page size; only reported.
    pub page_size_cap: u64,
    /// Exponent of the time from a packet to its acknowledgement, 0…31; only reported.
    pub ack_delay: u8,
    /// Whether arming a completion queue fires at once for completions that came after the application last
    /// found the queue empty. The manual page says that they do not fire; adapters that compare with what was
    /// polled do, and UCX needs it when it sleeps.
    pub fires_late: bool,
    /// In which order a shuffled schedule may store the payload of a message.
    pub placement: Placement,
    /// Congestion control.
    pub congestion: CongestionProfile,
    /// The port.
    pub port: PortProfile,
    /// What the link does to packets; nothing by default.
    pub link: LinkSettings,
    /// Sizes of tables and queues.
    pub limits: Limits,
    /// The devices, in order, where there are several, and what each has of its own.
    #[serde(rename = "device")]
    pub devices: Vec<DeviceProfile>,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            // No vendor has it: programs that know devices by vendor and part do not know this one.
            vendor_id: 0xff_ffff,
            part_id: 0,
            hw_ver: 0,
            fw_ver: env!("CARGO_PKG_VERSION").to_owned(),
            board_id: "pumice".to_owned(),
            node: NodeType::default(),
            driver: String::new(),
            dv: DirectCalls::default(),
            lag_ports: 0,
            queue_pairs: QueuePairKinds::default(),
            refuses: Refusals::default(),
            capabilities: Capabilities::default(),
            atomics: Atomics::Hca,
            max_mr_size: u64::MAX,
            page_size_cap: 0xffff_f000,
            ack_delay: 15,
            fires_late: true,
            placement: Placement::Any,
            congestion: CongestionProfile::default(),
            port: PortProfile::default(),
            link: LinkSettings::default(),
            limits: Limits::default(),
            devices: Vec::new(),
        }
    }
}

impl Profile {
    /// The profile of one of its devices: that of all, with what the device and its first port have of their
    /// own.
    pub(crate) fn with(&self, own: &DeviceProfile) -> Profile {
        let mut of_device = Profile { devices: Vec::new(), ..self.clone() };
        of_device.vendor_id = own.vendor_id.unwrap_or(of_device.vendor_id);
        of_device.part_id = own.part_id.unwrap_or(of_device.part_id);
        of_device.board_id = own.board_id.clone().unwrap_or(of_device.board_id);
        of_device.port.speed = own.speed.unwrap_or(of_device.port.speed);
        of_device.port.width = own.width.unwrap_or(of_device.port.width);
        of_device.port.max_mtu = own.max_mtu.unwrap_or(of_device.port.max_mtu);
        of_device.congestion = own.congestion.clone().unwrap_or(of_device.congestion);
        of_device.port.pkeys = own.pkeys.clone().unwrap_or(of_device.port.pkeys);
        of_device.link = own.link.or(&of_device.link);
        of_device.port = of_device.port_with(own.ports.first());
        of_device
    }

    /// The ports of one of its devices, from the second on.
    pub(super) fn more_ports(&self, own: &DeviceProfile) -> Vec<PortProfile> {
        let of_device = self.with(&DeviceProfile { ports: Vec::new(), ..own.clone() });
        own.ports.iter().skip(1).map(|port| of_device.port_with(Some(port))).collect()
    }

    fn port_with(&self, own: Option<&DevicePortProfile>) -> PortProfile {
        let Some(own) = own else { return self.port.clone() };
        PortProfile {
            max_mtu: own.max_mtu.unwrap_or(self.port.max_mtu),
            max_message_bytes: self.port.max_message_bytes,
            speed: own.speed.unwrap_or(self.port.speed),
            width: own.width.unwrap_or(self.port.width),
            first_gid_index: self.port.first_gid_index,
            max_gids: self.port.max_gids,
            link_layer: self.port.link_layer,
            pkeys: own.pkeys.clone().unwrap_or_else(|| self.port.pkeys.clone()),
        }
    }
}
