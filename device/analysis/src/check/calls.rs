//! Notifications to the checker about calls, lives of objects, forks, threads and the end of the process.

use pumice_calls::Call;

use super::checker::Checker;
use super::context::{FindingParts, related, set_own_call};
use super::kind::FindingKind;
use super::notified::ExplainedFailure;
use super::objects::Object;
use crate::waits::StalledWait;

impl Checker {
    /// Records that the program got an object from a call.
    pub fn object_made(&mut self, address: u64, kind: &'static str, call: &'static str) {
        let made = self.context.here();
        self.context.objects.add(address, self.context.own, kind, call, made.clone());
        self.for_each_check(|check, context| check.object_made(context, kind, call, &made));
    }

    /// Records that the program has destroyed an object.
    pub fn object_destroyed(&mut self, address: u64) {
        if self.context.objects.at(address).is_some() {
            let destroyed = self.context.here();
            self.context.objects.remove(address, destroyed);
            self.for_each_check(|check, context| check.object_destroyed(context, address));
        }
    }

    /// Records that the program tried to destroy an object, and that this failed.
    pub fn destroy_failed(&mut self, address: u64) {
        if let Some(object) = self.context.objects.at_mut(address) {
            object.is_excused = true;
        }
    }

    /// Records that an object ended with its context, which the program closes.
    pub fn object_left_behind(&mut self, address: u64) {
        if let Some(object) = self.context.objects.take(address) {
            self.for_each_check(|check, context| check.object_left_behind(context, &object));
        }
    }

    /// Records that the program passes this address to a call.
    pub fn used(&mut self, address: u64, call: &str) {
        if address != 0 && self.context.objects.at(address).is_none() {
            self.for_each_check(|check, context| check.used(context, address, call));
        }
    }

    /// Records that the program passes an object, as in "completion queue", of another context than the
    /// call's.
    pub fn of_other_context(&mut self, object: &str) {
        self.for_each_check(|check, context| check.of_other_context(context, object));
    }

    /// Reports whether the program has an object at this address.
    pub fn is_object(&self, address: u64) -> bool {
        self.context.objects.at(address).is_some()
    }

    /// Reports whether the program has destroyed the object at this address.
    pub fn was_destroyed(&self, address: u64) -> bool {
        self.context.objects.former(address).is_some()
    }

    /// Records that a call of the program begins in this thread; it lasts until [`super::call_ends`].
    pub fn call_begins(&mut self) {
        self.context.calls = self.context.calls.wrapping_add(1);
        set_own_call(self.context.calls);
    }

    /// Records that the program makes a call with the object at this address; 0 if none. Returns true if the
    /// findings should be written before the call, in which the program may crash, or which may be the last
    /// action of a child.
    pub fn enters(&mut self, call: Call, address: u64) -> bool {
        self.checks.enters(&mut self.context, call, address);
        let objects = &self.context.objects;
        match call {
            Call::ibv_poll_cq | Call::ibv_start_poll => self.cq_polled(address),
            // Closing the parent's device closes no object of the child's.
            Call::ibv_close_device if objects.inherited(address).is_some() => return false,
            _ => {}
        }
        if address == 0 || self.context.objects.at(address).is_some() {
            return false;
        }
        self.used(address, call.name());
        self.was_destroyed(address) || self.context.objects.inherited(address).is_some()
    }

    /// Records that the program prepared for forks: it called `ibv_fork_init`, or queried whether that is
    /// needed.
    pub fn prepared_for_forks(&mut self) {
        self.for_each_check(|check, _| check.prepared_for_forks());
    }

    /// Records that the program is about to fork.
    pub fn forks(&mut self) {
        self.for_each_check(|check, context| check.forks(context));
    }

    /// Records that this process is a fork child: its objects belong to the parent, which reports the
    /// findings.
    pub fn forked(&mut self) {
        self.context.forked();
        self.forget(None);
        self.for_each_check(|check, context| check.forked(context));
    }

    /// Records that a signal ends the process; [`Checker::ends`] follows.
    pub fn is_ended_by_signal(&mut self) {
        self.for_each_check(|check, context| check.is_ended_by_signal(context));
    }

    /// Records that the process ends. `is_well` says that it ends with status 0; an end in error leaves
    /// objects as a matter of course.
    pub fn ends(&mut self, is_well: bool) {
        if is_well {
            self.for_each_check(|check, context| check.ends(context));
        }
        let effects = self.settled(true);
        self.effects.extend(effects);
        self.context.cqs.clear();
    }

    /// Records a mistake at the current call site. `sentence` describes it, and has {} where the object at an
    /// address belongs. `before` is the call site of what came before it, and a description of that.
    pub fn misused(
        &mut self,
        kind: &'static FindingKind,
        object: u64,
        sentence: &str,
        before: (&str, &[u64]),
    ) {
        let (stack, call_site) = (self.context.here(), self.context.stack_of(before.1));
        let object = self.context.objects.at(object).map_or_else(|| "the object".to_owned(), Object::name);
        let (numbers, related) = (sentence.replace("{}", &object), vec![related(before.0, &call_site)]);
        self.context.found(kind, FindingParts { object, numbers, stack, related });
    }

    /// Records that a call of the program was refused with this errno; the sentence is that of the log.
    pub fn call_refused(&mut self, call: Call, errno: i32, sentence: &str) {
        self.for_each_check(|check, context| check.call_refused(context, call, errno, sentence));
    }

    /// Records that something waits in vain, at these return addresses.
    pub fn wait_stalled(&mut self, stalled_wait: &StalledWait, addresses: &[u64]) {
        let stack = self.context.stack_of(addresses);
        self.for_each_check(|check, context| check.wait_stalled(context, stalled_wait, &stack));
    }

    /// Records that time has passed, about 25 ms: failures that were held back for that long become findings.
    /// Returns the failures whose cause another finding names, for the log. With `is_over` nothing is held
    /// back any longer.
    pub fn settle(&mut self, is_over: bool) -> Vec<ExplainedFailure> {
        let mut effects = std::mem::take(&mut self.effects);
        effects.append(&mut self.settled(is_over));
        effects
    }

    fn settled(&mut self, is_over: bool) -> Vec<ExplainedFailure> {
        let mut effects = Vec::new();
        self.for_each_check(|check, context| check.settles(context, is_over, &mut effects));
        effects
    }

    /// Records that the object at an address may be used by one thread at a time, together with all others of
    /// the domain: the address of a thread domain, or the object's own.
    pub fn belongs_to_thread_domain(&mut self, address: u64, domain: u64) {
        self.for_each_check(|check, _| check.belongs_to_thread_domain(address, domain));
    }

    /// Records that a thread makes a call with the object at this address.
    pub fn thread_enters(&mut self, thread: u64, call: &'static str, address: u64) {
        self.for_each_check(|check, context| check.thread_enters(context, thread, call, address));
    }

    /// Records that the call ends.
    pub fn thread_leaves(&mut self, thread: u64, address: u64) {
        self.for_each_check(|check, _| check.thread_leaves(thread, address));
    }

    /// Returns the request under way that uses bytes of a range of memory. Requests whose region is
    /// deregistered, or whose memory is freed, are left out: they are reported already.
    pub fn user_of(&self, address: u64, bytes: u64) -> Option<u64> {
        self.ask(|check| check.user_of(address, bytes))
    }

    /// Records that the program frees memory of a request by this call.
    pub fn memory_freed(&mut self, request: u64, call: &str) {
        self.for_each_check(|check, context| check.memory_freed(context, request, call));
    }
}
