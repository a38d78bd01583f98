//! The rules by which threads take turns driving the engine: values that are told what happens and answer
//! what to do.
//!
//! The rules read no clock, no atomic and no descriptor. [`Policy`] decides for the background thread, and
//! `background.rs` does what it answers. [`call_wakes`] and [`Idling`] decide for application threads.
//! `handover.rs` is the encoding in atomics of what the two sides tell each other.
//!
//! **Invariant**: the background thread does not wait on the port's descriptors while an application thread
//! polls. A second waiter would be woken by every packet and compete for the engine's lock (measured: p99 of
//! 2 ms on two cores).

mod idling;
mod rules;
#[cfg(test)]
mod table_tests;

use rules::{PortWatch, ReceiveRestraint, SpinBeforeSleep};

pub(crate) use idling::{EmptyPoll, Idling, Yielded};

/// How long the application may be silent before the thread takes over. The thread also looks this often
/// whether the application is silent.
pub(crate) const TICK_NS: u64 = 1_000_000;
/// The same while the application spins: each look costs it about 10 µs, which shows in its p99 if looks are
/// a percent of its messages.
pub(crate) const SPINNING_TICK_NS: u64 = 10_000_000;
/// The same while a completion queue is armed: the application may sleep by now, although it polled a moment
/// ago.
pub(crate) const ARMED_TICK_NS: u64 = 500_000;
/// More empty polls than this between two looks mean that the application spins.
pub(crate) const SPINNING_POLLS: u64 = 500;
/// More empty polls than this between two looks mean that polls are microseconds apart, so that one of them
/// may leave to a later one what can wait.
pub(crate) const DENSE_POLLS: u64 = 2_000;
/// How long the application must not have polled for packets to count as left in the port.
pub(crate) const SILENCE_NS: u64 = 50_000;
/// How long the thread sleeps at most while something waits to be sent.
pub(crate) const BACKLOG_SLEEP_NS: u64 = 1_000_000;
/// What the thread announces when it sleeps until something wakes it.
pub(crate) const FOREVER_NS: u64 = u64::MAX;

/// What application threads have done, as the background thread sees it when a turn begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    /// Polls of empty queues so far. Only changes matter.
    pub(crate) polls: u64,
    /// Application threads that wait for an event and drive meanwhile.
    pub(crate) waiters: u64,
    /// A completion queue is armed.
    pub(crate) armed: bool,
    /// An application thread asked the background thread to take over at once.
    pub(crate) called: bool,
}

/// What happened: the answer to an [`Action`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// To [`Action::Look`].
    Turn(Signals),
    /// To [`Action::StandBy`]: polls so far.
    StoodBy { polls: u64 },
    /// To [`Action::Listen`]: polls so far, and whether messages that are not acknowledged would find no
    /// receive request.
    Listened { polls: u64, short_of_receives: bool },
    /// To [`Action::Peek`]: whether packets were in the port.
    Peeked { found: bool },
    /// To [`Action::CheckReceives`]: whether messages that are not acknowledged would find no receive
    /// request.
    Receives { short: bool },
    /// To [`Action::Abstain`]: the wait is over.
    Abstained,
    /// To [`Action::Drive`]: something was done.
    Progressed,
    /// To [`Action::Drive`]: nothing was done. The engine wants to be driven at `deadline_ns`; `backlog`:
    /// something waits to be sent.
    Idle { deadline_ns: Option<u64>, backlog: bool },
    /// To [`Action::Yield`]: for how long other threads had the processor.
    Yielded { took_ns: u64 },
    /// To [`Action::Sleep`]: how long the sleep was, whether driving after it did something, and whether
    /// there were packets.
    Woke { slept_ns: u64, progressed: bool, found: bool },
}

/// What the background thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Begins a turn: reads what application threads have done.
    Look,
    /// Waits for the bell, not for packets: the application drives.
    StandBy { for_ns: u64 },
    /// Waits for the bell again, to see whether the application polls in this time.
    Listen { for_ns: u64 },
    /// Drives, unless another thread does.
    Peek,
    /// Asks the engine whether receive requests run out.
    CheckReceives,
    /// Waits for the bell: packets stay in the port until the application has posted receive requests.
    Abstain { for_ns: u64 },
    /// Drives.
    Drive,
    /// Lets other threads have the processor.
    Yield,
    /// Waits for packets and for the bell, then drives. The thread announces `until_ns` to application
    /// threads before it releases the engine's lock. Without `for_ns` only packets and the bell end the wait.
    Sleep { until_ns: u64, for_ns: Option<u64> },
}

/// The rules of the background thread, and what they remember.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    /// Polls when the last turn began.
    polls: u64,
    /// There were more than [`DENSE_POLLS`] between the last two turns.
    dense: bool,
    /// Polls when the application was last listened to.
    polls_before_silence: u64,
    /// The thread has abstained, and drives in the next turn whether the application polls or not.
    has_abstained: bool,
    /// This turn waits on the port although the application polls now and then.
    watching: bool,
    port_watch: PortWatch,
    restraint: ReceiveRestraint,
    spin: SpinBeforeSleep,
}

impl Policy {
    /// The rules for a thread that starts after the application has polled `polls` times.
    pub(crate) fn new(polls: u64) -> Policy {
        Policy { polls, ..Policy::default() }
    }

    /// What to do after `input`, at `now_ns`.
    pub(crate) fn next(&mut self, now_ns: u64, input: Input) -> Action {
        match input {
            Input::Turn(signals) => self.begin_turn(signals),
            Input::StoodBy { polls } => {
                // Packets prove nothing while this very thread keeps the application from polling: the
                // application must have been silent for a moment in which it could run.
                self.polls_before_silence = polls;
                Action::Listen { for_ns: SILENCE_NS }
            }
            Input::Listened { polls, short_of_receives } => {
                let restrained = self.restraint.holds(short_of_receives, now_ns);
                if polls == self.polls_before_silence && !restrained {
                    return Action::Peek;
                }
                self.port_watch.peeked(false, now_ns);
                Action::Look
            }
            Input::Peeked { found } => {
                self.port_watch.peeked(found, now_ns);
                Action::Look
            }
            Input::Receives { short } if self.restraint.holds(short, now_ns) => {
                self.has_abstained = true;
                Action::Abstain { for_ns: TICK_NS }
            }
            Input::Receives { .. } => Action::Drive,
            Input::Abstained => Action::Look,
            Input::Progressed => {
                self.spin.progressed(now_ns);
                Action::Look
            }
            Input::Idle { .. } if !self.watching && self.spin.goes_on(now_ns) => Action::Yield,
            Input::Idle { deadline_ns, backlog } => Action::Sleep {
                until_ns: deadline_ns.unwrap_or(FOREVER_NS),
                for_ns: match deadline_ns {
                    _ if backlog => Some(BACKLOG_SLEEP_NS),
                    deadline_ns => deadline_ns.map(|at_ns| at_ns.saturating_sub(now_ns)),
                },
            },
            Input::Yielded { took_ns } => {
                self.spin.yielded(took_ns);
                Action::Look
            }
            Input::Woke { slept_ns, progressed, found } => {
                self.spin.slept(slept_ns);
                if progressed {
                    self.spin.progressed(now_ns);
                }
                if self.watching {
                    self.port_watch.woke(found, now_ns);
                }
                Action::Look
            }
        }
    }

    /// Whether the application polled very often between the last two turns.
    pub(crate) const fn polls_are_dense(&self) -> bool {
        self.dense
    }

    fn begin_turn(&mut self, signals: Signals) -> Action {
        let new_polls = signals.polls.wrapping_sub(self.polls);
        self.polls = signals.polls;
        self.dense = new_polls > DENSE_POLLS;
        self.watching = self.port_watch.lasts() && signals.waiters == 0;
        let application_drives = new_polls != 0 || signals.waiters > 0;
        let called = signals.called | std::mem::take(&mut self.has_abstained);
        if !application_drives || self.watching || called {
            return Action::CheckReceives;
        }
        let may_sleep = signals.armed && signals.waiters == 0;
        let for_ns = match may_sleep {
            true => ARMED_TICK_NS,
            false if new_polls > SPINNING_POLLS => SPINNING_TICK_NS,
            false => TICK_NS,
        };
        Action::StandBy { for_ns }
    }
}

/// What a call of an application thread leaves in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    /// When the engine wants to be driven though nothing arrives.
    pub(crate) deadline_ns: Option<u64>,
    /// Something waits to be sent.
    pub(crate) backlog: bool,
}

/// Whether a call that leaves `left` wakes the background thread, which sleeps until `sleeping_until_ns`.
/// What the call leaves would otherwise wait for the next packet: the packets that would have woken the
/// thread have been taken.
pub(crate) fn call_wakes(sleeping_until_ns: u64, left: Left) -> bool {
    left.backlog || left.deadline_ns.is_some_and(|at_ns| at_ns < sleeping_until_ns)
}

/// Whether arming a completion queue calls the background thread. The application is about to sleep. If it
/// has slept in a call of this device lately it will do so again and drive from there; if not, the thread
/// takes over at once.
pub(crate) fn arming_calls(waits_here: bool) -> bool {
    !waits_here
}
