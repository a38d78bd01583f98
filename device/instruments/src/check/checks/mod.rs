//! The list of checks. A new one is a file here, and its module and its row below.

mod asleep;
mod async_events;
mod attributes;
mod cm_events;
mod completion_events;
mod early_packets;
mod events_left;
mod failures;
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
mod planned;
mod read_depth;
mod refused_calls;
mod shared_queues;
mod slow_payload;
mod slow_polls;
mod slow_posts;
mod slow_registrations;
mod slow_signals;
mod small_queues;
mod thread_domains;
mod unready_peers;
mod vain_waits;
mod waiting_calls;

use super::memory::Memory;
use super::orders::Ordering;
use super::told::Check;

macro_rules! checks {
    ($($name:ident: $check:ty),* $(,)?) => {
        /// All checks. Each is a field, not a box in a list, so that what it has no method for costs nothing.
        #[derive(Debug, Default)]
        pub(super) struct Checks {
            $($name: $check,)*
        }

        impl Checks {
            /// Tells each check something, in the order of the rows. If several find something at once, that
            /// is the order of the findings.
            #[inline]
            pub(super) fn tell(&mut self, mut say: impl FnMut(&mut dyn Check)) {
                $(say(&mut self.$name);)*
            }

            /// Asks each check until one knows.
            pub(super) fn ask<T>(&self, question: impl Fn(&dyn Check) -> Option<T>) -> Option<T> {
                None$(.or_else(|| question(&self.$name)))*
            }
        }
    };
}

checks! {
    memory: Memory,
    small_queues: small_queues::SmallQueues,
    full_queues: full_queues::FullQueues,
    asleep: asleep::Asleep,
    never_polled: never_polled::NeverPolled,
    fields_of_errors: fields_of_errors::FieldsOfErrors,
    late_receives: late_receives::LateReceives,
    ordering: Ordering,
    attributes: attributes::Attributes,
    read_depth: read_depth::ReadDepth,
    early_packets: early_packets::EarlyPackets,
    mismatches: mismatches::Mismatches,
    in_flight: in_flight::InFlight,
    unready_peers: unready_peers::UnreadyPeers,
    shared_queues: shared_queues::SharedQueues,
    completion_events: completion_events::CompletionEvents,
    async_events: async_events::AsyncEvents,
    cm_events: cm_events::CmEvents,
    never_read: never_read::NeverRead,
    waiting_calls: waiting_calls::WaitingCalls,
    thread_domains: thread_domains::ThreadDomains,
    forks: forks::Forks,
    lives: lives::Lives,
    failures: failures::Failures,
    planned: planned::Planned,
    vain_waits: vain_waits::VainWaits,
    refused_calls: refused_calls::RefusedCalls,
    slow_registrations: slow_registrations::SlowRegistrations,
    slow_posts: slow_posts::SlowPosts,
    slow_polls: slow_polls::SlowPolls,
    slow_payload: slow_payload::SlowPayload,
    slow_signals: slow_signals::SlowSignals,
}
