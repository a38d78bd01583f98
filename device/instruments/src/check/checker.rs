//! The checker: it keeps what is known of the program, and tells all checks.

use std::fmt;

use pumice_transport::types::{Peer, QpState};

use super::checks::Checks;
use super::context::{Capture, Context};
use super::kept::Of;
use super::means::{Fill, OwnStack, Read, Switches, Watch, Watchpoints};
use super::of_device::OfDevice;
use super::recorded::Findings;
use super::told::{Check, Effect};

/// Looks at what a program does with verbs, and knows what is wrong with it.
///
/// It is told of calls by those who take them, and of events by [`super::CheckSubscriber`]. It calls nothing
/// but [`Capture`] and what it is lent.
pub struct Checker {
    pub(super) context: Context,
    pub(super) checks: Checks,
    /// Failures whose cause is told, of which the log is to tell.
    pub(super) effects: Vec<Effect>,
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").field("context", &self.context).finish_non_exhaustive()
    }
}

impl Checker {
    /// Knows of nothing yet. `looks_for_slow`: slow ways are findings too.
    pub fn new(capture: Capture, looks_for_slow: bool) -> Checker {
        Checker {
            context: Context::new(capture, looks_for_slow),
            checks: Checks::default(),
            effects: Vec::new(),
        }
    }

    /// What it is told from now on is about this device.
    pub fn on(&mut self, device: OfDevice) -> &mut Checker {
        self.context.own = device;
        self
    }

    /// Tells it of what was there before it knew of anything: where that was made is not known.
    pub fn finds(&mut self, tell: impl FnOnce(&mut Checker)) {
        let capture = std::mem::replace(&mut self.context.capture, |_| {});
        tell(self);
        (self.context.capture, self.context.latest) = (capture, None);
    }

    /// A queue pair that it is told of was in this state, and had this peer; its next send request is the
    /// `next`-th one.
    pub fn qp_is_in(&mut self, number: u32, state: QpState, peer: Option<Peer>, next: u64) {
        self.state_changed(number, state);
        if peer.is_some() {
            self.tell(|check, context| check.state_changed(context, number, QpState::Rtr, peer));
        }
        self.tell(|check, context| {
            check.begins_at(number, next);
            check.state_changed(context, number, state, peer.filter(|_| state != QpState::Rtr));
        });
    }

    /// A queue pair, of whose attributes it was not told, is connected to this peer at an address of its
    /// device.
    pub fn qp_is_connected_here(&mut self, number: u32, peer: u32) {
        if let Some(qp) = self.context.qps.get_mut(&number) {
            (qp.destination, qp.peer_is_here) = (Some(peer), true);
        }
    }

    /// What was found.
    pub fn findings(&mut self) -> &mut Findings {
        &mut self.context.findings
    }

    /// Tells each check something.
    #[inline]
    pub(super) fn tell(&mut self, mut say: impl FnMut(&mut dyn Check, &mut Context)) {
        self.checks.tell(|check| say(check, &mut self.context));
    }

    /// A queue is gone or made anew; all of them if none is named.
    pub(super) fn forget(&mut self, of: Option<Of>) {
        self.tell(|check, _| check.forget(of));
    }

    /// Asks each check until one knows.
    pub(super) fn ask<T>(&self, question: impl Fn(&dyn Check) -> Option<T>) -> Option<T> {
        self.checks.ask(question)
    }

    fn lend(&mut self) {
        self.tell(|check, context| check.means_given(context));
    }

    /// Memory is read like this, to see whether it changes; without it, no contents are looked at.
    pub fn reads_memory_by(&mut self, read: Read) {
        self.context.means.read = Some(read);
        self.lend();
    }

    /// Memory that the device copies at the same moment is read like this; without it, as other memory.
    pub fn reads_mapped_memory_by(&mut self, read: Read) {
        self.context.means.read_at_once = Some(read);
        self.lend();
    }

    /// The stack of the calling thread is known like this; without it, no buffer is said to be on one.
    pub fn knows_stacks_by(&mut self, own_stack: OwnStack) {
        self.context.means.own_stack = Some(own_stack);
        self.lend();
    }

    /// The buffers of posted receives are filled like this.
    pub fn poisons_by(&mut self, fill: Fill) {
        self.context.means.fill = Some(fill);
        self.lend();
    }

    /// Accesses of the program to memory are watched like this; without it, no early use is found.
    pub fn watches_memory_by(&mut self, watchpoints: Watchpoints) {
        self.context.means.watchpoints = Some(watchpoints);
        self.lend();
    }

    /// Who wants to know where the memory of posted requests lies.
    pub fn tells_bounds_to(&mut self, watch: Watch) {
        self.context.means.watch = Some(watch);
        self.lend();
    }

    /// `switches` tells how often the calling thread has waited. Without it, programs that look at memory in
    /// order to know of WRITEs are not found.
    #[must_use]
    pub fn with_switches(mut self, switches: Switches) -> Checker {
        self.context.means.switches = Some(switches);
        self.lend();
        self
    }
}
