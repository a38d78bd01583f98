//! Peers that nothing passes to and from.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The partitions that a plan has begun: shared by the code that decides, and the port, which refuses what
/// comes from the other side.
#[derive(Debug, Clone, Default)]
pub struct Partitions(Arc<PartitionList>);

#[derive(Debug, Default)]
pub(crate) struct PartitionList {
    /// There is one, perhaps over already.
    any: AtomicBool,
    list: Mutex<Vec<Partition>>,
}

#[derive(Debug)]
pub struct Partition {
    /// Empty: all peers.
    peers: Vec<IpAddr>,
    /// Own addresses; empty: all.
    own: Vec<IpAddr>,
    /// The port of the device that is cut off from all peers.
    port_num: Option<u8>,
    until_ns: u64,
}

/// Partitions at a time; a plan that begins more of them has parted everything already.
pub(crate) const MAX_PARTITIONS: usize = 1024;

impl Partitions {
    /// From now on nothing passes; `peers` empty: to no peer.
    pub fn begin(&self, peers: &[IpAddr], until_ns: u64) {
        self.add(Partition { peers: peers.to_vec(), own: Vec::new(), port_num: None, until_ns });
    }

    /// From now on nothing passes a port of the device, which has these addresses; without any: all.
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
    }

    /// Ends what [`Partitions::cut_off`] began.
    pub fn rejoin(&self, port_num: u8) {
        let mut list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|partition| partition.port_num != Some(port_num));
    }

    /// Whether there may be any.
    #[inline]
    pub fn any(&self) -> bool {
        self.0.any.load(Ordering::Acquire)
    }

    /// Whether nothing passes between this address of the device and this peer.
    pub fn part(&self, own: IpAddr, peer: IpAddr, now_ns: u64) -> bool {
        if !self.any() {
            return false;
        }
        let mut list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|partition| now_ns < partition.until_ns);
        if list.is_empty() {
            self.0.any.store(false, Ordering::Release);
        }
        let is_of = |list: &[IpAddr], address| list.is_empty() || list.contains(&address);
        list.iter().any(|partition| is_of(&partition.peers, peer) && is_of(&partition.own, own))
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
