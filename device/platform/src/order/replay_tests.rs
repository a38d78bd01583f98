use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::order::schedule::text_of;
use crate::outside::thread::ThreadName;

const MAIN: Caller = Caller::Named(ThreadName::MAIN);

/// A folder of a replay, which is removed with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, tags: &[&str], points: &[(u32, PointKind<Sender>)]) -> Folder {
        let folder = std::env::temp_dir().join(format!("pumice-order-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the folder of temporary files is writable");
        let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let points: Vec<_> =
            points.iter().map(|(process, what)| (*process, Point { at_ns: 7, what: what.clone() })).collect();
        fs::write(folder.join(SCHEDULE), text_of(&tags, &points)).expect("ours");
        Folder(folder)
    }

    fn process(&self, tag: &str, number: u32) -> Replay {
        Replay::begin(&self.0, tag, number).expect("the run had it")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn call(name: &str) -> PointKind<Sender> {
    PointKind::Call { caller: MAIN, call: name.to_owned() }
}

fn at(qpn: u32) -> RequestReceiver {
    RequestReceiver { address: IpAddr::V4(Ipv4Addr::LOCALHOST), qpn }
}

#[test]
fn a_packet_waits_for_calls_and_arrivals_before_it() {
    let points = [
        (0, call("ibv_create_qp")),
        (1, call("ibv_create_qp")),
        (0, PointKind::Arrival((1, 4))),
        (0, PointKind::Arrival((1, 3))),
        (1, call("ibv_post_send")),
    ];
    let folder = Folder::new("packets", &["keeper", "writer"], &points);
    let (keeper, writer) = (folder.process("keeper", 100), folder.process("writer", 200));
    fs::write(folder.0.join("200.qps"), "made 3 77\nconnected 3 127.0.0.1 17\nconnected 4 127.0.0.1 18\n")
        .expect("ours");
    assert!(!keeper.may_arrive(at(18)), "nothing was called yet");
    let first = keeper.wait_for_call(MAIN, "ibv_create_qp").expect("its turn");
    keeper.done(first);
    assert!(!keeper.may_arrive(at(18)), "the other process has called nothing");
    let second = writer.wait_for_call(MAIN, "ibv_create_qp").expect("its turn");
    writer.done(second);
    assert!(!keeper.may_arrive(at(17)), "another one comes first");
    assert!(keeper.may_arrive(at(99)), "it is of no process of the record");
    assert!(keeper.may_arrive(at(18)));
    keeper.arrived(at(18));
    assert!(keeper.may_arrive(at(17)));
    keeper.arrived(at(17));
    assert!(keeper.may_arrive(at(17)), "the record has no more of it");
    assert!(writer.wait_for_call(MAIN, "ibv_post_send").is_some());
}

#[test]
fn a_packet_waits_for_a_poll_that_found_nothing() {
    let idle = PointKind::Idle { caller: MAIN, call: "ibv_poll_cq".to_owned() };
    let folder = Folder::new("polls", &["one"], &[(0, idle), (0, PointKind::Arrival((0, 0)))]);
    let one = folder.process("one", 100);
    fs::write(folder.0.join("100.qps"), "connected 0 127.0.0.1 17\n").expect("ours");
    assert!(!one.may_arrive(at(17)));
    one.idle(MAIN, "ibv_poll_cq");
    assert!(one.may_arrive(at(17)));
}

#[test]
fn the_first_departure_is_noted_and_ends_it_in_all_processes() {
    let folder =
        Folder::new("departs", &["one", "one"], &[(0, call("ibv_create_qp")), (1, call("ibv_create_cq"))]);
    let (first, second) = (folder.process("one", 100), folder.process("one", 200));
    assert!(Replay::begin(&folder.0, "one", 300).is_none(), "the record has two of this tag");
    // Another call than the recorded one is reported, and the order continues.
    assert!(first.wait_for_call(MAIN, "ibv_alloc_pd").is_none());
    let said = fs::read_to_string(folder.0.join("100.departed")).expect("it is noted");
    let why = "it calls ibv_alloc_pd where ibv_create_qp was called";
    assert_eq!(said, format!("one: after 0 of 1 points of the recorded order, {why}"));
    assert!(!second.is_over());
    first.depart("too much", true);
    assert!(second.wait_for_call(MAIN, "ibv_create_cq").is_some(), "nothing is held back any more");
    assert!(second.is_over());
}

#[test]
fn a_damaged_order_is_not_imposed() {
    let folder = Folder::new("damaged", &["one"], &[]);
    fs::write(folder.0.join(SCHEDULE), "process one\n1 5 0 a\n").expect("ours");
    assert!(Replay::begin(&folder.0, "one", 100).is_none());
}
