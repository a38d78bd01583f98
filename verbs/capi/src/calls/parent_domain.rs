//! Thread domains and parent domains.
//!
//! A thread domain promises that one thread uses what is made in it. The device's locks are cheap when
//! nobody else wants them, so the promise is noted and not used.
//!
//! A parent domain stands for a protection domain wherever one is asked for. Its allocators are for
//! queues in the program's memory; the queues of this device are elsewhere, so they are never called.

use std::ffi::c_int;

use crate::calls::protection_domain::{Pd, Usage};
use crate::ground::abi::{ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td};
use crate::ground::errno::INVALID;
use crate::ground::handles::{Held, Identity, Listed, Shown, hand_out, live, live_or_none, take_back};
use crate::ground::outcome::{pointer, status};
use crate::ground::refusal::check_mask;
use crate::objects::context::Context;

/// A thread domain.
#[repr(C)]
pub(crate) struct Td {
    c: Shown<ibv_td>,
    usage: Usage,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Td {
    type C = ibv_td;
}

impl Listed for Td {
    const KIND: &'static str = "thread domain";

    fn identity(c: &ibv_td) -> Identity {
        Identity::new(c.context, 0)
    }
}

/// `init_attr` begins with its mask, of which no bit has a meaning.
pub(crate) unsafe extern "C" fn alloc_td(context: *mut ibv_context, init_attr: *mut u32) -> *mut ibv_td {
    pointer(|| {
        // SAFETY: null or open; null or the caller's structure.
        let comp_mask = unsafe {
            Context::of(context)?;
            init_attr.as_ref()
        };
        check_mask("ibv_alloc_td", *comp_mask.ok_or(INVALID)?, 0)?;
        Ok(hand_out(Td { c: Shown::new(ibv_td { context }), usage: Usage::default() }))
    })
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    status(|| {
        // SAFETY: null or live.
        unsafe { live::<Td>(td) }?.usage.check_unused("thread domain", "parent domains")?;
        // SAFETY: the program gives it back.
        unsafe { take_back::<Td>(td) };
        Ok(())
    })
}

/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS`, `..._PD_CONTEXT` and `..._ALLOW_CC_UNPROTECTED_ALLOC`. The last
/// allows what this device has no use for: it reads the program's memory as the program does, encrypted or
/// not.
const MASK_ALLOCATORS: u32 = 1;
const MASK_KNOWN: u32 = 7;

pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attributes: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    pointer(|| {
        // SAFETY: null or open; null or the caller's structure, with pointers that are null or live.
        let (domain, thread, attributes) = unsafe {
            Context::of(context)?;
            let attributes = attributes.as_ref().ok_or(INVALID)?;
            (live::<Pd>(attributes.pd)?, live_or_none::<Td>(attributes.td)?, attributes)
        };
        check_mask("ibv_alloc_parent_domain", attributes.comp_mask, MASK_KNOWN)?;
        let allocators = attributes.comp_mask & MASK_ALLOCATORS != 0;
        if allocators && (attributes.alloc.is_null() || attributes.free.is_null()) {
            return Err(INVALID.because(|| "parent domain: both allocators or none".to_owned()));
        }
        if domain.is_parent() || domain.context_pointer() != context {
            return Err(INVALID
                .because(|| "a parent domain is made of a protection domain of its context".to_owned()));
        }
        Ok(hand_out(Pd::parent_of(domain, thread.map(|thread| thread.usage.begin()))))
    })
}
