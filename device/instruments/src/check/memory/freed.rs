//! Memory that the program frees, and memory that is filled so that programs notice that they read too early.

use super::super::checker::{Checker, Found, related};
use super::super::kind::FREED_WHILE_IN_USE;
use super::payload::Contents;
use super::requests::{Posted, Role};
use super::span::Span;
use super::state::{Fill, Watch};

impl Checker {
    /// The buffers of posted receives are filled like this.
    pub fn poisons_by(&mut self, fill: Fill) {
        self.memory.fill = Some(fill);
    }

    /// Who wants to know where the memory of posted requests lies.
    pub fn tells_bounds_to(&mut self, watch: Watch) {
        self.memory.watch = Some(watch);
    }

    pub(super) fn tell_bounds(&mut self) {
        let Some(watch) = self.memory.watch else { return };
        if !self.memory.requests.has_changed() {
            return;
        }
        let bounds = self.memory.requests.bounds();
        if bounds != self.memory.bounds {
            self.memory.bounds = bounds;
            watch(bounds.0, bounds.1);
        }
    }

    /// A receive is posted, whose buffers no other request uses.
    pub(super) fn poison(&mut self, posted: &Posted) {
        let Some(fill) = self.memory.fill else { return };
        let ranges: Vec<(u64, usize)> =
            posted.spans().map(|span| (span.start, usize::try_from(span.bytes()).unwrap_or(0))).collect();
        // Memory that cannot be written fails the receive when its message comes.
        let _ = fill(&ranges);
    }

    /// The request under way that uses bytes of a range of memory. Nothing is said of those whose region is
    /// deregistered, or whose memory is freed: that is told.
    pub fn user_of(&self, address: u64, bytes: u64) -> Option<u64> {
        let under_way = |identity: &u64| {
            self.memory.requests.at(*identity).is_some_and(|posted| {
                let is_over = posted.is_settled && posted.role == Role::Payload;
                let is_registered =
                    posted.parts.iter().all(|part| self.memory.regions.at(part.key).is_some());
                !is_over && !posted.is_freed && is_registered
            })
        };
        self.memory.requests.overlapping(Span::new(address, bytes)).into_iter().filter(under_way).min()
    }

    /// The program frees memory of a request by this call.
    pub fn memory_freed(&mut self, request: u64, call: &str) {
        let stack = self.here();
        let Some(posted) = self.memory.requests.at_mut(request) else { return };
        (posted.is_freed, posted.at_post) = (true, Contents::Unknown);
        let posted = posted.clone();
        let object = self.owner_of(posted.queue);
        let (role, wr_id, bytes) = (posted.role.name(), posted.wr_id, posted.bytes());
        let numbers = format!(
            "{call} gives back memory that {role} of {object}, {wr_id:#x}, uses for its {bytes} bytes and \
             that is under way"
        );
        let related = vec![related("it was posted here", &posted.stack)];
        self.found(&FREED_WHILE_IN_USE, Found { object, numbers, stack, related });
    }
}
