//! Completions: queues that are too small or never polled, send queues that fill, threads that sleep while
//! completions wait, fields that mean nothing.

use pumice_transport::types::{WcStatus, WorkCompletion};

use super::checker::{Checker, Found, counted, related};
use super::kind::{
    COMPLETIONS_NEVER_POLLED, CQ_TOO_SMALL, LOST_WAKEUP, SEND_QUEUE_NEVER_REAPED, WC_FIELD_OF_ERROR,
};
use super::queues::{Armed, Cq, Qp};

/// Looks of a sleeping thread, ten a second, at which nothing has happened to a queue, before it is told.
const LOOKS_AT_REST: u32 = 10;

/// As in "2 completions wait".
pub(super) fn waiting(count: u64) -> String {
    format!("{} {}", counted(count, "completion"), if count == 1 { "waits" } else { "wait" })
}

/// A completion queue that the program has made.
#[derive(Debug, Clone, Copy)]
pub struct CqMade {
    /// Of the program's pointer.
    pub address: u64,
    /// By which events name it.
    pub handle: u32,
    /// Completions that it has room for.
    pub depth: u32,
    /// Address of its channel; 0 if it has none.
    pub channel: u64,
}

impl Checker {
    /// The program has made a completion queue, of which [`Checker::object_made`] was told.
    pub fn cq_made(&mut self, cq: &CqMade) {
        let Some(object) = self.objects.at(cq.address) else { return };
        let known = Cq {
            name: object.name(),
            address: cq.address,
            depth: cq.depth,
            channel: cq.channel,
            made: object.made.clone(),
            ..Cq::default()
        };
        let handle = self.own.handle(cq.handle);
        self.cq_handles.insert(cq.address, handle);
        self.cqs.insert(handle, known);
    }

    /// The program has changed the depth of a completion queue.
    pub fn cq_resized(&mut self, handle: u32, depth: u32) {
        if let Some(cq) = self.cqs.get_mut(&self.own.handle(handle)) {
            cq.depth = depth;
        }
    }

    /// The program destroyed a completion queue.
    pub fn cq_destroyed(&mut self, handle: u32) {
        if let Some(cq) = self.cqs.remove(&self.own.handle(handle)) {
            self.cq_handles.remove(&cq.address);
            self.tell_never_polled(&cq);
        }
    }

    /// The program polls, whether there is something or not.
    pub fn cq_polled(&mut self, address: u64) {
        let Some(handle) = self.cq_handles.get(&address).copied() else { return };
        if let Some(cq) = self.cqs.get_mut(&handle) {
            cq.polls = cq.polls.saturating_add(1);
            (cq.armed_over, cq.fired_late) = (0, 0);
            cq.stir();
            let taken = std::mem::take(&mut cq.taken);
            let waiting = cq.unpolled;
            self.look_at_poll(handle, taken, waiting);
        }
    }

    /// The program arms a completion queue.
    pub fn cq_armed(&mut self, handle: u32, solicited_only: bool) {
        let armed_at = self.here();
        let Some(cq) = self.cqs.get_mut(&handle) else { return };
        cq.stir();
        cq.armed_at = armed_at;
        (cq.armed_over, cq.fired_late) = (cq.unpolled, 0);
        if !solicited_only {
            (cq.armed, cq.was_armed) = (Armed::Any, true);
        } else if cq.armed == Armed::No {
            (cq.armed, cq.was_armed) = (Armed::Solicited, false);
        }
    }

    pub(super) fn send_posted(&mut self, number: u32, signaled: bool) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        self.posts.requests = self.posts.requests.saturating_add(1);
        qp.sends = qp.sends.saturating_add(1);
        qp.posted = qp.posted.saturating_add(1);
        if signaled {
            qp.signaled = qp.signaled.saturating_add(1);
            qp.posted_signaled = qp.posted_signaled.saturating_add(1);
            let cq = qp.send_cq;
            self.expect(cq);
        }
    }

    pub(super) fn receive_posted(&mut self, number: u32) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        qp.receives = qp.receives.saturating_add(1);
        let cq = qp.recv_cq;
        self.expect(cq);
        self.receive_was_late(number);
    }

    /// A request was posted that will complete on this queue.
    fn expect(&mut self, handle: u32) {
        let Some(cq) = self.cqs.get_mut(&handle) else { return };
        cq.expected = cq.expected.saturating_add(1);
        let most = cq.expected.saturating_add(cq.unpolled);
        if most <= u64::from(cq.depth) || std::mem::replace(&mut cq.told_small, true) {
            return;
        }
        let (name, depth, made) = (cq.name.clone(), cq.depth, cq.made.clone());
        let (expected, unpolled) = (cq.expected, cq.unpolled);
        let stack = self.here();
        self.found(
            &CQ_TOO_SMALL,
            Found {
                numbers: format!(
                    "{name} has room for {}; {} will complete on it, and {} in it",
                    counted(depth.into(), "completion"),
                    counted(expected, "posted request"),
                    waiting(unpolled)
                ),
                related: vec![related(format!("{name} was made here"), &made)],
                object: name,
                stack,
            },
        );
    }

    pub(super) fn completed(&mut self, number: u32, handle: u32, completion: &WorkCompletion, released: u32) {
        let mut is_expected = false;
        if let Some(qp) = self.qps.get_mut(&number) {
            if completion.opcode.is_recv() {
                is_expected = qp.receives > 0;
                qp.receives = qp.receives.saturating_sub(1);
                qp.received = qp.received.saturating_add(1);
                qp.receives_unpolled = qp.receives_unpolled.saturating_add(1);
            } else {
                is_expected = qp.signaled > 0;
                qp.signaled = qp.signaled.saturating_sub(1);
                qp.sends = qp.sends.saturating_sub(released.max(1).into());
                qp.sends_unpolled = qp.sends_unpolled.saturating_add(1);
            }
        }
        let Some(cq) = self.cqs.get_mut(&handle) else { return };
        cq.expected = cq.expected.saturating_sub(u64::from(is_expected));
        cq.unpolled = cq.unpolled.saturating_add(1);
        cq.successes = cq.successes.saturating_add(u64::from(completion.status == WcStatus::Success));
        cq.stir();
    }

    pub(super) fn polled(&mut self, handle: u32, completion: &WorkCompletion) {
        if let Some(cq) = self.cqs.get_mut(&handle) {
            cq.unpolled = cq.unpolled.saturating_sub(1);
            cq.polls = cq.polls.saturating_add(1);
            cq.taken = cq.taken.saturating_add(1);
            cq.stir();
        }
        if let Some(qp) = self.qps.get_mut(&completion.qp_num) {
            let unpolled =
                if completion.opcode.is_recv() { &mut qp.receives_unpolled } else { &mut qp.sends_unpolled };
            *unpolled = unpolled.saturating_sub(1);
        }
    }

    /// A queue pair was reset or destroyed: its requests and its completions vanish.
    pub(super) fn forget_requests(&mut self, qp: &mut Qp) {
        for (handle, expected, unpolled) in [
            (qp.send_cq, &mut qp.signaled, &mut qp.sends_unpolled),
            (qp.recv_cq, &mut qp.receives, &mut qp.receives_unpolled),
        ] {
            if let Some(cq) = self.cqs.get_mut(&handle) {
                cq.expected = cq.expected.saturating_sub(*expected);
                cq.unpolled = cq.unpolled.saturating_sub(*unpolled);
                cq.stir();
            }
            (*expected, *unpolled) = (0, 0);
        }
        qp.sends = 0;
    }

    /// A post of send requests was refused because the queue is full.
    pub fn send_queue_is_full(&mut self, number: u32) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let is_hopeless = qp.signaled == 0 && qp.sends_unpolled == 0 && qp.sends > 0;
        if !is_hopeless || std::mem::replace(&mut qp.told_full, true) {
            return;
        }
        let (object, sends, room, made) =
            (qp.name.clone(), qp.sends, qp.capacity.max_send_wr, qp.made.clone());
        let stack = self.here();
        self.found(
            &SEND_QUEUE_NEVER_REAPED,
            Found {
                numbers: format!(
                    "the send queue of {object} has room for {room} requests; {sends} are in it, and none of \
                     them will make a completion"
                ),
                related: vec![related(format!("{object} was made here"), &made)],
                object,
                stack,
            },
        );
    }

    /// A thread has slept in `ibv_get_cq_event` on the channel at this address for a tenth of a second more;
    /// `is_long`: for a second at least.
    pub fn sleeps(&mut self, channel: u64, is_long: bool) {
        let mut stuck = Vec::new();
        let is_waking = self.cqs.values().any(|cq| cq.channel == channel && cq.events_queued > 0);
        for (handle, cq) in self.cqs.iter_mut().filter(|(_, cq)| cq.channel == channel) {
            let is_at_rest = cq.activity == cq.activity_seen;
            cq.looks_at_rest = if is_at_rest { cq.looks_at_rest.saturating_add(1) } else { 0 };
            cq.activity_seen = cq.activity;
            let waits_in_vain = cq.unpolled > 0 && cq.was_armed && cq.armed != Armed::Solicited;
            if is_long && !is_waking && waits_in_vain && cq.looks_at_rest >= LOOKS_AT_REST && !cq.told_asleep
            {
                cq.told_asleep = true;
                stuck.push(*handle);
            }
        }
        for handle in stuck {
            self.tell_asleep(handle);
        }
    }

    fn tell_asleep(&mut self, handle: u32) {
        let stack = self.here();
        let Some(cq) = self.cqs.get(&handle) else { return };
        let (object, count) = (cq.name.clone(), cq.unpolled);
        let state = match cq.armed {
            Armed::No => "it is not armed, so no completion will wake the thread",
            _ => "they came before it was armed, so only a further completion will wake the thread",
        };
        let related = vec![related(format!("{object} was made here"), &cq.made)];
        let numbers = format!("{} in {object}; {state}", waiting(count));
        self.found(&LOST_WAKEUP, Found { object, numbers, stack, related });
    }

    /// The program got an event which the device made at the arming, for completions that were there, and did
    /// not poll since.
    pub(super) fn tell_woken_late(&mut self, handle: u32) {
        let stack = self.here();
        let Some(cq) = self.cqs.get_mut(&handle) else { return };
        let count = std::mem::take(&mut cq.fired_late);
        if std::mem::replace(&mut cq.told_asleep, true) {
            return;
        }
        let object = cq.name.clone();
        let numbers = format!(
            "{} in {object} since before it was armed, and the program sleeps without a poll; this device \
             made an event for them (fires_late), others do not",
            waiting(count)
        );
        let related = vec![
            related("the queue was armed here", &cq.armed_at),
            related(format!("{object} was made here"), &cq.made),
        ];
        self.found(&LOST_WAKEUP, Found { object, numbers, stack, related });
    }

    /// The program reads a field of a failed completion that has no meaning then.
    pub fn field_of_error_read(&mut self, address: u64, field: &str, status: WcStatus) {
        let stack = self.here();
        let Some(object) = self.objects.at(address).map(|object| object.name()) else { return };
        let numbers = format!("the program reads {field} of a completion with status {}", status.name());
        self.found(&WC_FIELD_OF_ERROR, Found { object, numbers, stack, related: Vec::new() });
    }

    pub(super) fn tell_never_polled(&mut self, cq: &Cq) {
        if cq.polls > 0 || cq.successes == 0 {
            return;
        }
        let numbers =
            format!("{} came to {}, and it was never polled", counted(cq.successes, "completion"), cq.name);
        let (object, stack) = (cq.name.clone(), cq.made.clone());
        self.found(&COMPLETIONS_NEVER_POLLED, Found { object, numbers, stack, related: Vec::new() });
    }
}
