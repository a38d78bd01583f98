//! Words of sentences about waits.

use std::net::IpAddr;

use pumice_events::inspect::{DoingView, QpView, Standing};

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
            DoingView::Calls { call } => format!("is in {call}"),
            DoingView::Runs => "computes".to_owned(),
            DoingView::SleepsForConnections => "waits for events of connections".to_owned(),
            DoingView::Polls { .. } | DoingView::SleepsOn { .. } => return None,
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
