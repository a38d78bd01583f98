//! The completion counter as an object of the C library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pumice_device::objects::completion_counter::CompletionCounter;

use super::context::Context;
use crate::abi::{ibv_comp_cntr, ibv_context};
use crate::entry::handles::{CObject, HandleIdentity, RegisteredObject, SharedStruct, shown};
use crate::platform::errno::Errno;

/// Largest number of completion counters of a process.
pub(crate) const MAX_COUNTERS: u32 = 1 << 16;

/// Number of completion counters that exist in the process.
static COUNTERS: AtomicU32 = AtomicU32::new(0);
/// Number of completion counters that were created so far.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A completion counter.
#[repr(C)]
pub(crate) struct CompCntr {
    c: SharedStruct<ibv_comp_cntr>,
    /// The counter, which is shared with the queue pairs that count in it.
    counter: Arc<CompletionCounter>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for CompCntr {
    type C = ibv_comp_cntr;
}

impl RegisteredObject for CompCntr {
    const KIND: &'static str = "completion counter";

    fn identity(c: &ibv_comp_cntr) -> HandleIdentity {
        HandleIdentity::new(c.context, c.handle)
    }
}

impl CompCntr {
    /// Creates a counter.
    ///
    /// # Errors
    /// ENOMEM: the process has [`MAX_COUNTERS`] counters.
    pub(crate) fn new(context: *mut ibv_context) -> Result<CompCntr, Errno> {
        let more = |count: u32| (count < MAX_COUNTERS).then_some(count + 1);
        if COUNTERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            let sentence = || format!("the process has all of its {MAX_COUNTERS} completion counters");
            return Err(Errno(libc::ENOMEM).because(sentence));
        }
        let handle = MADE.fetch_add(1, Ordering::Relaxed);
        Ok(CompCntr { c: SharedStruct::new(ibv_comp_cntr { context, handle }), counter: Arc::default() })
    }

    /// Returns the context of the counter.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }

    pub(crate) const fn counter(&self) -> &Arc<CompletionCounter> {
        &self.counter
    }

    /// Checks that no queue pair uses the counter.
    ///
    /// # Errors
    /// EBUSY: queue pairs count in the counter.
    pub(crate) fn check_unused(&self) -> Result<(), Errno> {
        let users = Arc::strong_count(&self.counter) - 1;
        if users == 0 {
            return Ok(());
        }
        Err(Errno(libc::EBUSY).because(|| {
            format!("queue pairs count in the completion counter ({users} times); destroy them first")
        }))
    }
}

impl Drop for CompCntr {
    fn drop(&mut self) {
        COUNTERS.fetch_sub(1, Ordering::Relaxed);
    }
}
