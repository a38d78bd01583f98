//! The sockets of this network namespace that are on a UDP port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::members::error::Holder;
use crate::system;

/// Returns the sockets on a UDP port as /proc lists them; `None` without /proc.
pub(crate) fn holders(port: u16) -> Option<Vec<Holder>> {
    let mut found = None;
    for table in ["udp", "udp6"] {
        let Some(text) = system::udp_table(table) else { continue };
        let on_port = text.lines().skip(1).filter_map(parse).filter(|&(_, of)| of == port);
        found.get_or_insert_with(Vec::new).extend(on_port.map(|(holder, _)| holder));
    }
    found
}

/// Returns the one of `holders` that most likely keeps others from binding `address`.
pub(crate) fn conflicting_holder(holders: &[Holder], address: IpAddr) -> Option<Holder> {
    let exact = holders.iter().find(|holder| holder.address == address);
    exact.or_else(|| holders.iter().find(|holder| overlap(holder.address, address))).copied()
}

/// Reports whether sockets at two addresses may get the same packets.
pub(crate) fn overlap(a: IpAddr, b: IpAddr) -> bool {
    a == b || a.is_unspecified() || b.is_unspecified()
}

/// Parses a line of the tables: the socket and its port.
fn parse(line: &str) -> Option<(Holder, u16)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    let holder = Holder {
        address: parse_address(address)?,
        uid: fields.get(7)?.parse().ok()?,
        inode: fields.get(9)?.parse().ok()?,
    };
    Some((holder, u16::from_str_radix(port, 16).ok()?))
}

/// Parses an address, which the tables print as 32-bit words in the byte order of the host.
fn parse_address(hex: &str) -> Option<IpAddr> {
    let word = |index: usize| -> Option<[u8; 4]> {
        let digits = hex.get(index * 8..index * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let mut octets = [0; 16];
            let (words, _) = octets.as_chunks_mut::<4>();
            for (index, to) in words.iter_mut().enumerate() {
                *to = word(index)?;
            }
            Some(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn sockets_of_both_families_are_found() {
        for address in ["127.0.0.1", "::1"] {
            // A host may lack one of the families.
            let Ok(socket) = UdpSocket::bind((address, 0)) else { continue };
            let own = socket.local_addr().unwrap();
            let found = holders(own.port()).unwrap();
            let own_uid = super::super::process::effective_uid();
            assert!(
                found
                    .iter()
                    .any(|holder| holder.address == own.ip() && holder.uid == own_uid && holder.inode != 0),
                "{found:?}"
            );
        }
        for broken in ["", "x", "77: :", "77: 0100007F", "7: 01:02 3 4 5 6 7 8 9 10", "7: é100007F:12B7 0 0"]
        {
            assert!(parse(broken).is_none(), "{broken:?}");
        }
    }

    #[test]
    fn the_same_address_is_blamed_first() {
        let holder = |address: &str, inode| Holder { address: address.parse().unwrap(), uid: 1, inode };
        let all = [holder("10.0.0.9", 1), holder("0.0.0.0", 2), holder("10.0.0.1", 3)];
        let blamed =
            |address: &str| conflicting_holder(&all, address.parse().unwrap()).map(|holder| holder.inode);
        assert_eq!((blamed("10.0.0.1"), blamed("10.0.0.2"), blamed("::")), (Some(3), Some(2), Some(1)));
        assert_eq!(conflicting_holder(&all[..1], "10.0.0.2".parse().unwrap()), None);
    }
}
