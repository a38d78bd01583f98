//! Profiles: the device's description of itself, and its limits.
//!
//! A profile is a TOML file. It contains only what differs from [`default.toml`](Profile::default), which
//! lists all fields. [`BUILT_IN`] has the profiles that pumice brings.
//!
//! The content of a profile: capabilities, vendor, connection establishment, retransmission.
//!
//! The part of a profile about enhanced connection establishment (ECE): connection options that two ends
//! agree on.

use pumice_platform::limits::Limits;
use pumice_transport::qp::AdaptiveTimeout;
use serde::{Deserialize, Deserializer, de};

use crate::settings::LinkSettings;
use crate::shuffle::Placement;

/// The flags of `ibv_device_attr::device_cap_flags`, by the names of verbs.
const NAMES: [(u32, &str); 19] = [
    (1 << 0, "resize_max_wr"),
    (1 << 1, "bad_pkey_cntr"),
    (1 << 2, "bad_qkey_cntr"),
    (1 << 3, "raw_multi"),
    (1 << 4, "auto_path_mig"),
    (1 << 5, "change_phy_port"),
    (1 << 6, "ud_av_port_enforce"),
    (1 << 7, "curr_qp_state_mod"),
    (1 << 8, "shutdown_port"),
    (1 << 9, "init_type"),
    (1 << 10, "port_active_event"),
    (1 << 11, "sys_image_guid"),
    (RC_RNR_NAK_GEN, "rc_rnr_nak_gen"),
    (SRQ_RESIZE, "srq_resize"),
    (1 << 14, "n_notify_cq"),
    (MEM_WINDOW, "mem_window"),
    (XRC, "xrc"),
    (MEM_MGT_EXTENSIONS, "mem_mgt_extensions"),
    (MEM_WINDOW_TYPE_2B, "mem_window_type_2b"),
];

const RC_RNR_NAK_GEN: u32 = 1 << 12;
const SRQ_RESIZE: u32 = 1 << 13;
const MEM_WINDOW: u32 = 1 << 17;
const XRC: u32 = 1 << 20;
const MEM_MGT_EXTENSIONS: u32 = 1 << 21;
const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;

/// A set of capability flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities(u32);

impl Default for Capabilities {
    /// Returns the capabilities of this device.
    fn default() -> Capabilities {
        Capabilities(RC_RNR_NAK_GEN | SRQ_RESIZE | MEM_WINDOW | XRC | MEM_MGT_EXTENSIONS | MEM_WINDOW_TYPE_2B)
    }
}

impl Capabilities {
    /// Returns the flags as the number of verbs.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Reports whether XRC is among the capabilities.
    pub const fn has_xrc(self) -> bool {
        self.0 & XRC != 0
    }

    /// Reports whether memory windows are among the capabilities.
    pub const fn has_memory_windows(self) -> bool {
        self.0 & MEM_WINDOW != 0
    }
}

impl<'de> Deserialize<'de> for Capabilities {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Capabilities, D::Error> {
        let mut set = 0;
        for name in Vec::<String>::deserialize(input)? {
            let Some((flag, _)) = NAMES.iter().find(|(_, known)| *known == name) else {
                let known = NAMES.map(|(_, known)| known).join(", ");
                return Err(de::Error::custom(format!("no capability is called {name}; there are {known}")));
            };
            set |= flag;
        }
        Ok(Capabilities(set))
    }
}

/// The options of a device (`[ece]`). By default it has none, of no vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EceProfile {
    /// The vendor of the options, as in `ibv_query_ece`.
    pub vendor_id: u32,
    /// The options that the device has, a bit each.
    pub options: u32,
}

impl Default for EceProfile {
    fn default() -> EceProfile {
        // The number belongs to no vendor.
        EceProfile { vendor_id: 0xff_ffff, options: 0 }
    }
}

/// The adaptive retransmission (`[adaptive_timer]`): the first wait, which doubles with each wait without an
/// answer up to the last. Without it the attribute `timeout` of a queue pair decides how long each wait is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdaptiveTimer {
    /// The first wait in µs; 0: the attribute `timeout` decides.
    pub first_us: u32,
    /// The longest wait in µs; 0: as the first.
    pub last_us: u32,
}

impl AdaptiveTimer {
    /// Returns the timeout for the protocol; `None`: the attribute decides.
    pub fn timeout(self) -> Option<AdaptiveTimeout> {
        let ns = |us: u32| u64::from(us) * 1_000;
        let last_ns = ns(self.last_us.max(self.first_us));
        (self.first_us != 0).then_some(AdaptiveTimeout { first_ns: ns(self.first_us), last_ns })
    }
}

/// A vendor whose calls may be available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    /// `mlx5dv_*`.
    Mellanox,
    /// `efadv_*`.
    Amazon,
}

/// The vendors by their IDs, and the names of their calls.
const VENDORS: [(u32, Vendor, &str); 2] =
    [(0x02c9, Vendor::Mellanox, "mlx5dv_*"), (0x1d0f, Vendor::Amazon, "efadv_*")];

/// Returns the vendor of an ID.
fn vendor_of(id: u32) -> Option<Vendor> {
    VENDORS.iter().find(|(known, ..)| *known == id).map(|(_, vendor, _)| *vendor)
}

impl Profile {
    /// Returns the vendor of the imitated adapter, if it is one whose calls are known here.
    pub fn vendor(&self) -> Option<Vendor> {
        vendor_of(self.vendor_id)
    }

    /// Reports whether a device of the profile imitates one of a vendor.
    pub fn has_device_of(&self, vendor: Vendor) -> bool {
        let own = self.devices.iter().filter_map(|own| own.vendor_id);
        own.chain([self.vendor_id]).any(|id| vendor_of(id) == Some(vendor))
    }

    /// Returns the vendor whose calls programs get.
    pub fn direct_calls(&self) -> Option<Vendor> {
        self.vendor().filter(|_| self.dv == DirectCalls::Calls)
    }

    /// Returns the names of the vendor's calls, if programs get them.
    pub fn direct_call_names(&self) -> Option<&'static str> {
        let vendor = self.direct_calls()?;
        VENDORS.iter().find(|(_, other, _)| *other == vendor).map(|(.., names)| *names)
    }

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
    fn more_ports(&self, own: &DeviceProfile) -> Vec<PortProfile> {
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

mod bounds;
mod congestion;
mod devices;
mod personality_traits;

pub use crate::built_in::{BUILT_IN, BuiltIn};
pub use bounds::{ValueRange, ranges, sentence};
pub use congestion::{
    Algorithm, CongestionProfile, DevicePortProfile, DeviceProfile, PortProfile, Preset, Speed, Width,
};

pub use devices::{DeviceDescription, PortDescription};
pub use personality_traits::{
    DirectCalls, Failures, LinkLayer, NodeType, OwnVendorErrs, PostCall, Provider, QpnReuse, QueuePairKinds,
    Refusals, VENDOR_ERRS, VendorErr,
};

#[cfg(test)]
#[path = "tests.rs"]
mod profile_tests;

#[cfg(test)]
mod tests {
    use pumice_calls::Call;
    use pumice_transport::types::QpType;

    use super::*;

    #[test]
    fn the_default_device_looks_like_no_other() {
        let plain = Profile::default();
        assert_eq!((plain.vendor(), plain.direct_calls(), plain.direct_call_names()), (None, None, None));
        assert!(plain.refuses.calls().is_empty() && plain.driver.is_empty());
        for row in pumice_transport::types::QP_TYPES.iter().filter(|row| row.is_made_by_programs) {
            assert!(plain.queue_pairs.has(row.qp_type), "{}", row.name);
        }
    }

    #[test]
    fn a_personality_says_whose_calls_answer_and_which_are_refused() {
        let text = "vendor_id = 0x1d0f\ndv = 'calls'\nqueue_pairs = ['ud']\nrefuses = ['ibv_create_srq']";
        let profile = Profile::parse(text).unwrap();
        assert_eq!(profile.direct_call_names(), Some("efadv_*"));
        assert!(profile.queue_pairs.has(QpType::Ud) && !profile.queue_pairs.has(QpType::XrcTarget));
        assert_eq!(profile.queue_pairs.words(), "ud");
        assert!(profile.refuses.has(Call::ibv_create_srq) && !profile.refuses.has(Call::ibv_create_qp));
        assert_eq!(Profile::parse("vendor_id = 0x02c9").unwrap().direct_calls(), None);
    }

    #[test]
    fn what_cannot_be_refused_or_made_is_named() {
        for (text, part) in [
            ("refuses = ['ibv_destroy_qp']", "ibv_destroy_qp is no call that a device may refuse"),
            ("refuses = ['ibv_post_send']", "ibv_post_send is no call that"),
            ("refuses = ['ibv_make_coffee']", "ibv_make_coffee is no call that"),
            ("queue_pairs = ['rd']", "no kind of queue pairs is rd; there are rc, uc, ud, xrc, raw, srd, dc"),
            ("dv = 'rings'", "unknown variant `rings`"),
            ("node = 'switch'", "unknown variant `switch`"),
            ("driver = 'a/b'", "driver must be"),
        ] {
            let sentence = Profile::parse(text).unwrap_err();
            assert!(sentence.contains(part), "{text}\n{sentence}");
        }
    }
}
