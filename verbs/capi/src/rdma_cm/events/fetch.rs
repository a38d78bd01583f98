//! Fetching of events: by the calls for it, and by the calls of synchronous identifiers, which wait for their
//! event.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use super::event::{RdmaCmEvent, acknowledge};
use super::translation::translate;
use crate::platform::cancellation::RESTART;
use crate::platform::errno::Errno;
use crate::rdma_cm::constants::REJECTED;
use crate::rdma_cm::id::identifier::{EventChannel, Id, channels};
use crate::rdma_cm::id::registry::registry;
use crate::rdma_cm::id::shared::all;
use crate::waits::{self, ThreadWait};

/// Returns the next event of a channel, if there is one.
///
/// # Errors
/// Fails with the errors of opening the device.
pub(crate) fn take(channel: &EventChannel) -> Result<Option<RdmaCmEvent>, Errno> {
    let mut registry = registry();
    if let Some(event) = channel.pop_local() {
        return Ok(Some(RdmaCmEvent::local(event)));
    }
    for shared in all()? {
        while let Some(event) = shared.hca().cm_event(channel.device(shared.index())) {
            if let Some(event) = translate(&mut registry, shared, event) {
                return Ok(Some(event));
            }
        }
    }
    Ok(None)
}

/// Fetches the next event of a channel for the calling thread: waits for it unless the program has made the
/// channel's descriptor O_NONBLOCK.
///
/// # Errors
/// Fails with EAGAIN, EINTR, and with [`crate::platform::cancellation::RESTART`] if no event has arrived
/// within the slice of the attempt.
pub(crate) fn next_event(channel: &EventChannel) -> Result<RdmaCmEvent, Errno> {
    loop {
        let taken = take(channel)?;
        let is_empty = taken.is_none() && !channel.is_nonblocking();
        channel.reader.is_at(is_empty);
        match taken {
            Some(taken) => return Ok(taken.fetched()),
            None if is_empty => channel.sleep().inspect_err(|errno| {
                if *errno == RESTART {
                    waits::note_sleep(|| sleeps_for_connections(channel));
                }
            })?,
            None => return Err(Errno(libc::EAGAIN)),
        }
    }
}

/// Returns what a thread waits for that sleeps on this channel.
fn sleeps_for_connections(channel: &EventChannel) -> ThreadWait {
    let others = channels();
    let has_none = others.iter().all(|other| other.as_ptr() != channel.as_ptr());
    let waiting = others.iter().fold(0_u32, |sum, other| sum.saturating_add(other.waiting()));
    ThreadWait::SleepsForConnections { has_none, elsewhere: if has_none { waiting } else { 0 } }
}

/// Acknowledges the event in `id->event`, and waits for the next of a synchronous identifier.
///
/// # Errors
/// Fails as [`next_event`].
pub(crate) fn next_of(id: &Id) -> Result<RdmaCmEvent, Errno> {
    acknowledge_last(id);
    let channel = Arc::clone(&id.state().channel);
    next_event(&channel)
}

/// Acknowledges the event in `id->event`, if there is one.
pub(crate) fn acknowledge_last(id: &Id) {
    let last = id.c.event();
    if !last.is_null() {
        id.c.set_event(ptr::null_mut());
        // The program may have acknowledged it itself.
        let _ = acknowledge(last);
    }
}

/// Waits for the event that a call of a synchronous identifier has asked for, and leaves it in `id->event`.
///
/// # Errors
/// Fails with the event's error, with ECONNREFUSED if the peer refuses, and with EINTR if a signal came
/// first.
pub(crate) fn complete(id: &Id) -> Result<c_int, Errno> {
    if !id.state().synchronous {
        return Ok(0);
    }
    //= man:rdma_create_id
    //| A call of a synchronous identifier waits for its event.
    let event = next_of(id)?;
    let facts = event.facts();
    id.c.set_event(event.hand_out());
    match facts {
        (_, 0) => Ok(0),
        (REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
        (_, status) => Err(Errno(status.saturating_abs())),
    }
}
