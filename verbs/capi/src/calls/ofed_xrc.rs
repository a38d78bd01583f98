//! XRC as OFED 1.x had it: receive queue pairs that nobody holds an object of. Their number and domain
//! name them, and they live as long as a process is registered. `include/pumice/ofed_xrc.h` is the header.

use std::ffi::{c_int, c_void};
use std::ptr;

use pumice_device::hca::{QpInit, TargetRegistration};
use pumice_transport::qp::AttributeMask;
use pumice_transport::types::{QpCapacity, QpType};
use pumice_transport::wire::Qpn;

use crate::calls::queue_pair_attributes::{
    attributes_from, attributes_to, read_attributes, write_attributes,
};
use crate::calls::shared_receive_queue;
use crate::calls::xrc_domain::Xrcd;
use crate::ground::abi::{
    ibv_context, ibv_cq, ibv_pd, ibv_qp_attr, ibv_qp_init_attr, ibv_srq, ibv_srq_init_attr, ibv_xrcd,
};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::handles::{live, zeroed};
use crate::ground::outcome::{pointer, status};
use crate::objects::context::Context;

/// `IBV_QPT_XRC`.
pub(crate) const QPT_XRC: u32 = 5;
/// `IBV_XRC_QP_EVENT_FLAG`: the event is one of a receive queue pair, and its element a number.
pub(crate) const EVENT_FLAG: u32 = 0x8000_0000;

/// `struct ibv_qp_init_attr` as it was.
#[repr(C)]
pub(crate) struct ofed_qp_init_attr {
    base: ibv_qp_init_attr,
    xrc_domain: *mut ibv_xrcd,
}

const _: () = assert!(std::mem::offset_of!(ofed_qp_init_attr, xrc_domain) == 64);

impl ofed_qp_init_attr {
    /// The domain behind today's members.
    ///
    /// # Safety
    /// The structure is as long as it was.
    pub(crate) unsafe fn domain_of(init: *mut ibv_qp_init_attr) -> *mut ibv_xrcd {
        // SAFETY: the caller's promise.
        unsafe { init.cast::<ofed_qp_init_attr>().as_ref() }.map_or(ptr::null_mut(), |init| init.xrc_domain)
    }
}

/// A context's registration for a receive queue pair. Its address, made odd, is the cookie of its events:
/// the address of an object with a C structure is even.
pub(crate) struct Registered {
    pub(crate) context: *mut ibv_context,
    pub(crate) number: u32,
}

impl Registered {
    /// The registration that a cookie is of; none, if it is an object's.
    pub(crate) fn of_cookie(cookie: u64) -> Option<*const Registered> {
        (cookie & 1 == 1).then(|| ptr::with_exposed_provenance((cookie & !1) as usize))
    }

    fn hand_out(context: *mut ibv_context) -> (*mut Registered, u64) {
        let registered = Box::into_raw(Box::new(Registered { context, number: 0 }));
        (registered, registered.expose_provenance() as u64 | 1)
    }

    /// # Safety
    /// It was handed out, and nobody uses it any more.
    pub(crate) unsafe fn take_back(registered: *mut Registered) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(registered) });
    }
}

/// A pointer to a registration, as a context keeps it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegisteredName(pub(crate) *mut Registered);

// SAFETY: a name; who takes it out of the context's list owns what it points at.
unsafe impl Send for RegisteredName {}

fn number_of(xrc_qp_num: u32) -> Result<Qpn, Errno> {
    if xrc_qp_num > 0xff_ffff { Err(INVALID) } else { Ok(Qpn::new(xrc_qp_num)) }
}

/// Makes a receive queue pair; the context is its first registered user. Only the domain matters of
/// `init_attr`, which has OFED 1.x's length.
pub(crate) unsafe extern "C" fn ibv_create_xrc_rcv_qp(
    init_attr: *mut ibv_qp_init_attr,
    xrc_rcv_qpn: *mut u32,
) -> c_int {
    status(|| {
        if init_attr.is_null() || xrc_rcv_qpn.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller's structure; null or live.
        let domain = unsafe { live::<Xrcd>(ofed_qp_init_attr::domain_of(init_attr)) }?;
        let context = domain.context()?;
        let (registered, cookie) = Registered::hand_out(domain.context_pointer());
        let made = context.hca().create_qp(&QpInit {
            qp_type: QpType::XrcTarget,
            pd: None,
            send_cq: None,
            recv_cq: None,
            srq: None,
            xrcd: Some(domain.handle()),
            capacity: QpCapacity::default(),
            signal_all: false,
            cookie,
        });
        let (number, _) = made.inspect_err(|_| {
            // SAFETY: nobody else has it.
            unsafe { Registered::take_back(registered) };
        })?;
        // SAFETY: ours; an event that came already shows the number it has in any case.
        unsafe { (*registered).number = number.value() };
        context.registered(TargetRegistration::of_creator(number), RegisteredName(registered));
        // SAFETY: the caller's variable.
        unsafe { xrc_rcv_qpn.write(number.value()) };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_modify_xrc_rcv_qp(
    xrc_domain: *mut ibv_xrcd,
    xrc_qp_num: u32,
    attr: *mut ibv_qp_attr,
    attr_mask: c_int,
) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let domain = unsafe { live::<Xrcd>(xrc_domain) }?;
        if attr.is_null() {
            return Err(INVALID);
        }
        let mask = AttributeMask::from_bits_retain(attr_mask as u32);
        // SAFETY: the caller's structure.
        let attributes = attributes_from(&unsafe { read_attributes(attr, mask) });
        let number = number_of(xrc_qp_num)?;
        Ok(domain.context()?.hca().modify_target(domain.handle(), number, &attributes, mask)?)
    })
}

/// Fills in everything; the mask is a hint.
pub(crate) unsafe extern "C" fn ibv_query_xrc_rcv_qp(
    xrc_domain: *mut ibv_xrcd,
    xrc_qp_num: u32,
    attr: *mut ibv_qp_attr,
    attr_mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let domain = unsafe { live::<Xrcd>(xrc_domain) }?;
        if attr.is_null() || init_attr.is_null() {
            return Err(INVALID);
        }
        let number = number_of(xrc_qp_num)?;
        let attributes = domain.context()?.hca().query_target(domain.handle(), number)?;
        let c = attributes_to(&attributes);
        // SAFETY: numbers and pointers.
        let mut base: ibv_qp_init_attr = unsafe { zeroed() };
        base.cap = c.cap;
        base.qp_type = QPT_XRC;
        // SAFETY: the caller's structures, `init_attr` with OFED 1.x's length.
        unsafe {
            write_attributes(attr, &c, attr_mask);
            init_attr.cast::<ofed_qp_init_attr>().write(ofed_qp_init_attr { base, xrc_domain });
        }
        Ok(())
    })
}

/// Registering twice is the same as once.
pub(crate) unsafe extern "C" fn ibv_reg_xrc_rcv_qp(xrc_domain: *mut ibv_xrcd, xrc_qp_num: u32) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let domain = unsafe { live::<Xrcd>(xrc_domain) }?;
        let (context, number) = (domain.context()?, number_of(xrc_qp_num)?);
        context.hca().query_target(domain.handle(), number)?;
        if context.is_registered(number) {
            return Ok(());
        }
        let (registered, cookie) = Registered::hand_out(domain.context_pointer());
        // SAFETY: nobody else has it yet.
        unsafe { (*registered).number = number.value() };
        let opened = context.hca().open_target(domain.handle(), number, cookie).inspect_err(|_| {
            // SAFETY: nobody else has it.
            unsafe { Registered::take_back(registered) };
        })?;
        context.registered(opened, RegisteredName(registered));
        Ok(())
    })
}

/// The last one destroys the queue pair.
pub(crate) unsafe extern "C" fn ibv_unreg_xrc_rcv_qp(xrc_domain: *mut ibv_xrcd, xrc_qp_num: u32) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let domain = unsafe { live::<Xrcd>(xrc_domain) }?;
        let (context, number) = (domain.context()?, number_of(xrc_qp_num)?);
        context.hca().query_target(domain.handle(), number)?;
        let (registration, RegisteredName(registered)) = context.unregistered(number).ok_or(INVALID)?;
        // The peer gets the acknowledgements that it is owed before they can no longer be made.
        context.hca().drive_out();
        context.hca().close_target(registration)?;
        context.adapter.distributor.forget_registered(&context.async_events, registered);
        // SAFETY: no event leads to it any more.
        unsafe { Registered::take_back(registered) };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_create_xrc_srq(
    pd: *mut ibv_pd,
    xrc_domain: *mut ibv_xrcd,
    xrc_cq: *mut ibv_cq,
    srq_init_attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    pointer(|| {
        // SAFETY: null or the caller's structure.
        let init = unsafe { srq_init_attr.as_mut() }.ok_or(INVALID)?;
        let srq_context: *mut c_void = init.srq_context;
        // SAFETY: null or live.
        unsafe { shared_receive_queue::create(pd, srq_context, &mut init.attr, Some((xrc_domain, xrc_cq))) }
    })
}

/// Ends what is left of a context that closes.
pub(crate) fn close_registration(context: &Context, registration: TargetRegistration, name: RegisteredName) {
    // It has been opened, so it can be closed.
    let _ = context.hca().close_target(registration);
    context.adapter.distributor.forget_registered(&context.async_events, name.0);
    // SAFETY: no event leads to it any more.
    unsafe { Registered::take_back(name.0) };
}
