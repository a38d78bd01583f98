//! Memory regions and memory windows.

use std::ffi::{c_int, c_uint};
use std::os::fd::RawFd;
use std::ptr;

use pumice_calls::Call;
use pumice_device::hca::Hca;
use pumice_device::memory::{
    Advice, FileMapping, RegionChange, RegionKeys, WindowType, bring_in, check_pinnable,
};
use pumice_device::outside::process::page_bytes;
use pumice_device::platform::table::Handle;
use pumice_device::settings::LogLevel;
use pumice_transport::types::Access;

use crate::abi::{ibv_mr, ibv_mw, ibv_pd, ibv_sge};
use crate::entry::arguments::{Array, LastingPointer};
use crate::entry::handles::{hand_out, live, take_back};
use crate::entry::requests::elements;
use crate::entry::{number_of, pointer_about, status_of};
use crate::gate::CallSubject;
use crate::log::log_at;
use crate::log::settings::require;
use crate::mappings::watch_mappings;
use crate::objects::command_file::OwnedObject;
use crate::objects::device_memory::PinnedPages;
use crate::objects::domains::Pd;
use crate::objects::memory_region;
use crate::objects::memory_region::{Mr, Mw};
use crate::platform::{Errno, INVALID, NOT_SUPPORTED, given, set_errno};

/// Converts access rights from a program's bits; unknown optional ones are ignored.
///
/// # Errors
/// Fails with EINVAL for a bit without meaning.
pub(crate) fn access(bits: c_uint) -> Result<Access, Errno> {
    let optional = Access::OPTIONAL_RANGE & !Access::RELAXED_ORDERING.bits();
    let rights = Access::from_bits(bits & !optional)
        .ok_or_else(|| INVALID.because(|| format!("access rights {bits:#x} have bits without meaning")))?;
    //= linux:ib_verbs.h#ib_check_mr_access
    //| Memory takes FLUSH for persistence only on a device that announces it.
    if rights.contains(Access::FLUSH_PERSISTENT) {
        return Err(INVALID.because(|| {
            "IBV_ACCESS_FLUSH_PERSISTENT is refused: the device does not announce persistent memory \
             (bit 39 of device_cap_flags_ex)"
                .to_owned()
        }));
    }
    Ok(rights)
}

/// Refuses remote addresses with another offset in their page than the memory, because adapters translate
/// whole pages. `what` describes the origin of the memory's offset.
///
/// # Errors
/// Fails with EINVAL.
fn check_page_offset(what: &str, begin: u64, iova: u64) -> Result<(), Errno> {
    let offset = page_bytes() - 1;
    if begin & offset == iova & offset {
        return Ok(());
    }
    Err(INVALID.because(|| {
        format!(
            "the iova {iova:#x} and the {what} {begin:#x} are at different offsets in their pages: the lower \
             {} bits of both have to be equal",
            offset.count_ones()
        )
    }))
}

/// Registers memory as [`register`] does, with remote addresses that the program chooses.
///
/// # Errors
/// Fails with EINVAL if they have another offset in a page than the memory, and as [`register`].
pub(crate) fn register_at(
    pd: *mut ibv_pd,
    addr: LastingPointer,
    length: usize,
    iova: u64,
    rights: c_uint,
) -> Result<*mut ibv_mr, Errno> {
    live::<Pd>(pd)?;
    //= linux:uverbs_cmd.c#ib_uverbs_reg_mr
    //| Memory and its remote addresses begin at the same offset in a page.
    check_page_offset("address", addr.as_ptr().addr() as u64, iova)?;
    register(pd, addr, length, iova, rights)
}

/// Changes a region.
///
/// # Errors
/// Fails with the errors of the HCA, and of the check of the range as in [`register`].
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
        Some((address, length, _)) => {
            Some(PinnedPages::take(address, length, change.access.unwrap_or_default())?)
        }
        None => None,
    };
    watch_mappings();
    // SAFETY: a new range comes from a `LastingPointer` argument; unmapping by the program is watched.
    let keys = unsafe { context.hca().rereg_mr(region.handle(), domain, change) }?;
    if let Some(pinned) = pinned {
        region.pin(pinned);
    }
    if is_of_files {
        context.hca().set_mr_of_files(keys.handle)?;
    }
    Ok(keys)
}

/// Checks the range after a change as at registration.
fn check_change(region: &Mr, hca: &Hca, change: &RegionChange) -> Result<bool, Errno> {
    let now = hca.query_mr(region.handle())?;
    let (address, length, _) = change.translation.unwrap_or((now.address, now.length, now.iova));
    let same = change.translation.is_none();
    if (same && change.access.is_none_or(|access| now.access.contains(access)))
        || address.checked_add(length).is_none()
    {
        // The change has no range to check, or the device refuses it anyway.
        return Ok(false);
    }
    check_range(address, length as usize, change.access.unwrap_or(now.access))
}

/// Registers a range of memory.
///
/// # Errors
/// Fails with the errors of `ibv_reg_mr`.
pub(crate) fn register(
    pd: *mut ibv_pd,
    addr: LastingPointer,
    length: usize,
    iova: u64,
    rights: c_uint,
) -> Result<*mut ibv_mr, Errno> {
    let domain = live::<Pd>(pd)?;
    let context = domain.context()?;
    let (address, rights) = (addr.as_ptr().expose_provenance() as u64, access(rights)?);
    let pinned = PinnedPages::take(address, length as u64, rights)?;
    if !rights.contains(Access::ON_DEMAND) {
        watch_mappings();
    }
    // SAFETY: `LastingPointer` promises that peers may write the range until the program deregisters it;
    // unmapping is watched.
    let keys = unsafe { context.hca().reg_mr(domain.handle(), address, length as u64, iova, rights) }?;
    // No peer knows the keys yet, so no access happens before this check and before the pages are resident.
    let is_of_files = check_range(address, length, rights).inspect_err(|_| {
        let _ = context.hca().dereg_mr(keys.handle);
    })?;
    if is_of_files {
        context.hca().set_mr_of_files(keys.handle)?;
    }
    context.own(OwnedObject::Region(keys.handle.pack()));
    let region = Mr::new(&domain, pd, keys, addr.as_ptr(), length);
    region.pin(pinned);
    Ok(hand_out(region))
}

/// Access rights that memory of files can have.
const OF_FILES: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::RELAXED_ORDERING);

/// Converts access rights as [`access`] does, for files.
///
/// # Errors
/// Fails with EINVAL for a bit that is not among those five.
fn access_of_files(bits: c_uint) -> Result<Access, Errno> {
    // These are the rights of the manual page.
    if bits & !OF_FILES.bits() != 0 {
        return Err(INVALID.because(|| {
            format!(
                "access rights {bits:#x}: a DMA-buf can have LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, \
                 REMOTE_ATOMIC and RELAXED_ORDERING, and no others"
            )
        }));
    }
    access(bits)
}

/// A range of a file.
pub(crate) struct FileRange {
    pub(crate) descriptor: RawFd,
    pub(crate) offset: u64,
    pub(crate) length: usize,
}

/// Registers a range of a DMA-buf or another file. As with other drivers, the address in the region's
/// structure is the offset.
///
/// # Errors
/// Fails with EOPNOTSUPP if the file is not open, which is how NCCL and UCX ask whether the memory of GPUs
/// can be registered, or if it cannot be mapped; and as [`register`].
pub(crate) fn register_file(
    pd: *mut ibv_pd,
    range: &FileRange,
    iova: u64,
    rights: c_uint,
) -> Result<*mut ibv_mr, Errno> {
    let domain = live::<Pd>(pd)?;
    let (context, rights) = (domain.context()?, access_of_files(rights)?);
    let FileRange { descriptor, offset, length } = *range;
    let file = given(descriptor).map_err(|_| {
        let why = || format!("descriptor {descriptor} is no file whose memory could be registered");
        if descriptor < 0 {
            // This is a question whether such memory can be registered, and no mistake.
            log_at(LogLevel::Info, why);
            return NOT_SUPPORTED;
        }
        NOT_SUPPORTED.because(why)
    })?;
    //= linux:uverbs_std_types_mr.c#UVERBS_METHOD_REG_DMABUF_MR
    //| A DMA-buf's offset and its remote addresses begin at the same offset in a page.
    check_page_offset("offset", offset, iova)?;
    let is_written = rights.contains(Access::LOCAL_WRITE);
    let mapping = FileMapping::new(file, offset, length as u64, is_written)?;
    let keys = context.hca().reg_file_mr(domain.handle(), mapping, iova, rights)?;
    context.own(OwnedObject::Region(keys.handle.pack()));
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
    pointer_about(Call::ibv_reg_dmabuf_mr, CallSubject::on(pd), || {
        register_file(pd, &range, iova, access as c_uint)
    })
}

/// Checks a range as a device that pins it would: that it is mapped with the rights, that its file is long
/// enough, and that no file on a disk would change without the kernel's knowledge. Then populates its pages.
/// On-demand regions need none of this.
///
/// Fails if the range is not mapped with the rights, or leaves its file.
fn check_range(address: u64, length: usize, rights: Access) -> Result<bool, Errno> {
    if rights.contains(Access::ON_DEMAND) {
        return Ok(false);
    }
    let is_written = rights.contains(Access::LOCAL_WRITE);
    let is_of_files = check_pinnable(address, length as u64, is_written)?;
    //= linux:umem.c#ib_umem_get
    //| The pages of a region are there before its registration returns.
    bring_in(address, length as u64, is_written)?;
    Ok(is_of_files)
}

/// Returns the first remote address of a region: its process address, or 0 if it is zero-based.
pub(crate) fn own_iova(addr: LastingPointer, rights: c_uint) -> u64 {
    if rights & Access::ZERO_BASED.bits() != 0 { 0 } else { addr.as_ptr().addr() as u64 }
}

pub(crate) extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: LastingPointer,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    pointer_about(Call::ibv_reg_mr, CallSubject::on(pd), || {
        register(pd, addr, length, own_iova(addr, access as c_uint), access as c_uint)
    })
}

pub(crate) extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: LastingPointer,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    pointer_about(Call::ibv_reg_mr_iova, CallSubject::on(pd), || {
        register_at(pd, addr, length, iova, access as c_uint)
    })
}

pub(crate) extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: LastingPointer,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    pointer_about(Call::ibv_reg_mr_iova2, CallSubject::on(pd), || register_at(pd, addr, length, iova, access))
}

pub(crate) extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    status_of(Call::ibv_dereg_mr, CallSubject::of(mr), || {
        let region = live::<Mr>(mr)?;
        let context = region.context()?;
        //= man:ibv_alloc_mw
        //| A region with bound windows cannot be deregistered.
        context.hca().dereg_mr(region.handle())?;
        context.disown(OwnedObject::Region(region.handle().pack()));
        take_back::<Mr>(mr);
        Ok(())
    })
}

const CHANGE_TRANSLATION: c_int = 1;
const CHANGE_PD: c_int = 2;
const CHANGE_ACCESS: c_int = 4;

/// The value `IBV_REREG_MR_ERR_CMD`: the device refused the change.
const REFUSED_BY_DEVICE: c_int = -4;

/// Changes a region. Returns 0, or errno and -1 (`IBV_REREG_MR_ERR_INPUT`: the call is invalid) or -4 (the
/// device refuses); then the region is unchanged.
pub(crate) extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: LastingPointer,
    length: usize,
    rights: c_int,
) -> c_int {
    number_of(Call::ibv_rereg_mr, CallSubject::on(mr), || {
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

/// Creates a region that reads as zeros and ignores writes.
pub(crate) extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    pointer_about(Call::ibv_alloc_null_mr, CallSubject::on(pd), || {
        let domain = live::<Pd>(pd)?;
        let context = domain.context()?;
        let keys = context.hca().alloc_null_mr(domain.handle())?;
        context.own(OwnedObject::Region(keys.handle.pack()));
        // The region is for local use, so it has no remote key.
        Ok(hand_out(Mr::new(&domain, pd, RegionKeys { rkey: 0, ..keys }, ptr::null_mut(), usize::MAX)))
    })
}

/// The flag `IBV_ADVISE_MR_FLAG_FLUSH`: return when it is done.
const ADVISE_FLUSH: u32 = 1;

pub(crate) extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    sg_list: Array<'_, ibv_sge>,
    num_sge: u32,
) -> c_int {
    status_of(Call::ibv_advise_mr, CallSubject::on(pd), || {
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
    pointer_about(Call::ibv_alloc_mw, CallSubject::on(pd), || {
        let domain = live::<Pd>(pd)?;
        let context = domain.context()?;
        require("memory windows", |profile| profile.capabilities.has_memory_windows())?;
        let keys = context.hca().alloc_mw(domain.handle(), WindowType::from_verbs(kind)?)?;
        context.own(OwnedObject::Window(keys.handle.pack()));
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
    status_of(Call::ibv_dealloc_mw, CallSubject::of(mw), || {
        let window = live::<Mw>(mw)?;
        let context = window.context()?;
        context.hca().dealloc_mw(window.handle())?;
        memory_region::forget(&window);
        context.disown(OwnedObject::Window(window.handle().pack()));
        take_back::<Mw>(mw);
        Ok(())
    })
}
