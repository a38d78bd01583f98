//! What a port is, and what a layer around a port is.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use pumice_events::counters::Counters;
use pumice_ground::link_words::LinkSettings;
use pumice_transport::path::{Flow, Path};

use super::batch::{GsoBatch, Received, TransmitError};
use super::group::ProcessGroup;
use super::limits::{Peer, PeerMedium, PortLimits};

/// What becomes of a link while its device runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkChange {
    /// These words change, and stay so.
    Lasting(LinkSettings),
    /// These words change until [`LinkChange::Over`].
    Passing(LinkSettings),
    /// What was changed for a time is as before.
    Over,
    /// The link is as the device was opened with.
    Restored,
}

/// A way to the network. The caller gives the time; only the simulated port and layers look at it.
pub trait Port: Send {
    /// Sends a batch, all of it or nothing.
    ///
    /// # Errors
    /// See [`TransmitError`]; only `Busy` is worth repeating unchanged.
    fn transmit(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError>;

    /// Receives at most one batch and gives it to `handler`; true if something was taken from the port, even
    /// when it was not fit for the handler.
    fn receive(&mut self, now_ns: u64, handler: &mut dyn FnMut(&Received<'_>)) -> bool;

    /// Whether nothing has come by the ways that are looked at without a system call, and the other ways may
    /// wait for a few looks more. False: only [`receive`](Port::receive) can tell.
    #[inline]
    fn is_quiet(&self) -> bool {
        false
    }

    /// The UDP source port that packets of a flow are to have, asked for before the first of them: that of
    /// `flow`, which was computed for it, or another one that the port can send from.
    fn source_port(&mut self, now_ns: u64, flow: &Flow) -> u16 {
        let _ = now_ns;
        flow.source_port
    }

    /// Whether packets of many connections to this peer go together where they have one source port, and no
    /// network is on the way that would spread them by it.
    fn gathers_flows(&self, peer: Peer) -> bool {
        let _ = peer;
        false
    }

    /// Batches to this peer are going to take this path: a connection was made. What the port prepares for
    /// them, it prepares now, so that the first messages do not wait for it.
    fn expects(&mut self, _now_ns: u64, _path: &Path, _peer: Peer) {}

    /// What fits in a batch to this peer, and the peer's receive buffer.
    fn limits(&self, peer: Peer) -> PortLimits;

    /// Whether another batch of a series ([`GsoBatch::series`]) may be begun now, for which all that
    /// [`limits`](Port::limits) says is as it was for the batch that was sent last. False: the port cannot
    /// tell by the number, and is to be asked by the peer.
    #[inline]
    fn admits_again(&mut self, series: u64) -> bool {
        let _ = series;
        false
    }

    /// What carries batches to this peer now, for people who ask.
    fn medium_to(&self, peer: Peer) -> PeerMedium {
        let _ = peer;
        PeerMedium::Udp("the process does not share its UDP port")
    }

    /// What to poll(2) for readability; empty for simulated ports. Changes on `join` and `leave`.
    fn descriptors(&self) -> Vec<RawFd>;

    /// When the port wants `transmit` or `receive` to be called though nothing arrived: a layer holds packets
    /// back.
    fn next_event_ns(&self) -> Option<u64> {
        None
    }

    /// Until when [`transmit`](Port::transmit) takes no more batches, if it answered `Busy` and the port
    /// knows that. [`next_event_ns`](Port::next_event_ns) is not later.
    fn room_at_ns(&self) -> Option<u64> {
        None
    }

    /// The device behind the port counts here.
    fn observe(&mut self, counters: &Arc<Counters>) {
        if let Some(group) = self.group() {
            group.observe(counters);
        }
    }

    /// Whether one of the layers is a link ([`LinkPort`](super::LinkPort)).
    fn has_link(&self) -> bool {
        false
    }

    /// The link does something else to the packets that come from now on, if there is one.
    fn change_link(&mut self, change: &LinkChange) {
        let _ = change;
    }

    /// The device closes, or its process ends: layers send at once what they hold back. What the port is too
    /// busy for is lost.
    fn release(&mut self, _now_ns: u64) {}

    /// Starts receiving what is sent to a multicast group. A group joined twice must be left twice.
    ///
    /// # Errors
    /// Not a multicast address, or what the operating system says.
    fn join(&mut self, group: IpAddr) -> io::Result<()>;

    /// Undoes one [`join`](Port::join).
    ///
    /// # Errors
    /// The group was not joined.
    fn leave(&mut self, group: IpAddr) -> io::Result<()>;

    /// The processes that share the port; `None` if this process has it alone.
    fn group(&mut self) -> Option<&mut dyn ProcessGroup> {
        None
    }
}

/// A port around a port. The layer says which port is below, and implements what it changes; everything else
/// is the port below's.
pub trait PortLayer: Send {
    /// The kind of the port below.
    type Below: Port + ?Sized;

    /// The port below.
    fn below(&self) -> &Self::Below;

    /// The port below.
    fn below_mut(&mut self) -> &mut Self::Below;

    /// [`Port::limits`] of the whole.
    fn limits_through(&self, peer: Peer) -> PortLimits {
        self.below().limits(peer)
    }

    /// [`Port::admits_again`] of the whole, whose limits may be others than those of the port below.
    fn admits_again_through(&mut self, series: u64) -> bool {
        let _ = series;
        false
    }

    /// [`Port::transmit`] of the whole.
    ///
    /// # Errors
    /// As [`Port::transmit`].
    fn transmit_through(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        self.below_mut().transmit(now_ns, batch)
    }

    /// [`Port::receive`] of the whole.
    fn receive_through(&mut self, now_ns: u64, handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        self.below_mut().receive(now_ns, handler)
    }

    /// When the layer itself wants to be called, because it holds packets back.
    fn held_until_ns(&self) -> Option<u64> {
        None
    }

    /// [`Port::room_at_ns`] of the whole.
    fn room_at_ns_through(&self) -> Option<u64> {
        self.below().room_at_ns()
    }

    /// [`Port::observe`] of the whole.
    fn observe_through(&mut self, counters: &Arc<Counters>) {
        self.below_mut().observe(counters);
    }

    /// [`Port::has_link`] of the whole.
    fn has_link_through(&self) -> bool {
        self.below().has_link()
    }

    /// [`Port::change_link`] of the whole.
    fn change_link_through(&mut self, change: &LinkChange) {
        self.below_mut().change_link(change);
    }

    /// [`Port::release`] of the whole.
    fn release_through(&mut self, now_ns: u64) {
        self.below_mut().release(now_ns);
    }

    /// [`Port::group`] of the whole.
    fn group_through(&mut self) -> Option<&mut dyn ProcessGroup> {
        self.below_mut().group()
    }
}

impl<L: PortLayer> Port for L {
    fn transmit(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        self.transmit_through(now_ns, batch)
    }

    fn receive(&mut self, now_ns: u64, handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        self.receive_through(now_ns, handler)
    }

    fn source_port(&mut self, now_ns: u64, flow: &Flow) -> u16 {
        self.below_mut().source_port(now_ns, flow)
    }

    fn gathers_flows(&self, peer: Peer) -> bool {
        self.below().gathers_flows(peer)
    }

    fn expects(&mut self, now_ns: u64, path: &Path, peer: Peer) {
        self.below_mut().expects(now_ns, path, peer);
    }

    fn limits(&self, peer: Peer) -> PortLimits {
        self.limits_through(peer)
    }

    #[inline]
    fn admits_again(&mut self, series: u64) -> bool {
        self.admits_again_through(series)
    }

    fn medium_to(&self, peer: Peer) -> PeerMedium {
        self.below().medium_to(peer)
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.below().descriptors()
    }

    fn next_event_ns(&self) -> Option<u64> {
        [self.below().next_event_ns(), self.held_until_ns()].into_iter().flatten().min()
    }

    fn room_at_ns(&self) -> Option<u64> {
        self.room_at_ns_through()
    }

    fn observe(&mut self, counters: &Arc<Counters>) {
        self.observe_through(counters);
    }

    fn has_link(&self) -> bool {
        self.has_link_through()
    }

    fn change_link(&mut self, change: &LinkChange) {
        self.change_link_through(change);
    }

    fn release(&mut self, now_ns: u64) {
        self.release_through(now_ns);
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.below_mut().join(group)
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        self.below_mut().leave(group)
    }

    fn group(&mut self) -> Option<&mut dyn ProcessGroup> {
        self.group_through()
    }
}

impl<P: Port + ?Sized> PortLayer for Box<P> {
    type Below = P;

    fn below(&self) -> &P {
        self
    }

    fn below_mut(&mut self) -> &mut P {
        self
    }

    #[inline]
    fn admits_again_through(&mut self, series: u64) -> bool {
        self.below_mut().admits_again(series)
    }
}
