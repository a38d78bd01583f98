//! Several ports in one process that exchange batches through rings.

use std::time::Duration;

use pumice_model::port::batch::{CopyMode, CopyReason};
use pumice_platform::outside::system_call::wait_readable;
use pumice_transport::path::Flow;

use super::tests::{Folder, look, received, send};
use super::*;
use crate::files::folder;
use crate::registry::Registry;
use crate::relay::Querier;

/// A port that sends, one that receives, and the ring between them.
struct Pair {
    folder: Folder,
    to: IpAddr,
    sender: SharedPort,
    receiver: SharedPort,
}

impl Pair {
    fn unmet(name: &str) -> Pair {
        let folder = Folder::new(name);
        let to = folder.address(1);
        let receiver = folder.open_with_rings(to, 4791);
        let sender = folder.open_with_rings(folder.address(2), 4791);
        Pair { folder, to, sender, receiver }
    }

    fn new(name: &str) -> Pair {
        let mut pair = Pair::unmet(name);
        pair.meet();
        assert!(pair.is_open());
        pair
    }

    /// The first batch, which goes by UDP and invites, and what comes of the invitation.
    fn meet(&mut self) {
        self.send(1);
        assert_eq!(self.received(1), [1]);
        look(&mut self.receiver, 0);
        look(&mut self.sender, 0);
    }

    fn is_open(&self) -> bool {
        self.sender.same_host.is_open(self.receiver.membership.index())
    }

    fn send(&mut self, number: u8) {
        send(&mut self.sender, self.to, number, &[self.receiver.process().value()]);
    }

    fn received(&mut self, count: usize) -> Vec<u8> {
        received(&mut self.receiver, 0, count).into_iter().map(|(_, number)| number).collect()
    }

    fn peer(&self) -> Peer {
        Peer { address: self.to, process: self.receiver.identity.process }
    }

    fn path(&self) -> pumice_transport::path::Path {
        let source = self.sender.medium().address();
        let flow = Flow { source, destination: self.to, source_port: 4791, destination_port: 4791 };
        pumice_transport::path::Path { flow, traffic_class: 0, hop_limit: 0, flow_label: 0 }
    }
}

/// Length of a packet of a long message, in bytes: one of 4096 bytes of payload.
const LONG: usize = 4112;

/// Sends as many batches of long messages, of up to four packets each, and checks what arrives.
fn pass_long_batches(pair: &mut Pair, batches: u32) {
    let (path, peer, process) = (pair.path(), pair.peer(), pair.receiver.process().value());
    let mut expected = std::collections::VecDeque::new();
    let take = |receiver: &mut SharedPort, expected: &mut std::collections::VecDeque<Vec<u8>>| {
        let wanted = expected.pop_front().expect("a batch was sent");
        let mut came = 0;
        // A poll may be one of the socket.
        for _ in 0..10 {
            receiver.receive(0, &mut |received| {
                assert!(received.bytes == wanted, "{} bytes", received.bytes.len());
                came += 1;
            });
            if came > 0 {
                break;
            }
        }
        assert_eq!(came, 1);
    };
    for number in 0..batches {
        let packet = |position: usize, at: usize| match at {
            5 => process,
            4 | 6..8 => 0,
            _ => (number as usize * 31 + position * 7 + at * 13 + at / 251) as u8,
        };
        // The last packet of each third batch is shorter: parts of lines are copied, too.
        let length = if number % 3 == 0 { 4 * LONG - 37 * (number as usize % 40) } else { 4 * LONG };
        let bytes: Vec<u8> = (0..length).map(|at| packet(at / LONG, at % LONG)).collect();
        while !pair.sender.admits(0, peer) {
            take(&mut pair.receiver, &mut expected);
        }
        pair.sender.transmit(u64::from(number) / 16, &GsoBatch::new(&path, LONG, &bytes)).unwrap();
        expected.push_back(bytes);
    }
    while !expected.is_empty() {
        take(&mut pair.receiver, &mut expected);
    }
}

#[test]
fn long_messages_come_whole_in_each_way_of_copying() {
    for copy in [CopyMode::Cached, CopyMode::Streaming, CopyMode::Auto] {
        let mut pair = Pair::unmet("long");
        pair.sender = pair.folder.open_with_copies(pair.folder.address(3), 4791, copy);
        pair.meet();
        let report = |pair: &Pair| pair.sender.copies_to(pair.peer()).expect("there is a ring");
        let is_set = copy != CopyMode::Auto;
        let before = if is_set { CopyReason::Set } else { CopyReason::Untried };
        // Other processors have one way.
        let only = (!system::can_stream()).then_some(CopyReason::OnlyWay);
        assert_eq!(report(&pair).reason, only.unwrap_or(before));
        // A trial measures 6 MiB, and begins each MiB when the one before has been taken.
        pass_long_batches(&mut pair, 1600);
        let (report, after) = (report(&pair), if is_set { before } else { CopyReason::Measured });
        assert_eq!(report.reason, only.unwrap_or(after), "{report:?}");
        let is_measured = report.cached_bytes_per_s.is_some() && report.streaming_bytes_per_s.is_some();
        assert_eq!(is_measured, report.reason == CopyReason::Measured, "{report:?}");
        assert_eq!(pair.sender.counters().stats().ring_lost, 0);
    }
}

fn is_readable(port: &SharedPort) -> bool {
    wait_readable(&port.descriptors(), None, Some(Duration::ZERO)).unwrap()
}

#[test]
fn the_second_batch_goes_through_a_ring_and_wakes_a_sleeper() {
    let mut pair = Pair::new("ring");
    assert!(!is_readable(&pair.receiver));
    let socket = pair.receiver.medium().descriptors();
    pair.send(2);
    assert!(!wait_readable(&socket, None, Some(Duration::ZERO)).unwrap(), "not by UDP");
    assert!(is_readable(&pair.receiver), "the bell rings");
    assert_eq!(pair.received(1), [2]);
    assert!(!is_readable(&pair.receiver));
    for round in 0..200 {
        pair.send(round);
        pair.send(round + 1);
        assert_eq!(pair.received(2), [round, round + 1]);
    }
    let limits = pair.sender.limits(pair.peer());
    assert!(!limits.needs_icrc && limits.waits_for_room, "{limits:?}");
}

#[test]
fn a_connection_asks_for_a_ring_so_that_its_first_batch_goes_through_it() {
    let mut pair = Pair::unmet("early");
    let (path, peer) = (pair.path(), pair.peer());
    pair.sender.expects(0, &path, peer);
    pair.sender.expects(0, &path, peer);
    look(&mut pair.receiver, 0);
    look(&mut pair.sender, 0);
    assert!(pair.is_open());
    let socket = pair.receiver.medium().descriptors();
    pair.send(1);
    assert!(!wait_readable(&socket, None, Some(Duration::ZERO)).unwrap(), "not by UDP");
    assert_eq!(pair.received(1), [1]);
}

#[test]
fn a_connection_to_another_network_asks_for_no_ring() {
    let mut pair = Pair::unmet("elsewhere");
    let (mut path, peer) = (pair.path(), pair.peer());
    path.flow.destination_port = 4792;
    pair.sender.expects(0, &path, peer);
    assert!(pair.sender.same_host.invites(0, pair.receiver.membership.index()), "not asked yet");
}

#[test]
fn what_went_by_udp_comes_before_what_is_in_a_new_ring() {
    let folder = Folder::new("order");
    let to = folder.address(1);
    let mut receiver = folder.open_with_rings(to, 4791);
    let mut sender = folder.open_with_rings(folder.address(2), 4791);
    let process = receiver.process().value();
    send(&mut sender, to, 1, &[process]);
    // The receiver hears of the ring, and takes no packet.
    receiver.polling.relay_due = true;
    assert!(receiver.receive_relayed(0, &mut |_| panic!("a batch")));
    look(&mut sender, 0);
    assert!(sender.same_host.is_open(receiver.membership.index()));
    send(&mut sender, to, 2, &[process]);
    assert_eq!(received(&mut receiver, 0, 2), [(process, 1), (process, 2)]);
}

#[test]
fn a_full_ring_refuses_and_loses_nothing_until_patience_ends() {
    let mut pair = Pair::new("full");
    let peer = pair.peer();
    let mut sent = 0_u32;
    while pair.sender.admits(0, peer) {
        pair.send((sent % 200) as u8);
        sent += 1;
        assert!(sent < 100_000);
    }
    assert!(sent > 1000, "{sent}");
    assert!(!pair.sender.admits(999_999_999, peer), "the process lives");
    assert!(pair.sender.admits(1_000_000_000, peer), "as lost as by UDP");
    let all = pair.received(sent as usize);
    assert!(all.iter().enumerate().all(|(index, number)| (index % 200) as u8 == *number));
    assert_eq!((all.len() as u32, pair.sender.counters().stats().ring_lost), (sent, 0));
    assert!(pair.sender.admits(1_000_000_001, peer));
}

#[test]
fn batches_to_a_process_that_has_gone_go_by_udp_and_its_successor_gets_a_ring_of_its_own() {
    let mut pair = Pair::new("gone");
    let (member, peer) = (pair.receiver.membership.index(), pair.peer());
    // Batches lie in the ring of a process that ends.
    while pair.sender.admits(0, peer) {
        pair.send(7);
    }
    let mut others = Vec::new();
    let old =
        std::mem::replace(&mut pair.receiver, pair.folder.open_with_rings(pair.folder.address(3), 4791));
    drop(old);
    assert!(pair.sender.admits(2_000_000, peer), "it does not live");
    assert!(!pair.sender.same_host.is_open(member));
    // Indices go round.
    let heir = loop {
        let next = pair.folder.open_with_rings(pair.to, 4791);
        if next.membership.index() == member {
            break next;
        }
        others.push(next);
        if others.len() > 3 {
            others.remove(0);
        }
    };
    pair.receiver = heir;
    send(&mut pair.sender, pair.to, 9, &[member.process().value()]);
    assert_eq!(pair.received(1), [9]);
}

#[test]
fn a_ring_to_a_process_that_has_gone_is_forgotten_though_nothing_is_sent() {
    let mut pair = Pair::new("swept");
    let member = pair.receiver.membership.index();
    let heir = pair.folder.open_with_rings(pair.folder.address(3), 4791);
    drop(std::mem::replace(&mut pair.receiver, heir));
    assert!(pair.sender.same_host.is_open(member));
    look(&mut pair.sender, 2_000_000_000);
    assert!(!pair.sender.same_host.is_open(member));
    let why = PeerMedium::Udp("the process that had the ring has ended");
    assert_eq!(pair.sender.same_host.medium_to(member), why);
}

#[test]
fn a_ring_to_another_incarnation_is_not_used() {
    let mut pair = Pair::new("incarnation");
    let member = pair.receiver.membership.index();
    let backlog = pair.sender.backlog.as_ref().unwrap();
    let before = backlog.incarnation(member);
    backlog.set_incarnation(member, before + 1);
    pair.send(2);
    assert!(!pair.is_open());
    backlog_of(&pair).set_incarnation(member, before);
    assert_eq!(pair.received(1), [2], "by UDP");
    // The one that has the index now gets a ring with the next batch.
    pair.meet();
    assert!(pair.is_open());
}

#[test]
fn each_series_of_batches_goes_to_its_receiver_and_to_no_other_incarnation_of_it() {
    let mut pair = Pair::new("series");
    let second = pair.folder.address(3);
    let mut other = pair.folder.open_with_rings(second, 4791);
    send(&mut pair.sender, second, 1, &[other.identity.process.value()]);
    assert_eq!(received(&mut other, 0, 1), [(other.identity.process.value(), 1)]);
    look(&mut other, 0);
    look(&mut pair.sender, 0);
    assert!(pair.sender.same_host.is_open(other.membership.index()));
    let source = pair.sender.medium().address();
    let send_of_series = |sender: &mut SharedPort, series, destination, process: ProcessIndex, number| {
        let flow = Flow { source, destination, source_port: 4791, destination_port: 4791 };
        let path = pumice_transport::path::Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
        let bytes = [0, 0, 0, 0, 0, process.value(), 0, 1, number, 0, 0, 0, 0, 0, 0, 0];
        sender.transmit(0, &GsoBatch { series, ..GsoBatch::new(&path, 16, &bytes) }).unwrap();
    };
    let (first, member) = (pair.receiver.identity.process, pair.receiver.membership.index());
    for number in [10, 20, 30] {
        send_of_series(&mut pair.sender, 1, pair.to, first, number);
        send_of_series(&mut pair.sender, 1, pair.to, first, number + 1);
        assert!(pair.sender.admits(0, Peer { address: second, process: other.identity.process }));
        send_of_series(&mut pair.sender, 1, pair.to, first, number + 2);
        send_of_series(&mut pair.sender, 2, second, other.identity.process, number);
        send_of_series(&mut pair.sender, 2, second, other.identity.process, number + 1);
        assert_eq!(pair.received(3), [number, number + 1, number + 2]);
        let to_other = [number, number + 1].map(|number| (other.identity.process.value(), number));
        assert_eq!(received(&mut other, 0, 2), to_other);
    }
    assert_eq!(pair.sender.receiver.last_series.number, 2);
    send_of_series(&mut pair.sender, 1, pair.to, first, 40);
    assert_eq!(pair.received(1), [40]);
    let before = backlog_of(&pair).incarnation(member);
    backlog_of(&pair).set_incarnation(member, before + 1);
    send_of_series(&mut pair.sender, 1, pair.to, first, 41);
    assert!(!pair.is_open(), "another process has the index");
    assert_eq!(pair.received(1), [41], "by UDP");
}

#[test]
fn a_series_goes_on_without_a_question_only_in_the_ring_that_took_the_last_batch_made_for_it() {
    let mut pair = Pair::new("again");
    let (path, process) = (pair.path(), pair.receiver.identity.process.value());
    let bytes = [0, 0, 0, 0, 0, process, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0];
    let send = |sender: &mut SharedPort, series, has_icrc| {
        let batch = GsoBatch { series, has_icrc, ..GsoBatch::new(&path, 16, &bytes) };
        sender.transmit(0, &batch).unwrap();
    };
    assert!(
        !pair.sender.admits_next_of_series(0) && !pair.sender.admits_next_of_series(1),
        "no batch of a series was sent"
    );
    send(&mut pair.sender, 1, true);
    assert!(!pair.sender.admits_next_of_series(1), "it was made for a way that needs an ICRC");
    send(&mut pair.sender, 1, false);
    assert!(pair.sender.admits_next_of_series(1) && !pair.sender.admits_next_of_series(2));
    while pair.sender.admits_next_of_series(1) {
        send(&mut pair.sender, 1, false);
    }
    assert!(!pair.sender.admits(0, pair.peer()), "there is no room for the longest batch");
    assert!(!pair.received(8).is_empty());
    assert!(pair.sender.admits_next_of_series(1), "room has come back");
    let member = pair.receiver.membership.index();
    let before = backlog_of(&pair).incarnation(member);
    backlog_of(&pair).set_incarnation(member, before + 1);
    assert!(!pair.sender.admits_next_of_series(1), "another process has the index");
}

fn backlog_of(pair: &Pair) -> &Backlog {
    pair.sender.backlog.as_ref().unwrap()
}

#[test]
fn a_process_that_wants_udp_only_takes_no_ring() {
    let folder = Folder::new("udp-only");
    let to = folder.address(1);
    let mut receiver = folder.open(to, 4791);
    let mut sender = folder.open_with_rings(folder.address(2), 4791);
    let member = receiver.membership.index();
    for number in 0..5 {
        send(&mut sender, to, number, &[member.process().value()]);
        assert_eq!(received(&mut receiver, 0, 1), [(member.process().value(), number)]);
        look(&mut receiver, 0);
        look(&mut sender, 0);
        assert!(!sender.same_host.is_open(member));
    }
    // And it sends through none.
    send(&mut receiver, folder.address(2), 9, &[sender.identity.process.value()]);
    assert_eq!(received(&mut sender, 0, 1), [(sender.identity.process.value(), 9)]);
    look(&mut sender, 0);
    assert!(!receiver.same_host.is_open(sender.membership.index()));
}

#[test]
fn a_process_that_cannot_have_rings_says_why() {
    let folder = Folder::new("no-table");
    // What cannot be opened as a file: the processes exchange batches by UDP then.
    drop(folder.open(folder.address(0), 4791));
    let table = folder.0.join(folder::backlog_name(4791));
    std::fs::remove_file(&table).unwrap();
    std::fs::create_dir(&table).unwrap();
    let port = folder.open_with_rings(folder.address(1), 4791);
    let peer = Peer { address: folder.address(2), process: port.identity.process };
    let why = "this process cannot open the file in which processes find each other's rings";
    assert_eq!(port.medium_to(peer), PeerMedium::Udp(why));
    let port = folder.open(folder.address(3), 4791);
    assert_eq!(port.medium_to(peer), PeerMedium::Udp("this process uses UDP only"), "its user says so");
}

#[test]
fn a_scribbled_ring_ends_and_udp_goes_on() {
    let mut pair = Pair::new("scribble");
    pair.send(2);
    assert_eq!(pair.received(1), [2]);
    pair.sender.same_host.scribble(pair.receiver.membership.index());
    look(&mut pair.receiver, 0);
    assert_eq!(pair.receiver.counters().stats().rejected, 1);
    look(&mut pair.sender, 0);
    assert!(!pair.is_open(), "the receiver has said so");
    pair.send(3);
    assert_eq!(pair.received(1), [3]);
}

#[test]
fn batches_that_are_not_for_the_receiver_are_rejected() {
    let mut pair = Pair::new("reject");
    let path = pair.path();
    let member = pair.receiver.membership.index();
    // A packet for process 200 in the ring to another one: no sender does that.
    let packet = [0, 0, 0, 0, 0, 200, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0];
    let incarnation = backlog_of(&pair).incarnation(member);
    let batch = GsoBatch::new(&path, 16, &packet);
    assert!(pair.sender.same_host.put(0, member, incarnation, &batch).is_some());
    assert!(pair.received(0).is_empty());
    assert_eq!(pair.receiver.counters().stats().rejected, 1);
    pair.send(4);
    assert_eq!(pair.received(1), [4]);
}

#[test]
fn a_batch_without_icrc_gets_one_where_it_goes_by_udp() {
    let mut pair = Pair::new("seal");
    let member = pair.receiver.membership.index();
    let mut packet = [0; 28];
    packet[5] = member.process().value();
    let path = pair.path();
    let unsealed = GsoBatch { has_icrc: false, ..GsoBatch::new(&path, 28, &packet) };
    let mut came = Vec::new();
    let mut take = |pair: &mut Pair| {
        came.clear();
        pair.receiver.woken();
        while pair
            .receiver
            .receive(0, &mut |received| came.push((received.has_icrc, received.bytes.to_vec())))
        {}
        came.clone()
    };
    pair.sender.transmit(0, &unsealed).unwrap();
    assert_eq!(take(&mut pair), [(false, packet.to_vec())]);
    pair.sender.same_host.is_gone(0, member);
    pair.sender.transmit(0, &unsealed).unwrap();
    let sealed = pumice_model::port::batch::sealed(&path.flow, 28, &packet);
    assert_ne!(sealed, packet);
    assert_eq!(take(&mut pair), [(true, sealed)]);
}

#[test]
fn a_port_is_quiet_while_its_rings_are_empty_and_nothing_comes_by_udp() {
    let mut pair = Pair::new("quiet");
    // A look long after the last datagram.
    let now_ns = 1_000_000_000;
    while pair.receiver.receive(now_ns, &mut |_| {}) {}
    assert!(pair.receiver.is_quiet());
    pair.send(2);
    assert!(!pair.receiver.is_quiet(), "a ring has a batch");
    assert!(pair.receiver.receive(now_ns, &mut |_| {}));
    assert!(pair.receiver.is_quiet());
    pair.receiver.woken();
    assert!(!pair.receiver.is_quiet(), "the socket is readable");
    assert!(!pair.sender.is_quiet(), "no ring leads to it");
}

/// The text of each order that has come, in the calls in which the engine looks for orders: those that take
/// something and give the handler nothing.
fn command_queue(receiver: &mut SharedPort, now_ns: u64, mut refill: impl FnMut()) -> Option<Vec<u8>> {
    for _ in 0..100_000 {
        refill();
        let mut batches = 0;
        let more = receiver.receive(now_ns, &mut |_| batches += 1);
        if more
            && batches == 0
            && let Some(order) = receiver.next_command()
        {
            return Some(order.text);
        }
    }
    None
}

#[test]
fn a_question_is_heard_while_a_ring_is_never_empty() {
    let mut pair = Pair::new("asked");
    let member = pair.receiver.membership.index();
    let registry = Registry::open(&pair.folder.0, 4791).unwrap();
    let querier = Querier::bind(registry.sockets()).unwrap();
    for (number, is_woken) in [(1, false), (2, true)] {
        assert_eq!(querier.order(&registry, member, number, b"what?"), SendOutcome::Done);
        if is_woken {
            pair.receiver.woken();
        }
        let Pair { sender, receiver, to, .. } = &mut pair;
        let mut batches = 0;
        let heard = command_queue(receiver, 1_000_000_000, || {
            batches += 1;
            send(sender, *to, 1, &[member.process().value()]);
        });
        assert_eq!(heard.as_deref(), Some(&b"what?"[..]));
        let most = if is_woken { 40 } else { 33 * RELAY_INTERVAL };
        assert!(batches <= most, "heard behind {batches} batches");
        while receiver.receive(0, &mut |_| {}) {}
    }
}

#[test]
fn a_question_and_what_comes_for_an_adopted_index_are_two_receives() {
    let folder = Folder::new("asked-adopter");
    let to = folder.address(1);
    let (mut other, owner, mut adopter) =
        (folder.open(to, 4791), folder.open(to, 4791), folder.open(to, 4791));
    let index = owner.identity.process;
    adopter.reserve_index(index);
    drop(owner);
    assert!(adopter.adopt_index(index));
    while adopter.receive(0, &mut |_| {}) {}
    let registry = Registry::open(&folder.0, 4791).unwrap();
    let querier = Querier::bind(registry.sockets()).unwrap();
    assert_eq!(querier.order(&registry, adopter.membership.index(), 1, b"what?"), SendOutcome::Done);
    let bytes = [0, 0, 0, 0, 0, index.value(), 0, 1, 7, 0, 0, 0, 0, 0, 0, 0];
    let flow = Flow { source: to, destination: to, source_port: 4791, destination_port: 4791 };
    let batch = ReceivedBatch {
        flow,
        traffic_class: 0,
        hop_limit: 64,
        segment_bytes: 16,
        bytes: &bytes,
        has_icrc: true,
    };
    assert!(other.forward(index, &batch));
    adopter.woken();
    assert_eq!(command_queue(&mut adopter, 0, || {}).as_deref(), Some(&b"what?"[..]));
    assert_eq!(received(&mut adopter, 0, 1), [(index.value(), 7)]);
}
