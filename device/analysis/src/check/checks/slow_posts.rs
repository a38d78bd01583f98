//! A slow way: calls that post one request each.

use pumice_calls::Call;

use super::many::MANY;
use crate::check::context::{CheckContext, FindingParts};
use crate::check::kind::ONE_POST_PER_DOORBELL;
use crate::check::notified::Check;

/// Number of calls in sequence that could have been one.
const LONG_RUN: u32 = 8;

/// The check for calls of `ibv_post_send` in sequence, without another call between them.
#[derive(Debug, Default)]
pub(super) struct SlowPosts {
    /// Address of the queue pair.
    address: u64,
    /// Number of requests that the last call posted.
    requests: u32,
    /// Number of calls in sequence that posted one request each.
    run: u32,
    /// Number of calls in long sequences.
    wasted: u32,
}

impl Check for SlowPosts {
    fn send_posted(&mut self, _: &mut CheckContext, _: u32, _: bool) {
        self.requests = self.requests.saturating_add(1);
    }

    fn enters(&mut self, context: &mut CheckContext, call: Call, address: u64) {
        if !context.checks_performance {
            return;
        }
        let SlowPosts { address: before, requests, run, wasted: wasted_before } = *self;
        if call != Call::ibv_post_send {
            *self = SlowPosts { wasted: wasted_before, ..SlowPosts::default() };
            return;
        }
        let run = if before == address && requests == 1 { run.saturating_add(1) } else { 0 };
        let wasted = wasted_before.saturating_add(u32::from(run >= LONG_RUN));
        *self = SlowPosts { address, requests: 0, run, wasted };
        if wasted == MANY && wasted_before < MANY {
            let object = context.objects.at(address).map(|object| object.name()).unwrap_or_default();
            let numbers =
                format!("{MANY} calls posted one request each, right after {LONG_RUN} others that did");
            let stack = context.here();
            context
                .found(&ONE_POST_PER_DOORBELL, FindingParts { object, numbers, stack, related: Vec::new() });
        }
    }
}
