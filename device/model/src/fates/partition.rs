//! Partitions: peers between which and the device nothing passes.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The partitions that a plan has begun: shared by the code that decides and the port, which refuses packets
/// from the other side.
#[derive(Debug, Clone, Default)]
pub struct Partitions(Arc<PartitionList>);

#[derive(Debug, Default)]
struct PartitionList {
    /// True if there is a partition, perhaps one that is over.
    any: AtomicBool,
    /// Number of partitions that began or were ended early.
    changes: AtomicU64,
    list: Mutex<Vec<Partition>>,
}

/// A separation of the device, or of some of its addresses, from peers for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The separated peers; empty: all.
    pub peers: Vec<IpAddr>,
    /// The device's own addresses that are cut off; empty: all.
    pub own: Vec<IpAddr>,
    /// The number of the port that is cut off from all peers.
    pub port_num: Option<u8>,
    /// End of the partition, in ns of the device's clock; `u64::MAX` if it never ends.
    pub until_ns: u64,
}

impl Partition {
    /// Reports whether the partition separates this address of the device from this peer while it holds.
    pub fn parts(&self, own: IpAddr, peer: IpAddr) -> bool {
        let is_of = |list: &[IpAddr], address| list.is_empty() || list.contains(&address);
        is_of(&self.peers, peer) && is_of(&self.own, own)
    }
}

/// Most partitions at a time; further ones are not added.
pub const MAX_PARTITIONS: usize = 1024;

impl Partitions {
    /// Begins a partition from these peers; empty: from all.
    pub fn begin(&self, peers: &[IpAddr], until_ns: u64) {
        self.add(Partition { peers: peers.to_vec(), own: Vec::new(), port_num: None, until_ns });
    }

    /// Cuts off a port of the device, which has these addresses; without addresses all are cut off.
    pub fn cut_off(&self, port_num: u8, own: Vec<IpAddr>, until_ns: u64) {
        self.add(Partition { peers: Vec::new(), own, port_num: Some(port_num), until_ns });
    }

    #[doc(hidden)]
    pub fn add(&self, partition: Partition) {
        let mut list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < MAX_PARTITIONS {
            list.push(partition);
        }
        self.0.any.store(true, Ordering::Release);
        self.0.changes.fetch_add(1, Ordering::Release);
    }

    /// Ends what [`Partitions::cut_off`] began.
    pub fn rejoin(&self, port_num: u8) {
        let mut list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|partition| partition.port_num != Some(port_num));
        self.0.changes.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of partitions that began or were ended early.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// Returns the partitions that hold now.
    pub fn holding(&self, now_ns: u64) -> Vec<Partition> {
        let list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().filter(|partition| now_ns < partition.until_ns).cloned().collect()
    }

    /// Reports whether there may be a partition.
    #[inline]
    pub fn any(&self) -> bool {
        self.0.any.load(Ordering::Acquire)
    }

    /// Reports whether a partition separates this address of the device from this peer.
    pub fn part(&self, own: IpAddr, peer: IpAddr, now_ns: u64) -> bool {
        if !self.any() {
            return false;
        }
        let mut list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|partition| now_ns < partition.until_ns);
        if list.is_empty() {
            self.0.any.store(false, Ordering::Release);
        }
        list.iter().any(|partition| partition.parts(own, peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_ends_and_parts_its_peers_only() {
        let [own, one, other] = [9, 1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let partitions = Partitions::default();
        assert!(!partitions.any() && !partitions.part(own, one, 0));
        partitions.begin(&[one], 50);
        assert!(partitions.part(own, one, 49) && !partitions.part(own, other, 49));
        partitions.cut_off(1, Vec::new(), u64::MAX);
        assert!(partitions.part(own, one, 50) && partitions.part(own, other, 50));
        partitions.rejoin(1);
        assert!(!partitions.part(own, other, 50));
        assert_eq!((partitions.changes(), partitions.holding(51).len()), (3, 0));
        let brief = Partitions::default();
        brief.begin(&[one], 50);
        assert!(!brief.part(own, one, 50) && !brief.any());
    }

    #[test]
    fn a_port_is_cut_off_and_the_other_one_is_not() {
        let [first, second, peer] = [1, 2, 9].map(|last| IpAddr::from([10, 0, 0, last]));
        let partitions = Partitions::default();
        partitions.cut_off(2, vec![second], u64::MAX);
        assert!(partitions.part(second, peer, 0) && !partitions.part(first, peer, 0));
        partitions.rejoin(1);
        assert!(partitions.part(second, peer, 0), "that was the other port");
        partitions.rejoin(2);
        assert!(!partitions.part(second, peer, 0));
    }
}
