//! What every port does, and what it carries.
//!
//! The traits of ports, of layers around a port, and a port that leads nowhere.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use pumice_platform::link_settings::LinkSettings;
use pumice_transport::path::{Flow, Path};

use self::batch::{
    CopyReport, GsoBatch, Peer, PeerMedium, PortLimits, ReceivedBatch, ShortReceive, TransmitError,
};
use self::group::ProcessGroup;
use crate::counters::Counters;
use crate::port::batch::PacketCost;

/// A change of a link while its device runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkChange {
    /// The settings change for good.
    Permanent(LinkSettings),
    /// The settings change until [`LinkChange::TemporaryEnded`].
    Temporary(LinkSettings),
    /// A temporary change ends.
    TemporaryEnded,
    /// The link is again as the device was opened with.
    Restored,
}

/// A port to the network. The caller gives the time; only the simulated port and layers use it.
pub trait Port: Send {
    /// Sends a batch, all of it or nothing.
    ///
    /// # Errors
    /// See [`TransmitError`]; only `Busy` is worth repeating unchanged.
    fn transmit(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError>;

    /// Receives at most one batch and gives it to `handler`. Returns true if something was taken from the
    /// port, even when it was not fit for the handler.
    fn receive(&mut self, now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool;

    /// Reports whether nothing has come by the sources that are polled without a system call, and the other
    /// sources may wait for a few polls more. After false, only [`receive`](Port::receive) can tell.
    #[inline]
    fn is_quiet(&self) -> bool {
        false
    }

    /// Returns the UDP source port that packets of a flow have to use, asked for before the first of them:
    /// that of `flow`, which was computed for it, or another one that the port can send from.
    fn source_port(&mut self, now_ns: u64, flow: &Flow) -> u16 {
        let _ = now_ns;
        flow.source_port
    }

    /// Reports whether packets of many connections to this peer go together where they have one source port,
    /// and no network is on the way that would spread them by it.
    fn coalesces_flows(&self, peer: Peer) -> bool {
        let _ = peer;
        false
    }

    /// Announces that batches to this peer are going to take this path, because a connection was made. What
    /// the port prepares for them, it prepares now, so that the first messages do not wait for it.
    fn expects(&mut self, _now_ns: u64, _path: &Path, _peer: Peer) {}

    /// Receives what is sent to another UDP port too, from now on. Ports that are not UDP receive it anyway.
    ///
    /// # Errors
    /// Another program has that UDP port, or the operating system has no socket.
    fn listen_also(&mut self, _udp_port: u16) -> io::Result<()> {
        Ok(())
    }

    /// Returns the limits of a batch to this peer, and the peer's receive buffer.
    fn limits(&self, peer: Peer) -> PortLimits;

    /// Reports whether another batch of a series ([`GsoBatch::series`]) may be begun now, for which all
    /// [`limits`](Port::limits) are the same as for the batch that was sent last. After false, the port
    /// cannot tell by the number, and has to be asked by the peer.
    #[inline]
    fn admits_next_of_series(&mut self, series: u64) -> bool {
        let _ = series;
        false
    }

    /// Sends a batch without ICRC of the series that [`Port::admits_next_of_series`] has just admitted.
    /// `segment_bytes`: length of each packet but the last. Returns false if nothing has happened, and
    /// [`Port::transmit`] has to send it.
    #[inline]
    fn transmit_next_of_series(&mut self, series: u64, segment_bytes: usize, bytes: &[u8]) -> bool {
        let _ = (series, segment_bytes, bytes);
        false
    }

    /// Takes the next batch, if it is a short one without ICRC that is for this process, and nothing else is
    /// due in the port.
    #[inline]
    fn receive_short(&mut self, now_ns: u64) -> ShortReceive<'_> {
        let _ = now_ns;
        ShortReceive::NotHere
    }

    /// Returns what carries batches to this peer now, for people who ask.
    fn medium_to(&self, peer: Peer) -> PeerMedium {
        let _ = peer;
        PeerMedium::Udp("the process does not share its UDP port")
    }

    /// Returns how long batches are copied to this peer, if they go through a ring.
    fn copies_to(&self, peer: Peer) -> Option<CopyReport> {
        let _ = peer;
        None
    }

    /// Returns the descriptors to poll(2) for readability; empty for simulated ports. Changes on `join` and
    /// `leave`.
    fn descriptors(&self) -> Vec<RawFd>;

    /// Returns when the port needs a call of `transmit` or `receive` though nothing arrived, because a layer
    /// holds packets back.
    fn next_event_ns(&self) -> Option<u64> {
        None
    }

    /// Returns until when [`transmit`](Port::transmit) takes no more batches, if it answered `Busy` and the
    /// port knows that. [`next_event_ns`](Port::next_event_ns) is not later.
    fn room_at_ns(&self) -> Option<u64> {
        None
    }

    /// Sets the counters of the device behind the port.
    fn observe(&mut self, counters: &Arc<Counters>) {
        if let Some(group) = self.group() {
            group.observe(counters);
        }
    }

    /// Reports whether one of the layers is a link (`LinkPort`).
    fn has_link(&self) -> bool {
        false
    }

    /// Changes the link, if there is one, for the packets that come from now on.
    fn change_link(&mut self, change: &LinkChange) {
        let _ = change;
    }

    /// Sends at once what layers hold back, because the device closes, or its process ends. Packets that the
    /// port is too busy for are lost.
    fn release(&mut self, _now_ns: u64) {}

    /// Starts receiving what is sent to a multicast group. A group joined twice must be left twice.
    ///
    /// # Errors
    /// Fails if the address is not a multicast address, and with errors of the operating system.
    fn join(&mut self, group: IpAddr) -> io::Result<()>;

    /// Undoes one [`join`](Port::join).
    ///
    /// # Errors
    /// Fails if the group was not joined.
    fn leave(&mut self, group: IpAddr) -> io::Result<()>;

    /// Returns the processes that share the port; `None` if this process has it alone.
    fn group(&mut self) -> Option<&mut dyn ProcessGroup> {
        None
    }
}

/// A port around a port. The layer names the port below, and implements what it changes; everything else is
/// forwarded to the port below.
pub trait PortLayer: Send {
    /// Type of the port below.
    type Below: Port + ?Sized;

    /// Returns the port below.
    fn below(&self) -> &Self::Below;

    /// Returns the port below, to be changed.
    fn below_mut(&mut self) -> &mut Self::Below;

    /// Implements [`Port::limits`] of the whole.
    fn limits_through(&self, peer: Peer) -> PortLimits {
        self.below().limits(peer)
    }

    /// Implements [`Port::admits_next_of_series`] of the whole, whose limits may be others than those of the
    /// port below.
    fn admits_next_of_series_through(&mut self, series: u64) -> bool {
        let _ = series;
        false
    }

    /// Implements [`Port::is_quiet`] of the whole.
    #[inline]
    fn is_quiet_through(&self) -> bool {
        false
    }

    /// Implements [`Port::transmit_next_of_series`] of the whole. A layer that changes, delays or counts
    /// batches leaves it as it is.
    fn transmit_next_of_series_through(&mut self, series: u64, segment_bytes: usize, bytes: &[u8]) -> bool {
        let _ = (series, segment_bytes, bytes);
        false
    }

    /// Implements [`Port::receive_short`] of the whole, with the same rule.
    fn receive_short_through(&mut self, now_ns: u64) -> ShortReceive<'_> {
        let _ = now_ns;
        ShortReceive::NotHere
    }

    /// Implements [`Port::transmit`] of the whole.
    ///
    /// # Errors
    /// Fails as [`Port::transmit`] does.
    fn transmit_through(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        self.below_mut().transmit(now_ns, batch)
    }

    /// Implements [`Port::receive`] of the whole.
    fn receive_through(&mut self, now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        self.below_mut().receive(now_ns, handler)
    }

    /// Returns when the layer itself needs a call, because it holds packets back.
    fn held_until_ns(&self) -> Option<u64> {
        None
    }

    /// Implements [`Port::room_at_ns`] of the whole.
    fn room_at_ns_through(&self) -> Option<u64> {
        self.below().room_at_ns()
    }

    /// Implements [`Port::observe`] of the whole.
    fn observe_through(&mut self, counters: &Arc<Counters>) {
        self.below_mut().observe(counters);
    }

    /// Implements [`Port::has_link`] of the whole.
    fn has_link_through(&self) -> bool {
        self.below().has_link()
    }

    /// Implements [`Port::change_link`] of the whole.
    fn change_link_through(&mut self, change: &LinkChange) {
        self.below_mut().change_link(change);
    }

    /// Implements [`Port::release`] of the whole.
    fn release_through(&mut self, now_ns: u64) {
        self.below_mut().release(now_ns);
    }

    /// Implements [`Port::group`] of the whole.
    fn group_through(&mut self) -> Option<&mut dyn ProcessGroup> {
        self.below_mut().group()
    }
}

impl<L: PortLayer> Port for L {
    fn transmit(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        self.transmit_through(now_ns, batch)
    }

    fn receive(&mut self, now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        self.receive_through(now_ns, handler)
    }

    fn source_port(&mut self, now_ns: u64, flow: &Flow) -> u16 {
        self.below_mut().source_port(now_ns, flow)
    }

    fn coalesces_flows(&self, peer: Peer) -> bool {
        self.below().coalesces_flows(peer)
    }

    fn expects(&mut self, now_ns: u64, path: &Path, peer: Peer) {
        self.below_mut().expects(now_ns, path, peer);
    }

    fn listen_also(&mut self, udp_port: u16) -> io::Result<()> {
        self.below_mut().listen_also(udp_port)
    }

    fn limits(&self, peer: Peer) -> PortLimits {
        self.limits_through(peer)
    }

    #[inline]
    fn admits_next_of_series(&mut self, series: u64) -> bool {
        self.admits_next_of_series_through(series)
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        self.is_quiet_through()
    }

    #[inline]
    fn transmit_next_of_series(&mut self, series: u64, segment_bytes: usize, bytes: &[u8]) -> bool {
        self.transmit_next_of_series_through(series, segment_bytes, bytes)
    }

    #[inline]
    fn receive_short(&mut self, now_ns: u64) -> ShortReceive<'_> {
        self.receive_short_through(now_ns)
    }

    fn medium_to(&self, peer: Peer) -> PeerMedium {
        self.below().medium_to(peer)
    }

    fn copies_to(&self, peer: Peer) -> Option<CopyReport> {
        self.below().copies_to(peer)
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
    fn admits_next_of_series_through(&mut self, series: u64) -> bool {
        self.below_mut().admits_next_of_series(series)
    }

    #[inline]
    fn is_quiet_through(&self) -> bool {
        self.below().is_quiet()
    }

    #[inline]
    fn transmit_next_of_series_through(&mut self, series: u64, segment_bytes: usize, bytes: &[u8]) -> bool {
        self.below_mut().transmit_next_of_series(series, segment_bytes, bytes)
    }

    #[inline]
    fn receive_short_through(&mut self, now_ns: u64) -> ShortReceive<'_> {
        self.below_mut().receive_short(now_ns)
    }
}

/// A port that sends nothing and receives nothing.
#[derive(Debug)]
pub struct NullPort;

impl Port for NullPort {
    fn transmit(&mut self, _now_ns: u64, _batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        Err(TransmitError::Unreachable)
    }

    fn receive(&mut self, _now_ns: u64, _handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        false
    }

    fn limits(&self, _peer: Peer) -> PortLimits {
        let packet_cost = PacketCost::UDP_SOCKET;
        PortLimits {
            max_segments: 1,
            max_batch_bytes: 0,
            receive_buffer_bytes: 0,
            packet_cost,
            needs_icrc: true,
            waits_for_room: false,
        }
    }

    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn join(&mut self, _group: IpAddr) -> io::Result<()> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn leave(&mut self, _group: IpAddr) -> io::Result<()> {
        Err(io::ErrorKind::NotConnected.into())
    }
}

pub mod batch;
pub mod copy_choice;
pub mod directory;
pub mod group;
pub mod two_ports;
