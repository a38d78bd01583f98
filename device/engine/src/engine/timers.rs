//! The timers of the engine, and its next deadline.

use std::net::IpAddr;

use pumice_memory::MappingCheck;
use pumice_model::port::batch::Peer;
use pumice_model::port::{LinkChange, Port};
use pumice_platform::clock::earliest;
use pumice_transport::host::PeerProgress;
use pumice_transport::wire::Qpn;

use super::drive::Engine;
use super::queue_pairs::Entries;
use crate::resources::MappingCheckPolicy;

impl Engine {
    /// Runs timers that are due.
    pub(crate) fn expire(&mut self, now_ns: u64, checks: MappingCheckPolicy) {
        if self.plan_effects.outages.is_stopped() && self.plan_effects.is_stopped_at(now_ns, &mut *self.port)
        {
            return;
        }
        self.expire_outages(now_ns);
        self.resources.expire_waits(now_ns);
        let mut any = self.domain_check_deadline_ns().is_some_and(|at_ns| at_ns <= now_ns);
        if any {
            let Engine { queue_pairs, transmission, resources, port, targets, turns, .. } = self;
            let entries = &mut Entries { queue_pairs, budget: &mut transmission.budget };
            let host = &mut resources.host(MappingCheck::Assumed);
            targets.refresh_all(now_ns, entries, host, &mut **port, |index| turns.touched.push(index));
        }
        self.turns.release_held(now_ns);
        while let Some(index) = self.turns.deadlines.pop_due(now_ns) {
            let Some(entry) = self.queue_pairs.at_mut(index) else {
                let Engine { mrc, resources, turns, port, reception, .. } = self;
                let times = (now_ns, reception.drained_ns);
                mrc.expire(index, times, checks, resources, &mut **port, turns);
                any = true;
                continue;
            };
            if entry.qp.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns) {
                let qp = &entry.qp;
                let doubts = qp.peer_silent_since_ns(now_ns).map(|since_ns| (since_ns, qp.timer_due_ns()));
                let times = (now_ns, self.reception.drained_ns);
                let peer = peer_progress(doubts, qp.peer(), times, &mut *self.port);
                let mut host = self.resources.host(checks.of_connections());
                entry.qp.handle_timeout(now_ns, peer, &mut host);
                self.turns.touched.push(index);
            } else {
                let deadline_ns = entry.qp.deadline_ns();
                self.turns.deadlines.register(index, deadline_ns);
            }
            any = true;
        }
        if any {
            self.settle();
        }
        self.acknowledgements.reply.expire(now_ns);
        let Engine { gsi, port, .. } = self;
        gsi.expire(now_ns, &mut **port);
        self.send_mads(now_ns);
    }

    /// Brings up ports, puts in cables, and makes timed incidents due, as far as their time has come.
    #[cold]
    fn expire_outages(&mut self, now_ns: u64) {
        while let Some(port_num) = self.plan_effects.outages.cable_in_ns.take_due(now_ns) {
            self.port_conditions()
                .publish_change(port_num, now_ns, |condition| condition.is_cable_out = false);
            self.resources.plug_in_cable(port_num);
        }
        if self.plan_effects.outages.link_over_ns.is_some_and(|over_ns| over_ns <= now_ns) {
            self.plan_effects.outages.link_over_ns = None;
            self.port.change_link(&LinkChange::TemporaryEnded);
        }
        if self.plan_effects.outages.timed_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.resources.advance_to_time(now_ns);
            self.plan_effects.update_timed_deadline(&self.resources);
            self.settle();
        }
        while let Some(port_num) = self.plan_effects.outages.port_up_ns.take_due(now_ns) {
            self.port_conditions().publish_change(port_num, now_ns, |condition| condition.is_down = false);
            self.resources.set_port_up(port_num);
        }
    }

    /// Reports whether the engine has to be driven now although nothing arrives.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns)
    }

    /// Returns when the engine has to be driven although nothing arrives, in ns.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let port_ns = if self.plan_effects.outages.is_stopped() { None } else { self.port.next_event_ns() };
        earliest([self.own_deadline_ns(), port_ns])
    }

    /// Reports whether the engine has nothing to do until a packet comes or the application makes a call,
    /// except to maintain its port.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.own_deadline_ns().is_none_or(|at_ns| at_ns == u64::MAX) && !self.has_backlog()
    }

    /// Returns when [`expire`](Engine::expire) has something to do, in ns:
    /// [`deadline_ns`](Engine::deadline_ns) without the port.
    #[inline]
    pub(crate) fn own_deadline_ns(&self) -> Option<u64> {
        if self.plan_effects.outages.is_stopped() {
            return self.plan_effects.outages.due_ns().filter(|at_ns| *at_ns != u64::MAX);
        }
        earliest([
            self.plan_effects.outages.due_ns(),
            self.turns.deadlines.next_ns(),
            self.turns.held_until_ns,
            self.resources.waits_due_ns(),
            self.gsi.due_ns(),
            self.domain_check_deadline_ns(),
            self.acknowledgements.reply.deadline_ns(),
            self.reception.deadline_ns(),
        ])
    }

    /// Returns when the changes of other processes to shared domains are checked, in ns.
    fn domain_check_deadline_ns(&self) -> Option<u64> {
        self.targets.refresh_deadline_ns(self.resources.objects.xrc.shares())
    }
}

/// Returns what is known about a peer that a queue pair is about to give up: whether its answer may still be
/// unread here, as far as all packets were taken by `drained_ns`; else what the group knows about its
/// process. `doubts` has the time since which the peer is silent, and that at which the timer expired.
pub(super) fn peer_progress(
    doubts: Option<(u64, Option<u64>)>,
    peer: Option<(IpAddr, Qpn)>,
    (now_ns, drained_ns): (u64, u64),
    port: &mut dyn Port,
) -> PeerProgress {
    let Some((since_ns, due_ns)) = doubts else { return PeerProgress::Unknown };
    if due_ns.is_some_and(|due_ns| drained_ns < due_ns) {
        return PeerProgress::Unread;
    }
    match (peer, port.group()) {
        (Some((address, qpn)), Some(group)) => {
            group.peer_progress(now_ns, Peer { address, process: qpn.process() }, since_ns)
        }
        _ => PeerProgress::Unknown,
    }
}
