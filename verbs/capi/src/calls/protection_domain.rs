//! Protection domains.

use std::ffi::c_int;

use pumice_calls::Call;

use crate::abi::{ibv_context, ibv_pd};
use crate::entry::handles::{hand_out, live, take_back};
use crate::entry::outcome::{pointer_about, status_of};
use crate::gate::CallSubject;
use crate::objects::command_file::OwnedObject;
use crate::objects::context::Context;
use crate::objects::protection_domain::Pd;

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
