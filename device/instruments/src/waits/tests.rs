//! What is said of waits.

use pumice_events::inspect::Totals;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
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
