//! Memory regions and memory windows.

use std::ffi::{c_int, c_uint};
use std::os::fd::RawFd;
use std::ptr;

use pumice_calls::Call;
use pumice_device::ground::table::Handle;
use pumice_device::hca::Hca;
use pumice_device::memory::{Advice, FileMapping, RegionChange, RegionKeys, WindowType, check_mapped};
use pumice_device::settings::Log;
use pumice_transport::types::Access;

use crate::ground::abi::{ibv_mr, ibv_mw, ibv_pd, ibv_sge};
use crate::ground::arguments::{Array, Lasting};
use crate::ground::descriptors::given;
use crate::ground::errno::{Errno, INVALID, NOT_SUPPORTED, set_errno};
use crate::ground::gate::About;
use crate::ground::handles::{hand_out, live, take_back};
use crate::ground::log::log_at;
use crate::ground::mappings::watch_mappings;
use crate::ground::outcome::{number_of, pointer_about, status_of};
use crate::ground::requests::elements;
use crate::ground::settings::require;
use crate::objects::command_file::Owned;
use crate::objects::memory_region::Mr;
use crate::objects::memory_window::{self, Mw};
use crate::objects::pinned::Pinned;
use crate::objects::protection_domain::Pd;

/// Access rights from a program's bits; unknown optional ones are ignored.
///
/// # Errors
/// EINVAL: a bit without meaning.
pub(crate) fn access(bits: c_uint) -> Result<Access, Errno> {
    let optional = Access::OPTIONAL_RANGE & !Access::RELAXED_ORDERING.bits();
    Access::from_bits(bits & !optional)
        .ok_or_else(|| INVALID.because(|| format!("access rights {bits:#x} have bits without meaning")))
}

/// Changes a region.
///
/// # Errors
/// Those of the HCA; what [`register`] finds out about the range.
fn change(
    region: &Mr,
    domain: Option<Handle>,
    translation: Option<(u64, u64, u64)>,
    rights: Option<c_uint>,
) -> Result<RegionKeys, Errno> {
    let access = rights.map(access).transpose()?;
    let change = RegionChange { translation, pd: None, access };
    let context = region.context()?;
    let is_of_files = check_change(region, context.hca(), &change)?;
    let pinned = match change.translation {
        Some((address, length, _)) => Some(Pinned::take(address, length, change.access.unwrap_or_default())?),
        None => None,
    };
    watch_mappings();
    // SAFETY: a new range comes from a `Lasting` argument; that the program takes it away is watched.
    let keys = unsafe { context.hca().rereg_mr(region.handle(), domain, change) }?;
    if let Some(pinned) = pinned {
        region.pin(pinned);
    }
    if is_of_files {
        context.hca().set_mr_of_files(keys.handle)?;
    }
    Ok(keys)
}

/// The range as it would be after a change, as at registration.
fn check_change(region: &Mr, hca: &Hca, change: &RegionChange) -> Result<bool, Errno> {
    let now = hca.query_mr(region.handle())?;
    let (address, length, _) = change.translation.unwrap_or((now.address, now.length, now.iova));
    let same = change.translation.is_none();
    if (same && change.access.is_none_or(|access| now.access.contains(access)))
        || address.checked_add(length).is_none()
    {
        // Nothing to look at, or nothing that the device takes.
        return Ok(false);
    }
    check_range(address, length as usize, change.access.unwrap_or(now.access))
}

/// Registers a range.
///
/// # Errors
/// Those of `ibv_reg_mr`.
pub(crate) fn register(
    pd: *mut ibv_pd,
    addr: Lasting,
    length: usize,
    iova: u64,
    rights: c_uint,
) -> Result<*mut ibv_mr, Errno> {
    let domain = live::<Pd>(pd)?;
    let context = domain.context()?;
    let (address, rights) = (addr.as_ptr().expose_provenance() as u64, access(rights)?);
    let pinned = Pinned::take(address, length as u64, rights)?;
    if !rights.contains(Access::ON_DEMAND) {
        watch_mappings();
    }
    // SAFETY: `Lasting` promises that peers may write the range until the program deregisters it; that it
    // takes the memory away is watched.
    let keys = unsafe { context.hca().reg_mr(domain.handle(), address, length as u64, iova, rights) }?;
    // No peer knows the keys yet, so nothing touches the range before this has looked.
    let is_of_files = check_range(address, length, rights).inspect_err(|_| {
        let _ = context.hca().dereg_mr(keys.handle);
    })?;
    if is_of_files {
        context.hca().set_mr_of_files(keys.handle)?;
    }
    context.own(Owned::Region(keys.handle.pack()));
    let region = Mr::new(&domain, pd, keys, addr.as_ptr(), length);
    region.pin(pinned);
    Ok(hand_out(region))
}

/// A range of a file.
pub(crate) struct FileRange {
    pub(crate) descriptor: RawFd,
    pub(crate) offset: u64,
    pub(crate) length: usize,
}

/// Registers a range of a DMA-buf or another file. As of other drivers, the address that the region shows is
/// the offset.
///
/// # Errors
/// EOPNOTSUPP: the file is not open, which is how NCCL and UCX ask whether the memory of GPUs can be
/// registered, or it cannot be mapped. Those of [`register`].
pub(crate) fn register_file(
    pd: *mut ibv_pd,
    range: &FileRange,
    iova: u64,
    rights: c_uint,
) -> Result<*mut ibv_mr, Errno> {
    let domain = live::<Pd>(pd)?;
    let (context, rights) = (domain.context()?, access(rights)?);
    let FileRange { descriptor, offset, length } = *range;
    let file = given(descriptor).map_err(|_| {
        let why = || format!("descriptor {descriptor} is no file whose memory could be registered");
        if descriptor < 0 {
            // A question whether such memory can be registered, and no mistake.
            log_at(Log::Info, why);
            return NOT_SUPPORTED;
        }
        NOT_SUPPORTED.because(why)
    })?;
    let is_written = rights.contains(Access::LOCAL_WRITE);
    let mapping = FileMapping::new(file, offset, length as u64, is_written)?;
    let keys = context.hca().reg_file_mr(domain.handle(), mapping, iova, rights)?;
    context.own(Owned::Region(keys.handle.pack()));
    let shown = ptr::without_provenance_mut(usize::try_from(offset).unwrap_or(0));
    Ok(hand_out(Mr::new(&domain, pd, keys, shown, length)))
}

pub(crate) extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    let range = FileRange { descriptor: fd, offset, length };
    pointer_about(Call::ibv_reg_dmabuf_mr, About::on(pd), || {
        register_file(pd, &range, iova, access as c_uint)
    })
}

/// What a device that pins would find out: whether the range is mapped with the rights, and its file is so
/// long. On demand, it need not be.
///
/// True: some of it is of mapped files.
fn check_range(address: u64, length: usize, rights: Access) -> Result<bool, Errno> {
    if rights.contains(Access::ON_DEMAND) {
        return Ok(false);
    }
    Ok(check_mapped(address, length as u64, rights.contains(Access::LOCAL_WRITE))?)
}

/// Remote addresses of a region start at its process address, or at 0 if it is zero-based.
pub(crate) fn own_iova(addr: Lasting, rights: c_uint) -> u64 {
    if rights & Access::ZERO_BASED.bits() != 0 { 0 } else { addr.as_ptr().addr() as u64 }
}

pub(crate) extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: Lasting,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    pointer_about(Call::ibv_reg_mr, About::on(pd), || {
        register(pd, addr, length, own_iova(addr, access as c_uint), access as c_uint)
    })
}

pub(crate) extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: Lasting,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    pointer_about(Call::ibv_reg_mr_iova, About::on(pd), || register(pd, addr, length, iova, access as c_uint))
}

pub(crate) extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: Lasting,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    pointer_about(Call::ibv_reg_mr_iova2, About::on(pd), || register(pd, addr, length, iova, access))
}

pub(crate) extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    status_of(Call::ibv_dereg_mr, About::of(mr), || {
        let region = live::<Mr>(mr)?;
        let context = region.context()?;
        //= man:ibv_alloc_mw
        //| A region with bound windows cannot be deregistered.
        context.hca().dereg_mr(region.handle())?;
        context.disown(Owned::Region(region.handle().pack()));
        take_back::<Mr>(mr);
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
pub(crate) extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: Lasting,
    length: usize,
    rights: c_int,
) -> c_int {
    number_of(Call::ibv_rereg_mr, About::on(mr), || {
        let region = live::<Mr>(mr)?;
        let wants = |flag: c_int| flags & flag != 0;
        //= man:ibv_rereg_mr
        //| The flags say which of range, protection domain and rights are to change.
        let known = flags & !(CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS) == 0;
        let range_given = !wants(CHANGE_TRANSLATION) || !(addr.as_ptr().is_null() || length == 0);
        let rights_meant = wants(CHANGE_ACCESS) || rights == 0;
        if !known || flags == 0 || !range_given || !rights_meant {
            return Err(INVALID);
        }
        let domain = if wants(CHANGE_PD) { Some(live::<Pd>(pd)?) } else { None };
        if let Some(domain) = &domain {
            region.context()?.check_same("protection domain", &*domain.context()?)?;
        }
        let address = addr.as_ptr().expose_provenance() as u64;
        let translation = wants(CHANGE_TRANSLATION).then_some((address, length as u64, address));
        let rights = wants(CHANGE_ACCESS).then_some(rights as c_uint);
        let keys = match change(&region, domain.as_ref().map(|domain| domain.handle()), translation, rights) {
            Ok(keys) => keys,
            Err(Errno(errno)) => {
                set_errno(errno);
                //= man:ibv_rereg_mr
                //| The call returns a code of its own if the change fails.
                return Ok(REFUSED_BY_DEVICE);
            }
        };
        region.show_keys(&keys);
        if let Some(domain) = domain {
            region.move_to(&domain, pd);
        }
        if wants(CHANGE_TRANSLATION) {
            region.show_range(addr.as_ptr(), length);
        }
        Ok(0)
    })
}

/// A region that reads as zeros and keeps nothing.
pub(crate) extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    pointer_about(Call::ibv_alloc_null_mr, About::on(pd), || {
        let domain = live::<Pd>(pd)?;
        let context = domain.context()?;
        let keys = context.hca().alloc_null_mr(domain.handle())?;
        context.own(Owned::Region(keys.handle.pack()));
        // It is for local use: no remote key.
        Ok(hand_out(Mr::new(&domain, pd, RegionKeys { rkey: 0, ..keys }, ptr::null_mut(), usize::MAX)))
    })
}

/// `IBV_ADVISE_MR_FLAG_FLUSH`: return when it is done.
const ADVISE_FLUSH: u32 = 1;

pub(crate) extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    sg_list: Array<'_, ibv_sge>,
    num_sge: u32,
) -> c_int {
    status_of(Call::ibv_advise_mr, About::on(pd), || {
        let domain = live::<Pd>(pd)?;
        let advice = Advice::from_verbs(advice)?;
        //= man:ibv_advise_mr
        //| Advice with unknown flags fails with EINVAL.
        if flags & !ADVISE_FLUSH != 0 || num_sge == 0 {
            return Err(INVALID.because(|| format!("advise_mr: flags {flags:#x}, {num_sge} elements")));
        }
        let ranges = elements(sg_list, usize::try_from(num_sge).map_err(|_| INVALID)?)?;
        Ok(domain.context()?.hca().advise_mr(domain.handle(), advice, ranges, flags != 0)?)
    })
}

pub(crate) extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: u32) -> *mut ibv_mw {
    pointer_about(Call::ibv_alloc_mw, About::on(pd), || {
        let domain = live::<Pd>(pd)?;
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
        Ok(hand_out(Mw::new(c, keys.handle, domain.begin_use())))
    })
}

pub(crate) extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    status_of(Call::ibv_dealloc_mw, About::of(mw), || {
        let window = live::<Mw>(mw)?;
        let context = window.context()?;
        context.hca().dealloc_mw(window.handle())?;
        memory_window::forget(&window);
        context.disown(Owned::Window(window.handle().pack()));
        take_back::<Mw>(mw);
        Ok(())
    })
}
