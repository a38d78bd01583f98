//! Batches that a shared port receives from its UDP socket and from other processes, and those of them that
//! it forwards.

use pumice_model::port::batch::ReceivedBatch;
use pumice_transport::mrc::constants::OTHER_PORT;
use pumice_transport::wire::{ProcessIndex, peek};

use super::counters::{SharingCounters, count, note_sent};
use super::{PortCounting, PortIdentity, SharedPort};
use crate::backlog::Backlog;
use crate::files::sockets::SendOutcome;
use crate::relay::local::{Local, is_only_for, names_srq_of};
use crate::relay::{Incoming, Relay};
use crate::shared_port::membership::Membership;
use crate::shared_port::report;
use crate::system;
use crate::system::medium::Medium;

/// A function that takes the packets of a batch that arrived.
pub(super) type BatchHandler<'a> = dyn FnMut(&ReceivedBatch<'_>) + 'a;

impl<M: Medium> SharedPort<M> {
    /// Takes a batch or an order from the relay, and returns whether there was one. With an order comes no
    /// batch.
    pub(super) fn receive_relayed(&mut self, now_ns: u64, handler: &mut BatchHandler<'_>) -> bool {
        let mut heard = None;
        self.polling.relay_due = match self.relays.relay.receive() {
            Incoming::Nothing => false,
            Incoming::Repair => {
                self.repair.repair_due = true;
                true
            }
            Incoming::Query(querier) => {
                let PortCounting { counters, device, .. } = &self.counting;
                let text = report::encode(self.membership.index(), &counters.stats(), device.as_deref());
                // A process that did not get the answer asks again.
                let _ = self.relays.relay.answer(querier, &text);
                true
            }
            Incoming::Ring(text, descriptor) => {
                heard = Some((text.to_vec(), descriptor));
                true
            }
            Incoming::ControlCommand(order) => {
                let querier = order.querier;
                if let Some(text) = self.orders.command_queue.take(order) {
                    let _ = self.relays.relay.answer(querier, text);
                }
                self.polling.relay_due = true;
                return true;
            }
            Incoming::Batch(received)
                if is_for(&received, &self.membership, &self.identity, self.medium.port()) =>
            {
                count(&self.counting.counters.taken_over);
                record_taken(self.backlog.as_ref(), &received);
                handler(&received);
                true
            }
            Incoming::Batch(_) | Incoming::Rejected => {
                count(&self.counting.counters.rejected);
                true
            }
        };
        if let Some((text, descriptor)) = heard {
            self.handle_ring_message(now_ns, &text, descriptor);
        }
        let mut more = self.polling.relay_due;
        for (_, relay) in &mut self.relays.adopted {
            match relay.receive() {
                Incoming::Nothing => {}
                Incoming::Batch(received)
                    if is_for(&received, &self.membership, &self.identity, self.medium.port()) =>
                {
                    count(&self.counting.counters.taken_over);
                    record_taken(self.backlog.as_ref(), &received);
                    handler(&received);
                    more = true;
                }
                Incoming::Repair
                | Incoming::Query(_)
                | Incoming::ControlCommand(_)
                | Incoming::Ring(..)
                | Incoming::Batch(_)
                | Incoming::Rejected => {
                    count(&self.counting.counters.rejected);
                    more = true;
                }
            }
        }
        self.polling.relay_due = more;
        more
    }

    pub(super) fn receive_by_medium(&mut self, now_ns: u64, handler: &mut BatchHandler<'_>) -> bool {
        let SharedPort { medium, relays, membership, identity, counting, backlog, polling, .. } = self;
        let (local, relay, counters) = (&identity.local, &relays.relay, &*counting.counters);
        let backlog = backlog.as_ref();
        let offered = backlog.map(Backlog::offered);
        let mut bypassed = false;
        let mut route = Route { local, relay, membership, counters, backlog, stray: None };
        let taken = medium.receive(now_ns, &mut |received| route.route(received, handler));
        if !taken && let (Some(backlog), Some(offered)) = (backlog, offered) {
            backlog.all_taken(offered);
            backlog.record_idle_poll(polling.idle_poll_times.found_empty(now_ns, system::monotonic_ns));
            bypassed = backlog.was_bypassed();
        }
        let stray = route.stray;
        self.repair.repair_due |= bypassed;
        if let Some(process) = stray {
            self.repair.repair_due = true;
            // A batch that was steered before the last repair proves nothing.
            self.repair.evidence = Some(process).filter(|_| self.repair.settled).or(self.repair.evidence);
        }
        taken
    }
}

/// The receivers of a batch's packets.
struct Route<'a> {
    local: &'a Local,
    relay: &'a Relay,
    membership: &'a Membership,
    counters: &'a SharingCounters,
    backlog: Option<&'a Backlog>,
    /// Top byte of the destination number in the last packet that belongs to another process.
    stray: Option<ProcessIndex>,
}

impl Route<'_> {
    fn route(&mut self, received: &ReceivedBatch<'_>, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) {
        // Every socket that joined a group gets the group's datagrams, so they are for every process that
        // gets them.
        if received.flow.destination.is_multicast() || is_only_for(received, self.local) {
            record_taken(self.backlog, received);
            handler(received);
            return;
        }
        // Senders of this project never mix processes in a batch, but a network card may have joined packets
        // that do.
        let segment_bytes = received.segment_bytes.max(1);
        let mut rest = received.bytes;
        while !rest.is_empty() {
            let target = self.target(rest);
            let mut length = segment_bytes;
            while rest.get(length..).is_some_and(|next| !next.is_empty() && self.target(next) == target) {
                length += segment_bytes;
            }
            let (run, next) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            self.forward(target, &ReceivedBatch { bytes: run, ..*received }, handler);
            rest = next;
        }
    }

    /// Returns the process that the first packet is for; `None` if this process handles it.
    fn target(&self, bytes: &[u8]) -> Option<ProcessIndex> {
        peek::process(bytes).filter(|&process| !self.local.is_local(process))
    }

    fn forward(
        &mut self,
        target: Option<ProcessIndex>,
        run: &ReceivedBatch<'_>,
        handler: &mut BatchHandler<'_>,
    ) {
        let Some(process) = target else {
            record_taken(self.backlog, run);
            return handler(run);
        };
        let Some(member) = self.membership.resolve(run.flow.destination, process) else {
            return count(&self.counters.rejected);
        };
        let sent = self.relay.send_batch(self.membership.registry(), member, run);
        note_sent(self.counters, sent);
        match sent {
            // Nothing steers the other port of MRC: a packet from there proves nothing.
            SendOutcome::Done | SendOutcome::Full if run.flow.destination_port == OTHER_PORT => {}
            SendOutcome::Done | SendOutcome::Full => self.stray = Some(process),
            // The handler drops it and counts it with other packets for queue pairs that do not exist.
            SendOutcome::NoProcess => handler(run),
        }
    }
}

fn record_taken(backlog: Option<&Backlog>, received: &ReceivedBatch<'_>) {
    if let Some(backlog) = backlog
        && !received.flow.destination.is_multicast()
    {
        backlog.record_taken(received.bytes, received.segment_bytes);
    }
}

/// Reports what [`is_for`] does for a batch on a known path. `reaches_this_process` says that the addresses
/// and ports are those of batches for this process; they do not change, and are checked once.
#[inline]
pub(super) fn is_for_on_path(
    received: &ReceivedBatch<'_>,
    reaches_this_process: &mut bool,
    membership: &Membership,
    identity: &PortIdentity,
    port: u16,
) -> bool {
    if *reaches_this_process && is_only_for(received, &identity.local) {
        return true;
    }
    let is_for = is_for(received, membership, identity, port);
    *reaches_this_process = is_for && !received.flow.destination.is_multicast();
    is_for
}

/// Reports whether a batch from another process is one that it should have sent here.
pub(super) fn is_for(
    received: &ReceivedBatch<'_>,
    membership: &Membership,
    identity: &PortIdentity,
    port: u16,
) -> bool {
    let PortIdentity { local, looped, .. } = identity;
    let process = membership.process();
    let bound = membership.address();
    let destination = received.flow.destination;
    if destination.is_multicast() {
        return looped.takes(&received.flow) && received.flow.destination_port == port;
    }
    (bound.is_unspecified() || bound == destination)
        && [port, OTHER_PORT].contains(&received.flow.destination_port)
        && (is_only_for(received, local) || received.segments().all(|one| names_srq_of(one, process)))
}
