//! Waits in vain: what programs wait for, and the one reason that holds it up.
//!
//! [`Waits`] is sans-IO: it is notified of the device's events, and of completion queues from time to time,
//! and asks for nothing. When something has been waiting for long, its owner finds out what the threads of
//! the program are doing and what other processes report, and [`Waits::judge`] decides which of them wait in
//! vain. [`graph`] does the same for many processes at once.

mod graph;
mod observed;
mod reasons;
#[cfg(test)]
mod tests;
mod verdicts;
mod words;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_model::event::{Event, Subscriber, Topics};
use pumice_model::inspect::{ConnectView, InspectedObjects};

pub use graph::graph;
pub use pumice_model::inspect::{
    CqArming, CqSnapshot, ProcessStatus, ProcessWait, StalledWait, ThreadActivity, WaitGraph, WaitReason,
    WaitTarget, WaitVerdict, Waiter,
};
pub use words::until;

use observed::{ObservedWaits, PATIENCES};
use verdicts::verdict_of;

/// A subscriber of a device that looks for waits in vain.
pub struct WaitsSubscriber(pub Arc<Waits>);

/// The known waits of a device.
#[derive(Debug)]
pub struct Waits {
    patience_ns: u64,
    state: Mutex<ObservedWaits>,
}

/// Result of a look at the waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitsDue {
    /// A wait that was not reported has lasted for long: the threads have to be examined.
    pub is_long: bool,
    /// The device has not progressed for as long: other processes have to be asked as well.
    pub is_at_rest: bool,
}

impl Subscriber for WaitsSubscriber {
    fn topics(&self) -> Topics {
        Topics::RECOVERY | Topics::CM | Topics::OBJECTS | Topics::FAULTS | Topics::LOG
    }

    fn on_event(&self, at_ns: u64, event: &Event<'_>) {
        self.0.lock().on_event(at_ns, event);
    }
}

impl Waits {
    /// Creates the state without any wait. A wait of `patience_ns` and longer is reported.
    pub fn new(patience_ns: u64) -> Waits {
        Waits { patience_ns, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, ObservedWaits> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether something that was not reported has waited for long. `queues` are all completion
    /// queues of the device; `moved` is a number that changes when the device progresses.
    pub fn look(&self, now_ns: u64, queues: &[CqSnapshot], moved: u64) -> WaitsDue {
        let mut state = self.lock();
        state.observe(now_ns, queues);
        if state.rest.observe(now_ns, moved) {
            state.reports.clear();
        }
        let is_at_rest = state.rest.is_due(now_ns, self.patience_ns);
        WaitsDue { is_long: state.is_long(now_ns, self.patience_ns), is_at_rest }
    }

    /// Reports whether nothing can wait: no connection is asked for, no request waits for a receive, and no
    /// completion for a poll.
    pub fn is_idle(&self) -> bool {
        self.lock().is_idle()
    }

    /// Reports whether nothing has moved for the time after which a wait is reported.
    pub fn is_at_rest(&self, now_ns: u64) -> bool {
        self.lock().rest.is_long(now_ns, self.patience_ns)
    }

    /// Returns the waits in vain, once each. `queues` are all completion queues of the device; `waiters`
    /// threads of the program; `objects` the program's objects; `others` the reports of all processes, this
    /// one included.
    pub fn judge(
        &self,
        now_ns: u64,
        queues: &[CqSnapshot],
        waiters: &[Waiter],
        objects: &InspectedObjects,
        others: &[ProcessStatus],
    ) -> Vec<StalledWait> {
        let mut state = self.lock();
        state.observe(now_ns, queues);
        if state.is_long(now_ns, self.patience_ns) {
            // Otherwise another wait may be long in a moment.
            state.again_ns = now_ns.saturating_add(PATIENCES * self.patience_ns);
        }
        let Some(before_ns) = now_ns.checked_sub(self.patience_ns) else { return Vec::new() };
        let mut found = state.unready_peers(now_ns, before_ns, waiters);
        found.extend(waiters.iter().filter_map(|waiter| match waiter.doing {
            ThreadActivity::Polls(number) => {
                state.polls_another(number, before_ns, queues, waiters, waiter, objects)
            }
            ThreadActivity::SleepsOn(channel) => {
                state.sleeps(channel, before_ns, queues, waiters, waiter, objects)
            }
            ThreadActivity::SleepsForConnections | ThreadActivity::Acknowledges => None,
        }));
        if let Some(before_ns) = before_ns.checked_sub(self.patience_ns / 2) {
            found.extend(state.unanswered(now_ns, before_ns, waiters, others));
            found.extend(state.refused(before_ns, waiters));
            found.extend(state.strayed(before_ns, queues, waiters, objects));
        }
        state.take_unreported(found)
    }

    /// Returns what holds this process up, of what was found among all of them: once, and only if it leaves
    /// no doubt. `is_own` recognises this process among `all`; `waiters` are its threads.
    pub fn judge_all(
        &self,
        now_ns: u64,
        is_own: &dyn Fn(&ProcessStatus) -> bool,
        all: &[ProcessStatus],
        graph: &WaitGraph,
        waiters: &[Waiter],
    ) -> Vec<StalledWait> {
        let mut state = self.lock();
        state.rest.judged(now_ns, self.patience_ns);
        if !state.reports.is_empty() {
            // One reason is enough.
            return Vec::new();
        }
        let own = all.iter().position(is_own).and_then(|own| verdict_of(graph, all, own));
        // A reason that the process knows itself was reported.
        let was_reported =
            |qpn: Option<u32>| qpn.is_some_and(|qpn| state.reported.contains(&WaitTarget::Request(qpn)));
        let is_news = |first: &ProcessWait| !first.why.is_known() && !was_reported(first.qpn);
        let Some((first, verdict)) = own.filter(|(first, one)| one.is_certain && is_news(first)) else {
            return Vec::new();
        };
        // A thread that waits for completions, if there is one.
        let first_of = |is_it: fn(&Waiter) -> bool| waiters.iter().find(|waiter| is_it(waiter));
        let waiter = first_of(|one| one.doing != ThreadActivity::SleepsForConnections).or(waiters.first());
        let stack = waiter.map(|waiter| waiter.stack.clone()).unwrap_or_default();
        let about = WaitTarget::Others(first.qpn.unwrap_or_default());
        state.take_unreported(vec![StalledWait {
            about,
            sentence: verdict.sentence,
            stack,
            is_asleep: false,
        }])
    }

    /// Returns the reports that still hold, as far as is known: nothing has moved since.
    pub fn reported(&self) -> Vec<String> {
        self.lock().reports.iter().map(|(_, sentence)| sentence.clone()).collect()
    }

    /// Returns the reports that still hold and that concern no other process.
    pub fn local_reports(&self) -> Vec<String> {
        let state = self.lock();
        let own = state
            .reports
            .iter()
            .filter(|(about, _)| matches!(about, WaitTarget::Completions(_) | WaitTarget::Rejected(_)));
        own.map(|(_, sentence)| sentence.clone()).collect()
    }

    /// Returns the requests for connections that have no answer.
    pub fn connects(&self, now_ns: u64) -> Vec<ConnectView> {
        self.lock().connects(now_ns)
    }
}
