//! The subscribers to the calls of the program: one row each, in the order in which they are notified.
//!
//! They receive [`Event::Call`] and [`Event::Idle`] only, in the thread that makes the call, and without a
//! time: reading a clock would cost more than most of them do. The subscribers also determine whether calls
//! of the data path come here at all ([`super::state`]).

use pumice_device::event::{CallMade, CallPhase, Event};
use pumice_device::outside;
use pumice_device::platform::order;

use super::{inventory, state, world_time};
use crate::{check, waits};

/// The table of subscribers, in this order: the wait watcher first records what a thread polls, the checker
/// learns of a call before the world hands over to another thread, and the recorded order comes after those.
const SUBSCRIBERS: [fn(&Event<'_>); 6] =
    [waits::on_event, check::on_event, yield_in_world, follow_order, state::on_event, inventory::on_event];

/// Notifies all subscribers.
pub(super) fn notify(event: &Event<'_>) {
    for on_event in SUBSCRIBERS {
        on_event(event);
    }
}

/// Lets another thread run, in a world, before each call, after each that posts, and after each idle poll.
fn yield_in_world(event: &Event<'_>) {
    if !outside::world::is_in_world() || world_time::pass(event) {
        return;
    }
    match event {
        Event::Call { phase: CallPhase::Enters, .. } => outside::world::point(),
        // What is posted may complete before the program goes on.
        Event::Call { made: CallMade { call, .. }, phase: CallPhase::Returns } if call.posts() => {
            outside::world::point()
        }
        Event::Idle { .. } => outside::world::idle_poll(),
        _ => {}
    }
}

/// Records or imposes the order of calls.
fn follow_order(event: &Event<'_>) {
    let (Event::Call { made: CallMade { call, .. }, .. } | Event::Idle { made: CallMade { call, .. } }) =
        event
    else {
        return;
    };
    let Some(order) = order::of_process() else { return };
    match event {
        Event::Call { phase: CallPhase::Enters, .. } => order.enters(*call),
        Event::Call { phase: CallPhase::Returns | CallPhase::Fails, .. } => order.leaves(*call, false),
        Event::Idle { .. } => order.leaves(*call, true),
        _ => {}
    }
}
