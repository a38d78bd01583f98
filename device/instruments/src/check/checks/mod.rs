//! The list of checks. A new one is a file here, and its module and its row below.

mod asleep;
mod async_events;
mod attributes;
mod cm_events;
mod completion_events;
mod early_packets;
mod events_left;
mod fields_of_errors;
mod forks;
mod full_queues;
mod in_flight;
mod late_receives;
mod lives;
mod many;
mod mismatches;
mod never_polled;
mod never_read;
mod read_depth;
mod shared_queues;
mod slow_payload;
mod slow_polls;
mod slow_posts;
mod slow_registrations;
mod slow_signals;
mod small_queues;
mod thread_domains;
mod unready_peers;
mod waiting_calls;

use super::memory::Memory;
use super::orders::Ordering;
use super::told::Check;

macro_rules! rows {
    ($($check:path),* $(,)?) => {
        vec![$(Box::<$check>::default()),*]
    };
}

/// All checks, which know of nothing yet, in the order in which they are told. If several find something at
/// once, that is the order of the findings.
pub(super) fn all() -> Vec<Box<dyn Check>> {
    rows![
        Memory,
        small_queues::SmallQueues,
        full_queues::FullQueues,
        asleep::Asleep,
        never_polled::NeverPolled,
        fields_of_errors::FieldsOfErrors,
        late_receives::LateReceives,
        Ordering,
        attributes::Attributes,
        read_depth::ReadDepth,
        early_packets::EarlyPackets,
        mismatches::Mismatches,
        in_flight::InFlight,
        unready_peers::UnreadyPeers,
        shared_queues::SharedQueues,
        completion_events::CompletionEvents,
        async_events::AsyncEvents,
        cm_events::CmEvents,
        never_read::NeverRead,
        waiting_calls::WaitingCalls,
        thread_domains::ThreadDomains,
        forks::Forks,
        lives::Lives,
        slow_registrations::SlowRegistrations,
        slow_posts::SlowPosts,
        slow_polls::SlowPolls,
        slow_payload::SlowPayload,
        slow_signals::SlowSignals,
    ]
}
