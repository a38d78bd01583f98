//! The interface of a link-local destination, and unread data in the UDP sockets of this network namespace.
//!
//! The interface of a link-local destination. fe80::/64 is on every link, as are the groups ff02::, and a GID
//! names no link: as on Linux it is the one of the address that is sent from.
//!
//! Processes that keep their UDP ports to themselves share no files that would say whether one of them has
//! had a processor. But a process that has not taken what was sent to it cannot have answered.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::outside;
use crate::outside::interface;

/// Number of addresses that are cached; a host has few.
const MAX_KNOWN: usize = 1024;

/// Cached interfaces of this host's addresses, as far as they were asked for.
#[derive(Debug, Default)]
pub struct Scopes(BTreeMap<Ipv6Addr, u32>);

impl Scopes {
    /// Returns the index to send with from `source` to `destination`: 0 for a destination that needs none,
    /// and if no interface has the source (the kernel refuses the packet then).
    pub fn scope_id(&mut self, source: IpAddr, destination: IpAddr) -> u32 {
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (source, destination) else { return 0 };
        if !has_scope(destination) {
            return 0;
        }
        if self.0.len() >= MAX_KNOWN {
            self.0.clear();
        }
        *self.0.entry(source).or_insert_with(|| interface::index_of(source))
    }

    /// Clears the cache after a packet was refused: addresses may have moved to another interface.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

/// Reports whether an address means something else on each link (fe80::, ff02::), or on each interface
/// (ff01::).
pub const fn has_scope(address: Ipv6Addr) -> bool {
    address.is_unicast_link_local() || address.is_multicast() && matches!(address.octets()[1] & 0xf, 1 | 2)
}

/// Files in which the kernel lists the sockets. They are those of the thread, which may have moved to another
/// namespace.
const TABLES: [&str; 2] = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];

/// Reports whether a socket that is bound to this address and port has something to take. Returns false as
/// well if the kernel does not say.
pub fn is_unread_at(address: IpAddr, port: u16) -> bool {
    let table = if address.is_ipv4() { TABLES[0] } else { TABLES[1] };
    outside::files::fact_text(table).is_ok_and(|text| is_unread_in(&text, &name_of(address, port)))
}

/// Returns the name that the table gives a socket: words of the address in the byte order of the processor,
/// and the port.
fn name_of(address: IpAddr, port: u16) -> String {
    let octets = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let words = octets.as_chunks::<4>().0.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word)));
    format!("{}:{port:04X}", words.collect::<String>())
}

/// Reports whether the table lists unread bytes for the socket with this name. The columns of a line are its
/// number, the local and the remote address, the state, and the bytes that wait to be sent and to be
/// received.
fn is_unread_in(table: &str, name: &str) -> bool {
    table.lines().skip(1).any(|line| {
        let mut columns = line.split_ascii_whitespace().skip(1);
        let is_it = columns.next() == Some(name);
        let received = columns.nth(2).and_then(|queues| queues.split_once(':')).map(|(_, received)| received);
        is_it && received.is_some_and(|bytes| bytes.chars().any(|digit| digit != '0'))
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn only_link_local_destinations_have_a_scope() {
        let mut scopes = Scopes::default();
        let [own, link_local, global, v4]: [IpAddr; 4] =
            ["::1", "fe80::2", "2001:db8::2", "192.0.2.1"].map(|text| text.parse().unwrap());
        assert_eq!(scopes.scope_id(own, global), 0);
        assert_eq!(scopes.scope_id(v4, v4), 0);
        assert_eq!(scopes.0.len(), 0, "the interfaces were not listed");
        let lo = interface::interfaces()
            .unwrap()
            .into_iter()
            .find(|each| each.addresses.iter().any(|(a, _)| *a == own));
        assert_eq!(scopes.scope_id(own, link_local), lo.as_ref().map_or(0, |lo| lo.index));
        for (group, index) in [("ff01::7", 1), ("ff12::7", 1), ("ff05::7", 0), ("ff0e::2", 0)] {
            let expected = lo.as_ref().map_or(0, |lo| lo.index * index);
            assert_eq!(scopes.scope_id(own, group.parse().unwrap()), expected, "{group}");
        }
        assert_eq!(scopes.scope_id(global, link_local), 0, "documentation addresses are no host's");
        scopes.forget();
        assert_eq!(scopes.0.len(), 0);
    }

    #[test]
    fn a_socket_is_unread_until_it_was_read() {
        for own in ["127.0.0.1:0", "[::1]:0"] {
            let (Ok(receiver), Ok(sender)) = (UdpSocket::bind(own), UdpSocket::bind(own)) else {
                eprintln!("not tested: this host has no {own}");
                continue;
            };
            let name = receiver.local_addr().unwrap();
            assert!(!is_unread_at(name.ip(), name.port()));
            sender.send_to(b"x", name).unwrap();
            assert!(is_unread_at(name.ip(), name.port()));
            receiver.recv(&mut [0; 8]).unwrap();
            assert!(!is_unread_at(name.ip(), name.port()));
        }
    }

    #[test]
    fn other_sockets_and_nonsense_are_not_unread() {
        let name = name_of("127.0.0.1".parse().unwrap(), 4791);
        assert_eq!(name.len(), "0100007F:12B7".len());
        let line = |name: &str, queues: &str| format!("head\n 7: {name} 00000000:0000 07 {queues} 00:0 0\n");
        assert!(is_unread_in(&line(&name, "00000000:00000900"), &name));
        assert!(!is_unread_in(&line(&name, "00000900:00000000"), &name));
        assert!(!is_unread_in(&line("0200007F:12B7", "00000000:00000900"), &name));
        for nonsense in ["", "head\n", "head\n 7:\n", "head\n 7: x y z\n"] {
            assert!(!is_unread_in(nonsense, &name));
        }
    }
}
