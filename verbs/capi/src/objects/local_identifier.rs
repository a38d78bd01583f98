//! LIDs, for programs that know no GIDs. RoCE has no LIDs: an address vector without GRH is refused, as real
//! RoCE devices refuse it. With PUMICE_LID=1 the port has a LID nevertheless, the low 16 bits of its first
//! address, and a LID stands for the address of the same network that ends with it.

use pumice_device::hca::Hca;
use pumice_device::outside;
use pumice_device::outside::fork_generation::InheritedOnce;
use pumice_transport::types::{AddressVector, Gid};

/// Reports whether PUMICE_LID is set and neither empty nor 0.
fn is_enabled() -> bool {
    static IS_ENABLED: InheritedOnce<bool> = InheritedOnce::new();
    *IS_ENABLED.get_or_init(|| {
        outside::environment::variable("PUMICE_LID").is_some_and(|set| !set.is_empty() && set != "0")
    })
}

/// Returns the LID of a port of a device; 0 for none.
pub(crate) fn of_port(hca: &Hca, port_num: u8) -> u16 {
    if is_enabled() { hca.gid(port_num, 0).map_or(0, |first| of(first.gid)) } else { 0 }
}

/// Replaces the LID of an address vector by a GID, if it has only a LID and LIDs are wanted.
pub(crate) fn resolve(vector: AddressVector, hca: &Hca) -> AddressVector {
    if vector.is_global || !is_enabled() {
        return vector;
    }
    match hca.gid(vector.port_num, 0) {
        Some(first) => AddressVector {
            is_global: true,
            dgid: gid_with_lid(first.gid, vector.dlid),
            sgid_index: 0,
            hop_limit: 64,
            ..vector
        },
        None => vector,
    }
}

fn of(gid: Gid) -> u16 {
    let [.., high, low] = gid.0;
    u16::from_be_bytes([high, low])
}

/// Returns the GID that differs from `own` only in the bits of the LID.
fn gid_with_lid(own: Gid, lid: u16) -> Gid {
    let mut gid = own;
    let [.., high, low] = &mut gid.0;
    [*high, *low] = lid.to_be_bytes();
    gid
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn a_lid_names_a_neighbour() {
        let gid = |text: &str| Gid::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of(gid("127.3.1.2")), 0x0102);
        assert_eq!(gid_with_lid(gid("127.3.1.2"), 0x0907), gid("127.3.9.7"));
        assert_eq!(gid_with_lid(gid("2001:db8::1"), of(gid("2001:db8::2"))), gid("2001:db8::2"));
    }
}
