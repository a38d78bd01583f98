//! mlx5's indirect memory keys.

use std::sync::Arc;

use pumice_device::ground::table::Handle;
use pumice_device::memory::RegionKeys;
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
    /// Most pieces of its layout.
    most_pieces: u16,
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
    pub(crate) fn new(domain: &Pd, keys: RegionKeys, most_pieces: u16) -> Mkey {
        let c = mlx5dv_mkey { lkey: keys.lkey, rkey: keys.rkey, context: domain.context_pointer() };
        Mkey {
            c: Shown::new(c),
            generation: Generation::own(),
            handle: keys.handle,
            most_pieces,
            _domain_use: domain.begin_use(),
        }
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) const fn most_pieces(&self) -> usize {
        self.most_pieces as usize
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
