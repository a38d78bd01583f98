//! Peers on rings that are stopped, do not look, or have little of a processor.

use std::process::Command;
use std::time::Instant;

use pumice_transport::host::Counter;
use pumice_transport::types::*;

use crate::fleet::Scene;
use crate::kit::Connection;
use crate::node::{Local, PATIENCE, sum};
use crate::remote::{Link, PATIENT, RING, Remote, local, request};

/// For what fails by retries: each takes a millisecond.
const BRIEF: Connection = Connection { timeout: 8, retry_cnt: 2, ..PATIENT };
/// Queue pairs to a slow peer, the requests of each, and their lengths: together all of its memory, and four
/// times a ring.
const LINKS: usize = 4;
const REQUESTS: usize = 16;
const LENGTH: usize = 64 << 10;

fn connect_all(a: &Local, b: &mut Remote, qp_type: QpType, c: Connection) -> Vec<Link> {
    (0..LINKS).map(|_| a.connect(b, qp_type, c, "")).collect()
}

/// WRITEs all memory of this process to that of the peer.
fn write_all(a: &Local, b: &Remote, links: &[Link]) {
    for (at, link) in links.iter().cycle().take(LINKS * REQUESTS).enumerate() {
        let sges = [a.node.sge(at * LENGTH, LENGTH as u32)];
        let remote = RemoteTarget { rkey: b.rkey, ..a.node.target(at * LENGTH) };
        let request =
            SendRequest { wr_id: at as u64, remote, ..request(SendOpcode::RdmaWrite, &sges, b.rkey) };
        a.node.hca.post_send(link.here, &request).unwrap();
    }
}

/// Other bytes than before.
fn fill(a: &Local, seed: u64) {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state.to_le_bytes()
    };
    let bytes: Vec<u8> = (0..a.node.memory.len() / 8).flat_map(|_| next()).collect();
    a.node.memory.write(0, &bytes);
}

/// Whether the peer has what this process has.
fn is_same(a: &Local, b: &mut Remote) -> bool {
    let length = a.node.memory.len();
    b.number::<u64>(&format!("sum offset=0 length={length}")) == sum(&a.node.memory.all())
}

fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

#[test]
fn a_stopped_peer_holds_up_only_its_own_queue_pairs_and_goes_on_with_all_that_was_sent() {
    let scene = Scene::new();
    let a = local(&scene, false, 4096);
    let [mut b, mut c] = [(); 2].map(|()| Remote::start(&scene, false));
    a.meet(&mut b);
    a.meet(&mut c);
    let to_b = connect_all(&a, &mut b, QpType::Rc, PATIENT);
    let to_c = a.connect(&mut c, QpType::Rc, PATIENT, "recv=200");
    c.ask(&format!("receive qp={} id=1 count=200 length=1000", to_c.there.value()));
    fill(&a, 5);
    b.stop();
    write_all(&a, &b, &to_b);
    // Each takes a whole way to the other peer and back.
    for _ in 0..200 {
        a.node.send(to_c.here, 1, 0, 1000);
        let done = a.poll(1);
        assert!(done.iter().all(|wc| wc.qp_num == to_c.here.value() && wc.status == WcStatus::Success));
    }
    b.resume();
    let done = a.poll(LINKS * REQUESTS);
    assert!(done.iter().all(|wc| wc.status == WcStatus::Success), "{done:?}");
    assert!(is_same(&a, &mut b));
    for link in to_b {
        assert_eq!(a.media(&mut b, link), [RING, RING]);
    }
}

#[test]
fn a_peer_that_stays_stopped_ends_connections_and_gets_new_ones_when_it_goes_on() {
    let scene = Scene::new();
    let a = local(&scene, false, 4096);
    let mut b = Remote::start(&scene, false);
    a.meet(&mut b);
    for _ in 0..2 {
        let links = connect_all(&a, &mut b, QpType::Rc, BRIEF);
        b.stop();
        write_all(&a, &b, &links);
        let done = a.poll(LINKS * REQUESTS);
        for link in &links {
            let mut statuses = done.iter().filter(|wc| wc.qp_num == link.here.value()).map(|wc| wc.status);
            assert_eq!(statuses.next(), Some(WcStatus::RetryExcErr));
            assert!(statuses.all(|status| status == WcStatus::WrFlushErr));
        }
        b.resume();
        fill(&a, 7);
        let links = connect_all(&a, &mut b, QpType::Rc, PATIENT);
        write_all(&a, &b, &links);
        let done = a.poll(LINKS * REQUESTS);
        assert!(done.iter().all(|wc| wc.status == WcStatus::Success), "{done:?}");
        assert!(is_same(&a, &mut b));
        assert_eq!(a.media(&mut b, links[0]), [RING, RING]);
    }
}

#[test]
fn a_request_waits_for_a_peer_that_does_not_look_at_its_ring_and_fails_when_it_has_looked_in_vain() {
    let scene = Scene::new();
    let a = local(&scene, false, 4096);
    let mut b = Remote::start(&scene, false);
    a.meet(&mut b);
    let link = a.connect(&mut b, QpType::Rc, BRIEF, "");
    assert_eq!(a.media(&mut b, link), [RING, RING]);
    b.ask(&format!("destroy qp={}", link.there.value()));
    b.ask("counted");
    b.ask("look-away yes=1");
    let before = [Counter::StarvedPeer, Counter::Timeout].map(|counter| a.node.counter(counter));
    a.node.send(link.here, 1, 0, 8);
    // It would have been given up long before this.
    wait_until("the peer is waited for", || {
        a.node.hca.drive();
        a.node.counter(Counter::StarvedPeer) >= before[0] + 5
    });
    assert_eq!(a.node.drain(), []);
    b.ask("look-away yes=0");
    let done = a.poll(1);
    assert_eq!((done.len(), done[0].status), (1, WcStatus::RetryExcErr));
    let transmissions = 1 + u64::from(BRIEF.retry_cnt);
    assert_eq!(a.node.counter(Counter::Timeout) - before[1], transmissions);
    assert_eq!(b.ask("counted"), format!("RxUnknownQpn+{transmissions}"));
}

#[test]
fn a_peer_with_a_thirty_second_part_of_a_processor_loses_nothing_and_grows_no_queue() {
    let scene = Scene::new();
    let a = local(&scene, false, 4096);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("PUMICE_MEDIA_PARTS", "32");
    let mut b = Remote::start_with(command, &scene, false);
    a.meet(&mut b);
    let kib =
        |b: &mut Remote| b.ask("held").split(' ').map(|word| word.parse().unwrap()).collect::<Vec<u64>>();
    let mut before = None;
    for round in 0..4 {
        for qp_type in [QpType::Rc, QpType::Uc] {
            fill(&a, 100 + round);
            let links = connect_all(&a, &mut b, qp_type, PATIENT);
            write_all(&a, &b, &links);
            let done = a.poll(LINKS * REQUESTS);
            assert!(done.iter().all(|wc| wc.status == WcStatus::Success), "{done:?}");
            assert_eq!(a.media(&mut b, links[0]), [RING, RING]);
            // What went before it on the same ring has been taken when this has.
            let last = a.connect(&mut b, QpType::Rc, PATIENT, "");
            b.ask(&format!("receive qp={} id=1 length=8", last.there.value()));
            a.node.send(last.here, 1, 0, 8);
            assert_eq!(a.poll(1)[0].status, WcStatus::Success);
            b.ask("poll count=1");
            // A machine that leaves the peer no processor for a second makes senders lose, and count it.
            let lost = a.sharing.stats().ring_lost;
            assert!(is_same(&a, &mut b) || qp_type == QpType::Uc && lost > 0, "{qp_type:?}: {lost} lost");
            for link in links.into_iter().chain([last]) {
                a.node.hca.destroy_qp(link.here).unwrap();
                b.ask(&format!("destroy qp={}", link.there.value()));
            }
        }
        let now = kib(&mut b);
        let before = before.get_or_insert_with(|| now.clone());
        assert_eq!(now[..3], before[..3], "descriptors, rings and their bytes");
        assert!(now[3] < before[3] + 1024, "{} KiB after the first round, {} now", before[3], now[3]);
    }
}
