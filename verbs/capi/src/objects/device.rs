//! The devices of this process, as programs see them, the addresses that they offer, and their loss.
//!
//! The loss of a device, which a fault plan can inject: it fails, or it is removed, and perhaps comes back.
//! Objects that were opened before stay unusable.

use std::ffi::{c_char, c_int};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::event::{Event, Subscriber, Topics};
use pumice_device::hca::{Hca, Presence};
use pumice_device::outside;
use pumice_device::outside::fork_generation::{InheritedOnce, PerProcess};
use pumice_device::outside::interface::{Interface, interfaces};
use pumice_device::platform::clock::Clock;
use pumice_device::profile::{DeviceDescription, PortProfile, Profile};
use pumice_device::settings::{MAX_DEVICES, record};
use pumice_transport::types::{AsyncEventType, Gid};

use crate::abi::ibv_device;
use crate::abi::plain::zeroed;
use crate::call_sites::current_call::name_devices;
use crate::entry::handles::CObject;
use crate::gate::{CallSubject, DeviceLoss, LossState};
use crate::log::settings::{profile, settings};
use crate::platform::{Errno, INVALID};

/// Returns the addresses that a device offers, in GID table order.
pub(crate) fn gid_entries(device: &DeviceDescription) -> Result<Vec<GidEntry>, Errno> {
    let found = interfaces().map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EIO)))?;
    gid_entries_among(&found, device)
}

/// Returns the present addresses of the device, on interfaces that are up; `None` if the system does not list
/// them. 127.0.0.1 and ::1 remain if they were offered before the host had other addresses: queue pairs may
/// use them.
pub(crate) fn gid_entries_now(device: &DeviceDescription, offered: &[GidEntry]) -> Option<Vec<GidEntry>> {
    let found = interfaces().ok()?;
    // An address that was asked for may have gone.
    let mut entries = device.existing_gid_entries(&found);
    // A disconnected cable adds no address: the port is down then.
    if entries.iter().any(|entry| !entry.ip.is_loopback()) {
        entries.retain(|entry| !entry.ip.is_loopback());
    }
    let has =
        |ip: IpAddr| found.iter().any(|interface| interface.addresses.iter().any(|(own, _)| *own == ip));
    let loopback = offered.iter().filter(|entry| entry.ip.is_loopback() && has(entry.ip));
    let missing: Vec<GidEntry> = loopback.filter(|entry| !entries.contains(entry)).cloned().collect();
    entries.extend(missing);
    let is_up = |name: &str| found.iter().any(|interface| interface.up && interface.name == name);
    entries.retain(|entry| is_up(&entry.interface));
    Some(entries)
}

/// Returns the addresses that a device offers among these interfaces.
fn gid_entries_among(found: &[Interface], device: &DeviceDescription) -> Result<Vec<GidEntry>, Errno> {
    Ok(device.gid_entries(found)?)
}

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

/// End of a device's absence.
#[derive(Clone, Copy)]
enum Absence {
    Until(Instant),
    ForEver,
}

/// The last absence of each device. A device that was removed from a parent is absent in its child, too.
static ABSENT: PerProcess<Mutex<[Option<Absence>; MAX_DEVICES]>> = PerProcess::new(|before| {
    let known = before.and_then(|before| before.try_lock().ok().map(|absent| *absent));
    Mutex::new(known.unwrap_or([None; MAX_DEVICES]))
});

fn absent() -> MutexGuard<'static, [Option<Absence>; MAX_DEVICES]> {
    ABSENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports whether the device with this index among the devices is present.
pub(crate) fn is_present(index: usize) -> bool {
    match absent().get(index).copied().flatten() {
        None => true,
        Some(Absence::Until(back)) => outside::now() >= back,
        Some(Absence::ForEver) => false,
    }
}

/// Reports whether it was ever absent.
pub(crate) fn was_absent(index: usize) -> bool {
    absent().get(index).is_some_and(Option::is_some)
}

/// A subscriber to DEVICE_FATAL: after that event calls on the device fail.
#[derive(Clone)]
pub(crate) struct LossSubscriber(Arc<WatchedLoss>);

struct WatchedLoss {
    index: usize,
    loss_state: Arc<LossState>,
    opened: OnceLock<(Arc<Presence>, Clock)>,
}

impl LossSubscriber {
    /// Creates the subscriber of the device with this index among the devices, which is being opened.
    pub(crate) fn new(index: usize) -> LossSubscriber {
        LossSubscriber(Arc::new(WatchedLoss {
            index,
            loss_state: Arc::new(LossState::of(index)),
            opened: OnceLock::new(),
        }))
    }

    /// Records that the device is open.
    pub(crate) fn opened(&self, hca: &Hca) {
        let _ = self.0.opened.set((Arc::clone(hca.presence()), hca.clock().clone()));
        if self.0.loss_state.loss().is_some() {
            // The device was lost at once.
            self.lost();
        }
    }

    /// Returns the state that says whether the device is lost.
    pub(crate) fn loss_state(&self) -> &Arc<LossState> {
        &self.0.loss_state
    }

    fn lost(&self) {
        let WatchedLoss { index, loss_state, opened } = &*self.0;
        let removed = opened.get().and_then(|(presence, clock)| Some((presence.back_ns()?, clock.now_ns())));
        let Some((back_ns, now_ns)) = removed else { return loss_state.end(DeviceLoss::Failed) };
        let back = outside::now().checked_add(Duration::from_nanos(back_ns.saturating_sub(now_ns)));
        let absence = match back {
            Some(back) if back_ns != u64::MAX => Absence::Until(back),
            _ => Absence::ForEver,
        };
        if let Some(last) = absent().get_mut(*index) {
            *last = Some(absence);
        }
        loss_state.end(DeviceLoss::Removed);
    }
}

impl Subscriber for LossSubscriber {
    fn topics(&self) -> Topics {
        Topics::ASYNC_EVENTS
    }

    fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
        if matches!(event, Event::AsyncEventRaised { event: AsyncEventType::DeviceFatal, .. }) {
            self.lost();
        }
    }
}

/// Callbacks that are notified of changes of a device, with its index among the devices.
pub(crate) struct LossCallbacks {
    /// The device was removed.
    pub(crate) removed: fn(usize),
    /// The network's addresses lead to another adapter.
    pub(crate) address_changed: fn(usize),
}

static CALLBACKS: InheritedOnce<LossCallbacks> = InheritedOnce::new();

/// Sets the callbacks, which are called in a thread that holds no lock.
pub(crate) fn set_callbacks(callbacks: LossCallbacks) {
    CALLBACKS.set(callbacks);
}

/// Reports that the network's addresses lead to another adapter.
pub(super) fn address_changed(index: usize) {
    if let Some(callbacks) = CALLBACKS.get() {
        (callbacks.address_changed)(index);
    }
}

/// Reports that a device was removed.
pub(super) fn removed(index: usize) {
    if let Some(callbacks) = CALLBACKS.get() {
        (callbacks.removed)(index);
    }
}
