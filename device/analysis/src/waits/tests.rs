//! What is said of waits.

use std::net::Ipv4Addr;

use pumice_model::inspect::{
    AwaitedThread, ListenView, ObjectTotals, QpView, ThreadActivityView, ThreadView, WaitsView,
};
use pumice_transport::cm::CmEvent;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::mad::CommId;
use pumice_transport::wire::{Psn, Qpn};

use super::observed::FOR_EVER;
use super::*;

const S: u64 = 1_000_000_000;
const CHANNEL: u64 = 0x1000;

fn queue(number: u32, channel: u64, filled: usize, armed: CqArming) -> CqSnapshot {
    CqSnapshot { number, channel, filled, armed, unread: 0 }
}

fn waiter(doing: ThreadActivity) -> Waiter {
    Waiter { doing, within: None, stack: vec![7] }
}

/// What is said of queues that stay as they are for 3 s, while a thread does this.
fn said(queues: &[CqSnapshot], doing: ThreadActivity, objects: &InspectedObjects) -> Vec<String> {
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
    let queues = [queue(1, 0, 1, CqArming::No), queue(2, 0, 0, CqArming::No)];
    let reported = said(&queues, ThreadActivity::Polls(2), &InspectedObjects::default());
    assert!(reported[0].contains("a completion waits in completion queue 1"), "{reported:?}");
    assert_eq!(said(&queues, ThreadActivity::Polls(1), &InspectedObjects::default()), [""; 0]);
    // Objects that are not in the list may complete there.
    let unknown = ObjectTotals { qps: 1, ..ObjectTotals::default() };
    let objects = InspectedObjects { totals: unknown, ..InspectedObjects::default() };
    assert_eq!(said(&queues, ThreadActivity::Polls(2), &objects), [""; 0]);
}

#[test]
fn a_thread_that_sleeps_is_told_why_nothing_wakes_it() {
    let objects = InspectedObjects::default();
    for (armed, why) in [
        (CqArming::No, "not armed"),
        (CqArming::ForSolicited, "solicited completions only"),
        (CqArming::ForAll, "before it was armed"),
    ] {
        let reported = said(&[queue(1, CHANNEL, 2, armed)], ThreadActivity::SleepsOn(CHANNEL), &objects);
        assert!(reported[0].starts_with("2 completions wait") && reported[0].contains(why), "{reported:?}");
    }
    let queues = [queue(1, CHANNEL, 0, CqArming::ForAll), queue(2, 0, 1, CqArming::No)];
    let reported = said(&queues, ThreadActivity::SleepsOn(CHANNEL), &objects);
    assert!(
        reported[0].contains("completion queue 2") && reported[0].contains("has no channel"),
        "{reported:?}"
    );
    let queues = [queue(1, CHANNEL, 0, CqArming::ForAll)];
    assert_eq!(said(&queues, ThreadActivity::SleepsOn(CHANNEL), &objects), [""; 0], "an idle server");
}

#[test]
fn a_queue_that_changes_is_not_waited_for_in_vain() {
    let waits = Waits::new(2 * S);
    for second in 0..20 {
        let filled = 1 + second as usize % 2;
        assert!(!waits.look(second * S, &[queue(1, 0, filled, CqArming::No)], 0).is_long);
    }
}

#[test]
fn a_judgement_before_its_time_does_not_put_off_the_next() {
    let waits = Waits::new(2 * S);
    let queues = [queue(1, 0, 1, CqArming::No), queue(2, 0, 0, CqArming::No)];
    assert!(!waits.look(S, &[], 0).is_long);
    assert!(waits.look(3 * S, &queues, 0).is_at_rest, "of which a judgement finds nothing");
    assert!(waits.judge(3 * S, &queues, &[], &InspectedObjects::default(), &[]).is_empty());
    assert!(waits.look(5 * S, &queues, 0).is_long);
    let reported =
        waits.judge(5 * S, &queues, &[waiter(ThreadActivity::Polls(2))], &InspectedObjects::default(), &[]);
    assert_eq!(reported.len(), 1);
}

#[test]
fn a_request_that_waits_for_a_receive_for_ever_is_told_while_the_peer_answers() {
    let qp = {
        let qpn = Qpn::new(0x12);
        QpContext {
            qpn,
            pd: 0,
            send_cq: 0,
            recv_cq: 0,
            recv_queue: 0,
            xrcd: 0,
            ordinal: 0,
            out_of_order: false,
        }
    };
    let on_event = |waits: &Waits, at_ns, retries_left| {
        let event = QpEvent::ReceiverNotReady { psn: Psn::new(5), retries_left, wait_ns: S / 10 };
        waits.lock().on_event(at_ns, &Event::Qp { qp: &qp, event: &event });
    };
    let waits = Waits::new(2 * S);
    (0..30).for_each(|tenth| on_event(&waits, tenth * S / 10, FOR_EVER));
    assert!(waits.look(3 * S, &[], 0).is_long);
    let reported = waits.judge(3 * S, &[], &[], &InspectedObjects::default(), &[]);
    assert!(reported[0].sentence.contains("30 RNR NAKs in 3.0 s; rnr_retry 7"), "{reported:?}");
    for (retries_left, now_ns) in [(6, 3 * S), (FOR_EVER, 9 * S)] {
        let waits = Waits::new(2 * S);
        (0..30).for_each(|tenth| on_event(&waits, tenth * S / 10, retries_left));
        assert!(!waits.look(now_ns, &[], 0).is_long, "it has a limit, or has gone on");
    }
}

/// Processes of one address, each with a queue pair that is connected to that of the next one, and with one
/// thread that polls for a message.
fn circle(count: u32) -> Vec<ProcessStatus> {
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
        let polls = ThreadActivityView::Polls { cqs: vec![2] };
        let thread = ThreadView {
            thread: 100 + process,
            name: String::new(),
            doing: polls,
            also: None,
            stack: Vec::new(),
        };
        let waits = WaitsView { looks: 1, threads: vec![thread], ..WaitsView::default() };
        let objects = InspectedObjects {
            totals: ObjectTotals { qps: 1, ..ObjectTotals::default() },
            qps: vec![serde_json::from_value(qp).unwrap()],
            waits: Some(waits),
            ..InspectedObjects::default()
        };
        ProcessStatus {
            pid: 100 + process,
            program: format!("p{process}"),
            address: Some(address),
            index: process as u8 + 1,
            objects: Some(objects),
            ..ProcessStatus::default()
        }
    };
    (0..count).map(of).collect()
}

fn verdicts(all: &[ProcessStatus]) -> Vec<WaitVerdict> {
    graph(all, all).verdicts
}

/// What is changed in the objects of a process.
fn change(one: &mut ProcessStatus, change: impl FnOnce(&mut InspectedObjects)) {
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
        let doing = ThreadActivityView::Calls { call: "read".to_owned(), awaits: None };
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
    let root = |change_last: &dyn Fn(&mut ProcessStatus)| {
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
            objects.waits.as_mut().unwrap().threads[0].doing = ThreadActivityView::Runs;
        });
    });
    assert!(failed.contains("whose QP 0x030007 has failed"), "{failed}");
    let destroyed = root(&|one| {
        change(one, |objects| {
            objects.qps.clear();
            objects.totals.qps = 0;
            objects.waits.as_mut().unwrap().threads[0].doing = ThreadActivityView::Runs;
        });
    });
    assert!(destroyed.contains("which has destroyed QP 0x030007"), "{destroyed}");
    let elsewhere = root(&|one| {
        change(one, |objects| {
            objects.waits.as_mut().unwrap().threads[0].doing =
                ThreadActivityView::Calls { call: "read".to_owned(), awaits: None };
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
            objects.waits.as_mut().unwrap().threads[0].doing = ThreadActivityView::Polls { cqs: vec![1] };
        });
        change(&mut all[1], |objects| {
            (objects.qps[0].state, objects.qps[0].receives_posted) = (state.to_owned(), Some(receives));
            objects.waits.as_mut().unwrap().threads[0].doing = ThreadActivityView::Runs;
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
        objects.waits.as_mut().unwrap().threads[0].doing = ThreadActivityView::Polls { cqs: vec![1] };
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
fn held(change_them: impl FnOnce(&mut QpView, &mut InspectedObjects)) -> String {
    let mut all = circle(2);
    let [sender, peer] = all.as_mut_slice() else { unreachable!() };
    let (own, theirs) = (sender.objects.as_mut().unwrap(), peer.objects.as_mut().unwrap());
    own.qps[0].posted = 4;
    own.waits.as_mut().unwrap().threads[0].doing = ThreadActivityView::Polls { cqs: vec![1] };
    theirs.waits.as_mut().unwrap().threads[0].doing = ThreadActivityView::Runs;
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
fn shared(number: u32, posted: u32, cq: Option<u32>) -> pumice_model::inspect::SrqView {
    let value = serde_json::json!({
        "number": number, "ordinal": 0, "depth": 8, "posted": posted, "limit": 0, "xrc": cq.is_some(),
        "cq": cq,
    });
    serde_json::from_value(value).unwrap()
}

#[test]
fn where_the_peer_has_receive_requests_is_said_if_the_message_has_none() {
    let refused = |change_them: &dyn Fn(&mut InspectedObjects)| {
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
        theirs.waits.as_mut().unwrap().threads[0].doing = ThreadActivityView::SleepsForDevice;
    });
    assert!(empty.contains("shared receive queue 3 of process 101 (p1) has no receive request"), "{empty}");
    assert!(empty.contains("its limit is not armed: IBV_EVENT_SRQ_LIMIT_REACHED comes once"), "{empty}");
    let of_xrc = refused(&|theirs| {
        let qp = &mut theirs.qps[0];
        (qp.service, qp.receives_posted, qp.recv_cq) = ("XRC_RECV".to_owned(), None, None);
        theirs.srqs.push(shared(4, 1, Some(2)));
        theirs.waits.as_mut().unwrap().threads[0].doing = ThreadActivityView::Polls { cqs: vec![2] };
    });
    assert!(of_xrc.contains("its shared receive queue 4 has 1"), "{of_xrc}");
    assert!(!of_xrc.contains("nothing is outstanding"), "{of_xrc}");
}

#[test]
fn threads_that_wait_for_no_completion_are_told_what_they_wait_for() {
    let alone = |doing: ThreadActivityView, change_it: &dyn Fn(&mut InspectedObjects)| {
        let mut all = circle(1);
        change(&mut all[0], |objects| {
            objects.waits.as_mut().unwrap().threads[0].doing = doing;
            change_it(objects);
        });
        verdicts(&all).into_iter().map(|one| (one.sentence, one.is_certain)).next().unwrap_or_default()
    };
    let by = "ibv_ack_cq_events".to_owned();
    let waits = ThreadActivityView::Acknowledges { call: "ibv_destroy_cq".to_owned(), by, events: 1 };
    let (reported, is_certain) = alone(waits, &|_| {});
    assert!(
        is_certain && reported.contains("until its program has called ibv_ack_cq_events for 1 event"),
        "{reported}"
    );
    let (reported, _) =
        alone(ThreadActivityView::SleepsForConnections { has_none: true, elsewhere: 2 }, &|_| {});
    assert!(
        reported.contains("that no identifier uses; 2 events wait in the channel of another"),
        "{reported}"
    );
    let (reported, _) =
        alone(ThreadActivityView::SleepsForDevice, &|objects| objects.qps[0].state = "ERR".to_owned());
    assert!(reported.contains("is in ERR and has no shared receive queue"), "{reported}");
    assert_eq!(alone(ThreadActivityView::SleepsForDevice, &|_| {}).0, "", "it may have events");
    let (reported, _) = alone(ThreadActivityView::Polls { cqs: vec![1] }, &|objects| {
        objects.qps[0].receives_posted = Some(0);
        let threads = &mut objects.waits.as_mut().unwrap().threads;
        let awaits = Some(AwaitedThread::Lock { thread: threads[0].thread });
        let doing = ThreadActivityView::Calls { call: "futex".to_owned(), awaits };
        threads.push(ThreadView { thread: 7, doing, ..threads[0].clone() });
    });
    assert!(reported.contains("thread 7 waits for a lock that thread 100 holds"), "{reported}");
}

#[test]
fn a_peer_whose_device_asks_for_time_has_not_answered() {
    let mut state = observed::ObservedWaits::default();
    let pending_connects =
        observed::PendingConnect { to: Ipv4Addr::LOCALHOST.into(), port: 7901, since_ns: 0, requests: 1 };
    state.pending_connects.insert(5, pending_connects);
    let tells = |state: &mut observed::ObservedWaits, event: &CmEvent| {
        state.on_event(S, &Event::CmEvent { event, state: None });
        state.connects(S).len()
    };
    let id = CommId(5);
    assert_eq!(tells(&mut state, &CmEvent::MraReceived { id, service_timeout: 20 }), 1);
    assert_eq!(tells(&mut state, &CmEvent::TimewaitExit { id }), 0);
}

#[test]
fn a_thread_in_a_system_call_is_told_its_name_and_that_an_event_is_unread() {
    let sleeps = |unread, within: &str| {
        let waits = Waits::new(2 * S);
        let queues = [CqSnapshot { unread, ..queue(1, CHANNEL, 1, CqArming::No) }];
        (0..4).for_each(|second| {
            waits.look(second * S, &queues, second);
        });
        let waiter = Waiter {
            within: Some(within.to_owned()),
            stack: Vec::new(),
            ..waiter(ThreadActivity::SleepsOn(CHANNEL))
        };
        let found = waits.judge(3 * S, &queues, &[waiter], &InspectedObjects::default(), &[]);
        let [vain] = found.as_slice() else { panic!("{found:?}") };
        assert!(vain.is_asleep && !vain.sentence.contains("sleeps in ibv_get_cq_event"), "{vain:?}");
        vain.sentence.clone()
    };
    let said = sleeps(0, "poll");
    assert!(said.contains("sleeps in poll(2) is not woken: the queue is not armed"), "{said}");
    let said = sleeps(1, "epoll_wait");
    assert!(said.contains("epoll_wait(2)") && said.contains("an event waits unread"), "{said}");
    assert!(!said.contains("not armed"), "{said}");
}
