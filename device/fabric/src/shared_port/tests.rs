//! Several ports in one process: each has its own process index, lock and place in the group.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::{UdpConfig, UdpPort, wait_readable};
use pumice_model::port::batch::CopyMode;
use pumice_transport::path::{Flow, Path as NetworkPath};

use super::*;
use crate::members::error::SharingError;
use crate::registry::Registry;
use crate::steering;

/// A folder of its own for the registry, removed at the end, and addresses that no other test uses.
pub(super) struct Folder(pub(super) PathBuf, u8);

impl Folder {
    pub(super) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pumice-share-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        static COUNT: AtomicU8 = AtomicU8::new(0);
        Folder(path.join("registry"), COUNT.fetch_add(8, Ordering::Relaxed))
    }

    pub(super) fn address(&self, number: u8) -> IpAddr {
        let pid = std::process::id();
        let [high, low] = [1 + (pid % 200) as u8, (pid / 200 % 250) as u8];
        IpAddr::V4(Ipv4Addr::new(127, high, low, self.1 + number))
    }

    pub(super) fn open(&self, address: IpAddr, port: u16) -> SharedPort {
        SharedPort::open(&config(&self.0, address, port)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A port that uses rings.
    pub(super) fn open_with_rings(&self, address: IpAddr, port: u16) -> SharedPort {
        self.open_with_copies(address, port, CopyMode::Auto)
    }

    /// A port that uses rings, and copies long messages into them in this way.
    pub(super) fn open_with_copies(&self, address: IpAddr, port: u16, copy: CopyMode) -> SharedPort {
        let config = SharedPortConfig { udp_only: false, copy, ..config(&self.0, address, port) };
        SharedPort::open(&config).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.parent().unwrap());
    }
}

fn config(folder: &Path, address: IpAddr, port: u16) -> SharedPortConfig {
    let udp = UdpConfig { port, buffer_bytes: 1 << 20, ..UdpConfig::new(address) };
    SharedPortConfig { folder: Some(folder.to_owned()), ..SharedPortConfig::new(udp) }
}

/// Sends a batch of packets to these process indices, numbered from `first`.
pub(super) fn send(from: &mut SharedPort, to: IpAddr, first: u8, processes: &[u8]) {
    let port = from.medium().port();
    let source = from.medium().address();
    let flow = Flow { source, destination: to, source_port: port, destination_port: port };
    let path = NetworkPath { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
    let mut bytes = Vec::new();
    for (number, process) in (first..).zip(processes) {
        bytes.extend([0, 0, 0, 0, 0, *process, 0, 1, number, 0, 0, 0, 0, 0, 0, 0]);
    }
    from.transmit(0, &GsoBatch::new(&path, 16, &bytes)).unwrap();
}

/// What a port has: the process index and the number of each packet, until `count` came or nothing comes for
/// long.
pub(super) fn received(port: &mut SharedPort, now_ns: u64, count: usize) -> Vec<(u8, u8)> {
    let mut all = Vec::new();
    loop {
        let more = port.receive(now_ns, &mut |received| {
            all.extend(received.bytes.chunks(received.segment_bytes).map(|packet| (packet[5], packet[8])));
        });
        if more {
            continue;
        }
        if all.len() >= count {
            return all;
        }
        let readable = wait_readable(&port.descriptors(), None, Some(Duration::from_secs(5))).unwrap();
        if !readable {
            return all;
        }
        port.woken();
    }
}

/// Lets a port that is not expected to get anything look at what it has.
pub(super) fn look(port: &mut SharedPort, now_ns: u64) {
    port.woken();
    assert_eq!(received(port, now_ns, 0), []);
}

fn nth(number: u16) -> MemberIndex {
    MemberIndex::of_number(number).unwrap()
}

#[test]
fn packets_go_to_their_processes_and_the_rest_to_the_lowest() {
    let folder = Folder::new("steer");
    let to = folder.address(1);
    let mut ports: Vec<SharedPort> = (0..4).map(|_| folder.open(to, 4791)).collect();
    assert_eq!(ports.iter().map(|port| port.identity.process.value()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let mut sender = folder.open(folder.address(2), 4791);
    assert_eq!(sender.identity.process.value(), 5, "indices are the host's, whatever the address");
    for (index, port) in ports.iter_mut().enumerate() {
        let process = index as u8 + 1;
        send(&mut sender, to, 9, &[process, process]);
        assert_eq!(received(port, 0, 2), [(process, 9), (process, 10)]);
    }
    for unused in [0, 200, 255] {
        send(&mut sender, to, 7, &[unused]);
        assert_eq!(received(&mut ports[0], 0, 1), [(unused, 7)]);
    }
    // The kernel moves the last socket into the hole, and the program follows.
    drop(ports.remove(1));
    for port in &mut ports {
        let process = port.identity.process.value();
        send(&mut sender, to, 1, &[process]);
        assert_eq!(received(port, 0, 1), [(process, 1)]);
        assert_eq!(port.counters().stats(), SharingStats::default(), "nothing had to be forwarded");
    }
    assert_eq!(folder.open(to, 4791).identity.process.value(), 6, "index 2 is not given away again so soon");
}

#[test]
fn what_reaches_the_wrong_process_is_forwarded_and_the_steering_repaired() {
    let folder = Folder::new("forward");
    let to = folder.address(1);
    let (mut a, mut b) = (folder.open(to, 4791), folder.open(to, 4791));
    let mut sender = folder.open(folder.address(2), 4791);
    // Everything goes to the first socket.
    let first = steering::Targets { processes: [0; 256], services: Vec::new() };
    steering::attach(a.medium.steered_socket(), &first).unwrap();
    send(&mut sender, to, 1, &[b.identity.process.value(); 5]);
    look(&mut a, 1);
    assert_eq!(received(&mut b, 1, 5), [1, 2, 3, 4, 5].map(|number| (2, number)));
    assert_eq!((a.counting.counters.stats().forwarded, b.counting.counters.stats().taken_over), (1, 1));
    assert_eq!(a.counting.counters.stats().repaired, 1);
    send(&mut sender, to, 6, &[b.identity.process.value()]);
    assert_eq!(received(&mut b, 2, 1), [(2, 6)]);
    assert_eq!(
        (a.counting.counters.stats().forwarded, b.counting.counters.stats().taken_over),
        (1, 1),
        "it is mended"
    );

    // Packets of several processes in one batch, as a network card may join them.
    send(&mut sender, to, 10, &[1, 1, 2, 0, 2, 2, 77, 1]);
    assert_eq!(received(&mut a, 3, 5), [(1, 10), (1, 11), (0, 13), (77, 16), (1, 17)]);
    assert_eq!(received(&mut b, 3, 3), [(2, 12), (2, 14), (2, 15)]);
}

#[test]
fn a_wrong_order_is_found_out() {
    let folder = Folder::new("order");
    let to = folder.address(1);
    let mut ports: Vec<SharedPort> = (0..5).map(|_| folder.open(to, 4791)).collect();
    let mut sender = folder.open(folder.address(2), 4791);
    // The registry is made to believe the opposite order.
    let registry = ports[0].membership.registry();
    registry.lock(Duration::ZERO).unwrap();
    let mut loaded = registry.load(&[nth(1)]).unwrap();
    for (process, index) in [(1, 4), (2, 3)] {
        assert!(loaded.members.observe(nth(process), index));
    }
    registry.store(&mut loaded.members).unwrap();
    let SharedPort { medium, membership, services, .. } = &mut ports[0];
    membership.steer(medium.steered_socket(), &loaded.members, services);
    let registry = ports[0].membership.registry();
    registry.unlock();

    let (mut rounds, mut strays) = (0, 1);
    while strays > 0 {
        rounds += 1;
        assert!(rounds < 20, "the order is not found");
        let before: u64 = ports.iter().map(|port| port.counting.counters.stats().forwarded).sum();
        let now_ns = rounds * 2 * REPAIR_INTERVAL_NS;
        for process in 1..=5 {
            send(&mut sender, to, process, &[process]);
            // Twice: the process that got it forwards it, then its owner has it.
            let mut came = Vec::new();
            for _ in 0..2 {
                for port in &mut ports {
                    port.woken();
                    let own = port.identity.process.value();
                    came.extend(received(port, now_ns, 0).into_iter().map(|packet| (own, packet)));
                }
            }
            assert_eq!(came, [(process, (process, process))], "round {rounds}");
        }
        strays = ports.iter().map(|port| port.counting.counters.stats().forwarded).sum::<u64>() - before;
    }
    assert!(rounds > 1, "there was something to find out");
}

#[test]
fn a_damaged_registry_is_built_anew_by_those_who_live() {
    let folder = Folder::new("damage");
    let to = folder.address(1);
    let (mut a, mut b) = (folder.open(to, 4791), folder.open(to, 4791));
    for damage in [&b"nonsense"[..], &[0xff; 30_000], b""] {
        fs::write(a.registry(), damage).unwrap();
        let mut c = folder.open(to, 4791);
        assert!(c.identity.process.value() > 2, "indices 1 and 2 have owners");
        for (now_ns, port) in [(0, &mut a), (0, &mut b)] {
            port.repair.last_repair_ns = None;
            look(port, now_ns);
            look(port, now_ns);
        }
        let registry = c.membership.registry();
        registry.lock(Duration::ZERO).unwrap();
        let loaded = registry.load(&[c.membership.index()]).unwrap();
        registry.unlock();
        assert!(!loaded.changed && loaded.unlisted.is_empty());
        assert_eq!(loaded.members.iter().count(), 3);
        let mut sender = folder.open(folder.address(2), 4791);
        send(&mut sender, to, 1, &[2]);
        for port in [&mut a, &mut c] {
            look(port, 0);
        }
        assert_eq!(received(&mut b, 0, 1), [(2, 1)]);
    }
}

/// Many that begin and end at once, as a script's programs do, take the registry's lock one after the other.
#[test]
fn a_burst_of_starts_is_served() {
    let folder = Folder::new("burst");
    std::thread::scope(|scope| {
        for _ in 0..65 {
            scope.spawn(|| (0..4).for_each(|_| drop(folder.open(folder.address(1), 4791))));
        }
    });
    let registry = Registry::open(&folder.0, 4791).unwrap();
    assert_eq!(registry.load(&[]).unwrap().members.iter().count(), 0);
}

#[test]
fn nothing_is_left_behind() {
    let folder = Folder::new("leave");
    let mut last = 0;
    for _ in 0..300 {
        let port = folder.open(folder.address(1), 4791);
        assert_eq!(port.identity.process.value(), last % 254 + 1);
        last = port.identity.process.value();
    }
    let left: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left.len(), 3, "the registry, the backlogs and the counters: {left:?}");
    let registry = Registry::open(&folder.0, 4791).unwrap();
    let loaded = registry.load(&[]).unwrap();
    assert!(!loaded.changed && loaded.unlisted.is_empty() && loaded.members.iter().count() == 0);
}

#[test]
fn nothing_of_a_port_is_in_a_namespace_that_users_share() {
    let folder = Folder::new("names");
    let port = folder.open(folder.address(1), 4791);
    let names = fs::read_to_string("/proc/net/unix").unwrap();
    let inode_of = |fd: RawFd| fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
    let own: Vec<String> =
        port.descriptors().into_iter().map(|fd| inode_of(fd).to_string_lossy().into_owned()).collect();
    // The inode is the 7th column, the name the 8th; abstract names begin with '@'.
    let named: Vec<&str> = names
        .lines()
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            let is_ours = own.contains(&format!("socket:[{}]", columns.get(6)?));
            is_ours.then(|| columns.get(7).copied().unwrap_or_default())
        })
        .collect();
    assert_eq!(named.len(), 1, "the relay: {named:?}");
    assert!(named[0].ends_with("-slot1") && !named[0].starts_with('@'), "{named:?}");
}

#[test]
fn the_folder_is_locked_against_those_who_remove_old_files() {
    let folder = Folder::new("clean");
    let port = folder.open(folder.address(1), 4791);
    let opened = fs::File::open(&folder.0).unwrap();
    // SAFETY: no memory is involved.
    let try_lock = || unsafe { libc::flock(opened.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    assert_eq!(try_lock(), -1);
    drop(port);
    assert_eq!(try_lock(), 0);
}

#[test]
fn all_processes_can_be_used_and_no_more() {
    let folder = Folder::new("full");
    let config = |address| {
        let mut config = config(&folder.0, address, 4791);
        config.udp.buffer_bytes = 4096;
        config
    };
    let mut ports = Vec::new();
    let full = loop {
        match SharedPort::open(&config(folder.address(1))) {
            Ok(port) => ports.push(port),
            Err(error) => break error,
        }
        assert!(ports.len() <= 254);
    };
    assert!(matches!(full, SharingError::Full { .. }) && full.errno() == libc::EUSERS, "{full}");
    assert_eq!(ports.len(), 254);
    let (mut first, mut last) = (ports.remove(0), ports.remove(252));
    send(&mut first, folder.address(1), 3, &[254]);
    assert_eq!(received(&mut last, 0, 1), [(254, 3)]);
}

#[test]
fn addresses_have_more_devices_together_than_there_are_process_indices() {
    const ADDRESSES: u8 = 4;
    let folder = Folder::new("many");
    let config = |number| {
        let mut config = config(&folder.0, folder.address(number), 4791);
        config.udp.buffer_bytes = 4096;
        SharedPortConfig { udp_only: false, counts_apart: true, ..config }
    };
    let open = |number| SharedPort::open(&config(number)).unwrap_or_else(|error| panic!("{error}"));
    let mut ports: Vec<SharedPort> = (0..320).map(|each| open(each as u8 % ADDRESSES)).collect();
    let members: std::collections::HashSet<u16> =
        ports.iter().map(|port| port.membership.index().number()).collect();
    assert_eq!(members.len(), ports.len());
    let (mut all, process) = (ports.split_off(300), ports[299].identity.process);
    let same: Vec<usize> = (0..300).filter(|&each| ports[each].identity.process == process).collect();
    assert!(same.len() > 1 && all.iter().any(|port| port.membership.index().bank() != 0));
    // Each gets what is for it, by UDP and by a ring, and no other one does.
    let sender = &mut all[0];
    for round in 0..3 {
        for &each in &same {
            let address = ports[each].membership.address();
            send(sender, address, round, &[process.value()]);
            assert_eq!(received(&mut ports[each], 0, 1), [(process.value(), round)]);
            // It hears of the ring, and answers.
            look(&mut ports[each], 0);
            look(sender, 0);
        }
    }
    for &each in &same {
        let (address, member) = (ports[each].membership.address(), ports[each].membership.index());
        assert_eq!(sender.medium_to(Peer { address, process }), PeerMedium::Ring);
        assert_eq!(sender.membership.resolve(address, process), Some(member));
        assert_eq!(ports[each].counting.counters.stats().rejected, 0);
    }
}

#[test]
fn a_holder_that_does_not_share_is_named() {
    let folder = Folder::new("taken");
    let alone = UdpPort::bind(&UdpConfig::new(folder.address(1))).unwrap();
    let error = SharedPort::open(&config(&folder.0, folder.address(1), 4791)).unwrap_err();
    assert!(error.to_string().contains("that does not share it"), "{error}");
    assert_eq!(error.errno(), libc::EADDRINUSE);
    drop(alone);
    // One that shares, but through another registry.
    let other = Folder::new("taken-other");
    let first = other.open(folder.address(1), 4791);
    let error = SharedPort::open(&config(&folder.0, folder.address(1), 4791)).unwrap_err();
    assert!(matches!(error, SharingError::OtherRegistry { .. }), "{error}");
    drop(first);
    drop(folder.open(folder.address(1), 4791));
    assert!(matches!(SharedPort::open(&config(&folder.0, folder.address(1), 0)), Err(SharingError::NoPort)));
}

#[test]
fn a_group_that_several_processes_joined_reaches_each_once() {
    let folder = Folder::new("multicast");
    let on = folder.address(1);
    let group: IpAddr = "239.77.1.2".parse().unwrap();
    let (mut a, mut b, mut c) = (folder.open(on, 4791), folder.open(on, 4791), folder.open(on, 4791));
    for port in [&mut a, &mut b] {
        port.join(group).unwrap();
    }
    let mut sender = folder.open(folder.address(2), 4791);
    // Which interface a group is on depends on the routes of the host; its own address is always reached.
    send(&mut sender, on, 1, &[255]);
    assert_eq!(received(&mut a, 0, 1), [(255, 1)]);
    send_to_group(&c, group, &[0, 0, 0, 0, 0, 255, 255, 255, 7, 0, 0, 0, 0, 0, 0, 0]);
    for port in [&mut a, &mut b] {
        assert_eq!(received(port, 0, 1), [(255, 7)]);
        look(port, 0);
        assert_eq!(port.counting.counters.stats(), SharingStats::default());
    }
    look(&mut c, 0);
}

/// Sends to a group over the loopback interface, whatever the routes say.
fn send_to_group(port: &SharedPort, group: IpAddr, bytes: &[u8]) {
    let IpAddr::V4(on) = port.medium().address() else { panic!("an IPv4 address") };
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    socket.set_multicast_if_v4(&on).unwrap();
    let to = std::net::SocketAddr::new(group, port.medium().port());
    socket.send_to(bytes, &to.into()).unwrap();
}

#[test]
fn the_wildcard_and_an_address_share_their_indices() {
    let folder = Folder::new("wildcard");
    // Not the RoCE port: other tests hold some of its addresses.
    let number = 20_000 + (std::process::id() % 10_000) as u16;
    let on = folder.address(1);
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let (mut a, mut b) = (folder.open(any, number), folder.open(on, number));
    let mut sender = folder.open(folder.address(2), number);
    assert_eq!(
        [a.identity.process, b.identity.process, sender.identity.process].map(ProcessIndex::value),
        [1, 2, 3]
    );
    // The kernel prefers the socket of the address; it forwards what is for the other.
    send(&mut sender, on, 1, &[1, 1]);
    look(&mut b, 0);
    assert_eq!(received(&mut a, 0, 2), [(1, 1), (1, 2)]);
    send(&mut sender, on, 3, &[2]);
    assert_eq!(received(&mut b, 0, 1), [(2, 3)]);
    // The one with the wildcard has other addresses to itself: no other process can take packets for them.
    send(&mut sender, folder.address(3), 4, &[1, 2]);
    assert_eq!(received(&mut a, 0, 1), [(1, 4)]);
    look(&mut b, 0);
    assert_eq!((a.counting.counters.stats().rejected, b.counting.counters.stats().rejected), (1, 0));
}

#[test]
fn unreliable_batches_wait_for_a_process_that_does_not_read() {
    let folder = Folder::new("backlog");
    let to = folder.address(1);
    let mut receiver = folder.open(to, 4791);
    let mut sender = folder.open(folder.address(2), 4791);
    let process = receiver.identity.process.value();
    let flow = Flow {
        source: sender.medium().address(),
        destination: to,
        source_port: 4791,
        destination_port: 4791,
    };
    let path = NetworkPath { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
    // A UC batch and a lone UD datagram in turns.
    let batch: Vec<u8> = [0x21, 0, 0, 0, 0, process, 0, 1].repeat(60 * 128);
    let datagram: Vec<u8> = [0x64, 0, 0, 0, 0, process, 0, 1].repeat(128);
    let mut count = 0;
    for round in 0..3 {
        let mut sent = 0;
        while sender.admits(0, Peer { address: to, process: receiver.identity.process }) {
            let bytes = if sent % 2 == 0 { &batch } else { &datagram };
            sender.transmit(0, &GsoBatch::new(&path, 1024, bytes)).unwrap();
            sent += 1;
            assert!(sent < 10_000, "the receiver does not read");
        }
        assert!(sent > 4, "{sent}");
        assert_eq!(count, 0, "round {round}");
        count += sent / 2 * 61 + sent % 2 * 60;
        while count > 0 {
            let more = receiver.receive(0, &mut |received| count -= received.bytes.len() / 1024);
            assert!(
                more || wait_readable(&receiver.descriptors(), None, Some(Duration::from_secs(5))).unwrap()
            );
        }
        assert!(!receiver.receive(0, &mut |_| {}));
    }
}

#[path = "adoption_tests.rs"]
mod adoption;

/// The kernel has no route for an IPv6 group on `lo`; the processes that share the port get the group's
/// datagrams all the same.
#[test]
fn ipv6_groups_on_loopback_reach_every_member_and_only_members() {
    let folder = Folder::new("looped");
    let own: IpAddr = "::1".parse().unwrap();
    let group: IpAddr = "ff01:0:2:185::1".parse().unwrap();
    let mut ports: Vec<SharedPort> = (0..3).map(|_| folder.open(own, 4793)).collect();
    for port in &mut ports[..2] {
        port.join(group).unwrap();
    }
    // 255: the top byte of the number that all members have.
    send(&mut ports[0], group, 1, &[255, 255]);
    assert_eq!(received(&mut ports[0], 0, 2), [(255, 1), (255, 2)]);
    assert_eq!(received(&mut ports[1], 0, 2), [(255, 1), (255, 2)]);
    look(&mut ports[2], 0);
    ports[1].leave(group).unwrap();
    // From a process that is no member itself.
    send(&mut ports[2], group, 5, &[255]);
    assert_eq!(received(&mut ports[0], 0, 1), [(255, 5)]);
    look(&mut ports[1], 0);
    look(&mut ports[2], 0);
}

/// A member that does not read delays its sender once, for a moment of the sender's clock, and no more.
#[test]
fn a_member_of_a_looped_group_that_does_not_read_holds_no_sender_up() {
    let folder = Folder::new("looped-full");
    let own: IpAddr = "::1".parse().unwrap();
    let group: IpAddr = "ff01:0:2:185::2".parse().unwrap();
    let (mut sender, mut member) = (folder.open(own, 4794), folder.open(own, 4794));
    member.join(group).unwrap();
    let flow = Flow { source: own, destination: group, source_port: 4794, destination_port: 4794 };
    let path = NetworkPath { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
    let packet = [0, 0, 0, 0, 0, 255, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let batch = GsoBatch::new(&path, 16, &packet);
    let mut sent = 0;
    while sender.transmit(1, &batch) == Ok(()) {
        sent += 1;
        assert!(sent < 100_000, "the relay has a limit");
    }
    assert_eq!(sender.transmit(20_000_000, &batch), Err(TransmitError::Busy));
    for now_ns in [20_000_001, 20_000_002] {
        assert_eq!(sender.transmit(now_ns, &batch), Ok(()), "lost for the one that does not read");
    }
    assert_eq!(received(&mut member, 0, sent).len(), sent);
    assert_eq!(sender.transmit(3, &batch), Ok(()));
    assert_eq!(received(&mut member, 0, 1).len(), 1);
}

#[test]
fn a_process_that_has_not_taken_what_it_sent_to_itself_is_waited_for() {
    let folder = Folder::new("itself");
    let address = folder.address(1);
    let mut port = folder.open(address, 4791);
    let peer = Peer { address, process: port.process() };
    send(&mut port, address, 0, &[peer.process.value()]);
    assert_eq!(port.peer_progress(1_000, peer, 500), PeerProgress::Starved);
    assert_eq!(received(&mut port, 2_000, 1).len(), 1);
    assert!(!port.receive(3_000, &mut |_| {}));
    assert_eq!(port.peer_progress(4_000, peer, 500), PeerProgress::Unknown);
    assert_eq!(port.peer_progress(9_000, peer, 5_000), PeerProgress::Starved, "it sent again since");
}

#[test]
fn what_parts_a_process_is_known_when_it_has_gone() {
    let folder = Folder::new("parted");
    let [here, there, foreign_folder] = [1, 2, 3].map(|number| folder.address(number));
    let (mut one, mut other) = (folder.open(here, 4791), folder.open(there, 4791));
    let process = one.identity.process;
    let Occupant::Process(who) = other.occupant(process, here.into()) else { panic!("it is there") };
    let partition =
        |peer: IpAddr, until_ns| Partition { peers: vec![peer], own: Vec::new(), port_num: None, until_ns };
    let is_partitioned = |other: &mut SharedPort, who| other.is_partitioned(process, who, here.into(), 0);
    assert!(!is_partitioned(&mut other, who));
    one.publish_partitions(0, &[partition(foreign_folder, u64::MAX)]);
    assert!(!is_partitioned(&mut other, who), "from another one");
    one.publish_partitions(9, &[partition(there, 9)]);
    assert!(!is_partitioned(&mut other, who), "it is over");
    one.publish_partitions(0, &[partition(there, u64::MAX)]);
    drop(one);
    assert!(!other.lives(process, who) && is_partitioned(&mut other, who));
    assert!(!is_partitioned(&mut other, who + 1), "another process that had the index");
    other.publish_partitions(0, &[partition(foreign_folder, 50)]);
    let mut third = folder.open(foreign_folder, 4791);
    let third_is_parted = |other: &mut SharedPort, third: &SharedPort, now_ns| {
        other.is_partitioned(third.identity.process, 7, foreign_folder.into(), now_ns)
    };
    assert!(third_is_parted(&mut other, &third, 49), "by its own plan");
    assert!(!third_is_parted(&mut other, &third, 50));
    third.publish_partitions(0, &[]);
    drop(third);
    drop(other);
    let names: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("parted")), "{names:?}");
}
