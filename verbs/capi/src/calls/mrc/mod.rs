//! The calls of libmrc: queue pairs over many paths beside those of verbs, on the same device, protection
//! domains and memory. Its completion queues and channels are those of verbs.

pub(crate) mod context;
pub(crate) mod control;
pub(crate) mod control_profiles;
pub(crate) mod ev_events;
pub(crate) mod queue_pair;

use std::sync::Arc;

use crate::abi::{ibv_context, mrc_context};
use crate::entry::handles::live;
use crate::objects::mrc::MrcContext;
use crate::platform::errno::Errno;

/// Returns a context of libmrc, and the pointer to its context of verbs.
fn context_of(context: *mut mrc_context) -> Result<(Arc<MrcContext>, *mut ibv_context), Errno> {
    let held = live::<MrcContext>(context)?;
    let of_verbs = held.context_pointer();
    Ok((held, of_verbs))
}
