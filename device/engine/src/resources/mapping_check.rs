//! The policy by which copies check first whether registered memory is still mapped.

use pumice_memory::MappingCheck;
use pumice_transport::host::QpContext;
use pumice_transport::qp::QueuePair;

/// Selects the copies that ask the kernel whether memory is mapped, by what the driving thread knows of the
/// program. All other copies take registered memory to be mapped, because a system call for each would cost
/// more than the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MappingCheckPolicy {
    /// Receives of datagrams are checked, unless they complete on this queue: a thread of the program polls
    /// the queue, so it wants them.
    DatagramsNotPolled {
        /// The queue that is polled.
        cq: u32,
    },
    /// Receives of datagrams are checked: the driving thread does not know what the program is about to do.
    Datagrams,
    /// All copies are checked: something is about to be destroyed, and its memory may be unmapped already.
    Everything,
}

impl MappingCheckPolicy {
    /// Returns the check for what a queue pair receives.
    #[inline]
    pub(crate) fn of_arrivals(self, qp: &QueuePair) -> MappingCheck {
        if qp.qp_type().is_datagram() { self.of_datagrams(qp.context()) } else { self.of_connections() }
    }

    /// Returns the check for what is sent, and for what connections receive.
    #[inline]
    pub(crate) fn of_connections(self) -> MappingCheck {
        match self {
            MappingCheckPolicy::Everything => MappingCheck::ByKernel,
            MappingCheckPolicy::Datagrams | MappingCheckPolicy::DatagramsNotPolled { .. } => {
                MappingCheck::Assumed
            }
        }
    }

    /// Returns the check for datagrams and frames that a queue pair receives.
    #[inline]
    pub(crate) fn of_datagrams(self, qp: &QpContext) -> MappingCheck {
        match self {
            MappingCheckPolicy::DatagramsNotPolled { cq } if cq == qp.recv_cq => MappingCheck::Assumed,
            _ => MappingCheck::ByKernel,
        }
    }
}

#[cfg(test)]
mod tests {
    use pumice_transport::wire::Qpn;

    use super::*;

    #[test]
    fn datagrams_are_checked_unless_their_queue_is_polled_and_all_else_when_things_are_destroyed() {
        use MappingCheck::{Assumed, ByKernel};
        let completes_on = |recv_cq| QpContext {
            qpn: Qpn::new(9),
            pd: 0,
            send_cq: 0,
            recv_cq,
            recv_queue: 0,
            xrcd: 0,
            ordinal: 0,
            out_of_order: false,
        };
        for (policy, of_queue_7, of_queue_8, of_connections) in [
            (MappingCheckPolicy::DatagramsNotPolled { cq: 7 }, Assumed, ByKernel, Assumed),
            (MappingCheckPolicy::Datagrams, ByKernel, ByKernel, Assumed),
            (MappingCheckPolicy::Everything, ByKernel, ByKernel, ByKernel),
        ] {
            assert_eq!(policy.of_datagrams(&completes_on(7)), of_queue_7, "{policy:?}");
            assert_eq!(policy.of_datagrams(&completes_on(8)), of_queue_8, "{policy:?}");
            assert_eq!(policy.of_connections(), of_connections, "{policy:?}");
        }
    }
}
