//! The content of a profile.

use crate::shuffle::Placement;
use pumice_platform::limits::Limits;
use serde::Deserialize;

use super::failures::{Failures, OwnVendorErrs, Provider};
use super::{
    AdaptiveTimer, Capabilities, CongestionProfile, DevicePortProfile, DeviceProfile, DirectCalls,
    EceProfile, NodeType, PortProfile, QpnReuse, QueuePairKinds, Refusals,
};
use crate::settings::LinkSettings;

/// The atomicity of atomics; discriminants are those of `ibv_atomic_cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u32)]
pub enum Atomics {
    /// The device reports none. (Atomics work nevertheless.)
    None = 0,
    /// Atomics are atomic among the queue pairs of the device.
    Hca = 1,
}

/// A profile: the description of a device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// The IEEE OUI of the vendor, 24 bits.
    pub vendor_id: u32,
    /// The vendor's number for the device.
    pub part_id: u32,
    /// The hardware version.
    pub hw_ver: u32,
    /// The firmware version; at most 63 bytes.
    pub fw_ver: String,
    /// The vendor's name for the board; at most 63 bytes.
    pub board_id: String,
    /// The node type.
    pub node: NodeType,
    /// The name of the driver that sysfs shows; empty: none.
    pub driver: String,
    /// The availability of the vendor's calls.
    pub dv: DirectCalls,
    /// Number of ports of the bond that the device imitates; 0: it imitates none.
    pub lag_ports: u8,
    /// The kinds of queue pairs that programs may create.
    pub queue_pairs: QueuePairKinds,
    /// The calls that are refused with EOPNOTSUPP.
    pub refuses: Refusals,
    /// The flags of `ibv_device_attr::device_cap_flags`.
    pub capabilities: Capabilities,
    /// The value of `ibv_device_attr::atomic_cap`.
    pub atomics: Atomics,
    /// The largest memory region in bytes; only reported.
    pub max_mr_size: u64,
    /// A bit for each page size; only reported.
    pub page_size_cap: u64,
    /// Exponent of the time from a packet to its acknowledgement, 0…31; only reported.
    pub ack_delay: u8,
    /// True if arming a completion queue makes an event at once for completions that came after the
    /// application last found the queue empty. The manual page says that it does not; adapters that compare
    /// with what was polled do, and UCX needs it when it sleeps.
    pub fires_late: bool,
    /// True if shared receive queues match tags (`IBV_SRQT_TM`).
    pub tag_matching: bool,
    /// True if programs limit the rate of raw packets.
    pub packet_pacing: bool,
    /// True if completions of a queue pair that is destroyed or reset stay in its completion queues, as
    /// rdma_rxe leaves them.
    pub completions_outlive_qp: bool,
    /// The time after which the number of a destroyed queue pair is reused.
    pub qpn_reuse: QpnReuse,
    /// The order in which a shuffled schedule may store the payload of a message.
    pub placement: Placement,
    /// The provider library whose numbers failed posts and completions have.
    pub errors: Provider,
    /// The `vendor_err` of completions, where it differs from that of the provider.
    pub vendor_err: OwnVendorErrs,
    /// The connection options that two ends agree on (ECE).
    pub ece: EceProfile,
    /// The adaptive timeout of requesters, if the attribute `timeout` does not decide.
    pub adaptive_timer: AdaptiveTimer,
    /// The congestion control.
    pub congestion: CongestionProfile,
    /// The port of the device.
    pub port: PortProfile,
    /// The link settings; none by default.
    pub link: LinkSettings,
    /// The sizes of tables and queues.
    pub limits: Limits,
    /// The devices, in order, where there are several, each with the values that differ.
    #[serde(rename = "device")]
    pub devices: Vec<DeviceProfile>,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            // The number belongs to no vendor: programs that know devices by vendor and part do not know this
            // one.
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
            tag_matching: true,
            packet_pacing: true,
            completions_outlive_qp: false,
            qpn_reuse: QpnReuse::Late,
            placement: Placement::Any,
            errors: Provider::default(),
            vendor_err: OwnVendorErrs::default(),
            ece: EceProfile::default(),
            adaptive_timer: AdaptiveTimer::default(),
            congestion: CongestionProfile::default(),
            port: PortProfile::default(),
            link: LinkSettings::default(),
            limits: Limits::default(),
            devices: Vec::new(),
        }
    }
}

impl Profile {
    /// Returns the `vendor_err` numbers of failures.
    pub fn failures(&self) -> Failures {
        Failures::new(self.errors, self.vendor_err.clone())
    }

    /// Returns the profile of one of its devices: the common values, replaced by those of the device and its
    /// first port.
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

    /// Returns the ports of one of its devices, from the second on.
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
