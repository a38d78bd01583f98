//! Memory that the program frees, and memory that is filled so that programs notice that they read too early.

use super::super::context::{CheckContext, FindingParts, related};
use super::super::kind::FREED_WHILE_IN_USE;
use super::payload::BufferContents;
use super::requests::PostedRequest;
use super::role::BufferRole;
use super::span::ByteSpan;
use super::state::Memory;

impl Memory {
    /// Notifies of the bounds of posted requests' memory, if they have changed.
    pub(super) fn report_bounds(&mut self, context: &CheckContext) {
        let Some(watch) = context.callbacks.watch else { return };
        if !self.requests.has_changed() {
            return;
        }
        let bounds = self.requests.bounds();
        if bounds != self.bounds {
            self.bounds = bounds;
            watch(bounds.0, bounds.1);
        }
    }

    /// Fills the buffers of a posted receive, which no other request uses.
    pub(super) fn poison(&mut self, context: &CheckContext, posted: &PostedRequest) {
        let Some(fill) = context.callbacks.fill else { return };
        let ranges: Vec<(u64, usize)> =
            posted.spans().map(|span| (span.start, usize::try_from(span.bytes()).unwrap_or(0))).collect();
        // Memory that cannot be written fails the receive when its message comes.
        let _ = fill(&ranges);
    }

    /// Returns the request that uses bytes of a range of memory and is not known to be over. Requests whose
    /// region is deregistered, or whose memory is freed, are left out: they are reported already.
    pub(super) fn outstanding_user(&self, address: u64, bytes: u64) -> Option<u64> {
        let under_way = |identity: &u64| {
            self.requests.at(*identity).is_some_and(|posted| {
                let is_over = posted.is_settled && posted.role == BufferRole::Payload;
                let is_registered = posted.parts.iter().all(|part| self.regions.at(part.key).is_some());
                !is_over && !posted.is_freed && is_registered
            })
        };
        self.requests.overlapping(ByteSpan::new(address, bytes)).into_iter().filter(under_way).min()
    }

    /// Handles memory of a request that the program frees by this call.
    pub(super) fn is_freed(&mut self, context: &mut CheckContext, request: u64, call: &str) {
        let stack = context.here();
        let Some(posted) = self.requests.at_mut(request) else { return };
        (posted.is_freed, posted.at_post) = (true, BufferContents::Unknown);
        let posted = posted.clone();
        let object = self.owner_of(context, posted.queue);
        let (role, wr_id, bytes) = (posted.role.name(), posted.wr_id, posted.bytes());
        let numbers = format!(
            "{call} gives back memory that {role} of {object}, {wr_id:#x}, uses for its {bytes} bytes, and \
             {}",
            posted.reason_in_use()
        );
        let related = vec![related("it was posted here", &posted.stack)];
        context.found(&FREED_WHILE_IN_USE, FindingParts { object, numbers, stack, related });
    }
}
