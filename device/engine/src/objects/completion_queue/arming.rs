//! Events of a completion queue: the application arms it, and a completion fires it.

use std::sync::atomic::Ordering;

use pumice_model::event::Event;

use super::CompletionQueue;
use super::ring::{ArmedFor, CqPushOutcome, CqState};
use crate::objects::completion_channel::CqEvent;
use crate::objects::paced_events::EventPacing;

impl CompletionQueue {
    /// Asks for one event on the channel at the next completion; with `solicited_only`, at the next that is
    /// solicited or unsuccessful. Arming for solicited ones does not weaken an earlier arming for all.
    ///
    /// Completions already in the queue do not fire, so poll once more after arming. A queue made to fire
    /// late (`CqSetup::fires_late`) makes one exception, for completions that the application cannot know of:
    /// its last poll found the queue empty, and they came before it armed.
    pub fn arm(&self, solicited_only: bool) {
        let mut state = self.lock();
        self.common.events.emit(&Event::Armed { cq: self.handle, solicited_only });
        if state.armed == ArmedFor::No {
            self.common.armed.add();
        }
        //= statement:33
        //| Arming for solicited completions does not weaken an earlier arming for all.
        if !solicited_only {
            state.armed = ArmedFor::Any;
        } else if state.armed == ArmedFor::No {
            state.armed = ArmedFor::Solicited;
        }
        let unknown = self.fires_late && !state.ring.is_empty() && self.seen_empty.load(Ordering::Relaxed);
        let spurious = state.held.as_mut().is_some_and(|held| held.armed()) && self.channel.is_some();
        if spurious || (unknown && (state.armed == ArmedFor::Any || state.solicited)) {
            self.fire(&mut state);
        }
    }

    /// Reports whether the next completion, or the next solicited one, makes an event.
    pub fn is_armed(&self) -> bool {
        self.lock().armed != ArmedFor::No
    }

    /// Reports whether only a solicited completion, or one that failed, makes an event.
    pub fn is_armed_for_solicited(&self) -> bool {
        self.lock().armed == ArmedFor::Solicited
    }

    /// Delivers an event that was delayed, if its time has come.
    #[cold]
    pub fn fire_due(&self, now_ns: u64) {
        let mut state = self.lock();
        if state.paced.as_ref().is_some_and(|paced| paced.is_due(now_ns)) {
            self.fire(&mut state);
        }
    }

    /// Handles a completion for which the queue is armed.
    pub(super) fn wake(&self, state: &mut CqState) -> CqPushOutcome {
        if !state.paced.as_ref().is_some_and(|paced| paced.is_waiting()) {
            state.events = state.events.saturating_add(1);
        }
        let paced = match &mut state.paced {
            Some(paced) if self.channel.is_some() => paced.completed(state.events, &self.common.events),
            _ => EventPacing::Now,
        };
        match paced {
            EventPacing::Now => {
                self.fire(state);
                CqPushOutcome::Stored
            }
            EventPacing::By(due_ns) => CqPushOutcome::EventBy(due_ns),
            EventPacing::Waits => CqPushOutcome::Stored,
        }
    }

    /// Delivers the event. Called under the lock, so that events of two firings cannot overtake each other.
    fn fire(&self, state: &mut CqState) {
        //= statement:34
        //| One arming makes one event, however many completions follow.
        self.disarm(state);
        self.seen_empty.store(false, Ordering::Relaxed);
        if let Some(channel) = &self.channel {
            self.common.events.emit(&Event::CompletionEventRaised { cq: self.handle });
            channel.fire(CqEvent { cq: self.handle, cookie: self.cookie() }, &self.account);
        }
    }

    /// Disarms the queue.
    pub(super) fn disarm(&self, state: &mut CqState) {
        if let Some(paced) = &mut state.paced {
            paced.end();
        }
        if std::mem::replace(&mut state.armed, ArmedFor::No) != ArmedFor::No {
            self.common.armed.remove();
        }
    }
}
