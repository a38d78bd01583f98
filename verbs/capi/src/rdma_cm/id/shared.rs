//! For each device the context and the protection domain that all identifiers of a process share.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use pumice_device::hca::Hca;

use super::objects;
use crate::ground::abi::{ibv_context, ibv_pd};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::process::own_process;
use crate::objects::context::Context;
use crate::objects::device::{Device, devices};
use crate::rdma_cm::address::local::routed_source;

/// Of one device. Opened when they are first asked for, and then for good: programs compare the pointers.
pub(crate) struct Shared {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    open: &'static Context,
}

/// Those of all devices, in the order of the devices.
struct All {
    each: Vec<Shared>,
    process: u32,
}

impl Shared {
    /// That of a device.
    ///
    /// # Errors
    /// Those of opening it.
    fn open(device: &Device) -> Result<Shared, Errno> {
        let (context, open, pd) = objects::open_device(device)?;
        Ok(Shared { context, pd, open })
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

    /// Whether the device has an address.
    fn has(&self, ip: IpAddr) -> bool {
        self.hca().gids().iter().any(|(_, entry)| entry.ip == ip)
    }

    /// The place of the device among the devices.
    pub(crate) const fn index(&self) -> usize {
        self.open.device().index()
    }
}

/// Null, or what was opened, which is never freed.
static SHARED: AtomicPtr<All> = AtomicPtr::new(ptr::null_mut());

/// What the identifiers of this process share, if there were any. It does not wait.
pub(crate) fn if_open() -> Option<&'static [Shared]> {
    // SAFETY: null, or the leaked box that `all` stores, which nothing changes.
    let open = unsafe { SHARED.load(Ordering::Acquire).as_ref() }?;
    (open.process == own_process()).then_some(open.each.as_slice())
}

/// What the identifiers of this process share, for each device; of at least one. A fork has its own: the
/// parent's threads are not there.
///
/// # Errors
/// Those of opening the devices.
pub(crate) fn all() -> Result<&'static [Shared], Errno> {
    static OPENING: Mutex<()> = Mutex::new(());
    if let Some(open) = if_open() {
        return Ok(open);
    }
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have been quicker.
    if let Some(open) = if_open() {
        return Ok(open);
    }
    let each = devices()?.iter().map(Shared::open).collect::<Result<Vec<Shared>, Errno>>()?;
    let open = &*Box::leak(Box::new(All { each, process: own_process() }));
    SHARED.store(ptr::from_ref(open).cast_mut(), Ordering::Release);
    Ok(&open.each)
}

/// That of the device with a place among the devices.
///
/// # Errors
/// Those of [`all`].
pub(crate) fn shared_at(index: usize) -> Result<&'static Shared, Errno> {
    all()?.get(index).ok_or(INVALID)
}

/// That of the device whose context this is: of the first one if it is null.
///
/// # Errors
/// Those of [`all`].
pub(crate) fn shared_of(context: *mut ibv_context) -> Result<&'static Shared, Errno> {
    let all = all()?;
    all.iter().find(|shared| shared.context == context).or_else(|| all.first()).ok_or(INVALID)
}

/// That of the device which has an address; of the first one if none has.
///
/// # Errors
/// Those of [`all`].
pub(crate) fn shared_with(ip: IpAddr) -> Result<&'static Shared, Errno> {
    match all()? {
        [only] => Ok(only),
        several => several.iter().find(|shared| shared.has(ip)).map_or_else(|| shared_at(0), Ok),
    }
}

/// That of the device from which a peer is reached: the one that has the peer's own address, or the address
/// that the routing table says; else the first.
///
/// # Errors
/// Those of [`all`]. There is no route.
pub(crate) fn shared_towards(peer: SocketAddr) -> Result<&'static Shared, Errno> {
    let all = all()?;
    if all.len() == 1 {
        return shared_at(0);
    }
    let has = |ip: IpAddr| all.iter().find(|shared| shared.has(ip));
    match has(peer.ip()) {
        Some(own) => Ok(own),
        None => has(routed_source(peer)?).map_or_else(|| shared_at(0), Ok),
    }
}

/// A number that a peer cannot foresee.
pub(crate) fn random() -> u32 {
    RandomState::new().hash_one(0_u8) as u32
}
