//! Event channels, and fetching events from them.

use std::ffi::c_int;
use std::mem::{self, MaybeUninit};

use pumice_calls::Call;

use crate::abi::{rdma_cm_event, rdma_event_channel};
use crate::check;
use crate::entry::outcome::{TRY_AGAIN, attempt, pointer, value};
use crate::gate::CallSubject;
use crate::platform::cancellation::blocking;
use crate::platform::errno::INVALID;
use crate::rdma_cm::constants::{event_name, is_failure_event};
use crate::rdma_cm::events::event::RdmaCmEvent;
use crate::rdma_cm::events::fetch::next_event;
use crate::rdma_cm::id::identifier::{EventChannel, EventChannelPointer};
use crate::rdma_cm::id::shared::all;

pub(crate) extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer(Call::rdma_create_event_channel, || {
        // Without a device there are no events.
        all()?;
        Ok(EventChannel::new()?.hand_out())
    })
}

/// Destroys a channel. Identifiers that still use it keep the parts that they need. A thread that waits in
/// it, or is about to, waits for ever, as in rdma-core; the channel is not freed then.
pub(crate) extern "C" fn rdma_destroy_event_channel(channel: EventChannelPointer) {
    value((), || {
        if check::is_on() {
            check::misuse::destroys_channel(channel.addr(), &channel.identifiers());
        }
        if let Some(channel) = channel.take_back()
            && !channel.is_nonblocking()
            && channel.reader.still_waits()
        {
            mem::forget(channel);
        }
    });
}

/// Returns the next event of a channel: waits for it unless the descriptor is O_NONBLOCK (EAGAIN). A signal
/// ends the wait (EINTR). A waiting thread can be cancelled.
pub(crate) extern "C-unwind" fn rdma_get_cm_event(
    channel: EventChannelPointer,
    mut event: Option<&mut MaybeUninit<*mut rdma_cm_event>>,
) -> c_int {
    blocking(c_int::from(TRY_AGAIN), || {
        attempt(Call::rdma_get_cm_event, CallSubject::NOTHING, || {
            let event = event.as_deref_mut().ok_or(INVALID)?;
            let channel = channel.channel()?.ok_or(INVALID)?;
            let next = next_event(&channel)?;
            let of = next.waiter().as_ptr().addr();
            let (about, failed) = (next.id().as_ptr().addr(), failure(&next));
            let pointer = next.hand_out();
            check::with_checker(|checker| checker.cm_event_got(of as u64, pointer.addr() as u64));
            if check::is_on() {
                check::misuse::got_event(pointer.addr(), about, failed);
            }
            event.write(pointer);
            Ok(0)
        })
    })
}

/// Returns, if an event says that its identifier is not connected, the addresses of the identifier and of its
/// queue pair, and the event's name.
fn failure(event: &RdmaCmEvent) -> Option<(usize, usize, String)> {
    let (kind, _) = event.facts();
    let name = is_failure_event(kind).then(|| event_name(kind as c_int).to_string_lossy().into_owned())?;
    let id = event.id();
    Some((id.as_ptr().addr(), id.c.qp().addr(), name))
}
