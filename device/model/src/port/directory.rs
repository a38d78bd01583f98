//! The directory of services: which process at an address has bound which service.

use std::io;

use crate::fates::trigger::Partition;
use pumice_transport::cm::ListenScope;
use pumice_transport::mad::ServiceId;
use pumice_transport::types::Gid;
use pumice_transport::wire::ProcessIndex;

/// A service that a process has bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceEntry {
    /// Service id, or with a mask several.
    pub service_id: ServiceId,
    /// Bits of the service id that count.
    pub mask: u64,
    /// Addresses at which the service is bound.
    pub scope: ListenScope,
}

impl ServiceEntry {
    /// Reports whether the entry covers a request for this service at this address.
    pub fn serves(&self, service_id: ServiceId, local: Gid) -> bool {
        (self.service_id.0 ^ service_id.0) & self.mask == 0 && self.scope.serves(local)
    }

    /// Reports whether both entries cover some request.
    pub fn overlaps(&self, other: &ServiceEntry) -> bool {
        self.scope.overlaps(other.scope)
            && (self.service_id.0 ^ other.service_id.0) & self.mask & other.mask == 0
    }
}

/// The services of all processes that share a port.
pub trait ServiceDirectory {
    /// Binds a service for this process.
    ///
    /// # Errors
    /// Fails if another process has it, or if the directory is full or cannot be written.
    fn publish(&mut self, entry: &ServiceEntry) -> Result<(), DirectoryError>;

    /// Notes that this process listens for a service that it has bound: requests should come to it directly.
    fn listen(&mut self, entry: &ServiceEntry);

    /// Undoes [`publish`](ServiceDirectory::publish).
    fn withdraw(&mut self, entry: &ServiceEntry);

    /// Returns other processes that have bound a service at an address.
    fn find(&mut self, service_id: ServiceId, local: Gid) -> Vec<ProcessIndex>;

    /// Reports whether another living process has a device with this address only.
    fn is_address_of_another(&mut self, address: Gid) -> bool;

    /// Returns the other process that has an index at an address.
    fn occupant(&mut self, process: ProcessIndex, address: Gid) -> Occupant;

    /// Reports whether the process that [`occupant`](ServiceDirectory::occupant) named still lives; true if
    /// that cannot be determined.
    fn lives(&mut self, process: ProcessIndex, who: u64) -> bool;

    /// Publishes all partitions that a fault plan imposes on this process at this time. Other processes read
    /// them when this process has died.
    fn publish_partitions(&mut self, now_ns: u64, partitions: &[Partition]) {
        let _ = (now_ns, partitions);
    }

    /// Reports whether a fault plan of this process, or of the process that
    /// [`occupant`](ServiceDirectory::occupant) named and that had this address, separated the two when the
    /// latter died, and still does.
    fn is_partitioned(&mut self, process: ProcessIndex, who: u64, address: Gid, now_ns: u64) -> bool {
        let _ = (process, who, address, now_ns);
        false
    }
}

/// The process that has an index at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupant {
    /// A process that lives. No other process has this number.
    Process(u64),
    /// No process on this host but perhaps this one has the index, or the address is another host's.
    NoProcess,
    /// The process cannot be determined at this moment.
    Unknown,
}

/// The reason why a service could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A process has bound the service, or one that overlaps.
    #[error("it is bound already, by the process with index {process}: choose another port")]
    Taken {
        /// Index of the process, which may be this one.
        process: ProcessIndex,
    },
    /// The directory has no room.
    #[error("all {limit} services that fit are bound")]
    Full {
        /// Largest number of services.
        limit: usize,
    },
    /// The directory cannot be read or written.
    #[error("the directory of services: {0}")]
    Os(io::Error),
}

impl DirectoryError {
    /// Returns the errno for the error; positive.
    pub fn errno(&self) -> i32 {
        match self {
            DirectoryError::Taken { .. } => libc::EADDRINUSE,
            DirectoryError::Full { .. } => libc::ENOMEM,
            DirectoryError::Os(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use pumice_transport::mad::PortSpace;

    use super::*;

    #[test]
    fn overlapping_is_having_a_request_in_common() {
        let gid = |text: &str| Gid::from(text.parse::<IpAddr>().unwrap());
        let entry = |port, scope| ServiceEntry {
            service_id: ServiceId::rdma_cm(PortSpace::Tcp, port),
            mask: u64::MAX,
            scope,
        };
        let at = |port, text| entry(port, ListenScope::At(gid(text)));
        let everywhere = entry(7, ListenScope::Everywhere);
        let here = at(7, "10.0.0.1");
        assert!(here.overlaps(&here) && here.overlaps(&everywhere) && everywhere.overlaps(&here));
        assert!(!here.overlaps(&at(7, "10.0.0.2")) && !here.overlaps(&at(8, "10.0.0.1")));
        assert!(entry(7, ListenScope::Ipv4).overlaps(&here) && !entry(7, ListenScope::Ipv6).overlaps(&here));
        let space = ServiceEntry { mask: ServiceId::PORT_SPACE_MASK, ..entry(0, ListenScope::Everywhere) };
        assert!(space.overlaps(&here) && here.overlaps(&space));
        assert!(here.serves(here.service_id, gid("10.0.0.1")));
        assert!(!here.serves(here.service_id, gid("10.0.0.2")));
        assert!(space.serves(here.service_id, gid("10.0.0.2")));
    }
}
