//! Memory regions and memory windows.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use pumice_device::ground::table::Handle;
use pumice_device::hca::Hca;
use pumice_device::memory::{Advice, RegionChange, RegionKeys, WindowType, check_mapped};
use pumice_transport::types::Access;

use crate::calls::post_recv::elements;
use crate::calls::protection_domain::{Pd, Use};
use crate::calls::window_bind;
use crate::ground::abi::{ibv_mr, ibv_mw, ibv_pd, ibv_sge};
use crate::ground::errno::{Errno, INVALID, set_errno};
use crate::ground::handles::{Held, Identity, Listed, Shown, hand_out, held_or_none, live, take_back};
use crate::ground::outcome::{number, pointer, status};
use crate::ground::settings::require;
use crate::objects::command_file::Owned;
use crate::objects::context::Context;

/// A memory region.
#[repr(C)]
pub(crate) struct Mr {
    c: Shown<ibv_mr>,
    handle: Handle,
    domain_use: Mutex<Option<Use>>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Mr {
    type C = ibv_mr;
}

impl Listed for Mr {
    const KIND: &'static str = "memory region";

    fn identity(c: &ibv_mr) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

impl Mr {
    /// A region of a domain, whose program's pointer is `pd`.
    pub(crate) fn new(
        domain: &Pd,
        pd: *mut ibv_pd,
        keys: RegionKeys,
        addr: *mut c_void,
        length: usize,
    ) -> Mr {
        let c = ibv_mr {
            context: domain.context_pointer(),
            pd,
            addr,
            length,
            handle: keys.handle.index,
            lkey: keys.lkey,
            rkey: keys.rkey,
        };
        Mr { c: Shown::new(c), handle: keys.handle, domain_use: Mutex::new(domain.begin_use()) }
    }

    /// Changes the region.
    ///
    /// # Safety
    /// As `ibv_reg_mr` for the new range.
    unsafe fn change(
        &self,
        domain: Option<Handle>,
        translation: Option<(u64, u64, u64)>,
        rights: Option<c_uint>,
    ) -> Result<RegionKeys, Errno> {
        let access = rights.map(access).transpose()?;
        let change = RegionChange { translation, pd: None, access };
        let hca = self.context()?.hca();
        self.check_change(hca, &change)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { hca.rereg_mr(self.handle, domain, change) }?)
    }

    /// The range as it would be after a change, as at registration.
    fn check_change(&self, hca: &Hca, change: &RegionChange) -> Result<(), Errno> {
        let now = hca.query_mr(self.handle)?;
        let (address, length, _) = change.translation.unwrap_or((now.address, now.length, now.iova));
        let same = change.translation.is_none();
        if (same && change.access.is_none_or(|access| now.access.contains(access)))
            || address.checked_add(length).is_none()
        {
            // Nothing to look at, or nothing that the device takes.
            return Ok(());
        }
        check_range(address, length as usize, change.access.unwrap_or(now.access))
    }

    fn context(&self) -> Result<&Context, Errno> {
        // SAFETY: a field of our own structure; a context outlives its objects.
        unsafe { Context::of((*self.c.as_ptr()).context) }
    }
}

/// A memory window.
#[repr(C)]
pub(crate) struct Mw {
    c: Shown<ibv_mw>,
    handle: Handle,
    _domain_use: Option<Use>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Mw {
    type C = ibv_mw;
}

impl Listed for Mw {
    const KIND: &'static str = "memory window";

    fn identity(c: &ibv_mw) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

impl Mw {
    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// The structure that the program sees.
    pub(crate) const fn as_ptr(&self) -> *mut ibv_mw {
        self.c.as_ptr()
    }
}

/// Access rights from a program's bits; unknown optional ones are ignored.
///
/// # Errors
/// EINVAL: a bit without meaning.
pub(crate) fn access(bits: c_uint) -> Result<Access, Errno> {
    let optional = Access::OPTIONAL_RANGE & !Access::RELAXED_ORDERING.bits();
    Access::from_bits(bits & !optional)
        .ok_or_else(|| INVALID.because(|| format!("access rights {bits:#x} have bits without meaning")))
}

/// # Safety
/// As `ibv_reg_mr`: `pd` is null or live, the range stays mapped until it is deregistered.
///
/// # Errors
/// Those of `ibv_reg_mr`.
pub(crate) unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    rights: c_uint,
) -> Result<*mut ibv_mr, Errno> {
    // SAFETY: null or live.
    let domain = unsafe { live::<Pd>(pd) }?;
    let context = domain.context()?;
    let (address, rights) = (addr.expose_provenance() as u64, access(rights)?);
    // SAFETY: the program keeps the range mapped.
    let keys = unsafe { context.hca().reg_mr(domain.handle(), address, length as u64, iova, rights) }?;
    // No peer knows the keys yet, so nothing touches the range before this has looked.
    check_range(address, length, rights).inspect_err(|_| {
        let _ = context.hca().dereg_mr(keys.handle);
    })?;
    context.own(Owned::Region(keys.handle.pack()));
    Ok(hand_out(Mr::new(domain, pd, keys, addr, length)))
}

/// What a device that pins would find out: whether the range is mapped with the rights. On demand, it
/// need not be.
fn check_range(address: u64, length: usize, rights: Access) -> Result<(), Errno> {
    if rights.contains(Access::ON_DEMAND) {
        return Ok(());
    }
    Ok(check_mapped(address, length as u64, rights.contains(Access::LOCAL_WRITE))?)
}

/// Remote addresses of a region start at its process address, or at 0 if it is zero-based.
pub(crate) fn own_iova(addr: *mut c_void, rights: c_uint) -> u64 {
    if rights & Access::ZERO_BASED.bits() != 0 { 0 } else { addr.addr() as u64 }
}

pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    pointer(|| unsafe { register(pd, addr, length, own_iova(addr, access as c_uint), access as c_uint) })
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    pointer(|| unsafe { register(pd, addr, length, iova, access as c_uint) })
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    pointer(|| unsafe { register(pd, addr, length, iova, access) })
}

pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let region = unsafe { live::<Mr>(mr) }?;
        let context = region.context()?;
        context.hca().dereg_mr(region.handle)?;
        context.disown(Owned::Region(region.handle.pack()));
        // SAFETY: the program gives it back.
        unsafe { take_back::<Mr>(mr) };
        Ok(())
    })
}

const CHANGE_TRANSLATION: c_int = 1;
const CHANGE_PD: c_int = 2;
const CHANGE_ACCESS: c_int = 4;

/// `IBV_REREG_MR_ERR_CMD`: the device refused the change.
const REFUSED_BY_DEVICE: c_int = -4;

/// 0, or errno and -1 (`IBV_REREG_MR_ERR_INPUT`: the call makes no sense) or -4 (the device refuses): nothing
/// has changed.
pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    rights: c_int,
) -> c_int {
    number(|| {
        // SAFETY: null or live.
        let region = unsafe { live::<Mr>(mr) }?;
        let wants = |flag: c_int| flags & flag != 0;
        let known = flags & !(CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS) == 0;
        let range_given = !wants(CHANGE_TRANSLATION) || !(addr.is_null() || length == 0);
        let rights_meant = wants(CHANGE_ACCESS) || rights == 0;
        if !known || flags == 0 || !range_given || !rights_meant {
            return Err(INVALID);
        }
        // SAFETY: null or live.
        let domain = if wants(CHANGE_PD) { Some(unsafe { live::<Pd>(pd) }?) } else { None };
        let address = addr.expose_provenance() as u64;
        let translation = wants(CHANGE_TRANSLATION).then_some((address, length as u64, address));
        let rights = wants(CHANGE_ACCESS).then_some(rights as c_uint);
        // SAFETY: the program keeps the new range mapped.
        let keys = match unsafe { region.change(domain.map(Pd::handle), translation, rights) } {
            Ok(keys) => keys,
            Err(Errno(errno)) => {
                set_errno(errno);
                return Ok(REFUSED_BY_DEVICE);
            }
        };
        // SAFETY: fields of our own structure; the program does not use the region meanwhile.
        let c = unsafe { &mut *region.c.as_ptr() };
        (c.lkey, c.rkey) = (keys.lkey, keys.rkey);
        if let Some(domain) = domain {
            c.pd = pd;
            *region.domain_use.lock().unwrap_or_else(PoisonError::into_inner) = domain.begin_use();
        }
        if wants(CHANGE_TRANSLATION) {
            (c.addr, c.length) = (addr, length);
        }
        Ok(0)
    })
}

/// A region that reads as zeros and keeps nothing.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    pointer(|| {
        // SAFETY: null or live.
        let domain = unsafe { live::<Pd>(pd) }?;
        let context = domain.context()?;
        let keys = context.hca().alloc_null_mr(domain.handle())?;
        context.own(Owned::Region(keys.handle.pack()));
        // It is for local use: no remote key.
        Ok(hand_out(Mr::new(domain, pd, RegionKeys { rkey: 0, ..keys }, ptr::null_mut(), usize::MAX)))
    })
}

/// `IBV_ADVISE_MR_FLAG_FLUSH`: return when it is done.
const ADVISE_FLUSH: u32 = 1;

pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sge: u32,
) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let domain = unsafe { live::<Pd>(pd) }?;
        let advice = Advice::from_verbs(advice)?;
        if flags & !ADVISE_FLUSH != 0 || num_sge == 0 {
            return Err(INVALID.because(|| format!("advise_mr: flags {flags:#x}, {num_sge} elements")));
        }
        // SAFETY: the caller's array.
        let ranges = unsafe { elements(sg_list, c_int::try_from(num_sge).map_err(|_| INVALID)?) }?;
        Ok(domain.context()?.hca().advise_mr(domain.handle(), advice, ranges, flags != 0)?)
    })
}

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: u32) -> *mut ibv_mw {
    pointer(|| {
        // SAFETY: null or live.
        let domain = unsafe { live::<Pd>(pd) }?;
        let context = domain.context()?;
        require("memory windows", |profile| profile.capabilities.has_memory_windows())?;
        let keys = context.hca().alloc_mw(domain.handle(), WindowType::from_verbs(kind)?)?;
        context.own(Owned::Window(keys.handle.pack()));
        let c = ibv_mw {
            context: domain.context_pointer(),
            pd,
            rkey: keys.rkey,
            handle: keys.handle.index,
            r#type: kind,
        };
        let _domain_use = domain.begin_use();
        Ok(hand_out(Mw { c: Shown::new(c), handle: keys.handle, _domain_use }))
    })
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let window = unsafe { live::<Mw>(mw) }?;
        // SAFETY: a field of our own structure; a context outlives its objects.
        let context = unsafe { Context::of((*window.as_ptr()).context) }?;
        context.hca().dealloc_mw(window.handle)?;
        window_bind::forget(mw);
        context.disown(Owned::Window(window.handle.pack()));
        // SAFETY: the program gives it back.
        unsafe { take_back::<Mw>(mw) };
        Ok(())
    })
}

/// L_Key of a region; 0 for NULL.
///
/// # Safety
/// Null or live.
pub(crate) unsafe fn lkey_or_zero(mr: *mut ibv_mr) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { held_or_none::<Mr>(mr).map_or(0, |region| (*region.c.as_ptr()).lkey) }
}
