//! The devices of this process, as programs see them.

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};

use pumice_device::outside::fork_generation::InheritedOnce;
use pumice_device::outside::interface::interfaces;
use pumice_device::profile::{DeviceDescription, PortProfile, Profile};
use pumice_device::settings::record;
use pumice_transport::types::Gid;

use super::gid_entries::gid_entries_among;
use crate::abi::ibv_device;
use crate::abi::zeroed::zeroed;
use crate::call_sites::own_devices::name_devices;
use crate::entry::handles::CObject;
use crate::gate::CallSubject;
use crate::log::settings::{profile, settings};
use crate::platform::errno::{Errno, INVALID};

/// A device as programs see it.
#[repr(C)]
pub(crate) struct Device {
    c: ibv_device,
    /// Zeros behind `ibv_device`, where the system's libmlx5 and libefa look for their own fields: zero means
    /// that the device is not theirs.
    behind: [u64; 16],
    guid: [u8; 8],
    /// Index of the device among the devices.
    index: usize,
    description: DeviceDescription,
}

// SAFETY: its fields do not change once it is made, and its pointers are null.
unsafe impl Send for Device {}
// SAFETY: as for `Send`.
unsafe impl Sync for Device {}
// SAFETY: the first field is the C structure.
unsafe impl CObject for Device {
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

    /// Returns its index among the devices.
    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// Returns its description from the settings and the profile.
    pub(crate) const fn description(&self) -> &DeviceDescription {
        &self.description
    }

    /// Returns its profile.
    pub(crate) const fn profile(&self) -> &Profile {
        &self.description.profile
    }

    /// Returns the profile of one of its ports; `None` if it has no port of this number.
    pub(crate) fn port(&self, port_num: u8) -> Option<&PortProfile> {
        self.description.ports().nth(usize::from(port_num).checked_sub(1)?)
    }

    /// Returns the number of its ports.
    pub(crate) fn port_count(&self) -> u8 {
        if self.description.second_port.is_some() { 2 } else { 1 }
    }

    /// Returns the file that it writes to, where the settings name one for all devices: the first device uses
    /// that one, the others one beside it with their name in it.
    pub(crate) fn process_file(&self, pattern: &Path) -> PathBuf {
        record::process_file(pattern, self.index, self.name())
    }

    /// Returns the device as a C pointer. Programs only read it.
    pub(crate) const fn as_ptr(&self) -> *mut ibv_device {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the GUID of the node in network byte order.
    pub(crate) const fn guid(&self) -> [u8; 8] {
        self.guid
    }

    /// Returns its name, for programs.
    pub(crate) const fn name_pointer(&self) -> *const c_char {
        self.c.name.as_ptr()
    }

    /// Returns its name.
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

/// Returns the devices, of which there is at least one; made at the first call, and never freed.
///
/// # Errors
/// Fails if a setting is wrong, which was reported on standard error.
pub(crate) fn devices() -> Result<&'static [Device], Errno> {
    static DEVICES: InheritedOnce<Result<Vec<Device>, Errno>> = InheritedOnce::new();
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

/// Reports whether there is one device, which has all addresses of the host.
pub(crate) fn device_has_all_addresses() -> bool {
    devices().is_ok_and(|all| all.iter().all(|device| device.description().address.is_none()))
}

/// Reports whether a GID is the address of one of several devices.
pub(crate) fn is_of_device(gid: Gid) -> bool {
    let is_own = |device: &Device| device.description.address.is_some_and(|own| Gid::from(own) == gid);
    devices().is_ok_and(|all| all.iter().any(is_own))
}

/// Returns the device with an index among the devices.
///
/// # Errors
/// Fails as [`devices`].
pub(crate) fn device_at(index: usize) -> Result<&'static Device, Errno> {
    devices()?.get(index).ok_or(INVALID)
}

/// Tells the gate that a call is about the device of a program's pointer.
pub(crate) fn about(pointer: *mut ibv_device) -> CallSubject {
    let all = devices().unwrap_or_default();
    let found = all.iter().find(|device| device.as_ptr() == pointer);
    found.map_or(CallSubject::NOTHING, |device| CallSubject::device_at(device.index()))
}

/// Returns the device of a program's pointer.
///
/// # Errors
/// Fails with EINVAL if the pointer is null, or to no device of this library, and as [`devices`].
pub(crate) fn device_of(pointer: *mut ibv_device) -> Result<&'static Device, Errno> {
    devices()?.iter().find(|device| device.as_ptr() == pointer).ok_or_else(|| {
        INVALID.because(|| "the pointer is none that ibv_get_device_list has returned".to_owned())
    })
}
