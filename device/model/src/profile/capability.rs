//! Capability flags by name.

use serde::{Deserialize, Deserializer, de};

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
