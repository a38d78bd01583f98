//! The GID table follows the host's addresses. In a network namespace of its own, which only root can make.
#![allow(unreachable_pub)]

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::time::{Duration, Instant};

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::{Hca, HcaConfig};
use pumice_device::outside::interface::{gid_addresses, interfaces};
use pumice_device::outside::neighbour::{Neighbours, Reachability};
use pumice_device::platform::clock::Clock;
use pumice_device::port::{UdpConfig, UdpPort, wait_readable};
use pumice_transport::types::{AsyncEventType, Gid, Mtu};

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).status().is_ok_and(|status| status.success())
}

/// Past the harness, which keeps what passing tests print.
fn skip(reason: &str) {
    let _ = writeln!(std::io::stderr(), "**** SKIPPED: {reason}");
}

fn list() -> Option<Vec<GidEntry>> {
    let found = interfaces().ok()?;
    let entry = |(ip, on): (IpAddr, &pumice_device::outside::interface::Interface)| {
        GidEntry::new(ip, &on.name, on.index, Mtu::Mtu4096)
    };
    Some(gid_addresses(&found).into_iter().map(entry).collect())
}

/// Events until this one, which must come.
fn until(hca: &Hca, wanted: AsyncEventType) -> Vec<AsyncEventType> {
    let end = Instant::now() + Duration::from_secs(60);
    let mut seen = Vec::new();
    while seen.last() != Some(&wanted) {
        assert!(Instant::now() < end, "no {wanted:?}, but {seen:?}");
        let fd = hca.async_events().as_fd().as_raw_fd();
        wait_readable(&[fd], None, Some(Duration::from_secs(1))).unwrap();
        if let Some(event) = hca.async_events().try_event() {
            seen.push(event.event);
            event.ack();
        }
    }
    seen
}

fn index_of(hca: &Hca, address: &str) -> Option<u32> {
    let gid = Gid::from(address.parse::<IpAddr>().unwrap());
    hca.gids().into_iter().find(|(_, entry)| entry.gid == gid).map(|(index, _)| index)
}

#[test]
fn addresses_that_come_and_go_raise_gid_change_and_keep_the_indices_of_others() {
    // SAFETY: no memory is involved; only this thread, and those that it starts, move.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return skip("a network namespace of its own needs root");
    }
    if !ip("link set lo up") || !ip("address add 10.77.0.1/32 dev lo") {
        return skip("the program ip(8) is not there or may not change addresses: apt-get install iproute2");
    }
    let port = UdpPort::bind(&UdpConfig::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED))).unwrap();
    let mut config = HcaConfig::new("pumice0", list().unwrap());
    config.gid_source = Some(Box::new(list));
    let hca = Hca::open(config, Box::new(port), Clock::monotonic()).unwrap();
    let first = index_of(&hca, "10.77.0.1").unwrap();

    assert!(ip("address add 10.77.0.2/32 dev lo"));
    assert!(until(&hca, AsyncEventType::GidChange).len() <= 2, "IPv6 of lo may come late, once");
    assert!(eventually(|| index_of(&hca, "10.77.0.2").is_some()));
    assert_eq!(index_of(&hca, "10.77.0.1"), Some(first));
    let second = index_of(&hca, "10.77.0.2").unwrap();

    while hca.async_events().try_event().is_some() {}
    assert!(ip("address del 10.77.0.1/32 dev lo"));
    until(&hca, AsyncEventType::GidChange);
    assert!(eventually(|| hca.gid(1, first).is_none()), "its entry is empty");
    assert_eq!(index_of(&hca, "10.77.0.2"), Some(second), "the others keep theirs");

    assert!(ip("address add 10.77.0.3/32 dev lo"));
    until(&hca, AsyncEventType::GidChange);
    assert!(eventually(|| index_of(&hca, "10.77.0.3") == Some(first)), "an empty entry is used again");
    assert!(hca.port(1).unwrap().is_active());

    // The link goes down: no address can be used.
    assert!(ip("link set lo down"));
    until(&hca, AsyncEventType::PortErr);
    assert!(!hca.port(1).unwrap().is_active() && hca.gids().is_empty());
    assert!(ip("link set lo up"));
    until(&hca, AsyncEventType::PortActive);
    assert!(hca.port(1).unwrap().is_active());
}

/// What is at 10.78.0.1, with what its interface says of itself.
fn at_the_cable() -> Option<Vec<GidEntry>> {
    let address = IpAddr::V4(Ipv4Addr::new(10, 78, 0, 1));
    let found = interfaces().ok()?;
    let on = found.iter().find(|interface| interface.addresses.iter().any(|(own, _)| *own == address))?;
    let mtu = Mtu::largest_for_link(on.mtu.try_into().ok()?)?;
    Some(vec![GidEntry { carrier: on.carrier, ..GidEntry::new(address, &on.name, on.index, mtu) }])
}

#[test]
fn a_cable_that_is_pulled_at_the_other_end_and_a_changed_mtu_are_noticed() {
    // SAFETY: no memory is involved; only this thread, and those that it starts, move.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return skip("a network namespace of its own needs root");
    }
    if !ip("link set lo up") || !ip("link add v0 type veth peer name v1") {
        return skip("the program ip(8) is not there, or the kernel has no veth");
    }
    for step in ["address add 10.78.0.1/24 dev v0", "link set v0 up", "link set v1 up"] {
        assert!(ip(step), "{step}");
    }
    // At once: programs start right after ip(8).
    assert!(at_the_cable().is_some_and(|found| found[0].carrier), "the cable is in");
    let port = UdpPort::bind(&UdpConfig::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED))).unwrap();
    let mut config = HcaConfig::new("pumice0", at_the_cable().unwrap());
    config.gid_source = Some(Box::new(at_the_cable));
    let hca = Hca::open(config, Box::new(port), Clock::monotonic()).unwrap();
    assert_eq!((hca.port(1).unwrap().is_active(), hca.active_mtu()), (true, Mtu::Mtu1024));

    assert!(ip("link set v1 down"));
    assert_eq!(until(&hca, AsyncEventType::PortErr), [AsyncEventType::PortErr], "no GID has changed");
    let cut = hca.port(1).unwrap();
    assert!(!cut.is_active() && !cut.is_disabled() && index_of(&hca, "10.78.0.1") == Some(0));
    assert!(ip("link set v1 up"));
    assert_eq!(until(&hca, AsyncEventType::PortActive), [AsyncEventType::PortActive]);
    assert!(hca.port(1).unwrap().is_active());

    assert!(ip("link set v0 mtu 9000"));
    assert!(eventually(|| hca.active_mtu() == Mtu::Mtu4096 && hca.active_mtu_of(1) == Mtu::Mtu4096));
    assert!(ip("link set v0 mtu 1500"));
    assert!(eventually(|| hca.active_mtu() == Mtu::Mtu1024));
    assert!(hca.async_events().try_event().is_none(), "and no event tells of it");
}

#[test]
fn the_host_of_a_peer_is_found_or_not() {
    // SAFETY: no memory is involved; only this thread, and those that it starts, move.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return skip("a network namespace of its own needs root");
    }
    if !ip("link set lo up") || !ip("link add v0 type veth peer name v1") {
        return skip("the program ip(8) is not there, or the kernel has no veth");
    }
    for step in ["address add 10.78.0.1/24 dev v0", "link set v0 up", "link set v1 up"] {
        assert!(ip(step), "{step}");
    }
    let tables = Neighbours::new().unwrap();
    let way = |peer: &str| tables.reachability("10.78.0.1".parse().unwrap(), peer.parse().unwrap());
    assert_eq!(way("10.78.0.1:1"), Reachability::Assumed, "its own address");
    assert_eq!(way("198.51.100.7:1"), Reachability::NoRoute);
    let Reachability::Neighbour(silent) = way("10.78.0.77:1") else { panic!("a host of the link") };
    assert_eq!(silent.address(), "10.78.0.77".parse::<IpAddr>().unwrap());
    assert!(!tables.find(&silent, Duration::from_millis(20)), "no host answers");
    assert!(ip("neighbour replace 10.78.0.77 lladdr 02:00:00:00:00:01 dev v0"));
    assert!(tables.find(&silent, Duration::ZERO));
    assert!(ip("route add 198.51.100.0/24 via 10.78.0.9"));
    let Reachability::Neighbour(gateway) = way("198.51.100.7:1") else { panic!("by a gateway") };
    assert_eq!(gateway.address(), "10.78.0.9".parse::<IpAddr>().unwrap());
    // Nothing has to be found behind an interface that resolves no addresses, such as a tunnel.
    assert!(ip("link set v0 arp off"));
    assert_eq!(way("10.78.0.5:1"), Reachability::Assumed);
}

/// Several changes are told by one event or by several.
fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if holds() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}
