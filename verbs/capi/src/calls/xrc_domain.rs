//! XRC domains: opening and closing, in both generations of the API.

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_device::hca::XrcdFile;

use crate::abi::{ibv_context, ibv_xrcd, ibv_xrcd_init_attr};
use crate::entry::arguments::In;
use crate::entry::handles::{hand_out, live, take_back};
use crate::entry::outcome::{pointer_about, status_of};
use crate::gate::CallSubject;
use crate::log::refusal::check_mask;
use crate::log::settings::require;
use crate::objects::command_file::OwnedObject;
use crate::objects::context::Context;
use crate::objects::xrc_domain::{Xrcd, forget_ofed, mark_ofed};
use crate::platform::descriptors;
use crate::platform::errno::{Errno, INVALID};

/// The flags `IBV_XRCD_INIT_ATTR_FD` and `..._OFLAGS`: both are mandatory.
const MASK: u32 = 3;

/// Opens the domain of a file, or with the descriptor -1 one without a name.
///
/// # Errors
/// Fails with EBADF if there is no such descriptor, with EAGAIN if no process has the domain open and O_CREAT
/// is missing, and with EINVAL if one has and O_EXCL is given, or for another flag.
fn open(context: *mut ibv_context, fd: c_int, oflags: c_int) -> Result<*mut ibv_xrcd, Errno> {
    let open = Context::of(context)?;
    require("XRC", |profile| profile.capabilities.has_xrc())?;
    if oflags & !(libc::O_CREAT | libc::O_EXCL) != 0 {
        return Err(INVALID.because(|| "an XRC domain takes the flags O_CREAT and O_EXCL only".to_owned()));
    }
    //= man:ibv_open_xrcd
    //| The descriptor -1 opens a domain without a file.
    let handle = if fd == -1 {
        open.hca().open_xrcd()?
    } else {
        //= man:ibv_open_xrcd
        //| O_CREAT creates the domain of a file, and O_EXCL refuses one that is there.
        let (create, exclusive) = (oflags & libc::O_CREAT != 0, oflags & libc::O_EXCL != 0);
        let fd = descriptors::given(fd)?;
        open.hca().open_xrcd_of_file(&XrcdFile { fd, create, exclusive })?
    };
    open.own(OwnedObject::XrcDomain(handle.pack()));
    Ok(hand_out(Xrcd::new(context, handle)))
}

pub(crate) extern "C" fn open_xrcd(
    context: *mut ibv_context,
    init_attr: In<'_, ibv_xrcd_init_attr>,
) -> *mut ibv_xrcd {
    pointer_about(Call::ibv_open_xrcd, CallSubject::on(context), || {
        let attributes = init_attr.get()?;
        check_mask(Call::ibv_open_xrcd, attributes.comp_mask, MASK)?;
        if attributes.comp_mask != MASK {
            return Err(INVALID);
        }
        open(context, attributes.fd, attributes.oflags)
    })
}

/// Closes a domain, which may have been opened by either generation of the API.
///
/// # Errors
/// Fails with ENOENT if there is no such domain, and with EBUSY if an object belongs to it.
fn close(xrcd: *mut ibv_xrcd) -> Result<(), Errno> {
    let domain = live::<Xrcd>(xrcd)?;
    let context = domain.context()?;
    context.hca().close_xrcd(domain.handle())?;
    context.disown(OwnedObject::XrcDomain(domain.handle().pack()));
    forget_ofed(xrcd);
    take_back::<Xrcd>(xrcd);
    Ok(())
}

pub(crate) extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    status_of(Call::ibv_close_xrcd, CallSubject::of(xrcd), || close(xrcd))
}

/// Opens a domain, with OFED 1.x's call.
pub(crate) extern "C" fn ibv_open_xrc_domain(
    context: *mut ibv_context,
    fd: c_int,
    oflag: c_int,
) -> *mut ibv_xrcd {
    pointer_about(Call::ibv_open_xrc_domain, CallSubject::on(context), || {
        let domain = open(context, fd, oflag)?;
        mark_ofed(domain);
        Ok(domain)
    })
}

/// Closes a domain, with OFED 1.x's call.
pub(crate) extern "C" fn ibv_close_xrc_domain(domain: *mut ibv_xrcd) -> c_int {
    status_of(Call::ibv_close_xrc_domain, CallSubject::of(domain), || close(domain))
}
