//! Who hears of the calls of the program: one row each, in the order in which they are told.
//!
//! They listen to [`Event::Call`] and [`Event::Idle`] only, in the thread that makes the call, and are told
//! no time: reading a clock would cost more than most of them do. Whether calls of the data path come here
//! at all follows from who listens ([`super::state`]).

use pumice_device::event::{CallMade, CallPhase, Event};
use pumice_device::ground::order;
use pumice_device::outside;

use super::{inventory, state};
use crate::ground::{check, waits};

/// The watch over waits asks first what a thread polls, the checker learns of a call before the world hands
/// over to another thread, and the recorded order has what is left to do.
const SUBSCRIBERS: [fn(&Event<'_>); 6] =
    [waits::hear, check::hear, hand_over, keep_order, state::hear, inventory::hear];

/// Tells all of them.
pub(super) fn tell(event: &Event<'_>) {
    for hear in SUBSCRIBERS {
        hear(event);
    }
}

/// In a world, another thread may run before each call, and after each look in vain.
fn hand_over(event: &Event<'_>) {
    match event {
        Event::Call { phase: CallPhase::Enters, .. } if outside::world::is_here() => outside::world::point(),
        Event::Idle { .. } if outside::world::is_here() => outside::world::looked_in_vain(),
        _ => {}
    }
}

/// The order of calls is recorded, or imposed.
fn keep_order(event: &Event<'_>) {
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
