//! Very many queue pairs on one ring, and as many processes as there can be.

use std::process::Command;
use std::time::Instant;

use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::fleet::Scene;
use crate::node::PATIENCE;
use crate::remote::{PATIENT, RING, Remote, join, local};

const QUEUE_PAIRS: usize = 10_000;
/// Processes that may share a port.
const PROCESSES: usize = 254;

#[test]
fn ten_thousand_queue_pairs_use_one_pair_of_rings() {
    let scene = Scene::new();
    let a = local(&scene, false, 4 * QUEUE_PAIRS as u32);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("PUMICE_MEDIA_CQ", (4 * QUEUE_PAIRS).to_string());
    let mut b = Remote::start_with(command, &scene, false);
    let link = a.meet(&mut b);
    let mut init = a.node.qp_init(QpType::Rc);
    init.signal_all = true;
    (init.capacity.max_send_wr, init.capacity.max_recv_wr) = (1, 1);
    let here: Vec<Qpn> = (0..QUEUE_PAIRS).map(|_| a.node.hca.create_qp(&init).unwrap().0).collect();
    let there = b.ask(&format!("many count={QUEUE_PAIRS} type=rc recv=1 send=1"));
    let there: Vec<Qpn> = there.split(',').map(|qpn| Qpn::new(qpn.parse().unwrap())).collect();
    for (qpn, peer) in here.iter().zip(&there) {
        a.node.to_rtr(*qpn, true, b.ip, *peer, PATIENT);
        a.node.to_rts(*qpn, true, PATIENT);
        a.node.post_recv(*qpn, 1, 0, 64);
    }
    let peers: Vec<String> = here.iter().map(|qpn| qpn.value().to_string()).collect();
    let words = crate::node::words(PATIENT);
    b.ask(&format!("connect-many ip={} {words} peers={}", a.node.ip, peers.join(",")));
    b.say("send-many");
    here.iter().for_each(|qpn| a.node.send(*qpn, 0, 0, 64));
    b.read_reply();
    let done = a.poll(2 * QUEUE_PAIRS);
    assert!(done.iter().all(|wc| wc.status == WcStatus::Success));
    assert_eq!(done.len(), 2 * QUEUE_PAIRS);
    let all = b.ask(&format!("poll-many count={}", 2 * QUEUE_PAIRS));
    assert_eq!(all, format!("{} None", 2 * QUEUE_PAIRS));
    assert_eq!(a.media(&mut b, link), [RING, RING]);
    assert_eq!((a.sharing.stats().ring_lost, b.ask("lost").as_str()), (0, "0"));
}

#[test]
fn as_many_processes_as_there_can_be_have_rings_to_one_and_the_next_is_refused() {
    let scene = Scene::new();
    let launch = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("PUMICE_MEDIA_BYTES", "65536").env("PUMICE_MEDIA_CQ", "1024");
        Remote::launch(command, &scene, false)
    };
    let mut hub = Remote::admit(launch(), &scene);
    let held = |hub: &mut Remote| -> [u64; 4] {
        let words: Vec<u64> = hub.ask("held").split(' ').map(|word| word.parse().unwrap()).collect();
        words.try_into().unwrap()
    };
    let alone = held(&mut hub);
    let launched: Vec<_> = (1..PROCESSES).map(|_| launch()).collect();
    let mut peers: Vec<Remote> = launched.into_iter().map(|process| Remote::admit(process, &scene)).collect();
    let links: Vec<[u32; 2]> = peers.iter_mut().map(|peer| join([&mut hub, peer], "")).collect();
    let end = Instant::now() + PATIENCE;
    // A ring in each direction to each.
    while held(&mut hub)[1] < 2 * peers.len() as u64 {
        assert!(Instant::now() < end, "{:?}", held(&mut hub));
        for (peer, [own, theirs]) in peers.iter_mut().zip(&links) {
            peer.ask(&format!("receive qp={theirs} id=1 length=64"));
            hub.ask(&format!("send qp={own} count=1 length=64"));
            peer.ask("poll count=1");
        }
    }
    let [descriptors, rings, ring_kib, private_kib] = held(&mut hub);
    let [at_first, _, _, private_at_first] = alone;
    println!(
        "one process with {} neighbours: {rings} rings, {ring_kib} KiB of them, {} descriptors more, \
         {private_kib} KiB of its own, {private_at_first} before",
        peers.len(),
        descriptors - at_first
    );
    let per_peer = (descriptors - at_first).div_ceil(peers.len() as u64);
    assert!(per_peer <= 3, "{per_peer} descriptors for each neighbour");
    assert!(ring_kib < 400 << 10, "{ring_kib} KiB of rings");
    let [first, last] = [links[0][0], links[links.len() - 1][0]];
    assert_eq!([first, last].map(|qpn| hub.ask(&format!("medium qp={qpn}"))), [RING, RING]);

    // There are no more indices, and that is said.
    let refusal = launch().read_reply("refused");
    assert!(refusal.starts_with("all 254 process indices in"), "{refusal}");
    // One that goes makes room.
    peers.pop().unwrap().quit();
    let mut newcomer = Remote::admit(launch(), &scene);
    let [own, theirs] = join([&mut hub, &mut newcomer], "");
    newcomer.ask(&format!("receive qp={theirs} id=1 count=4 length=64"));
    hub.ask(&format!("send qp={own} count=4 length=64"));
    newcomer.ask("poll count=4");
}
