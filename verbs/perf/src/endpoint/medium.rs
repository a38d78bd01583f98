//! The medium that carries an end's packets to the other end.

use std::process;
use std::time::Duration;

use pumice_device::sharing::inspect_first;
use pumice_transport::path::ROCE_PORT;

use super::end::Endpoint;
use super::queue_pairs::ServiceQueuePairs;

/// Longest wait for the device's answer. The device may have to wait for a processor.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The medium of packets to the other end, and for UDP the reason why it is not shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Medium {
    /// Name: "shared memory" or "UDP".
    pub(crate) name: String,
    pub(crate) reason: Option<String>,
}

impl Medium {
    /// Parses the text of `pumice stat`: "shared memory", or "UDP: why".
    fn parse(description: &str) -> Medium {
        match description.split_once(": ") {
            Some((name, reason)) => Medium { name: name.to_owned(), reason: Some(reason.to_owned()) },
            None => Medium { name: description.to_owned(), reason: None },
        }
    }

    /// Reports whether packets go through shared memory.
    pub(crate) fn is_shared_memory(&self) -> bool {
        self.name == "shared memory"
    }

    /// Reports whether the two processes have not agreed on a ring yet, but may.
    pub(crate) fn may_change(&self) -> bool {
        self.reason
            .as_ref()
            .is_some_and(|why| why.contains("not answered") || why.contains("was sent to it yet"))
    }
}

impl Endpoint {
    /// Returns the medium of packets to the other end now, as the device reports it. `None` if it does not
    /// report it in time, or if the queue pairs are of a service that has no peer (UD).
    pub(crate) fn medium(&self) -> Option<Medium> {
        if !self.plan.shared {
            return Some(Medium::parse("UDP: the processes do not share their UDP ports"));
        }
        let qpn = match &self.queue_pairs {
            ServiceQueuePairs::Rc(qps) => qps.first()?.qpn(),
            ServiceQueuePairs::Uc(qps) => qps.first()?.qpn(),
            ServiceQueuePairs::Ud(..) => return None,
        };
        let this = (qpn.process(), process::id());
        let objects = inspect_first(ROCE_PORT, None, this, TIMEOUT).ok()??;
        let description = objects.qps.into_iter().find(|qp| qp.qpn == qpn.value())?.medium?;
        Some(Medium::parse(&description))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_device_says_is_a_name_and_a_reason() {
        let ring = Medium::parse("shared memory");
        assert!(ring.is_shared_memory() && ring.reason.is_none() && !ring.may_change());
        let udp = Medium::parse("UDP: nothing was sent to it yet");
        assert!(!udp.is_shared_memory() && udp.may_change());
        assert_eq!(udp.reason.as_deref(), Some("nothing was sent to it yet"));
        assert!(!Medium::parse("UDP: the other process uses UDP only").may_change());
    }
}
