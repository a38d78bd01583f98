//! What a network is made of: links with rates and queues, and topologies of switches.
//!
//! One direction of a link as a value: a bounded queue, a rate, a delay. Time is an argument.

use std::fmt;
use std::hash::Hasher as _;

use fnv::FnvHasher;
use pumice_platform::clock::Random;

use crate::settings::{DirectionSettings, LinkSettings};

pub use pumice_platform::link_settings::EcnMarking;

const BITS_PER_BYTE_SECOND: u128 = 8 * 1_000_000_000;
/// Purpose of the seed's draws for jitter. What one purpose draws does not change what another draws.
const JITTER: u64 = 1;
/// Purpose of the seed's draws for marking.
const MARKING: u64 = 2;

/// The properties of one direction of a link. The default is no link: infinitely fast, without delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkDirection {
    /// Rate in bits per second, headers of Ethernet, IP and UDP included; `None` is infinitely fast, and no
    /// queue builds up.
    pub rate_bits_per_second: Option<u64>,
    /// Delay from the last bit sent to arrival, in ns.
    pub delay_ns: u64,
    /// Uniform addition to the delay, 0 to this, in ns. Packets do not overtake each other.
    pub jitter_ns: u64,
    /// Seed of jitter and marking: the n-th packet gets the same in each run.
    pub seed: u64,
    /// Length of the queue, in bytes on the wire that wait or are being sent; a packet that does not fit is
    /// refused. `None` means no limit.
    pub queue_bytes: Option<u64>,
    /// Rule by which packets are marked "congestion experienced"; `None` means that no packet is.
    pub ecn: Option<EcnMarking>,
}

/// The link of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// Direction from the device into the network. The queue is the adapter's: a full one makes the device
    /// wait, and it marks nothing.
    pub egress: LinkDirection,
    /// Direction from the network to the device. The queue is that of the switch: a packet that does not fit
    /// is lost.
    pub ingress: LinkDirection,
}

/// The queue in front of one direction of a link, and the packets on their way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkQueue {
    /// Time at which the last bit of all that was taken has left.
    free_at_ns: u64,
    last_arrival_ns: u64,
    /// Number of packets taken so far.
    taken: u64,
}

/// The passage of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkPassage {
    /// Time at which its last bit has left the queue.
    pub departs_at_ns: u64,
    /// Time at which it is at the other end, not before any packet that was sent earlier.
    pub arrives_at_ns: u64,
    /// Number of bytes in front of it when it joined the queue, the rest of the packet being sent included.
    pub backlog_bytes: u64,
    /// The packet has to be marked "congestion experienced".
    pub is_marked: bool,
}

/// The error that the queue has no room for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull;

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue of the link is full")
    }
}

impl std::error::Error for QueueFull {}

impl Link {
    /// Returns a link whose directions are the same, but that only the queue of the switch marks.
    pub fn both(direction: LinkDirection) -> Link {
        Link { egress: LinkDirection { ecn: None, ..direction }, ingress: direction }
    }

    /// Returns the link that settings describe; `None` if they describe none.
    pub fn of(settings: &LinkSettings) -> Option<Link> {
        let way = |way: &DirectionSettings| LinkDirection {
            rate_bits_per_second: way.rate_bits_per_second,
            delay_ns: way.delay_ns.unwrap_or(0),
            jitter_ns: way.jitter_ns.unwrap_or(0),
            seed: 0,
            queue_bytes: way.queue_bytes,
            ecn: way.ecn,
        };
        let link = Link { egress: way(&settings.egress), ingress: way(&settings.ingress) };
        (!link.egress.is_none() || !link.ingress.is_none()).then_some(link)
    }

    /// Returns the settings that describe the link.
    pub fn settings(&self) -> LinkSettings {
        let way = |way: &LinkDirection| DirectionSettings {
            rate_bits_per_second: way.rate_bits_per_second,
            delay_ns: (way.delay_ns > 0).then_some(way.delay_ns),
            jitter_ns: (way.jitter_ns > 0).then_some(way.jitter_ns),
            queue_bytes: way.queue_bytes,
            ecn: way.ecn,
        };
        LinkSettings { egress: way(&self.egress), ingress: way(&self.ingress) }
    }

    /// Returns this link with the changes that settings make.
    #[must_use]
    pub fn with(self, settings: &LinkSettings) -> Link {
        Link { egress: self.egress.with(&settings.egress), ingress: self.ingress.with(&settings.ingress) }
    }

    /// Returns this link with seeds that are mixed with a seed and a name, so that two devices do not draw
    /// the same.
    #[must_use]
    pub fn seeded(mut self, seed: u64, name: &str) -> Link {
        for (way, link_direction) in [(b'e', &mut self.egress), (b'i', &mut self.ingress)] {
            let mut hasher = FnvHasher::default();
            hasher.write(name.as_bytes());
            hasher.write(&[0xff, way]);
            hasher.write(&seed.to_le_bytes());
            link_direction.seed ^= hasher.finish();
        }
        self
    }
}

impl LinkDirection {
    /// No link: infinitely fast, without delay.
    pub const NONE: LinkDirection = LinkDirection {
        rate_bits_per_second: None,
        delay_ns: 0,
        jitter_ns: 0,
        seed: 0,
        queue_bytes: None,
        ecn: None,
    };

    fn with(self, way: &DirectionSettings) -> LinkDirection {
        LinkDirection {
            rate_bits_per_second: way.rate_bits_per_second.or(self.rate_bits_per_second),
            delay_ns: way.delay_ns.unwrap_or(self.delay_ns),
            jitter_ns: way.jitter_ns.unwrap_or(self.jitter_ns),
            seed: self.seed,
            queue_bytes: way.queue_bytes.or(self.queue_bytes),
            ecn: way.ecn.or(self.ecn),
        }
    }

    /// Reports whether packets pass at once.
    pub fn is_none(&self) -> bool {
        self.rate_bits_per_second.is_none() && self.delay_ns == 0 && self.jitter_ns == 0
    }

    /// Returns how long it takes to send this number of bytes, in ns, rounded up.
    pub fn transmission_ns(&self, wire_bytes: u64) -> u64 {
        let Some(rate) = self.rate_bits_per_second else { return 0 };
        let takes_ns = (u128::from(wire_bytes) * BITS_PER_BYTE_SECOND).div_ceil(u128::from(rate.max(1)));
        u64::try_from(takes_ns).unwrap_or(u64::MAX)
    }

    /// Returns the same, rounded down.
    pub fn transmission_floor_ns(&self, wire_bytes: u64) -> u64 {
        let Some(rate) = self.rate_bits_per_second else { return 0 };
        let takes_ns = u128::from(wire_bytes) * BITS_PER_BYTE_SECOND / u128::from(rate.max(1));
        u64::try_from(takes_ns).unwrap_or(u64::MAX)
    }

    /// Returns how many bytes leave in this number of ns, rounded down; 0 for a direction that is infinitely
    /// fast.
    pub fn bytes_in(&self, time_ns: u64) -> u64 {
        let rate = u128::from(self.rate_bits_per_second.map_or(0, |rate| rate.max(1)));
        u64::try_from(u128::from(time_ns) * rate / BITS_PER_BYTE_SECOND).unwrap_or(u64::MAX)
    }

    /// Draws a number, uniform in 0..`bound`, for the n-th packet.
    fn draw(&self, purpose: u64, ordinal: u64, bound: u64) -> u64 {
        Random::new(self.seed ^ ordinal.rotate_left(32)).fork(purpose).below(bound)
    }

    /// Reports whether the n-th packet that joins the queue is marked, if it can be.
    pub fn marks(&self, backlog_bytes: u64, ordinal: u64) -> bool {
        match self.ecn {
            None => false,
            Some(EcnMarking::Above(bytes)) => backlog_bytes > bytes,
            Some(EcnMarking::Ramp { min_bytes, max_bytes, most_ppm }) => {
                if backlog_bytes <= min_bytes || backlog_bytes > max_bytes {
                    return backlog_bytes > max_bytes;
                }
                let (above, width) = (backlog_bytes - min_bytes, max_bytes - min_bytes);
                let ppm = u128::from(most_ppm) * u128::from(above) / u128::from(width);
                u128::from(self.draw(MARKING, ordinal, 1_000_000)) < ppm
            }
        }
    }
}

impl Default for LinkDirection {
    fn default() -> LinkDirection {
        LinkDirection::NONE
    }
}

impl LinkQueue {
    /// Returns the number of bytes that wait or are being sent.
    pub fn backlog_bytes(&self, direction: &LinkDirection, now_ns: u64) -> u64 {
        direction.bytes_in(self.free_at_ns.saturating_sub(now_ns))
    }

    /// Adds a packet of this length on the wire to the queue, if it has room. Only a packet that is
    /// `ecn_capable` is marked.
    ///
    /// # Errors
    /// Fails with [`QueueFull`], without a change.
    pub fn send(
        &mut self,
        direction: &LinkDirection,
        now_ns: u64,
        wire_bytes: u64,
        ecn_capable: bool,
    ) -> Result<LinkPassage, QueueFull> {
        let backlog_bytes = self.backlog_bytes(direction, now_ns);
        let is_queued = direction.rate_bits_per_second.is_some();
        let most_bytes = direction.queue_bytes.filter(|_| is_queued).unwrap_or(u64::MAX);
        if backlog_bytes.saturating_add(wire_bytes) > most_bytes {
            return Err(QueueFull);
        }
        Ok(self.take(direction, now_ns, wire_bytes, ecn_capable))
    }

    /// Adds a packet as [`LinkQueue::send`] does, whether there is room or not.
    pub fn take(
        &mut self,
        direction: &LinkDirection,
        now_ns: u64,
        wire_bytes: u64,
        ecn_capable: bool,
    ) -> LinkPassage {
        let backlog_bytes = self.backlog_bytes(direction, now_ns);
        let ordinal = self.taken;
        self.taken = self.taken.wrapping_add(1);
        let departs_at_ns = if direction.rate_bits_per_second.is_some() {
            self.free_at_ns =
                self.free_at_ns.max(now_ns).saturating_add(direction.transmission_ns(wire_bytes));
            self.free_at_ns
        } else {
            now_ns
        };
        let jitter_ns = match direction.jitter_ns {
            0 => 0,
            most_ns => direction.draw(JITTER, ordinal, most_ns.saturating_add(1)),
        };
        let arrives_at_ns = departs_at_ns.saturating_add(direction.delay_ns).saturating_add(jitter_ns);
        self.last_arrival_ns = self.last_arrival_ns.max(arrives_at_ns);
        LinkPassage {
            departs_at_ns,
            arrives_at_ns: self.last_arrival_ns,
            backlog_bytes,
            is_marked: ecn_capable && direction.marks(backlog_bytes, ordinal),
        }
    }

    /// Returns when at most this number of bytes wait or are being sent, if no more come.
    pub fn drained_to_ns(&self, direction: &LinkDirection, backlog_bytes: u64) -> u64 {
        self.free_at_ns.saturating_sub(direction.transmission_floor_ns(backlog_bytes))
    }
}

pub mod topology;

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
