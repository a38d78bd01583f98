//! Fetching events: by the calls that do it, and by the calls of synchronous identifiers, which wait for
//! their event.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use super::event::{Event, acknowledge};
use super::translation::translate;
use crate::ground::cancellation::RESTART;
use crate::ground::errno::Errno;
use crate::ground::waits::{self, Waiting};
use crate::rdma_cm::constants::REJECTED;
use crate::rdma_cm::id::identifier::{Channel, Id, channels};
use crate::rdma_cm::id::registry::registry;
use crate::rdma_cm::id::shared::all;

/// The next event of a channel, if there is one.
///
/// # Errors
/// Those of opening the device.
pub(crate) fn take(channel: &Channel) -> Result<Option<Event>, Errno> {
    let mut registry = registry();
    if let Some(event) = channel.pop_local() {
        return Ok(Some(Event::local(event)));
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

/// The next event of a channel, which the calling thread has fetched: waits for it unless the program has
/// made the channel's descriptor O_NONBLOCK.
///
/// # Errors
/// EAGAIN, EINTR. [`crate::ground::cancellation::RESTART`]: no event has come within the slice of the
/// attempt.
pub(crate) fn next_event(channel: &Channel) -> Result<Event, Errno> {
    loop {
        let taken = take(channel)?;
        let is_empty = taken.is_none() && !channel.is_nonblocking();
        channel.reader.is_at(is_empty);
        match taken {
            Some(taken) => return Ok(taken.fetched()),
            None if is_empty => channel.sleep().inspect_err(|errno| {
                if *errno == RESTART {
                    waits::sleeps(|| sleeps_for_connections(channel));
                }
            })?,
            None => return Err(Errno(libc::EAGAIN)),
        }
    }
}

/// What a thread waits for that sleeps on this channel.
fn sleeps_for_connections(channel: &Channel) -> Waiting {
    let others = channels();
    let has_none = others.iter().all(|other| other.as_ptr() != channel.as_ptr());
    let waiting = others.iter().fold(0_u32, |sum, other| sum.saturating_add(other.waiting()));
    Waiting::SleepsForConnections { has_none, elsewhere: if has_none { waiting } else { 0 } }
}

/// Acknowledges the event in `id->event`, and waits for the next of a synchronous identifier.
///
/// # Errors
/// Those of [`next_event`].
pub(crate) fn next_of(id: &Id) -> Result<Event, Errno> {
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

/// Of a synchronous identifier: waits for the event that a call has asked for, and leaves it in `id->event`.
///
/// # Errors
/// What the event says; ECONNREFUSED: the peer does not want to; EINTR: a signal came first.
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
