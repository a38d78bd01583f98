//! Words of sentences about waits, and waits whose reason is in the process itself.

use std::net::IpAddr;

use pumice_model::inspect::{
    AwaitedThread, InspectedObjects, PeerView, ProcessStatus, ProcessWait, QpView, SrqView,
    ThreadActivityView, ThreadView, WaitReason, WaitsView,
};

/// Number of listeners that a sentence names.
const MAX_LISTENERS: usize = 6;

/// Returns a count with its noun, as in "1 event" and "2 events".
pub(super) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns the name of a process, as in "process 12 (server)" and "process 12 (server) on host a".
pub(super) fn process(one: &ProcessStatus) -> String {
    let program = if one.program.is_empty() { String::new() } else { format!(" ({})", one.program) };
    let host = if one.host.is_empty() { String::new() } else { format!(" on {}", one.host) };
    format!("process {}{program}{host}", one.pid)
}

pub(super) fn stopped(one: &ProcessStatus) -> String {
    format!("{} is stopped; `kill -CONT {}` lets it go on", process(one), one.pid)
}

/// Returns the words about a process that did not answer.
pub(super) fn silent(one: &ProcessStatus) -> String {
    if one.is_stopped { stopped(one) } else { format!("{} does not answer", process(one)) }
}

/// Returns the words about a process that waits for nothing of this device: what its threads do.
pub(super) fn at_rest(one: &ProcessStatus) -> String {
    let name = process(one);
    if one.is_stopped {
        return stopped(one);
    }
    let Some(objects) = &one.objects else { return format!("{name} does not answer") };
    let threads = objects.waits.iter().flat_map(|view| &view.threads);
    let does = threads.filter_map(|thread| {
        let does = match &thread.doing {
            ThreadActivityView::Calls { call, awaits } => format!("is in {call}{}", until(*awaits)),
            ThreadActivityView::Runs => "computes".to_owned(),
            ThreadActivityView::SleepsForConnections { .. } => "waits for events of connections".to_owned(),
            ThreadActivityView::SleepsForDevice => "waits for events of the device".to_owned(),
            ThreadActivityView::Polls { .. }
            | ThreadActivityView::SleepsOn { .. }
            | ThreadActivityView::Acknowledges { .. } => {
                return None;
            }
        };
        Some(format!("thread {} {does}", thread.thread))
    });
    let does: Vec<String> = does.take(4).collect();
    if does.is_empty() {
        format!("{name} waits for no other process")
    } else {
        format!("{name} waits for no other process: its {}", does.join(", "))
    }
}

/// Returns the words behind the name of a system call, about the thread that it waits for.
pub fn until(thread: Option<AwaitedThread>) -> String {
    match thread {
        None => String::new(),
        Some(AwaitedThread::Lock { thread }) => format!(", for a lock that thread {thread} holds"),
        Some(AwaitedThread::End { thread }) => format!(", until thread {thread} ends"),
    }
}

/// Returns the words behind the name of the process that has no queue pair of the number of a queue pair's
/// peer.
pub(super) fn missing_queue_pair(one: &ProcessStatus, qp: &QpView, number: u32) -> (WaitReason, String) {
    let has_answered = qp.received > 0 || (qp.ended > 0 && qp.service != "UC");
    if has_answered {
        return (WaitReason::Destroyed, format!("has destroyed QP {number:#08x}"));
    }
    let all = one.objects.iter().flat_map(|objects| &objects.qps);
    match all.into_iter().find(|other| other.peer.is_some_and(|peer| peer.qpn == qp.qpn)) {
        Some(other) => {
            let own = other.qpn;
            let said = format!(
                "has no QP {number:#08x}, and its QP {own:#08x} is connected to this one: dest_qp_num has to \
                 be {own:#x} here, and is {number:#x}"
            );
            (WaitReason::WrongNumber, said)
        }
        None => (
            WaitReason::Destroyed,
            format!("has no QP {number:#08x}: it was destroyed, or dest_qp_num is wrong here"),
        ),
    }
}

/// Returns the words behind the name of the other end, if that is connected to another queue pair.
pub(super) fn crossed(qp: &QpView, other: &QpView) -> Option<String> {
    let is_connected = |one: &QpView| ["RC", "UC"].contains(&one.service.as_str());
    let peer = other.peer.filter(|peer| peer.qpn != qp.qpn && is_connected(qp) && is_connected(other))?;
    let (own, theirs) = (qp.qpn, peer.qpn);
    Some(format!(
        "is connected to QP {theirs:#08x}, and not to QP {own:#08x}: dest_qp_num is wrong at one end"
    ))
}

/// Returns the words about the other end's process, which has no receive request for a message: where it has
/// some.
pub(super) fn no_receive(one: &ProcessStatus, qp: &QpView, other: &QpView) -> String {
    let (name, naks) = (process(one), counted(qp.rnr_naks_received, "RNR NAK"));
    let (qps, srqs) =
        one.objects.iter().map(|all| (all.qps.as_slice(), all.srqs.as_slice())).next().unwrap_or_default();
    let is_beside = |peer: &PeerView| peer.qpn >> 16 == qp.qpn >> 16;
    if other.service == "XRC_RECV" {
        let more = srqs.iter().find(|srq| srq.xrc && srq.posted > 0);
        let more = more.map(|srq| format!("; its shared receive queue {} has {}", srq.number, srq.posted));
        let more = more.unwrap_or_default();
        return format!(
            "{name} has posted no receive request to the shared receive queue that the message names \
             ({naks}){more}"
        );
    }
    if let Some(srq) = srqs.iter().find(|srq| other.srq == Some(srq.number)) {
        let number = srq.number;
        let limit = if srq.limit == 0 { ", and its limit is not armed" } else { "" };
        return format!(
            "shared receive queue {number} of {name} has no receive request for QP {:#08x} ({naks}){limit}",
            other.qpn
        );
    }
    let has_some = |one: &&QpView| {
        one.receives_posted.is_some_and(|posted| posted > 0) && one.peer.as_ref().is_some_and(is_beside)
    };
    let more = qps
        .iter()
        .find(has_some)
        .map(|one| format!("; its QP {:#08x} has {}", one.qpn, one.receives_posted.unwrap_or_default()));
    format!(
        "{name} has posted no receive request to QP {:#08x} ({naks}){}",
        other.qpn,
        more.unwrap_or_default()
    )
}

/// Joins names, as in "a, b and c".
pub(super) fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Returns the name of a listener, as in "127.0.0.1 port 7 (process 3, server)".
pub(super) fn listener(address: Option<IpAddr>, port: u16, one: &ProcessStatus) -> String {
    let at = address.map_or_else(|| "all addresses".to_owned(), |address| address.to_string());
    let program = if one.program.is_empty() { String::new() } else { format!(", {}", one.program) };
    format!("{at} port {port} (process {}{program})", one.pid)
}

/// Returns the words behind "no program listens".
pub(super) fn listeners(all: Vec<String>) -> String {
    let more = all.len().saturating_sub(MAX_LISTENERS);
    let named: Vec<String> = all.into_iter().take(MAX_LISTENERS).collect();
    match (named.as_slice(), more) {
        ([], _) => "; no program of this user listens on this host".to_owned(),
        (some, 0) => format!("; programs of this user listen at {}", list(some)),
        (some, more) => format!("; programs of this user listen at {}, and {more} more", some.join(", ")),
    }
}

/// Returns the words about queues, as in "completion queue 3, in which nothing can complete: …".
pub(super) fn nothing_completes(cqs: &[u32], objects: &InspectedObjects) -> String {
    let of_these = |qp: &&QpView| qp.send_cq.is_some_and(|cq| cqs.contains(&cq));
    let own = || objects.qps.iter().filter(of_these);
    let unsignaled = own().fold(0_u64, |sum, qp| sum.saturating_add(qp.unsignaled));
    let numbers: Vec<String> = cqs.iter().map(|number| objects.cq_number(*number)).collect();
    let queues = if cqs.len() == 1 { "completion queue" } else { "completion queues" };
    // The error of a queue pair that was reset since is the reason of the wait.
    let dropped = own().find(|qp| qp.state == "RESET" && qp.last_error.is_some());
    let why = match (unsignaled, dropped) {
        (0, Some(QpView { qpn, last_error: Some(why), .. })) => format!("QP {qpn:#08x} {why}"),
        (0, _) => "nothing is outstanding: no request is posted that completes there".to_owned(),
        (1, _) => "the newest send request is unsignaled, which completes without a word; set \
                   IBV_SEND_SIGNALED on it"
            .to_owned(),
        (count, _) => format!(
            "all send requests since the last completion, {count}, are unsignaled, which complete without a \
             word; set IBV_SEND_SIGNALED on the last one"
        ),
    };
    format!("{queues} {}, in which nothing can complete: {why}", list(&numbers))
}

/// Reason why requests of a queue pair in SQD wait.
pub(super) const DRAINED: &str =
    "the queue pair is in SQD, where no request begins: ibv_modify_qp to RTS lets them go on";

fn wait(from: usize, why: WaitReason, words: String) -> ProcessWait {
    ProcessWait { from, to: None, why, words, qpn: None, is_of_message: true }
}

/// Returns the wait of a thread that waits for no completion.
pub(super) fn of_thread(from: usize, objects: &InspectedObjects, thread: &ThreadView) -> Vec<ProcessWait> {
    let number = thread.thread;
    let one = match &thread.doing {
        ThreadActivityView::Acknowledges { call, by, events } => {
            let left = counted(*events, "event");
            let words = format!(
                "waits in {call} (thread {number}) until its program has called {by} for {left} that it \
                 has got"
            );
            Some(wait(from, WaitReason::Unacknowledged, words))
        }
        ThreadActivityView::SleepsForConnections { has_none: true, elsewhere } => {
            let elsewhere = match elsewhere {
                0 => String::new(),
                count => format!(
                    "; {} in the channel of another identifier: read that one, or call rdma_migrate_id",
                    if *count == 1 { "1 event waits".to_owned() } else { format!("{count} events wait") }
                ),
            };
            let words = format!(
                "sleeps in rdma_get_cm_event (thread {number}) on an event channel that no identifier \
                 uses{elsewhere}"
            );
            // A listener of another channel wakes no thread, if there is no other one.
            let is_closed = objects.waits.as_ref().is_some_and(WaitsView::is_closed);
            Some(ProcessWait { is_of_message: !is_closed, ..wait(from, WaitReason::Nothing, words) })
        }
        ThreadActivityView::SleepsForDevice => unarmed_limit(objects).map(|queue| {
            let words = format!(
                "sleeps in ibv_get_async_event (thread {number}), and shared receive queue {queue} is empty, \
                 and its limit is not armed: IBV_EVENT_SRQ_LIMIT_REACHED comes once for each ibv_modify_srq \
                 with IBV_SRQ_LIMIT"
            );
            wait(from, WaitReason::Nothing, words)
        }),
        _ => None,
    };
    one.into_iter().collect()
}

/// Returns a shared receive queue that had no receive for a message, and whose limit raises no event.
fn unarmed_limit(objects: &InspectedObjects) -> Option<u32> {
    let refused = |number: u32| objects.qps.iter().any(|qp| qp.srq == Some(number) && qp.rnr_naks_sent > 0);
    let empty = |srq: &&SrqView| srq.posted == 0 && srq.limit == 0 && refused(srq.number);
    objects.srqs.iter().find(empty).map(|srq| srq.number)
}

/// Returns the wait of a process of which all threads sleep, one for events of the device, and which has
/// brought a queue pair to ERR of which no event comes.
pub(super) fn of_ended_queue_pair(from: usize, objects: &InspectedObjects) -> Option<ProcessWait> {
    let view = objects.waits.as_ref().filter(|view| WaitsView::is_closed(view))?;
    let sleeper = view.threads.iter().find(|thread| thread.doing == ThreadActivityView::SleepsForDevice)?;
    // Otherwise the queue pair has failed, which is reported in another way.
    let is_meant = |why: Option<&str>| why.is_none_or(|why| why.contains("by modify_qp"));
    let is_it = |state: &str, srq: Option<u32>| state == "ERR" && srq.is_none();
    let ended =
        objects.qps.iter().find(|qp| is_it(&qp.state, qp.srq) && is_meant(qp.last_error.as_deref()))?;
    let words = format!(
        "sleeps in ibv_get_async_event (thread {}), and QP {:#08x} is in ERR and has no shared receive \
         queue: IBV_EVENT_QP_LAST_WQE_REACHED comes of queue pairs with one",
        sleeper.thread, ended.qpn
    );
    Some(wait(from, WaitReason::Nothing, words))
}

/// Returns the wait for a completion queue that has failed.
pub(super) fn of_failed_queue(
    from: usize,
    objects: &InspectedObjects,
    cqs: &[u32],
    does: &str,
) -> Option<ProcessWait> {
    let failed = objects.cqs.iter().find(|cq| cq.failed && cqs.contains(&cq.number))?;
    let words = format!(
        "{does} {} of {}, which overran or failed: ibv_poll_cq returns an error, and no \
         completion comes any more",
        objects.cq_name(failed.number),
        if failed.depth == 1 { "1 entry".to_owned() } else { format!("{} entries", failed.depth) }
    );
    Some(ProcessWait { is_of_message: false, ..wait(from, WaitReason::Halted, words) })
}

/// Reports whether a shared receive queue of XRC has receive requests that complete in one of these queues.
pub(super) fn has_receives_of_xrc(objects: &InspectedObjects, cqs: &[u32]) -> bool {
    // A process of an older version does not report where they complete.
    let completes = |cq: Option<u32>| cq.is_none_or(|cq| cqs.contains(&cq));
    objects.srqs.iter().any(|srq| srq.xrc && srq.posted > 0 && completes(srq.cq))
}

/// Returns the end of the sentence about a thread that holds a lock for which another one waits.
pub(super) fn held_up(objects: &InspectedObjects, holder: u32) -> Option<String> {
    let threads = objects.waits.iter().flat_map(|view| &view.threads);
    let lock = AwaitedThread::Lock { thread: holder };
    let waits = |one: &&ThreadView| match one.doing {
        ThreadActivityView::Calls { awaits, .. } => awaits == Some(lock),
        _ => false,
    };
    let held: Vec<u32> = threads.filter(waits).map(|thread| thread.thread).collect();
    let first = held.first()?;
    Some(format!("; thread {first} waits for a lock that thread {holder} holds meanwhile"))
}
