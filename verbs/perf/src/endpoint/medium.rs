//! What carries an end's packets to the other end.

use std::process;
use std::time::Duration;

use pumice_device::share::inspect_first;
use pumice_transport::path::ROCE_PORT;

use super::end::Endpoint;
use super::queue_pairs::QueuePairs;

/// How long the device has to say it. It may have to wait for a processor.
const PATIENCE: Duration = Duration::from_secs(5);

/// What carries packets to the other end, and for UDP why it is not shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Medium {
    /// "shared memory" or "UDP".
    pub(crate) name: String,
    pub(crate) reason: Option<String>,
}

impl Medium {
    /// As `pumice stat` says it: "shared memory", or "UDP: why".
    fn parse(said: &str) -> Medium {
        match said.split_once(": ") {
            Some((name, reason)) => Medium { name: name.to_owned(), reason: Some(reason.to_owned()) },
            None => Medium { name: said.to_owned(), reason: None },
        }
    }

    /// Whether packets go through shared memory.
    pub(crate) fn is_shared_memory(&self) -> bool {
        self.name == "shared memory"
    }

    /// Whether the two processes have not agreed on a ring yet, but may.
    pub(crate) fn may_change(&self) -> bool {
        self.reason
            .as_ref()
            .is_some_and(|why| why.contains("not answered") || why.contains("was sent to it yet"))
    }
}

impl Endpoint {
    /// What carries packets to the other end now, as the device says. None: it does not say it in time, or
    /// the queue pairs are of a service that has no peer (UD).
    pub(crate) fn medium(&self) -> Option<Medium> {
        if !self.plan.shared {
            return Some(Medium::parse("UDP: the processes do not share their UDP ports"));
        }
        let qpn = match &self.queue_pairs {
            QueuePairs::Rc(qps) => qps.first()?.qpn(),
            QueuePairs::Uc(qps) => qps.first()?.qpn(),
            QueuePairs::Ud(..) => return None,
        };
        let this = (qpn.process(), process::id());
        let objects = inspect_first(ROCE_PORT, None, this, PATIENCE).ok()??;
        let said = objects.qps.into_iter().find(|qp| qp.qpn == qpn.value())?.medium?;
        Some(Medium::parse(&said))
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
