//! Examines whether the RoCE port is free on an address, and which process has it otherwise.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use pumice_device::findings::Finding;
use pumice_device::port::{PortError, UdpConfig, UdpPort};
use pumice_transport::path::ROCE_PORT;

use super::kernel::SoftRoce;
use super::kind::{UDP_PORT, blocking, ok};

/// Examines whether a device can open the RoCE port on an address.
pub(crate) fn udp_port(address: IpAddr, proc: &Path, soft_roce: &SoftRoce) -> Finding {
    let alone = UdpConfig::new(address);
    let shared = UdpConfig { reuse_port: true, ..alone.clone() };
    match UdpPort::bind(&alone) {
        Ok(_) => ok(&UDP_PORT, format!("{address}: free")),
        Err(PortError::Taken { .. }) => {
            let holders = holders(proc, address);
            match UdpPort::bind(&shared) {
                Ok(_) => ok(&UDP_PORT, format!("{address}: shared with {}", names(&holders))),
                Err(_) => taken(address, &holders, soft_roce),
            }
        }
        Err(error) => blocking(
            &UDP_PORT,
            format!("{address}: {error}"),
            "Use another address, or lift the policy (seccomp, SELinux) that forbids it.",
        ),
    }
}

fn names(holders: &[PortHolder]) -> String {
    let names: Vec<&str> = holders.iter().filter_map(|holder| holder.process.as_deref()).collect();
    if names.is_empty() { "processes of this user".to_owned() } else { names.join(", ") }
}

fn taken(address: IpAddr, holders: &[PortHolder], soft_roce: &SoftRoce) -> Finding {
    let process = holders.iter().find_map(|holder| holder.process.as_ref().map(|p| (p, holder.uid)));
    if let Some((process, uid)) = process {
        return blocking(
            &UDP_PORT,
            format!("{address}: taken by {process} of user {uid}, which does not share it"),
            "Stop that process, use another address, or run pumice in a network namespace of its own.",
        );
    }
    if soft_roce.loaded && holders.iter().any(|holder| holder.uid == 0) {
        return blocking(
            &UDP_PORT,
            format!("{address}: taken by the kernel's rdma_rxe"),
            "Unload it (sudo modprobe -r rdma_rxe) or run pumice in a network namespace of its own.",
        );
    }
    let owner = match holders.first() {
        Some(holder) => format!("a process of user {}, which this user may not look at", holder.uid),
        None => "a socket that /proc/net does not show".to_owned(),
    };
    blocking(
        &UDP_PORT,
        format!("{address}: taken by {owner}"),
        "Find it with sudo ss -lunp sport = 4791 and stop it, or run pumice in a network namespace of its \
        own.",
    )
}

/// A socket on the RoCE port.
#[derive(Debug, PartialEq, Eq)]
struct PortHolder {
    uid: u32,
    /// "name (pid 17)", if /proc shows it to this user.
    process: Option<String>,
}

/// Returns the sockets on the RoCE port that conflict with `address`.
fn holders(proc: &Path, address: IpAddr) -> Vec<PortHolder> {
    let mut found = Vec::new();
    for table in ["net/udp", "net/udp6"] {
        let text = fs::read_to_string(proc.join(table)).unwrap_or_default();
        for socket in text.lines().skip(1).filter_map(SocketLine::parse) {
            let blocking_holders = socket.address.is_unspecified() || socket.address == address;
            if socket.port == ROCE_PORT && blocking_holders {
                found.push(PortHolder { uid: socket.uid, process: process_of(proc, socket.inode) });
            }
        }
    }
    found
}

/// A line of /proc/net/udp or udp6.
struct SocketLine {
    address: IpAddr,
    port: u16,
    uid: u32,
    inode: u64,
}

impl SocketLine {
    fn parse(line: &str) -> Option<SocketLine> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (address, port) = fields.get(1)?.split_once(':')?;
        Some(SocketLine {
            address: parse_address(address)?,
            port: u16::from_str_radix(port, 16).ok()?,
            uid: fields.get(7)?.parse().ok()?,
            inode: fields.get(9)?.parse().ok()?,
        })
    }
}

/// Parses an address, which the kernel prints as 32-bit words in host order.
fn parse_address(hex: &str) -> Option<IpAddr> {
    let mut bytes = [0_u8; 16];
    let words = hex.len().checked_div(8)?;
    if words * 8 != hex.len() || words > 4 {
        return None;
    }
    for index in 0..words {
        let word = u32::from_str_radix(hex.get(index * 8..index * 8 + 8)?, 16).ok()?;
        bytes.get_mut(index * 4..index * 4 + 4)?.copy_from_slice(&word.to_ne_bytes());
    }
    match words {
        1 => Some(IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))),
        4 => Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()),
        _ => None,
    }
}

/// Returns the process that holds a socket, if this user may see it.
fn process_of(proc: &Path, inode: u64) -> Option<String> {
    let wanted = format!("socket:[{inode}]");
    for entry in fs::read_dir(proc).ok()?.flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let Ok(descriptors) = fs::read_dir(entry.path().join("fd")) else { continue };
        let holds = descriptors
            .flatten()
            .any(|fd| fs::read_link(fd.path()).is_ok_and(|link| link.to_string_lossy() == wanted));
        if holds {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some(format!("{} (pid {pid})", name.trim()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use pumice_device::findings::Level;

    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn lines_of_proc_net_are_understood() {
        let line = "  77: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        \
                    0 4242 2 0 0";
        let socket = SocketLine::parse(line).expect("a line as the kernel prints it");
        if cfg!(target_endian = "little") {
            assert_eq!(socket.address, IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        assert_eq!((socket.port, socket.uid, socket.inode), (ROCE_PORT, 1000, 4242));
        assert_eq!(parse_address(&"0".repeat(32)), Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)));
        for broken in ["", "x", "77: :", "77: 0100007F", "7: 01:02 3 4 5 6 7 8 9 10", "7: é100007F:12B7 0 0"]
        {
            assert!(SocketLine::parse(broken).is_none(), "{broken:?}");
        }
    }

    #[test]
    fn the_holder_of_a_socket_is_named() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        let port = socket.local_addr().expect("bound").port();
        let table = fs::read_to_string("/proc/net/udp").expect("Linux");
        let line = table
            .lines()
            .skip(1)
            .filter_map(SocketLine::parse)
            .find(|line| line.port == port)
            .expect("the kernel lists the socket");
        let process = process_of(Path::new("/proc"), line.inode).expect("it is ours");
        assert!(process.ends_with(&format!("(pid {})", std::process::id())), "{process}");
    }

    #[test]
    fn who_has_the_port_decides_the_remedy() {
        let loaded = SoftRoce { loaded: true, devices: Vec::new() };
        let kernel = [PortHolder { uid: 0, process: None }];
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let rxe = taken(address, &kernel, &loaded);
        assert!(rxe.sentence.contains("rdma_rxe") && rxe.level == Level::Error, "{rxe:?}");
        let other = taken(address, &kernel, &SoftRoce::default());
        assert!(other.sentence.contains("a process of user 0"), "{other:?}");
        let process = [PortHolder { uid: 7, process: Some("x (pid 1)".to_owned()) }];
        let named = taken(address, &process, &loaded);
        assert!(named.sentence.contains("x (pid 1) of user 7"), "{named:?}");
        assert!(taken(address, &[], &loaded).sentence.contains("does not show"));
    }
}
