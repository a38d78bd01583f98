//! Shared receive queues of identifiers, those for XRC included: a process has one XRC domain for all of its
//! identifiers whose programs name none.

use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use super::id::{Id, QPT_XRC_RECV};
use super::queue_pair::{destroy_completion_queues, receive_completion_queue};
use super::shared::shared;
use crate::calls::shared_receive_queue::{create_srq_ex, ibv_destroy_srq};
use crate::calls::xrc_domain::open_xrcd;
use crate::ground::abi::{
    ibv_pd, ibv_srq_init_attr, ibv_srq_init_attr_ex, ibv_xrcd, ibv_xrcd_init_attr, rdma_cm_id,
};
use crate::ground::errno::{Errno, INVALID, errno};
use crate::ground::handles::zeroed;
use crate::ground::outcome::{number, value};
use crate::ground::process::own_process;

/// `IBV_SRQ_INIT_ATTR_*`.
const MASK_TYPE: u32 = 1;
const MASK_PD: u32 = 1 << 1;
const MASK_XRCD: u32 = 1 << 2;
const MASK_CQ: u32 = 1 << 3;
/// `IBV_SRQT_*`.
const TYPE_BASIC: u32 = 0;
const TYPE_XRC: u32 = 1;

/// A pointer to an object that is never freed.
struct Domain(*mut ibv_xrcd);

// SAFETY: all access to the object is shared.
unsafe impl Send for Domain {}

/// The XRC domain of this process's identifiers. A fork has its own.
///
/// # Errors
/// Those of opening one.
pub(crate) fn xrc_domain() -> Result<*mut ibv_xrcd, Errno> {
    static DOMAIN: Mutex<Option<(u32, Domain)>> = Mutex::new(None);
    let shared = shared()?;
    let process = own_process();
    let mut domain = DOMAIN.lock().unwrap_or_else(PoisonError::into_inner);
    match &*domain {
        Some((owner, open)) if *owner == process => Ok(open.0),
        _ => {
            // One without a file.
            let wanted = ibv_xrcd_init_attr { comp_mask: 3, fd: -1, oflags: libc::O_CREAT };
            let open = open_xrcd(shared.context, (&wanted).into());
            if open.is_null() {
                return Err(Errno(errno()));
            }
            *domain = Some((process, Domain(open)));
            Ok(open)
        }
    }
}

/// A shared receive queue of an identifier: its queue pairs use it. Of one that receives by XRC, it is an XRC one.
pub(crate) unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    number(|| {
        // SAFETY: null or live; null or the caller's structure.
        let (own, given) = unsafe { (Id::of(id)?, attr.as_mut().ok_or(INVALID)?) };
        // SAFETY: numbers and pointers.
        let mut all: ibv_srq_init_attr_ex = unsafe { zeroed() };
        all.srq_context = given.srq_context;
        all.attr = given.attr;
        all.comp_mask = MASK_TYPE | MASK_PD;
        all.pd = pd;
        // SAFETY: a field of our own structure.
        all.srq_type = if unsafe { (*own.c()).qp_type } == QPT_XRC_RECV { TYPE_XRC } else { TYPE_BASIC };
        create(&own, &mut all)?;
        given.attr = all.attr;
        Ok(0)
    })
}

/// As `rdma_create_srq`; a domain or a completion queue that is not named is the identifier's.
pub(crate) unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    number(|| {
        // SAFETY: null or live; null or the caller's structure.
        let (own, given) = unsafe { (Id::of(id)?, attr.as_mut().ok_or(INVALID)?) };
        if given.comp_mask & MASK_TYPE == 0 {
            return Err(INVALID);
        }
        create(&own, given)?;
        Ok(0)
    })
}

fn create(id: &Id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Errno> {
    // SAFETY: our own structure, which the program does not use meanwhile.
    let c = unsafe { &mut *id.c() };
    if c.verbs.is_null() {
        return Err(INVALID.because(|| "an identifier without an address is on no device yet".to_owned()));
    }
    if !c.srq.is_null() {
        return Err(INVALID.because(|| "this identifier has a shared receive queue already".to_owned()));
    }
    if attr.comp_mask & MASK_PD == 0 || attr.pd.is_null() {
        attr.pd = c.pd;
        attr.comp_mask |= MASK_PD;
    }
    // SAFETY: null or a live domain.
    if attr.pd.is_null() || unsafe { (*attr.pd).context } != c.verbs {
        return Err(INVALID.because(|| {
            "the protection domain is of another context than the identifier's (id->verbs)".to_owned()
        }));
    }
    if attr.srq_type == TYPE_XRC {
        if attr.comp_mask & MASK_XRCD == 0 || attr.xrcd.is_null() {
            attr.xrcd = xrc_domain()?;
        }
        if attr.comp_mask & MASK_CQ == 0 || attr.cq.is_null() {
            attr.cq = receive_completion_queue(id, attr.attr.max_wr)?;
        }
        attr.comp_mask |= MASK_XRCD | MASK_CQ;
    }
    let srq = create_srq_ex(c.verbs, attr.into());
    if srq.is_null() {
        let failed = Errno(errno());
        if c.qp.is_null() {
            destroy_completion_queues(id);
        }
        return Err(failed);
    }
    c.srq = srq;
    c.pd = attr.pd;
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    value((), || {
        // SAFETY: null or live.
        let Ok(own) = (unsafe { Id::of(id) }) else { return };
        // SAFETY: our own structure and its live queue.
        unsafe {
            let c = &mut *own.c();
            if c.srq.is_null() {
                return;
            }
            ibv_destroy_srq(c.srq);
            c.srq = ptr::null_mut();
            // An XRC one had the identifier's completion queue, unless a queue pair still has it.
            if c.qp.is_null() {
                destroy_completion_queues(&own);
            }
        }
    });
}
