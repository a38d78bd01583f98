//! Objects that one thread at a time may use: those of a thread domain, and completion queues that are made
//! for a single thread.

use super::checker::{Checker, Found, related};
use super::kind::THREAD_DOMAIN_SHARED;
use super::queues::Inside;

/// Objects of thread domains that are known; of others nothing is said.
const MAX_MEMBERS: usize = 1 << 17;

impl Checker {
    /// The object at an address may be used by one thread at a time, together with all others of the domain:
    /// the address of a thread domain, or its own.
    pub fn belongs_to_thread_domain(&mut self, address: u64, domain: u64) {
        if self.threads.domains.len() < MAX_MEMBERS {
            self.threads.domains.insert(address, domain);
        }
    }

    /// A thread makes a call that is given the object at this address.
    pub fn thread_enters(&mut self, thread: u64, call: &'static str, address: u64) {
        let Some(domain) = self.threads.domains.get(&address).copied() else { return };
        let stack = self.here();
        let inside = Inside { thread, call, address, stack: stack.clone() };
        let Some(other) = self.threads.inside.get(&domain).filter(|other| other.thread != thread) else {
            self.threads.inside.insert(domain, inside);
            return;
        };
        let name = |address| self.objects.at(address).map(|object| object.name()).unwrap_or_default();
        let (object, its) = (name(address), name(other.address));
        let promise = match domain == address {
            true => "the program made it for a single thread".to_owned(),
            false => format!("both objects are of {}", name(domain)),
        };
        let numbers = format!(
            "a thread calls {call} with {object} while another is in {} with {its}; {promise}",
            other.call
        );
        let made = self.objects.at(address).map(|object| object.made.clone()).unwrap_or_default();
        let related = vec![
            related("the other thread is here", &other.stack),
            related(format!("{object} was made here"), &made),
        ];
        self.found(&THREAD_DOMAIN_SHARED, Found { object, numbers, stack, related });
    }

    /// The call ends.
    pub fn thread_leaves(&mut self, thread: u64, address: u64) {
        let Some(domain) = self.threads.domains.get(&address) else { return };
        if self.threads.inside.get(domain).is_some_and(|inside| inside.thread == thread) {
            self.threads.inside.remove(domain);
        }
    }

    /// An object is destroyed.
    pub(super) fn leaves_thread_domain(&mut self, address: u64) {
        if let Some(domain) = self.threads.domains.remove(&address)
            && self.threads.inside.get(&domain).is_some_and(|inside| inside.address == address)
        {
            self.threads.inside.remove(&domain);
        }
    }
}
