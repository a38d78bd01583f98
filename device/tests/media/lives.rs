//! Processes with rings whose peers restart, that fork, and that have peers elsewhere as well.

use std::process::Command;
use std::time::Instant;

use pumice_device::port::UdpConfig;
use pumice_device::sharing::{SharedPort, SharedPortConfig};
use pumice_transport::types::*;

use crate::fleet::{Scene, TwoHosts};
use crate::node::{Local, PATIENCE};
use crate::remote::{Link, PATIENT, RING, Remote, join, local};

/// Sends so many messages of a kilobyte, each of which arrives.
fn send(a: &Local, b: &mut Remote, to: &str, link: Link, count: u32) {
    let there = link.there.value();
    for _ in 0..count {
        b.ask(&format!("{to}receive qp={there} id=1 length=1000"));
        a.node.send(link.here, 1, 0, 1000);
        let sent = a.poll(1);
        assert_eq!((sent.len(), sent[0].status), (1, WcStatus::Success));
        b.ask(&format!("{to}poll count=1"));
    }
}

/// Gives away all process indices up to `index`, which the next process gets.
fn go_round(scene: &Scene, index: u8) {
    let udp = UdpConfig::new(scene.address());
    let config = SharedPortConfig { folder: Some(scene.folder().to_owned()), ..SharedPortConfig::new(udp) };
    let before = if index == 2 { 254 } else { index - 1 };
    while SharedPort::open(&config).unwrap().process().value() != before {}
}

#[test]
fn a_process_that_has_the_index_of_a_dead_one_gets_nothing_of_it_and_rings_of_its_own() {
    let scene = Scene::new();
    let a = local(&scene, false, 4096);
    let mut old = Remote::start(&scene, false);
    let link = a.meet(&mut old);
    let index = old.index;
    // Packets lie in the ring of a process that does not take them any more.
    old.ask("look-away yes=1");
    for wr_id in 0..8 {
        a.node.send(link.here, wr_id, 0, 1000);
    }
    old.kill();
    // Its requests would be repeated, and come to the heir.
    a.node.hca.destroy_qp(link.here).unwrap();
    // Before this process finds out that the other one is dead.
    go_round(&scene, index);
    let mut heir = Remote::start(&scene, false);
    assert_eq!(heir.index, index);
    let links = [(); 2].map(|()| a.connect(&mut heir, QpType::Rc, PATIENT, ""));
    links.iter().for_each(|link| send(&a, &mut heir, "", *link, 20));
    let end = Instant::now() + PATIENCE;
    while a.media(&mut heir, links[0]) != [RING, RING] {
        assert!(Instant::now() < end, "{:?}", a.media(&mut heir, links[0]));
        send(&a, &mut heir, "", links[0], 1);
    }
    links.iter().for_each(|link| send(&a, &mut heir, "", *link, 20));
    assert_eq!(heir.ask("counted"), "", "it heard nothing that was not for it");
    assert_eq!(a.sharing.stats().rejected, 0);
}

#[test]
fn fork_children_do_not_disturb_the_rings_of_their_parent() {
    let scene = Scene::new();
    let a = local(&scene, false, 4096);
    let mut b = Remote::start(&scene, false);
    let link = a.meet(&mut b);
    // A child that only exits.
    b.ask("fork child=exit");
    send(&a, &mut b, "", link, 10);
    assert_eq!(a.media(&mut b, link), [RING, RING]);
    // A child that has a device of its own.
    let (index, _) = b.fork();
    assert_ne!(index, b.index);
    let to_child = a.connect_to(&mut b, "child ", QpType::Rc, [PATIENT; 2], "");
    assert_eq!(to_child.there.process().value(), index);
    let there = to_child.there.value();
    let end = Instant::now() + PATIENCE;
    loop {
        send(&a, &mut b, "child ", to_child, 1);
        send(&a, &mut b, "", link, 1);
        let media = [a.medium(to_child.here), b.ask(&format!("child medium qp={there}"))];
        if media == [RING, RING] {
            break;
        }
        assert!(Instant::now() < end, "{media:?}");
    }
    send(&a, &mut b, "child ", to_child, 20);
    send(&a, &mut b, "", link, 20);
    assert_eq!(a.media(&mut b, link), [RING, RING]);
    assert_eq!([b.ask("counted"), b.ask("child counted")], ["", ""]);
    // The child goes, and its parent stays.
    b.say("child quit");
    send(&a, &mut b, "", link, 10);
    b.quit();
    assert_eq!(a.sharing.stats().rejected, 0);
}

#[test]
fn peers_on_a_ring_and_on_another_host_share_a_completion_queue_and_an_srq() {
    const MESSAGES: usize = 150;
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } != 0 {
        return println!("SKIPPED: only root can make network namespaces");
    }
    let Some(hosts) = TwoHosts::new() else {
        return println!("SKIPPED: network namespaces cannot be made here (ip netns)");
    };
    let scene = Scene::new();
    let start = |(namespace, address)| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(std::env::current_exe().unwrap());
        Remote::start_with(command, &scene.with_address(address), false)
    };
    let [here, there] = [hosts.iter().next().unwrap(), hosts.iter().nth(1).unwrap()];
    let (mut hub, mut near, mut far) = (start(here), start(here), start(there));
    let [hub_near, near_qp] = join([&mut hub, &mut near], "srq=1");
    let [hub_far, far_qp] = join([&mut hub, &mut far], "srq=1");
    let end = Instant::now() + PATIENCE;
    let media = |hub: &mut Remote| [hub_near, hub_far].map(|qpn| hub.ask(&format!("medium qp={qpn}")));
    let elsewhere = "UDP: it is no process of this user in this network namespace";
    loop {
        hub.ask("receive srq=1 id=1 count=2 length=1000");
        for (peer, qpn) in [(&mut near, near_qp), (&mut far, far_qp)] {
            peer.ask(&format!("send qp={qpn} count=1 length=1000"));
        }
        hub.ask("tally count=2");
        if media(&mut hub) == [RING, elsewhere] {
            break;
        }
        assert!(Instant::now() < end, "{:?}", media(&mut hub));
    }
    // Both at once, into one queue of receives.
    hub.ask(&format!("receive srq=1 id=1 count={} length=1000", 2 * MESSAGES));
    for (peer, qpn) in [(&mut near, near_qp), (&mut far, far_qp)] {
        peer.say(&format!("send qp={qpn} count={MESSAGES} length=1000"));
    }
    let expected = format!("{hub_near}:{MESSAGES} {hub_far}:{MESSAGES}");
    assert_eq!(hub.ask(&format!("tally count={}", 2 * MESSAGES)), expected);
    near.read_reply();
    far.read_reply();
    // And back.
    for (peer, qpn, own) in [(&mut near, near_qp, hub_near), (&mut far, far_qp, hub_far)] {
        peer.ask(&format!("receive qp={qpn} id=1 count={MESSAGES} length=1000"));
        hub.ask(&format!("send qp={own} count={MESSAGES} length=1000"));
        assert_eq!(peer.ask(&format!("tally count={MESSAGES}")), format!("{qpn}:{MESSAGES}"));
    }
    assert_eq!(media(&mut hub), [RING, elsewhere]);
    // One ends, and the other goes on.
    near.kill();
    hub.ask(&format!("receive srq=1 id=1 count={MESSAGES} length=1000"));
    far.ask(&format!("send qp={far_qp} count={MESSAGES} length=1000"));
    assert_eq!(hub.ask(&format!("tally count={MESSAGES}")), format!("{hub_far}:{MESSAGES}"));
}

#[test]
fn rings_to_clients_that_have_gone_make_room_for_those_of_the_next() {
    const CLIENTS: usize = 12;
    let scene = Scene::new();
    let mut server = Remote::start(&scene, false);
    // Mapped rings, and their KiB.
    let rings = |server: &mut Remote| -> [u64; 2] {
        // Looks at its rings, as it would if something came.
        server.ask("counted");
        let held = server.ask("held");
        let mut words = held.split(' ').skip(1).map(|word| word.parse().unwrap());
        [words.next().unwrap(), words.next().unwrap()]
    };
    let meet = |server: &mut Remote, client: &mut Remote| {
        let [own, theirs] = join([&mut *server, &mut *client], "");
        let end = Instant::now() + PATIENCE;
        while [server.ask(&format!("medium qp={own}")), client.ask(&format!("medium qp={theirs}"))]
            != [RING, RING]
        {
            assert!(Instant::now() < end, "no rings");
            client.ask(&format!("receive qp={theirs} id=1 length=8"));
            server.ask(&format!("send qp={own} count=1 length=8"));
            client.ask("poll count=1");
        }
    };
    let gone = |server: &mut Remote| {
        let end = Instant::now() + PATIENCE;
        while rings(server) != [0, 0] {
            assert!(Instant::now() < end, "{:?}", rings(server));
        }
    };
    let mut first = Remote::start(&scene, false);
    meet(&mut server, &mut first);
    let with_one = rings(&mut server);
    assert_eq!(with_one[0], 2);
    first.quit();
    gone(&mut server);
    let mut clients: Vec<Remote> = (0..CLIENTS).map(|_| Remote::start(&scene, false)).collect();
    clients.iter_mut().for_each(|client| meet(&mut server, client));
    assert_eq!(rings(&mut server)[0], 2 * CLIENTS as u64);
    clients.iter_mut().for_each(|client| client.kill());
    gone(&mut server);
    let mut last = Remote::start(&scene, false);
    meet(&mut server, &mut last);
    assert_eq!(rings(&mut server), with_one, "as large as the first client's");
}
