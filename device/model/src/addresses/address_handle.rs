//! Conversion of an address vector to a path, and a watch for changes of the host's addresses.
//!
//! The kernel reports changes through a netlink socket. Its messages are not parsed: they only show that it
//! is time to list the addresses again.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::{io, mem};

use pumice_platform::error::ResourceError;
use pumice_platform::outside::system_call::without_cancellation;
use pumice_transport::path::{Flow, Path, ROCE_PORT};
use pumice_transport::types::{AddressVector, Gid};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use super::Ports;
use crate::addresses::gid_table::GidEntry;

/// TTL of packets whose address vector leaves it to the device, as in rdma_rxe and the kernel's CM.
pub const DEFAULT_HOP_LIMIT: u8 = 64;

/// Resolves an address vector: its GID index, in the table of its port, gives the source address, its GID the
/// destination. Packets leave from UDP port 4791; those of queue pairs are given a source port of their own.
///
/// # Errors
/// Fails with `Invalid` without a GRH, for a port that does not exist, an index beyond its table, no
/// destination, or a destination of the other IP version; with `NoData` if the index is empty.
pub fn resolve(vector: &AddressVector, ports: &Ports) -> Result<Path, ResourceError> {
    //= man:ibv_create_ah
    //| An address handle of RoCE has a GRH.
    if !vector.is_global {
        return Err(ResourceError::invalid("address vector without GRH: RoCE needs is_global = 1 and a GID"));
    }
    let entry = ports.require(vector.port_num)?.gids.entry(vector.sgid_index)?;
    if vector.dgid == Gid::ZERO {
        return Err(ResourceError::invalid("address vector with the zero GID as its destination"));
    }
    let destination = IpAddr::from(vector.dgid);
    if destination.is_ipv4() != entry.ip.is_ipv4() {
        return Err(ResourceError::invalid(format!(
            "no path from {} (GID index {}) to {destination}: choose a GID index of the same IP version",
            entry.ip, vector.sgid_index
        )));
    }
    Ok(Path {
        flow: Flow { source: entry.ip, destination, source_port: ROCE_PORT, destination_port: ROCE_PORT },
        //= linux:rxe_net.c#prepare4
        //| The traffic class of the address vector is the TOS of the IP header.
        traffic_class: vector.traffic_class,
        hop_limit: if vector.hop_limit == 0 { DEFAULT_HOP_LIMIT } else { vector.hop_limit },
        flow_label: vector.flow_label & 0x000f_ffff,
    })
}

/// A function that lists the addresses that the GID table should have, in the order in which new ones are
/// added. `None`: they cannot be listed now, and the table stays as it is.
pub type GidSource = Box<dyn FnMut() -> Option<Vec<GidEntry>> + Send>;

/// The netlink groups: links, IPv4 addresses, IPv6 addresses.
const GROUPS: u32 = (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
/// Most messages that are taken at a time, because other programs may change addresses all the time.
const MAX_MESSAGES: usize = 1024;

/// The socket, and the function that lists the addresses.
pub struct AddressWatch {
    socket: OwnedFd,
    source: GidSource,
    /// True if the addresses were not listed yet: the socket does not report changes before it was opened.
    fresh: bool,
}

impl AddressWatch {
    /// Watches the network namespace of the calling thread.
    ///
    /// # Errors
    /// The error of socket(2) or bind(2); a sandbox may forbid them.
    pub fn new(source: GidSource) -> io::Result<AddressWatch> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The protocol is left out: NETLINK_ROUTE is 0.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(AddressWatch { socket, source, fresh: true })
    }

    /// Returns a descriptor that is readable when something may have changed.
    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Returns the present addresses, if something may have changed since the last call; at the first call in
    /// any case.
    pub fn changed(&mut self) -> Option<Vec<GidEntry>> {
        let notifications = self.drain();
        if mem::take(&mut self.fresh) || notifications {
            without_cancellation(|| (self.source)())
        } else {
            None
        }
    }

    /// Takes the messages, and returns whether there were any. Messages that were lost count as well.
    fn drain(&self) -> bool {
        let mut any = false;
        for _ in 0..MAX_MESSAGES {
            // The rest of a message is cut off.
            match recv(&self.socket, &mut [0_u8; 16], RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS) => any = true,
                Err(_) => break,
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use pumice_transport::types::Mtu;

    use super::super::{DevicePort, PkeyTable};
    use super::*;
    use crate::addresses::gid_table::GidEntry;

    fn table() -> Ports {
        let mut ports = Ports::one(DevicePort::new(PkeyTable::new(&[], 1), Mtu::Mtu1024));
        for ip in ["fe80::1", "10.0.0.1"] {
            ports.add(GidEntry::new(ip.parse().unwrap(), "eth0", 2, Mtu::Mtu1024)).unwrap();
        }
        ports
    }

    fn vector(destination: &str, sgid_index: u32) -> AddressVector {
        AddressVector {
            is_global: true,
            dgid: Gid::from(destination.parse::<IpAddr>().unwrap()),
            sgid_index,
            port_num: 1,
            ..AddressVector::default()
        }
    }

    #[test]
    fn a_vector_becomes_a_path() {
        let vector = AddressVector { traffic_class: 0x62, flow_label: 0xfff1_2345, ..vector("10.0.0.2", 1) };
        let path = resolve(&vector, &table()).unwrap();
        let flow = Flow {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            source_port: 4791,
            destination_port: 4791,
        };
        assert_eq!(path, Path { flow, traffic_class: 0x62, hop_limit: 64, flow_label: 0x1_2345 });
        let path = resolve(&AddressVector { hop_limit: 1, ..vector }, &table()).unwrap();
        assert_eq!(path.hop_limit, 1);
        assert!(resolve(&self::vector("fe80::2", 0), &table()).is_ok());
    }

    #[test]
    fn an_index_is_one_of_the_vectors_port() {
        let mut ports = table();
        ports.push(DevicePort::new(PkeyTable::new(&[], 1), Mtu::Mtu1024));
        ports.add(GidEntry::new("10.0.0.9".parse().unwrap(), "eth1", 3, Mtu::Mtu1024).at_port(2)).unwrap();
        let of_second = AddressVector { port_num: 2, ..vector("10.0.0.2", 0) };
        assert_eq!(resolve(&of_second, &ports).unwrap().flow.source, "10.0.0.9".parse::<IpAddr>().unwrap());
        let beyond = resolve(&AddressVector { sgid_index: 1, ..of_second }, &ports).unwrap_err();
        assert!(beyond.to_string().contains("GID index 1"), "{beyond}");
        let third = resolve(&AddressVector { port_num: 3, ..of_second }, &ports).unwrap_err();
        assert!(third.to_string().contains("port 3: the device has only ports 1 and 2"), "{third}");
    }

    #[test]
    fn wrong_vectors_are_refused_with_their_reason() {
        let good = vector("10.0.0.2", 1);
        use libc::{EINVAL, ENODATA};
        let cases = [
            (AddressVector { is_global: false, ..good }, EINVAL, "GRH"),
            (AddressVector { port_num: 0, ..good }, EINVAL, "port 0"),
            (AddressVector { port_num: 2, ..good }, EINVAL, "port 2"),
            (AddressVector { dgid: Gid::ZERO, ..good }, EINVAL, "zero GID"),
            (AddressVector { sgid_index: 2, ..good }, ENODATA, "0 (fe80::1), 1 (10.0.0.1)"),
            (AddressVector { sgid_index: 2, dgid: Gid::ZERO, ..good }, ENODATA, "GID index 2 has no GID"),
            (AddressVector { sgid_index: u32::MAX, ..good }, EINVAL, "beyond the table"),
            (AddressVector { sgid_index: 0, ..good }, EINVAL, "same IP version"),
            (vector("fe80::2", 1), EINVAL, "same IP version"),
        ];
        for (bad, errno, part) in cases {
            let error = resolve(&bad, &table()).unwrap_err();
            assert_eq!(error.errno(), errno, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
