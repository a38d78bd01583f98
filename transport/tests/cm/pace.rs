//! Bursts to one address leave in portions.

use pumice_transport::cm::ResolveParams;
use pumice_transport::mad::{CmMessage, CommId, Rep, Req};
use pumice_transport::wire::Qpn;

use crate::kit::*;

const MANY: u32 = 1000;

/// Requests under way, and nothing else.
fn requests(bench: &mut Bench) -> Vec<CommId> {
    let id = |message| match message {
        CmMessage::Req(Req { local_id, .. }) => local_id,
        other => panic!("{other:?}"),
    };
    bench.sent().into_iter().map(id).collect()
}

fn burst(bench: &mut Bench) -> Vec<CommId> {
    let header = ip_header(US, PEER);
    (0..MANY).map(|_| bench.cm.connect(&connect(&header), bench.now_ns).unwrap()).collect()
}

fn reply_to(id: CommId) -> CmMessage {
    let local_id = CommId(0x9000_0000 | id.0 & 0xffff);
    CmMessage::Rep(Rep { local_id, remote_id: id, local_qpn: Qpn::new(id.0 & 0xffff), ..rep() })
}

#[test]
fn an_answer_makes_room_for_the_next_request_and_all_are_sent_in_order() {
    let mut bench = Bench::new();
    let ids = burst(&mut bench);
    let mut sent = requests(&mut bench);
    assert_eq!(sent.len(), 128);
    let mut answered = 0;
    while answered < ids.len() {
        bench.receive(reply_to(ids[answered])).unwrap();
        answered += 1;
        sent.extend(requests(&mut bench));
        assert_eq!(sent.len(), ids.len().min(128 + answered));
        assert_eq!(bench.events().len(), 1);
    }
    assert_eq!(sent, ids);
    assert_eq!(bench.cm.poll_timeout(), None, "all are answered");
}

#[test]
fn silence_delays_the_next_portion_by_a_moment_and_every_request_has_its_whole_timeout() {
    let mut bench = Bench::new();
    let ids = burst(&mut bench);
    let begun_ns = bench.now_ns;
    let mut sent = requests(&mut bench);
    while sent.len() < ids.len() {
        let due_ns = bench.cm.poll_timeout().unwrap();
        bench.wait(due_ns - bench.now_ns);
        sent.extend(requests(&mut bench));
    }
    assert_eq!(sent, ids);
    assert_eq!(bench.now_ns - begun_ns, 7 * 20_000_000, "8 portions");
    // Each is repeated as long after it was sent as a lone one.
    bench.wait_exactly(begun_ns + REQ_NS - bench.now_ns);
    assert_eq!(requests(&mut bench), ids[..128]);
    bench.wait_exactly(20_000_000);
    assert_eq!(requests(&mut bench), ids[128..256]);
}

#[test]
fn requests_that_are_given_up_before_they_leave_are_never_heard_of() {
    let mut bench = Bench::new();
    let ids = burst(&mut bench);
    assert_eq!(requests(&mut bench).len(), 128);
    for id in &ids[128..] {
        bench.cm.destroy(*id, bench.now_ns).unwrap();
    }
    bench.quiet();
    for id in &ids[..128] {
        bench.cm.destroy(*id, bench.now_ns).unwrap();
    }
    assert!(bench.sent().iter().all(|message| matches!(message, CmMessage::Rej(_))));
    bench.assert_gone();
    assert!(bench.cm.is_empty());
}

#[test]
fn other_peers_do_not_wait() {
    let mut bench = Bench::new();
    burst(&mut bench);
    assert_eq!(requests(&mut bench).len(), 128);
    let mut elsewhere = route();
    elsewhere.remote = gid([10, 0, 0, 3]);
    let header = ip_header(US, [10, 0, 0, 3]);
    bench.cm.resolve(&ResolveParams::new(SERVICE, elsewhere, &header), bench.now_ns).unwrap();
    assert_eq!(bench.cm.poll_transmit().map(|out| out.route.remote), Some(elsewhere.remote));
}

/// A process that ends says so to all its peers, in portions that it drains.
#[test]
fn in_a_hurry_everything_leaves() {
    let mut bench = Bench::new();
    let ids = burst(&mut bench);
    let mut sent = requests(&mut bench);
    while bench.cm.send_all_waiting(bench.now_ns) {
        sent.extend(requests(&mut bench));
    }
    sent.extend(requests(&mut bench));
    assert_eq!(sent, ids);
}
