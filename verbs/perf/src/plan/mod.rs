//! What to measure.

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
    /// Lower-case name, as in [`Plan::name`].
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
    /// Lower-case name, as in [`Plan::name`].
    pub fn name(self) -> &'static str {
        match self {
            Service::Rc => "rc",
            Service::Uc => "uc",
            Service::Ud => "ud",
        }
    }
}

/// What the value of a [`Report`](crate::Report) is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Payload: 10⁹ bytes per second ("GB/s").
    Bandwidth,
    /// Messages: 10⁶ per second ("M/s").
    Rate,
    /// Time of one message, in µs ("us"): of a SEND half the time until the peer's answer is here, of the
    /// others the time until the completion.
    Latency,
}

impl Quantity {
    /// Unit of the quantity in reports.
    pub fn unit(self) -> &'static str {
        match self {
            Quantity::Bandwidth => "GB/s",
            Quantity::Rate => "M/s",
            Quantity::Latency => "us",
        }
    }
}

/// One measurement, as both ends know it. [`Plan::throughput`] and [`Plan::latency`] begin to describe one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Plan {
    /// Operation of the work requests.
    pub operation: Operation,
    /// Transport service of the queue pairs.
    pub service: Service,
    /// What the value of the report is.
    pub quantity: Quantity,
    /// Payload of a message.
    pub size_bytes: usize,
    /// Path MTU.
    pub mtu_bytes: usize,
    /// Queue pairs, used in turn.
    pub qp_count: usize,
    /// Requests per post.
    pub post_list: usize,
    /// Requests outstanding on one queue pair.
    pub depth: usize,
    /// Whether the ends sleep until a completion event comes instead of polling.
    pub events: bool,
    /// Whether the target's application computes and never calls a verb.
    pub passive: bool,
    /// Whether the devices share their UDP ports with other processes, as libpumice.so does.
    pub shared: bool,
    /// How packets reach the other end if it is a process of the same user on the same host; by anything but
    /// UDP only with `shared`.
    #[serde(default = "udp")]
    pub wire: Wire,
    /// Whether every byte is checked at its destination.
    pub verify: bool,
    /// Whether rounds of plain UDP, or of memory, alternate with those of the device.
    pub raw: bool,
    /// Timed rounds.
    pub rounds: usize,
    /// Length of a timed round, in seconds.
    pub round_seconds: f64,
}

/// The wire of clients that know no other.
fn udp() -> Wire {
    Wire::Udp
}

/// Requests that all queue pairs together may have outstanding: what the receiving side has room for.
pub(crate) const MAX_OUTSTANDING: usize = 4096;

impl Plan {
    /// Name of the measurement in reports: service, operation, quantity, for instance "rc_send_latency".
    pub fn name(&self) -> String {
        let quantity = match self.quantity {
            Quantity::Bandwidth => "bandwidth",
            Quantity::Rate => "rate",
            Quantity::Latency => "latency",
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

    /// Whether the peer answers every message with one of its own; otherwise a message's time is that of
    /// its completion.
    pub(crate) fn ping_pong(&self) -> bool {
        self.quantity == Quantity::Latency && self.operation == Operation::Send
    }

    /// Whether both ends' receive requests come from one shared receive queue.
    pub(crate) fn shared_receives(&self) -> bool {
        self.qp_count > 64
    }

    /// Distinct buffers of `size_bytes` at each end: few enough to stay in the cache, because the plain
    /// stream that serves as the yardstick stays there too.
    pub(crate) fn buffer_count(&self) -> usize {
        let by_cache = (512 << 10) / self.size_bytes.max(1);
        self.outstanding().min(by_cache).max(1)
    }

    /// Requests outstanding over all queue pairs.
    pub(crate) fn outstanding(&self) -> usize {
        self.depth.saturating_mul(self.qp_count).min(MAX_OUTSTANDING)
    }

    /// Bytes of a first or only packet beside the payload.
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

    /// A short measurement of 8-byte messages.
    pub(crate) fn plan(operation: Operation, service: Service) -> Plan {
        Plan {
            operation,
            service,
            quantity: Quantity::Rate,
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
