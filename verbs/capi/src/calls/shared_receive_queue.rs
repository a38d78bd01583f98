//! Shared receive queues.

use std::ffi::{c_int, c_void};

use pumice_device::ground::table::Handle;
use pumice_device::hca::{Hca, SrqSetup};
use pumice_device::objects::srq::SrqChange;

use crate::calls::completion_queue::Cq;
use crate::calls::protection_domain::{Pd, Use};
use crate::calls::xrc_domain::Xrcd;
use crate::ground::abi::{
    ibv_context, ibv_cq, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex, ibv_xrcd,
};
use crate::ground::errno::{Errno, INVALID, NOT_SUPPORTED};
use crate::ground::handles::{Held, Identity, Listed, Shown, hand_out_box, live, take_back, zeroed};
use crate::ground::outcome::{pointer, status};
use crate::ground::refusal::check_mask;
use crate::objects::async_event::Unacknowledged;
use crate::objects::command_file::Owned;
use crate::objects::context::Context;

/// `struct ibv_srq` as OFED 1.x had it: more behind the members of today.
#[repr(C)]
pub(crate) struct ofed_srq {
    context: *mut ibv_context,
    srq_context: *mut c_void,
    pd: *mut ibv_pd,
    handle: u32,
    mutex: libc::pthread_mutex_t,
    cond: libc::pthread_cond_t,
    events_completed: u32,
    xrc_srq_num: u32,
    xrc_domain: *mut ibv_xrcd,
    xrc_cq: *mut ibv_cq,
}

#[cfg(target_arch = "x86_64")]
const _: () = assert!(
    std::mem::offset_of!(ofed_srq, events_completed) == std::mem::offset_of!(ibv_srq, events_completed)
        && std::mem::offset_of!(ofed_srq, xrc_srq_num) == 124
);

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    c: Shown<ofed_srq>,
    hca: *const Hca,
    handle: Handle,
    unacknowledged: Unacknowledged,
    _domain_use: Option<Use>,
}

// SAFETY: the first field begins with the C structure.
unsafe impl Held for Srq {
    type C = ibv_srq;
}

impl Listed for Srq {
    const KIND: &'static str = "shared receive queue";

    fn identity(c: &ibv_srq) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

impl Srq {
    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    #[inline]
    pub(crate) fn hca(&self) -> &Hca {
        // SAFETY: the context keeps the HCA open, and outlives its objects.
        unsafe { &*self.hca }
    }

    pub(crate) const fn unacknowledged(&self) -> &Unacknowledged {
        &self.unacknowledged
    }
}

/// # Safety
/// The pointers are null or live.
pub(crate) unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attributes: &mut ibv_srq_attr,
    xrc: Option<(*mut ibv_xrcd, *mut ibv_cq)>,
) -> Result<*mut ibv_srq, Errno> {
    // SAFETY: the caller's promise.
    let domain = unsafe { live::<Pd>(pd) }?;
    let context = domain.context()?;
    let pointers = xrc;
    let xrc = match xrc {
        // SAFETY: the caller's promise.
        Some((xrcd, cq)) => unsafe { Some((live::<Xrcd>(xrcd)?.handle(), live::<Cq>(cq)?.queue().handle())) },
        None => None,
    };
    let place = Box::<Srq>::new_uninit();
    let cookie = place.as_ptr().expose_provenance() as u64;
    let (max_wr, max_sge) = (attributes.max_wr, attributes.max_sge);
    let handle = context.hca().create_srq(&SrqSetup { pd: domain.handle(), max_wr, max_sge, cookie, xrc })?;
    context.own(Owned::SharedReceiveQueue(handle.pack()));
    if let Ok(granted) = context.hca().query_srq(handle) {
        (attributes.max_wr, attributes.max_sge) = (granted.max_wr, granted.max_sge);
    }
    // SAFETY: numbers, pointers and locks for which zero is the initial state.
    let mut c: ofed_srq = unsafe { zeroed() };
    c.context = domain.context_pointer();
    c.srq_context = srq_context;
    c.pd = pd;
    c.handle = handle.index;
    if let Some((xrcd, cq)) = pointers {
        c.xrc_srq_num = context.hca().srq_number(handle).unwrap_or(0);
        (c.xrc_domain, c.xrc_cq) = (xrcd, cq);
    }
    let srq = Srq {
        c: Shown::new(c),
        hca: context.hca(),
        handle,
        unacknowledged: Unacknowledged::default(),
        _domain_use: domain.begin_use(),
    };
    Ok(hand_out_box(Box::write(place, srq)))
}

pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init_attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    pointer(|| {
        // SAFETY: null or the caller's structure; `pd` is null or live.
        unsafe {
            let init = init_attr.as_mut().ok_or(INVALID)?;
            create(pd, init.srq_context, &mut init.attr, None)
        }
    })
}

/// Bits of `ibv_srq_init_attr_ex.comp_mask`.
const MASK_TYPE: u32 = 1;
const MASK_PD: u32 = 1 << 1;
const MASK_XRCD: u32 = 1 << 2;
const MASK_CQ: u32 = 1 << 3;
const MASK_KNOWN: u32 = (1 << 5) - 1;

/// `IBV_SRQT_*`.
const TYPE_BASIC: u32 = 0;
const TYPE_XRC: u32 = 1;
const TYPE_TAG_MATCHING: u32 = 2;

pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init_attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    pointer(|| {
        // SAFETY: null or open; null or the caller's structure.
        let init = unsafe {
            Context::of(context)?;
            init_attr.as_mut().ok_or(INVALID)?
        };
        let given = |bit: u32| init.comp_mask & bit != 0;
        let kind = if given(MASK_TYPE) { init.srq_type } else { TYPE_BASIC };
        check_mask("ibv_create_srq_ex", init.comp_mask, MASK_KNOWN)?;
        if !given(MASK_PD) {
            return Err(INVALID);
        }
        let xrc = match kind {
            TYPE_BASIC => None,
            TYPE_XRC if given(MASK_XRCD) && given(MASK_CQ) => Some((init.xrcd, init.cq)),
            TYPE_TAG_MATCHING => return Err(NOT_SUPPORTED),
            _ => return Err(INVALID),
        };
        // SAFETY: the caller's promise.
        unsafe { create(init.pd, init.srq_context, &mut init.attr, xrc) }
    })
}

/// `IBV_SRQ_MAX_WR` and `IBV_SRQ_LIMIT`.
const CHANGE_MAX_WR: c_int = 1;
const CHANGE_LIMIT: c_int = 2;

pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attributes: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    status(|| {
        // SAFETY: null or live; null or the caller's structure.
        let (srq, attributes) = unsafe { (live::<Srq>(srq)?, attributes.as_ref().ok_or(INVALID)?) };
        if mask & !(CHANGE_MAX_WR | CHANGE_LIMIT) != 0 {
            return Err(INVALID);
        }
        let change = SrqChange {
            max_wr: (mask & CHANGE_MAX_WR != 0).then_some(attributes.max_wr),
            limit: (mask & CHANGE_LIMIT != 0).then_some(attributes.srq_limit),
        };
        Ok(srq.hca().modify_srq(srq.handle, change)?)
    })
}

pub(crate) unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attributes: *mut ibv_srq_attr) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let srq = unsafe { live::<Srq>(srq) }?;
        let now = srq.hca().query_srq(srq.handle)?;
        if attributes.is_null() {
            return Err(INVALID);
        }
        let c = ibv_srq_attr { max_wr: now.max_wr, max_sge: now.max_sge, srq_limit: now.limit };
        // SAFETY: the caller's structure.
        unsafe { attributes.write(c) };
        Ok(())
    })
}

/// Number by which remote senders name an XRC SRQ.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let srq = unsafe { live::<Srq>(srq) }?;
        let number = srq.hca().srq_number(srq.handle)?;
        if srq_num.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller's variable.
        unsafe { srq_num.write(number) };
        Ok(())
    })
}

/// Blocks until the queue's asynchronous events are acknowledged.
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    status(|| {
        // SAFETY: null or live; a context outlives its objects.
        let (held, context) = unsafe { (live::<Srq>(srq)?, Context::of((*srq).context)?) };
        context.hca().destroy_srq(held.handle)?;
        context.disown(Owned::SharedReceiveQueue(held.handle.pack()));
        context.adapter.distributor.forget_srq(&context.async_events, srq);
        held.unacknowledged.wait();
        // SAFETY: the program gives it back.
        unsafe { take_back::<Srq>(srq) };
        Ok(())
    })
}
