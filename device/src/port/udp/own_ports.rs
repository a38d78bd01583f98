//! UDP ports that this process has for itself, as they see each other: two devices of a process have no files
//! in common that would tell whether the other one has had a processor.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_transport::host::PeerProgress;

/// The ports: when each last found its socket empty and had answered what was there, in ns of the clock that
/// all of them share.
static PORTS: Mutex<BTreeMap<(IpAddr, u16), Arc<AtomicU64>>> = Mutex::new(BTreeMap::new());

/// A port among those of this process.
#[derive(Debug)]
pub(super) struct OwnPort {
    name: (IpAddr, u16),
    looked_ns: Arc<AtomicU64>,
    /// The latest look. What was taken before it is answered when the next one follows.
    latest_ns: u64,
    /// What the shared clock says where the engine's begins.
    origin_ns: u64,
}

impl OwnPort {
    pub(super) fn new(address: IpAddr, port: u16) -> OwnPort {
        let (name, looked_ns) = ((address, port), Arc::new(AtomicU64::new(0)));
        ports().insert(name, Arc::clone(&looked_ns));
        OwnPort { name, looked_ns, latest_ns: 0, origin_ns: 0 }
    }

    pub(super) fn clock_began(&mut self, origin_ns: u64) {
        self.origin_ns = origin_ns;
    }

    /// The socket was found empty.
    #[inline]
    pub(super) fn found_empty(&mut self, now_ns: u64) {
        self.looked_ns.store(self.latest_ns, Ordering::Relaxed);
        self.latest_ns = self.origin_ns.wrapping_add(now_ns);
    }

    /// Whether the port of another device of this process has not looked since.
    pub(super) fn peer_progress(&self, address: IpAddr, since_ns: u64) -> PeerProgress {
        let ports = ports();
        let peer = ports.get(&(address, self.name.1));
        let since_ns = self.origin_ns.wrapping_add(since_ns);
        match peer {
            Some(looked_ns) if looked_ns.load(Ordering::Relaxed) < since_ns => PeerProgress::Starved,
            _ => PeerProgress::Unknown,
        }
    }
}

impl Drop for OwnPort {
    fn drop(&mut self) {
        ports().remove(&self.name);
    }
}

fn ports() -> std::sync::MutexGuard<'static, BTreeMap<(IpAddr, u16), Arc<AtomicU64>>> {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_has_not_looked_twice_is_starved() {
        let [one, other, none]: [IpAddr; 3] =
            ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|a| a.parse().unwrap());
        let mut own = OwnPort::new(one, 1);
        let mut peer = OwnPort::new(other, 1);
        own.clock_began(100);
        peer.clock_began(1000);
        // The peer's 5 is 905 here.
        peer.found_empty(5);
        assert_eq!(own.peer_progress(other, 900), PeerProgress::Starved, "what it took may not be answered");
        peer.found_empty(6);
        assert_eq!(own.peer_progress(other, 900), PeerProgress::Unknown);
        assert_eq!(own.peer_progress(other, 906), PeerProgress::Starved);
        assert_eq!(own.peer_progress(none, 906), PeerProgress::Unknown, "another process's, or none");
        drop(peer);
        assert_eq!(own.peer_progress(other, 906), PeerProgress::Unknown);
    }
}
