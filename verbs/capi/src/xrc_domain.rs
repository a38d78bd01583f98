//! XRC domains. A domain belongs to the context that opened it: a file descriptor names a domain for
//! several processes, which is not there yet, so every descriptor opens a domain of its own.

use std::ffi::c_int;

use pumice_device::table::Handle;

use crate::abi::{ibv_context, ibv_xrcd, ibv_xrcd_init_attr};
use crate::context::{Context, Owned};
use crate::device::require;
use crate::object::{Held, Shown, hand_out, held, take_back};
use crate::outcome::{INVALID, pointer, status};

/// An XRC domain.
#[repr(C)]
pub(crate) struct Xrcd {
    c: Shown<ibv_xrcd>,
    handle: Handle,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Xrcd {
    type C = ibv_xrcd;
}

impl Xrcd {
    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }
}

/// `IBV_XRCD_INIT_ATTR_FD` and `..._OFLAGS`: both are mandatory.
const MASK: u32 = 3;

pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    init_attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    pointer(|| {
        // SAFETY: null or open; null or the caller's structure.
        let (open, attributes) = unsafe { (Context::of(context)?, init_attr.as_ref().ok_or(INVALID)?) };
        if attributes.comp_mask != MASK || attributes.fd < -1 {
            return Err(INVALID);
        }
        require("XRC", |profile| profile.capabilities.has_xrc())?;
        let handle = open.hca().open_xrcd()?;
        open.own(Owned::XrcDomain(handle.pack()));
        Ok(hand_out(Xrcd { c: Shown::new(ibv_xrcd { context }), handle }))
    })
}

pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    status(|| {
        // SAFETY: null or live; a context outlives its objects.
        let (domain, context) = unsafe { (held::<Xrcd>(xrcd)?, Context::of((*xrcd).context)?) };
        context.hca().close_xrcd(domain.handle)?;
        context.disown(Owned::XrcDomain(domain.handle.pack()));
        // SAFETY: the program gives it back.
        unsafe { take_back::<Xrcd>(xrcd) };
        Ok(())
    })
}
