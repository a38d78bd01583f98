//! Memory that the program frees, and memory that is filled so that programs notice that they read too early.

use super::super::context::{Context, Found, related};
use super::super::kind::FREED_WHILE_IN_USE;
use super::payload::Contents;
use super::requests::Posted;
use super::role::Role;
use super::span::Span;
use super::state::Memory;

impl Memory {
    /// Says where the memory of posted requests lies, if that has changed.
    pub(super) fn tell_bounds(&mut self, context: &Context) {
        let Some(watch) = context.means.watch else { return };
        if !self.requests.has_changed() {
            return;
        }
        let bounds = self.requests.bounds();
        if bounds != self.bounds {
            self.bounds = bounds;
            watch(bounds.0, bounds.1);
        }
    }

    /// A receive is posted, whose buffers no other request uses.
    pub(super) fn poison(&mut self, context: &Context, posted: &Posted) {
        let Some(fill) = context.means.fill else { return };
        let ranges: Vec<(u64, usize)> =
            posted.spans().map(|span| (span.start, usize::try_from(span.bytes()).unwrap_or(0))).collect();
        // Memory that cannot be written fails the receive when its message comes.
        let _ = fill(&ranges);
    }

    /// The request that uses bytes of a range of memory and is not known to be over. Nothing is said of those
    /// whose region is deregistered, or whose memory is freed: that is told.
    pub(super) fn user_under_way(&self, address: u64, bytes: u64) -> Option<u64> {
        let under_way = |identity: &u64| {
            self.requests.at(*identity).is_some_and(|posted| {
                let is_over = posted.is_settled && posted.role == Role::Payload;
                let is_registered = posted.parts.iter().all(|part| self.regions.at(part.key).is_some());
                !is_over && !posted.is_freed && is_registered
            })
        };
        self.requests.overlapping(Span::new(address, bytes)).into_iter().filter(under_way).min()
    }

    /// The program frees memory of a request by this call.
    pub(super) fn is_freed(&mut self, context: &mut Context, request: u64, call: &str) {
        let stack = context.here();
        let Some(posted) = self.requests.at_mut(request) else { return };
        (posted.is_freed, posted.at_post) = (true, Contents::Unknown);
        let posted = posted.clone();
        let object = self.owner_of(context, posted.queue);
        let (role, wr_id, bytes) = (posted.role.name(), posted.wr_id, posted.bytes());
        let numbers = format!(
            "{call} gives back memory that {role} of {object}, {wr_id:#x}, uses for its {bytes} bytes, and \
             {}",
            posted.standing()
        );
        let related = vec![related("it was posted here", &posted.stack)];
        context.found(&FREED_WHILE_IN_USE, Found { object, numbers, stack, related });
    }
}
