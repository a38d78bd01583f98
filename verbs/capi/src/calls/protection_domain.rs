//! Protection domains.

use std::ffi::c_int;

use pumice_calls::Call;

use crate::ground::abi::{ibv_context, ibv_pd};
use crate::ground::gate::About;
use crate::ground::handles::{hand_out, live, take_back};
use crate::ground::outcome::{pointer_about, status_of};
use crate::objects::command_file::Owned;
use crate::objects::context::Context;
use crate::objects::protection_domain::Pd;

pub(crate) extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    pointer_about(Call::ibv_alloc_pd, About::on(context), || {
        let open = Context::of(context)?;
        let handle = open.hca().alloc_pd()?;
        open.own(Owned::ProtectionDomain(handle.pack()));
        Ok(hand_out(Pd::new(context, handle)))
    })
}

/// Deallocates a protection domain or a parent domain.
pub(crate) extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    status_of(Call::ibv_dealloc_pd, About::of(pd), || {
        let domain = live::<Pd>(pd)?;
        domain.check_unused()?;
        if !domain.is_parent() {
            let context = domain.context()?;
            context.hca().dealloc_pd(domain.handle())?;
            context.disown(Owned::ProtectionDomain(domain.handle().pack()));
        }
        take_back::<Pd>(pd);
        Ok(())
    })
}
