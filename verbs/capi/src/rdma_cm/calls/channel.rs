//! Event channels, and fetching events from them.

use std::ffi::c_int;
use std::mem::{self, MaybeUninit};

use pumice_calls::Call;

use crate::ground::abi::{rdma_cm_event, rdma_event_channel};
use crate::ground::cancellation::blocking;
use crate::ground::check;
use crate::ground::errno::INVALID;
use crate::ground::gate::About;
use crate::ground::outcome::{TRY_AGAIN, attempt, pointer, value};
use crate::rdma_cm::constants::{event_name, says_failure};
use crate::rdma_cm::events::event::Event;
use crate::rdma_cm::events::fetch::next_event;
use crate::rdma_cm::id::identifier::{Channel, ChannelPointer};
use crate::rdma_cm::id::shared::all;

pub(crate) extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer(Call::rdma_create_event_channel, || {
        // Without a device there are no events.
        all()?;
        Ok(Channel::new()?.hand_out())
    })
}

/// Identifiers that are still on it keep what they need of it. A thread that waits in it, or is about to,
/// waits for ever, as in rdma-core; the channel then stays.
pub(crate) extern "C" fn rdma_destroy_event_channel(channel: ChannelPointer) {
    value((), || {
        if check::is_on() {
            check::misuse::destroys_channel(channel.addr(), &channel.identifiers());
        }
        if let Some(channel) = channel.take_back()
            && !channel.is_nonblocking()
            && channel.reader.stays()
        {
            mem::forget(channel);
        }
    });
}

/// The next event of a channel: waits for it unless the descriptor is O_NONBLOCK (EAGAIN). A signal
/// ends the wait (EINTR). A thread that waits can be cancelled.
pub(crate) extern "C-unwind" fn rdma_get_cm_event(
    channel: ChannelPointer,
    mut event: Option<&mut MaybeUninit<*mut rdma_cm_event>>,
) -> c_int {
    blocking(c_int::from(TRY_AGAIN), || {
        attempt(Call::rdma_get_cm_event, About::NOTHING, || {
            let event = event.as_deref_mut().ok_or(INVALID)?;
            let channel = channel.channel()?.ok_or(INVALID)?;
            let next = next_event(&channel)?;
            let of = next.waiter().as_ptr().addr();
            let (about, failed) = (next.id().as_ptr().addr(), failure(&next));
            let pointer = next.hand_out();
            check::tell(|checker| checker.cm_event_got(of as u64, pointer.addr() as u64));
            if check::is_on() {
                check::misuse::got_event(pointer.addr(), about, failed);
            }
            event.write(pointer);
            Ok(0)
        })
    })
}

/// If an event says that its identifier is not connected: the addresses of the identifier and of its queue
/// pair, and the event's name.
fn failure(event: &Event) -> Option<(usize, usize, String)> {
    let (kind, _) = event.facts();
    let name = says_failure(kind).then(|| event_name(kind as c_int).to_string_lossy().into_owned())?;
    let id = event.id();
    Some((id.as_ptr().addr(), id.c.qp().addr(), name))
}
