//! Objects that one thread at a time may use: those of a thread domain, and completion queues that are made
//! for a single thread.

use std::collections::BTreeMap;

use pumice_platform::call_stack::Stack;

use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::THREAD_DOMAIN_SHARED;
use crate::check::notified::Check;

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
