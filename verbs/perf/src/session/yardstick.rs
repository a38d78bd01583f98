//! What a round of the device's is compared with.

use crate::endpoint::Medium;
use crate::plan::{Plan, Quantity};

/// What a round is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Yardstick {
    PlainUdp,
    /// Two threads that spin on cache lines.
    CacheLines,
    /// Two threads that sleep on a futex.
    Futex,
    /// Copies of 1 MiB from memory to memory.
    Memcpy,
}

impl Yardstick {
    /// That of a plan whose packets go by this medium.
    pub(super) fn of(plan: &Plan, medium: Option<&Medium>) -> Yardstick {
        match plan.quantity {
            _ if !medium.is_some_and(Medium::is_shared_memory) => Yardstick::PlainUdp,
            Quantity::Latency if plan.events => Yardstick::Futex,
            Quantity::Latency | Quantity::Rate => Yardstick::CacheLines,
            Quantity::Bandwidth => Yardstick::Memcpy,
        }
    }

    /// Its name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Yardstick::PlainUdp => "plain UDP",
            Yardstick::CacheLines => "cache lines",
            Yardstick::Futex => "futex",
            Yardstick::Memcpy => "memcpy",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;
    use crate::plan::{Operation, Service};

    #[test]
    fn memory_is_compared_with_memory() {
        let of = |name: &str| Some(Medium { name: name.to_owned(), reason: None });
        let plan = |quantity, events| Plan { quantity, events, ..plan(Operation::Send, Service::Rc) };
        let with = [
            (plan(Quantity::Latency, false), Yardstick::CacheLines),
            (plan(Quantity::Latency, true), Yardstick::Futex),
            (plan(Quantity::Rate, false), Yardstick::CacheLines),
            (plan(Quantity::Bandwidth, false), Yardstick::Memcpy),
        ];
        for (plan, yardstick) in with {
            assert_eq!(Yardstick::of(&plan, of("shared memory").as_ref()), yardstick);
            assert_eq!(Yardstick::of(&plan, of("UDP").as_ref()), Yardstick::PlainUdp);
            assert_eq!(Yardstick::of(&plan, None), Yardstick::PlainUdp);
        }
    }
}
