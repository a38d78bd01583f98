//! The yardstick that a round of the device is compared with.

use crate::endpoint::Medium;
use crate::plan::{MeasuredQuantity, Plan};

/// A yardstick for rounds.
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
    /// Returns the yardstick of a plan whose packets go by this medium.
    pub(super) fn of(plan: &Plan, medium: Option<&Medium>) -> Yardstick {
        match plan.quantity {
            _ if !medium.is_some_and(Medium::is_shared_memory) => Yardstick::PlainUdp,
            MeasuredQuantity::Latency if plan.events => Yardstick::Futex,
            MeasuredQuantity::Latency | MeasuredQuantity::Rate => Yardstick::CacheLines,
            MeasuredQuantity::Bandwidth => Yardstick::Memcpy,
        }
    }

    /// Returns its name in reports.
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
            (plan(MeasuredQuantity::Latency, false), Yardstick::CacheLines),
            (plan(MeasuredQuantity::Latency, true), Yardstick::Futex),
            (plan(MeasuredQuantity::Rate, false), Yardstick::CacheLines),
            (plan(MeasuredQuantity::Bandwidth, false), Yardstick::Memcpy),
        ];
        for (plan, yardstick) in with {
            assert_eq!(Yardstick::of(&plan, of("shared memory").as_ref()), yardstick);
            assert_eq!(Yardstick::of(&plan, of("UDP").as_ref()), Yardstick::PlainUdp);
            assert_eq!(Yardstick::of(&plan, None), Yardstick::PlainUdp);
        }
    }
}
