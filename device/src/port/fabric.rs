//! A simulated network in virtual time: ports on one switch, with the faults one asks for.
//!
//! Everything is integers and one seeded generator, so the same seed and the same calls give the same bytes
//! at the same nanoseconds on any machine; [`Fabric::digest`] is the proof.

mod link;
mod network;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::fault_script::FaultScript;
use super::sim::SimPort;

pub(super) use network::Network;

/// What the network is like. Probabilities are in parts per million per packet (and per receiver, for
/// multicast), independent of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FabricConfig {
    /// Of the generator behind all probabilities.
    pub seed: u64,
    /// One way, from the last bit sent to arrival.
    pub delay_ns: u64,
    /// Uniform addition to the delay, 0 to this. Does not reorder.
    pub jitter_ns: u64,
    /// Of each port's link towards the switch, Ethernet, IP and UDP headers included; `None` is infinitely
    /// fast and never queues.
    pub rate_bits_per_second: Option<u64>,
    /// Queue in front of that link; what does not fit is lost.
    pub queue_bytes: usize,
    /// Largest IP packet; longer ones are refused, as a UDP socket with DF set refuses them.
    pub link_mtu: usize,
    /// Each port's receive buffer, charged the way Linux charges lone packets; what does not fit is lost.
    pub receive_buffer_bytes: usize,
    /// A packet is lost.
    pub loss_ppm: u32,
    /// A packet arrives twice.
    pub duplicate_ppm: u32,
    /// A packet arrives `reorder_delay_ns` late, overtaken by what follows.
    pub reorder_ppm: u32,
    /// See `reorder_ppm`.
    pub reorder_delay_ns: u64,
    /// One random bit of the UDP payload is flipped.
    pub corrupt_ppm: u32,
    /// A random part of the UDP payload, at least one byte, is all that arrives.
    pub truncate_ppm: u32,
    /// Packets of ECN-capable senders (ECN bits 01 or 10) are marked CE when the queue they join is longer
    /// than this.
    pub ecn_mark_queue_bytes: Option<usize>,
}

impl Default for FabricConfig {
    /// One microsecond, infinitely fast, jumbo frames, no faults.
    fn default() -> FabricConfig {
        FabricConfig {
            seed: 0,
            delay_ns: 1_000,
            jitter_ns: 0,
            rate_bits_per_second: None,
            queue_bytes: 1 << 20,
            link_mtu: 9_000,
            receive_buffer_bytes: 4 << 20,
            loss_ppm: 0,
            duplicate_ppm: 0,
            reorder_ppm: 0,
            reorder_delay_ns: 10_000,
            corrupt_ppm: 0,
            truncate_ppm: 0,
            ecn_mark_queue_bytes: None,
        }
    }
}

/// What happened to packets so far. Every packet sent, once per receiver for multicast, plus every duplicate
/// ends up in exactly one of `delivered`, `lost`, `cut_off`, `unrouted`, `queue_drops`, `receive_drops`, or is
/// still on the way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FabricStats {
    /// Packets given to the fabric; a multicast packet counts once.
    pub sent: u64,
    /// Packets put into a port's receive buffer.
    pub delivered: u64,
    /// Lost by chance or script.
    pub lost: u64,
    /// Second copies made.
    pub duplicated: u64,
    /// Delayed so that others overtake.
    pub reordered: u64,
    /// With a bit flipped.
    pub corrupted: u64,
    /// Cut short.
    pub truncated: u64,
    /// Marked CE.
    pub marked: u64,
    /// Lost because the two ends were cut off from each other.
    pub cut_off: u64,
    /// To an address nobody has or a group nobody joined.
    pub unrouted: u64,
    /// Lost because the sender's queue was full.
    pub queue_drops: u64,
    /// Lost because the receiver's buffer was full or its port gone.
    pub receive_drops: u64,
}

/// The simulated network. Clones are the same network.
///
/// Time only moves when [`advance_to`](Fabric::advance_to) says so (or a port is asked to receive at a later
/// time): the caller steps from event to event with [`next_event_ns`](Fabric::next_event_ns).
#[derive(Debug, Clone)]
pub struct Fabric {
    network: Arc<Mutex<Network>>,
}

impl Fabric {
    /// A network without ports.
    pub fn new(config: FabricConfig) -> Fabric {
        Fabric { network: Arc::new(Mutex::new(Network::new(config))) }
    }

    /// A new port with these addresses. An address another port has moves to the new one. The port leaves
    /// the network when dropped.
    pub fn attach(&self, addresses: &[IpAddr]) -> SimPort {
        let index = lock(&self.network).attach(addresses);
        SimPort::new(Arc::clone(&self.network), index)
    }

    /// When the next packet arrives, in virtual time.
    pub fn next_event_ns(&self) -> Option<u64> {
        lock(&self.network).next_event_ns()
    }

    /// Puts everything that has arrived by `now_ns` into the ports' receive buffers. Time never goes back.
    pub fn advance_to(&self, now_ns: u64) {
        lock(&self.network).advance_to(now_ns);
    }

    /// Faults told in advance, replacing those told before. Packets are counted from the fabric's beginning.
    pub fn play(&self, script: FaultScript) {
        lock(&self.network).script = script;
    }

    /// Changes what the network is like from now on; packets on the way are not affected. The seed is not
    /// used again.
    pub fn reconfigure(&self, change: impl FnOnce(&mut FabricConfig)) {
        change(&mut lock(&self.network).config);
    }

    /// What the network is like now.
    pub fn config(&self) -> FabricConfig {
        lock(&self.network).config
    }

    /// From now on nothing passes between the two ports that have these addresses, whichever of their
    /// addresses it uses. False, and no effect, if one of them is not attached.
    pub fn cut(&self, one: IpAddr, other: IpAddr) -> bool {
        lock(&self.network).set_cut(one, other, true)
    }

    /// Undoes [`cut`](Fabric::cut). False if one of the addresses is not attached.
    pub fn heal(&self, one: IpAddr, other: IpAddr) -> bool {
        lock(&self.network).set_cut(one, other, false)
    }

    /// Undoes every cut.
    pub fn heal_all(&self) {
        lock(&self.network).heal_all();
    }

    /// What happened so far.
    pub fn stats(&self) -> FabricStats {
        lock(&self.network).stats
    }

    /// A digest of everything that happened so far: what arrived where and when with which bytes, and what
    /// was lost. Two runs with equal digests were the same run.
    pub fn digest(&self) -> u64 {
        lock(&self.network).digest()
    }
}

/// A panic elsewhere does not make the network's state wrong: every change is complete before anything that
/// could panic.
pub(super) fn lock(network: &Mutex<Network>) -> MutexGuard<'_, Network> {
    network.lock().unwrap_or_else(PoisonError::into_inner)
}
