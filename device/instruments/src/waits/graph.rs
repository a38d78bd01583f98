//! Who waits for whom: a graph of processes, and its root or its circle.
//!
//! It is made of what processes say of themselves ([`Standing`]), looked at twice: what has moved in between
//! does not hang.

use std::net::IpAddr;

use super::own;
use super::verdicts::verdicts;
use super::words::{self, counted};
use pumice_events::inspect::{
    Collected, DoingView, Graph, MAX_GROUPS, PeerView, QpView, Standing, ThreadView, Wait, WaitsView, Why,
};

/// The graph of these processes, which were looked at `before`, too.
pub fn graph(before: &[Standing], now: &[Standing]) -> Graph {
    let looked = Looked { before, now };
    let mut waits: Vec<Wait> = (0..now.len()).flat_map(|process| looked.waits_of(process)).collect();
    waits.sort_by_key(|wait| (wait.from, wait.why));
    let verdicts = verdicts(now, &waits);
    Graph { waits, verdicts }
}

struct Looked<'a> {
    before: &'a [Standing],
    now: &'a [Standing],
}

/// The other end of a queue pair.
enum OtherEnd<'a> {
    /// It is a queue pair of this process.
    Is(usize, &'a QpView),
    /// The process is there, and has no such queue pair.
    Gone(usize),
    /// No process has it at an address of which all processes are known.
    Ended,
    /// It is at an address of which nothing is known.
    Elsewhere,
    /// The process did not answer.
    Silent(usize),
}

impl<'a> Looked<'a> {
    fn waits_of(&self, from: usize) -> Vec<Wait> {
        let Some(own) = self.now.get(from).filter(|own| !own.is_stopped) else { return Vec::new() };
        let Some(objects) = &own.objects else { return Vec::new() };
        let mut waits = Vec::new();
        let none = WaitsView::default();
        let view = objects.waits.as_ref().unwrap_or(&none);
        waits.extend(view.vain.iter().map(|sentence| Wait {
            from,
            to: None,
            why: Why::Told,
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
            waits.extend(own::of_ended_queue_pair(from, objects));
        }
        waits
    }

    /// Whether nothing has happened to a queue pair since the look before.
    fn is_still(&self, process: usize, qp: &QpView) -> bool {
        let known =
            self.before_of(process).and_then(|objects| objects.qps.iter().find(|other| other.qpn == qp.qpn));
        known.is_some_and(|other| {
            (other.posted, other.ended, other.received) == (qp.posted, qp.ended, qp.received)
        })
    }

    /// Whether the peer refuses a message for want of a receive request: now, or since the look before.
    fn is_refused(&self, process: usize, qp: &QpView) -> bool {
        let before = self.before_of(process).into_iter().flat_map(|objects| &objects.qps);
        let known = before.into_iter().find(|other| other.qpn == qp.qpn);
        qp.waits_for_receiver || known.is_some_and(|other| qp.rnr_naks_received > other.rnr_naks_received)
    }

    /// What a process said of its objects at the look before.
    fn before_of(&self, process: usize) -> Option<&'a Collected> {
        let own = self.now.get(process)?;
        let is_own =
            |other: &&Standing| (&other.host, other.pid, other.index) == (&own.host, own.pid, own.index);
        self.before.iter().find(is_own)?.objects.as_ref()
    }

    fn other_end(&self, from: usize, peer: &PeerView) -> OtherEnd<'a> {
        let Some(own) = self.now.get(from) else { return OtherEnd::Elsewhere };
        let may_be = |one: &Standing| one.may_be_at(peer.address, &own.host);
        let there = || self.now.iter().enumerate().filter(|(_, one)| may_be(one));
        let has = |one: &'a Standing| {
            one.objects.as_ref().and_then(|objects| objects.qps.iter().find(|qp| qp.qpn == peer.qpn))
        };
        if let Some((index, qp)) = there().find_map(|(index, one)| Some((index, has(one)?))) {
            return OtherEnd::Is(index, qp);
        }
        let of_index = |one: &Standing| u32::from(one.index) == peer.qpn >> 16;
        match there().find(|(_, one)| of_index(one)) {
            Some((index, one)) if one.objects.is_none() => OtherEnd::Silent(index),
            Some((index, one)) if one.objects.as_ref().is_some_and(|all| all.qps_left_out() == 0) => {
                OtherEnd::Gone(index)
            }
            Some(_) => OtherEnd::Elsewhere,
            None if peer.address.is_loopback() || own.address == Some(peer.address) => OtherEnd::Ended,
            None => OtherEnd::Elsewhere,
        }
    }

    /// A request for a connection that has no answer.
    fn of_connect(&self, from: usize, to: IpAddr, port: u16) -> Wait {
        let host = self.now.get(from).map_or("", |own| own.host.as_str());
        let Answer { listener, why, words } = answer_of(self.now, host, to, port);
        let words = format!("asks {to} port {port} for a connection: {words}");
        Wait { from, to: listener, why, words, qpn: None, is_of_message: false }
    }

    /// Send requests that do not end.
    fn of_sends(&self, from: usize, qp: &QpView) -> Option<Wait> {
        let outstanding = qp.posted.saturating_sub(qp.ended);
        if outstanding == 0 || !self.is_still(from, qp) || !["RTS", "SQD"].contains(&qp.state.as_str()) {
            return None;
        }
        let peer = qp.peer?;
        let requests = format!("{} of QP {:#08x}", counted(outstanding, "send request"), qp.qpn);
        let (to, why, what) = match qp.state.as_str() {
            "SQD" => (None, Why::Halted, own::DRAINED.to_owned()),
            _ => self.of_peer(from, qp, &peer)?,
        };
        let wait = if outstanding == 1 { "waits" } else { "wait" };
        let words = format!("has {requests} that {wait}: {what}");
        Some(Wait { from, to, why, words, qpn: Some(qp.qpn), is_of_message: false })
    }

    /// Why the peer of a queue pair does not end its send requests.
    fn of_peer(&self, from: usize, qp: &QpView, peer: &PeerView) -> Option<(Option<usize>, Why, String)> {
        Some(match self.other_end(from, peer) {
            OtherEnd::Is(index, other) => {
                let standing = self.now.get(index)?;
                let (name, number) = (words::process(standing), format!("QP {:#08x}", other.qpn));
                if standing.is_stopped {
                    (Some(index), Why::Stopped, words::stopped(standing))
                } else if matches!(other.state.as_str(), "RESET" | "INIT") {
                    let state = &other.state;
                    let said = format!("{number} of {name} is in {state}: it receives from RTR on");
                    (Some(index), Why::NotReady, said)
                } else if other.state == "ERR" {
                    let because =
                        other.last_error.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
                    (Some(index), Why::Failed, format!("{number} of {name} has failed{because}"))
                } else if let Some(said) = words::crossed(qp, other) {
                    (Some(index), Why::WrongNumber, format!("{number} of {name} {said}"))
                } else if has_no_receive(qp, other, self.is_refused(from, qp)) {
                    (Some(index), Why::NoReceive, words::no_receive(standing, qp, other))
                } else {
                    (Some(index), Why::Acknowledgement, format!("{name} has not acknowledged"))
                }
            }
            OtherEnd::Gone(index) => {
                let standing = self.now.get(index)?;
                let (why, said) = words::gone(standing, qp, peer.qpn);
                (Some(index), why, format!("{} {said}", words::process(standing)))
            }
            OtherEnd::Ended => {
                let said =
                    format!("the process of their peer, QP {:#08x} at {}, has ended", peer.qpn, peer.address);
                (None, Why::Ended, said)
            }
            OtherEnd::Silent(index) => {
                let standing = self.now.get(index)?;
                let why = if standing.is_stopped { Why::Stopped } else { Why::Acknowledgement };
                (Some(index), why, words::silent(standing))
            }
            OtherEnd::Elsewhere if qp.waits_for_receiver => {
                let said = format!("the peer at {} has posted no receive request", peer.address);
                (None, Why::NoReceive, said)
            }
            OtherEnd::Elsewhere => {
                (None, Why::Acknowledgement, format!("the peer at {} has not acknowledged", peer.address))
            }
        })
    }

    /// What a thread waits for.
    fn of_thread(&self, from: usize, objects: &Collected, thread: &ThreadView) -> Vec<Wait> {
        let (cqs, does) = match &thread.doing {
            DoingView::Polls { cqs } => (cqs, "polls"),
            DoingView::SleepsOn { cqs } => (cqs, "sleeps on"),
            _ => return own::of_thread(from, objects, thread),
        };
        if let Some(wait) = own::of_failed_queue(from, objects, cqs, does) {
            return vec![wait];
        }
        let takes = |qp: &&QpView| {
            // The one that is in use does not count as posted.
            let is_lost = qp.service == "UD" && qp.received == 0 && qp.dropped > 0;
            let receives = !["RESET", "INIT", "ERR"].contains(&qp.state.as_str());
            is_lost || (qp.receives_posted != Some(0) && receives)
        };
        let receives = |qp: &&QpView| qp.recv_cq.is_some_and(|cq| cqs.contains(&cq)) && takes(qp);
        let mut waits: Vec<Wait> = objects
            .qps
            .iter()
            .filter(receives)
            .filter(|qp| self.is_still(from, qp))
            .filter_map(|qp| self.of_receive(from, qp, thread))
            .collect();
        let by_xrc = own::has_receives_of_xrc(objects, cqs);
        if by_xrc {
            let targets = objects.qps.iter().filter(|qp| qp.service == "XRC_RECV" && takes(qp));
            let targets = targets.filter(|qp| self.is_still(from, qp));
            waits.extend(targets.filter_map(|qp| self.of_receive(from, qp, thread)));
        }
        // A message of one peer is enough.
        if waits.iter().any(|wait| wait.why == Why::Message) {
            waits.retain(|wait| wait.why == Why::Message);
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
            let mut why = words::nothing_completes(cqs, &objects.qps);
            why.extend(own::held_up(objects, thread.thread));
            // Nothing of the process can complete that would wake another thread, which might post.
            let is_over = objects
                .qps
                .iter()
                .all(|qp| !takes(&qp) && qp.posted <= qp.ended.saturating_add(qp.unsignaled))
                && objects.qps.iter().any(|qp| qp.unsignaled > 0)
                && objects.waits.as_ref().is_some_and(WaitsView::is_closed);
            waits.push(Wait {
                from,
                to: None,
                why: Why::Nothing,
                words: format!("{does} {why} (thread {})", thread.thread),
                qpn: None,
                is_of_message: !is_over,
            });
        }
        waits
    }

    /// A receive request that waits for a message.
    fn of_receive(&self, from: usize, qp: &QpView, thread: &ThreadView) -> Option<Wait> {
        let Some(peer) = qp.peer else { return self.of_datagrams(from, qp, thread) };
        let message =
            |of: &str| format!("waits at QP {:#08x} (thread {}) for a message{of}", qp.qpn, thread.thread);
        let (to, why, words) = match self.other_end(from, &peer) {
            OtherEnd::Is(index, other) => {
                let standing = self.now.get(index)?;
                let name = words::process(standing);
                let of = format!(" of {name}");
                if standing.is_stopped {
                    (Some(index), Why::Stopped, format!("{}: {}", message(&of), words::stopped(standing)))
                } else if other.state == "ERR" {
                    let because =
                        other.last_error.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
                    let said = format!("{}, whose QP {:#08x} has failed{because}", message(&of), other.qpn);
                    (Some(index), Why::Failed, said)
                } else if let Some(said) = words::crossed(qp, other) {
                    let said = format!("{}, whose QP {:#08x} {said}", message(&of), other.qpn);
                    (Some(index), Why::WrongNumber, said)
                } else {
                    (Some(index), Why::Message, message(&of))
                }
            }
            OtherEnd::Gone(index) => {
                let standing = self.now.get(index)?;
                let (why, said) = words::gone(standing, qp, peer.qpn);
                let of = message(&format!(" of {}", words::process(standing)));
                (Some(index), why, format!("{of}, which {said}"))
            }
            OtherEnd::Ended => {
                let of = format!(" of the process at {} that had QP {:#08x}", peer.address, peer.qpn);
                (None, Why::Ended, format!("{}, which has ended", message(&of)))
            }
            OtherEnd::Silent(index) => {
                let standing = self.now.get(index)?;
                let why = if standing.is_stopped { Why::Stopped } else { Why::Message };
                let of = format!(" of {}", words::process(standing));
                (Some(index), why, format!("{}: {}", message(&of), words::silent(standing)))
            }
            OtherEnd::Elsewhere => {
                (None, Why::Message, message(&format!(" of the peer at {}", peer.address)))
            }
        };
        Some(Wait { from, to, why, words, qpn: Some(qp.qpn), is_of_message: true })
    }
}

impl Looked<'_> {
    /// A receive request that waits for a datagram, of which none ever came: if the reason is known.
    fn of_datagrams(&self, from: usize, qp: &QpView, thread: &ThreadView) -> Option<Wait> {
        if qp.service != "UD" || qp.received > 0 {
            return None;
        }
        let all = || self.now.iter().flat_map(|one| one.objects.iter().flat_map(|objects| &objects.qps));
        let is_heard = |group: &IpAddr| {
            all().any(|other| other.groups.contains(group) || other.groups.len() >= MAX_GROUPS)
        };
        let group = all().filter_map(|other| other.group).find(|group| !is_heard(group));
        let why = match (&qp.last_error, group) {
            (Some(why), _) if qp.dropped > 0 => {
                format!("{} came, and the last one was lost: it {why}", counted(qp.dropped, "datagram"))
            }
            (_, Some(group)) => format!(
                "datagrams go to the group {group}, and no queue pair of this user is attached to it: is \
                 ibv_attach_mcast missing?"
            ),
            _ => return None,
        };
        let words = format!("waits at QP {:#08x} (thread {}) for a datagram: {why}", qp.qpn, thread.thread);
        Some(Wait { from, to: None, why: Why::Lost, words, qpn: Some(qp.qpn), is_of_message: true })
    }
}

/// `is_refused`: the peer refuses the message now.
fn has_no_receive(qp: &QpView, other: &QpView, is_refused: bool) -> bool {
    let was_refused = is_refused || qp.rnr_naks_received > 0;
    was_refused && other.receives_posted == Some(0) || (is_refused && other.receives_posted.is_none())
}

/// What becomes of a request for a connection.
pub(super) struct Answer {
    /// The process that listens.
    pub(super) listener: Option<usize>,
    pub(super) why: Why,
    pub(super) words: String,
}

/// Why a request of this host for a connection to this port has no answer.
pub(super) fn answer_of(all: &[Standing], host: &str, to: IpAddr, port: u16) -> Answer {
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
                (Why::Stopped, format!("{name} listens there; {}", words::stopped(other)))
            }
            0 => (
                Why::Answer,
                format!(
                    "{name} listens there, and has not answered: it has to call rdma_accept or rdma_reject"
                ),
            ),
            unread => (
                Why::Unread,
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
    Answer { listener: None, why: Why::NobodyListens, words }
}

/// The listeners that there are, as in "; listeners of this user: 127.0.0.1 port 7 (process 3, server)".
fn listening(all: &[Standing]) -> String {
    let of = |one: &Standing| {
        let listens = one.objects.iter().flat_map(|objects| &objects.listens);
        let said = listens.map(|listen| words::listener(listen.address.or(one.address), listen.port, one));
        said.collect::<Vec<_>>()
    };
    words::listeners(all.iter().flat_map(of).collect())
}
