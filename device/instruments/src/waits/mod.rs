//! What programs wait for in vain, and the one reason that holds it.
//!
//! [`Waits`] is sans-IO: it hears of the device's events, is told of completion queues from time to time,
//! and asks for nothing. When something has been waiting for long, its owner finds out what the threads of
//! the program are doing and what other processes say, and [`Waits::judge`] says who waits in vain.
//! [`graph`] says the same of many processes at once.

mod graph;
mod heard;
mod own;
mod reasons;
mod rest;
#[cfg(test)]
mod tests;
mod verdicts;
mod words;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_events::inspect::{Collected, ConnectView};
use pumice_events::{Event, Subscriber, Topics};

pub use graph::graph;
pub use pumice_events::inspect::{
    ArmedNow, Awaited, Doing, Graph, QueueNow, Standing, Vain, Verdict, Wait, Waiter, Why,
};
pub use words::until;

use heard::State;
use rest::PATIENCES;
use verdicts::verdict_of;

/// Hears of a device for those who look for waits in vain.
pub struct WaitsSubscriber(pub Arc<Waits>);

/// What is known of the waits of a device.
#[derive(Debug)]
pub struct Waits {
    patience_ns: u64,
    state: Mutex<State>,
}

/// What a look has found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Due {
    /// Something has waited for long, of which nothing was said: what threads do has to be asked.
    pub is_long: bool,
    /// Nothing has moved for as long: other processes have to be asked as well.
    pub is_at_rest: bool,
}

impl Subscriber for WaitsSubscriber {
    fn topics(&self) -> Topics {
        Topics::RECOVERY | Topics::CM | Topics::OBJECTS | Topics::FAULTS | Topics::LOG
    }

    fn hear(&self, at_ns: u64, event: &Event<'_>) {
        self.0.lock().hear(at_ns, event);
    }
}

impl Waits {
    /// Nothing waits. What waits for `patience_ns` and longer is told.
    pub fn new(patience_ns: u64) -> Waits {
        Waits { patience_ns, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whether something waits for long, of which nothing was said. `queues`: all completion queues of
    /// the device; `moved`: a number that changes when the device gets on.
    pub fn look(&self, now_ns: u64, queues: &[QueueNow], moved: u64) -> Due {
        let mut state = self.lock();
        state.see(now_ns, queues);
        if state.rest.see(now_ns, moved) {
            state.said.clear();
        }
        let is_at_rest = state.rest.is_due(now_ns, self.patience_ns);
        Due { is_long: state.is_long(now_ns, self.patience_ns), is_at_rest }
    }

    /// Whether nothing can be waited for: no connection is asked for, no request waits for a receive, and no
    /// completion for a poll.
    pub fn is_idle(&self) -> bool {
        self.lock().is_idle()
    }

    /// Whether nothing has moved for as long as a wait is told after.
    pub fn is_at_rest(&self, now_ns: u64) -> bool {
        self.lock().rest.is_long(now_ns, self.patience_ns)
    }

    /// Says what is waited for in vain, once each. `queues`: all completion queues of the device; `waiters`:
    /// threads of the program; `objects`: what there is; `others`: what all processes say, this one included.
    pub fn judge(
        &self,
        now_ns: u64,
        queues: &[QueueNow],
        waiters: &[Waiter],
        objects: &Collected,
        others: &[Standing],
    ) -> Vec<Vain> {
        let mut state = self.lock();
        state.see(now_ns, queues);
        if state.is_long(now_ns, self.patience_ns) {
            // Else another wait may be long in a moment.
            state.again_ns = now_ns.saturating_add(PATIENCES * self.patience_ns);
        }
        let Some(before_ns) = now_ns.checked_sub(self.patience_ns) else { return Vec::new() };
        let mut found = state.unready_peers(now_ns, before_ns, waiters);
        found.extend(waiters.iter().filter_map(|waiter| match waiter.doing {
            Doing::Polls(number) => state.polls_another(number, before_ns, queues, waiters, waiter, objects),
            Doing::SleepsOn(channel) => state.sleeps(channel, before_ns, queues, waiters, waiter, objects),
            Doing::SleepsForConnections | Doing::Acknowledges => None,
        }));
        if let Some(before_ns) = before_ns.checked_sub(self.patience_ns / 2) {
            found.extend(state.unanswered(now_ns, before_ns, waiters, others));
            found.extend(state.refused(before_ns, waiters));
            found.extend(state.strayed(before_ns, queues, waiters, objects));
        }
        state.not_told(found)
    }

    /// What holds this process, of what was found among all of them: said once, and only if it leaves no
    /// doubt. `is_own` knows this process among `all`; `waiters`: its threads.
    pub fn judge_all(
        &self,
        now_ns: u64,
        is_own: &dyn Fn(&Standing) -> bool,
        all: &[Standing],
        graph: &Graph,
        waiters: &[Waiter],
    ) -> Vec<Vain> {
        let mut state = self.lock();
        state.rest.judged(now_ns, self.patience_ns);
        if !state.said.is_empty() {
            // One reason is enough.
            return Vec::new();
        }
        let own = all.iter().position(is_own).and_then(|own| verdict_of(graph, all, own));
        // What the process knows itself was said.
        let is_said = |qpn: Option<u32>| qpn.is_some_and(|qpn| state.told.contains(&Awaited::Request(qpn)));
        let is_news = |first: &Wait| !first.why.is_known() && !is_said(first.qpn);
        let Some((first, verdict)) = own.filter(|(first, one)| one.is_certain && is_news(first)) else {
            return Vec::new();
        };
        // Of those that wait for completions, if there are any.
        let first_of = |is_it: fn(&Waiter) -> bool| waiters.iter().find(|waiter| is_it(waiter));
        let waiter = first_of(|one| one.doing != Doing::SleepsForConnections).or(waiters.first());
        let stack = waiter.map(|waiter| waiter.stack.clone()).unwrap_or_default();
        let about = Awaited::Others(first.qpn.unwrap_or_default());
        state.not_told(vec![Vain { about, sentence: verdict.sentence, stack }])
    }

    /// What was said and still holds, as far as is known: nothing has moved since.
    pub fn told(&self) -> Vec<String> {
        self.lock().said.iter().map(|(_, sentence)| sentence.clone()).collect()
    }

    /// The same, as far as no other process is part of it.
    pub fn told_of_itself(&self) -> Vec<String> {
        let state = self.lock();
        let own = state
            .said
            .iter()
            .filter(|(about, _)| matches!(about, Awaited::Completions(_) | Awaited::Rejected(_)));
        own.map(|(_, sentence)| sentence.clone()).collect()
    }

    /// Requests for connections that have no answer.
    pub fn connects(&self, now_ns: u64) -> Vec<ConnectView> {
        self.lock().connects(now_ns)
    }
}
