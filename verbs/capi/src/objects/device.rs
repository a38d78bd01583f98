//! The one device of this host, `pumice0`, as programs see it.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use pumice_device::addresses::guid::node_guid;
use pumice_device::settings::DEFAULT_DEVICE;
use pumice_device::system::interface::interfaces;

use super::gid_entries::gid_entries;
use crate::ground::abi::ibv_device;
use crate::ground::handles::Held;
use crate::ground::settings::settings;
use crate::ground::zeroed::zeroed;

/// `IBV_NODE_CA`.
const NODE_CHANNEL_ADAPTER: c_int = 1;

/// The device as programs see it.
#[repr(C)]
pub(crate) struct Device {
    c: ibv_device,
    /// The system's libmlx5 and libefa look behind `ibv_device` for their own fields: zero is "not mine".
    behind: [u64; 16],
    guid: [u8; 8],
}

// SAFETY: nothing in it changes once it is made, and its pointers are null.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}
// SAFETY: the first field is the C structure.
unsafe impl Held for Device {
    type C = ibv_device;
}

impl Device {
    fn new() -> Device {
        // Wrong settings are refused before a program gets the device.
        let name = settings().map_or(DEFAULT_DEVICE, |settings| &settings.device);
        let mut c: ibv_device = zeroed();
        c.node_type = NODE_CHANNEL_ADAPTER;
        set_text(&mut c.name, name);
        set_text(&mut c.dev_name, "uverbs0");
        set_text(&mut c.dev_path, "/sys/class/infiniband_verbs/uverbs0");
        set_text(&mut c.ibdev_path, &format!("/sys/class/infiniband/{name}"));
        let found = interfaces().unwrap_or_default();
        let guid = node_guid(&found, gid_entries().as_deref().unwrap_or_default());
        Device { c, behind: [0; 16], guid }
    }

    /// GUID of the node, as it travels.
    pub(crate) const fn guid(&self) -> [u8; 8] {
        self.guid
    }

    /// Its name, for programs.
    pub(crate) const fn name_pointer(&self) -> *const c_char {
        self.c.name.as_ptr()
    }

    /// Its name.
    pub(crate) fn name(&self) -> String {
        self.c.name.iter().take_while(|c| **c != 0).map(|c| char::from(*c as u8)).collect()
    }
}

fn set_text(field: &mut [c_char], text: &str) {
    let room = field.len().saturating_sub(1);
    for (place, byte) in field.iter_mut().zip(text.bytes()).take(room) {
        *place = byte as c_char;
    }
}

/// The device; made when it is first asked for, and for good.
pub(crate) fn the_device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(Device::new)
}

/// The device as a C pointer. Programs only read it.
pub(crate) fn device_pointer() -> *mut ibv_device {
    std::ptr::from_ref(the_device()).cast_mut().cast()
}
