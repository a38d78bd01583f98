//! Device memory.

use std::sync::Arc;

use pumice_device::memory::{DeviceMemory, DeviceMemoryPool};
use pumice_device::outside::fork_generation::{Generation, PerProcess};

use super::context::Context;
use crate::abi::ibv_dm;
use crate::entry::handles::{
    CObject, DataPathObject, HandleIdentity, RegisteredObject, SharedStruct, is_inherited, shown,
};
use crate::log::settings::profile;
use crate::platform::errno::Errno;

/// Device memory that a child may allocate through contexts that it inherited: as much as one device has.
static OF_CHILD: PerProcess<DeviceMemoryPool> =
    PerProcess::new(|_| DeviceMemoryPool::new(profile().map_or(0, |profile| profile.limits.max_dm_size)));

/// Allocates through a context that this process inherited. It needs no state of the parent, and rdma-core's
/// own tests allocate in children.
///
/// # Errors
/// Fails as [`DeviceMemoryPool::allocate`].
pub(crate) fn allocate_in_child(length: u64, log_align: u32) -> Result<Arc<DeviceMemory>, Errno> {
    Ok(OF_CHILD.allocate(length, log_align)?)
}

/// Device memory of a program.
#[repr(C)]
pub(crate) struct Dm {
    c: SharedStruct<ibv_dm>,
    generation: Generation,
    memory: Arc<DeviceMemory>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Dm {
    type C = ibv_dm;
}

impl RegisteredObject for Dm {
    const KIND: &'static str = "device memory";

    fn identity(c: &ibv_dm) -> HandleIdentity {
        HandleIdentity::new(c.context, c.handle)
    }
}

impl DataPathObject for Dm {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Dm {
    pub(crate) fn new(c: ibv_dm, memory: Arc<DeviceMemory>) -> Dm {
        Dm { c: SharedStruct::new(c), generation: Generation::own(), memory }
    }

    pub(crate) const fn memory(&self) -> &Arc<DeviceMemory> {
        &self.memory
    }

    /// Returns its handle in the command file.
    pub(crate) fn handle(&self) -> u32 {
        shown!(self.c, handle)
    }

    /// Reports whether a child allocated it through a context that it inherited: no command file has it.
    pub(crate) fn is_of_inherited_context(&self) -> bool {
        is_inherited::<Context>(shown!(self.c, context))
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }
}
