//! Import of objects of the context that a device's descriptor came from.

use std::ptr;

use pumice_calls::Call;
use pumice_device::platform::table::Handle;

use crate::abi::{ibv_context, ibv_mr, ibv_pd};
use crate::entry::handles::{hand_out, live, take_back};
use crate::entry::outcome::{pointer_about, value};
use crate::gate::CallSubject;
use crate::objects::command_file::OwnedObject;
use crate::objects::context::Context;
use crate::objects::memory_region::Mr;
use crate::objects::protection_domain::Pd;

/// Imports a protection domain of a context with the same command file.
pub(crate) extern "C" fn ibv_import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd {
    pointer_about(Call::ibv_import_pd, CallSubject::on(context), || {
        let open = Context::of(context)?;
        //= man:ibv_import_pd
        //| A protection domain is imported by its handle.
        let handle = open.file().find("protection domain", |owned| match *owned {
            OwnedObject::ProtectionDomain(packed) => {
                Some(Handle::unpack(packed)).filter(|handle| handle.index == pd_handle)
            }
            _ => None,
        })?;
        Ok(hand_out(Pd::new(context, handle)))
    })
}

/// Frees the structure, but not the domain itself.
pub(crate) extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    value((), || {
        if live::<Pd>(pd).is_ok() {
            take_back::<Pd>(pd);
        }
    });
}

/// Imports a memory region of an imported protection domain. Its address is not known: NULL.
pub(crate) extern "C" fn ibv_import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr {
    pointer_about(Call::ibv_import_mr, CallSubject::on(pd), || {
        let domain = live::<Pd>(pd)?;
        let context = domain.context()?;
        context.file().find("memory region", |owned| match *owned {
            OwnedObject::Region(packed) => (Handle::unpack(packed).index == mr_handle).then_some(()),
            _ => None,
        })?;
        let (keys, info) = context.hca().region_at(domain.handle(), mr_handle)?;
        Ok(hand_out(Mr::new(&domain, pd, keys, ptr::null_mut(), info.length as usize)))
    })
}

/// Frees the structure, but not the region itself.
pub(crate) extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    value((), || {
        if live::<Mr>(mr).is_ok() {
            take_back::<Mr>(mr);
        }
    });
}
