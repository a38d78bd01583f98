//! Finds which user is at the other end of a connection over loopback, of which the kernel lists both ends.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};

/// Number of times that the list is read. Reading it is not atomic: while other connections end, a line may
/// be skipped.
const MAX_ATTEMPTS: u32 = 3;

/// The states in which the program at the other end has its socket: ESTABLISHED, FIN_WAIT1, FIN_WAIT2.
const OPEN: [&str; 3] = ["01", "04", "05"];

/// Returns the user whose program has the end `client` of the connection to `server`; `None` if the kernel
/// does not list it, or if the program has closed it.
///
/// # Errors
/// The lists cannot be read.
pub(super) fn user_of(client: SocketAddr, server: SocketAddr) -> io::Result<Option<u32>> {
    for _ in 0..MAX_ATTEMPTS {
        // A socket for IPv6 may have an end of a connection over IPv4.
        for (name, wide) in [("tcp", false), ("tcp6", true)] {
            let (Some(client), Some(server)) = (written(client, wide), written(server, wide)) else {
                continue;
            };
            let list = match File::open(format!("/proc/thread-self/net/{name}")) {
                Ok(list) => list,
                Err(error) if wide && error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if let Some(user) = find(BufReader::new(list), &client, &server)? {
                return Ok(Some(user));
            }
        }
    }
    Ok(None)
}

/// Returns the user id that the kernel shows for users outside of this user namespace.
pub(super) fn overflow_user() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    text.trim().parse().unwrap_or(65_534)
}

/// Formats an address as the list for IPv4, or for IPv6 (`wide`), has it: words of 32 bits, in the machine's
/// byte order.
fn written(address: SocketAddr, wide: bool) -> Option<String> {
    let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
    let ip = match (address.ip(), wide) {
        (IpAddr::V4(ip), false) => word(ip.octets()),
        (IpAddr::V6(_), false) => return None,
        (ip, true) => {
            let octets = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            octets.as_chunks::<4>().0.iter().map(|bytes| word(*bytes)).collect()
        }
    };
    Some(format!("{ip}:{:04X}", address.port()))
}

fn find(list: impl BufRead, client: &str, server: &str) -> io::Result<Option<u32>> {
    for line in list.lines().skip(1) {
        let line = line?;
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, local, remote, state, _, _, _, user, _, inode, ..] = fields[..] else { continue };
        // The kernel lists ends that no program has with user 0 and inode 0.
        if local == client && remote == server && OPEN.contains(&state) && inode != "0" {
            return Ok(user.parse().ok());
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_user_of_a_connection_is_found_while_the_other_end_is_open() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                eprintln!("**** SKIPPED: there is no {address}");
                continue;
            };
            let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a listener");
            let (server, from) = listener.accept().expect("a connection");
            let own = server.local_addr().expect("an address");
            let user = rustix::process::geteuid().as_raw();
            assert_eq!(user_of(from, own).expect("the list"), Some(user), "{address}");
            drop(client);
            assert_eq!(user_of(from, own).expect("the list"), None, "{address}");
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn lines_of_the_list_are_read_as_the_kernel_writes_them() {
        let client: SocketAddr = "127.0.0.1:9464".parse().expect("an address");
        assert_eq!(written(client, false).as_deref(), Some("0100007F:24F8"));
        assert_eq!(written(client, true).as_deref(), Some("0000000000000000FFFF00000100007F:24F8"));
        let v6: SocketAddr = "[::1]:1".parse().expect("an address");
        assert_eq!(written(v6, true).as_deref(), Some("00000000000000000000000001000000:0001"));
        assert_eq!(written(v6, false), None);
        let list = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid ...\n\
            0: A:1 B:2 06 00000000:00000000 03:00001770 00000000     0        0 0 3 0000000000000000\n\
            short\n\
            1: A:1 B:2 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0000000000000000\n\
            2: A:1 B:2 01 00000000:00000000 00:00000000 00000000  1001        0 77 1 0000000000000000\n";
        assert_eq!(find(list.as_bytes(), "A:1", "B:2").expect("text"), Some(1001));
        assert_eq!(find(list.as_bytes(), "B:2", "A:1").expect("text"), None);
    }
}
