//! The checker: it holds what is known of the program, and notifies all checks.

use std::fmt;

use pumice_transport::types::{Peer, QpState};

use super::callbacks::{
    BoundsCallback, FillMemory, OwnStack, ReadMemory, SleepCounter, WaitCounter, Watchpoints,
};
use super::checks::Checks;
use super::context::{CaptureStack, CheckContext};
use super::device_tag::DeviceTag;
use super::notified::{Check, ExplainedFailure};
use super::per_queue::QueueName;
use super::recorded::Findings;

/// The observer of a program's use of verbs, which finds mistakes.
///
/// Code that takes the program's calls notifies it of them, and [`super::CheckSubscriber`] notifies it of
/// events. It calls nothing but [`CaptureStack`] and the functions that its owner provides.
pub struct Checker {
    pub(super) context: CheckContext,
    pub(super) checks: Checks,
    /// Failures whose cause is reported, for the log.
    pub(super) effects: Vec<ExplainedFailure>,
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").field("context", &self.context).finish_non_exhaustive()
    }
}

impl Checker {
    /// Creates a checker without any objects. With `checks_performance`, slow ways are findings too.
    pub fn new(capture: CaptureStack, checks_performance: bool) -> Checker {
        Checker {
            context: CheckContext::new(capture, checks_performance),
            checks: Checks::default(),
            effects: Vec::new(),
        }
    }

    /// Sets the device that the following notifications are about.
    pub fn on(&mut self, device: DeviceTag) -> &mut Checker {
        self.context.own = device;
        self
    }

    /// Sets the time of the device, in ns, at which the following events happen.
    pub fn at(&mut self, now_ns: u64) -> &mut Checker {
        self.context.now_ns = now_ns;
        self
    }

    /// Records objects that existed before the checker: the call sites that made them are not known.
    pub fn finds(&mut self, record_existing: impl FnOnce(&mut Checker)) {
        let capture = std::mem::replace(&mut self.context.sites.capture, |_| {});
        record_existing(self);
        (self.context.sites.capture, self.context.sites.latest) = (capture, None);
    }

    /// Records that a queue pair was in this state, and had this peer; its next send request is the `next`-th
    /// one.
    pub fn qp_is_in(&mut self, number: u32, state: QpState, peer: Option<Peer>, next: u64) {
        self.state_changed(number, state);
        if peer.is_some() {
            self.for_each_check(|check, context| check.state_changed(context, number, QpState::Rtr, peer));
        }
        self.for_each_check(|check, context| {
            check.begins_at(number, next);
            check.state_changed(context, number, state, peer.filter(|_| state != QpState::Rtr));
        });
    }

    /// Records that a queue pair, of whose attributes the checker was not notified, is connected to this peer
    /// at an address of its device.
    pub fn qp_is_connected_here(&mut self, number: u32, peer: u32) {
        if let Some(qp) = self.context.qps.get_mut(&number) {
            (qp.destination, qp.peer_is_here) = (Some(peer), true);
        }
    }

    /// Returns the findings.
    pub fn findings(&mut self) -> &mut Findings {
        &mut self.context.findings
    }

    /// Calls a method of each check.
    #[inline]
    pub(super) fn for_each_check(&mut self, mut visit: impl FnMut(&mut dyn Check, &mut CheckContext)) {
        self.checks.for_each_check(|check| visit(check, &mut self.context));
    }

    /// Makes the checks forget a queue that was destroyed or created again; all queues if none is named.
    pub(super) fn forget(&mut self, of: Option<QueueName>) {
        self.for_each_check(|check, _| check.forget(of));
    }

    /// Asks each check until one returns an answer.
    pub(super) fn ask<T>(&self, question: impl Fn(&dyn Check) -> Option<T>) -> Option<T> {
        self.checks.ask(question)
    }

    fn pass_callbacks(&mut self) {
        self.for_each_check(|check, context| check.callbacks_set(context));
    }

    /// Sets the function that reads memory, to see whether it changes. Without it, no contents are compared.
    pub fn set_memory_reader(&mut self, read: ReadMemory) {
        self.context.callbacks.read = Some(read);
        self.pass_callbacks();
    }

    /// Sets the function that reads memory which the device copies at the same moment. Without it, such
    /// memory is read like other memory.
    pub fn set_mapped_memory_reader(&mut self, read: ReadMemory) {
        self.context.callbacks.read_at_once = Some(read);
        self.pass_callbacks();
    }

    /// Sets the function that returns the stack of the calling thread. Without it, no buffer counts as being
    /// on one.
    pub fn set_stack_source(&mut self, own_stack: OwnStack) {
        self.context.callbacks.own_stack = Some(own_stack);
        self.pass_callbacks();
    }

    /// Sets the function that fills the buffers of posted receives.
    pub fn set_poisoner(&mut self, fill: FillMemory) {
        self.context.callbacks.fill = Some(fill);
        self.pass_callbacks();
    }

    /// Sets the function that counts the sleeps of the calling thread. Without it, sleeps between
    /// polls are not reported.
    pub fn set_sleep_counter(&mut self, sleeps: SleepCounter) {
        self.context.callbacks.sleeps = Some(sleeps);
        self.pass_callbacks();
    }

    /// Sets the functions that watch the program's accesses to memory. Without them, no early use is found.
    pub fn set_watchpoints(&mut self, watchpoints: Watchpoints) {
        self.context.callbacks.watchpoints = Some(watchpoints);
        self.pass_callbacks();
    }

    /// Sets the function that is notified of the bounds of posted requests' memory.
    pub fn set_bounds_callback(&mut self, watch: BoundsCallback) {
        self.context.callbacks.watch = Some(watch);
        self.pass_callbacks();
    }

    /// Sets the function that returns how often the calling thread has waited. Without it, programs that poll
    /// memory in order to notice WRITEs are not found.
    #[must_use]
    pub fn with_wait_counter(mut self, switches: WaitCounter) -> Checker {
        self.context.callbacks.switches = Some(switches);
        self.pass_callbacks();
        self
    }
}
