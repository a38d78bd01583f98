//! A port behind switches.

use std::fmt;
use std::sync::Arc;

use pumice_model::counters::Counters;
use pumice_platform::clock::Clock;
use pumice_transport::host::Counter;

use super::ports::{Ports, Route};
use super::transit::{Batch, Transit, TransitPacket};
use super::words::SwitchWords;
use crate::link::{DropTally, GRAIN_NS, MAX_HELD_BYTES, QUEUE_BYTES, wire_bytes};
use pumice_model::network::topology::{QueueReport, Topology};
use pumice_model::port::batch::{GsoBatch, Peer, PortLimits, ReceivedBatch, TransmitError};
use pumice_model::port::{Port, PortLayer};

/// Switches that processes share: their topology, and their state.
#[derive(Clone)]
pub struct Switching {
    /// Topology of the switches. Only hosts that have addresses are connected to them.
    pub topology: Arc<Topology>,
    /// State of the switches.
    pub words: Arc<dyn SwitchWords>,
}

impl fmt::Debug for Switching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switching").field("topology", &self.topology).finish_non_exhaustive()
    }
}

impl Switching {
    /// Returns the contents and statistics of all queues, those of the hosts first.
    pub fn queues(&self) -> Vec<QueueReport> {
        let clock = Clock::monotonic();
        let ports = Ports::new(Arc::clone(&self.topology), Arc::clone(&self.words), clock.clone());
        ports.reports(clock.now_ns())
    }

    /// Resets the counters, and removes what waits.
    pub fn reset(&self) {
        for word in self.words.words() {
            word.store(0, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// A port around a port that takes the packets which leave through switches, to hosts that are connected to
/// them. Packets to other hosts, and packets that arrive, pass unchanged.
pub struct SwitchedPort<P> {
    inner: P,
    ports: Ports,
    transit: Transit,
    grain_ns: u64,
    batches: u64,
    /// Time until which the device has to wait, if it was refused.
    room_at_ns: Option<u64>,
    tally: DropTally,
}

impl<P> fmt::Debug for SwitchedPort<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwitchedPort").field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl<P: Port> SwitchedPort<P> {
    /// Creates a port behind switches. In virtual time each packet goes on at its time; otherwise packets
    /// that are due one soon after the other go on together.
    pub fn new(inner: P, switching: &Switching, clock: &Clock) -> SwitchedPort<P> {
        let Switching { topology, words } = switching.clone();
        SwitchedPort {
            inner,
            ports: Ports::new(topology, words, clock.clone()),
            transit: Transit::default(),
            grain_ns: if clock.is_virtual() { 0 } else { GRAIN_NS },
            batches: 0,
            room_at_ns: None,
            tally: DropTally::default(),
        }
    }

    /// Lets each packet go on at its time if `is_exact`, as in virtual time. In a world with a performance
    /// model the clock stands still meanwhile, and a packet that goes on ahead of its time overtakes those of
    /// other processes.
    #[must_use]
    pub fn each_at_its_time(mut self, is_exact: bool) -> SwitchedPort<P> {
        if is_exact {
            self.grain_ns = 0;
        }
        self
    }

    /// Moves all packets on that are due.
    fn go_on(&mut self, now_ns: u64) {
        let SwitchedPort { inner, ports, transit, grain_ns, room_at_ns, tally, .. } = self;
        if room_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            *room_at_ns = None;
        }
        transit.go_on(now_ns.saturating_add(*grain_ns), ports, tally);
        transit.send_due(now_ns, *grain_ns, inner, tally);
    }

    /// Reports whether the device has to wait, because the queue in front of its own link is full.
    fn is_full(&mut self, own_link: usize, now_ns: u64) -> bool {
        let is_long = self.ports.backlog_bytes(own_link, now_ns) >= QUEUE_BYTES;
        if !is_long && self.transit.held_bytes() < MAX_HELD_BYTES {
            return false;
        }
        let room_at_ns = if is_long {
            self.ports.drained_ns(own_link, QUEUE_BYTES / 2)
        } else {
            self.transit.next_ns(0).unwrap_or(0)
        };
        self.room_at_ns = Some(room_at_ns.max(now_ns.saturating_add(1)));
        self.tally.add(Counter::LinkBusy, 1);
        true
    }
}

impl<P: Port> PortLayer for SwitchedPort<P> {
    type Below = P;

    fn below(&self) -> &P {
        &self.inner
    }

    fn below_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    /// Returns the limits of the port below. Packets to hosts need no ICRC: they get it, if they need one,
    /// when they leave, because their indices in a batch change.
    fn limits_through(&self, peer: Peer) -> PortLimits {
        let limits = self.inner.limits(peer);
        let is_direct = self.ports.host_of(peer.address).is_none();
        PortLimits { needs_icrc: limits.needs_icrc && is_direct, ..limits }
    }

    fn transmit_through(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        self.go_on(now_ns);
        let flow = &batch.path.flow;
        let Some(to) = self.ports.host_of(flow.destination) else {
            return self.inner.transmit(now_ns, batch);
        };
        let route = match self.ports.host_of(flow.source) {
            Some(from) => self.ports.route(from, to, flow),
            None => Route::default(),
        };
        let own_link = route.link(0);
        if own_link.is_some_and(|own_link| self.is_full(own_link, now_ns)) {
            return Err(TransmitError::Busy);
        }
        let segment_bytes = if batch.segment_bytes == 0 { batch.bytes.len() } else { batch.segment_bytes };
        let (path, number) = (batch.path.clone(), self.batches);
        self.batches += 1;
        let common =
            Arc::new(Batch { path, segment_bytes, has_icrc: batch.has_icrc, route, exit: to, number });
        let is_ipv4 = flow.source.is_ipv4();
        let mut queued = 0;
        for (index, packet) in batch.segments().enumerate() {
            let on_wire = wire_bytes(is_ipv4, packet.len()) as u64;
            let mut at_ns = now_ns;
            if let Some(own_link) = own_link
                && let Ok(joined) = self.ports.join(own_link, now_ns, on_wire, false, true)
            {
                at_ns = joined.arrives_ns;
                queued += u64::from(joined.waits);
            }
            self.transit.enqueue(TransitPacket {
                at_ns,
                stage: usize::from(own_link.is_some()),
                index,
                wire_bytes: on_wire,
                is_marked: false,
                waits_since_ns: None,
                is_head: false,
                batch: Arc::clone(&common),
                bytes: packet.to_vec(),
            });
        }
        self.tally.add(Counter::LinkQueued, queued);
        if own_link.is_none() {
            self.go_on(now_ns);
        }
        Ok(())
    }

    fn receive_through(&mut self, now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        self.go_on(now_ns);
        self.inner.receive(now_ns, handler)
    }

    fn held_until_ns(&self) -> Option<u64> {
        [self.transit.next_ns(self.grain_ns), self.room_at_ns].into_iter().flatten().min()
    }

    fn room_at_ns_through(&self) -> Option<u64> {
        self.room_at_ns.or_else(|| self.inner.room_at_ns())
    }

    fn release_through(&mut self, now_ns: u64) {
        self.transit.release(now_ns, &mut self.inner, &self.tally);
        self.inner.release(now_ns);
    }

    fn observe_through(&mut self, counters: &Arc<Counters>) {
        self.tally = DropTally::of(counters);
        self.inner.observe(counters);
    }
}
