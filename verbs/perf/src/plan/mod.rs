//! Plans of measurements.

mod builder;
mod check;

use pumice_device::settings::Wire;
use serde::{Deserialize, Serialize};

pub use builder::PlanBuilder;
pub use check::PlanError;

/// Operation of the work requests that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// RDMA WRITE into the peer's memory.
    Write,
    /// RDMA READ from the peer's memory.
    Read,
    /// SEND into a posted receive.
    Send,
    /// Fetch-and-add on eight bytes of the peer's memory.
    Atomic,
}

/// Transport service of the queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

impl Operation {
    /// Returns the lower-case name, as in [`Plan::name`].
    pub fn name(self) -> &'static str {
        match self {
            Operation::Write => "write",
            Operation::Read => "read",
            Operation::Send => "send",
            Operation::Atomic => "atomic",
        }
    }
}

impl Service {
    /// Returns the lower-case name, as in [`Plan::name`].
    pub fn name(self) -> &'static str {
        match self {
            Service::Rc => "rc",
            Service::Uc => "uc",
            Service::Ud => "ud",
        }
    }
}

/// Quantity that the value of a [`Report`](crate::Report) is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasuredQuantity {
    /// Payload: 10⁹ bytes per second ("GB/s").
    Bandwidth,
    /// Messages: 10⁶ per second ("M/s").
    Rate,
    /// Time of one message, in µs ("us"): for a SEND half the time until the peer's answer arrives, for the
    /// others the time until the completion.
    Latency,
}

impl MeasuredQuantity {
    /// Returns the unit of the quantity in reports.
    pub fn unit(self) -> &'static str {
        match self {
            MeasuredQuantity::Bandwidth => "GB/s",
            MeasuredQuantity::Rate => "M/s",
            MeasuredQuantity::Latency => "us",
        }
    }
}

/// The description of one measurement, as both ends know it. [`Plan::throughput`] and [`Plan::latency`] begin
/// to build one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Plan {
    /// Operation of the work requests.
    pub operation: Operation,
    /// Transport service of the queue pairs.
    pub service: Service,
    /// Quantity that the value of the report is.
    pub quantity: MeasuredQuantity,
    /// Payload of a message in bytes.
    pub size_bytes: usize,
    /// Path MTU in bytes.
    pub mtu_bytes: usize,
    /// Number of queue pairs, used in turn.
    pub qp_count: usize,
    /// Number of requests per post.
    pub post_list: usize,
    /// Number of requests outstanding on one queue pair.
    pub depth: usize,
    /// True if the ends sleep until a completion event comes instead of polling.
    pub events: bool,
    /// True if the target's application computes and never calls a verb.
    pub passive: bool,
    /// True if the devices share their UDP ports with other processes, as libpumice.so does.
    pub shared: bool,
    /// Medium of packets to the other end if it is a process of the same user on the same host; anything but
    /// UDP only with `shared`.
    #[serde(default = "udp")]
    pub wire: Wire,
    /// True if every byte is checked at its destination.
    pub verify: bool,
    /// True if rounds of plain UDP, or of memory, alternate with those of the device.
    pub raw: bool,
    /// Number of timed rounds.
    pub rounds: usize,
    /// Length of a timed round, in seconds.
    pub round_seconds: f64,
}

/// Returns the wire of clients that know no other.
fn udp() -> Wire {
    Wire::Udp
}

/// Largest number of requests that all queue pairs together may have outstanding: the receiving side has room
/// for them.
pub(crate) const MAX_OUTSTANDING: usize = 4096;

impl Plan {
    /// Returns the name of the measurement in reports: service, operation, quantity, for instance
    /// "rc_send_latency".
    pub fn name(&self) -> String {
        let quantity = match self.quantity {
            MeasuredQuantity::Bandwidth => "bandwidth",
            MeasuredQuantity::Rate => "rate",
            MeasuredQuantity::Latency => "latency",
        };
        let mut name = format!("{}_{}_{quantity}", self.service.name(), self.operation.name());
        if self.events {
            name.push_str("_events");
        }
        if self.passive {
            name.push_str("_passive");
        }
        name
    }

    /// Reports whether the peer answers every message with one of its own; otherwise a message's time is that
    /// of its completion.
    pub(crate) fn ping_pong(&self) -> bool {
        self.quantity == MeasuredQuantity::Latency && self.operation == Operation::Send
    }

    /// Reports whether both ends' receive requests come from one shared receive queue.
    pub(crate) fn shared_receives(&self) -> bool {
        self.qp_count > 64
    }

    /// Returns the number of distinct buffers of `size_bytes` at each end: few enough to stay in the cache,
    /// because the plain stream that serves as the yardstick stays there too.
    pub(crate) fn buffer_count(&self) -> usize {
        let by_cache = (512 << 10) / self.size_bytes.max(1);
        self.outstanding().min(by_cache).max(1)
    }

    /// Returns the number of requests outstanding over all queue pairs.
    pub(crate) fn outstanding(&self) -> usize {
        self.depth.saturating_mul(self.qp_count).min(MAX_OUTSTANDING)
    }

    /// Returns the number of bytes of a first or only packet beside the payload.
    pub(crate) fn header_bytes(&self) -> usize {
        const BTH_AND_ICRC: usize = 16;
        match (self.operation, self.service) {
            (Operation::Send, Service::Ud) => BTH_AND_ICRC + 8,
            (Operation::Send, _) => BTH_AND_ICRC,
            (Operation::Write | Operation::Read, _) => BTH_AND_ICRC + 16,
            (Operation::Atomic, _) => BTH_AND_ICRC + 28,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a plan for a short measurement of 8-byte messages.
    pub(crate) fn plan(operation: Operation, service: Service) -> Plan {
        Plan {
            operation,
            service,
            quantity: MeasuredQuantity::Rate,
            size_bytes: 8,
            mtu_bytes: 1024,
            qp_count: 1,
            post_list: 1,
            depth: 16,
            events: false,
            passive: false,
            shared: false,
            wire: Wire::Udp,
            verify: false,
            raw: false,
            rounds: 1,
            round_seconds: 0.1,
        }
    }

    #[test]
    fn a_name_says_what_is_measured() {
        let plan = Plan { events: true, ..plan(Operation::Send, Service::Uc) };
        assert_eq!(plan.name(), "uc_send_rate_events");
    }
}
