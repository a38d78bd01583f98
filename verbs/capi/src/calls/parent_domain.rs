//! Thread domains and parent domains.
//!
//! A parent domain can be used wherever a protection domain can. Its allocators are for queues in the
//! program's memory; the queues of this device are elsewhere, so they are never called.

use std::ffi::c_int;

use pumice_calls::Call;

use crate::abi::{ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td};
use crate::entry::arguments::In;
use crate::entry::handles::{hand_out, live, live_or_none, take_back};
use crate::entry::outcome::{pointer_about, status_of};
use crate::gate::CallSubject;
use crate::log::refusal::check_mask;
use crate::objects::context::Context;
use crate::objects::protection_domain::Pd;
use crate::objects::thread_domain::Td;
use crate::platform::errno::INVALID;

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
const MASK_KNOWN: u32 = 7;

pub(crate) extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attributes: In<'_, ibv_parent_domain_init_attr>,
) -> *mut ibv_pd {
    pointer_about(Call::ibv_alloc_parent_domain, CallSubject::on(context), || {
        let open = Context::of(context)?;
        let attributes = attributes.get()?;
        let (domain, thread) = (live::<Pd>(attributes.pd)?, live_or_none::<Td>(attributes.td)?);
        check_mask(Call::ibv_alloc_parent_domain, attributes.comp_mask, MASK_KNOWN)?;
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
