//! The check for a slow pattern: a queue pair for each message.

use std::collections::HashMap;

use fnv::FnvBuildHasher;
use pumice_platform::call_stack::Stack;

use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::QUEUE_PAIR_PER_MESSAGE;
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};

/// Number of short-lived queue pairs from one call site, one after the other, before they are reported.
const OFTEN: u32 = 64;
/// Maximum number of messages of a short-lived queue pair: a request and its reply.
const FEW: u64 = 2;
/// Maximum number of call sites whose queue pairs are counted.
const MAX_CALL_SITES: usize = 1 << 10;

/// The check for a program that makes a queue pair, sends or receives a message, and destroys the queue pair,
/// again and again.
#[derive(Debug, Default)]
pub(super) struct SlowConnections {
    /// Number of send requests posted to each queue pair.
    posted: PerQueue<u64>,
    call_sites: HashMap<Stack, CallSiteCounts, FnvBuildHasher>,
    /// True once a queue pair whose peer is in this process was reported: such ones are reported only once.
    is_reported_here: bool,
}

/// A call site at which queue pairs are made.
#[derive(Debug, Default)]
struct CallSiteCounts {
    /// Number of queue pairs that were made there and are not destroyed.
    alive: u32,
    /// Number of queue pairs that carried few messages, and of whose call site at most one other queue pair
    /// existed when they were destroyed.
    brief: u32,
}

impl Check for SlowConnections {
    fn forget(&mut self, of: Option<QueueName>) {
        self.posted.forget(of);
    }

    fn forked(&mut self, _: &mut CheckContext) {
        self.call_sites.clear();
    }

    fn object_made(&mut self, context: &mut CheckContext, kind: &'static str, _: &'static str, made: &Stack) {
        if !context.checks_performance || kind != "queue pair" {
            return;
        }
        if self.call_sites.len() < MAX_CALL_SITES || self.call_sites.contains_key(made) {
            let call_site = self.call_sites.entry(made.clone()).or_default();
            call_site.alive = call_site.alive.saturating_add(1);
        }
    }

    fn send_posted(&mut self, context: &mut CheckContext, number: u32, _: bool) {
        if context.checks_performance {
            let posted = self.posted.of(QueueName::Qp(number));
            *posted = posted.saturating_add(1);
        }
    }

    fn qp_destroyed(&mut self, context: &mut CheckContext, number: u32) {
        let Some(qp) = context.qps.get(&number).filter(|_| context.checks_performance) else { return };
        let messages = self.posted.of(QueueName::Qp(number)).saturating_add(qp.counts.received);
        let Some(call_site) = self.call_sites.get_mut(&qp.calls.made) else { return };
        call_site.alive = call_site.alive.saturating_sub(1);
        // Many queue pairs at a time are for many peers.
        let is_brief = (1..=FEW).contains(&messages) && call_site.alive <= 1 && qp.service != "UD";
        call_site.brief = call_site.brief.saturating_add(is_brief.into());
        let is_both = qp.peer_is_here;
        if !is_brief
            || call_site.brief != OFTEN
            || (is_both && std::mem::replace(&mut self.is_reported_here, true))
        {
            return;
        }
        let destroyed = context.here();
        let Some(qp) = context.qps.get(&number) else { return };
        let numbers = format!(
            "{OFTEN} queue pairs were made here one after the other, and carried one or two messages each \
             before they were destroyed"
        );
        let related = vec![related("they were destroyed here", &destroyed)];
        let (object, stack) = (qp.name.clone(), qp.calls.made.clone());
        context.found(&QUEUE_PAIR_PER_MESSAGE, FindingParts { object, numbers, stack, related });
    }
}
