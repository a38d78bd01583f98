//! The list of devices, closing a device, and what concerns a whole process: forks, import of contexts'
//! objects, sysfs, and its asynchronous events.
//!
//! Programs that fork. No memory is pinned here, so a child may write to its copy of registered memory
//! without harm to the parent, and no range needs protection.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::check::Checker;
use pumice_device::outside;
use pumice_device::outside::fork_generation::InheritedOnce;
use pumice_device::platform::table::Handle;

use crate::abi::{ibv_async_event, ibv_context, ibv_device, ibv_mr, ibv_pd};
use crate::check;
use crate::entry::arguments::{In, Out, OutBytes, Text, Trusted};
use crate::entry::handles::{forget_all_of, hand_out, is_inherited, live, take_back};
use crate::entry::{number, number_of, pointer, pointer_about, status, status_of, value};
use crate::gate::{CallSubject, context_closed};
use crate::objects::adapter::release;
use crate::objects::command_file::OwnedObject;
use crate::objects::device::{Device, devices, gid_entries, is_present};
use crate::objects::domains::Pd;
use crate::objects::events::acknowledge;
use crate::objects::memory_region::Mr;
use crate::objects::{Context, memory_region, unused};
use crate::platform::{Errno, INVALID, set_errno};

/// Returns a list of devices that ends with NULL: without those that have no address now, or were removed.
pub(crate) extern "C" fn ibv_get_device_list(num_devices: Out<'_, c_int>) -> *mut *mut ibv_device {
    pointer(Call::ibv_get_device_list, || {
        unused::is_listed();
        let mut usable = Vec::new();
        for device in devices()? {
            if is_present(device.index()) && !gid_entries(device.description())?.is_empty() {
                usable.push(device.as_ptr());
            }
        }
        let length = usable.len() + 1;
        // SAFETY: the elements are pointers, for which zeros are NULL.
        let list = unsafe { libc::calloc(length, size_of::<*mut ibv_device>()) }.cast::<*mut ibv_device>();
        if list.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        for (index, device) in usable.iter().enumerate() {
            // SAFETY: the index is below the number of devices, and the list has one element more.
            unsafe { list.add(index).write(*device) };
        }
        if check::is_on() {
            check::misuse::got_list(list.addr(), usable.iter().map(|device| device.addr()).collect());
        }
        if let Some(num_devices) = num_devices.optional() {
            num_devices.set(usable.len() as c_int);
        }
        Ok(list)
    })
}

/// # Safety
/// `list` must be NULL or come from [`ibv_get_device_list`], and must not be freed yet.
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if check::is_on() {
        check::misuse::frees_list(list.addr());
    }
    // SAFETY: the C library allocated it, in `ibv_get_device_list`. The devices themselves are not freed.
    unsafe { libc::free(list.cast()) }
}

pub(crate) extern "C" fn ibv_get_device_name(device: Trusted<'_, ibv_device>) -> *const c_char {
    device.of_any_process::<Device>().map_or(ptr::null(), Device::name_pointer)
}

/// Returns the GUID in network byte order.
pub(crate) extern "C" fn ibv_get_device_guid(device: Trusted<'_, ibv_device>) -> u64 {
    device.of_any_process::<Device>().map_or(0, |device| u64::from_ne_bytes(device.guid()))
}

/// Returns -1, which the manual page has for a kernel that gives no indexes: programs ask the kernel about
/// the device of an index (UCX does, by netlink), and 0 may be another device there, or none.
pub(crate) extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    -1
}

/// Closes a device, and destroys its remaining objects.
pub(crate) extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    status_of(Call::ibv_close_device, CallSubject::of(context), || {
        if is_inherited::<Context>(context) {
            // A child gives up its copy, and its parent continues to use the device.
            return Ok(());
        }
        let open = Context::of(context)?;
        let adapter = Arc::clone(open.adapter());
        // Owed acknowledgements are sent before the socket closes.
        adapter.hca().drive_out();
        adapter.distributor().unregister(context);
        open.destroy_leftovers();
        memory_region::forget_all_of(context);
        forget_all_of(context);
        context_closed(context.addr());
        take_back::<Context>(context);
        drop(open);
        release(adapter);
        Ok(())
    })
}

/// Imports a protection domain of a context with the same command file.
pub(crate) extern "C" fn ibv_import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd {
    pointer_about(Call::ibv_import_pd, CallSubject::on(context), || {
        let open = Context::of(context)?;
        //= man:ibv_import_pd
        //| A protection domain is imported by its handle.
        let handle = open.file().find("protection domain", |owned| match *owned {
            OwnedObject::ProtectionDomain(packed) => {
                Some(Handle::unpack(packed)).filter(|handle| handle.index == pd_handle)
            }
            _ => None,
        })?;
        Ok(hand_out(Pd::new(context, handle)))
    })
}

/// Frees the structure, but not the domain itself.
pub(crate) extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    value((), || {
        if live::<Pd>(pd).is_ok() {
            take_back::<Pd>(pd);
        }
    });
}

/// Imports a memory region of an imported protection domain. Its address is not known: NULL.
pub(crate) extern "C" fn ibv_import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr {
    pointer_about(Call::ibv_import_mr, CallSubject::on(pd), || {
        let domain = live::<Pd>(pd)?;
        let context = domain.context()?;
        context.file().find("memory region", |owned| match *owned {
            OwnedObject::Region(packed) => (Handle::unpack(packed).index == mr_handle).then_some(()),
            _ => None,
        })?;
        let (keys, info) = context.hca().region_at(domain.handle(), mr_handle)?;
        Ok(hand_out(Mr::new(&domain, pd, keys, ptr::null_mut(), info.length as usize)))
    })
}

/// Frees the structure, but not the region itself.
pub(crate) extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    value((), || {
        if live::<Mr>(mr).is_ok() {
            take_back::<Mr>(mr);
        }
    });
}

/// The value `IBV_FORK_UNNEEDED`.
const UNNEEDED: c_int = 2;

pub(crate) extern "C" fn ibv_fork_init() -> c_int {
    status(Call::ibv_fork_init, || Ok(()))
}

pub(crate) extern "C" fn ibv_is_fork_initialized() -> c_int {
    check::with_checker(Checker::prepared_for_forks);
    UNNEEDED
}

pub(crate) extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

pub(crate) extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: InheritedOnce<std::ffi::CString> = InheritedOnce::new();
    PATH.get_or_init(|| {
        let mut path = outside::environment::variable("SYSFS_PATH")
            .unwrap_or_else(|| "/sys".into())
            .as_bytes()
            .to_owned();
        path.retain(|byte| *byte != 0);
        std::ffi::CString::new(path).unwrap_or_default()
    })
    .as_ptr()
}

/// Reads at most `size` bytes of `dir/file`, without a newline at their end, and terminates them with NUL if
/// there is room: returns their number, or -1.
pub(crate) extern "C" fn ibv_read_sysfs_file(
    dir: Text<'_>,
    file: Text<'_>,
    buf: OutBytes<'_>,
    size: usize,
) -> c_int {
    number(Call::ibv_read_sysfs_file, || {
        let (dir, file) = (dir.get()?, file.get()?);
        if buf.is_null() {
            return Err(INVALID);
        }
        let path = Path::new(OsStr::from_bytes(dir.to_bytes())).join(OsStr::from_bytes(file.to_bytes()));
        let mut text = match (outside::files::fact(&path), of_profile(&path)) {
            (Ok(text), _) => text,
            (Err(_), Some(text)) => text.into_bytes(),
            (Err(error), None) => return Err(Errno(error.raw_os_error().unwrap_or(libc::EIO))),
        };
        text.truncate(size);
        if text.last() == Some(&b'\n') {
            text.pop();
        }
        let mut elements = buf.elements(size)?;
        for byte in text.iter().chain([&0]) {
            // Without room there is no NUL.
            elements.put(*byte);
        }
        Ok(text.len() as c_int)
    })
}

/// Returns the contents that a device's file would have: `ibv_devinfo` asks for the board.
fn of_profile(path: &Path) -> Option<String> {
    let (folder, file) = (path.parent()?, path.file_name()?);
    if folder.parent()?.file_name()? != "infiniband" {
        return None;
    }
    let name = folder.file_name()?;
    let profile = devices().ok()?.iter().find(|device| name == device.name())?.profile();
    match file.to_str()? {
        "board_id" if !profile.board_id.is_empty() => Some(profile.board_id.clone()),
        "fw_ver" => Some(profile.fw_ver.clone()),
        "hw_rev" => Some(format!("{:x}", profile.hw_ver)),
        _ => None,
    }
}

unsafe extern "C-unwind" {
    fn read(fd: c_int, bytes: *mut c_void, count: usize) -> isize;
}

/// Waits for an event unless the descriptor is O_NONBLOCK. A signal ends the wait, and a waiting thread can
/// be cancelled: no value in this frame may need dropping.
pub(crate) extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: Out<'_, ibv_async_event>,
) -> c_int {
    next_event(Call::ibv_get_async_event, context, event)
}

/// Waits for an event for a call, as [`ibv_get_async_event`] does.
#[inline(always)]
pub(super) fn next_event(call: Call, context: *mut ibv_context, event: Out<'_, ibv_async_event>) -> c_int {
    if event.optional().is_none() {
        set_errno(INVALID.0);
        return -1;
    }
    loop {
        let fd = number_of(call, CallSubject::on(context), || Ok(Context::of(context)?.async_events().fd()));
        if fd < 0 {
            return -1;
        }
        let mut byte = 0_u8;
        // SAFETY: a byte of this frame is written, which stays valid even if the thread is cancelled in the
        // call.
        if unsafe { read(fd, (&raw mut byte).cast(), 1) } != 1 {
            return -1;
        }
        if take_event(context, event) {
            return 0;
        }
    }
}

/// Returns the address of an event's object, or the number in its place.
fn about(event: &ibv_async_event) -> u64 {
    event.element.addr() as u64
}

/// Takes an event. Returns false if another thread was faster, or the event's object is gone.
#[inline(never)]
extern "C" fn take_event(context: *mut ibv_context, event: Out<'_, ibv_async_event>) -> bool {
    value(false, || {
        let taken = Context::of(context).ok().and_then(|open| open.async_events().take());
        let (Some(taken), Some(target)) = (taken, event.optional()) else { return false };
        check::with_checker(|checker| checker.async_event_got(about(&taken)));
        target.set(taken);
        true
    })
}

pub(crate) extern "C" fn ibv_ack_async_event(event: In<'_, ibv_async_event>) {
    value((), || {
        if let Some(event) = event.optional() {
            check::with_checker(|checker| checker.async_event_acknowledged(about(event)));
            //= man:ibv_get_async_event
            //| Every event that a program gets has to be acknowledged.
            acknowledge(event);
        }
    });
}
