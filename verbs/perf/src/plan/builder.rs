//! Builders of measurement plans, with defaults that suit each other.

use pumice_device::settings::Wire;

use super::check::PlanError;
use super::{MAX_OUTSTANDING, MeasuredQuantity, Operation, Plan, Service};

/// Length in bytes below which messages are counted; for longer ones the bandwidth is measured.
const RATE_BELOW_BYTES: usize = 512;
const MTU_BYTES: usize = 4096;

/// A builder of a plan; an option that is not set has a default that suits the others.
#[derive(Debug, Clone)]
#[must_use = "call `build`"]
pub struct PlanBuilder {
    /// Plan with the values that are not optional.
    plan: Plan,
    size_bytes: Option<usize>,
    mtu_bytes: Option<usize>,
    post_list: Option<usize>,
    depth: Option<usize>,
}

impl Plan {
    /// Describes a measurement of throughput: bandwidth, or the rate of messages shorter than 512 bytes.
    /// Defaults: messages of 1 MiB (64 KiB on UC, the path MTU on UD, 8 bytes of atomics), a path MTU of 4096
    /// bytes, one queue pair, requests posted one by one, 5 rounds of 0.25 s, the devices polled, no
    /// verification, no plain UDP, packets by UDP on ports that the devices do not share.
    pub fn throughput(operation: Operation, service: Service) -> PlanBuilder {
        PlanBuilder::new(operation, service, MeasuredQuantity::Bandwidth)
    }

    /// Describes a measurement of the time of single messages, of 8 bytes by default; the other defaults are
    /// those of [`throughput`](Plan::throughput).
    pub fn latency(operation: Operation, service: Service) -> PlanBuilder {
        PlanBuilder::new(operation, service, MeasuredQuantity::Latency)
    }
}

impl PlanBuilder {
    fn new(operation: Operation, service: Service, quantity: MeasuredQuantity) -> PlanBuilder {
        let plan = Plan {
            operation,
            service,
            quantity,
            size_bytes: 0,
            mtu_bytes: MTU_BYTES,
            qp_count: 1,
            post_list: 1,
            depth: 1,
            events: false,
            passive: false,
            shared: false,
            wire: Wire::Udp,
            verify: false,
            raw: false,
            rounds: 5,
            round_seconds: 0.25,
        };
        PlanBuilder { plan, size_bytes: None, mtu_bytes: None, post_list: None, depth: None }
    }

    /// Sets the payload of a message, 1 byte to 1 GiB.
    pub fn size_bytes(mut self, size_bytes: impl Into<Option<usize>>) -> PlanBuilder {
        self.size_bytes = size_bytes.into();
        self
    }

    /// Sets the path MTU: 256, 512, 1024, 2048 or 4096 bytes.
    pub fn mtu_bytes(mut self, mtu_bytes: impl Into<Option<usize>>) -> PlanBuilder {
        self.mtu_bytes = mtu_bytes.into();
        self
    }

    /// Sets the number of queue pairs, used in turn: 1 to 16,000.
    pub fn qp_count(mut self, qp_count: usize) -> PlanBuilder {
        self.plan.qp_count = qp_count;
        self
    }

    /// Sets the number of requests per post: 1 to the depth.
    pub fn post_list(mut self, post_list: impl Into<Option<usize>>) -> PlanBuilder {
        self.post_list = post_list.into();
        self
    }

    /// Sets the number of requests outstanding on one queue pair, 1 to 4096; by default 1 for latencies,
    /// otherwise 16, and more for small messages.
    pub fn depth(mut self, depth: impl Into<Option<usize>>) -> PlanBuilder {
        self.depth = depth.into();
        self
    }

    /// Sets whether the ends sleep until a completion event comes instead of polling; for latencies.
    pub fn events(mut self, events: bool) -> PlanBuilder {
        self.plan.events = events;
        self
    }

    /// Sets whether the target's application computes and never calls a verb; for latencies of operations
    /// that need no receiver.
    pub fn passive(mut self, passive: bool) -> PlanBuilder {
        self.plan.passive = passive;
        self
    }

    /// Sets whether the devices share their UDP ports with other processes, as unmodified programs do.
    pub fn shared(mut self, shared: bool) -> PlanBuilder {
        self.plan.shared = shared;
        self
    }

    /// Sets the medium of packets to the other end if it is a process of the same user on the same host; by
    /// default UDP. [`Wire::Auto`] implies [`shared`](PlanBuilder::shared).
    pub fn wire(mut self, wire: Wire) -> PlanBuilder {
        self.plan.wire = wire;
        self
    }

    /// Sets whether every byte is checked at its destination: whole numbered messages before each round, and
    /// the final contents of all buffers after it.
    pub fn verify(mut self, verify: bool) -> PlanBuilder {
        self.plan.verify = verify;
        self
    }

    /// Sets whether rounds of plain UDP, or of memory if that carries the packets, alternate with those of
    /// the device, to report ratios.
    pub fn raw(mut self, raw: bool) -> PlanBuilder {
        self.plan.raw = raw;
        self
    }

    /// Sets the number of timed rounds, 1 to 1000, and the length of each, 0.001 to 3600 seconds.
    pub fn rounds(mut self, rounds: usize, round_seconds: f64) -> PlanBuilder {
        (self.plan.rounds, self.plan.round_seconds) = (rounds, round_seconds);
        self
    }

    /// Returns the plan.
    ///
    /// # Errors
    /// Fails as [`Plan::check`] if the options do not fit together.
    pub fn build(self) -> Result<Plan, PlanError> {
        let mut plan = self.plan;
        let latency = plan.quantity == MeasuredQuantity::Latency;
        plan.mtu_bytes = self.mtu_bytes.unwrap_or(MTU_BYTES);
        plan.size_bytes = self.size_bytes.unwrap_or(match (plan.operation, plan.service) {
            (Operation::Atomic, _) => 8,
            _ if latency => 8,
            (_, Service::Rc) => 1 << 20,
            (_, Service::Uc) => 64 << 10,
            (_, Service::Ud) => plan.mtu_bytes,
        });
        if !latency && plan.size_bytes < RATE_BELOW_BYTES {
            plan.quantity = MeasuredQuantity::Rate;
        }
        plan.shared |= plan.wire == Wire::Auto;
        plan.post_list = self.post_list.unwrap_or(1);
        plan.depth = self.depth.unwrap_or_else(|| default_depth(plan.size_bytes, plan.post_list, latency));
        plan.check().map(|()| plan)
    }
}

fn default_depth(size_bytes: usize, post_list: usize, latency: bool) -> usize {
    if latency {
        return 1;
    }
    let for_pipe = ((4 << 20) / size_bytes.max(1)).clamp(16, 256);
    for_pipe.max(post_list.saturating_mul(8).min(MAX_OUTSTANDING)).max(post_list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_suit_each_other() {
        let plan = |builder: PlanBuilder| {
            let plan = builder.build().expect("a plan that can be measured");
            (plan.quantity, plan.size_bytes, plan.depth)
        };
        use MeasuredQuantity::{Bandwidth, Latency, Rate};
        let throughput = |operation, service| Plan::throughput(operation, service);
        assert_eq!(plan(throughput(Operation::Write, Service::Rc)), (Bandwidth, 1 << 20, 16));
        assert_eq!(plan(throughput(Operation::Send, Service::Uc)), (Bandwidth, 64 << 10, 64));
        assert_eq!(plan(throughput(Operation::Send, Service::Ud).mtu_bytes(512)), (Bandwidth, 512, 256));
        assert_eq!(plan(throughput(Operation::Atomic, Service::Rc).post_list(64)), (Rate, 8, 512));
        assert_eq!(plan(Plan::latency(Operation::Send, Service::Rc)), (Latency, 8, 1));
    }
}
