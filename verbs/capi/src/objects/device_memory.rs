//! Device memory.

use std::sync::Arc;

use pumice_device::memory::{DeviceMemory, DeviceMemoryPool};
use pumice_device::outside::lineage::{Generation, PerProcess};

use super::context::Context;
use crate::ground::abi::ibv_dm;
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, OfProcess, Shown, is_inherited, shown};
use crate::ground::settings::profile;

/// What a child may allocate through contexts that it inherited: as much as one device has.
static OF_CHILD: PerProcess<DeviceMemoryPool> =
    PerProcess::new(|_| DeviceMemoryPool::new(profile().map_or(0, |profile| profile.limits.max_dm_size)));

/// Allocates through a context that this process inherited. Nothing of the parent is needed, and rdma-core's
/// own tests allocate in children.
///
/// # Errors
/// As [`DeviceMemoryPool::allocate`].
pub(crate) fn allocate_in_child(length: u64, log_align: u32) -> Result<Arc<DeviceMemory>, Errno> {
    Ok(OF_CHILD.allocate(length, log_align)?)
}

/// Device memory of a program.
#[repr(C)]
pub(crate) struct Dm {
    c: Shown<ibv_dm>,
    generation: Generation,
    memory: Arc<DeviceMemory>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Dm {
    type C = ibv_dm;
}

impl Listed for Dm {
    const KIND: &'static str = "device memory";

    fn identity(c: &ibv_dm) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

impl OfProcess for Dm {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Dm {
    pub(crate) fn new(c: ibv_dm, memory: Arc<DeviceMemory>) -> Dm {
        Dm { c: Shown::new(c), generation: Generation::own(), memory }
    }

    pub(crate) const fn memory(&self) -> &Arc<DeviceMemory> {
        &self.memory
    }

    /// Its handle in the command file.
    pub(crate) fn handle(&self) -> u32 {
        shown!(self.c, handle)
    }

    /// Whether a child allocated it through a context that it inherited: no command file has it.
    pub(crate) fn is_of_inherited_context(&self) -> bool {
        is_inherited::<Context>(shown!(self.c, context))
    }

    /// Its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }
}
