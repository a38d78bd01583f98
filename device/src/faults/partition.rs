//! Peers that nothing passes to and from.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The partitions that a plan has begun: shared by the place that decides, and the port, which refuses what
/// comes from the other side.
#[derive(Debug, Clone, Default)]
pub(crate) struct Partitions(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// There is one, perhaps over already.
    any: AtomicBool,
    list: Mutex<Vec<Partition>>,
}

#[derive(Debug)]
struct Partition {
    /// Empty: all peers.
    peers: Vec<IpAddr>,
    until_ns: u64,
}

/// Partitions at a time; a plan that begins more of them has parted everything already.
const MAX_PARTITIONS: usize = 1024;

impl Partitions {
    /// From now on nothing passes; `peers` empty: to no peer.
    pub(super) fn begin(&self, peers: &[IpAddr], until_ns: u64) {
        let mut list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < MAX_PARTITIONS {
            list.push(Partition { peers: peers.to_vec(), until_ns });
        }
        self.0.any.store(true, Ordering::Release);
    }

    /// Ends those from all peers.
    pub(super) fn rejoin_all(&self) {
        let mut list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|partition| !partition.peers.is_empty());
    }

    /// Whether there may be any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.any.load(Ordering::Acquire)
    }

    /// Whether nothing passes between here and this peer.
    pub(crate) fn part(&self, peer: IpAddr, now_ns: u64) -> bool {
        if !self.any() {
            return false;
        }
        let mut list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|partition| now_ns < partition.until_ns);
        if list.is_empty() {
            self.0.any.store(false, Ordering::Release);
        }
        list.iter().any(|partition| partition.peers.is_empty() || partition.peers.contains(&peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_ends_and_parts_its_peers_only() {
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let partitions = Partitions::default();
        assert!(!partitions.any() && !partitions.part(one, 0));
        partitions.begin(&[one], 50);
        assert!(partitions.part(one, 49) && !partitions.part(other, 49));
        partitions.begin(&[], u64::MAX);
        assert!(partitions.part(one, 50) && partitions.part(other, 50));
        partitions.rejoin_all();
        assert!(!partitions.part(other, 50));
        let brief = Partitions::default();
        brief.begin(&[one], 50);
        assert!(!brief.part(one, 50) && !brief.any());
    }
}
