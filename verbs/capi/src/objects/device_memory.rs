//! Device memory.

use std::sync::Arc;

use pumice_device::memory::DeviceMemory;
use pumice_device::system::lineage::Generation;

use super::context::Context;
use crate::ground::abi::ibv_dm;
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, OfProcess, Shown, shown};

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

    /// Its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }
}
