//! The graph of processes that wait for each other, and its root or its circle.
//!
//! It is made of what processes report of themselves ([`ProcessStatus`]), at two times: a wait that has
//! progressed in between does not hang.

use std::net::IpAddr;

use super::verdicts::verdicts;
use super::words::{self, counted};
use pumice_model::addresses::multicast::MulticastGroups;
use pumice_model::inspect::{
    InspectedObjects, MAX_GROUPS, PeerView, ProcessStatus, ProcessWait, QpView, ThreadActivityView,
    ThreadView, WaitGraph, WaitReason, WaitsView,
};

/// Returns the graph of these processes, whose earlier reports are `before`.
pub fn graph(before: &[ProcessStatus], now: &[ProcessStatus]) -> WaitGraph {
    let looked = ReportPair { before, now };
    let mut waits: Vec<ProcessWait> = (0..now.len()).flat_map(|process| looked.waits_of(process)).collect();
    waits.sort_by_key(|wait| (wait.from, wait.why));
    let verdicts = verdicts(now, &waits);
    WaitGraph { waits, verdicts }
}

struct ReportPair<'a> {
    before: &'a [ProcessStatus],
    now: &'a [ProcessStatus],
}

/// The other end of a queue pair.
enum OtherEnd<'a> {
    /// The other end is a queue pair of this process.
    Is(usize, &'a QpView),
    /// The process exists, and has no such queue pair.
    Missing(usize),
    /// No process has the other end, at an address of which all processes are known.
    Ended,
    /// The other end is at an address whose processes are not known.
    Elsewhere,
    /// The process did not answer.
    Silent(usize),
}

impl<'a> ReportPair<'a> {
    fn waits_of(&self, from: usize) -> Vec<ProcessWait> {
        let Some(own) = self.now.get(from).filter(|own| !own.is_stopped) else { return Vec::new() };
        let Some(objects) = &own.objects else { return Vec::new() };
        let mut waits = Vec::new();
        let none = WaitsView::default();
        let view = objects.waits.as_ref().unwrap_or(&none);
        waits.extend(view.vain.iter().map(|sentence| ProcessWait {
            from,
            to: None,
            why: WaitReason::Told,
            words: format!("waits in vain: {sentence}"),
            qpn: None,
            is_of_message: false,
        }));
        waits.extend(view.connects.iter().map(|connect| self.of_connect(from, connect.to, connect.port)));
        waits.extend(objects.qps.iter().filter_map(|qp| self.of_sends(from, qp)));
        for thread in &view.threads {
            waits.extend(self.of_thread(from, objects, thread));
        }
        if waits.is_empty() {
            waits.extend(words::of_ended_queue_pair(from, objects));
        }
        waits
    }

    /// Reports whether nothing has happened to a queue pair since the earlier report.
    fn is_still(&self, process: usize, qp: &QpView) -> bool {
        let known =
            self.before_of(process).and_then(|objects| objects.qps.iter().find(|other| other.qpn == qp.qpn));
        known.is_some_and(|other| {
            (other.posted, other.ended, other.received) == (qp.posted, qp.ended, qp.received)
        })
    }

    /// Reports whether the peer refuses a message for want of a receive request: now, or since the earlier
    /// report.
    fn is_refused(&self, process: usize, qp: &QpView) -> bool {
        let before = self.before_of(process).into_iter().flat_map(|objects| &objects.qps);
        let known = before.into_iter().find(|other| other.qpn == qp.qpn);
        qp.waits_for_receiver || known.is_some_and(|other| qp.rnr_naks_received > other.rnr_naks_received)
    }

    /// Returns a process's earlier report of its objects.
    fn before_of(&self, process: usize) -> Option<&'a InspectedObjects> {
        let own = self.now.get(process)?;
        let is_own =
            |other: &&ProcessStatus| (&other.host, other.pid, other.index) == (&own.host, own.pid, own.index);
        self.before.iter().find(is_own)?.objects.as_ref()
    }

    fn other_end(&self, from: usize, peer: &PeerView) -> OtherEnd<'a> {
        let Some(own) = self.now.get(from) else { return OtherEnd::Elsewhere };
        let may_be = |one: &ProcessStatus| one.may_be_at(peer.address, &own.host);
        let there = || self.now.iter().enumerate().filter(|(_, one)| may_be(one));
        let has = |one: &'a ProcessStatus| {
            one.objects.as_ref().and_then(|objects| objects.qps.iter().find(|qp| qp.qpn == peer.qpn))
        };
        if let Some((index, qp)) = there().find_map(|(index, one)| Some((index, has(one)?))) {
            return OtherEnd::Is(index, qp);
        }
        let of_index = |one: &ProcessStatus| u32::from(one.index) == peer.qpn >> 16;
        match there().find(|(_, one)| of_index(one)) {
            Some((index, one)) if one.objects.is_none() => OtherEnd::Silent(index),
            Some((index, one)) if one.objects.as_ref().is_some_and(|all| all.qps_left_out() == 0) => {
                OtherEnd::Missing(index)
            }
            Some(_) => OtherEnd::Elsewhere,
            None if peer.address.is_loopback() || own.address == Some(peer.address) => OtherEnd::Ended,
            None => OtherEnd::Elsewhere,
        }
    }

    /// Returns the wait of a request for a connection that has no answer.
    fn of_connect(&self, from: usize, to: IpAddr, port: u16) -> ProcessWait {
        let host = self.now.get(from).map_or("", |own| own.host.as_str());
        let Answer { listener, why, words } = connect_outcome(self.now, host, to, port);
        let words = format!("asks {to} port {port} for a connection: {words}");
        ProcessWait { from, to: listener, why, words, qpn: None, is_of_message: false }
    }

    /// Returns the wait of send requests that do not end.
    fn of_sends(&self, from: usize, qp: &QpView) -> Option<ProcessWait> {
        let outstanding = qp.posted.saturating_sub(qp.ended);
        if outstanding == 0 || !self.is_still(from, qp) || !["RTS", "SQD"].contains(&qp.state.as_str()) {
            return None;
        }
        let peer = qp.peer?;
        let requests = format!("{} of QP {:#08x}", counted(outstanding, "send request"), qp.qpn);
        let (to, why, what) = match qp.state.as_str() {
            "SQD" => (None, WaitReason::Halted, words::DRAINED.to_owned()),
            _ => self.of_peer(from, qp, &peer)?,
        };
        let wait = if outstanding == 1 { "waits" } else { "wait" };
        let words = format!("has {requests} that {wait}: {what}");
        Some(ProcessWait { from, to, why, words, qpn: Some(qp.qpn), is_of_message: false })
    }

    /// Returns why the peer of a queue pair does not end its send requests.
    fn of_peer(
        &self,
        from: usize,
        qp: &QpView,
        peer: &PeerView,
    ) -> Option<(Option<usize>, WaitReason, String)> {
        Some(match self.other_end(from, peer) {
            OtherEnd::Is(index, other) => {
                let process_status = self.now.get(index)?;
                let (name, number) = (words::process(process_status), format!("QP {:#08x}", other.qpn));
                if process_status.is_stopped {
                    (Some(index), WaitReason::Stopped, words::stopped(process_status))
                } else if matches!(other.state.as_str(), "RESET" | "INIT") {
                    let state = &other.state;
                    let text = format!("{number} of {name} is in {state}: it receives from RTR on");
                    (Some(index), WaitReason::NotReady, text)
                } else if other.state == "ERR" {
                    let because =
                        other.last_error.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
                    (Some(index), WaitReason::Failed, format!("{number} of {name} has failed{because}"))
                } else if let Some(text) = words::crossed(qp, other) {
                    (Some(index), WaitReason::WrongNumber, format!("{number} of {name} {text}"))
                } else if has_no_receive(qp, other, self.is_refused(from, qp)) {
                    (Some(index), WaitReason::NoReceive, words::no_receive(process_status, qp, other))
                } else {
                    (Some(index), WaitReason::Acknowledgement, format!("{name} has not acknowledged"))
                }
            }
            OtherEnd::Missing(index) => {
                let process_status = self.now.get(index)?;
                let (why, text) = words::missing_queue_pair(process_status, qp, peer.qpn);
                (Some(index), why, format!("{} {text}", words::process(process_status)))
            }
            OtherEnd::Ended => {
                let text =
                    format!("the process of their peer, QP {:#08x} at {}, has ended", peer.qpn, peer.address);
                (None, WaitReason::Ended, text)
            }
            OtherEnd::Silent(index) => {
                let process_status = self.now.get(index)?;
                let why =
                    if process_status.is_stopped { WaitReason::Stopped } else { WaitReason::Acknowledgement };
                (Some(index), why, words::silent(process_status))
            }
            OtherEnd::Elsewhere if qp.waits_for_receiver => {
                let text = format!("the peer at {} has posted no receive request", peer.address);
                (None, WaitReason::NoReceive, text)
            }
            OtherEnd::Elsewhere => (
                None,
                WaitReason::Acknowledgement,
                format!("the peer at {} has not acknowledged", peer.address),
            ),
        })
    }

    /// Returns the waits of a thread.
    fn of_thread(&self, from: usize, objects: &InspectedObjects, thread: &ThreadView) -> Vec<ProcessWait> {
        let (cqs, does) = match &thread.doing {
            ThreadActivityView::Polls { cqs } => (cqs, "polls"),
            ThreadActivityView::SleepsOn { cqs } => (cqs, "sleeps on"),
            _ => return words::of_thread(from, objects, thread),
        };
        if let Some(wait) = words::of_failed_queue(from, objects, cqs, does) {
            return vec![wait];
        }
        let takes = |qp: &&QpView| {
            // The receive request that is in use does not count as posted.
            let is_lost = qp.service == "UD" && qp.received == 0 && qp.dropped > 0;
            let receives = !["RESET", "INIT", "ERR"].contains(&qp.state.as_str());
            is_lost || (qp.receives_posted != Some(0) && receives)
        };
        let receives = |qp: &&QpView| qp.recv_cq.is_some_and(|cq| cqs.contains(&cq)) && takes(qp);
        let mut waits: Vec<ProcessWait> = objects
            .qps
            .iter()
            .filter(receives)
            .filter(|qp| self.is_still(from, qp))
            .filter_map(|qp| self.of_receive(from, qp, thread))
            .collect();
        let by_xrc = words::has_receives_of_xrc(objects, cqs);
        if by_xrc {
            let targets = objects.qps.iter().filter(|qp| qp.service == "XRC_RECV" && takes(qp));
            let targets = targets.filter(|qp| self.is_still(from, qp));
            waits.extend(targets.filter_map(|qp| self.of_receive(from, qp, thread)));
        }
        // A message of one peer is enough.
        if waits.iter().any(|wait| wait.why == WaitReason::Message) {
            waits.retain(|wait| wait.why == WaitReason::Message);
        }
        let sends = |qp: &QpView| {
            qp.send_cq.is_some_and(|cq| cqs.contains(&cq))
                && qp.posted.saturating_sub(qp.ended) > qp.unsignaled
        };
        let may_complete = objects.qps_left_out() > 0
            || by_xrc
            || objects.qps.iter().any(|qp| receives(&qp) || sends(qp))
            || objects.cqs.iter().any(|cq| cqs.contains(&cq.number) && cq.filled > 0);
        if waits.is_empty() && !may_complete && !cqs.is_empty() {
            let mut why = words::nothing_completes(cqs, objects);
            why.extend(words::held_up(objects, thread.thread));
            // Nothing of the process can complete that would wake another thread, which might post.
            let is_over = objects
                .qps
                .iter()
                .all(|qp| !takes(&qp) && qp.posted <= qp.ended.saturating_add(qp.unsignaled))
                && objects.qps.iter().any(|qp| qp.unsignaled > 0)
                && objects.waits.as_ref().is_some_and(WaitsView::is_closed);
            waits.push(ProcessWait {
                from,
                to: None,
                why: WaitReason::Nothing,
                words: format!("{does} {why} (thread {})", thread.thread),
                qpn: None,
                is_of_message: !is_over,
            });
        }
        waits
    }

    /// Returns the wait of a receive request for a message.
    fn of_receive(&self, from: usize, qp: &QpView, thread: &ThreadView) -> Option<ProcessWait> {
        let Some(peer) = qp.peer else { return self.of_datagrams(from, qp, thread) };
        let message =
            |of: &str| format!("waits at QP {:#08x} (thread {}) for a message{of}", qp.qpn, thread.thread);
        let (to, why, words) = match self.other_end(from, &peer) {
            OtherEnd::Is(index, other) => {
                let process_status = self.now.get(index)?;
                let name = words::process(process_status);
                let of = format!(" of {name}");
                if process_status.is_stopped {
                    (
                        Some(index),
                        WaitReason::Stopped,
                        format!("{}: {}", message(&of), words::stopped(process_status)),
                    )
                } else if other.state == "ERR" {
                    let because =
                        other.last_error.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
                    let text = format!("{}, whose QP {:#08x} has failed{because}", message(&of), other.qpn);
                    (Some(index), WaitReason::Failed, text)
                } else if let Some(text) = words::crossed(qp, other) {
                    let text = format!("{}, whose QP {:#08x} {text}", message(&of), other.qpn);
                    (Some(index), WaitReason::WrongNumber, text)
                } else {
                    (Some(index), WaitReason::Message, message(&of))
                }
            }
            OtherEnd::Missing(index) => {
                let process_status = self.now.get(index)?;
                let (why, text) = words::missing_queue_pair(process_status, qp, peer.qpn);
                let of = message(&format!(" of {}", words::process(process_status)));
                (Some(index), why, format!("{of}, which {text}"))
            }
            OtherEnd::Ended => {
                let of = format!(" of the process at {} that had QP {:#08x}", peer.address, peer.qpn);
                (None, WaitReason::Ended, format!("{}, which has ended", message(&of)))
            }
            OtherEnd::Silent(index) => {
                let process_status = self.now.get(index)?;
                let why = if process_status.is_stopped { WaitReason::Stopped } else { WaitReason::Message };
                let of = format!(" of {}", words::process(process_status));
                (Some(index), why, format!("{}: {}", message(&of), words::silent(process_status)))
            }
            OtherEnd::Elsewhere => {
                (None, WaitReason::Message, message(&format!(" of the peer at {}", peer.address)))
            }
        };
        Some(ProcessWait { from, to, why, words, qpn: Some(qp.qpn), is_of_message: true })
    }
}

impl ReportPair<'_> {
    /// Returns the wait of a receive request for a datagram, of which none ever came, if the reason is known.
    fn of_datagrams(&self, from: usize, qp: &QpView, thread: &ThreadView) -> Option<ProcessWait> {
        if qp.service != "UD" || qp.received > 0 {
            return None;
        }
        let all = || self.now.iter().flat_map(|one| one.objects.iter().flat_map(|objects| &objects.qps));
        let is_heard = |group: &IpAddr| {
            all().any(|other| other.groups.contains(group) || other.groups.len() >= MAX_GROUPS)
        };
        let is_lost = |group: &IpAddr| !is_heard(group) || MulticastGroups::stays_on_host(*group);
        let group = all().filter_map(|other| other.group).find(is_lost);
        let why = match (&qp.last_error, group) {
            (Some(why), _) if qp.dropped > 0 => {
                format!("{} came, and the last one was lost: it {why}", counted(qp.dropped, "datagram"))
            }
            (_, Some(group)) => {
                let of_user =
                    if is_heard(&group) { "" } else { ", and no queue pair of this user is attached to it" };
                format!(
                    "datagrams go to the group {group}{of_user}: {}",
                    MulticastGroups::explain_undelivered(group)
                )
            }
            _ => return None,
        };
        let words = format!("waits at QP {:#08x} (thread {}) for a datagram: {why}", qp.qpn, thread.thread);
        Some(ProcessWait {
            from,
            to: None,
            why: WaitReason::Lost,
            words,
            qpn: Some(qp.qpn),
            is_of_message: true,
        })
    }
}

/// Reports whether the other end has no receive for a message. `is_refused` says that the peer refuses the
/// message now.
fn has_no_receive(qp: &QpView, other: &QpView, is_refused: bool) -> bool {
    let was_refused = is_refused || qp.rnr_naks_received > 0;
    was_refused && other.receives_posted == Some(0) || (is_refused && other.receives_posted.is_none())
}

/// The outcome of a request for a connection.
pub(super) struct Answer {
    /// Process that listens.
    pub(super) listener: Option<usize>,
    pub(super) why: WaitReason,
    pub(super) words: String,
}

/// Returns why a request of this host for a connection to this port has no answer.
pub(super) fn connect_outcome(all: &[ProcessStatus], host: &str, to: IpAddr, port: u16) -> Answer {
    let listeners = all.iter().enumerate().flat_map(|(index, one)| {
        let listens = one.objects.iter().flat_map(|objects| &objects.listens);
        listens.map(move |listen| (index, one, listen))
    });
    let mut serving = listeners.filter(|(_, one, listen)| {
        let is_there = listen.address.is_none_or(|address| address == to);
        listen.port == port && is_there && one.may_be_at(to, host)
    });
    if let Some((index, other, listen)) = serving.next() {
        let name = words::process(other);
        let (why, words) = match listen.unread {
            _ if other.is_stopped => {
                (WaitReason::Stopped, format!("{name} listens there; {}", words::stopped(other)))
            }
            0 => (
                WaitReason::Answer,
                format!(
                    "{name} listens there, and has not answered: it has to call rdma_accept or rdma_reject"
                ),
            ),
            unread => (
                WaitReason::Unread,
                format!(
                    "{name} listens there, and its program has not read {} (CONNECT_REQUEST): it has to call \
                     rdma_get_cm_event",
                    counted(unread.into(), "event")
                ),
            ),
        };
        return Answer { listener: Some(index), why, words };
    }
    let is_here = to.is_loopback() || all.iter().any(|one| one.address == Some(to));
    let words = if is_here {
        format!("no program of this user listens there{}", listening(all))
    } else {
        format!(
            "no program listens there, or the listener's program has not read its event (CONNECT_REQUEST){}",
            listening(all)
        )
    };
    Answer { listener: None, why: WaitReason::NobodyListens, words }
}

/// Returns the listeners that exist, as in "; listeners of this user: 127.0.0.1 port 7 (process 3, server)".
fn listening(all: &[ProcessStatus]) -> String {
    let of = |one: &ProcessStatus| {
        let listens = one.objects.iter().flat_map(|objects| &objects.listens);
        let text = listens.map(|listen| words::listener(listen.address.or(one.address), listen.port, one));
        text.collect::<Vec<_>>()
    };
    words::listeners(all.iter().flat_map(of).collect())
}
