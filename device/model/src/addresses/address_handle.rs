//! Conversion of an address vector to a path.

use std::net::IpAddr;

use crate::addresses::ports::Ports;
use pumice_platform::error::ResourceError;
use pumice_transport::path::{Flow, Path, ROCE_PORT};
use pumice_transport::types::{AddressVector, Gid};

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

#[cfg(test)]
mod tests {
    use crate::addresses::gid_table::GidEntry;
    use crate::addresses::pkey_table::PkeyTable;
    use crate::addresses::ports::DevicePort;
    use pumice_transport::types::Mtu;

    use super::*;

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
