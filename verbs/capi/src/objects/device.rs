//! The devices of this process, as programs see them.

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};

use pumice_device::outside::interface::interfaces;
use pumice_device::outside::lineage::Settled;
use pumice_device::profile::{DeviceDescription, PortProfile, Profile};
use pumice_device::settings::record;
use pumice_transport::types::Gid;

use super::gid_entries::gid_entries_among;
use crate::ground::abi::ibv_device;
use crate::ground::errno::{Errno, INVALID};
use crate::ground::gate::About;
use crate::ground::handles::Held;
use crate::ground::own_devices::name_devices;
use crate::ground::settings::{profile, settings};
use crate::ground::zeroed::zeroed;

/// A device as programs see it.
#[repr(C)]
pub(crate) struct Device {
    c: ibv_device,
    /// The system's libmlx5 and libefa look behind `ibv_device` for their own fields: zero is "not mine".
    behind: [u64; 16],
    guid: [u8; 8],
    /// Its index among the devices.
    index: usize,
    description: DeviceDescription,
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
    fn new(index: usize, guid: [u8; 8], description: DeviceDescription) -> Device {
        let name = description.name.as_str();
        let mut c: ibv_device = zeroed();
        let node = description.profile.node;
        (c.node_type, c.transport_type) = (node as c_int, node.transport());
        set_text(&mut c.name, name);
        set_text(&mut c.dev_name, &format!("uverbs{index}"));
        set_text(&mut c.dev_path, &format!("/sys/class/infiniband_verbs/uverbs{index}"));
        set_text(&mut c.ibdev_path, &format!("/sys/class/infiniband/{name}"));
        Device { c, behind: [0; 16], guid, index, description }
    }

    /// Its index among the devices.
    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// What the settings and the profile say of it.
    pub(crate) const fn description(&self) -> &DeviceDescription {
        &self.description
    }

    /// What it says about itself.
    pub(crate) const fn profile(&self) -> &Profile {
        &self.description.profile
    }

    /// What one of its ports says about itself; none: it has no port of this number.
    pub(crate) fn port(&self, port_num: u8) -> Option<&PortProfile> {
        self.description.ports().nth(usize::from(port_num).checked_sub(1)?)
    }

    /// How many ports it has.
    pub(crate) fn port_count(&self) -> u8 {
        if self.description.second_port.is_some() { 2 } else { 1 }
    }

    /// The file that it writes to, where the settings name one for all devices: the first device that one,
    /// the others one beside it with their name in it.
    pub(crate) fn own_file(&self, pattern: &Path) -> PathBuf {
        record::own_file(pattern, self.index, self.name())
    }

    /// The device as a C pointer. Programs only read it.
    pub(crate) const fn as_ptr(&self) -> *mut ibv_device {
        std::ptr::from_ref(self).cast_mut().cast()
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
    pub(crate) fn name(&self) -> &str {
        &self.description.name
    }
}

fn set_text(field: &mut [c_char], text: &str) {
    let room = field.len().saturating_sub(1);
    for (target, byte) in field.iter_mut().zip(text.bytes()).take(room) {
        *target = byte as c_char;
    }
}

/// The devices, of which there is at least one; made when they are first asked for, and for good.
///
/// # Errors
/// A setting is wrong; that has been said on standard error.
pub(crate) fn devices() -> Result<&'static [Device], Errno> {
    static DEVICES: Settled<Result<Vec<Device>, Errno>> = Settled::new();
    DEVICES.get_or_init(describe).as_deref().map_err(|errno| *errno)
}

fn describe() -> Result<Vec<Device>, Errno> {
    let found = interfaces().map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
    let described = settings()?.device_descriptions(profile()?, &found)?;
    let is_only = described.len() == 1;
    let each = described.into_iter().enumerate().map(|(index, description)| {
        let gids = gid_entries_among(&found, &description).unwrap_or_default();
        let guid = description.guid(is_only, &found, &gids);
        Device::new(index, guid, description)
    });
    let all: Vec<Device> = each.collect();
    if !is_only {
        name_devices(all.iter().map(|device| device.name().to_owned()).collect());
    }
    Ok(all)
}

/// Whether there is one device, which has all addresses of the host.
pub(crate) fn device_has_all_addresses() -> bool {
    devices().is_ok_and(|all| all.iter().all(|device| device.description().address.is_none()))
}

/// Whether a GID is the address of one of several devices.
pub(crate) fn is_of_device(gid: Gid) -> bool {
    let is_own = |device: &Device| device.description.address.is_some_and(|own| Gid::from(own) == gid);
    devices().is_ok_and(|all| all.iter().any(is_own))
}

/// The device with an index among the devices.
///
/// # Errors
/// Those of [`devices`].
pub(crate) fn device_at(index: usize) -> Result<&'static Device, Errno> {
    devices()?.get(index).ok_or(INVALID)
}

/// For the gate: a call is about the device of a program's pointer.
pub(crate) fn about(pointer: *mut ibv_device) -> About {
    let all = devices().unwrap_or_default();
    let found = all.iter().find(|device| device.as_ptr() == pointer);
    found.map_or(About::NOTHING, |device| About::device_at(device.index()))
}

/// The device of a program's pointer.
///
/// # Errors
/// EINVAL: it is null, or no device of this library. Those of [`devices`].
pub(crate) fn device_of(pointer: *mut ibv_device) -> Result<&'static Device, Errno> {
    devices()?.iter().find(|device| device.as_ptr() == pointer).ok_or_else(|| {
        INVALID.because(|| "the pointer is none that ibv_get_device_list has returned".to_owned())
    })
}
