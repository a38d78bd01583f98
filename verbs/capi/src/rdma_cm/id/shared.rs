//! The context and the protection domain of each device that all identifiers of a process share.

use std::net::{IpAddr, SocketAddr};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_device::gsi::CmChannel;
use pumice_device::hca::Hca;
use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;

use super::objects;
use crate::abi::{ibv_context, ibv_pd};
use crate::objects::Context;
use crate::objects::device::{Device, devices, is_present};
use crate::platform::{Errno, INVALID, current_pid};
use crate::rdma_cm::address::lookup::routed_source;

/// Shared objects of one device. They are made at the first use and never freed: programs compare the
/// pointers. A device that was removed and is back has new ones.
#[derive(Clone)]
pub(crate) struct SharedDevice {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    open: &'static Context,
    /// Channel for events of requests that the program has not accepted: as in Linux, it does not get them.
    unaccepted: Arc<CmChannel>,
}

/// Shared objects of all devices, in the order of the devices.
struct OpenDevices {
    each: Vec<SharedDevice>,
    /// Shared objects of devices that were removed.
    removed: Vec<SharedDevice>,
    process: u32,
}

impl SharedDevice {
    /// Opens the shared objects of a device.
    ///
    /// # Errors
    /// Fails with the errors of opening it.
    fn open(device: &Device) -> Result<SharedDevice, Errno> {
        let (context, open, pd) = objects::open_device(device)?;
        Ok(SharedDevice { context, pd, open, unaccepted: Arc::new(CmChannel::new()?) })
    }

    pub(crate) fn hca(&self) -> &'static Hca {
        self.open.hca()
    }

    /// Returns the program's pointer to the context.
    pub(crate) const fn context(&self) -> *mut ibv_context {
        self.context
    }

    /// Returns the domain of identifiers whose program names none.
    pub(crate) const fn pd(&self) -> *mut ibv_pd {
        self.pd
    }

    /// Returns the channel for events of requests that are not accepted; it is never read.
    pub(crate) const fn unaccepted(&self) -> &Arc<CmChannel> {
        &self.unaccepted
    }

    /// Reports whether the device has an address.
    fn has(&self, ip: IpAddr) -> bool {
        !self.is_removed() && self.hca().gids().iter().any(|(_, entry)| entry.ip == ip)
    }

    /// Reports whether the device was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.hca().back_ns().is_some()
    }

    /// # Errors
    /// Fails with ENODEV if the device was removed.
    fn present(&self) -> Result<&SharedDevice, Errno> {
        if self.is_removed() { Err(Errno(libc::ENODEV)) } else { Ok(self) }
    }

    /// Returns the index of the device among the devices.
    pub(crate) const fn index(&self) -> usize {
        self.open.device().index()
    }
}

/// Pointer to the opened objects, which are never freed; null before.
static SHARED: AtomicPtr<OpenDevices> = AtomicPtr::new(ptr::null_mut());

/// Returns the shared objects of this process, if there are any. It does not wait.
pub(crate) fn if_open() -> Option<&'static [SharedDevice]> {
    opened().map(|open| open.each.as_slice())
}

fn opened() -> Option<&'static OpenDevices> {
    // SAFETY: null, or the leaked box that `all` stores, which does not change.
    let open = unsafe { SHARED.load(Ordering::Acquire).as_ref() }?;
    (open.process == current_pid()).then_some(open)
}

/// Returns the shared objects of this process, for each device, of which there is at least one. A forked
/// process has its own: the parent's threads do not exist there.
///
/// # Errors
/// Fails with the errors of opening the devices.
pub(crate) fn all() -> Result<&'static [SharedDevice], Errno> {
    if let Some(open) = if_open() {
        return Ok(open);
    }
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have been faster.
    if let Some(open) = if_open() {
        return Ok(open);
    }
    let there = devices()?.iter().filter(|device| is_present(device.index()));
    let each = there.map(SharedDevice::open).collect::<Result<Vec<SharedDevice>, Errno>>()?;
    if each.is_empty() {
        return Err(Errno(libc::ENODEV));
    }
    Ok(store(each, Vec::new()))
}

static OPENING: PerProcess<Mutex<()>> = PerProcess::new(|_| Mutex::default());

/// Replaces the shared objects. Earlier ones are not freed, because other threads may read them.
fn store(each: Vec<SharedDevice>, removed: Vec<SharedDevice>) -> &'static [SharedDevice] {
    let open = &*Box::leak(Box::new(OpenDevices { each, removed, process: current_pid() }));
    SHARED.store(ptr::from_ref(open).cast_mut(), Ordering::Release);
    &open.each
}

/// Returns the shared objects as [`all`] does, with new contexts for devices that were removed and are back.
/// The caller must hold no lock.
///
/// # Errors
/// Fails as [`all`].
pub(crate) fn up_to_date() -> Result<&'static [SharedDevice], Errno> {
    let is_old = |known: &[SharedDevice], device: &Device| {
        let shared = known.iter().find(|shared| shared.index() == device.index());
        is_present(device.index()) && shared.is_none_or(SharedDevice::is_removed)
    };
    let (known, devices) = (all()?, devices()?);
    if !devices.iter().any(|device| is_old(known, device)) {
        return Ok(known);
    }
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(known) = opened() else { return all() };
    let (mut each, mut removed) = (known.each.clone(), known.removed.clone());
    for device in devices.iter().filter(|device| is_old(&known.each, device)) {
        let fresh = SharedDevice::open(device)?;
        match each.iter_mut().find(|shared| shared.index() == device.index()) {
            Some(shared) => removed.push(std::mem::replace(shared, fresh)),
            None => each.push(fresh),
        }
    }
    Ok(store(each, removed))
}

/// Returns the shared objects of the device with an index among the devices.
///
/// # Errors
/// Fails as [`all`].
pub(crate) fn shared_at(index: usize) -> Result<&'static SharedDevice, Errno> {
    all()?.iter().find(|shared| shared.index() == index).ok_or(INVALID)
}

/// Returns the shared objects of the first device.
fn first() -> Result<&'static SharedDevice, Errno> {
    all()?.first().ok_or(INVALID)
}

/// Returns the shared objects of the device whose context this is: of the first one if it is null.
///
/// # Errors
/// Fails as [`all`].
pub(crate) fn shared_of(context: *mut ibv_context) -> Result<&'static SharedDevice, Errno> {
    let all = all()?;
    let removed = opened().map_or(&[][..], |open| open.removed.as_slice());
    let found = all.iter().chain(removed).find(|shared| shared.context == context);
    found.or_else(|| all.first()).ok_or(INVALID)
}

/// Returns the shared objects of the device which has an address; of the first one if none has.
///
/// # Errors
/// Fails as [`all`].
pub(crate) fn shared_with(ip: IpAddr) -> Result<&'static SharedDevice, Errno> {
    match all()? {
        [only] => only.present(),
        several => several.iter().find(|shared| shared.has(ip)).map_or_else(first, Ok),
    }
}

/// Returns the shared objects of the device from which a peer is reached: the one that has the peer's own
/// address, or the source address of the routing table; otherwise the first.
///
/// # Errors
/// Fails as [`all`], and if there is no route.
pub(crate) fn shared_towards(peer: SocketAddr) -> Result<&'static SharedDevice, Errno> {
    let all = all()?;
    if let [only] = all {
        return only.present();
    }
    let has = |ip: IpAddr| all.iter().find(|shared| shared.has(ip));
    match has(peer.ip()) {
        Some(own) => Ok(own),
        None => has(routed_source(peer)?).map_or_else(first, Ok),
    }
}

/// Returns a number that a peer cannot predict.
pub(crate) fn random() -> u32 {
    outside::random() as u32
}
