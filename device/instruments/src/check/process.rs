//! The process: lives of objects, forks, and the end.

use pumice_calls::Call;

use super::checker::{Checker, Found, counted, related};
use super::kind::{
    FORK_WITHOUT_INIT, OBJECT_OF_OTHER_CONTEXT, OBJECTS_LEFT, USED_AFTER_DESTROY, USED_AFTER_FORK,
};
use super::objects::Object;
use super::queues::{Async, Threads};

/// What messages call memory regions.
pub(super) const REGION: &str = "memory region";

impl Checker {
    /// The program gets an object from a call.
    pub fn object_made(&mut self, address: u64, kind: &'static str, call: &'static str) {
        let made = self.here();
        if kind == REGION && self.looks_for_slow {
            self.count_registration(&made);
        }
        self.objects.add(address, self.own, kind, call, made);
    }

    /// The program has destroyed an object.
    pub fn object_destroyed(&mut self, address: u64) {
        if self.objects.at(address).is_some() {
            let destroyed = self.here();
            self.objects.remove(address, destroyed);
            self.leaves_thread_domain(address);
        }
    }

    /// The program tried to destroy an object, and could not.
    pub fn destroy_failed(&mut self, address: u64) {
        if let Some(object) = self.objects.at_mut(address) {
            object.is_excused = true;
        }
    }

    /// An object went with its context, which the program closes.
    pub fn object_left_behind(&mut self, address: u64) {
        if let Some(object) = self.objects.take(address) {
            let stack = self.here();
            self.tell_left(&object, stack, "when its device was closed");
        }
    }

    fn tell_left(&mut self, object: &Object, stack: super::stack::Stack, when: &str) {
        if object.is_excused {
            return;
        }
        let name = object.name();
        let numbers = format!("{name}, made by {}, was there {when}", object.call);
        let related = vec![related(format!("{name} was made here"), &object.made)];
        self.found(&OBJECTS_LEFT, Found { object: name, numbers, stack, related });
    }

    /// The program gives this address to a call.
    pub fn used(&mut self, address: u64, call: &str) {
        if address == 0 || self.objects.at(address).is_some() {
            return;
        }
        if let Some(gone) = self.objects.gone(address).cloned() {
            let stack = self.here();
            let name = gone.object.name();
            let related = vec![
                related(format!("{name} was destroyed here"), &gone.destroyed),
                related(format!("{name} was made here"), &gone.object.made),
            ];
            let numbers = format!("{call} is given {name}, which is destroyed");
            self.found(&USED_AFTER_DESTROY, Found { object: name, numbers, stack, related });
        } else if let Some(object) = self.objects.inherited(address).cloned() {
            let stack = self.here();
            let name = object.name();
            let numbers = format!("the child calls {call} with {name} of its parent");
            let related = vec![related(format!("{name} was made here, by the parent"), &object.made)];
            self.found(&USED_AFTER_FORK, Found { object: name, numbers, stack, related });
        }
    }

    /// The program gives a call an object, as in "completion queue", of another context than the call's.
    pub fn of_other_context(&mut self, object: &str) {
        let stack = self.here();
        let numbers = format!("the {object} is of another context");
        let found = Found { object: object.to_owned(), numbers, stack, related: Vec::new() };
        self.found(&OBJECT_OF_OTHER_CONTEXT, found);
    }

    /// Whether the program has destroyed the object at this address.
    pub fn is_gone(&self, address: u64) -> bool {
        self.objects.gone(address).is_some()
    }

    /// The program makes a call, which is given the object at this address; 0 if none. True: what was found
    /// should be written before the call, in which it may crash, or which may be the last thing that a child
    /// does.
    pub fn enters(&mut self, call: Call, address: u64) -> bool {
        self.look_at_posts(call, address);
        match call {
            Call::ibv_poll_cq | Call::ibv_start_poll => self.cq_polled(address),
            Call::ibv_fork_init => self.cares_for_forks(),
            // It may have chosen min_rnr_timer.
            Call::rdma_init_qp_attr => self.asks_for_attributes = true,
            // Closing the parent's device closes nothing of the child's.
            Call::ibv_close_device if self.objects.inherited(address).is_some() => {
                return false;
            }
            _ => {}
        }
        if address == 0 || self.objects.at(address).is_some() {
            return false;
        }
        self.used(address, call.name());
        self.objects.gone(address).is_some() || self.objects.inherited(address).is_some()
    }

    /// The program has cared for forks: it called `ibv_fork_init`, or asked whether that is needed.
    pub fn cares_for_forks(&mut self) {
        self.knows_forks = true;
    }

    /// The program is about to fork.
    pub fn forks(&mut self) {
        let regions = self.objects.count(REGION);
        if regions == 0 || self.knows_forks {
            return;
        }
        let stack = self.here();
        let first = self.objects.live().into_iter().find(|object| object.kind == REGION);
        let related: Vec<_> =
            first.iter().map(|one| related(format!("{} was made here", one.name()), &one.made)).collect();
        let object = first.map(|one| one.name()).unwrap_or_default();
        let numbers = format!("registered at the fork: {}", counted(regions as u64, REGION));
        self.found(&FORK_WITHOUT_INIT, Found { object, numbers, stack, related });
    }

    /// This process is a child: what there is belongs to the parent, who tells of what was found.
    pub fn forked(&mut self) {
        self.objects.forked();
        self.cqs.clear();
        self.cq_handles.clear();
        self.qps.clear();
        self.srqs.clear();
        self.asynchronous = Async::default();
        self.threads = Threads::default();
        self.memory_forked();
        *self.findings() = super::recorded::Findings::default();
    }

    /// The process ends; `is_well`: with status 0. An end in error leaves objects as a matter of course.
    pub fn ends(&mut self, is_well: bool) {
        let cqs = std::mem::take(&mut self.cqs);
        if !is_well {
            return;
        }
        cqs.values().for_each(|cq| self.tell_never_polled(cq));
        self.tell_events_left(&cqs);
        for object in self.objects.live() {
            let stack = object.made.clone();
            self.tell_left(&object, stack, "at the end of the process");
        }
    }
}
