//! mlx5's indirect memory keys.

use std::sync::Arc;

use pumice_device::ground::table::Handle;
use pumice_device::memory::{IndirectKeyInit, RegionKeys};
use pumice_device::outside::lineage::Generation;

use super::context::Context;
use super::protection_domain::Pd;
use super::usage::Use;
use crate::ground::abi::mlx5dv_mkey;
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, OfProcess, Shown, shown};

/// An indirect memory key.
#[repr(C)]
pub(crate) struct Mkey {
    c: Shown<mlx5dv_mkey>,
    generation: Generation,
    handle: Handle,
    init: IndirectKeyInit,
    _domain_use: Option<Use>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Mkey {
    type C = mlx5dv_mkey;
}

impl Listed for Mkey {
    const KIND: &'static str = "indirect memory key";

    fn identity(c: &mlx5dv_mkey) -> Identity {
        Identity::new(c.context, c.lkey)
    }
}

impl OfProcess for Mkey {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Mkey {
    pub(crate) fn new(domain: &Pd, keys: RegionKeys, init: IndirectKeyInit) -> Mkey {
        let c = mlx5dv_mkey { lkey: keys.lkey, rkey: keys.rkey, context: domain.context_pointer() };
        Mkey {
            c: Shown::new(c),
            generation: Generation::own(),
            handle: keys.handle,
            init,
            _domain_use: domain.begin_use(),
        }
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// Most pieces of its layout.
    pub(crate) const fn most_pieces(&self) -> usize {
        self.init.most_pieces as usize
    }

    pub(crate) const fn has_signatures(&self) -> bool {
        self.init.has_signatures
    }

    /// Its number, as the device knows it.
    pub(crate) fn key(&self) -> u32 {
        shown!(self.c, lkey)
    }

    /// Its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }
}
