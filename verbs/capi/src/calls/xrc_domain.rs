//! XRC domains, of both generations of the API: `struct ibv_xrcd`, and OFED 1.x's `struct ibv_xrc_domain`,
//! which begins like it. A pointer to one serves where the other is asked for.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice_device::ground::table::Handle;
use pumice_device::hca::XrcdFile;

use crate::ground::abi::{ibv_context, ibv_xrcd, ibv_xrcd_init_attr};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::handles::{Held, Identity, Listed, Shown, hand_out, live, take_back};
use crate::ground::outcome::{pointer, status};
use crate::ground::refusal::check_mask;
use crate::ground::settings::require;
use crate::objects::command_file::Owned;
use crate::objects::context::Context;

/// OFED 1.x `struct ibv_xrc_domain`.
#[repr(C)]
pub(crate) struct ofed_xrc_domain {
    base: ibv_xrcd,
    handle: u64,
}

/// An XRC domain.
#[repr(C)]
pub(crate) struct Xrcd {
    c: Shown<ofed_xrc_domain>,
    handle: Handle,
}

// SAFETY: the first field begins with the C structure.
unsafe impl Held for Xrcd {
    type C = ibv_xrcd;
}

impl Listed for Xrcd {
    const KIND: &'static str = "XRC domain";

    fn identity(c: &ibv_xrcd) -> Identity {
        Identity::new(c.context, 0)
    }
}

impl Xrcd {
    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// The context through which it was opened.
    pub(crate) fn context_pointer(&self) -> *mut ibv_context {
        // SAFETY: a field of our own structure, set once.
        unsafe { (*self.c.as_ptr()).base.context }
    }

    /// # Errors
    /// EINVAL, which a live domain never gives.
    pub(crate) fn context(&self) -> Result<&Context, Errno> {
        // SAFETY: a context outlives its objects.
        unsafe { Context::of(self.context_pointer()) }
    }
}

/// `IBV_XRCD_INIT_ATTR_FD` and `..._OFLAGS`: both are mandatory.
const MASK: u32 = 3;

/// Opens the domain of a file, or with the descriptor -1 one that has no name.
///
/// # Safety
/// `context` is null or open.
///
/// # Errors
/// EBADF: no such descriptor. EAGAIN: nobody has the domain open, and O_CREAT is missing. EINVAL: somebody
/// has, and O_EXCL is given; another flag.
unsafe fn open(context: *mut ibv_context, fd: c_int, oflags: c_int) -> Result<*mut ibv_xrcd, Errno> {
    // SAFETY: the caller's promise.
    let open = unsafe { Context::of(context) }?;
    require("XRC", |profile| profile.capabilities.has_xrc())?;
    if oflags & !(libc::O_CREAT | libc::O_EXCL) != 0 {
        return Err(INVALID.because(|| "an XRC domain takes the flags O_CREAT and O_EXCL only".to_owned()));
    }
    let handle = if fd == -1 {
        open.hca().open_xrcd()?
    } else if fd < 0 {
        return Err(Errno(libc::EBADF));
    } else {
        // SAFETY: not -1; it is only duplicated, which fails for a number that is no descriptor.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let (create, exclusive) = (oflags & libc::O_CREAT != 0, oflags & libc::O_EXCL != 0);
        open.hca().open_xrcd_of_file(&XrcdFile { fd, create, exclusive })?
    };
    open.own(Owned::XrcDomain(handle.pack()));
    let c = ofed_xrc_domain { base: ibv_xrcd { context }, handle: u64::from(handle.index) };
    Ok(hand_out(Xrcd { c: Shown::new(c), handle }))
}

pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    init_attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    pointer(|| {
        // SAFETY: null or the caller's structure.
        let attributes = unsafe { init_attr.as_ref() }.ok_or(INVALID)?;
        check_mask("ibv_open_xrcd", attributes.comp_mask, MASK)?;
        if attributes.comp_mask != MASK {
            return Err(INVALID);
        }
        // SAFETY: null or open.
        unsafe { open(context, attributes.fd, attributes.oflags) }
    })
}

pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let domain = unsafe { live::<Xrcd>(xrcd) }?;
        let context = domain.context()?;
        context.hca().close_xrcd(domain.handle)?;
        context.disown(Owned::XrcDomain(domain.handle.pack()));
        opened_by_ofed().remove(&xrcd.addr());
        // SAFETY: the program gives it back.
        unsafe { take_back::<Xrcd>(xrcd) };
        Ok(())
    })
}

/// Addresses of the domains that were opened by OFED 1.x's call and are open. A program that has one was
/// built with OFED's header, and its `struct ibv_qp_init_attr` ends with a domain; of another program nothing
/// is known.
static OPENED_BY_OFED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

fn opened_by_ofed() -> MutexGuard<'static, BTreeSet<usize>> {
    OPENED_BY_OFED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the program has a domain of OFED 1.x's call open.
pub(crate) fn is_ofed_program() -> bool {
    !opened_by_ofed().is_empty()
}

/// Whether this is a domain of OFED 1.x's call, and open.
pub(crate) fn is_open_by_ofed(domain: *mut ibv_xrcd) -> bool {
    opened_by_ofed().contains(&domain.addr())
}

/// OFED 1.x.
pub(crate) unsafe extern "C" fn ibv_open_xrc_domain(
    context: *mut ibv_context,
    fd: c_int,
    oflag: c_int,
) -> *mut ibv_xrcd {
    pointer(|| {
        // SAFETY: null or open.
        let domain = unsafe { open(context, fd, oflag) }?;
        opened_by_ofed().insert(domain.addr());
        Ok(domain)
    })
}

/// OFED 1.x.
pub(crate) unsafe extern "C" fn ibv_close_xrc_domain(domain: *mut ibv_xrcd) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { close_xrcd(domain) }
}
