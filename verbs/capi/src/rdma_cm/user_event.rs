//! Events that a program sends itself.

use std::ffi::c_int;
use std::sync::Arc;

use super::channel::LocalEvent;
use super::event::{Said, USER};
use super::id::Id;
use crate::ground::abi::rdma_cm_id;
use crate::ground::errno::INVALID;
use crate::ground::outcome::number;

/// Wakes whoever waits at the identifier's channel: RDMA_CM_EVENT_USER with this status and number.
pub(crate) unsafe extern "C" fn rdma_write_cm_event(
    id: *mut rdma_cm_id,
    event: u32,
    status: c_int,
    arg: u64,
) -> c_int {
    number(|| {
        // SAFETY: null or live.
        let own = unsafe { Id::of(id) }?;
        if event != USER {
            return Err(INVALID.because(|| "programs write RDMA_CM_EVENT_USER only".to_owned()));
        }
        let state = own.state();
        state.channel.push_saying(LocalEvent { id: Arc::clone(&own), event, status }, Said::Number(arg));
        Ok(0)
    })
}
