//! mlx5's indirect memory keys.

use std::sync::Arc;

use pumice_device::memory::{IndirectKeyInit, RegionKeys};
use pumice_device::outside::fork_generation::Generation;
use pumice_device::platform::table::Handle;

use super::context::Context;
use super::protection_domain::Pd;
use super::usage::UseGuard;
use crate::abi::mlx5dv_mkey;
use crate::entry::handles::{CObject, DataPathObject, HandleIdentity, RegisteredObject, SharedStruct, shown};
use crate::platform::errno::Errno;

/// An indirect memory key.
#[repr(C)]
pub(crate) struct Mkey {
    c: SharedStruct<mlx5dv_mkey>,
    generation: Generation,
    handle: Handle,
    init: IndirectKeyInit,
    _domain_use: Option<UseGuard>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Mkey {
    type C = mlx5dv_mkey;
}

impl RegisteredObject for Mkey {
    const KIND: &'static str = "indirect memory key";

    fn identity(c: &mlx5dv_mkey) -> HandleIdentity {
        HandleIdentity::new(c.context, c.lkey)
    }
}

impl DataPathObject for Mkey {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Mkey {
    pub(crate) fn new(domain: &Pd, keys: RegionKeys, init: IndirectKeyInit) -> Mkey {
        let c = mlx5dv_mkey { lkey: keys.lkey, rkey: keys.rkey, context: domain.context_pointer() };
        Mkey {
            c: SharedStruct::new(c),
            generation: Generation::own(),
            handle: keys.handle,
            init,
            _domain_use: domain.begin_use(),
        }
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the largest number of pieces of its layout.
    pub(crate) const fn max_pieces(&self) -> usize {
        self.init.max_pieces as usize
    }

    pub(crate) const fn has_signatures(&self) -> bool {
        self.init.has_signatures
    }

    /// Returns its number, by which the device knows it.
    pub(crate) fn key(&self) -> u32 {
        shown!(self.c, lkey)
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }
}
