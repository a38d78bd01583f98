//! What is said of waits.

use std::net::Ipv4Addr;

use pumice_events::inspect::{AwaitedThread, DoingView, ListenView, QpView, ThreadView, Totals, WaitsView};
use pumice_transport::cm::Event as CmEvent;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::mad::CommId;
use pumice_transport::wire::{Psn, Qpn};

use super::heard::FOR_EVER;
use super::*;

const S: u64 = 1_000_000_000;
const CHANNEL: u64 = 0x1000;

fn queue(number: u32, channel: u64, filled: usize, armed: ArmedNow) -> QueueNow {
    QueueNow { number, channel, filled, armed }
}

fn waiter(doing: Doing) -> Waiter {
    Waiter { doing, stack: vec![7] }
}

/// What is said of queues that stay as they are for 3 s, while a thread does this.
fn said(queues: &[QueueNow], doing: Doing, objects: &Collected) -> Vec<String> {
    let waits = Waits::new(2 * S);
    let looks: Vec<bool> = (0..4).map(|second| waits.look(second * S, queues, second).is_long).collect();
    let found = waits.judge(3 * S, queues, &[waiter(doing)], objects, &[]);
    assert!(found.iter().all(|vain| vain.stack == [7]));
    assert!(found.is_empty() || looks == [false, false, true, true], "{looks:?}");
    assert!(waits.judge(4 * S, queues, &[waiter(doing)], objects, &[]).is_empty(), "it is said once");
    found.into_iter().map(|vain| vain.sentence).collect()
}

#[test]
fn a_thread_that_polls_another_queue_is_told_where_the_completion_is() {
    let queues = [queue(1, 0, 1, ArmedNow::No), queue(2, 0, 0, ArmedNow::No)];
    let told = said(&queues, Doing::Polls(2), &Collected::default());
    assert!(told[0].contains("a completion waits in completion queue 1"), "{told:?}");
    assert_eq!(said(&queues, Doing::Polls(1), &Collected::default()), [""; 0]);
    // Objects that are not in the list may complete there.
    let unknown = Totals { qps: 1, ..Totals::default() };
    let objects = Collected { totals: unknown, ..Collected::default() };
    assert_eq!(said(&queues, Doing::Polls(2), &objects), [""; 0]);
}

#[test]
fn a_thread_that_sleeps_is_told_why_nothing_wakes_it() {
    let objects = Collected::default();
    for (armed, why) in [
        (ArmedNow::No, "not armed"),
        (ArmedNow::ForSolicited, "solicited completions only"),
        (ArmedNow::ForAll, "before it was armed"),
    ] {
        let told = said(&[queue(1, CHANNEL, 2, armed)], Doing::SleepsOn(CHANNEL), &objects);
        assert!(told[0].starts_with("2 completions wait") && told[0].contains(why), "{told:?}");
    }
    let queues = [queue(1, CHANNEL, 0, ArmedNow::ForAll), queue(2, 0, 1, ArmedNow::No)];
    let told = said(&queues, Doing::SleepsOn(CHANNEL), &objects);
    assert!(told[0].contains("completion queue 2") && told[0].contains("has no channel"), "{told:?}");
    let queues = [queue(1, CHANNEL, 0, ArmedNow::ForAll)];
    assert_eq!(said(&queues, Doing::SleepsOn(CHANNEL), &objects), [""; 0], "an idle server");
}

#[test]
fn a_queue_that_changes_is_not_waited_for_in_vain() {
    let waits = Waits::new(2 * S);
    for second in 0..20 {
        let filled = 1 + second as usize % 2;
        assert!(!waits.look(second * S, &[queue(1, 0, filled, ArmedNow::No)], 0).is_long);
    }
}

#[test]
fn a_judgement_before_its_time_does_not_put_off_the_next() {
    let waits = Waits::new(2 * S);
    let queues = [queue(1, 0, 1, ArmedNow::No), queue(2, 0, 0, ArmedNow::No)];
    assert!(!waits.look(S, &[], 0).is_long);
    assert!(waits.look(3 * S, &queues, 0).is_at_rest, "of which a judgement finds nothing");
    assert!(waits.judge(3 * S, &queues, &[], &Collected::default(), &[]).is_empty());
    assert!(waits.look(5 * S, &queues, 0).is_long);
    let told = waits.judge(5 * S, &queues, &[waiter(Doing::Polls(2))], &Collected::default(), &[]);
    assert_eq!(told.len(), 1);
}

#[test]
fn a_request_that_waits_for_a_receive_for_ever_is_told_while_the_peer_answers() {
    let qp = {
        let qpn = Qpn::new(0x12);
        QpContext { qpn, pd: 0, send_cq: 0, recv_cq: 0, recv_queue: 0, xrcd: 0, ordinal: 0 }
    };
    let hear = |waits: &Waits, at_ns, retries_left| {
        let event = QpEvent::ReceiverNotReady { psn: Psn::new(5), retries_left, wait_ns: S / 10 };
        waits.lock().hear(at_ns, &Event::Qp { qp: &qp, event: &event });
    };
    let waits = Waits::new(2 * S);
    (0..30).for_each(|tenth| hear(&waits, tenth * S / 10, FOR_EVER));
    assert!(waits.look(3 * S, &[], 0).is_long);
    let told = waits.judge(3 * S, &[], &[], &Collected::default(), &[]);
    assert!(told[0].sentence.contains("30 RNR NAKs in 3.0 s; rnr_retry 7"), "{told:?}");
    for (retries_left, now_ns) in [(6, 3 * S), (FOR_EVER, 9 * S)] {
        let waits = Waits::new(2 * S);
        (0..30).for_each(|tenth| hear(&waits, tenth * S / 10, retries_left));
        assert!(!waits.look(now_ns, &[], 0).is_long, "it has a limit, or has gone on");
    }
}

/// Processes of one address, each with a queue pair that is connected to that of the next one, and with one
/// thread that polls for a message.
fn circle(count: u32) -> Vec<Standing> {
    let address = std::net::IpAddr::from([127, 0, 0, 9]);
    let number = |process: u32| ((process % count + 1) << 16) | 7;
    // Connected queue pairs are connected to each other.
    let service = if count == 2 { "RC" } else { "SRD" };
    let of = |process: u32| {
        let qp = serde_json::json!({
            "qpn": number(process), "ordinal": 0, "service": service, "state": "RTS",
            "peer": {"address": address, "qpn": number(process + 1)},
            "posted": 3, "ended": 3, "received": 2, "sent_packets": 0, "sent_bytes": 0, "received_packets": 0,
            "received_bytes": 0, "repeated_packets": 0, "timeouts": 0, "rnr_naks_sent": 0,
            "rnr_naks_received": 0, "naks_sent": 0, "naks_received": 0, "dropped": 0, "in_flight_packets": 0,
            "window_packets": 64, "rtt_ns": null, "waits_for_receiver": false, "send_queue_depth": 16,
            "receives_posted": 4, "recv_queue_depth": 16, "send_cq": 1, "recv_cq": 2, "srq": null,
            "last_error": null,
        });
        let polls = DoingView::Polls { cqs: vec![2] };
        let thread = ThreadView {
            thread: 100 + process,
            name: String::new(),
            doing: polls,
            also: None,
            stack: Vec::new(),
        };
        let waits = WaitsView { looks: 1, threads: vec![thread], ..WaitsView::default() };
        let objects = Collected {
            totals: Totals { qps: 1, ..Totals::default() },
            qps: vec![serde_json::from_value(qp).unwrap()],
            waits: Some(waits),
            ..Collected::default()
        };
        Standing {
            pid: 100 + process,
            program: format!("p{process}"),
            address: Some(address),
            index: process as u8 + 1,
            objects: Some(objects),
            ..Standing::default()
        }
    };
    (0..count).map(of).collect()
}

fn verdicts(all: &[Standing]) -> Vec<Verdict> {
    graph(all, all).verdicts
}

/// What is changed in the objects of a process.
fn change(one: &mut Standing, change: impl FnOnce(&mut Collected)) {
    change(one.objects.as_mut().unwrap());
}

#[test]
fn processes_that_wait_for_each_other_are_a_circle() {
    for count in [2, 3, 5] {
        let found = verdicts(&circle(count));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].is_circle && found[0].is_certain, "{found:?}");
        assert_eq!(found[0].processes.len(), count as usize);
        assert!(found[0].sentence.contains("wait for each other"), "{found:?}");
    }
}

#[test]
fn a_thread_that_may_go_on_by_itself_leaves_a_doubt() {
    let mut all = circle(2);
    change(&mut all[1], |objects| {
        let threads = &mut objects.waits.as_mut().unwrap().threads;
        let doing = DoingView::Calls { call: "read".to_owned(), awaits: None };
        threads.push(ThreadView { doing, ..threads[0].clone() });
    });
    assert!(verdicts(&all).iter().all(|one| !one.is_certain));
    let listens = ListenView { address: None, port: 7, unread: 0 };
    let mut all = circle(2);
    change(&mut all[0], |objects| objects.listens.push(listens));
    assert!(verdicts(&all).iter().all(|one| !one.is_certain), "it may get another connection");
}

#[test]
fn what_moves_does_not_hang() {
    let (before, mut now) = (circle(2), circle(2));
    now.iter_mut().for_each(|one| change(one, |objects| objects.qps[0].received += 1));
    assert_eq!(graph(&before, &now).verdicts, []);
}

#[test]
fn the_root_of_a_chain_is_named_with_its_reason() {
    let root = |change_last: &dyn Fn(&mut Standing)| {
        let mut all = circle(3);
        change_last(&mut all[2]);
        let found = verdicts(&all);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].processes, [0, 1, 2]);
        found[0].sentence.clone()
    };
    let stopped = root(&|one| one.is_stopped = true);
    assert!(stopped.contains("process 102 (p2) is stopped; `kill -CONT 102`"), "{stopped}");
    let failed = root(&|one| {
        change(one, |objects| {
            objects.qps[0].state = "ERR".to_owned();
            objects.waits.as_mut().unwrap().threads[0].doing = DoingView::Runs;
        });
    });
    assert!(failed.contains("whose QP 0x030007 has failed"), "{failed}");
    let destroyed = root(&|one| {
        change(one, |objects| {
            objects.qps.clear();
            objects.totals.qps = 0;
            objects.waits.as_mut().unwrap().threads[0].doing = DoingView::Runs;
        });
    });
    assert!(destroyed.contains("which has destroyed QP 0x030007"), "{destroyed}");
    let elsewhere = root(&|one| {
        change(one, |objects| {
            objects.waits.as_mut().unwrap().threads[0].doing =
                DoingView::Calls { call: "read".to_owned(), awaits: None };
        });
    });
    assert!(elsewhere.contains("process 102 (p2) waits for no other process: its thread 102 is in read"));
}

#[test]
fn a_process_that_is_not_there_any_more_has_ended() {
    let mut all = circle(3);
    all.remove(2);
    let found = verdicts(&all);
    assert!(found.iter().any(|one| one.is_certain && one.sentence.ends_with("which has ended")), "{found:?}");
}

#[test]
fn send_requests_wait_for_receives_and_for_queue_pairs_that_are_ready() {
    let sends = |state: &str, receives: u32| {
        let mut all = circle(2);
        change(&mut all[0], |objects| {
            let qp = &mut objects.qps[0];
            (qp.posted, qp.rnr_naks_received, qp.waits_for_receiver) = (4, 9, true);
            objects.waits.as_mut().unwrap().threads[0].doing = DoingView::Polls { cqs: vec![1] };
        });
        change(&mut all[1], |objects| {
            (objects.qps[0].state, objects.qps[0].receives_posted) = (state.to_owned(), Some(receives));
            objects.waits.as_mut().unwrap().threads[0].doing = DoingView::Runs;
        });
        verdicts(&all)[0].sentence.clone()
    };
    assert!(sends("RTS", 0).contains("has posted no receive request to QP 0x020007 (9 RNR NAKs)"));
    assert!(sends("INIT", 3).contains("is in INIT: it receives from RTR on"));
}

#[test]
fn a_thread_that_polls_where_nothing_can_come_is_told_why() {
    let mut all = circle(1);
    change(&mut all[0], |objects| {
        objects.qps[0].receives_posted = Some(0);
        objects.waits.as_mut().unwrap().threads[0].doing = DoingView::Polls { cqs: vec![1] };
    });
    assert!(verdicts(&all)[0].sentence.contains("nothing is outstanding"));
    change(&mut all[0], |objects| objects.qps[0].unsignaled = 3);
    assert!(
        verdicts(&all)[0].sentence.contains("all send requests since the last completion, 3, are unsignaled")
    );
}

#[test]
fn listeners_are_named_to_those_who_ask_elsewhere() {
    let asks = |port: u16, unread: u32| {
        let mut all = circle(2);
        let to = all[0].address.unwrap();
        change(&mut all[0], |objects| objects.listens.push(ListenView { address: None, port: 7, unread }));
        let connect = ConnectView { to, port, requests: 2, for_ms: 3000 };
        change(&mut all[1], |objects| objects.waits.as_mut().unwrap().connects.push(connect));
        let found = verdicts(&all);
        found.iter().map(|one| one.sentence.clone()).collect::<String>()
    };
    let elsewhere = asks(8, 0);
    assert!(
        elsewhere
            .contains("no program of this user listens there; programs of this user listen at 127.0.0.9")
    );
    assert!(asks(7, 1).contains("its program has not read 1 event (CONNECT_REQUEST)"));
}

/// What holds the first of two processes, whose send request waits.
fn held(change_them: impl FnOnce(&mut QpView, &mut Collected)) -> String {
    let mut all = circle(2);
    let [sender, peer] = all.as_mut_slice() else { unreachable!() };
    let (own, theirs) = (sender.objects.as_mut().unwrap(), peer.objects.as_mut().unwrap());
    own.qps[0].posted = 4;
    own.waits.as_mut().unwrap().threads[0].doing = DoingView::Polls { cqs: vec![1] };
    theirs.waits.as_mut().unwrap().threads[0].doing = DoingView::Runs;
    change_them(&mut own.qps[0], theirs);
    verdicts(&all).into_iter().map(|one| one.sentence).next().unwrap_or_default()
}

#[test]
fn a_number_that_the_peer_does_not_have_is_told_from_one_that_it_has_destroyed() {
    let without = |received: u64| {
        held(|own, theirs| {
            (own.peer.as_mut().unwrap().qpn, own.received, own.ended) = (0x02_0155, received, received);
            theirs.qps[0].peer.as_mut().unwrap().qpn = 0x01_0007;
        })
    };
    let never = without(0);
    assert!(never.contains("dest_qp_num has to be 0x20007 here, and is 0x20155"), "{never}");
    assert!(without(2).contains("has destroyed QP 0x020155"));
    let crossed = held(|_, theirs| theirs.qps[0].peer.as_mut().unwrap().qpn = 0x01_0009);
    assert!(crossed.contains("is connected to QP 0x010009, and not to QP 0x010007"), "{crossed}");
}

#[test]
fn what_the_process_itself_has_done_goes_before_its_peer() {
    let drained = held(|own, _| own.state = "SQD".to_owned());
    assert!(drained.contains("the queue pair is in SQD") && !drained.contains("acknowledged"), "{drained}");
    let mut all = circle(1);
    change(&mut all[0], |objects| {
        let failed = serde_json::json!({
            "number": 2, "depth": 4, "filled": 0, "armed": false, "failed": true, "users": 1,
        });
        objects.cqs.push(serde_json::from_value(failed).unwrap());
    });
    let found = verdicts(&all);
    assert!(
        found[0].is_certain && found[0].sentence.contains("completion queue 2 of 4 entries"),
        "{found:?}"
    );
}

/// A shared receive queue.
fn shared(number: u32, posted: u32, cq: Option<u32>) -> pumice_events::inspect::SrqView {
    let value = serde_json::json!({
        "number": number, "ordinal": 0, "depth": 8, "posted": posted, "limit": 0, "xrc": cq.is_some(),
        "cq": cq,
    });
    serde_json::from_value(value).unwrap()
}

#[test]
fn where_the_peer_has_receive_requests_is_said_if_the_message_has_none() {
    let refused = |change_them: &dyn Fn(&mut Collected)| {
        held(|own, theirs| {
            (own.rnr_naks_received, own.waits_for_receiver) = (9, true);
            theirs.qps[0].receives_posted = Some(0);
            change_them(theirs);
        })
    };
    let beside = refused(&|theirs| {
        let other = QpView { qpn: 0x02_0008, receives_posted: Some(8), ..theirs.qps[0].clone() };
        theirs.qps.push(other);
    });
    assert!(beside.contains("to QP 0x020007 (9 RNR NAKs); its QP 0x020008 has 8"), "{beside}");
    let empty = refused(&|theirs| {
        (theirs.qps[0].receives_posted, theirs.qps[0].srq) = (None, Some(3));
        theirs.qps[0].rnr_naks_sent = 9;
        theirs.srqs.push(shared(3, 0, None));
        theirs.waits.as_mut().unwrap().threads[0].doing = DoingView::SleepsForDevice;
    });
    assert!(empty.contains("shared receive queue 3 of process 101 (p1) has no receive request"), "{empty}");
    assert!(empty.contains("its limit is not armed: IBV_EVENT_SRQ_LIMIT_REACHED comes once"), "{empty}");
    let of_xrc = refused(&|theirs| {
        let qp = &mut theirs.qps[0];
        (qp.service, qp.receives_posted, qp.recv_cq) = ("XRC_RECV".to_owned(), None, None);
        theirs.srqs.push(shared(4, 1, Some(2)));
        theirs.waits.as_mut().unwrap().threads[0].doing = DoingView::Polls { cqs: vec![2] };
    });
    assert!(of_xrc.contains("its shared receive queue 4 has 1"), "{of_xrc}");
    assert!(!of_xrc.contains("nothing is outstanding"), "{of_xrc}");
}

#[test]
fn threads_that_wait_for_no_completion_are_told_what_they_wait_for() {
    let alone = |doing: DoingView, change_it: &dyn Fn(&mut Collected)| {
        let mut all = circle(1);
        change(&mut all[0], |objects| {
            objects.waits.as_mut().unwrap().threads[0].doing = doing;
            change_it(objects);
        });
        verdicts(&all).into_iter().map(|one| (one.sentence, one.is_certain)).next().unwrap_or_default()
    };
    let by = "ibv_ack_cq_events".to_owned();
    let waits = DoingView::Acknowledges { call: "ibv_destroy_cq".to_owned(), by, events: 1 };
    let (told, is_certain) = alone(waits, &|_| {});
    assert!(
        is_certain && told.contains("until its program has called ibv_ack_cq_events for 1 event"),
        "{told}"
    );
    let (told, _) = alone(DoingView::SleepsForConnections { has_none: true, elsewhere: 2 }, &|_| {});
    assert!(told.contains("that no identifier uses; 2 events wait in the channel of another"), "{told}");
    let (told, _) = alone(DoingView::SleepsForDevice, &|objects| objects.qps[0].state = "ERR".to_owned());
    assert!(told.contains("is in ERR and has no shared receive queue"), "{told}");
    assert_eq!(alone(DoingView::SleepsForDevice, &|_| {}).0, "", "it may have events");
    let (told, _) = alone(DoingView::Polls { cqs: vec![1] }, &|objects| {
        objects.qps[0].receives_posted = Some(0);
        let threads = &mut objects.waits.as_mut().unwrap().threads;
        let awaits = Some(AwaitedThread::Lock { thread: threads[0].thread });
        let doing = DoingView::Calls { call: "futex".to_owned(), awaits };
        threads.push(ThreadView { thread: 7, doing, ..threads[0].clone() });
    });
    assert!(told.contains("thread 7 waits for a lock that thread 100 holds"), "{told}");
}

#[test]
fn a_peer_whose_device_asks_for_time_has_not_answered() {
    let mut state = heard::State::default();
    let asked = heard::Asked { to: Ipv4Addr::LOCALHOST.into(), port: 7901, since_ns: 0, requests: 1 };
    state.asked.insert(5, asked);
    let tells = |state: &mut heard::State, event: &CmEvent| {
        state.hear(S, &Event::CmEvent { event, state: None });
        state.connects(S).len()
    };
    let id = CommId(5);
    assert_eq!(tells(&mut state, &CmEvent::MraReceived { id, service_timeout: 20 }), 1);
    assert_eq!(tells(&mut state, &CmEvent::TimewaitExit { id }), 0);
}
