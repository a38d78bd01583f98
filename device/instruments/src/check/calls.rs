//! What the checker is told of calls, of lives of objects, of forks, threads and the end.

use pumice_calls::Call;

use super::checker::Checker;
use super::context::{Found, related};
use super::holder::set_own_call;
use super::kind::FindingKind;
use super::objects::Object;
use super::told::Effect;
use crate::waits::Vain;

impl Checker {
    /// The program gets an object from a call.
    pub fn object_made(&mut self, address: u64, kind: &'static str, call: &'static str) {
        let made = self.context.here();
        self.context.objects.add(address, self.context.own, kind, call, made.clone());
        self.tell(|check, context| check.object_made(context, kind, call, &made));
    }

    /// The program has destroyed an object.
    pub fn object_destroyed(&mut self, address: u64) {
        if self.context.objects.at(address).is_some() {
            let destroyed = self.context.here();
            self.context.objects.remove(address, destroyed);
            self.tell(|check, context| check.object_destroyed(context, address));
        }
    }

    /// The program tried to destroy an object, and could not.
    pub fn destroy_failed(&mut self, address: u64) {
        if let Some(object) = self.context.objects.at_mut(address) {
            object.is_excused = true;
        }
    }

    /// An object went with its context, which the program closes.
    pub fn object_left_behind(&mut self, address: u64) {
        if let Some(object) = self.context.objects.take(address) {
            self.tell(|check, context| check.object_left_behind(context, &object));
        }
    }

    /// The program gives this address to a call.
    pub fn used(&mut self, address: u64, call: &str) {
        if address != 0 && self.context.objects.at(address).is_none() {
            self.tell(|check, context| check.used(context, address, call));
        }
    }

    /// The program gives a call an object, as in "completion queue", of another context than the call's.
    pub fn of_other_context(&mut self, object: &str) {
        self.tell(|check, context| check.of_other_context(context, object));
    }

    /// Whether the program has an object at this address.
    pub fn is_object(&self, address: u64) -> bool {
        self.context.objects.at(address).is_some()
    }

    /// Whether the program has destroyed the object at this address.
    pub fn is_gone(&self, address: u64) -> bool {
        self.context.objects.gone(address).is_some()
    }

    /// A call of the program's begins in this thread, until [`super::call_ends`].
    pub fn call_begins(&mut self) {
        self.context.calls = self.context.calls.wrapping_add(1);
        set_own_call(self.context.calls);
    }

    /// The program makes a call, which is given the object at this address; 0 if none. True: what was found
    /// should be written before the call, in which it may crash, or which may be the last thing that a child
    /// does.
    pub fn enters(&mut self, call: Call, address: u64) -> bool {
        self.checks.enters(&mut self.context, call, address);
        let objects = &self.context.objects;
        match call {
            Call::ibv_poll_cq | Call::ibv_start_poll => self.cq_polled(address),
            // Closing the parent's device closes nothing of the child's.
            Call::ibv_close_device if objects.inherited(address).is_some() => return false,
            _ => {}
        }
        if address == 0 || self.context.objects.at(address).is_some() {
            return false;
        }
        self.used(address, call.name());
        self.is_gone(address) || self.context.objects.inherited(address).is_some()
    }

    /// The program has cared for forks: it called `ibv_fork_init`, or asked whether that is needed.
    pub fn cares_for_forks(&mut self) {
        self.tell(|check, _| check.cares_for_forks());
    }

    /// The program is about to fork.
    pub fn forks(&mut self) {
        self.tell(|check, context| check.forks(context));
    }

    /// This process is a child: what there is belongs to the parent, who tells of what was found.
    pub fn forked(&mut self) {
        self.context.forked();
        self.forget(None);
        self.tell(|check, context| check.forked(context));
    }

    /// A signal ends the process; [`Checker::ends`] follows.
    pub fn is_ended_by_signal(&mut self) {
        self.tell(|check, context| check.is_ended_by_signal(context));
    }

    /// The process ends; `is_well`: with status 0. An end in error leaves objects as a matter of course.
    pub fn ends(&mut self, is_well: bool) {
        if is_well {
            self.tell(|check, context| check.ends(context));
        }
        let effects = self.settled(true);
        self.effects.extend(effects);
        self.context.cqs.clear();
    }

    /// The program does what is a mistake in itself, here: `sentence` says what, and has {} where the object
    /// at an address belongs. `before`: where what came before it was, and what that is.
    pub fn misused(
        &mut self,
        kind: &'static FindingKind,
        object: u64,
        sentence: &str,
        before: (&str, &[u64]),
    ) {
        let (stack, place) = (self.context.here(), self.context.stack_of(before.1));
        let object = self.context.objects.at(object).map_or_else(|| "the object".to_owned(), Object::name);
        let (numbers, related) = (sentence.replace("{}", &object), vec![related(before.0, &place)]);
        self.context.found(kind, Found { object, numbers, stack, related });
    }

    /// A call of the program was refused with this errno; the sentence is that of the log.
    pub fn call_refused(&mut self, call: Call, errno: i32, sentence: &str) {
        self.tell(|check, context| check.call_refused(context, call, errno, sentence));
    }

    /// Something is waited for in vain, where these return addresses say.
    pub fn waits_in_vain(&mut self, vain: &Vain, addresses: &[u64]) {
        let stack = self.context.stack_of(addresses);
        self.tell(|check, context| check.waits_in_vain(context, vain, &stack));
    }

    /// Time has passed, 25 ms or so: what was held back for that long is found. The failures of which another
    /// finding tells the cause, for the log. `is_over`: nothing is held back any longer.
    pub fn settle(&mut self, is_over: bool) -> Vec<Effect> {
        let mut effects = std::mem::take(&mut self.effects);
        effects.append(&mut self.settled(is_over));
        effects
    }

    fn settled(&mut self, is_over: bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.tell(|check, context| check.settles(context, is_over, &mut effects));
        effects
    }

    /// The object at an address may be used by one thread at a time, together with all others of the domain:
    /// the address of a thread domain, or its own.
    pub fn belongs_to_thread_domain(&mut self, address: u64, domain: u64) {
        self.tell(|check, _| check.belongs_to_thread_domain(address, domain));
    }

    /// A thread makes a call that is given the object at this address.
    pub fn thread_enters(&mut self, thread: u64, call: &'static str, address: u64) {
        self.tell(|check, context| check.thread_enters(context, thread, call, address));
    }

    /// The call ends.
    pub fn thread_leaves(&mut self, thread: u64, address: u64) {
        self.tell(|check, _| check.thread_leaves(thread, address));
    }

    /// The request under way that uses bytes of a range of memory. Nothing is said of those whose region is
    /// deregistered, or whose memory is freed: that is told.
    pub fn user_of(&self, address: u64, bytes: u64) -> Option<u64> {
        self.ask(|check| check.user_of(address, bytes))
    }

    /// The program frees memory of a request by this call.
    pub fn memory_freed(&mut self, request: u64, call: &str) {
        self.tell(|check, context| check.memory_freed(context, request, call));
    }
}
