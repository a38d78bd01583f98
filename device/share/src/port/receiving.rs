//! What a shared port receives from its UDP socket and from other processes, and what of it goes on to them.

use pumice_ports::Received;
use pumice_transport::wire::{ProcessIndex, peek};

use super::SharedPort;
use super::counters::{ShareCounters, count, note_sent};
use super::looped::LoopedGroups;
use crate::backlog::Backlog;
use crate::local::{Local, is_only_for, names_srq_of};
use crate::medium::Medium;
use crate::membership::Membership;
use crate::relay::{Incoming, Relay};
use crate::sockets::Sent;
use crate::{report, system};

impl<M: Medium> SharedPort<M> {
    /// Takes a batch from the relay. True if anything was taken. With an order comes no batch.
    pub(super) fn receive_relayed(&mut self, now_ns: u64, handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        let mut heard = None;
        self.relay_due = match self.relay.receive() {
            Incoming::Nothing => false,
            Incoming::Look => {
                self.repair_due = true;
                true
            }
            Incoming::Ask(asker) => {
                let text =
                    report::encode(self.membership.index(), &self.counters.stats(), self.device.as_deref());
                // A process that does not wait for the answer asks again.
                let _ = self.relay.answer(asker, &text);
                true
            }
            Incoming::Ring(text, descriptor) => {
                heard = Some((text.to_vec(), descriptor));
                true
            }
            Incoming::Order(order) => {
                let asker = order.asker;
                if let Some(text) = self.orders.take(order) {
                    let _ = self.relay.answer(asker, text);
                }
                self.relay_due = true;
                return true;
            }
            Incoming::Batch(received)
                if is_for(&received, &self.membership, &self.local, &self.looped, self.medium.port()) =>
            {
                count(&self.counters.taken_over);
                took(self.backlog.as_ref(), &received);
                handler(&received);
                true
            }
            Incoming::Batch(_) | Incoming::Rejected => {
                count(&self.counters.rejected);
                true
            }
        };
        if let Some((text, descriptor)) = heard {
            self.hear_of_ring(now_ns, &text, descriptor);
        }
        let mut more = self.relay_due;
        for (_, relay) in &mut self.adopted {
            match relay.receive() {
                Incoming::Nothing => {}
                Incoming::Batch(received)
                    if is_for(&received, &self.membership, &self.local, &self.looped, self.medium.port()) =>
                {
                    count(&self.counters.taken_over);
                    took(self.backlog.as_ref(), &received);
                    handler(&received);
                    more = true;
                }
                Incoming::Look
                | Incoming::Ask(_)
                | Incoming::Order(_)
                | Incoming::Ring(..)
                | Incoming::Batch(_)
                | Incoming::Rejected => {
                    count(&self.counters.rejected);
                    more = true;
                }
            }
        }
        self.relay_due = more;
        more
    }

    pub(super) fn receive_by_medium(&mut self, now_ns: u64, handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        let SharedPort { medium, relay, membership, local, counters, backlog, looks, .. } = self;
        let backlog = backlog.as_ref();
        let offered = backlog.map(Backlog::offered);
        let mut bypassed = false;
        let mut route = Route { local, relay, membership, counters, backlog, stray: None };
        let taken = medium.receive(now_ns, &mut |received| route.route(received, handler));
        if !taken && let (Some(backlog), Some(offered)) = (backlog, offered) {
            backlog.all_taken(offered);
            backlog.looked(looks.found_empty(now_ns, system::monotonic_ns));
            bypassed = backlog.was_bypassed();
        }
        let stray = route.stray;
        self.repair_due |= bypassed;
        if let Some(process) = stray {
            self.repair_due = true;
            // One that was steered before the last repair proves nothing.
            self.evidence = Some(process).filter(|_| self.settled).or(self.evidence);
        }
        taken
    }
}

/// Where the packets of a batch go.
struct Route<'a> {
    local: &'a Local,
    relay: &'a Relay,
    membership: &'a Membership,
    counters: &'a ShareCounters,
    backlog: Option<&'a Backlog>,
    /// Top byte of the number in the last packet that is another process's.
    stray: Option<ProcessIndex>,
}

impl Route<'_> {
    fn route(&mut self, received: &Received<'_>, handler: &mut dyn FnMut(&Received<'_>)) {
        // Every socket that joined a group gets the group's datagrams: they are for every process that has
        // them.
        if received.flow.destination.is_multicast() || is_only_for(received, self.local) {
            took(self.backlog, received);
            handler(received);
            return;
        }
        // Batches of ours never mix processes, but a network card may have joined packets that do.
        let segment_bytes = received.segment_bytes.max(1);
        let mut rest = received.bytes;
        while !rest.is_empty() {
            let target = self.target(rest);
            let mut length = segment_bytes;
            while rest.get(length..).is_some_and(|next| !next.is_empty() && self.target(next) == target) {
                length += segment_bytes;
            }
            let (run, next) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            self.forward(target, &Received { bytes: run, ..*received }, handler);
            rest = next;
        }
    }

    /// The process that the first packet is for; `None`: this process looks at it.
    fn target(&self, bytes: &[u8]) -> Option<ProcessIndex> {
        peek::process(bytes).filter(|&process| !self.local.is_local(process))
    }

    fn forward(
        &mut self,
        target: Option<ProcessIndex>,
        run: &Received<'_>,
        handler: &mut dyn FnMut(&Received<'_>),
    ) {
        let Some(process) = target else {
            took(self.backlog, run);
            return handler(run);
        };
        let Some(member) = self.membership.resolve(run.flow.destination, process) else {
            return count(&self.counters.rejected);
        };
        let sent = self.relay.send_batch(self.membership.registry(), member, run);
        note_sent(self.counters, sent);
        match sent {
            Sent::Done | Sent::Full => self.stray = Some(process),
            // Dropped and counted with other packets for queue pairs that do not exist.
            Sent::NoProcess => handler(run),
        }
    }
}

fn took(backlog: Option<&Backlog>, received: &Received<'_>) {
    if let Some(backlog) = backlog
        && !received.flow.destination.is_multicast()
    {
        backlog.took(received.bytes, received.segment_bytes);
    }
}

/// As [`is_for`], of a batch on a path that is known; `leads_here`: its addresses and ports are those that
/// batches for this process have. They stay so, and are looked at once.
#[inline]
pub(super) fn is_for_on_way(
    received: &Received<'_>,
    leads_here: &mut bool,
    membership: &Membership,
    local: &Local,
    looped: &LoopedGroups,
    port: u16,
) -> bool {
    if *leads_here && is_only_for(received, local) {
        return true;
    }
    let is_for = is_for(received, membership, local, looped, port);
    *leads_here = is_for && !received.flow.destination.is_multicast();
    is_for
}

/// Whether a batch from another process is what it should have sent here.
pub(super) fn is_for(
    received: &Received<'_>,
    membership: &Membership,
    local: &Local,
    looped: &LoopedGroups,
    port: u16,
) -> bool {
    let process = membership.process();
    let bound = membership.address();
    let destination = received.flow.destination;
    if destination.is_multicast() {
        return looped.takes(&received.flow) && received.flow.destination_port == port;
    }
    (bound.is_unspecified() || bound == destination)
        && received.flow.destination_port == port
        && (is_only_for(received, local) || received.segments().all(|one| names_srq_of(one, process)))
}
