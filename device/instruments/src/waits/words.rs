//! Words of sentences about waits.

use std::net::IpAddr;

use pumice_events::inspect::{AwaitedThread, DoingView, PeerView, QpView, Standing, Why};

/// Listeners that a sentence names.
const MOST_LISTENERS: usize = 6;

/// As in "1 event" and "2 events".
pub(super) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// As in "process 12 (server)" and "process 12 (server) on host a".
pub(super) fn process(one: &Standing) -> String {
    let program = if one.program.is_empty() { String::new() } else { format!(" ({})", one.program) };
    let host = if one.host.is_empty() { String::new() } else { format!(" on {}", one.host) };
    format!("process {}{program}{host}", one.pid)
}

pub(super) fn stopped(one: &Standing) -> String {
    format!("{} is stopped; `kill -CONT {}` lets it go on", process(one), one.pid)
}

/// Of a process that did not answer.
pub(super) fn silent(one: &Standing) -> String {
    if one.is_stopped { stopped(one) } else { format!("{} does not answer", process(one)) }
}

/// Of a process that waits for nothing of this device: what its threads do.
pub(super) fn at_rest(one: &Standing) -> String {
    let name = process(one);
    if one.is_stopped {
        return stopped(one);
    }
    let Some(objects) = &one.objects else { return format!("{name} does not answer") };
    let threads = objects.waits.iter().flat_map(|view| &view.threads);
    let does = threads.filter_map(|thread| {
        let does = match &thread.doing {
            DoingView::Calls { call, awaits } => format!("is in {call}{}", until(*awaits)),
            DoingView::Runs => "computes".to_owned(),
            DoingView::SleepsForConnections { .. } => "waits for events of connections".to_owned(),
            DoingView::SleepsForDevice => "waits for events of the device".to_owned(),
            DoingView::Polls { .. } | DoingView::SleepsOn { .. } | DoingView::Acknowledges { .. } => {
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

/// What goes on after the name of a system call, of the thread that it waits for.
pub fn until(thread: Option<AwaitedThread>) -> String {
    match thread {
        None => String::new(),
        Some(AwaitedThread::Lock { thread }) => format!(", for a lock that thread {thread} holds"),
        Some(AwaitedThread::End { thread }) => format!(", until thread {thread} ends"),
    }
}

/// What goes on after the name of the process that has no queue pair of the number of a queue pair's peer.
pub(super) fn gone(one: &Standing, qp: &QpView, number: u32) -> (Why, String) {
    let has_answered = qp.received > 0 || (qp.ended > 0 && qp.service != "UC");
    if has_answered {
        return (Why::Destroyed, format!("has destroyed QP {number:#08x}"));
    }
    let all = one.objects.iter().flat_map(|objects| &objects.qps);
    match all.into_iter().find(|other| other.peer.is_some_and(|peer| peer.qpn == qp.qpn)) {
        Some(other) => {
            let own = other.qpn;
            let said = format!(
                "has no QP {number:#08x}, and its QP {own:#08x} is connected to this one: dest_qp_num has to \
                 be {own:#x} here, and is {number:#x}"
            );
            (Why::WrongNumber, said)
        }
        None => (
            Why::Destroyed,
            format!("has no QP {number:#08x}: it was destroyed, or dest_qp_num is wrong here"),
        ),
    }
}

/// What goes on after the name of the other end, if that is connected to another queue pair.
pub(super) fn crossed(qp: &QpView, other: &QpView) -> Option<String> {
    let is_connected = |one: &QpView| ["RC", "UC"].contains(&one.service.as_str());
    let peer = other.peer.filter(|peer| peer.qpn != qp.qpn && is_connected(qp) && is_connected(other))?;
    let (own, theirs) = (qp.qpn, peer.qpn);
    Some(format!(
        "is connected to QP {theirs:#08x}, and not to QP {own:#08x}: dest_qp_num is wrong at one end"
    ))
}

/// Of the other end's process, which has no receive request for a message: where it has some.
pub(super) fn no_receive(one: &Standing, qp: &QpView, other: &QpView) -> String {
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

/// As in "a, b and c".
pub(super) fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// As in "127.0.0.1 port 7 (process 3, server)".
pub(super) fn listener(address: Option<IpAddr>, port: u16, one: &Standing) -> String {
    let at = address.map_or_else(|| "all addresses".to_owned(), |address| address.to_string());
    let program = if one.program.is_empty() { String::new() } else { format!(", {}", one.program) };
    format!("{at} port {port} (process {}{program})", one.pid)
}

/// What goes on after "no program listens".
pub(super) fn listeners(all: Vec<String>) -> String {
    let more = all.len().saturating_sub(MOST_LISTENERS);
    let named: Vec<String> = all.into_iter().take(MOST_LISTENERS).collect();
    match (named.as_slice(), more) {
        ([], _) => "; no program of this user listens on this host".to_owned(),
        (some, 0) => format!("; programs of this user listen at {}", list(some)),
        (some, more) => format!("; programs of this user listen at {}, and {more} more", some.join(", ")),
    }
}

/// "completion queue 3, in which nothing can complete: …".
pub(super) fn nothing_completes(cqs: &[u32], qps: &[QpView]) -> String {
    let unsignaled = qps
        .iter()
        .filter(|qp| qp.send_cq.is_some_and(|cq| cqs.contains(&cq)))
        .fold(0_u64, |sum, qp| sum.saturating_add(qp.unsignaled));
    let numbers: Vec<String> = cqs.iter().map(u32::to_string).collect();
    let queues = if cqs.len() == 1 { "completion queue" } else { "completion queues" };
    let why = match unsignaled {
        0 => "nothing is outstanding: no request is posted that completes there".to_owned(),
        count => format!(
            "all send requests since the last completion, {count}, are unsignaled, which complete without a \
             word; set IBV_SEND_SIGNALED on the last one"
        ),
    };
    format!("{queues} {}, in which nothing can complete: {why}", list(&numbers))
}
