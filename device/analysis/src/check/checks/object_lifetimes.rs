//! Lives of objects: their order, forks, requests under way at their end, and the threads that may use them.
//!
//! Lives of objects: those that are used after their end, and those that are never destroyed.
//!
//! Objects that one thread at a time may use: those of a thread domain, and completion queues that are made
//! for a single thread.

use std::collections::BTreeMap;

use pumice_calls::Call;
use pumice_platform::call_stack::Stack;
use pumice_transport::types::{Cause, QpState};

use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::kind::{
    FORK_WITHOUT_INIT, IN_FLIGHT_AT_DESTROY, OBJECT_OF_OTHER_CONTEXT, OBJECTS_LEFT, THREAD_DOMAIN_SHARED,
    USED_AFTER_DESTROY, USED_AFTER_FORK,
};
use crate::check::notified::{Check, Hint};
use crate::check::objects::{Object, REGION};

/// The check for programs that fork, have memory registered, and have not prepared for forks.
#[derive(Debug, Default)]
pub(super) struct Forks {
    /// The program has asked for safe forks, or queried whether forks are safe.
    are_known: bool,
}

impl Check for Forks {
    fn enters(&mut self, _: &mut CheckContext, call: Call, _: u64) {
        self.are_known |= call == Call::ibv_fork_init;
    }

    fn prepared_for_forks(&mut self) {
        self.are_known = true;
    }

    fn forks(&mut self, context: &mut CheckContext) {
        let regions = context.objects.count(REGION);
        if regions == 0 || self.are_known {
            return;
        }
        let stack = context.here();
        let first = context.objects.live().into_iter().find(|object| object.kind == REGION);
        let related: Vec<_> =
            first.iter().map(|one| related(format!("{} was made here", one.name()), &one.made)).collect();
        let object = first.map(|one| one.name()).unwrap_or_default();
        let numbers = format!("registered at the fork: {}", counted(regions as u64, REGION));
        context.found(&FORK_WITHOUT_INIT, FindingParts { object, numbers, stack, related });
    }
}

/// The check for queue pairs that the program destroys or resets while their requests are not complete.
#[derive(Debug, Default)]
pub(super) struct InFlight;

impl Check for InFlight {
    fn logged(&mut self, context: &mut CheckContext, number: u32, cause: &Cause, _: Option<&Hint>) {
        let Cause::DroppedByReset { .. } = cause else { return };
        let Some(qp) = context.qps.get(&number) else { return };
        let (object, numbers) = (qp.name.clone(), format!("{} {cause}", qp.name));
        let related = vec![related(format!("{object} was made here"), &qp.calls.made)];
        let stack = context.here();
        context.found(&IN_FLIGHT_AT_DESTROY, FindingParts { object, numbers, stack, related });
    }

    fn qp_destroyed(&mut self, context: &mut CheckContext, number: u32) {
        let Some(qp) = context.qps.get(&number) else { return };
        if qp.counts.signaled == 0 || qp.state != QpState::Rts || qp.service != "RC" {
            return;
        }
        let (object, count) = (qp.name.clone(), counted(qp.counts.signaled, "signaled send request"));
        let numbers = format!("not completed of {object}: {count}");
        let related = vec![related(format!("{object} was made here"), &qp.calls.made)];
        let stack = context.here();
        context.found(&IN_FLIGHT_AT_DESTROY, FindingParts { object, numbers, stack, related });
    }
}

/// Number of objects of thread domains that are tracked; further ones are not checked.
const MAX_MEMBERS: usize = 1 << 17;

/// The check for two threads that are inside of one domain at a time.
#[derive(Debug, Default)]
pub(super) struct ThreadDomains {
    /// Domains by the addresses of their objects. A domain is named by an address, too.
    domains: BTreeMap<u64, u64>,
    /// Thread that is inside of each domain; further ones are reported.
    inside: BTreeMap<u64, ThreadInDomain>,
}

/// A thread in a call with an object of a domain.
#[derive(Debug)]
struct ThreadInDomain {
    thread: u64,
    call: &'static str,
    address: u64,
    stack: Stack,
}

impl Check for ThreadDomains {
    fn forked(&mut self, _: &mut CheckContext) {
        *self = ThreadDomains::default();
    }

    fn object_destroyed(&mut self, _: &mut CheckContext, address: u64) {
        if let Some(domain) = self.domains.remove(&address)
            && self.inside.get(&domain).is_some_and(|inside| inside.address == address)
        {
            self.inside.remove(&domain);
        }
    }

    fn belongs_to_thread_domain(&mut self, address: u64, domain: u64) {
        if self.domains.len() < MAX_MEMBERS {
            self.domains.insert(address, domain);
        }
    }

    fn thread_enters(&mut self, context: &mut CheckContext, thread: u64, call: &'static str, address: u64) {
        let Some(domain) = self.domains.get(&address).copied() else { return };
        let stack = context.here();
        let inside = ThreadInDomain { thread, call, address, stack: stack.clone() };
        let Some(other) = self.inside.get(&domain).filter(|other| other.thread != thread) else {
            self.inside.insert(domain, inside);
            return;
        };
        let name = |address| context.objects.at(address).map(|object| object.name()).unwrap_or_default();
        let (object, its) = (name(address), name(other.address));
        let promise = match domain == address {
            true => "the program made it for a single thread".to_owned(),
            false => format!("both objects are of {}", name(domain)),
        };
        let numbers = format!(
            "a thread calls {call} with {object} while another is in {} with {its}; {promise}",
            other.call
        );
        let made = context.objects.at(address).map(|object| object.made.clone()).unwrap_or_default();
        let related = vec![
            related("the other thread is here", &other.stack),
            related(format!("{object} was made here"), &made),
        ];
        context.found(&THREAD_DOMAIN_SHARED, FindingParts { object, numbers, stack, related });
    }

    fn thread_leaves(&mut self, thread: u64, address: u64) {
        let Some(domain) = self.domains.get(&address) else { return };
        if self.inside.get(domain).is_some_and(|inside| inside.thread == thread) {
            self.inside.remove(domain);
        }
    }
}

/// The check for objects that the program uses after it gave them back, or does not destroy.
#[derive(Debug, Default)]
pub(super) struct ObjectLifetimes;

impl Check for ObjectLifetimes {
    fn object_left_behind(&mut self, context: &mut CheckContext, object: &Object) {
        let stack = context.here();
        report_left(context, object, stack, "when its device was closed");
    }

    fn used(&mut self, context: &mut CheckContext, address: u64, call: &str) {
        if let Some(former) = context.objects.former(address).cloned() {
            let stack = context.here();
            let name = former.object.name();
            let related = vec![
                related(format!("{name} was destroyed here"), &former.destroyed),
                related(format!("{name} was made here"), &former.object.made),
            ];
            let numbers = format!("{call} is given {name}, which is destroyed");
            context.found(&USED_AFTER_DESTROY, FindingParts { object: name, numbers, stack, related });
        } else if let Some(object) = context.objects.inherited(address).cloned() {
            let stack = context.here();
            let name = object.name();
            let numbers = format!("the child calls {call} with {name} of its parent");
            let related = vec![related(format!("{name} was made here, by the parent"), &object.made)];
            context.found(&USED_AFTER_FORK, FindingParts { object: name, numbers, stack, related });
        }
    }

    fn of_other_context(&mut self, context: &mut CheckContext, object: &str) {
        let stack = context.here();
        let numbers = format!("the {object} is of another context");
        let found = FindingParts { object: object.to_owned(), numbers, stack, related: Vec::new() };
        context.found(&OBJECT_OF_OTHER_CONTEXT, found);
    }

    fn ends(&mut self, context: &mut CheckContext) {
        for object in context.objects.live() {
            let stack = object.made.clone();
            report_left(context, &object, stack, "at the end of the process");
        }
    }
}

fn report_left(context: &mut CheckContext, object: &Object, stack: Stack, when: &str) {
    if object.is_excused {
        return;
    }
    let name = object.name();
    let numbers = format!("{name}, made by {}, was there {when}", object.call);
    let related = vec![related(format!("{name} was made here"), &object.made)];
    context.found(&OBJECTS_LEFT, FindingParts { object: name, numbers, stack, related });
}
