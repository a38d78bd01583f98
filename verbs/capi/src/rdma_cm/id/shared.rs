//! For each device the context and the protection domain that all identifiers of a process share.

use std::net::{IpAddr, SocketAddr};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_device::gsi::CmChannel;
use pumice_device::hca::Hca;
use pumice_device::outside;
use pumice_device::outside::lineage::PerProcess;

use super::objects;
use crate::ground::abi::{ibv_context, ibv_pd};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::process::own_process;
use crate::objects::context::Context;
use crate::objects::device::{Device, devices};
use crate::objects::loss::is_present;
use crate::rdma_cm::address::local::routed_source;

/// Of one device. Opened when they are first asked for, and then for good: programs compare the pointers. One
/// that was pulled out and is back has new ones.
#[derive(Clone)]
pub(crate) struct SharedDevice {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    open: &'static Context,
    /// Where events of requests go that the program has not accepted: as in Linux, it is not told of them.
    unaccepted: Arc<CmChannel>,
}

/// Those of all devices, in the order of the devices.
struct All {
    each: Vec<SharedDevice>,
    /// Those of devices that were pulled out.
    gone: Vec<SharedDevice>,
    process: u32,
}

impl SharedDevice {
    /// That of a device.
    ///
    /// # Errors
    /// Those of opening it.
    fn open(device: &Device) -> Result<SharedDevice, Errno> {
        let (context, open, pd) = objects::open_device(device)?;
        Ok(SharedDevice { context, pd, open, unaccepted: Arc::new(CmChannel::new()?) })
    }

    pub(crate) fn hca(&self) -> &'static Hca {
        self.open.hca()
    }

    /// The program's pointer to the context.
    pub(crate) const fn context(&self) -> *mut ibv_context {
        self.context
    }

    /// The domain of identifiers whose program names none.
    pub(crate) const fn pd(&self) -> *mut ibv_pd {
        self.pd
    }

    /// Where events of requests go that are not accepted; nothing reads them.
    pub(crate) const fn unaccepted(&self) -> &Arc<CmChannel> {
        &self.unaccepted
    }

    /// Whether the device has an address.
    fn has(&self, ip: IpAddr) -> bool {
        !self.is_gone() && self.hca().gids().iter().any(|(_, entry)| entry.ip == ip)
    }

    /// Whether the device was pulled out.
    pub(crate) fn is_gone(&self) -> bool {
        self.hca().back_ns().is_some()
    }

    /// # Errors
    /// ENODEV: the device was pulled out.
    fn present(&self) -> Result<&SharedDevice, Errno> {
        if self.is_gone() { Err(Errno(libc::ENODEV)) } else { Ok(self) }
    }

    /// The index of the device among the devices.
    pub(crate) const fn index(&self) -> usize {
        self.open.device().index()
    }
}

/// Null, or what was opened, which is never freed.
static SHARED: AtomicPtr<All> = AtomicPtr::new(ptr::null_mut());

/// What the identifiers of this process share, if there were any. It does not wait.
pub(crate) fn if_open() -> Option<&'static [SharedDevice]> {
    opened().map(|open| open.each.as_slice())
}

fn opened() -> Option<&'static All> {
    // SAFETY: null, or the leaked box that `all` stores, which nothing changes.
    let open = unsafe { SHARED.load(Ordering::Acquire).as_ref() }?;
    (open.process == own_process()).then_some(open)
}

/// What the identifiers of this process share, for each device; of at least one. A fork has its own: the
/// parent's threads are not there.
///
/// # Errors
/// Those of opening the devices.
pub(crate) fn all() -> Result<&'static [SharedDevice], Errno> {
    if let Some(open) = if_open() {
        return Ok(open);
    }
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have been quicker.
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

/// Stores what identifiers share from now on. What was stored before stays, because others may look at it.
fn store(each: Vec<SharedDevice>, gone: Vec<SharedDevice>) -> &'static [SharedDevice] {
    let open = &*Box::leak(Box::new(All { each, gone, process: own_process() }));
    SHARED.store(ptr::from_ref(open).cast_mut(), Ordering::Release);
    &open.each
}

/// As [`all`], with new contexts for devices that were pulled out and are back. Without any lock held.
///
/// # Errors
/// Those of [`all`].
pub(crate) fn up_to_date() -> Result<&'static [SharedDevice], Errno> {
    let is_old = |known: &[SharedDevice], device: &Device| {
        let shared = known.iter().find(|shared| shared.index() == device.index());
        is_present(device.index()) && shared.is_none_or(SharedDevice::is_gone)
    };
    let (known, devices) = (all()?, devices()?);
    if !devices.iter().any(|device| is_old(known, device)) {
        return Ok(known);
    }
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(known) = opened() else { return all() };
    let (mut each, mut gone) = (known.each.clone(), known.gone.clone());
    for device in devices.iter().filter(|device| is_old(&known.each, device)) {
        let fresh = SharedDevice::open(device)?;
        match each.iter_mut().find(|shared| shared.index() == device.index()) {
            Some(shared) => gone.push(std::mem::replace(shared, fresh)),
            None => each.push(fresh),
        }
    }
    Ok(store(each, gone))
}

/// That of the device with an index among the devices.
///
/// # Errors
/// Those of [`all`].
pub(crate) fn shared_at(index: usize) -> Result<&'static SharedDevice, Errno> {
    all()?.iter().find(|shared| shared.index() == index).ok_or(INVALID)
}

/// That of the first device.
fn first() -> Result<&'static SharedDevice, Errno> {
    all()?.first().ok_or(INVALID)
}

/// That of the device whose context this is: of the first one if it is null.
///
/// # Errors
/// Those of [`all`].
pub(crate) fn shared_of(context: *mut ibv_context) -> Result<&'static SharedDevice, Errno> {
    let all = all()?;
    let gone = opened().map_or(&[][..], |open| open.gone.as_slice());
    let found = all.iter().chain(gone).find(|shared| shared.context == context);
    found.or_else(|| all.first()).ok_or(INVALID)
}

/// That of the device which has an address; of the first one if none has.
///
/// # Errors
/// Those of [`all`].
pub(crate) fn shared_with(ip: IpAddr) -> Result<&'static SharedDevice, Errno> {
    match all()? {
        [only] => only.present(),
        several => several.iter().find(|shared| shared.has(ip)).map_or_else(first, Ok),
    }
}

/// That of the device from which a peer is reached: the one that has the peer's own address, or the address
/// that the routing table says; else the first.
///
/// # Errors
/// Those of [`all`]. There is no route.
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

/// A number that a peer cannot foresee.
pub(crate) fn random() -> u32 {
    outside::random() as u32
}
