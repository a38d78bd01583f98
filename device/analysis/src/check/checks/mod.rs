//! The list of checks. A new one is a file here, and its module and its row below.

mod attributes;
mod datagrams;
mod failures;
mod lost_wakeups;
mod never_read;
mod object_lifetimes;
mod one_sided_resets;
mod refused_calls;
mod slow_requests;
mod slow_waits;
mod small_queues;
mod stalled_waits;
mod unacknowledged_events;
mod unready_peers;

use pumice_calls::Call;
use pumice_model::event::Event;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::types::{RemoteRange, SendRequest, WorkCompletion};
use pumice_transport::wire::OperationClass;

use super::context::CheckContext;
use super::memory::Memory;
use super::notified::Check;
use super::orders::RequestOrdering;

macro_rules! checks {
    ($dollar:tt $($name:ident: $check:ty),* $(,)?) => {
        /// All checks. Each is a field, not a box in a list.
        #[derive(Debug, Default)]
        pub(super) struct Checks {
            $($name: $check,)*
        }

        impl Checks {
            /// Calls `visit` for each check, in the order of the rows. If several find something at once,
            /// that is the order of the findings.
            #[inline]
            pub(super) fn for_each_check(&mut self, mut visit: impl FnMut(&mut dyn Check)) {
                $(visit(&mut self.$name);)*
            }

            /// Asks each check until one returns an answer.
            pub(super) fn ask<T>(&self, question: impl Fn(&dyn Check) -> Option<T>) -> Option<T> {
                None$(.or_else(|| question(&self.$name)))*
            }
        }

        /// Notifies each check of what happens with each message, by calls that the compiler can resolve, so
        /// that they cost nothing where a check has no method for it.
        macro_rules! told_often {
            (@each $dollar checks:ident.$dollar method:ident($dollar($dollar argument:expr),*)) => {
                $($dollar checks.$name.$dollar method($dollar($dollar argument),*);)*
            };
            ($dollar($dollar method:ident($dollar($dollar argument:ident: $dollar kind:ty),*);)*) => {
                impl Checks {
                    $dollar(#[inline]
                    pub(super) fn $dollar method(
                        &mut self,
                        context: &mut CheckContext,
                        $dollar($dollar argument: $dollar kind),*
                    ) {
                        told_often!(@each self.$dollar method(context, $dollar($dollar argument),*));
                    })*
                }
            };
        }
    };
}

checks! {
    $
    memory: Memory,
    small_queues: small_queues::SmallQueues,
    full_queues: small_queues::FullQueues,
    lost_wakeups: lost_wakeups::LostWakeups,
    never_polled: never_read::NeverPolled,
    fields_of_errors: attributes::FieldsOfErrors,
    late_receives: lost_wakeups::LateReceives,
    rnr_storms: unready_peers::RnrStorms,
    datagrams: datagrams::Datagrams,
    ordering: RequestOrdering,
    attributes: attributes::Attributes,
    read_depth: small_queues::ReadDepth,
    early_packets: unready_peers::EarlyPackets,
    mismatches: attributes::Mismatches,
    mrc_rules: attributes::MrcRules,
    in_flight: object_lifetimes::InFlight,
    unready_peers: unready_peers::UnreadyPeers,
    shared_queues: small_queues::SharedQueues,
    completion_events: unacknowledged_events::CompletionEvents,
    async_events: unacknowledged_events::AsyncEvents,
    cm_events: unacknowledged_events::CmEvents,
    waiting_calls: never_read::WaitingCalls,
    thread_domains: object_lifetimes::ThreadDomains,
    forks: object_lifetimes::Forks,
    object_lifetimes: object_lifetimes::ObjectLifetimes,
    one_sided_resets: one_sided_resets::OneSidedResets,
    failures: failures::Failures,
    // Its row is about an effect of failures.
    never_read: never_read::NeverRead,
    planned: refused_calls::Planned,
    refused_calls: refused_calls::RefusedCalls,
    stalled_waits: stalled_waits::StalledWaits,
    slow_registrations: slow_waits::SlowRegistrations,
    slow_posts: slow_requests::SlowPosts,
    slow_polls: slow_requests::SlowPolls,
    slow_payload: slow_requests::SlowPayload,
    slow_signals: slow_requests::SlowSignals,
    slow_connections: slow_waits::SlowConnections,
    slow_events: slow_waits::SlowEvents,
    slow_sleeps: slow_waits::SlowSleeps,
}

told_often! {
    on_event(event: &Event<'_>);
    on_message_event(qp: &QpContext, event: &QpEvent<'_>);
    enters(call: Call, address: u64);
    cq_polled(cq: u32);
    polled(cq: u32, completion: &WorkCompletion);
    send_posted(qp: u32, is_signaled: bool);
    request_posted(qp: u32, message: u64, bytes: u32, request: &SendRequest<'_>);
    posted_from_memory(qp: u32, bytes: u32);
    receive_posted(qp: u32);
    completed(qp: u32, completion: &WorkCompletion, released: u32);
    remote_access(qp: u32, class: OperationClass, range: &RemoteRange, ends: bool);
    remote_write_ended(qp: u32, has_imm: bool);
}
