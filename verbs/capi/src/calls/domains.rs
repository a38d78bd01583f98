//! Protection domains, thread domains, parent domains and XRC domains.
//!
//! A parent domain can be used wherever a protection domain can. Its allocators are for queues in the
//! program's memory; the queues of this device are elsewhere, so they are never called.
//!
//! XRC of OFED 1.x: receive queue pairs without an object. Their number and domain name them, and they live
//! as long as a process is registered. `include/pumice/ofed_xrc.h` is the header.

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_device::hca::{QpInit, TargetRegistration, XrcdFile};
use pumice_transport::qp::AttributeMask;
use pumice_transport::types::{QpCapacity, QpType};
use pumice_transport::wire::Qpn;

use super::queue_pair::open_target;
use super::queue_pair_attributes::{attributes_to, read_attributes, write_attributes};
use super::shared_receive_queue;
use crate::abi::plain::zeroed;
use crate::abi::{
    QPT_XRC, ibv_context, ibv_cq, ibv_parent_domain_init_attr, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
    ibv_qp_open_attr, ibv_srq, ibv_srq_init_attr, ibv_td, ibv_xrcd, ibv_xrcd_init_attr, ofed_qp_init_attr,
};
use crate::entry::arguments::{In, InOut, Out};
use crate::entry::handles::{hand_out, live, live_or_none, take_back};
use crate::entry::{pointer_about, status, status_of};
use crate::gate::CallSubject;
use crate::log::refusal::check_mask;
use crate::log::settings::require;
use crate::objects::Context;
use crate::objects::command_file::OwnedObject;
use crate::objects::domains::{Pd, Td, Xrcd, forget_ofed, mark_ofed};
use crate::objects::events::EventSource;
use crate::platform;
use crate::platform::{Errno, INVALID};

pub(crate) extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    pointer_about(Call::ibv_alloc_pd, CallSubject::on(context), || {
        let open = Context::of(context)?;
        let handle = open.hca().alloc_pd()?;
        open.own(OwnedObject::ProtectionDomain(handle.pack()));
        Ok(hand_out(Pd::new(context, handle)))
    })
}

/// Deallocates a protection domain or a parent domain.
pub(crate) extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    status_of(Call::ibv_dealloc_pd, CallSubject::of(pd), || {
        let domain = live::<Pd>(pd)?;
        domain.check_unused()?;
        if !domain.is_parent() {
            let context = domain.context()?;
            context.hca().dealloc_pd(domain.handle())?;
            context.disown(OwnedObject::ProtectionDomain(domain.handle().pack()));
        }
        take_back::<Pd>(pd);
        Ok(())
    })
}

/// Allocates a thread domain; `init_attr` begins with its mask, of which no bit has a meaning.
pub(crate) extern "C" fn alloc_td(context: *mut ibv_context, init_attr: In<'_, u32>) -> *mut ibv_td {
    pointer_about(Call::ibv_alloc_td, CallSubject::on(context), || {
        Context::of(context)?;
        check_mask(Call::ibv_alloc_td, *init_attr.get()?, 0)?;
        Ok(hand_out(Td::new(context)))
    })
}

pub(crate) extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    status_of(Call::ibv_dealloc_td, CallSubject::of(td), || {
        //= man:ibv_alloc_td
        //| A thread domain is freed after the resources that were made with it.
        live::<Td>(td)?.check_unused()?;
        take_back::<Td>(td);
        Ok(())
    })
}

/// Bits `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS`, `..._PD_CONTEXT` and `..._ALLOW_CC_UNPROTECTED_ALLOC`. The
/// last has no effect: this device reads the program's memory as the program does, encrypted or not.
const MASK_ALLOCATORS: u32 = 1;
const PARENT_DOMAIN_MASK_KNOWN: u32 = 7;

pub(crate) extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attributes: In<'_, ibv_parent_domain_init_attr>,
) -> *mut ibv_pd {
    pointer_about(Call::ibv_alloc_parent_domain, CallSubject::on(context), || {
        let open = Context::of(context)?;
        let attributes = attributes.get()?;
        let (domain, thread) = (live::<Pd>(attributes.pd)?, live_or_none::<Td>(attributes.td)?);
        check_mask(Call::ibv_alloc_parent_domain, attributes.comp_mask, PARENT_DOMAIN_MASK_KNOWN)?;
        let allocators = attributes.comp_mask & MASK_ALLOCATORS != 0;
        if allocators && (attributes.alloc.is_null() || attributes.free.is_null()) {
            return Err(INVALID.because(|| "parent domain: both allocators or none".to_owned()));
        }
        open.check_same("protection domain", &*domain.context()?)?;
        if let Some(thread) = &thread {
            open.check_same("thread domain", &*thread.context()?)?;
        }
        //= man:ibv_alloc_parent_domain
        //| A parent domain is made of a protection domain.
        if domain.is_parent() || domain.context_pointer() != context {
            return Err(INVALID
                .because(|| "a parent domain is made of a protection domain of its context".to_owned()));
        }
        Ok(hand_out(Pd::parent_of(&domain, thread.as_deref(), attributes.td)))
    })
}

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
        let fd = platform::given(fd)?;
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

/// Bits of `ibv_qp_open_attr.comp_mask`.
const MASK_NUMBER: u32 = 1;
const MASK_XRCD: u32 = 1 << 1;
const MASK_CONTEXT: u32 = 1 << 2;
const MASK_TYPE: u32 = 1 << 3;
const QP_OPEN_MASK_KNOWN: u32 = (1 << 4) - 1;

/// The value `IBV_QPT_XRC_RECV`.
const XRC_RECV: u32 = 10;

pub(crate) extern "C" fn open_qp(context: *mut ibv_context, attr: In<'_, ibv_qp_open_attr>) -> *mut ibv_qp {
    pointer_about(Call::ibv_open_qp, CallSubject::on(context), || {
        let (open, attributes) = (Context::of(context)?, attr.get()?);
        let mask = attributes.comp_mask;
        let needed = MASK_NUMBER | MASK_XRCD | MASK_TYPE;
        check_mask(Call::ibv_open_qp, mask, QP_OPEN_MASK_KNOWN)?;
        if mask & needed != needed || attributes.qp_type != XRC_RECV {
            return Err(INVALID);
        }
        if attributes.qp_num > 0xff_ffff {
            return Err(INVALID);
        }
        let domain = live::<Xrcd>(attributes.xrcd)?;
        open.check_same("XRC domain", &*domain.context()?)?;
        let qp_context = if mask & MASK_CONTEXT != 0 { attributes.qp_context } else { std::ptr::null_mut() };
        let number = Qpn::new(attributes.qp_num);
        let state = open.hca().query_target(domain.handle(), number)?.qp_state;
        open_target(context, domain.handle(), number, qp_context, state)
    })
}

fn number_of(xrc_qp_num: u32) -> Result<Qpn, Errno> {
    if xrc_qp_num > 0xff_ffff { Err(INVALID) } else { Ok(Qpn::new(xrc_qp_num)) }
}

/// Creates a receive queue pair; the context is its first registered user. Only the domain of `init_attr`,
/// which has OFED 1.x's length, is used.
pub(crate) extern "C" fn ibv_create_xrc_rcv_qp(
    init_attr: In<'_, ofed_qp_init_attr>,
    xrc_rcv_qpn: Out<'_, u32>,
) -> c_int {
    status(Call::ibv_create_xrc_rcv_qp, || {
        let (init, number_target) = (init_attr.get()?, xrc_rcv_qpn.required()?);
        let domain = live::<Xrcd>(init.xrc_domain)?;
        let context = domain.context()?;
        let source = EventSource::of_number(domain.context_pointer());
        let made = context.hca().create_qp(&QpInit {
            qp_type: QpType::XrcTarget,
            pd: None,
            send_cq: None,
            recv_cq: None,
            srq: None,
            xrcd: Some(domain.handle()),
            capacity: QpCapacity::default(),
            signal_all: false,
            cookie: source.cookie(),
        });
        let (number, _) = made?;
        // An event that was queued already shows the number that it has when the program gets it.
        source.set_number(number);
        context.registered(TargetRegistration::of_creator(number), source);
        number_target.set(number.value());
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_modify_xrc_rcv_qp(
    xrc_domain: *mut ibv_xrcd,
    xrc_qp_num: u32,
    attr: In<'_, ibv_qp_attr>,
    attr_mask: c_int,
) -> c_int {
    status_of(Call::ibv_modify_xrc_rcv_qp, CallSubject::on(xrc_domain), || {
        let domain = live::<Xrcd>(xrc_domain)?;
        let mask = AttributeMask::from_bits_retain(attr_mask as u32);
        let attributes = read_attributes(attr, mask)?;
        let number = number_of(xrc_qp_num)?;
        Ok(domain.context()?.hca().modify_target(domain.handle(), number, &attributes, mask)?)
    })
}

/// Returns all attributes; the mask is a hint.
pub(crate) extern "C" fn ibv_query_xrc_rcv_qp(
    xrc_domain: *mut ibv_xrcd,
    xrc_qp_num: u32,
    attr: Out<'_, ibv_qp_attr>,
    attr_mask: c_int,
    init_attr: Out<'_, ofed_qp_init_attr>,
) -> c_int {
    status_of(Call::ibv_query_xrc_rcv_qp, CallSubject::on(xrc_domain), || {
        let domain = live::<Xrcd>(xrc_domain)?;
        let (attr, init_attr) = (attr.required()?, init_attr.required()?);
        let number = number_of(xrc_qp_num)?;
        let attributes = domain.context()?.hca().query_target(domain.handle(), number)?;
        let c = attributes_to(&attributes);
        let mut base: ibv_qp_init_attr = zeroed();
        base.cap = c.cap;
        base.qp_type = QPT_XRC;
        write_attributes(&attr, &c, attr_mask);
        init_attr.set(ofed_qp_init_attr { base, xrc_domain });
        Ok(())
    })
}

/// Registers a user; registering twice is the same as once.
pub(crate) extern "C" fn ibv_reg_xrc_rcv_qp(xrc_domain: *mut ibv_xrcd, xrc_qp_num: u32) -> c_int {
    status_of(Call::ibv_reg_xrc_rcv_qp, CallSubject::on(xrc_domain), || {
        let domain = live::<Xrcd>(xrc_domain)?;
        let (context, number) = (domain.context()?, number_of(xrc_qp_num)?);
        context.hca().query_target(domain.handle(), number)?;
        if context.is_registered(number) {
            return Ok(());
        }
        let source = EventSource::of_number(domain.context_pointer());
        source.set_number(number);
        let opened = context.hca().open_target(domain.handle(), number, source.cookie())?;
        context.registered(opened, source);
        Ok(())
    })
}

/// Removes a user; the last one destroys the queue pair.
pub(crate) extern "C" fn ibv_unreg_xrc_rcv_qp(xrc_domain: *mut ibv_xrcd, xrc_qp_num: u32) -> c_int {
    status_of(Call::ibv_unreg_xrc_rcv_qp, CallSubject::on(xrc_domain), || {
        let domain = live::<Xrcd>(xrc_domain)?;
        let (context, number) = (domain.context()?, number_of(xrc_qp_num)?);
        context.hca().query_target(domain.handle(), number)?;
        //= statement:48
        //| A receive queue pair lives until the last registration is ended.
        let (registration, source) = context.unregistered(number).ok_or(INVALID)?;
        // The peer gets the acknowledgements that it is owed before they can no longer be made.
        context.hca().drive_out();
        context.hca().close_target(registration)?;
        context.forget_events(&source);
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_create_xrc_srq(
    pd: *mut ibv_pd,
    xrc_domain: *mut ibv_xrcd,
    xrc_cq: *mut ibv_cq,
    srq_init_attr: InOut<'_, ibv_srq_init_attr>,
) -> *mut ibv_srq {
    pointer_about(Call::ibv_create_xrc_srq, CallSubject::on(pd), || {
        let init = srq_init_attr.get()?;
        shared_receive_queue::create(pd, init.srq_context, &mut init.attr, Some((xrc_domain, xrc_cq)), None)
    })
}
